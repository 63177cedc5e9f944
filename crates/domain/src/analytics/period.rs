//! The days of a period in a zone of the world, as exact moments.

use std::str::FromStr;

use time::{Date, Duration, Month, OffsetDateTime, Time};

use crate::ingestion::Grain;
use crate::shared::string_enum;

string_enum! {
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

/// A part of a window, as the sums of one grain have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Both of its ends are where one of its sums begins.
    pub grain: Grain,
    pub start: OffsetDateTime,
    pub end: OffsetDateTime,
    /// Or else they are taken off.
    pub adds: bool,
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
    /// The most pieces: weeks, and at each end days and quarters.
    pub const PIECES: usize = 5;

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

    /// The window as few sums of [`Grain::MANY`], in no more than [`Self::PIECES`]. Its weeks are those from and to where
    /// one begins nearest; what they have too much is taken off again, what they lack is added, both day by day, and of
    /// days by the quarter of an hour.
    pub fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        cover(self.start, self.end, true, &Grain::MANY, &mut pieces);
        pieces
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

/// Nothing where `end` is not after `start`.
fn cover(start: OffsetDateTime, end: OffsetDateTime, adds: bool, grains: &[Grain], pieces: &mut Vec<Piece>) {
    let [finer @ .., grain] = grains else { return };
    if start >= end {
        return;
    }
    let (first, last) = (grain.nearest(start), grain.nearest(end));
    if first >= last {
        return cover(start, end, adds, finer, pieces);
    }
    pieces.push(Piece {
        grain: *grain,
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
        cover(start, end, adds, finer, pieces);
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
    use std::collections::BTreeMap;

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
    fn a_window_is_its_nearest_weeks_and_what_these_lack_or_have_too_much() {
        let pieces = |period, zone: &str, now| -> Vec<String> {
            let window = Window::new(period, &zone.parse().unwrap(), now).unwrap();
            let pieces = window.pieces().into_iter().map(|piece| {
                let Piece {
                    grain,
                    start,
                    end,
                    adds,
                } = piece;
                let sums = (end - start).whole_minutes() / i64::from(grain.minutes());
                format!("{} {sums} {grain:?} from {start}", if adds { '+' } else { '-' })
            });
            pieces.map(|piece| piece.replace(":00.0 +00:00:00", "")).collect()
        };
        // Tuesday to Sunday; the weeks begin on Thursdays.
        assert_eq!(
            pieces(Period::Quarter, "UTC", datetime!(2026-03-01 12:00 UTC)),
            [
                "+ 13 Week from 2025-12-04 0:00",
                "+ 2 Day from 2025-12-02 0:00",
                "- 3 Day from 2026-03-02 0:00"
            ]
        );
        // Thursday to Tuesday, whose days begin three hours late.
        assert_eq!(
            pieces(Period::Quarter, "America/Sao_Paulo", datetime!(2026-11-24 12:00 UTC)),
            [
                "+ 13 Week from 2026-08-27 0:00",
                "- 12 Quarter from 2026-08-27 0:00",
                "- 1 Day from 2026-11-25 0:00",
                "+ 12 Quarter from 2026-11-25 0:00"
            ]
        );
        assert_eq!(
            pieces(Period::Week, "UTC", datetime!(2026-03-01 12:00 UTC)),
            [
                "+ 1 Week from 2026-02-26 0:00",
                "+ 3 Day from 2026-02-23 0:00",
                "- 3 Day from 2026-03-02 0:00"
            ]
        );
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
            prop_assert!(window.bounds.iter().all(|bound| window.grain().begins_at(*bound)));
        }

        /// All ends of pieces cancel each other but those of the window.
        #[test]
        fn pieces_make_up_the_window(
            seconds in 1_577_836_800_i64..1_956_528_000,
            zone in prop::sample::select(vec!["UTC", "America/Sao_Paulo", "Asia/Kathmandu", "Australia/Lord_Howe"]),
            period in prop::sample::select(Period::ALL),
        ) {
            let now = OffsetDateTime::from_unix_timestamp(seconds).unwrap();
            let window = Window::new(period, &zone.parse().unwrap(), now).unwrap();
            let mut ends = BTreeMap::new();
            let mut rows = BTreeMap::new();
            prop_assert!(window.pieces().len() <= Window::PIECES);
            for Piece { grain, start, end, adds } in window.pieces() {
                prop_assert!(start < end && grain.begins_at(start) && grain.begins_at(end));
                let sign = if adds { 1 } else { -1 };
                *ends.entry(start).or_insert(0) += sign;
                *ends.entry(end).or_insert(0) -= sign;
                *rows.entry(grain).or_insert(0) += (end - start).whole_minutes() / i64::from(grain.minutes());
            }
            ends.retain(|_, count| *count != 0);
            prop_assert_eq!(ends.into_iter().collect::<Vec<_>>(), [(window.start(), 1), (window.end(), -1)]);
            let most = |grain: Grain, most: i64| rows.get(&grain).is_none_or(|rows| *rows <= most);
            prop_assert!(most(Grain::Week, 13) && most(Grain::Day, 8) && most(Grain::Quarter, 96), "{:?}", rows);
        }
    }
}
