//! What follows from an attempt: for the delivery, and for its endpoint.

use std::time::Duration as StdDuration;

use time::{Duration, OffsetDateTime};

use super::{DisabledReason, Outcome};

/// How much longer or shorter than planned a delay may be, as a share of it.
const SPREAD: f64 = 0.2;

/// The longest wait that a receiver may ask for.
const LONGEST_WAIT: Duration = Duration::hours(24);

/// An endpoint with nothing but failures for so long is switched off.
const PATIENCE: Duration = Duration::hours(120);

/// A failure that was followed by nothing for so long is forgotten.
const MEMORY: Duration = Duration::hours(240);

/// The last failure is noted so often.
const NOTE_EVERY: Duration = Duration::minutes(10);

/// The delays between attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule(pub Vec<Duration>);

impl Default for Schedule {
    fn default() -> Self {
        Self(vec![
            Duration::seconds(5),
            Duration::minutes(5),
            Duration::minutes(30),
            Duration::hours(2),
            Duration::hours(5),
            Duration::hours(10),
            Duration::hours(10),
        ])
    }
}

/// What becomes of a delivery.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// It arrived.
    Delivered,
    /// It is tried again after this time.
    Retry(Duration),
    /// It is given up.
    Exhausted,
    /// The receiver is gone for good: given up, and its endpoint is switched off.
    Gone,
}

/// What follows for a delivery from its attempt number `attempt`, counted from 1. `spread` is a random number between
/// -1 and 1.
pub fn fate(outcome: Outcome, attempt: u32, schedule: &Schedule, spread: f64) -> Fate {
    let wish = match outcome {
        Outcome::Answered { status: 200..=299, .. } => return Fate::Delivered,
        Outcome::Answered { status: 410, .. } => return Fate::Gone,
        Outcome::Answered {
            status: 429 | 500..=599,
            retry_after,
        } => retry_after,
        Outcome::Answered { .. } | Outcome::Unreachable(_) => None,
    };
    let index = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
    match schedule.0.get(index) {
        None => Fate::Exhausted,
        Some(planned) => {
            let planned = *planned * (1.0 + SPREAD * spread.clamp(-1.0, 1.0));
            Fate::Retry(planned.max(bounded(wish)))
        }
    }
}

fn bounded(wish: Option<StdDuration>) -> Duration {
    let wish = wish.unwrap_or_default();
    Duration::try_from(wish).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT)
}

/// The failures of an endpoint since its last success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// None.
    Well,
    /// Nothing else.
    Failing {
        /// Since when.
        since: OffsetDateTime,
        /// When it was last noted.
        last: OffsetDateTime,
    },
}

/// What is to be written of an endpoint's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthChange {
    /// Nothing.
    Keep,
    /// It works, whatever was known of it.
    Recovered,
    /// It fails since.
    Failing(OffsetDateTime),
    /// It is to be switched off.
    Disable(DisabledReason),
}

/// What follows for an endpoint from attempts that ended together. Any success counts more than any failure; but who
/// says that it is gone, is.
pub fn health(known: Health, fates: &[Fate], now: OffsetDateTime) -> HealthChange {
    if fates.contains(&Fate::Gone) {
        return HealthChange::Disable(DisabledReason::Gone);
    }
    if fates.contains(&Fate::Delivered) {
        return HealthChange::Recovered;
    }
    match known {
        _ if fates.is_empty() => HealthChange::Keep,
        Health::Failing { since, last } if now - last < MEMORY => match (now - since, now - last) {
            (failing, _) if failing >= PATIENCE => HealthChange::Disable(DisabledReason::Failing),
            (_, noted) if noted >= NOTE_EVERY => HealthChange::Failing(since),
            _ => HealthChange::Keep,
        },
        Health::Well | Health::Failing { .. } => HealthChange::Failing(now),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::super::Failure;
    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-03-10 12:00 UTC);

    fn answered(status: u16, retry_after: Option<u64>) -> Outcome {
        Outcome::Answered {
            status,
            retry_after: retry_after.map(StdDuration::from_secs),
        }
    }

    fn seconds(attempt: u32, outcome: Outcome) -> Option<i64> {
        match fate(outcome, attempt, &Schedule::default(), 0.0) {
            Fate::Retry(delay) => Some(delay.whole_seconds()),
            _ => None,
        }
    }

    #[test]
    fn every_answer_has_one_fate() {
        for status in 0..=u16::MAX {
            let expected = match status {
                200..=299 => Fate::Delivered,
                410 => Fate::Gone,
                _ => Fate::Retry(Duration::seconds(5)),
            };
            assert_eq!(
                fate(answered(status, None), 1, &Schedule::default(), 0.0),
                expected,
                "{status}"
            );
        }
        for failure in [
            Failure::Refused,
            Failure::Resolution,
            Failure::Connection,
            Failure::Tls,
            Failure::TimedOut,
            Failure::Broken,
        ] {
            let first = fate(Outcome::Unreachable(failure), 1, &Schedule::default(), 0.0);
            assert_eq!(first, Fate::Retry(Duration::seconds(5)), "{failure:?}");
        }
    }

    #[test]
    fn the_schedule_is_followed_to_its_end() {
        let delays: Vec<Option<i64>> = (1..=9).map(|attempt| seconds(attempt, answered(500, None))).collect();
        let hours = |n: i64| Some(n * 3600);
        let expected = [
            Some(5),
            Some(300),
            Some(1800),
            hours(2),
            hours(5),
            hours(10),
            hours(10),
            None,
            None,
        ];
        assert_eq!(delays, expected);
        assert_eq!(fate(answered(500, None), 8, &Schedule::default(), 0.0), Fate::Exhausted);
        assert_eq!(fate(answered(500, None), 1, &Schedule(vec![]), 0.0), Fate::Exhausted);
    }

    #[test]
    fn a_wish_to_wait_is_heard_where_it_means_something() {
        for (status, wish, expected) in [
            (429, Some(60), 60),
            (503, Some(60), 60),
            (429, Some(1), 5),
            (429, Some(90_000), 86_400),
            (503, Some(u64::MAX), 86_400),
            (500, Some(60), 60),
            (502, Some(60), 60),
            (504, Some(60), 60),
            (599, Some(60), 60),
            (400, Some(60), 5),
            (428, Some(60), 5),
            (600, Some(60), 5),
            (301, Some(60), 5),
            (429, None, 5),
        ] {
            assert_eq!(seconds(1, answered(status, wish)), Some(expected), "{status} {wish:?}");
        }
        // The end of the schedule is its end.
        assert_eq!(seconds(8, answered(429, Some(60))), None);
    }

    #[test]
    fn an_endpoint_is_switched_off_for_what_it_says_or_after_five_days() {
        let failing = |since: i64, last: i64| Health::Failing {
            since: NOW - Duration::hours(since),
            last: NOW - Duration::hours(last),
        };
        let retry = Fate::Retry(Duration::SECOND);
        let at = |hours: i64| HealthChange::Failing(NOW - Duration::hours(hours));
        let off = HealthChange::Disable(DisabledReason::Failing);
        let gone = HealthChange::Disable(DisabledReason::Gone);
        for (known, fates, expected) in [
            (Health::Well, vec![], HealthChange::Keep),
            (Health::Well, vec![Fate::Delivered], HealthChange::Recovered),
            (Health::Well, vec![retry], at(0)),
            (Health::Well, vec![Fate::Exhausted], at(0)),
            (
                Health::Well,
                vec![retry, Fate::Delivered, retry],
                HealthChange::Recovered,
            ),
            (Health::Well, vec![Fate::Delivered, Fate::Gone], gone),
            (failing(1, 0), vec![retry], HealthChange::Keep),
            (failing(1, 1), vec![retry], at(1)),
            (failing(119, 1), vec![retry], at(119)),
            (failing(120, 1), vec![retry], off),
            (failing(120, 1), vec![Fate::Exhausted], off),
            (failing(500, 239), vec![retry], off),
            (failing(500, 240), vec![retry], at(0)),
            (failing(500, 1), vec![Fate::Delivered], HealthChange::Recovered),
            (failing(500, 1), vec![], HealthChange::Keep),
        ] {
            assert_eq!(health(known, &fates, NOW), expected, "{known:?} {fates:?}");
        }
    }

    proptest! {
        #[test]
        fn no_delay_leaves_its_bounds(attempt in 0_u32..20, spread in -5.0_f64..5.0, wish: Option<u32>) {
            let schedule = Schedule::default();
            let outcome = answered(429, wish.map(u64::from));
            if let Fate::Retry(delay) = fate(outcome, attempt, &schedule, spread) {
                let planned = schedule.0[usize::try_from(attempt.max(1)).unwrap() - 1];
                prop_assert!(delay >= planned * 0.8 && delay >= bounded(outcome_wish(wish)));
                let longest: Duration = planned * 1.2;
                prop_assert!(delay <= longest.max(LONGEST_WAIT));
            } else {
                prop_assert!(attempt > 7);
            }
        }
    }

    fn outcome_wish(wish: Option<u32>) -> Option<StdDuration> {
        wish.map(|wish| StdDuration::from_secs(u64::from(wish)))
    }
}
