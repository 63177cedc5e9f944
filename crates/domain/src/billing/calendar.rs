//! Calendar arithmetic: the gateway's local day, and billing periods that keep their day of the month.

use time::macros::offset;
use time::{Date, Month, OffsetDateTime};

use super::Cycle;

/// The calendar day in the gateway's time zone, São Paulo. It has had no daylight saving time since 2019.
pub fn gateway_day(now: OffsetDateTime) -> Date {
    now.to_offset(offset!(-3)).date()
}

/// Adds one cycle. The result is on `anchor_day`, or on the last day of a shorter month.
pub(super) fn add_cycle(from: OffsetDateTime, cycle: Cycle, anchor_day: u8) -> OffsetDateTime {
    let months = match cycle {
        Cycle::Monthly => 1,
        Cycle::Yearly => 12,
    };
    let later = add_months(from.date(), months, anchor_day);
    later.map_or(from, |date| from.replace_date(date))
}

/// Returns `None` if the result is outside the range of `Date`.
fn add_months(from: Date, months: i32, anchor_day: u8) -> Option<Date> {
    let index = from.year().checked_mul(12)? + i32::from(u8::from(from.month())) - 1 + months;
    let month = Month::try_from(u8::try_from(index.rem_euclid(12) + 1).ok()?).ok()?;
    let year = index.div_euclid(12);
    let day = anchor_day.clamp(1, month.length(year));
    Date::from_calendar_date(year, month, day).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::Duration;
    use time::macros::{date, datetime};

    use super::*;

    #[test]
    fn add_cycle_keeps_the_anchor_day_or_the_month_end() {
        let mut at = datetime!(2026-01-31 12:00 UTC);
        let mut days = vec![];
        for _ in 0..5 {
            at = add_cycle(at, Cycle::Monthly, 31);
            days.push(at.date().to_string());
        }
        assert_eq!(
            days,
            ["2026-02-28", "2026-03-31", "2026-04-30", "2026-05-31", "2026-06-30"]
        );
        let leap = add_cycle(datetime!(2028-02-29 0:00 UTC), Cycle::Yearly, 29);
        assert_eq!(leap.date(), date!(2029 - 02 - 28));
        let december = add_cycle(datetime!(2026-12-05 23:59 UTC), Cycle::Monthly, 5);
        assert_eq!(december, datetime!(2027-01-05 23:59 UTC));
    }

    #[test]
    fn gateway_day_starts_at_three_utc() {
        assert_eq!(gateway_day(datetime!(2026-03-02 2:59 UTC)), date!(2026 - 03 - 01));
        assert_eq!(gateway_day(datetime!(2026-03-02 3:00 UTC)), date!(2026 - 03 - 02));
    }

    proptest! {
        /// After any number of months the day is the anchor day or the last day of the month.
        #[test]
        fn add_cycle_never_skips_a_month(start in 0_i64..4_000_000_000, steps in 1_usize..50) {
            let start = OffsetDateTime::from_unix_timestamp(start).unwrap();
            let mut at = start;
            for _ in 0..steps {
                let next = add_cycle(at, Cycle::Monthly, start.day());
                let days = next - at;
                prop_assert!(days >= Duration::days(28) && days <= Duration::days(31), "{at} {next}");
                prop_assert!(next.day() == start.day() || next.day() == next.month().length(next.year()));
                at = next;
            }
            prop_assert_eq!(at.time(), start.time());
        }
    }
}
