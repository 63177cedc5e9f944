//! Idempotency keys. A POST with an `Idempotency-Key` runs once, to its end, even if the client disconnects. A repeated
//! request gets the stored response.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::body::{BoxBody, MessageBody, to_bytes};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::error::PayloadError;
use actix_web::http::{Method, StatusCode, header};
use actix_web::middleware::Next;
use actix_web::web::{Bytes, Data};
use actix_web::{HttpMessage as _, HttpResponse, ResponseError as _};
use futures_util::{Stream, StreamExt as _};
use hmac::{Hmac, KeyInit as _, Mac as _};
use recado_domain::idempotency::{
    Admission, Idempotency, IdempotencyKey, KeyClaim, LEASE, RequestHash, Scope, StoredResponse,
};
use recado_domain::shared::{Cipher, FieldErrors, Sealed};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::error::ApiError;
use crate::web::body::CHUNK_TIMEOUT;
use crate::wiring::Services;

const KEY: &str = "idempotency-key";

/// The header that marks a stored response.
const REPLAYED: &str = "idempotent-replayed";

/// The headers that are stored with a response. The others belong to the exchange.
const STORED_HEADERS: [header::HeaderName; 3] = [header::CONTENT_TYPE, header::SET_COOKIE, header::LOCATION];

/// Derives a key for request hashes from `APP_SECRET`.
const HASH_PURPOSE: &[u8; 32] = b"idempotency: what a request asks";

/// The maximum size of a hashed body in bytes. The response to a larger request is not stored.
const MAX_HASHED_BYTES: usize = 512 * 1024 * 1024;

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

/// Calls the handler for the first request with this key. Every other request gets the stored response or a conflict.
pub async fn run_once<F, Fut, B>(
    services: Data<Services>,
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
    let body = TappedBody::of(&mut request, &services.shared.config.app_secret);
    let response = match services.idempotency.admit(scope, key).await {
        Ok(Admission::First(claim)) => {
            request.set_payload(Payload::Stream {
                payload: Box::pin(body.clone()),
            });
            // A separate task completes the request and stores its response even if the client disconnects.
            let task = async move {
                let response = run_with_lease(&services, &claim, call(request, next)).await;
                store_response(&services, &claim, body, response).await
            };
            let done = actix_web::rt::spawn(task).await;
            return done.unwrap_or_else(|error| ServiceResponse::new(http, internal(error)));
        }
        Ok(Admission::Again(stored)) => replay(&services, stored, body).await,
        Err(error) => Err(error.into()),
    };
    ServiceResponse::new(http, response.unwrap_or_else(|error| error.error_response()))
}

/// Runs `work` and renews the lease of the claim meanwhile.
async fn run_with_lease<T>(services: &Services, claim: &KeyClaim, work: impl Future<Output = T>) -> T {
    let interval = Duration::try_from(LEASE / 4).unwrap_or(CHUNK_TIMEOUT);
    let renewals = async {
        loop {
            tokio::time::sleep(interval).await;
            if let Err(error) = services.idempotency.renew(claim).await {
                tracing::warn!(%error, "the lease of an idempotency key was not renewed");
            }
        }
    };
    tokio::select! {
        done = work => done,
        never = renewals => never,
    }
}

/// Stores a response, except server errors and responses to requests that were not processed.
async fn store_response(
    services: &Services,
    claim: &KeyClaim,
    body: TappedBody,
    response: ServiceResponse<BoxBody>,
) -> ServiceResponse<BoxBody> {
    let (http, response) = response.into_parts();
    let (head, content) = response.into_parts();
    let content = to_bytes(content).await.unwrap_or_default();
    let stored = match is_final(head.status()) {
        true => body.finish().await.zip(SerializedResponse::of(&head, &content)),
        false => None,
    };
    let stored = stored.map(|(request, response)| StoredResponse {
        request,
        response: response.sealed(services.shared.cipher.as_ref()),
    });
    if let Err(error) = services.idempotency.conclude(claim, stored.as_ref()).await {
        tracing::warn!(%error, "the response to a request with an idempotency key was not stored");
    }
    ServiceResponse::new(http, head.set_body(content).map_into_boxed_body())
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

async fn replay(services: &Services, stored: StoredResponse, body: TappedBody) -> Result<HttpResponse, ApiError> {
    let request = body
        .finish()
        .await
        .ok_or_else(|| FieldErrors::one("body", "ended before it was complete"))?;
    let sealed = Idempotency::repeat(stored, &request)?;
    let response = SerializedResponse::open(services.shared.cipher.as_ref(), &sealed);
    response
        .map(SerializedResponse::into_response)
        .ok_or_else(|| ApiError::Internal("a stored response cannot be decrypted".into()))
}

fn internal(error: tokio::task::JoinError) -> HttpResponse {
    ApiError::Internal(error.into()).error_response()
}

/// A response in its stored form.
#[derive(Serialize, Deserialize)]
struct SerializedResponse {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl SerializedResponse {
    /// None: a header or the body is not text.
    fn of(head: &HttpResponse<()>, body: &Bytes) -> Option<Self> {
        let stored = head.headers().iter().filter(|(name, _)| STORED_HEADERS.contains(name));
        let headers = stored.map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
        Some(Self {
            status: head.status().as_u16(),
            headers: headers.collect::<Option<_>>()?,
            body: String::from_utf8(body.to_vec()).ok()?,
        })
    }

    /// Encrypts the response, which may contain a secret that is shown only once.
    fn sealed(&self, cipher: &dyn Cipher) -> Sealed {
        let text = serde_json::to_string(self).unwrap_or_default();
        cipher.seal(&SecretString::from(text))
    }

    fn open(cipher: &dyn Cipher, sealed: &Sealed) -> Option<Self> {
        serde_json::from_str(cipher.open(sealed)?.expose_secret()).ok()
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
    hash: Hmac<Sha256>,
    bytes: usize,
    broken: bool,
}

impl TappedBody {
    /// Takes the body out of the request. The hash is an HMAC, so that an attacker cannot guess the content of a body
    /// (a card number) from the stored hash.
    fn of(request: &mut ServiceRequest, secret: &[u8; 32]) -> Self {
        let mut key = [0; 64];
        for (byte, part) in key.iter_mut().zip(secret.iter().chain(HASH_PURPOSE)) {
            *byte = *part;
        }
        let mut hash = Hmac::<Sha256>::new(&key.into());
        hash.update(format!("{} {}\n", request.method(), request.path()).as_bytes());
        Self(Rc::new(RefCell::new(Tap {
            payload: request.take_payload(),
            hash,
            bytes: 0,
            broken: false,
        })))
    }

    /// Reads what the handler left unread and returns the hash of the request. None: the body is incomplete or larger
    /// than `MAX_HASHED_BYTES`.
    async fn finish(mut self) -> Option<RequestHash> {
        while self.0.borrow().bytes <= MAX_HASHED_BYTES {
            match tokio::time::timeout(CHUNK_TIMEOUT, self.next()).await {
                Ok(Some(Ok(_))) => {}
                Ok(None) => break,
                Ok(Some(Err(_))) | Err(_) => return None,
            }
        }
        let tap = self.0.borrow();
        let is_complete = !tap.broken && tap.bytes <= MAX_HASHED_BYTES;
        is_complete.then(|| RequestHash(tap.hash.clone().finalize().into_bytes().to_vec()))
    }
}

impl Stream for TappedBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut tap = self.0.borrow_mut();
        let polled = Pin::new(&mut tap.payload).poll_next(context);
        match &polled {
            Poll::Ready(Some(Ok(chunk))) => {
                tap.hash.update(chunk);
                tap.bytes = tap.bytes.saturating_add(chunk.len());
            }
            Poll::Ready(Some(Err(_))) => tap.broken = true,
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }
}
