//! Counts what calls come to, and shows them as spans. Where nobody installed a recorder before the meter was made, or
//! listens to spans, that costs next to nothing.

use std::time::Instant;

use metrics::{Counter, Histogram, counter, histogram};
use tracing::Span;

use crate::http::CallError;

/// The target of spans that are no part of the log: they are for traces alone.
pub const TRACED: &str = "recado::trace";

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// It was done.
    Done,
    /// The other side refused it: 4xx.
    Refused,
    /// The other side was too busy: 429.
    Throttled,
    /// The other side failed: 5xx, or an answer that is none.
    Failed,
    /// It surely did not leave: no connection.
    NotSent,
    /// It left, and nobody knows what came of it.
    NoResponse,
    /// Whoever asked did not wait for its end.
    Abandoned,
}

impl CallOutcome {
    const ALL: [Self; 7] = [
        Self::Done,
        Self::Refused,
        Self::Throttled,
        Self::Failed,
        Self::NotSent,
        Self::NoResponse,
        Self::Abandoned,
    ];

    pub(crate) fn from_status(status: u16) -> Self {
        match status {
            0..=399 => Self::Done,
            429 => Self::Throttled,
            400..=499 => Self::Refused,
            _ => Self::Failed,
        }
    }

    pub(crate) fn from_error(error: &CallError) -> Self {
        match error {
            CallError::NotSent(_) => Self::NotSent,
            CallError::MaybeSent(_) => Self::NoResponse,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Throttled => "throttled",
            Self::Failed => "failed",
            Self::NotSent => "not_sent",
            Self::NoResponse => "no_response",
            Self::Abandoned => "abandoned",
        }
    }
}

/// The figures of one gateway; clones are the same.
#[derive(Clone)]
pub(crate) struct Meter {
    gateway: &'static str,
    outcomes: Vec<(CallOutcome, Counter)>,
    seconds: Histogram,
}

impl Meter {
    /// `gateway` is one of a few words: it becomes a label.
    pub(crate) fn new(gateway: &'static str) -> Self {
        let counter = |outcome: CallOutcome| {
            let outcome = outcome.as_str();
            counter!("recado_gateway_calls_total", "gateway" => gateway, "outcome" => outcome)
        };
        Self {
            gateway,
            outcomes: CallOutcome::ALL
                .into_iter()
                .map(|outcome| (outcome, counter(outcome)))
                .collect(),
            seconds: histogram!("recado_gateway_call_duration_seconds", "gateway" => gateway),
        }
    }

    /// A call begins. Nothing of it but the gateway's name is told: addresses hold ids, headers hold tokens.
    pub(crate) fn begin(&self) -> Call<'_> {
        let span = tracing::debug_span!(target: TRACED, "gateway", otel.kind = "client", gateway = self.gateway,
            outcome = tracing::field::Empty);
        Call {
            meter: self,
            started: Instant::now(),
            span,
            outcome: CallOutcome::Abandoned,
        }
    }
}

/// A call under way.
pub(crate) struct Call<'a> {
    meter: &'a Meter,
    started: Instant,
    span: Span,
    outcome: CallOutcome,
}

impl Call<'_> {
    /// What the call does happens in this span.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(crate) fn end(mut self, outcome: CallOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let meter = self.meter;
        if let Some((_, counter)) = meter.outcomes.iter().find(|(outcome, _)| *outcome == self.outcome) {
            counter.increment(1);
        }
        meter.seconds.record(self.started.elapsed());
        self.span.record("outcome", self.outcome.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_maps_to_one_outcome() {
        for (status, outcome) in [
            (200, CallOutcome::Done),
            (304, CallOutcome::Done),
            (400, CallOutcome::Refused),
            (404, CallOutcome::Refused),
            (429, CallOutcome::Throttled),
            (499, CallOutcome::Refused),
            (500, CallOutcome::Failed),
            (999, CallOutcome::Failed),
        ] {
            assert_eq!(CallOutcome::from_status(status), outcome, "{status}");
        }
    }
}
