//! Metrics and spans of gateway calls. Without a metrics recorder or span subscriber they cost next to nothing. A
//! recorder must be installed before the meter is created.

use std::time::Instant;

use metrics::{Counter, Histogram, counter, histogram};
use recado_domain::shared::TRACED;
use tracing::Span;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// The call succeeded: 1xx to 3xx.
    Done,
    /// 4xx except 429.
    Refused,
    /// 429.
    Throttled,
    /// 5xx, or an invalid status.
    Failed,
    /// Nothing was sent: no connection.
    NotSent,
    /// The request may have been sent, but no usable response came: the outcome is unknown.
    NoResponse,
    /// The caller dropped the call before its end.
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

/// Metrics of one gateway. Clones share them.
#[derive(Clone)]
pub(crate) struct Meter {
    gateway: &'static str,
    outcomes: Vec<(CallOutcome, Counter)>,
    seconds: Histogram,
}

impl Meter {
    /// `gateway` becomes a metric label, so it MUST come from a small fixed set.
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

    /// Starts a call. The span contains only the gateway's name, since URLs contain ids and headers contain tokens.
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

/// A call in progress. A drop records it.
pub(crate) struct Call<'a> {
    meter: &'a Meter,
    started: Instant,
    span: Span,
    outcome: CallOutcome,
}

impl Call<'_> {
    /// The span in which the call MUST run.
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
