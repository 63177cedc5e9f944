//! HTTP client of all gateways. Its errors distinguish whether the request may have been sent.
//!
//! A caller whose operation is not idempotent may retry only after [`CallError::NotSent`].

use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use hyper::{Method, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::{CaptureConnection, HttpConnector, capture_connection};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::TokioTimer;
use recado_domain::redacted_debug;
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;
use tracing::Instrument as _;

use crate::meter::{CallOutcome, Meter};
use crate::runtime::{BoundConnector, ConnectionRuntime};
use crate::tls;

/// Default time limit of a call.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Default time limit of resolving, connecting and the TLS handshake together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the pool holds an idle connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Default limit of a response body, in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

const AGENT: &str = concat!("Recado/", env!("CARGO_PKG_VERSION"));

/// Why a call has no response. The text never contains a header or a body.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CallError {
    /// Nothing was sent: the URL is malformed, or there was no connection. Safe to retry.
    #[error("not sent: {0}")]
    NotSent(String),
    /// The server may have received the request or part of it: timeout, reset, broken or too large response.
    #[error("no usable response: {0}")]
    MaybeSent(String),
}

type BoxError = Box<dyn Error + Send + Sync>;

/// A body that is streamed in chunks.
pub type ByteStream = BoxStream<'static, Result<Bytes, BoxError>>;

type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// A request. Its `Debug` output has only method and URL.
pub struct GatewayRequest {
    method: Method,
    url: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: ByteStream,
    length: u64,
    timeout: Duration,
    max_response_bytes: usize,
}

impl fmt::Debug for GatewayRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.url)
    }
}

impl GatewayRequest {
    pub fn get(url: impl Into<String>) -> Self {
        Self::with_body(Method::GET, url.into(), Bytes::new())
    }

    /// A POST with a JSON body.
    pub fn post(url: impl Into<String>, body: &Value) -> Self {
        let request = Self::with_body(Method::POST, url.into(), Bytes::from(body.to_string()));
        request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
    }

    /// A POST with a JSON body that is wiped from memory after it is sent.
    pub fn post_secret(url: impl Into<String>, body: Zeroizing<Vec<u8>>) -> Self {
        let request = Self::with_body(Method::POST, url.into(), Bytes::from_owner(body));
        request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
    }

    /// A PUT with a JSON body.
    pub fn put(url: impl Into<String>, body: &Value) -> Self {
        let request = Self::with_body(Method::PUT, url.into(), Bytes::from(body.to_string()));
        request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
    }

    pub fn delete(url: impl Into<String>) -> Self {
        Self::with_body(Method::DELETE, url.into(), Bytes::new())
    }

    /// A POST with an empty body.
    pub fn post_empty(url: impl Into<String>) -> Self {
        Self::with_body(Method::POST, url.into(), Bytes::new())
    }

    /// A POST that streams a body of `length` bytes.
    pub fn post_stream(url: impl Into<String>, length: u64, body: ByteStream) -> Self {
        Self::new(Method::POST, url.into(), length, body)
    }

    fn with_body(method: Method, url: String, body: Bytes) -> Self {
        let length = u64::try_from(body.len()).unwrap_or(u64::MAX);
        Self::new(method, url, length, stream::iter([Ok(body)]).boxed())
    }

    fn new(method: Method, url: String, length: u64, body: ByteStream) -> Self {
        Self {
            method,
            url,
            headers: Vec::new(),
            body,
            length,
            timeout: TIMEOUT,
            max_response_bytes: MAX_RESPONSE_BYTES,
        }
    }

    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Adds a bearer token. Fails, without quoting it, if it is not a valid header value.
    pub fn bearer(self, token: &SecretString) -> Result<Self, CallError> {
        self.with_authorization("Bearer", token)
    }

    /// Adds a token with the scheme `OAuth`, which Meta's resumable uploads require.
    pub fn oauth(self, token: &SecretString) -> Result<Self, CallError> {
        self.with_authorization("OAuth", token)
    }

    fn with_authorization(self, scheme: &str, token: &SecretString) -> Result<Self, CallError> {
        let mut value = HeaderValue::from_str(&format!("{scheme} {}", token.expose_secret()))
            .map_err(|_| CallError::NotSent("the access token has characters that no header allows".into()))?;
        value.set_sensitive(true);
        Ok(self.header(AUTHORIZATION, value))
    }

    /// Sets the time limit of the whole call, connecting and reading included. Default: `TIMEOUT`.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets the limit of the response body, in bytes. Default: `MAX_RESPONSE_BYTES`.
    #[must_use]
    pub fn max_response_bytes(self, max_response_bytes: usize) -> Self {
        Self {
            max_response_bytes,
            ..self
        }
    }

    fn into_message(self) -> Result<hyper::Request<RequestBody>, CallError> {
        let url = self
            .url
            .parse::<Uri>()
            .map_err(|error| CallError::NotSent(error.to_string()))?;
        let sends_body = self.length > 0 || self.method == Method::POST;
        let frames = self.body.map(|chunk| chunk.map(Frame::data));
        let mut message = hyper::Request::new(match sends_body {
            true => StreamBody::new(frames).boxed_unsync(),
            false => UnsyncBoxBody::default(),
        });
        if sends_body {
            message
                .headers_mut()
                .insert(CONTENT_LENGTH, HeaderValue::from(self.length));
        }
        *message.method_mut() = self.method;
        *message.uri_mut() = url;
        message
            .headers_mut()
            .insert(USER_AGENT, HeaderValue::from_static(AGENT));
        message.headers_mut().extend(self.headers);
        Ok(message)
    }
}

/// A response with its whole body, of any status: redirects are not followed.
pub struct GatewayResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

redacted_debug!(GatewayResponse { status });

impl GatewayResponse {
    /// The body as JSON; `None` if it does not parse.
    pub fn json<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// The client. Clones share one connection pool, also on other runtimes.
#[derive(Clone)]
pub struct Http {
    client: PooledClient<RequestBody>,
    connect_timeout: Duration,
    meter: Option<Meter>,
}

/// A client with its own connection pool, for http and https.
pub(crate) type PooledClient<B> = Client<BoundConnector<HttpsConnector<HttpConnector>>, B>;

/// A client that trusts the authorities of the process. Its connections live on the current runtime.
pub(crate) fn pooled_client<B>() -> Result<PooledClient<B>, String>
where
    B: Body + Send,
    B::Data: Send,
{
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls::authorities().client_config()?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    let runtime = ConnectionRuntime::current().map_err(|error| error.to_string())?;
    let mut client = Client::builder(runtime.clone());
    client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIMEOUT);
    Ok(client.build(runtime.connect(connector)))
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

impl Http {
    /// A client for http and https that trusts the authorities of the process. Its connections live on the current
    /// runtime. Fails without one, or if TLS cannot be set up.
    pub fn new() -> Result<Self, String> {
        Ok(Self {
            client: pooled_client()?,
            connect_timeout: CONNECT_TIMEOUT,
            meter: None,
        })
    }

    /// Returns a client that records metrics and spans of its calls under this gateway name. Default: none.
    #[must_use]
    pub fn counted(self, gateway: &'static str) -> Self {
        let meter = Some(Meter::new(gateway));
        Self { meter, ..self }
    }

    /// Sets the time limit of resolving, connecting and the TLS handshake together. Default: `CONNECT_TIMEOUT`.
    #[must_use]
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self {
            connect_timeout,
            ..self
        }
    }

    /// Makes one call without retries. Exception: the connection pool opens another connection if an idle one was
    /// closed before a byte of the request was written.
    pub async fn call(&self, request: GatewayRequest) -> Result<GatewayResponse, CallError> {
        let Some(meter) = &self.meter else {
            return self.attempt(request).await;
        };
        let call = meter.begin();
        let result = self.attempt(request).instrument(call.span()).await;
        call.end(match &result {
            Ok(response) => CallOutcome::from_status(response.status),
            Err(CallError::NotSent(_)) => CallOutcome::NotSent,
            Err(CallError::MaybeSent(_)) => CallOutcome::NoResponse,
        });
        result
    }

    async fn attempt(&self, request: GatewayRequest) -> Result<GatewayResponse, CallError> {
        let (timeout, max_response_bytes) = (request.timeout, request.max_response_bytes);
        let mut message = request.into_message()?;
        // The pool reports a connection before it writes to it: without a report, nothing was sent.
        let connection = capture_connection(&mut message);
        let exchange = self.exchange(message, connection.clone(), max_response_bytes);
        match tokio::time::timeout(timeout, exchange).await {
            Ok(result) => result,
            Err(_) if connection.connection_metadata().is_none() => Err(no_connection(timeout)),
            Err(_) => Err(CallError::MaybeSent(format!("no complete response within {timeout:?}"))),
        }
    }

    async fn exchange(
        &self,
        message: hyper::Request<RequestBody>,
        connection: CaptureConnection,
        max_response_bytes: usize,
    ) -> Result<GatewayResponse, CallError> {
        let (head, body) = self.response_head(message, connection).await?.into_parts();
        let declared = body.size_hint().lower();
        if usize::try_from(declared).is_ok_and(|declared| declared <= max_response_bytes) {
            let read = Limited::new(body, max_response_bytes).collect().await;
            let body = read
                .map_err(|error| CallError::MaybeSent(error_chain(&*error)))?
                .to_bytes();
            return Ok(GatewayResponse {
                status: head.status.as_u16(),
                headers: head.headers,
                body,
            });
        }
        Err(CallError::MaybeSent(format!(
            "a response of {declared} bytes, more than {max_response_bytes}"
        )))
    }

    /// Makes one call without retries, and returns the head of the response with the unread body. The caller MUST limit
    /// the wait.
    pub(crate) async fn open(&self, request: GatewayRequest) -> Result<Response<Incoming>, CallError> {
        let mut message = request.into_message()?;
        let connection = capture_connection(&mut message);
        let Some(meter) = &self.meter else {
            return self.response_head(message, connection).await;
        };
        let call = meter.begin();
        let result = self.response_head(message, connection).instrument(call.span()).await;
        call.end(match &result {
            Ok(response) => CallOutcome::from_status(response.status().as_u16()),
            Err(CallError::NotSent(_)) => CallOutcome::NotSent,
            Err(CallError::MaybeSent(_)) => CallOutcome::NoResponse,
        });
        result
    }

    /// Sends the request and reads the head of the response. `connect_timeout` applies until there is a connection.
    async fn response_head(
        &self,
        message: hyper::Request<RequestBody>,
        connection: CaptureConnection,
    ) -> Result<Response<Incoming>, CallError> {
        let response = connected_within(self.connect_timeout, connection, self.client.request(message)).await;
        let response = response.ok_or_else(|| no_connection(self.connect_timeout))?;
        response.map_err(|error| call_error(&error))
    }
}

/// Waits for the response; `None` if there is no connection within `timeout`. With a connection it waits without limit.
pub(crate) async fn connected_within<T>(
    timeout: Duration,
    mut connection: CaptureConnection,
    response: impl Future<Output = T>,
) -> Option<T> {
    let mut response = pin!(response);
    let connected = async {
        connection.wait_for_connection_metadata().await;
    };
    let connecting = async {
        tokio::select! {
            biased;
            early = &mut response => Some(early),
            () = connected => None,
        }
    };
    match tokio::time::timeout(timeout, connecting).await {
        Ok(Some(early)) => Some(early),
        Ok(None) => Some(response.await),
        Err(_) => None,
    }
}

fn no_connection(within: Duration) -> CallError {
    CallError::NotSent(format!("no connection within {within:?}"))
}

fn call_error(error: &legacy::Error) -> CallError {
    let detail = error_chain(error);
    if error.is_connect() {
        CallError::NotSent(detail)
    } else {
        CallError::MaybeSent(detail)
    }
}

/// An error followed by its causes.
pub(crate) fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// The text of an error and its causes. hyper's own texts contain only the kind.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The delay that the response requests with `Retry-After`.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    parse_retry_after(headers, SystemTime::now())
}

/// Accepts seconds or a date (RFC 9110, section 10.2.3). A date in the past gives zero.
fn parse_retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_accepts_seconds_and_dates() {
        let now = httpdate::parse_http_date("Sat, 21 Nov 2026 12:00:00 GMT").unwrap();
        for (text, expected) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Sat, 21 Nov 2026 12:01:30 GMT", Some(90)),
            ("Saturday, 21-Nov-26 12:00:05 GMT", Some(5)),
            ("Sat, 21 Nov 2026 11:00:00 GMT", Some(0)),
            ("-1", None),
            ("1.5", None),
            ("99999999999", None),
            ("soon", None),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            assert_eq!(
                parse_retry_after(&headers, now),
                expected.map(Duration::from_secs),
                "{text}"
            );
        }
        assert_eq!(parse_retry_after(&HeaderMap::new(), now), None);
    }

    #[test]
    fn token_appears_in_no_debug_output_and_no_error() {
        let token = SecretString::from("EAAG-secret");
        let request = GatewayRequest::post("http://h/x", &Value::Null).bearer(&token).unwrap();
        assert_eq!(format!("{request:?}"), "POST http://h/x");
        let message = request.into_message().unwrap();
        assert!(!format!("{message:?}").contains("secret"));
        assert_eq!(message.headers()[AUTHORIZATION], "Bearer EAAG-secret");
        assert_eq!(message.headers()[USER_AGENT], AGENT);
        let broken = GatewayRequest::get("http://h/x")
            .bearer(&SecretString::from("EAAG\nsecret"))
            .unwrap_err();
        assert!(
            matches!(&broken, CallError::NotSent(text) if !text.contains("EAAG")),
            "{broken}"
        );
    }
}
