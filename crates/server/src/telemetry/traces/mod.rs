//! Traces over OTLP, with the feature `otel`: one span per request, per call to another system, and per
//! `campaign.dispatch`.
//!
//! Spans with the target [`TRACED`] go to the collector only; other spans and all log events go to the log only. So the
//! code that creates a span decides what leaves the process.

use actix_web::dev::ServiceRequest;
use recado_domain::campaigns::QueuedRun;
pub use recado_gateways::TRACED;
use tracing::Span;
use tracing::field::Empty;

use super::Route;

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

/// Creates the span of a request, a child of the caller's span if there is a `traceparent`. It contains the route's
/// pattern, never the path.
pub fn request(request: &ServiceRequest, id: &str) -> Span {
    let span = tracing::debug_span!(
        target: TRACED,
        "request",
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = request.method().as_str(),
        http.route = Empty,
        http.response.status_code = Empty,
        request_id = id,
    );
    #[cfg(feature = "otel")]
    otlp::set_parent(&span, request.headers());
    span
}

/// Records the response in the span of its request.
pub fn record_response(span: &Span, method: &str, route: &Route, status: u16) {
    if span.is_disabled() {
        return;
    }
    let path = route.path();
    #[cfg(feature = "otel")]
    otlp::rename(span, format!("{method} {path}"));
    #[cfg(not(feature = "otel"))]
    let _ = method;
    span.record("http.route", path);
    span.record("http.response.status_code", status);
    if status >= 500 {
        span.record("otel.status_code", "ERROR");
    }
}

/// Creates the span of one dispatch of a run: from its claim until it ends or is handed over to another worker.
pub fn dispatch(run: QueuedRun) -> Span {
    tracing::debug_span!(target: TRACED, "campaign.dispatch", campaign = %run.campaign_id, account = %run.account_id)
}
