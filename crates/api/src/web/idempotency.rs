//! Idempotency keys. A POST with an `Idempotency-Key` runs once, to its end, even if the client disconnects. A repeated
//! request gets the stored response.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::body::{BoxBody, MessageBody, to_bytes};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::error::PayloadError;
use actix_web::http::{Method, StatusCode, header};
use actix_web::middleware::Next;
use actix_web::web::Bytes;
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, ResponseError as _};
use futures_util::{Stream, StreamExt as _};
use recado_domain::idempotency::{
    Admission, Idempotency, IdempotencyError, IdempotencyKey, KeyClaim, LEASE, RequestHash, Scope, StoredResponse,
};
use recado_domain::shared::{Cipher, FieldErrors, SealContext, SealPurpose, Sealed, Secrets};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use crate::app_secret::AppSecrets;
use crate::crypto::{HmacContext, sha256};
use crate::error::ApiError;
use crate::web::body::CHUNK_TIMEOUT;
use crate::web::request_hash::{self, RequestKey};

const KEY: &str = "idempotency-key";

/// The header that marks a stored response.
const REPLAYED: &str = "idempotent-replayed";

/// The headers that are stored with a response. The others belong to the exchange.
const STORED_HEADERS: [header::HeaderName; 3] = [header::CONTENT_TYPE, header::SET_COOKIE, header::LOCATION];

/// The maximum size of a hashed body in bytes. The response to a larger request is not stored.
const MAX_HASHED_BYTES: usize = 512 * 1024 * 1024;

/// How often a response that was not stored is tried again: for five minutes. The claim is this request's until
/// another request takes it over, which its lease delays.
const STORE_RETRIES: u32 = 300;
const STORE_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The responses to requests with an idempotency key.
pub struct StoredResponses {
    pub idempotency: Idempotency,
    pub cipher: Arc<dyn Cipher>,
    pub secrets: Arc<dyn Secrets>,
    pub app_secrets: AppSecrets,
}

/// Returns the idempotency key of a POST request. Other methods ignore the header.
pub fn key_of(request: &ServiceRequest) -> Result<Option<IdempotencyKey>, ApiError> {
    let mut keys = request.headers().get_all(KEY);
    let Some(key) = keys.next().filter(|_| request.method() == Method::POST) else {
        return Ok(None);
    };
    if keys.next().is_some() {
        return Err(FieldErrors::one("Idempotency-Key", "must be sent only once in a request").into());
    }
    let text = std::str::from_utf8(key.as_bytes()).unwrap_or_default();
    Ok(Some(IdempotencyKey::parse(text)?))
}

/// The SHA-256 of a request's idempotency key, for a use case that recognizes its own repetition after a crash. The
/// access check has checked the key.
pub fn key_hash(request: &HttpRequest) -> Option<Vec<u8>> {
    let key = request.headers().get(KEY)?;
    Some(sha256(key.as_bytes()).as_ref().to_vec())
}

/// Calls the handler for the first request with this key. Every other request gets the stored response or a conflict.
pub async fn run_once<F, Fut, B>(
    stored_responses: Arc<StoredResponses>,
    (scope, key): (Scope, IdempotencyKey),
    mut request: ServiceRequest,
    next: Next<B>,
    call: F,
) -> ServiceResponse<BoxBody>
where
    F: FnOnce(ServiceRequest, Next<B>) -> Fut + 'static,
    Fut: Future<Output = ServiceResponse<BoxBody>>,
    B: MessageBody + 'static,
{
    let http = request.request().clone();
    let context = seal_context(scope, &key);
    let response = match stored_responses.idempotency.admit(scope, key).await {
        Ok(Admission::First(claim)) => {
            let request_key = RequestKey::random(stored_responses.secrets.as_ref());
            let body = TappedBody::of(&mut request, std::slice::from_ref(&request_key));
            request.set_payload(Payload::Stream {
                payload: Box::pin(body.clone()),
            });
            // A separate task completes the request and stores its response even if the client disconnects.
            let task = async move {
                let response = run_with_lease(&stored_responses, &claim, call(request, next)).await;
                store_response(stored_responses, claim, (body, request_key), response).await
            };
            let done = actix_web::rt::spawn(task).await;
            return done.unwrap_or_else(|error| ServiceResponse::new(http, internal(error)));
        }
        Ok(Admission::Again(stored)) => replay(&stored_responses, &stored, &context, &mut request).await,
        Err(error) => Err(error.into()),
    };
    ServiceResponse::new(http, response.unwrap_or_else(|error| error.error_response()))
}

/// Runs `work` and renews the lease of the claim meanwhile.
async fn run_with_lease<T>(stored_responses: &StoredResponses, claim: &KeyClaim, work: impl Future<Output = T>) -> T {
    let interval = Duration::try_from(LEASE / 4).unwrap_or(CHUNK_TIMEOUT);
    let renewals = async {
        loop {
            tokio::time::sleep(interval).await;
            if let Err(error) = stored_responses.idempotency.renew(claim).await {
                tracing::warn!(%error, "the lease of an idempotency key was not renewed");
            }
        }
    };
    tokio::select! {
        done = work => done,
        never = renewals => never,
    }
}

/// Stores a response, except server errors and responses to requests that were not processed. If the database is
/// unavailable, the client does not wait: a 503 would make it repeat what is done.
async fn store_response(
    stored_responses: Arc<StoredResponses>,
    claim: KeyClaim,
    (body, request_key): (TappedBody, RequestKey),
    response: ServiceResponse<BoxBody>,
) -> ServiceResponse<BoxBody> {
    let (http, response) = response.into_parts();
    let (head, content) = response.into_parts();
    let content = to_bytes(content).await.unwrap_or_default();
    let stored = match is_final(head.status()) {
        true => {
            let serialized = SerializedResponse::of(&head, &content, &request_key);
            body.finish().await.into_iter().flatten().next().zip(serialized)
        }
        false => None,
    };
    let context = seal_context(claim.scope, &claim.key);
    let stored = stored.map(|(request, response)| StoredResponse {
        request,
        response: response.sealed(stored_responses.cipher.as_ref(), &context),
    });
    if let Err(error) = stored_responses.idempotency.conclude(&claim, stored.as_ref()).await {
        tracing::warn!(%error, "the response to a request with an idempotency key was not stored");
        actix_web::rt::spawn(store_later(stored_responses, claim, stored));
    }
    ServiceResponse::new(http, head.set_body(content).map_into_boxed_body())
}

/// Retries until the response is stored.
async fn store_later(stored_responses: Arc<StoredResponses>, claim: KeyClaim, stored: Option<StoredResponse>) {
    for _ in 0..STORE_RETRIES {
        tokio::time::sleep(STORE_RETRY_INTERVAL).await;
        if stored_responses
            .idempotency
            .conclude(&claim, stored.as_ref())
            .await
            .is_ok()
        {
            return;
        }
    }
}

/// Whether the response is stored: the request was processed, and the server did not fail.
fn is_final(status: StatusCode) -> bool {
    let not_processed = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::PAYLOAD_TOO_LARGE,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    !status.is_server_error() && !not_processed.contains(&status)
}

/// A response that cannot be opened, because its secret is gone, is refused like that to another request: the caller
/// may use a new key.
async fn replay(
    stored_responses: &StoredResponses,
    stored: &StoredResponse,
    context: &SealContext,
    request: &mut ServiceRequest,
) -> Result<HttpResponse, ApiError> {
    let response = SerializedResponse::open(stored_responses.cipher.as_ref(), &stored.response, context);
    let response = response.ok_or(IdempotencyError::Mismatch)?;
    let body = TappedBody::of(request, &response.request_keys(&stored_responses.app_secrets));
    let hashes = body.finish().await;
    let hashes = hashes.ok_or_else(|| FieldErrors::one("body", "ended before it was complete"))?;
    Idempotency::repeat(&stored.request, &hashes)?;
    Ok(response.into_response())
}

fn seal_context(scope: Scope, key: &IdempotencyKey) -> SealContext {
    SealContext::new(SealPurpose::StoredResponse, scope.0, key.as_str())
}

fn internal(error: tokio::task::JoinError) -> HttpResponse {
    ApiError::internal(error).error_response()
}

/// A response in its stored form.
#[derive(Serialize, Deserialize)]
struct SerializedResponse {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    /// The key of the request's hash. None: an earlier version stored the response, and the key is derived from its
    /// secret.
    #[serde(default)]
    request_key: Option<String>,
}

impl SerializedResponse {
    /// None: a header or the body is not text.
    fn of(head: &HttpResponse<()>, body: &Bytes, request_key: &RequestKey) -> Option<Self> {
        let stored = head.headers().iter().filter(|(name, _)| STORED_HEADERS.contains(name));
        let headers = stored.map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
        Some(Self {
            status: head.status().as_u16(),
            headers: headers.collect::<Option<_>>()?,
            body: String::from_utf8(body.to_vec()).ok()?,
            request_key: Some(request_key.expose().to_owned()),
        })
    }

    /// Encrypts the response, which may contain a secret that is shown only once.
    fn sealed(&self, cipher: &dyn Cipher, context: &SealContext) -> Sealed {
        let text = serde_json::to_string(self).unwrap_or_default();
        cipher.seal(&SecretString::from(text), context)
    }

    fn open(cipher: &dyn Cipher, sealed: &Sealed, context: &SealContext) -> Option<Self> {
        serde_json::from_str(cipher.open(sealed, context)?.expose_secret()).ok()
    }

    /// The keys that may have hashed the request.
    fn request_keys(&self, secrets: &AppSecrets) -> Vec<RequestKey> {
        match &self.request_key {
            Some(key) => vec![RequestKey::from_stored(key)],
            None => secrets.iter().map(request_hash::unversioned_key).collect(),
        }
    }

    fn into_response(self) -> HttpResponse {
        let mut response = HttpResponse::build(StatusCode::from_u16(self.status).unwrap_or_default());
        for header in self.headers {
            response.append_header(header);
        }
        response.insert_header((REPLAYED, "true")).body(self.body)
    }
}

/// A request's body that is hashed while the handler reads it.
#[derive(Clone)]
struct TappedBody(Rc<RefCell<Tap>>);

struct Tap {
    payload: Payload,
    hashes: Vec<HmacContext>,
    bytes: usize,
    broken: bool,
}

impl TappedBody {
    /// Takes the body out of the request, to hash it under each of the keys.
    fn of(request: &mut ServiceRequest, keys: &[RequestKey]) -> Self {
        let begin = |key: &RequestKey| key.begin(request.method(), request.path());
        let hashes = keys.iter().map(begin).collect();
        Self(Rc::new(RefCell::new(Tap {
            payload: request.take_payload(),
            hashes,
            bytes: 0,
            broken: false,
        })))
    }

    /// Reads what the handler left unread and returns the hash of the request under each key. None: the body is
    /// incomplete or larger than `MAX_HASHED_BYTES`.
    async fn finish(mut self) -> Option<Vec<RequestHash>> {
        while self.0.borrow().bytes <= MAX_HASHED_BYTES {
            match tokio::time::timeout(CHUNK_TIMEOUT, self.next()).await {
                Ok(Some(Ok(_))) => {}
                Ok(None) => break,
                Ok(Some(Err(_))) | Err(_) => return None,
            }
        }
        let tap = self.0.borrow();
        let is_complete = !tap.broken && tap.bytes <= MAX_HASHED_BYTES;
        let hash = |context: &HmacContext| RequestHash(context.clone().sign().as_ref().to_vec());
        is_complete.then(|| tap.hashes.iter().map(hash).collect())
    }
}

impl Stream for TappedBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut tap = self.0.borrow_mut();
        let polled = Pin::new(&mut tap.payload).poll_next(context);
        match &polled {
            Poll::Ready(Some(Ok(chunk))) => {
                tap.hashes.iter_mut().for_each(|hash| hash.update(chunk));
                tap.bytes = tap.bytes.saturating_add(chunk.len());
            }
            Poll::Ready(Some(Err(_))) => tap.broken = true,
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }
}
