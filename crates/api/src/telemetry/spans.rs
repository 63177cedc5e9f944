//! Spans of requests. They leave the process with the feature `otel` only.

use actix_web::dev::ServiceRequest;
use recado_domain::shared::TRACED;
use tracing::Span;
use tracing::field::Empty;

use super::Route;

/// Creates the span of a request, a child of the caller's span if there is a `traceparent`. It contains the route's
/// pattern, never the path.
pub fn request_span(request: &ServiceRequest, id: &str) -> Span {
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
    otel::set_parent(&span, request.headers());
    span
}

/// Records the response in the span of its request.
pub fn record_response(span: &Span, method: &str, route: &Route, status: u16) {
    if span.is_disabled() {
        return;
    }
    let path = route.path();
    #[cfg(feature = "otel")]
    otel::rename(span, format!("{method} {path}"));
    #[cfg(not(feature = "otel"))]
    let _ = method;
    span.record("http.route", path);
    span.record("http.response.status_code", status);
    if status >= 500 {
        span.record("otel.status_code", "ERROR");
    }
}

#[cfg(feature = "otel")]
mod otel {
    use actix_web::http::header::HeaderMap;
    use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
    use opentelemetry::trace::TraceContextExt as _;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use tracing::Span;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    /// Makes the span a child of the caller's span, if the headers name one.
    pub(super) fn set_parent(span: &Span, headers: &HeaderMap) {
        if span.is_disabled() {
            return;
        }
        let parent = TraceContextPropagator::new().extract(&Headers(headers));
        if parent.span().span_context().is_valid() {
            // It fails only for a span that has already started.
            span.set_parent(parent).ok();
        }
    }

    /// Renames a span that has already started. A field `otel.name` would have no effect any more.
    pub(super) fn rename(span: &Span, name: String) {
        span.context().span().update_name(name);
    }

    struct Headers<'a>(&'a HeaderMap);

    impl Extractor for Headers<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.get(key)?.to_str().ok()
        }

        fn keys(&self) -> Vec<&str> {
            self.0.keys().map(|name| name.as_str()).collect()
        }
    }
}
