//! Parses the events that the payment gateway posts.

use recado_domain::billing::{
    GatewayEvent, GatewayEventData, GatewayEventKind, GatewayEventReader, PaymentSnapshot, PaymentStatus,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::reais::from_reais;
use super::{dates, response};

/// Maximum length of a stored text, in characters.
const TEXT_CHARS: usize = 200;

/// `GatewayEventReader` of Asaas. Only a deduplication key and the fields that are stored leave it, because a body may
/// contain names, tax numbers and card tokens. The key of an invalid body is a hash of the body.
pub struct AsaasEventReader;

impl GatewayEventReader for AsaasEventReader {
    fn read(&self, body: &[u8]) -> GatewayEvent {
        read_event(body)
    }
}

fn read_event(body: &[u8]) -> GatewayEvent {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        return unreadable(body);
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
            let status = status.map_or("", PaymentStatus::as_str);
            format!("facts:{event}:{object_id}:{status}")
        }
        (None, None) => return unreadable(body),
    };
    let kind = event.parse().unwrap_or(GatewayEventKind::Other);
    GatewayEvent {
        key,
        subject,
        data: GatewayEventData {
            kind,
            payment: payment.filter(|_| kind != GatewayEventKind::Inactivated),
            created_at: text(&value, "/dateCreated").and_then(|text| dates::time(&text)),
        },
        event,
    }
}

fn unreadable(body: &[u8]) -> GatewayEvent {
    GatewayEvent {
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

fn payment(value: &Value) -> Option<PaymentSnapshot> {
    let url = |field: &str| response::url(value.get("payment")?, field);
    Some(PaymentSnapshot {
        id: text(value, "/payment/id")?,
        billing_type: text(value, "/payment/billingType"),
        value: value.pointer("/payment/value").and_then(from_reais),
        status: text(value, "/payment/status").map(PaymentStatus::from),
        invoice_url: url("invoiceUrl"),
        bank_slip_url: url("bankSlipUrl"),
        due_date: text(value, "/payment/dueDate").and_then(|text| dates::date(&text)),
    })
}

/// Reads a text. Returns `None` if it is empty, contains control characters or exceeds `TEXT_CHARS`.
fn text(value: &Value, path: &str) -> Option<String> {
    response::valid_text(value.pointer(path)?, TEXT_CHARS)
}

#[cfg(test)]
mod tests {
    use recado_domain::billing::Cents;
    use serde_json::json;
    use time::macros::{date, datetime};

    use super::*;

    fn read(value: &Value) -> GatewayEvent {
        read_event(value.to_string().as_bytes())
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
            let event = read_event(body.as_bytes());
            assert!(event.key.starts_with("body:") && !event.has_effect(), "{body:.20}");
            assert_eq!(event, read_event(body.as_bytes()));
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
