//! What an answer of the gateway means, and which of its words may be passed on.

use recado_domain::billing::{
    CardPayment, Cents, Description, GatewayPayment, GatewaySubscription, PaymentGatewayError, gateway_date,
};
use secrecy::ExposeSecret as _;
use serde_json::Value;

use crate::http::{CallError, GatewayResponse};

/// How many of its words about one refusal are passed on, and how long they may be.
const DESCRIPTIONS: usize = 20;
const CODE_CHARS: usize = 100;
const DESCRIPTION_CHARS: usize = 500;

/// The longest text taken, in characters: of any field, and of codes and pictures.
const TEXT_CHARS: usize = 500;
const URL_CHARS: usize = 2000;
const LONG_TEXT_CHARS: usize = 256 * 1024;

/// The fewest digits in a row that could be a card number.
const CARD_DIGITS: usize = 12;

pub(super) fn unreadable(what: &str) -> PaymentGatewayError {
    PaymentGatewayError::Failed(format!("it answered with {what}"))
}

/// How a call ended.
pub(super) fn read(result: Result<GatewayResponse, CallError>) -> Result<Value, PaymentGatewayError> {
    let answer = match result {
        Ok(answer) => answer,
        Err(CallError::NotSent(detail)) => return Err(PaymentGatewayError::NotDone(detail)),
        Err(CallError::MaybeSent(detail)) => return Err(PaymentGatewayError::Unanswered(detail)),
    };
    let status = answer.status;
    let body: Option<Value> = answer.json();
    match status {
        200..=299 => body.filter(Value::is_object).ok_or_else(|| unreadable("no object")),
        404 => Err(PaymentGatewayError::Missing),
        // Somebody on the way gave up waiting for it.
        408 | 504 => Err(PaymentGatewayError::Unanswered(format!("HTTP {status}"))),
        400 | 409 | 422 => match body.as_ref().map(descriptions).filter(|texts| !texts.is_empty()) {
            Some(texts) => Err(PaymentGatewayError::Refused(texts)),
            None => Err(PaymentGatewayError::NotDone(format!("HTTP {status} without a reason"))),
        },
        // Our key, our quota, our address: nothing that the caller could do better.
        401..=499 => Err(PaymentGatewayError::NotDone(format!("HTTP {status}"))),
        _ => Err(PaymentGatewayError::Failed(format!("HTTP {status}"))),
    }
}

fn descriptions(body: &Value) -> Vec<Description> {
    let errors = body.get("errors").and_then(Value::as_array);
    let of = |error: &Value, field: &str, most: usize| {
        let text = error.get(field).and_then(Value::as_str).unwrap_or_default();
        let text: String = text.chars().filter(|c| !c.is_control()).take(most).collect();
        without_numbers(&text, None)
    };
    let errors = errors.into_iter().flatten().take(DESCRIPTIONS);
    errors
        .map(|error| Description {
            code: of(error, "code", CODE_CHARS),
            description: of(error, "description", DESCRIPTION_CHARS),
        })
        .filter(|text| !text.code.is_empty() || !text.description.is_empty())
        .collect()
}

/// The same fault, not repeating what the gateway may have repeated of the card.
pub(super) fn without_card(error: PaymentGatewayError, payment: Option<&CardPayment>) -> PaymentGatewayError {
    let ccv = payment.map(|payment| payment.card.ccv.expose_secret());
    match error {
        PaymentGatewayError::Refused(texts) => {
            let bare = |text: Description| Description {
                code: without_numbers(&text.code, ccv),
                description: without_numbers(&text.description, ccv),
            };
            PaymentGatewayError::Refused(texts.into_iter().map(bare).collect())
        }
        other => other,
    }
}

/// A text without anything that could be a card number, grouped or not, or that is this very code.
fn without_numbers(text: &str, ccv: Option<&str>) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut run = String::new();
    let mut digits = String::new();
    for c in text.chars().chain(std::iter::once('\n')) {
        if c.is_ascii_digit() {
            run.push(c);
            digits.push(c);
        } else if !run.is_empty() && matches!(c, ' ' | '-' | '.' | '\u{a0}') {
            run.push(c);
        } else {
            let is_secret = digits.len() >= CARD_DIGITS || ccv.is_some_and(|ccv| has_group(&run, ccv));
            let bare = run.trim_end_matches(|c: char| !c.is_ascii_digit());
            kept.push_str(if is_secret { "***" } else { bare });
            kept.push_str(run.strip_prefix(bare).unwrap_or_default());
            run.clear();
            digits.clear();
            kept.push(c);
        }
    }
    kept.truncate(kept.len() - 1);
    kept
}

/// Whether one of the groups of digits is this one.
fn has_group(run: &str, wanted: &str) -> bool {
    run.split(|c: char| !c.is_ascii_digit()).any(|group| group == wanted)
}

/// `data` of a list.
pub(super) fn items(list: &Value) -> Result<Vec<Value>, PaymentGatewayError> {
    let data = list.get("data").and_then(Value::as_array).cloned();
    data.ok_or_else(|| unreadable("no list"))
}

fn limited(value: &Value, field: &str, most: usize) -> Option<String> {
    let text = value.get(field)?.as_str()?;
    let fits = !text.is_empty() && text.chars().count() <= most && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned())
}

/// A text field; none when it is missing, empty or absurd.
pub(super) fn text(value: &Value, field: &str) -> Option<String> {
    limited(value, field, TEXT_CHARS)
}

/// A text field that may be a picture.
pub(super) fn long_text(value: &Value, field: &str) -> Option<String> {
    limited(value, field, LONG_TEXT_CHARS)
}

/// An address that a page may link to.
fn url(value: &Value, field: &str) -> Option<String> {
    let url = limited(value, field, URL_CHARS)?;
    let web = url.starts_with("https://") || url.starts_with("http://");
    (web && !url.contains(char::is_whitespace)).then_some(url)
}

pub(super) fn is_deleted(value: &Value) -> bool {
    value.get("deleted").and_then(Value::as_bool).unwrap_or(false)
}

/// A subscription as the gateway shows it.
pub(super) fn subscription(value: &Value) -> Result<GatewaySubscription, PaymentGatewayError> {
    Ok(GatewaySubscription {
        id: text(value, "id").ok_or_else(|| unreadable("a subscription without an id"))?,
        customer: text(value, "customer").unwrap_or_default(),
        value: value.get("value").and_then(Cents::of_reais),
        cycle: text(value, "cycle").unwrap_or_default(),
        deleted: is_deleted(value),
    })
}

/// A payment as the gateway shows it.
pub(super) fn payment(value: &Value) -> Result<GatewayPayment, PaymentGatewayError> {
    Ok(GatewayPayment {
        id: text(value, "id").ok_or_else(|| unreadable("a payment without an id"))?,
        subscription: text(value, "subscription"),
        customer: text(value, "customer"),
        billing_type: text(value, "billingType").unwrap_or_default(),
        status: text(value, "status").ok_or_else(|| unreadable("a payment without a status"))?,
        value: value.get("value").and_then(Cents::of_reais),
        invoice_url: url(value, "invoiceUrl"),
        bank_slip_url: url(value, "bankSlipUrl"),
        due_date: text(value, "dueDate").and_then(|text| gateway_date(&text)),
    })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderMap;
    use serde_json::json;

    use super::*;

    fn answered(status: u16, body: &str) -> Result<Value, PaymentGatewayError> {
        read(Ok(GatewayResponse {
            status,
            headers: HeaderMap::new(),
            body: body.to_owned().into(),
        }))
    }

    #[test]
    fn an_answer_says_what_may_have_happened() {
        let errors = r#"{"errors":[{"code":"invalid_value","description":"O campo é inválido."}]}"#;
        assert_eq!(answered(200, r#"{"id":"sub_1"}"#), Ok(json!({ "id": "sub_1" })));
        for (status, body, wanted) in [
            (200, "{\"id\":", "Failed"),
            (200, "[]", "Failed"),
            (204, "", "Failed"),
            (302, "", "Failed"),
            (400, errors, "Refused"),
            (400, "{}", "NotDone"),
            (400, "<html>", "NotDone"),
            (401, errors, "NotDone"),
            (403, "", "NotDone"),
            (404, "", "Missing"),
            (408, "", "Unanswered"),
            (429, errors, "NotDone"),
            (500, errors, "Failed"),
            (503, "", "Failed"),
            (504, "", "Unanswered"),
        ] {
            let error = answered(status, body).unwrap_err();
            assert!(format!("{error:?}").starts_with(wanted), "{status} {body}: {error:?}");
        }
        let not_sent = read(Err(CallError::NotSent("x".into())));
        assert_eq!(not_sent, Err(PaymentGatewayError::NotDone("x".into())));
    }

    #[test]
    fn no_card_number_is_passed_on() {
        for (text, bare) in [
            ("O cartão 4111111111111111 foi recusado.", "O cartão *** foi recusado."),
            ("4111 1111 1111 1111", "***"),
            ("(4111-1111-1111-1111)", "(***)"),
            ("ccv 987, valor 97.00", "ccv ***, valor 97.00"),
            ("CPF 529.982.247-25", "CPF 529.982.247-25"),
            ("", ""),
            ("987", "***"),
        ] {
            assert_eq!(without_numbers(text, Some("987")), bare, "{text}");
        }
        let body = json!({ "errors": [{ "code": "x", "description": "4111111111111111" }, {}, 7] });
        let refused = answered(400, &body.to_string()).unwrap_err();
        assert!(!format!("{refused:?}").contains("4111"));
    }

    #[test]
    fn odd_objects_are_read_as_far_as_they_go() {
        let odd = json!({ "id": "pay_1", "status": "SOMETHING_NEW", "value": "97", "invoiceUrl": "javascript:x",
                          "dueDate": "soon", "billingType": null });
        let read = payment(&odd).unwrap();
        assert_eq!((read.value, read.invoice_url, read.due_date), (None, None, None));
        assert!(payment(&json!({ "id": "pay_1" })).is_err());
        assert!(subscription(&json!({ "id": "" })).is_err());
        assert!(items(&json!({ "data": {} })).is_err());
    }
}
