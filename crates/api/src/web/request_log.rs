//! The log line of a request, and of a security event: who did what from where. Paths are logged as the pattern of their
//! route, because a path can contain personal data.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::HttpMessage as _;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::error::PayloadError;
use actix_web::http::Method;
use actix_web::web::{Bytes, Data};
use futures_util::Stream;
use tracing::Span;

use super::auth::Authenticator;
use super::caller::CallerIds;
use super::client_ip;
use crate::error::RefusalReason;
use crate::telemetry::{Route, count_refusal};

/// What is known of a request before it is handled.
pub struct RequestLog {
    method: Method,
    client: Option<String>,
    received: Rc<Cell<u64>>,
}

impl RequestLog {
    /// Begins to count the bytes of the request's body.
    pub fn begin(request: &mut ServiceRequest) -> Self {
        let received = Rc::new(Cell::new(0));
        match request.take_payload() {
            Payload::None => request.set_payload(Payload::None),
            payload => request.set_payload(Payload::Stream {
                payload: Box::pin(CountedBody {
                    payload,
                    received: received.clone(),
                }),
            }),
        }
        Self {
            method: request.method().clone(),
            client: client(request),
            received,
        }
    }

    /// Logs the request: at once, or at the end of a body of unknown length, when its bytes are known. Also counts and
    /// logs a refusal.
    pub fn end(
        self,
        response: ServiceResponse<BoxBody>,
        route: &'static Route,
        duration: Duration,
        span: &Span,
    ) -> ServiceResponse<BoxBody> {
        let line = Line {
            span: span.clone(),
            route: route.path(),
            status: response.status().as_u16(),
            duration_ms: duration.as_secs_f64() * 1000.0,
            caller: CallerIds::of(response.request()),
            sent: 0,
            request: self,
        };
        let reason = response.response().extensions().get::<RefusalReason>().copied();
        if let Some(reason) = reason {
            count_refusal(reason);
            line.write_refusal(reason);
        }
        match response.response().body().size() {
            BodySize::None => line.write(0),
            BodySize::Sized(bytes) => line.write(bytes),
            BodySize::Stream => return response.map_body(|_, body| LoggedBody { body, line }.boxed()),
        }
        response
    }
}

/// The client's address, without a port.
fn client(request: &ServiceRequest) -> Option<String> {
    let trusted = request
        .app_data::<Data<Authenticator>>()
        .map(|authenticator| authenticator.trusted_proxies.as_slice())
        .unwrap_or_default();
    client_ip::warn_of_untrusted_proxy(request.request(), trusted);
    client_ip::address(request.request(), trusted).map(|address| address.to_string())
}

/// A log line whose response has begun.
struct Line {
    span: Span,
    request: RequestLog,
    route: &'static str,
    status: u16,
    duration_ms: f64,
    caller: CallerIds,
    /// The bytes of a streamed body so far.
    sent: u64,
}

impl Line {
    fn write(&self, bytes: u64) {
        let _entered = self.span.enter();
        let (method, route) = (self.request.method.as_str(), self.route);
        tracing::info!(
            method,
            route,
            status = self.status,
            duration_ms = self.duration_ms,
            client = self.request.client.as_deref(),
            account = self.caller.account.map(|id| display(id.0)),
            user = self.caller.user.map(|id| display(id.0)),
            key = self.caller.key.map(|id| display(id.0)),
            request_bytes = self.request.received.get(),
            bytes,
            "{method} {route}"
        );
    }

    fn write_refusal(&self, reason: RefusalReason) {
        let _entered = self.span.enter();
        tracing::warn!(
            reason = reason.as_str(),
            method = self.request.method.as_str(),
            route = self.route,
            client = self.request.client.as_deref(),
            account = self.caller.account.map(|id| display(id.0)),
            user = self.caller.user.map(|id| display(id.0)),
            key = self.caller.key.map(|id| display(id.0)),
            "access refused"
        );
    }
}

/// A request body whose bytes are counted.
struct CountedBody {
    payload: Payload,
    received: Rc<Cell<u64>>,
}

impl Stream for CountedBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = Pin::new(&mut self.payload).poll_next(context);
        if let Poll::Ready(Some(Ok(chunk))) = &polled {
            self.received.set(self.received.get().saturating_add(length(chunk)));
        }
        polled
    }
}

/// A streamed response body. Its end, or the client's disconnect, writes the log line.
struct LoggedBody {
    body: BoxBody,
    line: Line,
}

impl MessageBody for LoggedBody {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_next(context);
        if let Poll::Ready(Some(Ok(chunk))) = &polled {
            self.line.sent = self.line.sent.saturating_add(length(chunk));
        }
        polled
    }
}

impl Drop for LoggedBody {
    fn drop(&mut self) {
        self.line.write(self.line.sent);
    }
}

fn length(chunk: &Bytes) -> u64 {
    u64::try_from(chunk.len()).unwrap_or(u64::MAX)
}
