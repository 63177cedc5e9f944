//! Traces over OTLP, with the feature `otel`: one span per request, per call to another system, and per
//! `campaign.dispatch`.
//!
//! Spans with the target [`TRACED`] go to the collector only; other spans and all log events go to the log only. So the
//! code that creates a span decides what leaves the process.

use recado_domain::campaigns::QueuedRun;
use recado_domain::shared::TRACED;
use tracing::Span;

#[cfg(feature = "otel")]
mod otlp;
#[cfg(feature = "otel")]
pub use otlp::OtlpTraces as Traces;

/// The implementation without the feature `otel`. It does nothing.
#[cfg(not(feature = "otel"))]
#[derive(Debug)]
pub struct Traces(());

#[cfg(not(feature = "otel"))]
impl Traces {
    pub fn start(_endpoint: Option<&str>) -> anyhow::Result<Self> {
        Ok(Self(()))
    }

    /// Whether this program can send spans to a collector.
    pub const BUILT_IN: bool = false;

    pub fn end(self) {}
}

/// Creates the span of one dispatch of a run: from its claim until it ends or is handed over to another worker.
pub fn dispatch(run: QueuedRun) -> Span {
    tracing::debug_span!(target: TRACED, "campaign.dispatch", campaign = %run.campaign_id, account = %run.account_id)
}
