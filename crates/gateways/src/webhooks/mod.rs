//! Calls receivers of webhooks over the common HTTP client, which knows of no address that is not allowed.

use std::time::Duration;

use async_trait::async_trait;
use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use recado_domain::webhooks::{AddressGuard, DeliveryGateway, Failure, Outcome, Request, UrlRefusal};
use secrecy::zeroize::Zeroizing;

use crate::http::{Answer, CallError, Http, Request as Call};

/// How long a whole call may take.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Delivers.
#[derive(Clone)]
pub struct WebhookClient(Http);

impl WebhookClient {
    pub fn new(http: Http) -> Self {
        Self(http)
    }
}

fn header(call: Call, name: &'static str, value: &str) -> Option<Call> {
    let value = HeaderValue::from_str(value).ok()?;
    Some(call.header(HeaderName::from_static(name), value))
}

fn call(request: &Request) -> Option<Call> {
    let call = Call::post_secret(request.url.clone(), Zeroizing::new(request.body.clone())).timeout(TIMEOUT);
    let call = header(call, "webhook-id", &request.message_id)?;
    let call = header(call, "webhook-timestamp", &request.timestamp.to_string())?;
    header(call, "webhook-signature", &request.signatures)
}

fn retry_after(answer: &Answer) -> Option<Duration> {
    let seconds = answer.headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[async_trait]
impl DeliveryGateway for WebhookClient {
    async fn deliver(&self, request: &Request) -> Outcome {
        let Some(call) = call(request) else {
            return Outcome::Unreachable(Failure::Refused);
        };
        match self.0.call(call).await {
            Ok(answer) => Outcome::Answered {
                status: answer.status,
                retry_after: retry_after(&answer),
            },
            Err(CallError::NotSent(_)) => Outcome::Unreachable(Failure::Connection),
            Err(CallError::MaybeSent(text)) if text.contains("within") => Outcome::Unreachable(Failure::TimedOut),
            Err(CallError::MaybeSent(_)) => Outcome::Unreachable(Failure::Broken),
        }
    }
}

/// Lets every address pass.
pub struct AnyAddress;

impl AddressGuard for AnyAddress {
    fn allows_url(&self, _: &str) -> Result<(), UrlRefusal> {
        Ok(())
    }
}
