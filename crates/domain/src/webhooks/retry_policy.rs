//! What follows from an attempt: for the delivery, and for its endpoint.

use std::time::Duration as StdDuration;

use time::{Duration, OffsetDateTime};

use super::{AttemptOutcome, DisabledReason};

/// How much longer or shorter than planned a delay may be, as a share of it.
const SPREAD: f64 = 0.2;

/// The longest wait that a receiver may ask for.
const LONGEST_WAIT: Duration = Duration::hours(24);

/// An endpoint with nothing but failures for so long is switched off.
const DISABLE_AFTER: Duration = Duration::hours(120);

/// A failure that was followed by nothing for so long is forgotten.
const FAILURE_RESET_AFTER: Duration = Duration::hours(240);

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
pub enum DeliveryDecision {
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
pub fn decide(outcome: AttemptOutcome, attempt: u32, schedule: &Schedule, spread: f64) -> DeliveryDecision {
    let requested = match outcome {
        AttemptOutcome::Answered { status: 200..=299, .. } => return DeliveryDecision::Delivered,
        AttemptOutcome::Answered { status: 410, .. } => return DeliveryDecision::Gone,
        AttemptOutcome::Answered {
            status: 429 | 500..=599,
            retry_after,
        } => retry_after,
        AttemptOutcome::Answered { .. } | AttemptOutcome::Unreachable(_) => None,
    };
    let index = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
    match schedule.0.get(index) {
        None => DeliveryDecision::Exhausted,
        Some(planned) => {
            let planned = *planned * (1.0 + SPREAD * spread.clamp(-1.0, 1.0));
            DeliveryDecision::Retry(planned.max(bounded(requested)))
        }
    }
}

fn bounded(requested: Option<StdDuration>) -> Duration {
    let requested = requested.unwrap_or_default();
    Duration::try_from(requested).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT)
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
pub fn health(known: Health, decisions: &[DeliveryDecision], now: OffsetDateTime) -> HealthChange {
    if decisions.contains(&DeliveryDecision::Gone) {
        return HealthChange::Disable(DisabledReason::Gone);
    }
    if decisions.contains(&DeliveryDecision::Delivered) {
        return HealthChange::Recovered;
    }
    match known {
        _ if decisions.is_empty() => HealthChange::Keep,
        Health::Failing { since, last } if now - last < FAILURE_RESET_AFTER => match (now - since, now - last) {
            (failing, _) if failing >= DISABLE_AFTER => HealthChange::Disable(DisabledReason::Failing),
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

    fn answered(status: u16, retry_after: Option<u64>) -> AttemptOutcome {
        AttemptOutcome::Answered {
            status,
            retry_after: retry_after.map(StdDuration::from_secs),
        }
    }

    fn seconds(attempt: u32, outcome: AttemptOutcome) -> Option<i64> {
        match decide(outcome, attempt, &Schedule::default(), 0.0) {
            DeliveryDecision::Retry(delay) => Some(delay.whole_seconds()),
            _ => None,
        }
    }

    #[test]
    fn every_answer_has_one_decision() {
        for status in 0..=u16::MAX {
            let expected = match status {
                200..=299 => DeliveryDecision::Delivered,
                410 => DeliveryDecision::Gone,
                _ => DeliveryDecision::Retry(Duration::seconds(5)),
            };
            assert_eq!(
                decide(answered(status, None), 1, &Schedule::default(), 0.0),
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
            let first = decide(AttemptOutcome::Unreachable(failure), 1, &Schedule::default(), 0.0);
            assert_eq!(first, DeliveryDecision::Retry(Duration::seconds(5)), "{failure:?}");
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
        assert_eq!(
            decide(answered(500, None), 8, &Schedule::default(), 0.0),
            DeliveryDecision::Exhausted
        );
        assert_eq!(
            decide(answered(500, None), 1, &Schedule(vec![]), 0.0),
            DeliveryDecision::Exhausted
        );
    }

    #[test]
    fn a_wish_to_wait_is_heard_where_it_means_something() {
        for (status, requested, expected) in [
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
            assert_eq!(
                seconds(1, answered(status, requested)),
                Some(expected),
                "{status} {requested:?}"
            );
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
        let retry = DeliveryDecision::Retry(Duration::SECOND);
        let at = |hours: i64| HealthChange::Failing(NOW - Duration::hours(hours));
        let off = HealthChange::Disable(DisabledReason::Failing);
        let gone = HealthChange::Disable(DisabledReason::Gone);
        for (known, decisions, expected) in [
            (Health::Well, vec![], HealthChange::Keep),
            (Health::Well, vec![DeliveryDecision::Delivered], HealthChange::Recovered),
            (Health::Well, vec![retry], at(0)),
            (Health::Well, vec![DeliveryDecision::Exhausted], at(0)),
            (
                Health::Well,
                vec![retry, DeliveryDecision::Delivered, retry],
                HealthChange::Recovered,
            ),
            (
                Health::Well,
                vec![DeliveryDecision::Delivered, DeliveryDecision::Gone],
                gone,
            ),
            (failing(1, 0), vec![retry], HealthChange::Keep),
            (failing(1, 1), vec![retry], at(1)),
            (failing(119, 1), vec![retry], at(119)),
            (failing(120, 1), vec![retry], off),
            (failing(120, 1), vec![DeliveryDecision::Exhausted], off),
            (failing(500, 239), vec![retry], off),
            (failing(500, 240), vec![retry], at(0)),
            (
                failing(500, 1),
                vec![DeliveryDecision::Delivered],
                HealthChange::Recovered,
            ),
            (failing(500, 1), vec![], HealthChange::Keep),
        ] {
            assert_eq!(health(known, &decisions, NOW), expected, "{known:?} {decisions:?}");
        }
    }

    proptest! {
        #[test]
        fn no_delay_leaves_its_bounds(attempt in 0_u32..20, spread in -5.0_f64..5.0, requested: Option<u32>) {
            let schedule = Schedule::default();
            let outcome = answered(429, requested.map(u64::from));
            if let DeliveryDecision::Retry(delay) = decide(outcome, attempt, &schedule, spread) {
                let planned = schedule.0[usize::try_from(attempt.max(1)).unwrap() - 1];
                prop_assert!(delay >= planned * 0.8 && delay >= bounded(requested_wait(requested)));
                let longest: Duration = planned * 1.2;
                prop_assert!(delay <= longest.max(LONGEST_WAIT));
            } else {
                prop_assert!(attempt > 7);
            }
        }
    }

    fn requested_wait(requested: Option<u32>) -> Option<StdDuration> {
        requested.map(|requested| StdDuration::from_secs(u64::from(requested)))
    }
}
