//! The published format of timestamps: RFC 3339 in UTC with `Z` and milliseconds.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

/// Formats a timestamp, for example `2026-01-31T23:59:59.120Z`.
pub fn format(at: OffsetDateTime) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    at.to_offset(UtcOffset::UTC).format(&format).unwrap_or_default()
}

/// Serde: writes the published format.
pub fn serialize<S: Serializer>(at: &OffsetDateTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format(*at))
}

/// Serde: parses any RFC 3339 timestamp and truncates it to microseconds, the database's precision.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OffsetDateTime, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| serde::de::Error::custom("is not an ISO 8601 timestamp"))
}

/// Parses an RFC 3339 timestamp and converts it to UTC. Returns `None` also outside the years 1 to 9999 in UTC, the
/// calendar that the database supports.
pub fn parse(text: &str) -> Option<OffsetDateTime> {
    let parsed = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    let at = parsed.checked_to_offset(UtcOffset::UTC)?;
    if at.year() < 1 {
        return None;
    }
    at.replace_nanosecond(at.nanosecond() / 1000 * 1000).ok()
}

/// Serde functions for optional timestamps.
pub mod option {
    use super::{Deserialize, Deserializer, OffsetDateTime, Serialize, Serializer, format};

    /// Serde: writes the published format or null.
    pub fn serialize<S: Serializer>(at: &Option<OffsetDateTime>, serializer: S) -> Result<S::Ok, S::Error> {
        at.map(format).serialize(serializer)
    }

    /// Serde: parses a timestamp or null.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<OffsetDateTime>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| super::parse(&text).ok_or_else(|| serde::de::Error::custom("is not an ISO 8601 timestamp")))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_is_converted_to_utc_milliseconds() {
        let at = parse("2026-01-31T21:59:59.1239999-03:00").unwrap();
        assert_eq!(format(at), "2026-02-01T00:59:59.123Z");
        assert_eq!(at.nanosecond(), 123_999_000);
        assert_eq!(parse("2026-01-31"), None);
    }

    #[test]
    fn timestamp_outside_the_calendar_is_rejected() {
        for text in [
            "0000-06-01T00:00:00Z",
            "0001-01-01T00:00:00+05:00",
            "9999-12-31T23:59:59-03:00",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert!(parse("0001-01-01T00:00:00Z").is_some() && parse("9999-12-31T23:59:59Z").is_some());
    }
}
