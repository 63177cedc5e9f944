//! Parses gateway events into a deduplication key and the few fields that are stored.
//!
//! Nothing else of a body is stored, because it may contain names, tax numbers and card tokens.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use time::{Date, OffsetDateTime};

use super::calendar::{gateway_date, gateway_time};
use super::{Cents, PaymentStatus};
use crate::shared::{GatewayEventId, string_enum};

/// Maximum length of a stored text, in characters.
const TEXT_CHARS: usize = 200;

/// Maximum length of a stored URL, in characters.
const URL_CHARS: usize = 2000;

string_enum! {
    /// Kind of a gateway event.
    GatewayEventKind {
        /// The payment is guaranteed; the money may arrive later.
        Confirmed = "PAYMENT_CONFIRMED",
        /// The money of the payment arrived.
        Received = "PAYMENT_RECEIVED",
        /// The payment is late.
        Overdue = "PAYMENT_OVERDUE",
        /// The gateway ended the subscription.
        Inactivated = "SUBSCRIPTION_INACTIVATED",
        /// Any other kind. A received event has no effect; a payment read by the reconciler updates the history.
        Other = "OTHER",
    }
}

/// State of a payment as an event reports it. Its id is the gateway's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentSnapshot {
    pub id: String,
    pub billing_type: Option<String>,
    pub value: Option<Cents>,
    pub status: Option<PaymentStatus>,
    pub invoice_url: Option<String>,
    pub bank_slip_url: Option<String>,
    pub due_date: Option<Date>,
}

/// The fields of a gateway event that decide its effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayEventData {
    pub kind: GatewayEventKind,
    pub payment: Option<PaymentSnapshot>,
    /// The gateway's time of the event.
    pub created_at: Option<OffsetDateTime>,
}

/// A parsed gateway event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayEvent {
    /// Deduplication key: two events with the same key are the same event.
    pub key: String,
    /// Event name of the gateway; empty if there is none.
    pub event: String,
    /// The gateway's id of the subscription.
    pub subject: Option<String>,
    pub data: GatewayEventData,
}

/// A gateway event as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    pub id: GatewayEventId,
    /// The gateway's id of the subscription.
    pub subject: String,
    pub data: GatewayEventData,
    pub received_at: OffsetDateTime,
    /// How many times applying it was deferred.
    pub attempts: u32,
}

/// Outcome of storing a gateway event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// Not stored: an event with this key exists.
    Known,
    /// Stored. It waits behind other events or has no effect.
    Stored,
    /// Stored and claimed: the caller applies it before the lease expires.
    Claimed,
}

impl GatewayEvent {
    /// Parses a callback body. An invalid body becomes an event without effect, whose key is a hash of the body.
    pub fn read(body: &[u8]) -> Self {
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            return Self::unreadable(body);
        };
        let event = text(&value, "/event").unwrap_or_default();
        let payment = payment(&value);
        let subject = ["/payment/subscription", "/subscription/id", "/subscription"]
            .iter()
            .find_map(|path| text(&value, path));
        let object_id = payment.as_ref().map(|payment| &payment.id).or(subject.as_ref());
        let status = payment.as_ref().and_then(|payment| payment.status.as_ref());
        let key = match (text(&value, "/id"), object_id) {
            (Some(id), _) => format!("id:{id}"),
            (None, Some(object_id)) => {
                format!("facts:{event}:{object_id}:{}", status.map_or("", PaymentStatus::as_str))
            }
            (None, None) => return Self::unreadable(body),
        };
        let kind = event.parse().unwrap_or(GatewayEventKind::Other);
        Self {
            key,
            subject,
            data: GatewayEventData {
                kind,
                payment: payment.filter(|_| kind != GatewayEventKind::Inactivated),
                created_at: text(&value, "/dateCreated").and_then(|text| gateway_time(&text)),
            },
            event,
        }
    }

    fn unreadable(body: &[u8]) -> Self {
        Self {
            key: format!("body:{}", hex::encode(Sha256::digest(body))),
            event: String::new(),
            subject: None,
            data: GatewayEventData {
                kind: GatewayEventKind::Other,
                payment: None,
                created_at: None,
            },
        }
    }

    /// Whether the event can have an effect: its kind is known, and it names a subscription, and a payment if its kind
    /// needs one.
    pub fn has_effect(&self) -> bool {
        self.subject.is_some()
            && match self.data.kind {
                GatewayEventKind::Confirmed | GatewayEventKind::Received | GatewayEventKind::Overdue => {
                    self.data.payment.is_some()
                }
                GatewayEventKind::Inactivated => true,
                GatewayEventKind::Other => false,
            }
    }
}

fn payment(value: &Value) -> Option<PaymentSnapshot> {
    Some(PaymentSnapshot {
        id: text(value, "/payment/id")?,
        billing_type: text(value, "/payment/billingType"),
        value: value.pointer("/payment/value").and_then(Cents::from_reais),
        status: text(value, "/payment/status").map(PaymentStatus::from),
        invoice_url: url(value, "/payment/invoiceUrl"),
        bank_slip_url: url(value, "/payment/bankSlipUrl"),
        due_date: text(value, "/payment/dueDate").and_then(|text| gateway_date(&text)),
    })
}

/// Reads a text. Returns `None` if it is empty, contains control characters or exceeds `TEXT_CHARS`.
fn text(value: &Value, path: &str) -> Option<String> {
    let text = value.pointer(path)?.as_str()?;
    let fits = !text.is_empty() && text.chars().count() <= TEXT_CHARS && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned())
}

/// Reads an http or https URL that a page can safely link to.
fn url(value: &Value, path: &str) -> Option<String> {
    let url = value.pointer(path)?.as_str()?;
    let web = url.starts_with("https://") || url.starts_with("http://");
    let fits = url.chars().count() <= URL_CHARS && !url.chars().any(|c| c.is_control() || c.is_whitespace());
    (web && fits).then(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::macros::{date, datetime};

    use super::*;

    fn read(value: &Value) -> GatewayEvent {
        GatewayEvent::read(value.to_string().as_bytes())
    }

    #[test]
    fn gateway_event_reads_provider_and_published_forms() {
        let provider = read(&json!({
            "id": "evt_1&2", "event": "PAYMENT_RECEIVED", "dateCreated": "2026-06-12 16:45:03",
            "payment": { "id": "pay_1", "subscription": "sub_1", "billingType": "PIX", "value": 19.9, "status": "RECEIVED",
                         "dueDate": "2026-06-12", "invoiceUrl": "https://g.example/i/1", "bankSlipUrl": null,
                         "creditCard": { "creditCardToken": "secret-token" } } }));
        assert_eq!(
            (provider.key.as_str(), provider.subject.as_deref()),
            ("id:evt_1&2", Some("sub_1"))
        );
        assert_eq!(provider.data.kind, GatewayEventKind::Received);
        assert_eq!(provider.data.created_at, Some(datetime!(2026-06-12 19:45:03 UTC)));
        let payment = provider.data.payment.as_ref().unwrap();
        assert_eq!(
            (payment.value, payment.due_date),
            (Some(Cents(1_990)), Some(date!(2026 - 06 - 12)))
        );
        assert!(!serde_json::to_string(&provider.data).unwrap().contains("secret"));
        let again: GatewayEventData = serde_json::from_value(json!(provider.data)).unwrap();
        assert_eq!(again, provider.data);
        let bare = json!({ "event": "PAYMENT_OVERDUE", "payment": { "id": "pay_1", "subscription": "sub_1", "status": "OVERDUE" } });
        assert_eq!(read(&bare).key, "facts:PAYMENT_OVERDUE:pay_1:OVERDUE");
        assert!(read(&bare).has_effect() && provider.has_effect());
    }

    #[test]
    fn gateway_event_reads_subscription_id_from_three_fields() {
        for body in [
            json!({ "event": "SUBSCRIPTION_INACTIVATED", "subscription": { "id": "sub_1", "dateCreated": "16/10/2024" } }),
            json!({ "event": "SUBSCRIPTION_INACTIVATED", "payment": { "subscription": "sub_1" } }),
            json!({ "event": "SUBSCRIPTION_INACTIVATED", "subscription": "sub_1" }),
        ] {
            let event = read(&body);
            assert_eq!(event.subject.as_deref(), Some("sub_1"), "{body}");
            assert_eq!(
                (event.data.kind, event.has_effect()),
                (GatewayEventKind::Inactivated, true)
            );
        }
    }

    #[test]
    fn gateway_event_from_invalid_body_has_no_effect() {
        for body in [
            "",
            "{",
            "7",
            "null",
            "[]",
            "{}",
            "{\"event\":7}",
            "{\"payment\":\"x\"}",
            "\u{0}",
            &"[".repeat(10_000),
            r#"{"event":"PAYMENT_CONFIRMED","payment":{"id":7,"subscription":["sub_1"]}}"#,
        ] {
            let event = GatewayEvent::read(body.as_bytes());
            assert!(event.key.starts_with("body:") && !event.has_effect(), "{body:.20}");
            assert_eq!(event, GatewayEvent::read(body.as_bytes()));
        }
        let odd = json!({ "id": "e\u{0}", "event": "PAYMENT_CONFIRMED", "dateCreated": "yesterday",
            "payment": { "id": "p", "subscription": "s", "value": "97", "dueDate": "é2026-01-01x", "status": "A\u{0}",
                         "invoiceUrl": "javascript:alert(1)", "bankSlipUrl": "https://a b" } });
        let odd = read(&odd);
        assert_eq!(odd.key, "facts:PAYMENT_CONFIRMED:p:");
        let payment = PaymentSnapshot {
            id: "p".into(),
            ..PaymentSnapshot::default()
        };
        assert_eq!((odd.data.payment, odd.data.created_at), (Some(payment), None));
        let unknown =
            read(&json!({ "id": "e", "event": "PAYMENT_REFUNDED", "payment": { "id": "p", "subscription": "s" } }));
        assert_eq!(
            (unknown.data.kind, unknown.has_effect()),
            (GatewayEventKind::Other, false)
        );
    }
}
