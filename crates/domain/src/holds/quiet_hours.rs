//! Quiet hours: the times that a clock in the contact's zone shows.
//!
//! A time is quiet if the clock shows a time of quiet hours that began on one of the days. So an hour that the clock skips
//! is never quiet, and an hour that it shows twice is quiet twice.

use jiff::SignedDuration;
use jiff::Timestamp;
use jiff::civil::DateTime;
use time::{OffsetDateTime, Time};

use crate::settings::QuietHours;
use crate::shared::Zone;

/// The most parts of quiet hours that are joined. Quiet hours never fill a day, so more than two follow each other only
/// if the clock skips the time between them.
const MAX_PARTS: usize = 16;

/// The first time from `at` on that is not quiet. None: `at` itself is not quiet.
pub fn quiet_until(hours: &QuietHours, zone: &Zone, at: OffsetDateTime) -> Option<OffsetDateTime> {
    let mut instant = Timestamp::from_nanosecond(at.unix_timestamp_nanos()).ok()?;
    let mut is_quiet = false;
    for _ in 0..MAX_PARTS {
        let shown = zone.0.to_datetime(instant);
        let Some(end) = end_of(hours, shown) else { break };
        is_quiet = true;
        // Until the next change of the clock, it runs as time does.
        let end = instant.checked_add(end.duration_since(shown)).ok()?;
        let change = zone.0.following(instant).next().map(|change| change.timestamp());
        instant = change.map_or(end, |change| end.min(change));
    }
    is_quiet
        .then(|| OffsetDateTime::from_unix_timestamp_nanos(instant.as_nanosecond()).ok())
        .flatten()
}

/// The end of the quiet hours that contain the shown time, as the clock shows it.
fn end_of(hours: &QuietHours, shown: DateTime) -> Option<DateTime> {
    let (from, to) = (since_midnight(hours.from), since_midnight(hours.to));
    let midnight = shown.date().to_datetime(jiff::civil::Time::midnight());
    let passed = shown.duration_since(midnight);
    let begins_on = |date: jiff::civil::Date| {
        let day = u8::try_from(date.weekday().to_sunday_zero_offset()).ok();
        day.is_some_and(|day| hours.days.contains(&day))
    };
    let (today, yesterday) = (shown.date(), shown.date().yesterday().ok()?);
    if from < to {
        return (begins_on(today) && from <= passed && passed < to).then(|| midnight + to);
    }
    if passed < to && begins_on(yesterday) {
        return Some(midnight + to);
    }
    let next_midnight = shown.date().tomorrow().ok()?.to_datetime(jiff::civil::Time::midnight());
    (passed >= from && begins_on(today)).then(|| next_midnight + to)
}

fn since_midnight(time: Time) -> SignedDuration {
    SignedDuration::from_mins(i64::from(time.hour()) * 60 + i64::from(time.minute()))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use time::Duration;
    use time::macros::{datetime, time};

    use super::*;
    use crate::settings::{HeldCategory, QuietZone};

    fn hours(from: Time, to: Time, days: &[u8]) -> QuietHours {
        QuietHours {
            from,
            to,
            zone: QuietZone::Contact,
            categories: vec![HeldCategory::Marketing],
            days: days.to_vec(),
        }
    }

    const EVERY_DAY: &[u8] = &[0, 1, 2, 3, 4, 5, 6];

    fn zone(name: &str) -> Zone {
        name.parse().unwrap()
    }

    #[test]
    fn quiet_hours_end_on_the_clock_of_the_zone() {
        let night = hours(time!(22:00), time!(8:00), EVERY_DAY);
        let lunch = hours(time!(12:00), time!(13:30), EVERY_DAY);
        // 2026-03-02 is a Monday. Sao Paulo is three hours behind UTC.
        for (hours, at, until) in [
            (&night, datetime!(2026-03-02 00:59:59.999 UTC), None),
            (
                &night,
                datetime!(2026-03-02 01:00 UTC),
                Some(datetime!(2026-03-02 11:00 UTC)),
            ),
            (
                &night,
                datetime!(2026-03-02 10:59:59.999999 UTC),
                Some(datetime!(2026-03-02 11:00 UTC)),
            ),
            (&night, datetime!(2026-03-02 11:00 UTC), None),
            (
                &lunch,
                datetime!(2026-03-02 15:00 UTC),
                Some(datetime!(2026-03-02 16:30 UTC)),
            ),
            (&lunch, datetime!(2026-03-02 16:30 UTC), None),
        ] {
            assert_eq!(quiet_until(hours, &zone("America/Sao_Paulo"), at), until, "{at}");
        }
    }

    #[test]
    fn day_is_the_one_on_which_the_hours_begin() {
        // Friday's night ends on Saturday.
        let friday = hours(time!(22:00), time!(8:00), &[5]);
        let utc = zone("UTC");
        for (at, is_quiet) in [
            (datetime!(2026-03-06 07:00 UTC), false),
            (datetime!(2026-03-06 21:59 UTC), false),
            (datetime!(2026-03-06 22:00 UTC), true),
            (datetime!(2026-03-07 07:59 UTC), true),
            (datetime!(2026-03-07 08:00 UTC), false),
            (datetime!(2026-03-07 23:00 UTC), false),
        ] {
            assert_eq!(quiet_until(&friday, &utc, at).is_some(), is_quiet, "{at}");
        }
    }

    #[test]
    fn skipped_hour_is_never_quiet_and_repeated_hour_is_quiet_twice() {
        let new_york = zone("America/New_York");
        // 2026-03-08: 02:00 is followed by 03:00. 2026-11-01: 02:00 is followed by 01:00.
        let skipped = hours(time!(2:00), time!(3:00), EVERY_DAY);
        assert_eq!(quiet_until(&skipped, &new_york, datetime!(2026-03-08 07:00 UTC)), None);
        let ends_in_gap = hours(time!(1:00), time!(2:30), EVERY_DAY);
        assert_eq!(
            quiet_until(&ends_in_gap, &new_york, datetime!(2026-03-08 06:30 UTC)),
            Some(datetime!(2026-03-08 07:00 UTC))
        );
        let begins_in_gap = hours(time!(2:30), time!(4:00), EVERY_DAY);
        assert_eq!(
            quiet_until(&begins_in_gap, &new_york, datetime!(2026-03-08 07:00 UTC)),
            Some(datetime!(2026-03-08 08:00 UTC))
        );
        let repeated = hours(time!(1:00), time!(1:30), EVERY_DAY);
        for (at, until) in [
            (datetime!(2026-11-01 05:15 UTC), Some(datetime!(2026-11-01 05:30 UTC))),
            (datetime!(2026-11-01 05:45 UTC), None),
            (datetime!(2026-11-01 06:15 UTC), Some(datetime!(2026-11-01 06:30 UTC))),
        ] {
            assert_eq!(quiet_until(&repeated, &new_york, at), until, "{at}");
        }
        // The clock shows 01:59 twice, and never 02:00 before it goes back.
        let until_two = hours(time!(22:00), time!(2:00), EVERY_DAY);
        assert_eq!(
            quiet_until(&until_two, &new_york, datetime!(2026-11-01 05:59 UTC)),
            Some(datetime!(2026-11-01 07:00 UTC))
        );
    }

    #[test]
    fn free_minute_that_the_clock_skips_joins_two_nights() {
        // Free from 02:10 to 02:20 only, and the clock goes from 02:00 to 03:00.
        let nearly_always = hours(time!(2:20), time!(2:10), EVERY_DAY);
        assert_eq!(
            quiet_until(
                &nearly_always,
                &zone("America/New_York"),
                datetime!(2026-03-08 06:59 UTC)
            ),
            Some(datetime!(2026-03-09 06:10 UTC))
        );
    }

    /// Whether the clock shows a quiet time, from the text that a clock would show.
    pub(crate) fn shows_quiet(hours: &QuietHours, zone: &Zone, at: OffsetDateTime) -> bool {
        let shown = zone.0.to_datetime(Timestamp::from_second(at.unix_timestamp()).unwrap());
        let minute = i64::from(shown.hour()) * 60 + i64::from(shown.minute());
        let today = i64::from(shown.date().weekday().to_sunday_zero_offset());
        let of = |time: Time| i64::from(time.hour()) * 60 + i64::from(time.minute());
        let (from, mut length) = (of(hours.from), of(hours.to) - of(hours.from));
        length += if length <= 0 { 1440 } else { 0 };
        // How long ago the quiet hours of today and yesterday began, by the clock.
        (0..2).any(|days_ago| {
            let begun = minute + 1440 * days_ago - from;
            let day = u8::try_from((today - days_ago).rem_euclid(7)).unwrap();
            hours.days.contains(&day) && (0..length).contains(&begun)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        /// In random worlds over both changes of the clock, quiet hours are what the clock shows, and their end is the
        /// first minute after them.
        #[test]
        fn quiet_hours_agree_with_a_clock_over_both_changes(
            zone_name in prop::sample::select(vec![
                "America/New_York", "America/Santiago", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo",
                "Africa/Cairo", "Asia/Beirut",
            ]),
            is_autumn in any::<bool>(),
            start in 0_i64..40 * 1440,
            from in 0_u16..1440,
            length in 1_u16..1440,
            days in prop::collection::btree_set(0_u8..7, 1..=7),
        ) {
            let zone = zone(zone_name);
            let minute = |minute: u16| Time::from_hms((minute / 60 % 24).try_into().unwrap(), (minute % 60).try_into().unwrap(), 0);
            let hours = QuietHours {
                days: days.into_iter().collect(),
                ..hours(minute(from).unwrap(), minute((from + length) % 1440).unwrap(), &[])
            };
            let season = if is_autumn { datetime!(2026-10-01 00:00 UTC) } else { datetime!(2026-03-01 00:00 UTC) };
            let at = season + Duration::minutes(start);
            let until = quiet_until(&hours, &zone, at);
            prop_assert_eq!(until.is_some(), shows_quiet(&hours, &zone, at));
            if let Some(until) = until {
                prop_assert!(until > at && !shows_quiet(&hours, &zone, until), "{} is quiet", until);
                let minutes = (until - at).whole_minutes();
                prop_assert_eq!(Duration::minutes(minutes), until - at);
                for passed in 0..minutes {
                    prop_assert!(shows_quiet(&hours, &zone, at + Duration::minutes(passed)));
                }
            }
        }
    }
}
