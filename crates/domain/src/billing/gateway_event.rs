//! Reading the gateway's events: what they are told apart by, and the few facts of them that are kept.
//!
//! Nothing else of a body is stored: it may hold names, tax numbers and tokens of cards.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use time::{Date, OffsetDateTime};

use super::Cents;
use super::calendar::{gateway_date, gateway_time};
use crate::shared::{GatewayEventId, string_enum};

/// The longest text kept of an event, in characters.
const TEXT_CHARS: usize = 200;

/// The longest address kept, in characters.
const URL_CHARS: usize = 2000;

string_enum! {
    /// What an event says.
    GatewayEventKind {
        /// A payment is sure.
        Confirmed = "PAYMENT_CONFIRMED",
        /// The money of a payment is there.
        Received = "PAYMENT_RECEIVED",
        /// A payment is late.
        Overdue = "PAYMENT_OVERDUE",
        /// The subscription was ended by the gateway.
        Inactivated = "SUBSCRIPTION_INACTIVATED",
        /// Anything else: of a payment, it changes what the history says of it when the gateway was asked.
        Other = "OTHER",
    }
}

/// What an event tells of a payment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentSnapshot {
    /// The gateway's id.
    pub id: String,
    /// How it is paid.
    pub billing_type: Option<String>,
    /// How much.
    pub value: Option<Cents>,
    /// Where it stands.
    pub status: Option<String>,
    /// Where it can be seen.
    pub invoice_url: Option<String>,
    /// Where its slip is.
    pub bank_slip_url: Option<String>,
    /// When it is due.
    pub due_date: Option<Date>,
}

/// What an event tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayEventData {
    /// What it says.
    pub kind: GatewayEventKind,
    /// Of which payment.
    pub payment: Option<PaymentSnapshot>,
    /// The gateway's time of it.
    pub created_at: Option<OffsetDateTime>,
}

/// An event as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayEvent {
    /// What it is told apart by: the same key is the same event.
    pub key: String,
    /// The gateway's word for it; empty when it had none.
    pub event: String,
    /// The gateway's id of the subscription it is about.
    pub subject: Option<String>,
    /// What it tells.
    pub data: GatewayEventData,
}

/// An event out of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its id.
    pub id: GatewayEventId,
    /// The gateway's id of the subscription it is about.
    pub subject: String,
    /// What it tells.
    pub data: GatewayEventData,
    /// When it arrived.
    pub received_at: OffsetDateTime,
    /// How often it was tried in vain.
    pub attempts: u32,
}

/// How keeping an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// Its key is known: nothing was kept.
    Known,
    /// It is kept; it waits behind others, or changes nothing.
    Stored,
    /// It is kept, and the caller's to apply until the lease is over.
    Claimed,
}

impl GatewayEvent {
    /// Reads a body. One that is no event is an event that changes nothing: it is known again all the same.
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
        let status = payment.as_ref().and_then(|payment| payment.status.as_deref());
        let key = match (text(&value, "/id"), object_id) {
            (Some(id), _) => format!("id:{id}"),
            (None, Some(object_id)) => format!("facts:{event}:{object_id}:{}", status.unwrap_or_default()),
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
        let mut key = "body:".to_owned();
        for byte in Sha256::digest(body) {
            write!(key, "{byte:02x}").ok();
        }
        Self {
            key,
            event: String::new(),
            subject: None,
            data: GatewayEventData {
                kind: GatewayEventKind::Other,
                payment: None,
                created_at: None,
            },
        }
    }

    /// Whether it may change anything: a published event about a subscription, and about a payment where it needs one.
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
        status: text(value, "/payment/status"),
        invoice_url: url(value, "/payment/invoiceUrl"),
        bank_slip_url: url(value, "/payment/bankSlipUrl"),
        due_date: text(value, "/payment/dueDate").and_then(|text| gateway_date(&text)),
    })
}

/// A text that the database can hold and people can read; a longer one is none of the gateway's.
fn text(value: &Value, path: &str) -> Option<String> {
    let text = value.pointer(path)?.as_str()?;
    let fits = !text.is_empty() && text.chars().count() <= TEXT_CHARS && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned())
}

/// An address that a page may link to.
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
