//! What became of messages, as the platform answered.

use metrics::{Counter, counter};
use recado_domain::campaigns::SendOutcome;

/// The figures of one kind of message; clones are the same.
#[derive(Clone)]
pub(super) struct SendMetrics {
    accepted: Counter,
    failed: Counter,
    throttled: Counter,
    run_blocked: Counter,
    unknown: Counter,
}

impl SendMetrics {
    pub(super) fn of(kind: &'static str) -> Self {
        let count = |outcome: &'static str| counter!("recado_messages_total", "kind" => kind, "outcome" => outcome);
        Self {
            accepted: count("accepted"),
            failed: count("failed"),
            throttled: count("throttled"),
            run_blocked: count("run_blocked"),
            unknown: count("unknown"),
        }
    }

    pub(super) fn count(&self, outcome: &SendOutcome) {
        let count = match outcome {
            SendOutcome::Accepted { .. } => &self.accepted,
            SendOutcome::Failed { .. } => &self.failed,
            SendOutcome::Throttled { .. } => &self.throttled,
            SendOutcome::RunBlocked { .. } => &self.run_blocked,
            SendOutcome::Unknown { .. } | SendOutcome::OpaqueRejection { .. } => &self.unknown,
        };
        count.increment(1);
    }
}
