//! Converts the calendar days of a period in a time zone to exact instants.

use time::{Date, Duration, Month, OffsetDateTime, Time};

use crate::ingestion::Granularity;
use crate::shared::{Zone, string_enum};

string_enum! {
    /// The number of days in a report: today and the days before it.
    Period {
        /// Seven days.
        Week = "7d",
        /// Thirty days.
        Month = "30d",
        /// Ninety days.
        Quarter = "90d",
    }
}

impl Period {
    /// The number of days, including today.
    pub fn days(self) -> i64 {
        match self {
            Self::Week => 7,
            Self::Month => 30,
            Self::Quarter => 90,
        }
    }
}

/// An interval with one UTC offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetInterval {
    /// The inclusive start.
    pub start: OffsetDateTime,
    /// The exclusive end.
    pub end: OffsetDateTime,
    /// The UTC offset. Every current time zone has whole quarters of an hour.
    pub offset: Duration,
}

impl Zone {
    /// Splits a window wherever the zone's UTC offset changes.
    pub fn offset_intervals(&self, window: &Window) -> Vec<OffsetInterval> {
        let (mut offset_intervals, mut start) = (Vec::new(), window.start);
        let Ok(first) = jiff::Timestamp::from_second(start.unix_timestamp()) else {
            return offset_intervals;
        };
        let mut offset = self.0.to_offset(first);
        for change in self.0.following(first) {
            let Ok(at) = OffsetDateTime::from_unix_timestamp(change.timestamp().as_second()) else {
                break;
            };
            if at >= window.end {
                break;
            }
            offset_intervals.push(offset_interval(start, at, offset));
            (start, offset) = (at, change.offset());
        }
        offset_intervals.push(offset_interval(start, window.end, offset));
        offset_intervals
    }
}

fn offset_interval(start: OffsetDateTime, end: OffsetDateTime, offset: jiff::tz::Offset) -> OffsetInterval {
    let offset = Duration::seconds(offset.seconds().into());
    OffsetInterval { start, end, offset }
}

/// A range of rollup buckets of one granularity, which a window's sum adds or subtracts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollupRange {
    /// `start` and `end` are bucket starts of this granularity.
    pub granularity: Granularity,
    pub start: OffsetDateTime,
    pub end: OffsetDateTime,
    /// Whether the range is added. False: it is subtracted.
    pub adds: bool,
}

/// The days of a period with their start times. In every current time zone, these are whole quarters of an hour in UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Every day, the oldest first.
    pub dates: Vec<Date>,
    /// The start of each day, and the end of the last one.
    pub bounds: Vec<OffsetDateTime>,
    start: OffsetDateTime,
    end: OffsetDateTime,
}

impl Window {
    /// The most ranges of [`Self::ranges`]: weeks, and days and quarters at each end.
    pub const MAX_RANGES: usize = 5;

    /// The period that ends with the day of `now`. Returns `None` outside the calendar's range.
    pub fn new(period: Period, zone: &Zone, now: OffsetDateTime) -> Option<Self> {
        let today = zone.date_of(now)?;
        let first = (1..period.days()).try_fold(today, |day, _| day.yesterday().ok())?;
        Self::of_days(first, today, zone)
    }

    /// The days from `from` to `to`, both included. Returns `None` outside the calendar's range.
    pub fn between(from: Date, to: Date, zone: &Zone) -> Option<Self> {
        Self::of_days(Zone::civil(from)?, Zone::civil(to)?, zone)
    }

    fn of_days(first: jiff::civil::Date, last: jiff::civil::Date, zone: &Zone) -> Option<Self> {
        let mut day = first;
        let (mut dates, mut bounds) = (Vec::new(), Vec::new());
        while day <= last {
            dates.push(date(day)?);
            bounds.push(zone.begin(day)?);
            day = day.tomorrow().ok()?;
        }
        bounds.push(zone.begin(day)?);
        let (start, end) = (*bounds.first()?, *bounds.last()?);
        Some(Self {
            dates,
            bounds,
            start,
            end,
        })
    }

    /// The inclusive start.
    pub fn start(&self) -> OffsetDateTime {
        self.start
    }

    /// The exclusive end.
    pub fn end(&self) -> OffsetDateTime {
        self.end
    }

    /// The first UTC midnight in the window.
    pub fn first_whole_day(&self) -> OffsetDateTime {
        let midnight = midnight(self.start);
        if midnight == self.start {
            midnight
        } else {
            midnight + Duration::DAY
        }
    }

    /// The last UTC midnight in the window or at its end.
    pub fn end_of_whole_days(&self) -> OffsetDateTime {
        midnight(self.end)
    }

    /// Covers the window with at most [`Self::MAX_RANGES`] ranges of [`Granularity::MANY`], so that a sum reads few
    /// rollup rows. Weeks cover the range between the nearest week starts. At both ends, days add what the weeks lack
    /// or subtract their excess, and quarters do the same for the days.
    pub fn ranges(&self) -> Vec<RollupRange> {
        let mut ranges = Vec::new();
        cover(self.start, self.end, true, &Granularity::MANY, &mut ranges);
        ranges
    }

    /// The longest granularity that divides all days of the window.
    pub fn granularity(&self) -> Granularity {
        let divides_all = |granularity: &Granularity| self.bounds.iter().all(|bound| granularity.begins_at(*bound));
        [Granularity::Day, Granularity::ThreeHours]
            .into_iter()
            .find(divides_all)
            .unwrap_or(Granularity::Quarter)
    }
}

/// Adds the ranges that cover `start` to `end`. Adds nothing if `end` is not after `start`.
fn cover(
    start: OffsetDateTime,
    end: OffsetDateTime,
    adds: bool,
    granularities: &[Granularity],
    ranges: &mut Vec<RollupRange>,
) {
    let [finer @ .., granularity] = granularities else {
        return;
    };
    if start >= end {
        return;
    }
    let (first, last) = (granularity.nearest(start), granularity.nearest(end));
    if first >= last {
        return cover(start, end, adds, finer, ranges);
    }
    ranges.push(RollupRange {
        granularity: *granularity,
        start: first,
        end: last,
        adds,
    });
    for (start, end, adds) in [
        (start, first, adds),
        (first, start, !adds),
        (last, end, adds),
        (end, last, !adds),
    ] {
        cover(start, end, adds, finer, ranges);
    }
}

fn midnight(at: OffsetDateTime) -> OffsetDateTime {
    at.to_offset(time::UtcOffset::UTC).replace_time(Time::MIDNIGHT)
}

fn date(day: jiff::civil::Date) -> Option<Date> {
    let month = Month::try_from(u8::try_from(day.month()).ok()?).ok()?;
    Date::from_calendar_date(day.year().into(), month, u8::try_from(day.day()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use time::macros::{date, datetime};

    use super::*;

    fn window(zone: &str, now: OffsetDateTime) -> Window {
        Window::new(Period::Week, &zone.parse().unwrap(), now).unwrap()
    }

    #[test]
    fn utc_week_is_today_and_six_days_before() {
        let week = window("UTC", datetime!(2026-03-01 12:00 UTC));
        assert_eq!(
            (week.dates[0], week.dates[6]),
            (date!(2026 - 02 - 23), date!(2026 - 03 - 01))
        );
        assert_eq!(week.start(), datetime!(2026-02-23 0:00 UTC));
        assert_eq!(week.end(), datetime!(2026-03-02 0:00 UTC));
        assert_eq!(
            (week.first_whole_day(), week.end_of_whole_days()),
            (week.start(), week.end())
        );
        assert_eq!(week.granularity(), Granularity::Day);
    }

    #[test]
    fn window_uses_days_of_the_time_zone() {
        let now = datetime!(2026-03-01 18:20 UTC);
        let kathmandu = window("Asia/Kathmandu", now);
        assert_eq!(kathmandu.dates[6], date!(2026 - 03 - 02));
        assert_eq!(kathmandu.bounds[6], datetime!(2026-03-01 18:15 UTC));
        assert_eq!(
            window("America/Sao_Paulo", now).bounds[6],
            datetime!(2026-03-01 3:00 UTC)
        );
        let granularity = |zone: &str| window(zone, now).granularity();
        assert_eq!(kathmandu.granularity(), Granularity::Quarter);
        assert_eq!(granularity("America/Sao_Paulo"), Granularity::ThreeHours);
        assert_eq!(granularity("America/Manaus"), Granularity::Quarter);
        assert_eq!(kathmandu.first_whole_day(), datetime!(2026-02-24 0:00 UTC));
        assert_eq!(kathmandu.end_of_whole_days(), datetime!(2026-03-02 0:00 UTC));
    }

    #[test]
    fn window_ranges_start_with_the_nearest_weeks() {
        let ranges = |period, zone: &str, now| -> Vec<String> {
            let window = Window::new(period, &zone.parse().unwrap(), now).unwrap();
            let ranges = window.ranges().into_iter().map(|range| {
                let RollupRange {
                    granularity,
                    start,
                    end,
                    adds,
                } = range;
                let sums = (end - start).whole_minutes() / i64::from(granularity.minutes());
                format!("{} {sums} {granularity:?} from {start}", if adds { '+' } else { '-' })
            });
            ranges.map(|range| range.replace(":00.0 +00:00:00", "")).collect()
        };
        // Tuesday to Sunday. Rollup weeks start on Thursdays.
        assert_eq!(
            ranges(Period::Quarter, "UTC", datetime!(2026-03-01 12:00 UTC)),
            [
                "+ 13 Week from 2025-12-04 0:00",
                "+ 2 Day from 2025-12-02 0:00",
                "- 3 Day from 2026-03-02 0:00"
            ]
        );
        // Thursday to Tuesday. The days start three hours after UTC midnight.
        assert_eq!(
            ranges(Period::Quarter, "America/Sao_Paulo", datetime!(2026-11-24 12:00 UTC)),
            [
                "+ 13 Week from 2026-08-27 0:00",
                "- 12 Quarter from 2026-08-27 0:00",
                "- 1 Day from 2026-11-25 0:00",
                "+ 12 Quarter from 2026-11-25 0:00"
            ]
        );
        assert_eq!(
            ranges(Period::Week, "UTC", datetime!(2026-03-01 12:00 UTC)),
            [
                "+ 1 Week from 2026-02-26 0:00",
                "+ 3 Day from 2026-02-23 0:00",
                "- 3 Day from 2026-03-02 0:00"
            ]
        );
    }

    #[test]
    fn window_days_follow_clock_changes() {
        // The clocks went back by half an hour in the night to 5 April.
        let howe = window("Australia/Lord_Howe", datetime!(2026-04-06 12:00 UTC));
        let lengths: Vec<i64> = howe
            .bounds
            .windows(2)
            .map(|day| (day[1] - day[0]).whole_minutes())
            .collect();
        assert_eq!(lengths, [1440, 1440, 1440, 1440, 1440, 1470, 1440]);
        // The clocks went forward at midnight on 4 November 2018.
        let paulo = window("America/Sao_Paulo", datetime!(2018-11-06 12:00 UTC));
        assert_eq!(paulo.bounds[4], datetime!(2018-11-04 3:00 UTC));
        assert_eq!(paulo.bounds[5], datetime!(2018-11-05 2:00 UTC));
        // Midnight occurs twice on 1 November 2026: the day starts with the first.
        let havana = window("America/Havana", datetime!(2026-11-03 12:00 UTC));
        assert_eq!(havana.dates[4], date!(2026 - 11 - 01));
        assert_eq!(havana.bounds[4], datetime!(2026-11-01 4:00 UTC));
    }

    #[test]
    fn offset_intervals_split_at_clock_changes() {
        let now = datetime!(2026-04-06 12:00 UTC);
        let zone = "Australia/Lord_Howe".parse().unwrap();
        let window = Window::new(Period::Week, &zone, now).unwrap();
        let offset_intervals = zone.offset_intervals(&window);
        let change = datetime!(2026-04-04 15:00 UTC);
        assert_eq!(
            offset_intervals,
            [
                OffsetInterval {
                    start: window.start(),
                    end: change,
                    offset: Duration::hours(11)
                },
                OffsetInterval {
                    start: change,
                    end: window.end(),
                    offset: Duration::minutes(630)
                },
            ]
        );
        let utc = Window::new(Period::Quarter, &Zone::UTC, now).unwrap();
        let whole = OffsetInterval {
            start: utc.start(),
            end: utc.end(),
            offset: Duration::ZERO,
        };
        assert_eq!(Zone::UTC.offset_intervals(&utc), [whole]);
    }

    #[test]
    fn unknown_time_zone_is_rejected() {
        for name in [
            "",
            "Nowhere/City",
            "../../etc/passwd",
            "-03:00",
            "America/Sao Paulo",
            "BRT",
        ] {
            assert!(name.parse::<Zone>().is_err(), "{name}");
        }
        assert_eq!("UTC".parse::<Zone>().unwrap(), Zone::UTC);
    }

    proptest! {
        #[test]
        fn window_bounds_are_whole_quarters(
            seconds in 1_577_836_800_i64..1_956_528_000,
            zone in prop::sample::select(vec![
                "UTC", "America/Sao_Paulo", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Chatham", "America/Havana",
                "Africa/Casablanca", "Pacific/Kiritimati", "America/St_Johns", "Europe/Lisbon",
            ]),
            period in prop::sample::select(Period::ALL),
        ) {
            let now = OffsetDateTime::from_unix_timestamp(seconds).unwrap();
            let window = Window::new(period, &zone.parse().unwrap(), now).unwrap();
            prop_assert_eq!(i64::try_from(window.dates.len()), Ok(period.days()));
            prop_assert_eq!(window.bounds.len(), window.dates.len() + 1);
            prop_assert!(window.bounds.is_sorted() && window.dates.is_sorted());
            prop_assert!(window.bounds.iter().all(|bound| bound.unix_timestamp() % 900 == 0));
            prop_assert!(window.bounds[window.dates.len() - 1] <= now && now < window.end());
            prop_assert!(window.start() <= window.first_whole_day());
            prop_assert!(window.first_whole_day() <= window.end_of_whole_days());
            prop_assert!(window.bounds.iter().all(|bound| window.granularity().begins_at(*bound)));
        }

        /// The added and subtracted ranges sum up to exactly the window.
        #[test]
        fn window_ranges_sum_up_to_the_window(
            seconds in 1_577_836_800_i64..1_956_528_000,
            zone in prop::sample::select(vec!["UTC", "America/Sao_Paulo", "Asia/Kathmandu", "Australia/Lord_Howe"]),
            period in prop::sample::select(Period::ALL),
        ) {
            let now = OffsetDateTime::from_unix_timestamp(seconds).unwrap();
            let window = Window::new(period, &zone.parse().unwrap(), now).unwrap();
            let mut ends = BTreeMap::new();
            let mut rows = BTreeMap::new();
            prop_assert!(window.ranges().len() <= Window::MAX_RANGES);
            for RollupRange { granularity, start, end, adds } in window.ranges() {
                prop_assert!(start < end && granularity.begins_at(start) && granularity.begins_at(end));
                let sign = if adds { 1 } else { -1 };
                *ends.entry(start).or_insert(0) += sign;
                *ends.entry(end).or_insert(0) -= sign;
                let minutes = i64::from(granularity.minutes());
                *rows.entry(granularity).or_insert(0) += (end - start).whole_minutes() / minutes;
            }
            ends.retain(|_, count| *count != 0);
            prop_assert_eq!(ends.into_iter().collect::<Vec<_>>(), [(window.start(), 1), (window.end(), -1)]);
            let at_most = |granularity: Granularity, limit: i64| {
                rows.get(&granularity).is_none_or(|rows| *rows <= limit)
            };
            prop_assert!(at_most(Granularity::Week, 13) && at_most(Granularity::Day, 8), "{:?}", rows);
            prop_assert!(at_most(Granularity::Quarter, 96), "{:?}", rows);
        }
    }
}
