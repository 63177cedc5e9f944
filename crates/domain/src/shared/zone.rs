//! Time zones.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use time::{Date, Month, OffsetDateTime};

use super::zone_aliases::{aliases, canonical};

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

    /// Returns the first day of the month of an instant, and that of the next month.
    pub fn month_of(&self, at: OffsetDateTime) -> Option<(Date, Date)> {
        let first = self.date_of(at)?.first_of_month();
        let next = first.last_of_month().tomorrow().ok()?;
        Some((Self::day(first)?, Self::day(next)?))
    }

    fn day(day: jiff::civil::Date) -> Option<Date> {
        let month = Month::try_from(u8::try_from(day.month()).ok()?).ok()?;
        Date::from_calendar_date(day.year().into(), month, u8::try_from(day.day()).ok()?).ok()
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

/// The name of a time zone, as the IANA database writes it. The database has several names for some zones: each of them is
/// accepted and returned as given, and [`is_same_zone`](Self::is_same_zone) compares the zones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ZoneName(String);

impl ZoneName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The time zone; UTC for a stored name that the database does not have any more.
    pub fn zone(&self) -> Zone {
        self.0.parse().unwrap_or(Zone::UTC)
    }

    /// Whether both names are names of one zone, such as `Brazil/East` and `America/Sao_Paulo`.
    pub fn is_same_zone(&self, other: &Self) -> bool {
        canonical(&self.0) == canonical(&other.0)
    }

    /// All names of the zone.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let name = canonical(&self.0);
        aliases(name).chain([name])
    }

    /// Takes over a stored name, which was checked when it was written.
    pub fn stored(name: String) -> Self {
        Self(name)
    }
}

impl Default for ZoneName {
    fn default() -> Self {
        Self("UTC".to_owned())
    }
}

impl Serialize for ZoneName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for ZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ZoneName {
    type Err = String;

    /// Case does not matter. `Etc/Unknown` names no zone.
    fn from_str(name: &str) -> Result<Self, String> {
        let zone = jiff::tz::TimeZone::get(name).ok();
        let name = zone
            .as_ref()
            .filter(|zone| !zone.is_unknown())
            .and_then(|zone| zone.iana_name());
        let name = name.ok_or("must be the IANA name of a time zone, such as America/Sao_Paulo")?;
        Ok(Self(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_name_is_that_of_the_database() {
        for (given, name) in [
            ("UTC", "UTC"),
            ("utc", "UTC"),
            ("america/sao_paulo", "America/Sao_Paulo"),
            ("America/Argentina/Buenos_Aires", "America/Argentina/Buenos_Aires"),
            ("Etc/GMT+3", "Etc/GMT+3"),
            ("brazil/east", "Brazil/East"),
            ("America/Buenos_Aires", "America/Buenos_Aires"),
        ] {
            assert_eq!(given.parse::<ZoneName>().unwrap().as_str(), name, "{given}");
        }
        for invalid in [
            "",
            " ",
            "-03:00",
            "BRT",
            "America",
            "America/Sao Paulo",
            "Etc/Unknown",
            "../etc/passwd",
            "UTC-3",
        ] {
            assert!(invalid.parse::<ZoneName>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn other_names_of_a_zone_are_equal_to_it() {
        let zone = |name: &str| name.parse::<ZoneName>().unwrap();
        for (name, other) in [
            ("Brazil/East", "America/Sao_Paulo"),
            ("America/Argentina/Buenos_Aires", "America/Buenos_Aires"),
            ("UTC", "Etc/UTC"),
            ("Zulu", "UTC"),
            ("Asia/Calcutta", "Asia/Kolkata"),
            ("Asia/Tokyo", "Asia/Tokyo"),
        ] {
            assert!(zone(name).is_same_zone(&zone(other)), "{name} {other}");
            assert!(zone(name).names().any(|known| known == other), "{name} {other}");
        }
        // Other zones may show the same time.
        for (name, other) in [
            ("America/Sao_Paulo", "America/Bahia"),
            ("Europe/San_Marino", "Europe/Rome"),
            ("UTC", "Etc/GMT"),
        ] {
            assert!(!zone(name).is_same_zone(&zone(other)), "{name} {other}");
            assert!(zone(name).names().all(|known| known != other), "{name} {other}");
        }
        let names: Vec<_> = zone("Brazil/West").names().map(str::to_owned).collect();
        assert_eq!(names, ["Brazil/West", "America/Manaus"]);
    }
}
