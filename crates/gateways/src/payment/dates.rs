//! Dates and times of the payment gateway.

use recado_domain::shared::timestamp;
use time::macros::{format_description, offset};
use time::{Date, OffsetDateTime, PrimitiveDateTime, UtcOffset};

/// Parses a date, `YYYY-MM-DD`. A time after it is ignored.
pub(super) fn date(text: &str) -> Option<Date> {
    let format = format_description!("[year]-[month]-[day]");
    Date::parse(text.get(..10)?, format)
        .ok()
        .filter(|date| date.year() >= 1)
}

/// Parses a time: RFC 3339, or `YYYY-MM-DD HH:MM:SS` without a zone, which is read as São Paulo time.
pub(super) fn time(text: &str) -> Option<OffsetDateTime> {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    let local = PrimitiveDateTime::parse(text, format).ok();
    let utc = local.and_then(|local| local.assume_offset(offset!(-3)).checked_to_offset(UtcOffset::UTC));
    utc.or_else(|| timestamp::parse(text))
        .filter(|time| (1..=9999).contains(&time.year()))
}
