//! Calendar intervals, and the names and bounds of their partitions.

use time::{Date, Duration, Month, OffsetDateTime, UtcOffset};
use uuid::Uuid;

/// The length of a partition: a calendar month or a day, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    Month,
    Day,
}

/// What the rows of a table are partitioned by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionKey {
    /// The id, whose first 48 bits are a time in milliseconds since 1970.
    Id,
    /// A column with such an id of another table.
    IdOf(&'static str),
    /// A column with a time.
    Time(&'static str),
}

impl Interval {
    /// The first day of the interval that contains a time.
    pub(super) fn start_of(self, at: OffsetDateTime) -> Date {
        let date = at.to_offset(UtcOffset::UTC).date();
        match self {
            Self::Month => date.replace_day(1).unwrap_or(date),
            Self::Day => date,
        }
    }

    /// The first day of the next interval.
    pub(super) fn next(self, start: Date) -> Date {
        match self {
            Self::Month => {
                let next = start.saturating_add(Duration::days(31));
                next.replace_day(1).unwrap_or(next)
            }
            Self::Day => start.saturating_add(Duration::DAY),
        }
    }

    /// How many intervals after the current one have a partition.
    pub(super) fn ahead(self) -> usize {
        match self {
            Self::Month => 2,
            Self::Day => 3,
        }
    }

    /// Every interval from the first one, which starts at `first`, to the last one that must exist at `now`. Without
    /// `first` it is the current one. `_earlier` has what is before the first.
    pub(super) fn required(self, first: Option<Date>, now: OffsetDateTime) -> Vec<Date> {
        let current = self.start_of(now);
        let last = (0..self.ahead()).fold(current, |start, _| self.next(start));
        std::iter::successors(Some(first.unwrap_or(current)), |start| Some(self.next(*start)))
            .take_while(|start| *start <= last)
            .collect()
    }

    /// The suffix of a partition's name, for example `y2026m11` or `y2026m11d27`.
    pub(super) fn suffix(self, start: Date) -> String {
        let (year, month, day) = (start.year(), u8::from(start.month()), start.day());
        match self {
            Self::Month => format!("y{year:04}m{month:02}"),
            Self::Day => format!("y{year:04}m{month:02}d{day:02}"),
        }
    }

    /// The inverse of [`suffix`](Self::suffix).
    pub(super) fn parse_suffix(self, suffix: &str) -> Option<Date> {
        let (year, rest) = suffix.strip_prefix('y')?.split_once('m')?;
        let (month, day) = match self {
            Self::Month => (rest, "1"),
            Self::Day => rest.split_once('d')?,
        };
        let month = Month::try_from(month.parse::<u8>().ok()?).ok()?;
        Date::from_calendar_date(year.parse().ok()?, month, day.parse().ok()?).ok()
    }
}

impl PartitionKey {
    /// The column that partitions the table.
    pub fn column(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::IdOf(column) | Self::Time(column) => column,
        }
    }

    /// The bound of an interval that starts on a day, as an SQL literal.
    pub(super) fn bound(self, start: Date) -> String {
        match self {
            Self::Id | Self::IdOf(_) => format!("'{}'", first_id(start_time(start))),
            Self::Time(_) => format!("'{start} 00:00:00+00'"),
        }
    }
}

/// The begin of a day in UTC.
pub(super) fn start_time(start: Date) -> OffsetDateTime {
    start.midnight().assume_utc()
}

/// The smallest id of a millisecond. Every id of that time or later is not smaller, whatever its other bits are.
pub fn first_id(at: OffsetDateTime) -> Uuid {
    let milliseconds = u64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
    Uuid::from_u128(u128::from(milliseconds) << 80)
}

#[cfg(test)]
mod tests {
    use time::macros::{date, datetime};

    use super::*;

    #[test]
    fn required_intervals_reach_ahead_and_leave_no_gap() {
        let now = datetime!(2026-12-31 23:30 -3);
        assert_eq!(
            Interval::Month.required(None, now),
            [date!(2027 - 01 - 01), date!(2027 - 02 - 01), date!(2027 - 03 - 01)]
        );
        assert_eq!(
            Interval::Month.required(Some(date!(2026 - 11 - 01)), now),
            [
                date!(2026 - 11 - 01),
                date!(2026 - 12 - 01),
                date!(2027 - 01 - 01),
                date!(2027 - 02 - 01),
                date!(2027 - 03 - 01)
            ]
        );
        assert_eq!(Interval::Day.required(None, now).len(), 4);
        // The clock was set back.
        assert!(Interval::Day.required(Some(date!(2027 - 02 - 01)), now).is_empty());
    }

    #[test]
    fn partition_names_are_parsed_back() {
        for (interval, start, suffix) in [
            (Interval::Month, date!(2026 - 11 - 01), "y2026m11"),
            (Interval::Day, date!(2026 - 02 - 03), "y2026m02d03"),
        ] {
            assert_eq!(interval.suffix(start), suffix);
            assert_eq!(interval.parse_suffix(suffix), Some(start));
        }
        for other in ["earlier", "y2026", "y2026m13", "2026m11"] {
            assert_eq!(Interval::Month.parse_suffix(other), None, "{other}");
        }
        assert_eq!(Interval::Day.parse_suffix("y2026m11"), None);
    }

    #[test]
    fn id_bound_is_the_time_in_the_first_48_bits() {
        let bound = PartitionKey::Id.bound(date!(2026 - 11 - 01));
        assert_eq!(bound, "'01a19467-e800-0000-0000-000000000000'");
        assert_eq!(
            PartitionKey::Time("at").bound(date!(2026 - 11 - 01)),
            "'2026-11-01 00:00:00+00'"
        );
    }
}
