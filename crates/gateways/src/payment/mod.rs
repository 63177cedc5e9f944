//! `PaymentGateway` on Asaas API v3 (`docs.asaas.com`). A request that creates something is never retried. After a lost
//! response the object is found by our own reference (`externalReference`).

mod bodies;
mod dates;
mod event;
mod reais;
mod response;

use std::time::Duration;

use async_trait::async_trait;
use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};
use recado_domain::billing::{
    BillingType, Cents, Cycle, GatewayCustomerInput, GatewayPayment, GatewaySubscription, GatewaySubscriptionInput,
    PaymentData, PaymentGateway, PaymentGatewayError,
};
use recado_domain::shared::SubscriptionId;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use self::reais::to_reais;
use crate::http::{GatewayRequest, Http};
use crate::whatsapp::segment;

pub use self::event::AsaasEventReader;

/// Default time limit of a call.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Time limit of creating a subscription. Asaas warns that a shorter one leads to cards being charged twice.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(60);

/// Asaas creates the first payment shortly after its subscription, so it is polled.
const FIRST_PAYMENT_ATTEMPTS: usize = 5;
const FIRST_PAYMENT_RETRY_DELAY: Duration = Duration::from_millis(400);

/// Entries requested per list.
const LIST_LIMIT: usize = 100;

const API_KEY_HEADER: HeaderName = HeaderName::from_static("access_token");

/// Client of the payment gateway at one base URL.
#[derive(Clone)]
pub struct PaymentApi {
    http: Http,
    access: Option<Access>,
    timeout: Duration,
    subscribe_timeout: Duration,
}

#[derive(Clone)]
struct Access {
    base: String,
    key: HeaderValue,
}

impl PaymentApi {
    /// `base_url` is origin and version, for example `https://api.asaas.com/v3`. Without it or without a key every call
    /// fails as not configured. Fails if the URL is not http or https, or if the key is not a valid header value.
    pub fn new(http: Http, base_url: Option<&str>, key: Option<&SecretString>) -> Result<Self, String> {
        let access = match base_url.zip(key) {
            Some((base, key)) => Some(Access::new(base, key)?),
            None => None,
        };
        Ok(Self {
            http,
            access,
            timeout: CALL_TIMEOUT,
            subscribe_timeout: SUBSCRIBE_TIMEOUT,
        })
    }

    /// Sets the time limits of a call and of creating a subscription.
    #[must_use]
    pub fn timeouts(self, timeout: Duration, subscribe_timeout: Duration) -> Self {
        Self {
            timeout,
            subscribe_timeout,
            ..self
        }
    }

    /// Checks URL and key with a search that finds nothing.
    pub async fn test_access(&self) -> Result<(), PaymentGatewayError> {
        self.get("/customers?externalReference=recado-doctor&limit=1")
            .await
            .map(drop)
    }

    fn access(&self) -> Result<&Access, PaymentGatewayError> {
        self.access.as_ref().ok_or(PaymentGatewayError::NotConfigured)
    }

    fn url(&self, path: &str) -> Result<String, PaymentGatewayError> {
        Ok(format!("{}{path}", self.access()?.base))
    }

    async fn call(&self, request: GatewayRequest, timeout: Duration) -> Result<Value, PaymentGatewayError> {
        let request = request
            .timeout(timeout)
            .header(API_KEY_HEADER, self.access()?.key.clone());
        response::read(self.http.call(request).await)
    }

    async fn get(&self, path: &str) -> Result<Value, PaymentGatewayError> {
        self.call(GatewayRequest::get(self.url(path)?), self.timeout).await
    }

    /// The first object of a list with our reference that is not deleted.
    async fn find_by_reference(&self, list: &str, reference: &str) -> Result<Option<Value>, PaymentGatewayError> {
        let path = format!("/{list}?externalReference={}&limit={LIST_LIMIT}", segment(reference));
        let found = response::items(&self.get(&path).await?)?;
        // A gateway that ignores the filter must not return another account's object.
        let matches_reference = |item: &Value| response::text(item, "externalReference").as_deref() == Some(reference);
        Ok(found
            .into_iter()
            .find(|item| matches_reference(item) && !response::is_deleted(item)))
    }

    async fn update_customer(
        &self,
        current: &Value,
        input: &GatewayCustomerInput,
    ) -> Result<String, PaymentGatewayError> {
        let id = response::text(current, "id").ok_or_else(|| response::unreadable("a customer has no id"))?;
        let body = bodies::customer(input);
        let is_unchanged = ["name", "email", "cpfCnpj"]
            .iter()
            .all(|field| body.get(*field).is_none_or(|value| current.get(*field) == Some(value)));
        if !is_unchanged {
            let url = self.url(&format!("/customers/{}", segment(&id)))?;
            self.call(GatewayRequest::put(url, &body), self.timeout).await?;
        }
        Ok(id)
    }

    async fn poll_first_payment(&self, id: &str) -> Option<GatewayPayment> {
        for attempt in 0..FIRST_PAYMENT_ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(FIRST_PAYMENT_RETRY_DELAY).await;
            }
            match self.payments(id).await {
                Ok(payments) => {
                    if let Some(first) = payments.into_iter().min_by_key(|payment| payment.due_date) {
                        return Some(first);
                    }
                }
                Err(error) => {
                    tracing::warn!(cause = %error, "the first payment of a subscription could not be read");
                    return None;
                }
            }
        }
        None
    }

    /// Reads a detail of a payment; null on failure, since the payer also finds it on the gateway's own page.
    async fn payment_detail(&self, payment: &GatewayPayment, detail: &str) -> Value {
        let path = format!("/payments/{}/{detail}", segment(&payment.id));
        self.get(&path).await.unwrap_or_else(|error| {
            tracing::warn!(cause = %error, detail, "a detail of a payment could not be read");
            Value::Null
        })
    }
}

impl Access {
    fn new(base: &str, key: &SecretString) -> Result<Self, String> {
        let base = base.trim_end_matches('/');
        let url = base.parse::<Uri>().map_err(|error| format!("is not a URL: {error}"))?;
        if !matches!(url.scheme_str(), Some("http" | "https")) || url.query().is_some() {
            return Err("must be an http or https URL without a query".to_owned());
        }
        let mut value = HeaderValue::from_str(key.expose_secret().trim())
            .map_err(|_| "has a key with characters that no header allows".to_owned())?;
        value.set_sensitive(true);
        Ok(Self {
            base: base.to_owned(),
            key: value,
        })
    }
}

#[async_trait]
impl PaymentGateway for PaymentApi {
    async fn customer(&self, input: &GatewayCustomerInput) -> Result<String, PaymentGatewayError> {
        let reference = input.account_id.to_string();
        if let Some(current) = self.find_by_reference("customers", &reference).await? {
            return self.update_customer(&current, input).await;
        }
        let request = GatewayRequest::post(self.url("/customers")?, &bodies::customer(input));
        let customer = match self.call(request, self.timeout).await {
            Err(error @ (PaymentGatewayError::Failed(_) | PaymentGatewayError::Unanswered(_))) => {
                self.find_by_reference("customers", &reference).await?.ok_or(error)?
            }
            result => result?,
        };
        response::text(&customer, "id").ok_or_else(|| response::unreadable("a customer has no id"))
    }

    async fn subscribe(&self, input: &GatewaySubscriptionInput) -> Result<GatewaySubscription, PaymentGatewayError> {
        let request = GatewayRequest::post_secret(self.url("/subscriptions")?, bodies::subscription(input)?);
        let result = self.call(request, self.subscribe_timeout).await;
        let created = result.map_err(|error| response::without_card_data(error, input.card.as_ref()))?;
        response::subscription(&created)
    }

    async fn find(&self, reference: SubscriptionId) -> Result<Option<GatewaySubscription>, PaymentGatewayError> {
        let found = self.find_by_reference("subscriptions", &reference.to_string()).await?;
        found.as_ref().map(response::subscription).transpose()
    }

    async fn subscription(&self, id: &str) -> Result<Option<GatewaySubscription>, PaymentGatewayError> {
        match self.get(&format!("/subscriptions/{}", segment(id))).await {
            Ok(found) => response::subscription(&found).map(Some),
            Err(PaymentGatewayError::Missing) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn change(&self, id: &str, value: Cents, cycle: Cycle) -> Result<(), PaymentGatewayError> {
        let body = json!({ "value": to_reais(value), "cycle": cycle.as_str(), "updatePendingPayments": true });
        let request = GatewayRequest::put(self.url(&format!("/subscriptions/{}", segment(id)))?, &body);
        self.call(request, self.timeout).await.map(|_| ())
    }

    async fn cancel(&self, id: &str) -> Result<(), PaymentGatewayError> {
        let request = GatewayRequest::delete(self.url(&format!("/subscriptions/{}", segment(id)))?);
        match self.call(request, self.timeout).await {
            Ok(_) | Err(PaymentGatewayError::Missing) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn first_payment(&self, id: &str, billing_type: BillingType) -> PaymentData {
        let Some(payment) = self.poll_first_payment(id).await else {
            return PaymentData::default();
        };
        let mut data = PaymentData::default();
        match billing_type {
            BillingType::Pix => {
                let code = self.payment_detail(&payment, "pixQrCode").await;
                data.pix_qr_code = response::long_text(&code, "encodedImage");
                data.pix_payload = response::long_text(&code, "payload");
                data.pix_expires_at = response::text(&code, "expirationDate").and_then(|text| dates::time(&text));
            }
            BillingType::Boleto => {
                let slip = self.payment_detail(&payment, "identificationField").await;
                data.boleto_line = response::text(&slip, "identificationField");
            }
            BillingType::CreditCard => {}
        }
        data.payment = Some(payment);
        data
    }

    async fn payments(&self, id: &str) -> Result<Vec<GatewayPayment>, PaymentGatewayError> {
        let path = format!("/subscriptions/{}/payments?limit={LIST_LIMIT}", segment(id));
        let found = response::items(&self.get(&path).await?)?;
        found.iter().map(response::payment).collect()
    }

    async fn payment(&self, id: &str) -> Result<Option<GatewayPayment>, PaymentGatewayError> {
        match self.get(&format!("/payments/{}", segment(id))).await {
            Ok(found) => response::payment(&found).map(Some),
            Err(PaymentGatewayError::Missing) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn payment_api_rejects_invalid_url_or_key() {
        let base_of = |url, key: Option<&str>| {
            let key = key.map(SecretString::from);
            PaymentApi::new(Http::new().unwrap(), url, key.as_ref()).map(|api| api.access.map(|access| access.base))
        };
        assert_eq!(
            base_of(Some("https://h/v3/"), Some("k")),
            Ok(Some("https://h/v3".into()))
        );
        assert_eq!(base_of(Some("https://h/v3"), None), Ok(None));
        assert_eq!(base_of(None, Some("k")), Ok(None));
        for bad in ["h/v3", "ftp://h/v3", "https://h/v3?x=1"] {
            assert!(base_of(Some(bad), Some("k")).is_err(), "{bad}");
        }
        let error = base_of(Some("https://h"), Some("se\ncret")).unwrap_err();
        assert!(!error.contains("cret"), "{error}");
    }
}
