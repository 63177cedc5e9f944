//! Traces over OTLP, with the feature `otel`: one span a request, one a call to the outside, one a campaign.dispatch.
//!
//! Spans for traces and spans for the log are apart: those with the target [`TRACED`] are for traces alone, and nothing
//! else is handed to the collector, no line of the log either. So what a span may say is decided where it is made.

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

/// Traces of a program that was built without them.
#[cfg(not(feature = "otel"))]
#[derive(Debug)]
pub struct Traces(());

#[cfg(not(feature = "otel"))]
impl Traces {
    /// Nothing begins.
    pub fn start(_endpoint: Option<&str>) -> anyhow::Result<Self> {
        Ok(Self(()))
    }

    /// Whether this program can hand spans to a collector.
    pub const BUILT_IN: bool = false;

    /// Nothing ends.
    pub fn end(self) {}
}

/// The span of a request, below the caller's where it names one (`traceparent`). It tells the route's pattern, never the
/// path.
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

/// The span of one campaign.dispatch: from its taking up to its end, or to whoever goes on with it.
pub fn dispatch(run: QueuedRun) -> Span {
    tracing::debug_span!(target: TRACED, "campaign.dispatch", campaign = %run.campaign_id, account = %run.account_id)
}
