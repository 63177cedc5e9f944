//! `DeliveryGateway`: one signed POST per attempt, through the egress client.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue, USER_AGENT};
use recado_domain::egress::Target;
use recado_domain::webhooks::{AttemptOutcome, DeliveryFailure, DeliveryGateway, DeliveryRequest};
use tracing::Instrument as _;

use crate::egress::{Egress, EgressError, EgressRequest};
use crate::http::{error_chain, retry_after};
use crate::meter::{CallOutcome, Meter};

/// Default time limit of an attempt, response included.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Bytes that are read of a response's body. The body is ignored, but a connection can be reused only after its
/// response was read to the end.
const MAX_RESPONSE_BYTES: u64 = 16 * 1024;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("Recado-Webhooks/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Delivers webhook events to endpoints of tenants.
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

    /// Sets the time limit of an attempt. Default: `TIMEOUT`.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    async fn attempt(&self, request: &DeliveryRequest) -> Result<AttemptOutcome, EgressError> {
        let target = Target::parse(&request.url, self.egress.allow_list()).map_err(EgressError::Refused)?;
        let call = EgressRequest {
            method: Method::POST,
            target,
            headers: headers(request).map_err(|_| EgressError::Broken("a header value is not valid".into()))?,
            body: Bytes::from(request.body.clone()),
        };
        let (head, body) = self.egress.call(call).await?.into_parts();
        drain(body).await?;
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
            Err(_) => AttemptOutcome::Unreachable(DeliveryFailure::TimedOut),
        };
        call.end(call_outcome(outcome));
        outcome
    }
}

fn call_outcome(outcome: AttemptOutcome) -> CallOutcome {
    match outcome {
        // Redirects are not followed, so the receiver did not accept the event.
        AttemptOutcome::Answered { status: 300..=399, .. } => CallOutcome::Refused,
        AttemptOutcome::Answered { status, .. } => CallOutcome::from_status(status),
        AttemptOutcome::Unreachable(
            DeliveryFailure::Refused | DeliveryFailure::Resolution | DeliveryFailure::Connection | DeliveryFailure::Tls,
        ) => CallOutcome::NotSent,
        AttemptOutcome::Unreachable(DeliveryFailure::TimedOut | DeliveryFailure::Broken) => CallOutcome::NoResponse,
    }
}

fn failure(error: &EgressError) -> DeliveryFailure {
    match error {
        EgressError::Refused(_) => DeliveryFailure::Refused,
        EgressError::Resolution(_) => DeliveryFailure::Resolution,
        EgressError::Connection(_) => DeliveryFailure::Connection,
        EgressError::Tls(_) => DeliveryFailure::Tls,
        EgressError::TimedOut => DeliveryFailure::TimedOut,
        EgressError::Broken(_) => DeliveryFailure::Broken,
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

/// Reads the body to its end, or up to `MAX_RESPONSE_BYTES`. If more is left, the connection is closed.
async fn drain(mut body: Incoming) -> Result<(), EgressError> {
    if body.size_hint().lower() > MAX_RESPONSE_BYTES {
        return Ok(());
    }
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| EgressError::Broken(error_chain(&error)))?;
        let length = frame.data_ref().map_or(0, Bytes::len);
        read += u64::try_from(length).unwrap_or(u64::MAX);
        if read > MAX_RESPONSE_BYTES {
            return Ok(());
        }
    }
    Ok(())
}
