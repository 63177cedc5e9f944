//! The outermost middleware: the request id, the log line and the metrics of a request, and the headers of every
//! response.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::web::Bytes;
use actix_web::{Error, HttpMessage as _};
use tracing::Instrument as _;
use uuid::Uuid;

use crate::telemetry::{InFlight, Route, record_response, request_span};
use crate::web::cors::wrap_cors_error;
use crate::web::request_log::RequestLog;

/// The request's id, in its extensions.
#[derive(Clone)]
pub struct RequestId(pub String);

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID_BYTES: usize = 128;

pub async fn request_context<B: MessageBody + 'static>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let began = Instant::now();
    let _in_flight = InFlight::begin();
    let id = request_id(&request);
    let id_text = id.to_str().unwrap_or_default();
    request.extensions_mut().insert(RequestId(id_text.to_owned()));
    let (trace, span) = (
        request_span(&request, id_text),
        tracing::info_span!("request", request_id = id_text),
    );
    let log = RequestLog::begin(&mut request);
    let handling = next.call(request).instrument(span.clone());
    let response = handling.instrument(trace.clone()).await?;
    let mut response = wrap_cors_error(response.map_into_boxed_body());
    let route = response.request().extensions().get::<&'static Route>().copied();
    let (route, status) = (route.unwrap_or_else(Route::unmatched), response.status().as_u16());
    let duration = began.elapsed();
    route.record_response(status, duration);
    record_response(&trace, response.request().method().as_str(), route, status);
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.insert(
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
    // Without its own `Cache-Control`: no route, a public route, or a refusal of the access check.
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    let response = match *response.request().method() == Method::HEAD {
        true => response.map_body(|_, body| BoxBody::new(HeadBody(body.size()))),
        false => response,
    };
    Ok(log.end(response, route, duration, &span))
}

/// The body of a response to HEAD: the size of the body of GET, and no content.
struct HeadBody(BodySize);

impl MessageBody for HeadBody {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        self.0
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        Poll::Ready(None)
    }
}

/// The client's id if it is 1 to `REQUEST_ID_BYTES` visible ASCII characters, else a new one.
fn request_id(request: &ServiceRequest) -> HeaderValue {
    let client_id = request.headers().get(REQUEST_ID).filter(|value| {
        let bytes = value.as_bytes();
        (1..=REQUEST_ID_BYTES).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    });
    client_id.cloned().unwrap_or_else(|| {
        HeaderValue::from_str(&Uuid::now_v7().to_string()).unwrap_or_else(|_| HeaderValue::from_static("-"))
    })
}
