//! The days of a period in a zone of the world, as exact moments.

use std::str::FromStr;

use time::{Date, Duration, Month, OffsetDateTime, Time};

use crate::ingestion::Grain;
use crate::shared::words;

words! {
    /// How many days a report covers: today, and the days before it.
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
    /// How many days, today among them.
    pub fn days(self) -> i64 {
        match self {
            Self::Week => 7,
            Self::Month => 30,
            Self::Quarter => 90,
        }
    }
}

/// A zone of the IANA database, whose rules are part of this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(jiff::tz::TimeZone);

impl Zone {
    /// The zone without any offset.
    pub const UTC: Self = Self(jiff::tz::TimeZone::UTC);

    /// The day that a moment lies in.
    fn date_of(&self, moment: OffsetDateTime) -> Option<jiff::civil::Date> {
        let moment = jiff::Timestamp::from_second(moment.unix_timestamp()).ok()?;
        Some(self.0.to_datetime(moment).date())
    }

    /// The first moment of a day. That is not midnight where the clocks go on at midnight, and the first of two
    /// midnights where they go back.
    fn begin(&self, date: jiff::civil::Date) -> Option<OffsetDateTime> {
        let begin = date.to_zoned(self.0.clone()).ok()?;
        OffsetDateTime::from_unix_timestamp(begin.timestamp().as_second()).ok()
    }
}

impl FromStr for Zone {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let zone = jiff::tz::TimeZone::get(name);
        zone.map(Self).map_err(|_| "must be the name of a time zone".to_owned())
    }
}

/// A time in which the clocks of a zone do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Its first moment.
    pub start: OffsetDateTime,
    /// The first moment after it.
    pub end: OffsetDateTime,
    /// How far ahead of UTC the clocks are; whole quarters of an hour in every zone of the present.
    pub offset: Duration,
}

impl Zone {
    /// A window, cut wherever the zone's clocks change.
    pub fn stretches(&self, window: &Window) -> Vec<Stretch> {
        let (mut stretches, mut start) = (Vec::new(), window.start);
        let Ok(first) = jiff::Timestamp::from_second(start.unix_timestamp()) else {
            return stretches;
        };
        let mut offset = self.0.to_offset(first);
        for change in self.0.following(first) {
            let Ok(at) = OffsetDateTime::from_unix_timestamp(change.timestamp().as_second()) else {
                break;
            };
            if at >= window.end {
                break;
            }
            stretches.push(stretch(start, at, offset));
            (start, offset) = (at, change.offset());
        }
        stretches.push(stretch(start, window.end, offset));
        stretches
    }
}

fn stretch(start: OffsetDateTime, end: OffsetDateTime, offset: jiff::tz::Offset) -> Stretch {
    let offset = Duration::seconds(offset.seconds().into());
    Stretch { start, end, offset }
}

/// The days of a period, and the moments at which they begin. Those moments are whole quarters of an hour of UTC in
/// every zone of the present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Every day, oldest first.
    pub dates: Vec<Date>,
    /// When each of them begins, and when the last one ends.
    pub bounds: Vec<OffsetDateTime>,
    start: OffsetDateTime,
    end: OffsetDateTime,
}

impl Window {
    /// The period that ends with the day of `now`. None where the calendar ends.
    pub fn new(period: Period, zone: &Zone, now: OffsetDateTime) -> Option<Self> {
        let today = zone.date_of(now)?;
        let mut day = (1..period.days()).try_fold(today, |day, _| day.yesterday().ok())?;
        let (mut dates, mut bounds) = (Vec::new(), Vec::new());
        while day <= today {
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

    /// Its first moment.
    pub fn start(&self) -> OffsetDateTime {
        self.start
    }

    /// The first moment after it.
    pub fn end(&self) -> OffsetDateTime {
        self.end
    }

    /// The first day of UTC that begins in it.
    pub fn first_whole_day(&self) -> OffsetDateTime {
        let midnight = midnight(self.start);
        if midnight == self.start {
            midnight
        } else {
            midnight + Duration::DAY
        }
    }

    /// Where the last whole day of UTC in it ends.
    pub fn end_of_whole_days(&self) -> OffsetDateTime {
        midnight(self.end)
    }

    /// The first week of UTC that begins in it; where there is no whole one, the end of its whole days.
    pub fn first_whole_week(&self) -> OffsetDateTime {
        let first = self.first_whole_day();
        let week = Grain::Week.begin(first);
        let begin = if week == first { week } else { week + Duration::WEEK };
        begin.min(self.end_of_whole_days())
    }

    /// Where its last whole week of UTC ends; where there is none, the end of its whole days.
    pub fn end_of_whole_weeks(&self) -> OffsetDateTime {
        let end = Grain::Week.begin(self.end_of_whole_days());
        end.max(self.first_whole_week())
    }

    /// The longest that all of its days are made of.
    pub fn grain(&self) -> Grain {
        let fits = |grain: &Grain| self.bounds.iter().all(|bound| grain.begins_at(*bound));
        [Grain::Day, Grain::ThreeHours]
            .into_iter()
            .find(fits)
            .unwrap_or(Grain::Quarter)
    }
}

fn midnight(moment: OffsetDateTime) -> OffsetDateTime {
    moment.to_offset(time::UtcOffset::UTC).replace_time(Time::MIDNIGHT)
}

fn date(day: jiff::civil::Date) -> Option<Date> {
    let month = Month::try_from(u8::try_from(day.month()).ok()?).ok()?;
    Date::from_calendar_date(day.year().into(), month, u8::try_from(day.day()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::{date, datetime};

    use super::*;

    fn window(zone: &str, now: OffsetDateTime) -> Window {
        Window::new(Period::Week, &zone.parse().unwrap(), now).unwrap()
    }

    #[test]
    fn a_week_of_utc_is_today_and_six_days_before() {
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
        assert_eq!(week.grain(), Grain::Day);
    }

    #[test]
    fn days_are_those_of_the_zone() {
        let now = datetime!(2026-03-01 18:20 UTC);
        let kathmandu = window("Asia/Kathmandu", now);
        assert_eq!(kathmandu.dates[6], date!(2026 - 03 - 02));
        assert_eq!(kathmandu.bounds[6], datetime!(2026-03-01 18:15 UTC));
        assert_eq!(
            window("America/Sao_Paulo", now).bounds[6],
            datetime!(2026-03-01 3:00 UTC)
        );
        let grain = |zone: &str| window(zone, now).grain();
        assert_eq!(kathmandu.grain(), Grain::Quarter);
        assert_eq!(grain("America/Sao_Paulo"), Grain::ThreeHours);
        assert_eq!(grain("America/Manaus"), Grain::Quarter);
        assert_eq!(kathmandu.first_whole_day(), datetime!(2026-02-24 0:00 UTC));
        assert_eq!(kathmandu.end_of_whole_days(), datetime!(2026-03-02 0:00 UTC));
    }

    #[test]
    fn whole_weeks_lie_between_thursdays() {
        let quarter = Window::new(Period::Quarter, &Zone::UTC, datetime!(2026-03-01 12:00 UTC)).unwrap();
        assert_eq!(quarter.start(), datetime!(2025-12-02 0:00 UTC));
        assert_eq!(quarter.first_whole_week(), datetime!(2025-12-04 0:00 UTC));
        assert_eq!(quarter.end_of_whole_weeks(), datetime!(2026-02-26 0:00 UTC));
        // Six whole days of UTC hold none.
        let paulo = window("America/Sao_Paulo", datetime!(2026-03-01 12:00 UTC));
        assert_eq!(paulo.first_whole_week(), datetime!(2026-02-26 0:00 UTC));
        assert_eq!(paulo.end_of_whole_weeks(), datetime!(2026-02-26 0:00 UTC));
        let none = window("America/Sao_Paulo", datetime!(2026-03-05 12:00 UTC));
        assert_eq!(none.end_of_whole_days(), datetime!(2026-03-06 0:00 UTC));
        assert_eq!(none.first_whole_week(), none.end_of_whole_weeks());
    }

    #[test]
    fn clocks_that_change_make_longer_and_shorter_days() {
        // Half an hour, in the night to April 5.
        let howe = window("Australia/Lord_Howe", datetime!(2026-04-06 12:00 UTC));
        let lengths: Vec<i64> = howe
            .bounds
            .windows(2)
            .map(|day| (day[1] - day[0]).whole_minutes())
            .collect();
        assert_eq!(lengths, [1440, 1440, 1440, 1440, 1440, 1470, 1440]);
        // Midnight itself was left out, in the night to 4 November 2018.
        let paulo = window("America/Sao_Paulo", datetime!(2018-11-06 12:00 UTC));
        assert_eq!(paulo.bounds[4], datetime!(2018-11-04 3:00 UTC));
        assert_eq!(paulo.bounds[5], datetime!(2018-11-05 2:00 UTC));
        // Midnight came twice, in the night to 1 November 2026: the day begins with the first.
        let havana = window("America/Havana", datetime!(2026-11-03 12:00 UTC));
        assert_eq!(havana.dates[4], date!(2026 - 11 - 01));
        assert_eq!(havana.bounds[4], datetime!(2026-11-01 4:00 UTC));
    }

    #[test]
    fn a_window_is_cut_where_the_clocks_change() {
        let now = datetime!(2026-04-06 12:00 UTC);
        let zone = "Australia/Lord_Howe".parse().unwrap();
        let window = Window::new(Period::Week, &zone, now).unwrap();
        let stretches = zone.stretches(&window);
        let change = datetime!(2026-04-04 15:00 UTC);
        assert_eq!(
            stretches,
            [
                Stretch {
                    start: window.start(),
                    end: change,
                    offset: Duration::hours(11)
                },
                Stretch {
                    start: change,
                    end: window.end(),
                    offset: Duration::minutes(630)
                },
            ]
        );
        let utc = Window::new(Period::Quarter, &Zone::UTC, now).unwrap();
        let whole = Stretch {
            start: utc.start(),
            end: utc.end(),
            offset: Duration::ZERO,
        };
        assert_eq!(Zone::UTC.stretches(&utc), [whole]);
    }

    #[test]
    fn an_unknown_zone_is_none() {
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
        fn every_bound_is_a_quarter_of_an_hour(
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
            let weeks = [window.first_whole_week(), window.end_of_whole_weeks()];
            prop_assert!([window.first_whole_day(), weeks[0], weeks[1], window.end_of_whole_days()].is_sorted());
            prop_assert!(weeks[0] == weeks[1] || weeks.iter().all(|week| Grain::Week.begins_at(*week)));
            prop_assert!(weeks[1] - weeks[0] >= window.end_of_whole_days() - window.first_whole_day() - Duration::days(12));
            prop_assert!(window.bounds.iter().all(|bound| window.grain().begins_at(*bound)));
        }
    }
}
