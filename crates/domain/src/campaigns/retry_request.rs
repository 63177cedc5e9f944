//! The request for a retry of failed sends, at once or scheduled.

use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::{Campaign, QueuedRun, Scheduler};
use crate::shared::{Event, FieldErrors, timestamp};

/// The most error codes in a request.
const MAX_CODES: usize = 50;

/// The furthest time ahead of a scheduled retry.
pub(super) const MAX_DELAY: Duration = Duration::days(30);

/// Which failed sends to retry, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryRequest {
    /// Retries failures with these codes only; [`NO_CODE`](super::NO_CODE) stands for failures without a code. None:
    /// any code.
    pub codes: Option<Vec<i64>>,
    /// The earliest time of the retry. None or past: now.
    pub not_before: Option<OffsetDateTime>,
    /// Retries failures of the named codes before their earliest time.
    pub force: bool,
}

impl RetryRequest {
    pub(super) fn check(&self, now: OffsetDateTime) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        if self
            .codes
            .as_ref()
            .is_some_and(|codes| !(1..=MAX_CODES).contains(&codes.len()))
        {
            errors.add("codes", format!("must have 1 to {MAX_CODES} items"));
        }
        if self.not_before.is_some_and(|at| at - now > MAX_DELAY) {
            errors.add(
                "not_before",
                format!("must be at most {} days ahead", MAX_DELAY.whole_days()),
            );
        }
        errors.into_result()
    }

    /// The request as the audit log stores it.
    pub(super) fn changes(&self) -> Value {
        json!({ "codes": self.codes, "not_before": self.not_before.map(timestamp::format), "force": self.force })
    }
}

/// A retry to schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct RetrySchedule {
    /// The campaign with its new `retry_scheduled_at`.
    pub campaign: Campaign,
    /// The version of the campaign on which the request was checked.
    pub expected_version: i64,
    /// `not_before` is the time of the retry.
    pub request: RetryRequest,
    /// The retry starts on behalf of this user.
    pub scheduler: Scheduler,
    pub events: Vec<Event>,
}

/// A scheduled retry that is due.
#[derive(Clone, Debug, PartialEq)]
pub struct DueRetry {
    pub run: QueuedRun,
    /// `not_before` is the scheduled time.
    pub request: RetryRequest,
    pub scheduler: Scheduler,
}
