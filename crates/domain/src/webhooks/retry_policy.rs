//! Retry policy: what an attempt's outcome means for its delivery and for the endpoint's health.

use std::time::Duration as StdDuration;

use time::{Duration, OffsetDateTime};

use super::{AttemptOutcome, DisabledReason};

/// Jitter: the largest deviation from a planned delay, as a share of it.
const MAX_JITTER: f64 = 0.2;

/// The longest delay that a receiver may request with `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::hours(24);

/// An endpoint without a success for this time is disabled.
const DISABLE_AFTER: Duration = Duration::hours(120);

/// After this time without an attempt, the earlier failures no longer count.
const FAILURE_RESET_AFTER: Duration = Duration::hours(240);

/// The shortest time between two writes of the last failure.
const FAILURE_RECORD_INTERVAL: Duration = Duration::minutes(10);

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

/// The next step of a delivery after an attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeliveryDecision {
    Delivered,
    /// Retry after this delay.
    Retry(Duration),
    /// The schedule has no further attempt: abandon it.
    Exhausted,
    /// The receiver responded with 410 Gone: abandon it and disable the endpoint.
    Gone,
}

/// Decides what follows for a delivery after its attempt number `attempt`, counted from 1. `spread` is a random number
/// between -1 and 1.
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
            let planned = *planned * (1.0 + MAX_JITTER * spread.clamp(-1.0, 1.0));
            DeliveryDecision::Retry(planned.max(bounded_retry_after(requested)))
        }
    }
}

fn bounded_retry_after(requested: Option<StdDuration>) -> Duration {
    let requested = requested.unwrap_or_default();
    Duration::try_from(requested)
        .unwrap_or(MAX_RETRY_AFTER)
        .min(MAX_RETRY_AFTER)
}

/// The failures of an endpoint since its last success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// There is none.
    Well,
    /// There is at least one.
    Failing {
        /// The first failure.
        since: OffsetDateTime,
        /// The last recorded failure.
        last: OffsetDateTime,
    },
}

impl Health {
    /// The first failure since the last success.
    pub fn since(self) -> Option<OffsetDateTime> {
        match self {
            Self::Well => None,
            Self::Failing { since, .. } => Some(since),
        }
    }
}

/// The change of an endpoint's health that must be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthChange {
    Unchanged,
    /// A delivery succeeded: reset the failures.
    Recovered,
    /// The endpoint has been failing since this time.
    Failing(OffsetDateTime),
    Disable(DisabledReason),
}

/// Decides the health change of an endpoint after a batch of attempts. 410 Gone outranks a success, and a success
/// outranks any failure.
pub fn health(current: Health, decisions: &[DeliveryDecision], now: OffsetDateTime) -> HealthChange {
    if decisions.contains(&DeliveryDecision::Gone) {
        return HealthChange::Disable(DisabledReason::Gone);
    }
    if decisions.contains(&DeliveryDecision::Delivered) {
        return HealthChange::Recovered;
    }
    match current {
        _ if decisions.is_empty() => HealthChange::Unchanged,
        Health::Failing { since, last } if now - last < FAILURE_RESET_AFTER => match (now - since, now - last) {
            (failing, _) if failing >= DISABLE_AFTER => HealthChange::Disable(DisabledReason::Failing),
            (_, since_last) if since_last >= FAILURE_RECORD_INTERVAL => HealthChange::Failing(since),
            _ => HealthChange::Unchanged,
        },
        Health::Well | Health::Failing { .. } => HealthChange::Failing(now),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::super::DeliveryFailure;
    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-03-10 12:00 UTC);

    fn response(status: u16, retry_after: Option<u64>) -> AttemptOutcome {
        AttemptOutcome::Answered {
            status,
            retry_after: retry_after.map(StdDuration::from_secs),
        }
    }

    fn retry_seconds(attempt: u32, outcome: AttemptOutcome) -> Option<i64> {
        match decide(outcome, attempt, &Schedule::default(), 0.0) {
            DeliveryDecision::Retry(delay) => Some(delay.whole_seconds()),
            _ => None,
        }
    }

    #[test]
    fn every_attempt_outcome_has_one_decision() {
        for status in 0..=u16::MAX {
            let expected = match status {
                200..=299 => DeliveryDecision::Delivered,
                410 => DeliveryDecision::Gone,
                _ => DeliveryDecision::Retry(Duration::seconds(5)),
            };
            assert_eq!(
                decide(response(status, None), 1, &Schedule::default(), 0.0),
                expected,
                "{status}"
            );
        }
        for failure in [
            DeliveryFailure::Refused,
            DeliveryFailure::Resolution,
            DeliveryFailure::Connection,
            DeliveryFailure::Tls,
            DeliveryFailure::TimedOut,
            DeliveryFailure::Broken,
        ] {
            let first = decide(AttemptOutcome::Unreachable(failure), 1, &Schedule::default(), 0.0);
            assert_eq!(first, DeliveryDecision::Retry(Duration::seconds(5)), "{failure:?}");
        }
    }

    #[test]
    fn retry_policy_follows_the_whole_schedule() {
        let delays: Vec<Option<i64>> = (1..=9)
            .map(|attempt| retry_seconds(attempt, response(500, None)))
            .collect();
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
            decide(response(500, None), 8, &Schedule::default(), 0.0),
            DeliveryDecision::Exhausted
        );
        assert_eq!(
            decide(response(500, None), 1, &Schedule(vec![]), 0.0),
            DeliveryDecision::Exhausted
        );
    }

    #[test]
    fn retry_after_applies_to_429_and_5xx_only() {
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
                retry_seconds(1, response(status, requested)),
                Some(expected),
                "{status} {requested:?}"
            );
        }
        // Retry-After does not extend the schedule.
        assert_eq!(retry_seconds(8, response(429, Some(60))), None);
    }

    #[test]
    fn endpoint_is_disabled_when_gone_or_after_five_days_of_failure() {
        let failing = |since: i64, last: i64| Health::Failing {
            since: NOW - Duration::hours(since),
            last: NOW - Duration::hours(last),
        };
        let retry = DeliveryDecision::Retry(Duration::SECOND);
        let at = |hours: i64| HealthChange::Failing(NOW - Duration::hours(hours));
        let off = HealthChange::Disable(DisabledReason::Failing);
        let gone = HealthChange::Disable(DisabledReason::Gone);
        for (current, decisions, expected) in [
            (Health::Well, vec![], HealthChange::Unchanged),
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
            (failing(1, 0), vec![retry], HealthChange::Unchanged),
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
            (failing(500, 1), vec![], HealthChange::Unchanged),
        ] {
            assert_eq!(health(current, &decisions, NOW), expected, "{current:?} {decisions:?}");
        }
    }

    proptest! {
        #[test]
        fn retry_delay_stays_within_its_bounds(attempt in 0_u32..20, spread in -5.0_f64..5.0, requested: Option<u32>) {
            let schedule = Schedule::default();
            let outcome = response(429, requested.map(u64::from));
            if let DeliveryDecision::Retry(delay) = decide(outcome, attempt, &schedule, spread) {
                let planned = schedule.0[usize::try_from(attempt.max(1)).unwrap() - 1];
                prop_assert!(delay >= planned * 0.8 && delay >= bounded_retry_after(requested_wait(requested)));
                let longest: Duration = planned * 1.2;
                prop_assert!(delay <= longest.max(MAX_RETRY_AFTER));
            } else {
                prop_assert!(attempt > 7);
            }
        }
    }

    fn requested_wait(requested: Option<u32>) -> Option<StdDuration> {
        requested.map(|requested| StdDuration::from_secs(u64::from(requested)))
    }
}
