//! Delivers webhooks: one signed POST an attempt, through the guarded client.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue, USER_AGENT};
use recado_domain::egress::Target;
use recado_domain::webhooks::{AttemptOutcome, DeliveryGateway, DeliveryRequest, Failure};
use tracing::Instrument as _;

use crate::egress::{Egress, EgressError, EgressRequest};
use crate::http::{chain, retry_after};
use crate::meter::{CallOutcome, Meter};

/// How long an attempt may take, its answer included.
const TIMEOUT: Duration = Duration::from_secs(15);

/// How much of an answer's body is read, in bytes. Nothing is done with it, but a connection whose answer was read to
/// its end can be used again.
const READ: u64 = 16 * 1024;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("Recado-Webhooks/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Delivers to endpoints of tenants.
#[derive(Clone)]
pub struct WebhookClient {
    egress: Egress,
    timeout: Duration,
    meter: Meter,
}

impl WebhookClient {
    pub fn new(egress: Egress) -> Self {
        Self {
            egress,
            timeout: TIMEOUT,
            meter: Meter::new("receiver"),
        }
    }

    /// The same with another time limit for an attempt. Default: 15 s.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    async fn attempt(&self, request: &DeliveryRequest) -> Result<AttemptOutcome, EgressError> {
        let target = Target::parse(&request.url, self.egress.allow_list()).map_err(EgressError::Refused)?;
        let call = EgressRequest {
            method: Method::POST,
            target,
            headers: headers(request).map_err(|_| EgressError::Broken("a header that cannot be sent".into()))?,
            body: Bytes::from(request.body.clone()),
        };
        let (head, body) = self.egress.call(call).await?.into_parts();
        read(body).await?;
        Ok(AttemptOutcome::Answered {
            status: head.status.as_u16(),
            retry_after: retry_after(&head.headers),
        })
    }
}

#[async_trait]
impl DeliveryGateway for WebhookClient {
    async fn deliver(&self, request: &DeliveryRequest) -> AttemptOutcome {
        let call = self.meter.begin();
        let attempt = self.attempt(request).instrument(call.span());
        let outcome = match tokio::time::timeout(self.timeout, attempt).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => {
                tracing::debug!(message_id = request.message_id, cause = %error, "a webhook was not delivered");
                AttemptOutcome::Unreachable(failure(&error))
            }
            Err(_) => AttemptOutcome::Unreachable(Failure::TimedOut),
        };
        call.end(end(outcome));
        outcome
    }
}

fn end(outcome: AttemptOutcome) -> CallOutcome {
    match outcome {
        // A redirect is not followed: the receiver did not take it.
        AttemptOutcome::Answered { status: 300..=399, .. } => CallOutcome::Refused,
        AttemptOutcome::Answered { status, .. } => CallOutcome::of(status),
        AttemptOutcome::Unreachable(Failure::Refused | Failure::Resolution | Failure::Connection | Failure::Tls) => {
            CallOutcome::NotSent
        }
        AttemptOutcome::Unreachable(Failure::TimedOut | Failure::Broken) => CallOutcome::NoResponse,
    }
}

fn failure(error: &EgressError) -> Failure {
    match error {
        EgressError::Refused(_) => Failure::Refused,
        EgressError::Resolution(_) => Failure::Resolution,
        EgressError::Connection(_) => Failure::Connection,
        EgressError::Tls(_) => Failure::Tls,
        EgressError::TimedOut => Failure::TimedOut,
        EgressError::Broken(_) => Failure::Broken,
    }
}

fn headers(request: &DeliveryRequest) -> Result<HeaderMap, InvalidHeaderValue> {
    Ok(HeaderMap::from_iter([
        (USER_AGENT, AGENT),
        (CONTENT_TYPE, JSON),
        (ID, HeaderValue::from_str(&request.message_id)?),
        (TIMESTAMP, HeaderValue::from(request.timestamp)),
        (SIGNATURE, HeaderValue::from_str(&request.signatures)?),
    ]))
}

/// Reads an answer's body to its end, or up to the limit: with what is left the connection is dropped.
async fn read(mut body: Incoming) -> Result<(), EgressError> {
    if body.size_hint().lower() > READ {
        return Ok(());
    }
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| EgressError::Broken(chain(&error)))?;
        let length = frame.data_ref().map_or(0, Bytes::len);
        read += u64::try_from(length).unwrap_or(u64::MAX);
        if read > READ {
            return Ok(());
        }
    }
    Ok(())
}
