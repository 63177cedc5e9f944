//! Do callbacks, events, deliveries and mails wait too long?

use std::time::Duration;

use recado_postgres::{PgQueues, Queue};

use super::context::{AreaOutcome, DoctorContext};
use super::database::unavailable;
use super::diagnosis::Diagnosis;

const NAME: &str = "queues";

/// An entry that waits longer has no worker, or one that fails.
const MAX_AGE: Duration = Duration::from_secs(5 * 60);

/// The queues that workers empty within seconds, as the metrics name them.
const QUEUES: &[&str] = &[
    "whatsapp_callbacks",
    "gateway_events",
    "outbox_audit",
    "outbox_notification",
    "outbox_webhook",
    "webhook_deliveries",
    "mail",
];

/// Queues of entries that could not be processed.
const SET_ASIDE: &[&str] = &["whatsapp_callbacks_set_aside", "outbox_set_aside"];

pub(super) async fn check(context: &DoctorContext) -> AreaOutcome {
    let queues = PgQueues::new(context.owner()?.clone());
    Ok(match queues.read().await {
        Ok(queues) => diagnose(&queues),
        Err(error) => vec![unavailable(NAME, &error)],
    })
}

fn diagnose(queues: &[Queue]) -> Vec<Diagnosis> {
    let named = |names: &'static [&str]| queues.iter().filter(|queue| names.contains(&queue.name.as_str()));
    let late = named(QUEUES).filter(|queue| queue.oldest > MAX_AGE).map(|queue| {
        let minutes = queue.oldest.as_secs() / 60;
        Diagnosis::fail(
            NAME,
            format!("{} in the queue {}, the oldest for {minutes} min", queue.depth, queue.name),
            "check that recado serve or recado worker runs, and its log; docs/operating/metrics.md describes the queues",
        )
    });
    let set_aside = named(SET_ASIDE).filter(|queue| queue.depth > 0).map(|queue| {
        Diagnosis::warn(
            NAME,
            format!("{} could not be processed: {}", queue.depth, queue.name),
            "read the errors in the log; docs/operating/metrics.md says what to do with them",
        )
    });
    let mut checks: Vec<Diagnosis> = late.chain(set_aside).collect();
    if checks.is_empty() {
        let found = "no callback, event, delivery or mail waits longer than 5 min";
        checks.push(Diagnosis::ok(NAME, found));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::super::diagnosis::DiagnosisState;
    use super::*;

    fn queue(name: &str, depth: i64, minutes: u64) -> Queue {
        Queue {
            name: name.to_owned(),
            depth,
            oldest: Duration::from_secs(60 * minutes),
        }
    }

    #[test]
    fn queue_fails_beyond_five_minutes() {
        let states =
            |queues: &[Queue]| -> Vec<DiagnosisState> { diagnose(queues).iter().map(|check| check.state).collect() };
        for name in QUEUES {
            assert_eq!(states(&[queue(name, 3, 5)]), [DiagnosisState::Ok], "{name}");
            assert_eq!(states(&[queue(name, 3, 6)]), [DiagnosisState::Fail], "{name}");
        }
        assert_eq!(states(&[queue("schedule", 1, 600)]), [DiagnosisState::Ok]);
        assert_eq!(states(&[queue("outbox_set_aside", 1, 0)]), [DiagnosisState::Warn]);
        assert_eq!(states(&[queue("mail", 1, 9), queue("gateway_events", 1, 9)]).len(), 2);
        assert!(
            diagnose(&[queue("mail", 3, 7)])[0]
                .found
                .contains("3 in the queue mail, the oldest for 7 min")
        );
    }
}
