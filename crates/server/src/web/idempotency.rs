//! Requests with an `Idempotency-Key`: carried out once, to the end, whether the client waits or not; sent again, they
//! get the answer that was kept.

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
use crate::web::body::PIECE_TIME;
use crate::wiring::Services;

const KEY: &str = "idempotency-key";

/// Tells a kept answer from a new one.
const REPLAYED: &str = "idempotent-replayed";

/// The headers that are part of an answer; the others belong to the exchange.
const KEPT_HEADERS: [header::HeaderName; 3] = [header::CONTENT_TYPE, header::SET_COOKIE, header::LOCATION];

/// Makes of the server's secret a key for this alone.
const HASH_PURPOSE: &[u8; 32] = b"idempotency: what a request asks";

/// The largest body that is told from others, in bytes.
const HASHED_BYTES: usize = 512 * 1024 * 1024;

/// The key that a request presents, where keys count: on POST.
pub fn presented(request: &ServiceRequest) -> Result<Option<IdempotencyKey>, ApiError> {
    let mut keys = request.headers().get_all(KEY);
    let Some(key) = keys.next().filter(|_| request.method() == Method::POST) else {
        return Ok(None);
    };
    if keys.next().is_some() {
        return Err(FieldErrors::one("Idempotency-Key", "must be given once").into());
    }
    let text = std::str::from_utf8(key.as_bytes()).unwrap_or_default();
    Ok(Some(IdempotencyKey::parse(text)?))
}

/// Calls `next` for the first request with this key, and answers for every other one.
pub async fn once<F, Fut, B>(
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
    let answered = match services.idempotency.admit(scope, key).await {
        Ok(Admission::First(claim)) => {
            request.set_payload(Payload::Stream {
                payload: Box::pin(body.clone()),
            });
            // A task of its own: what a client asked for once is done, and its answer kept, also when it hangs up.
            let task = async move {
                let response = renewing(&services, &claim, call(request, next)).await;
                keep(&services, &claim, body, response).await
            };
            let done = actix_web::rt::spawn(task).await;
            return done.unwrap_or_else(|error| ServiceResponse::new(http, internal(error)));
        }
        Ok(Admission::Again(stored)) => replay(&services, stored, body).await,
        Err(error) => Err(error.into()),
    };
    ServiceResponse::new(http, answered.unwrap_or_else(|error| error.error_response()))
}

/// Does the work, and says meanwhile that somebody is at it.
async fn renewing<T>(services: &Services, claim: &KeyClaim, work: impl Future<Output = T>) -> T {
    let rest = Duration::try_from(LEASE / 4).unwrap_or(PIECE_TIME);
    let renewals = async {
        loop {
            tokio::time::sleep(rest).await;
            if let Err(error) = services.idempotency.renew(claim).await {
                tracing::warn!(%error, "the lease of an idempotency key was not prolonged");
            }
        }
    };
    tokio::select! {
        done = work => done,
        never = renewals => never,
    }
}

/// Keeps an answer, unless it says that the request was not taken or that the fault was ours.
async fn keep(
    services: &Services,
    claim: &KeyClaim,
    body: TappedBody,
    response: ServiceResponse<BoxBody>,
) -> ServiceResponse<BoxBody> {
    let (http, response) = response.into_parts();
    let (head, answer) = response.into_parts();
    let answer = to_bytes(answer).await.unwrap_or_default();
    let stored = match is_answer(head.status()) {
        true => body.rest().await.zip(SerializedResponse::of(&head, &answer)),
        false => None,
    };
    let stored = stored.map(|(request, response)| StoredResponse {
        request,
        response: response.sealed(services.shared.cipher.as_ref()),
    });
    if let Err(error) = services.idempotency.conclude(claim, stored.as_ref()).await {
        tracing::warn!(%error, "the answer of a request with an idempotency key was not kept");
    }
    ServiceResponse::new(http, head.set_body(answer).map_into_boxed_body())
}

fn is_answer(status: StatusCode) -> bool {
    let not_taken = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::PAYLOAD_TOO_LARGE,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    !status.is_server_error() && !not_taken.contains(&status)
}

async fn replay(services: &Services, stored: StoredResponse, body: TappedBody) -> Result<HttpResponse, ApiError> {
    let request = body
        .rest()
        .await
        .ok_or_else(|| FieldErrors::one("body", "ended before it was complete"))?;
    let sealed = Idempotency::repeat(stored, &request)?;
    let answer = SerializedResponse::open(services.shared.cipher.as_ref(), &sealed);
    answer
        .map(SerializedResponse::response)
        .ok_or_else(|| ApiError::Internal("a kept answer cannot be read".into()))
}

fn internal(error: tokio::task::JoinError) -> HttpResponse {
    ApiError::Internal(error.into()).error_response()
}

/// An answer as it is kept.
#[derive(Serialize, Deserialize)]
struct SerializedResponse {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl SerializedResponse {
    /// None for one that is no text.
    fn of(head: &HttpResponse<()>, body: &Bytes) -> Option<Self> {
        let kept = head.headers().iter().filter(|(name, _)| KEPT_HEADERS.contains(name));
        let headers = kept.map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
        Some(Self {
            status: head.status().as_u16(),
            headers: headers.collect::<Option<_>>()?,
            body: String::from_utf8(body.to_vec()).ok()?,
        })
    }

    /// Encrypted: it may hold a secret that is shown once.
    fn sealed(&self, cipher: &dyn Cipher) -> Sealed {
        let text = serde_json::to_string(self).unwrap_or_default();
        cipher.seal(&SecretString::from(text))
    }

    fn open(cipher: &dyn Cipher, sealed: &Sealed) -> Option<Self> {
        serde_json::from_str(cipher.open(sealed)?.expose_secret()).ok()
    }

    fn response(self) -> HttpResponse {
        let mut response = HttpResponse::build(StatusCode::from_u16(self.status).unwrap_or_default());
        for header in self.headers {
            response.append_header(header);
        }
        response.insert_header((REPLAYED, "true")).body(self.body)
    }
}

/// A request's body on its way to the handler, hashed as it passes.
#[derive(Clone)]
struct TappedBody(Rc<RefCell<Tap>>);

struct Tap {
    payload: Payload,
    hash: Hmac<Sha256>,
    bytes: usize,
    broken: bool,
}

impl TappedBody {
    /// Takes the body out of the request. Hashed with a key: what a body holds, a card number even, cannot be guessed
    /// from what is kept of it.
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

    /// Reads what the handler left, and tells the request from others; none when it did not come whole.
    async fn rest(mut self) -> Option<RequestHash> {
        while self.0.borrow().bytes <= HASHED_BYTES {
            match tokio::time::timeout(PIECE_TIME, self.next()).await {
                Ok(Some(Ok(_))) => {}
                Ok(None) => break,
                Ok(Some(Err(_))) | Err(_) => return None,
            }
        }
        let tap = self.0.borrow();
        let whole = !tap.broken && tap.bytes <= HASHED_BYTES;
        whole.then(|| RequestHash(tap.hash.clone().finalize().into_bytes().to_vec()))
    }
}

impl Stream for TappedBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut tap = self.0.borrow_mut();
        let polled = Pin::new(&mut tap.payload).poll_next(context);
        match &polled {
            Poll::Ready(Some(Ok(piece))) => {
                tap.hash.update(piece);
                tap.bytes = tap.bytes.saturating_add(piece.len());
            }
            Poll::Ready(Some(Err(_))) => tap.broken = true,
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }
}
