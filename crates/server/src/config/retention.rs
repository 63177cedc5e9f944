//! How long the operator keeps the rows of each kind.

use recado_domain::retention::RetentionBounds;
use recado_postgres::RetentionDays;

use super::values::{ConfigError, Source, invalid, parsed};

/// The smallest term for audit entries, whatever `RETENTION_MIN_DAYS` is.
const AUDIT_MIN_DAYS: u16 = 365;

/// Reads the bounds of all terms, and the term of accounts without their own.
pub(super) fn bounds(source: Source<'_>) -> Result<RetentionBounds, ConfigError> {
    let is_bound = |days: &u16| (1..=36_500).contains(days);
    let min_days = parsed(source, "RETENTION_MIN_DAYS", 30, is_bound, "1 to 36500")?;
    let max_days = parsed(source, "RETENTION_MAX_DAYS", 3650, is_bound, "1 to 36500")?;
    if min_days > max_days {
        return Err(invalid("RETENTION_MIN_DAYS", "must not exceed RETENTION_MAX_DAYS"));
    }
    Ok(RetentionBounds {
        min_days,
        max_days,
        force_days: term(source, "RETENTION_FORCE_DAYS", min_days, max_days)?,
    })
}

/// A term within its bounds. Unset: for ever.
fn term(source: Source<'_>, name: &'static str, min: u16, max: u16) -> Result<Option<u16>, ConfigError> {
    let Some(text) = source(name) else { return Ok(None) };
    let days = text.trim().parse().ok().filter(|days| (min..=max).contains(days));
    let problem = || {
        invalid(
            name,
            format!("must be {min} to {max} days, or unset to keep the rows for ever"),
        )
    };
    days.map(Some).ok_or_else(problem)
}

/// Reads `RETENTION_CAMPAIGN_SENDS_DAYS` and the other terms of the operator. Unset: for ever.
pub(super) fn read(source: Source<'_>) -> Result<RetentionDays, ConfigError> {
    let RetentionBounds {
        min_days: min,
        max_days: max,
        ..
    } = bounds(source)?;
    let term = |name: &'static str, min: u16| term(source, name, min, max);
    Ok(RetentionDays {
        campaign_sends: term("RETENTION_CAMPAIGN_SENDS_DAYS", min)?,
        messages: term("RETENTION_MESSAGES_DAYS", min)?,
        metric_events: term("RETENTION_METRIC_EVENTS_DAYS", min)?,
        orders: term("RETENTION_ORDERS_DAYS", min)?,
        audit: term("RETENTION_AUDIT_DAYS", min.max(AUDIT_MIN_DAYS))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_from(variables: &[(&'static str, &'static str)]) -> Result<RetentionDays, ConfigError> {
        read(&|asked| {
            let found = variables.iter().find(|(name, _)| *name == asked);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn unset_retention_keeps_everything() {
        assert_eq!(read_from(&[]), Ok(RetentionDays::default()));
        let unset = RetentionBounds {
            min_days: 30,
            max_days: 3650,
            force_days: None,
        };
        assert_eq!(bounds(&|_| None), Ok(unset));
    }

    #[test]
    fn forced_term_is_within_the_bounds() {
        let forced =
            |days: &'static str| bounds(&move |name| (name == "RETENTION_FORCE_DAYS").then(|| days.to_owned()));
        assert_eq!(forced("400").unwrap().force_days, Some(400));
        for refused in ["29", "3651", "0", "a year"] {
            assert_eq!(
                forced(refused).unwrap_err().variable,
                "RETENTION_FORCE_DAYS",
                "{refused}"
            );
        }
    }

    #[test]
    fn retention_terms_are_accepted_within_their_bounds() {
        let read = read_from(&[
            ("RETENTION_CAMPAIGN_SENDS_DAYS", " 400 "),
            ("RETENTION_MESSAGES_DAYS", "30"),
            ("RETENTION_METRIC_EVENTS_DAYS", "3650"),
            ("RETENTION_ORDERS_DAYS", "90"),
            ("RETENTION_AUDIT_DAYS", "365"),
        ]);
        let expected = RetentionDays {
            campaign_sends: Some(400),
            messages: Some(30),
            metric_events: Some(3650),
            orders: Some(90),
            audit: Some(365),
        };
        assert_eq!(read, Ok(expected));
        let wider = read_from(&[("RETENTION_MIN_DAYS", "7"), ("RETENTION_ORDERS_DAYS", "7")]);
        assert_eq!(wider.unwrap().orders, Some(7));
    }

    #[test]
    fn retention_terms_outside_of_their_bounds_are_refused() {
        for (variables, refused) in [
            (
                &[("RETENTION_CAMPAIGN_SENDS_DAYS", "29")][..],
                "RETENTION_CAMPAIGN_SENDS_DAYS",
            ),
            (&[("RETENTION_MESSAGES_DAYS", "3651")], "RETENTION_MESSAGES_DAYS"),
            (&[("RETENTION_METRIC_EVENTS_DAYS", "0")], "RETENTION_METRIC_EVENTS_DAYS"),
            (&[("RETENTION_ORDERS_DAYS", "a year")], "RETENTION_ORDERS_DAYS"),
            (&[("RETENTION_AUDIT_DAYS", "364")], "RETENTION_AUDIT_DAYS"),
            (&[("RETENTION_MIN_DAYS", "0")], "RETENTION_MIN_DAYS"),
            (&[("RETENTION_MAX_DAYS", "40000")], "RETENTION_MAX_DAYS"),
            (
                &[("RETENTION_MIN_DAYS", "31"), ("RETENTION_MAX_DAYS", "30")],
                "RETENTION_MIN_DAYS",
            ),
            (
                &[("RETENTION_MAX_DAYS", "100"), ("RETENTION_ORDERS_DAYS", "101")],
                "RETENTION_ORDERS_DAYS",
            ),
            // A maximum below a year leaves no term for audit entries.
            (
                &[("RETENTION_MAX_DAYS", "100"), ("RETENTION_AUDIT_DAYS", "90")],
                "RETENTION_AUDIT_DAYS",
            ),
        ] {
            assert_eq!(read_from(variables).unwrap_err().variable, refused, "{variables:?}");
        }
    }
}
