//! Counts sent messages by kind and outcome.

use metrics::{Counter, counter};
use recado_domain::messaging::SendOutcome;

/// Counters of one kind of message. Clones share them.
#[derive(Clone)]
pub(super) struct SendMetrics {
    accepted: Counter,
    failed: Counter,
    throttled: Counter,
    run_blocked: Counter,
    unknown: Counter,
}

impl SendMetrics {
    pub(super) fn new(kind: &'static str) -> Self {
        let counter = |outcome: &'static str| counter!("recado_messages_total", "kind" => kind, "outcome" => outcome);
        Self {
            accepted: counter("accepted"),
            failed: counter("failed"),
            throttled: counter("throttled"),
            run_blocked: counter("run_blocked"),
            unknown: counter("unknown"),
        }
    }

    pub(super) fn count(&self, outcome: &SendOutcome) {
        let counter = match outcome {
            SendOutcome::Accepted { .. } => &self.accepted,
            SendOutcome::Failed { .. } => &self.failed,
            SendOutcome::Throttled { .. } => &self.throttled,
            SendOutcome::RunBlocked { .. } => &self.run_blocked,
            SendOutcome::Unknown { .. } | SendOutcome::OpaqueRejection { .. } => &self.unknown,
        };
        counter.increment(1);
    }
}
