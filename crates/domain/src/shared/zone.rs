//! Time zones.

use std::str::FromStr;

use time::{Date, OffsetDateTime};

/// A time zone of the IANA database, which is compiled into the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(pub(crate) jiff::tz::TimeZone);

impl Zone {
    pub const UTC: Self = Self(jiff::tz::TimeZone::UTC);

    /// Returns the calendar day of an instant.
    pub(crate) fn date_of(&self, at: OffsetDateTime) -> Option<jiff::civil::Date> {
        let at = jiff::Timestamp::from_second(at.unix_timestamp()).ok()?;
        Some(self.0.to_datetime(at).date())
    }

    /// Returns the first instant of a day.
    pub fn begin_of(&self, date: Date) -> Option<OffsetDateTime> {
        self.begin(Self::civil(date)?)
    }

    /// Returns the first instant of a day. It is later than midnight if the clocks go forward at midnight, and the
    /// first of two midnights if they go back.
    pub(crate) fn begin(&self, date: jiff::civil::Date) -> Option<OffsetDateTime> {
        let begin = date.to_zoned(self.0.clone()).ok()?;
        OffsetDateTime::from_unix_timestamp(begin.timestamp().as_second()).ok()
    }

    /// Converts a day.
    pub(crate) fn civil(date: Date) -> Option<jiff::civil::Date> {
        let (year, month, day) = date.to_calendar_date();
        let (month, day) = (i8::try_from(u8::from(month)).ok()?, i8::try_from(day).ok()?);
        jiff::civil::Date::new(i16::try_from(year).ok()?, month, day).ok()
    }
}

impl FromStr for Zone {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let zone = jiff::tz::TimeZone::get(name);
        zone.map(Self).map_err(|_| "must be the name of a time zone".to_owned())
    }
}
