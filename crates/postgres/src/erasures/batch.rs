//! What a batch of a step has removed, and where the next one begins.

use recado_domain::erasures::{BatchEnd, ErasureClaim, ErasureStep};
use time::{Duration, OffsetDateTime};

/// What a batch has removed.
#[derive(Default)]
pub(super) struct Batch {
    /// Rows by kind, where the kind is not the step.
    pub(super) removed: Vec<(&'static str, i64)>,
    /// Whether the step may have more rows.
    pub(super) has_more: bool,
    /// The last key, for a step that searches a table.
    pub(super) after: Option<String>,
    /// What began before the request has not ended.
    pub(super) waits: bool,
}

impl Batch {
    pub(super) fn of(kind: &'static str, count: i64, limit: i64) -> Self {
        Self {
            removed: vec![(kind, count)],
            has_more: count >= limit,
            ..Self::default()
        }
    }

    pub(super) fn end(&self) -> BatchEnd {
        match (self.waits, self.has_more) {
            (true, _) => BatchEnd::Wait,
            (_, true) => BatchEnd::More,
            _ => BatchEnd::Done,
        }
    }
}

/// The name under which the rows of a step are counted.
pub(super) fn kind(step: ErasureStep) -> &'static str {
    step.as_str()
}

/// The time of the last copies. The clocks of server and database may differ a little.
pub(super) fn until(claim: &ErasureClaim) -> OffsetDateTime {
    claim.requested_at.saturating_add(Duration::SECOND)
}
