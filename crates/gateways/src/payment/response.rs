//! Reads responses of the payment gateway, and removes card data from the texts that are passed on.

use recado_domain::billing::{CardPayment, Description, GatewayPayment, GatewaySubscription, PaymentGatewayError};
use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::dates;
use super::reais::from_reais;
use crate::http::{CallError, GatewayResponse};

/// Limits of the error texts of one refusal.
const MAX_DESCRIPTIONS: usize = 20;
const MAX_CODE_CHARS: usize = 100;
const MAX_DESCRIPTION_CHARS: usize = 500;

/// Longest accepted text in characters. The long one is for PIX codes and images.
const MAX_TEXT_CHARS: usize = 500;
const MAX_URL_CHARS: usize = 2000;
const MAX_LONG_TEXT_CHARS: usize = 256 * 1024;

/// Fewest digits in a row that may be a card number.
const MIN_CARD_DIGITS: usize = 12;

pub(super) fn unreadable(reason: &str) -> PaymentGatewayError {
    PaymentGatewayError::Failed(format!("the response is not usable: {reason}"))
}

/// The JSON object of a successful response, or the error that says whether the operation may have happened.
pub(super) fn read(result: Result<GatewayResponse, CallError>) -> Result<Value, PaymentGatewayError> {
    let response = match result {
        Ok(response) => response,
        Err(CallError::NotSent(detail)) => return Err(PaymentGatewayError::NotDone(detail)),
        Err(CallError::MaybeSent(detail)) => return Err(PaymentGatewayError::Unanswered(detail)),
    };
    let status = response.status;
    let body: Option<Value> = response.json();
    match status {
        200..=299 => body
            .filter(Value::is_object)
            .ok_or_else(|| unreadable("it is not a JSON object")),
        404 => Err(PaymentGatewayError::Missing),
        // A proxy timed out: the gateway may have received the request.
        408 | 504 => Err(PaymentGatewayError::Unanswered(format!("HTTP {status}"))),
        400 | 409 | 422 => match body.as_ref().map(descriptions).filter(|texts| !texts.is_empty()) {
            Some(texts) => Err(PaymentGatewayError::Refused(texts)),
            None => Err(PaymentGatewayError::NotDone(format!("HTTP {status} without a reason"))),
        },
        // Our API key, quota or URL: the caller cannot correct it.
        401..=499 => Err(PaymentGatewayError::NotDone(format!("HTTP {status}"))),
        _ => Err(PaymentGatewayError::Failed(format!("HTTP {status}"))),
    }
}

fn descriptions(body: &Value) -> Vec<Description> {
    let errors = body.get("errors").and_then(Value::as_array);
    let field_text = |error: &Value, field: &str, max_chars: usize| {
        let text = error.get(field).and_then(Value::as_str).unwrap_or_default();
        let text: String = text.chars().filter(|c| !c.is_control()).take(max_chars).collect();
        mask_card_data(&text, None)
    };
    let errors = errors.into_iter().flatten().take(MAX_DESCRIPTIONS);
    errors
        .map(|error| Description {
            code: field_text(error, "code", MAX_CODE_CHARS),
            description: field_text(error, "description", MAX_DESCRIPTION_CHARS),
        })
        .filter(|text| !text.code.is_empty() || !text.description.is_empty())
        .collect()
}

/// Removes card data from an error, since the gateway may quote the request.
pub(super) fn without_card_data(error: PaymentGatewayError, payment: Option<&CardPayment>) -> PaymentGatewayError {
    let ccv = payment.map(|payment| payment.card.ccv.expose_secret());
    match error {
        PaymentGatewayError::Refused(texts) => {
            let mask = |text: Description| Description {
                code: mask_card_data(&text.code, ccv),
                description: mask_card_data(&text.description, ccv),
            };
            PaymentGatewayError::Refused(texts.into_iter().map(mask).collect())
        }
        error => error,
    }
}

/// Masks everything in a text that may be a card number, grouped or not, and every group of digits equal to `ccv`.
fn mask_card_data(text: &str, ccv: Option<&str>) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut run = String::new();
    let mut digits = String::new();
    for c in text.chars().chain(std::iter::once('\n')) {
        if c.is_ascii_digit() {
            run.push(c);
            digits.push(c);
        } else if !run.is_empty() && matches!(c, ' ' | '-' | '.' | '\u{a0}') {
            run.push(c);
        } else {
            let is_secret = digits.len() >= MIN_CARD_DIGITS || ccv.is_some_and(|ccv| has_group(&run, ccv));
            let number = run.trim_end_matches(|c: char| !c.is_ascii_digit());
            masked.push_str(if is_secret { "***" } else { number });
            masked.push_str(run.strip_prefix(number).unwrap_or_default());
            run.clear();
            digits.clear();
            masked.push(c);
        }
    }
    masked.truncate(masked.len() - 1);
    masked
}

/// Whether a run of digits and separators contains this group of digits.
fn has_group(run: &str, digits: &str) -> bool {
    run.split(|c: char| !c.is_ascii_digit()).any(|group| group == digits)
}

/// The entries (`data`) of a list.
pub(super) fn items(list: &Value) -> Result<Vec<Value>, PaymentGatewayError> {
    let data = list.get("data").and_then(Value::as_array).cloned();
    data.ok_or_else(|| unreadable("it has no list"))
}

fn text_field(value: &Value, field: &str, max_chars: usize) -> Option<String> {
    valid_text(value.get(field)?, max_chars)
}

/// A text; `None` if it is empty, too long or has control characters.
pub(super) fn valid_text(value: &Value, max_chars: usize) -> Option<String> {
    let text = value.as_str()?;
    let is_valid = !text.is_empty() && text.chars().count() <= max_chars && !text.chars().any(char::is_control);
    is_valid.then(|| text.to_owned())
}

/// A text field; `None` if it is missing, empty, too long or has control characters.
pub(super) fn text(value: &Value, field: &str) -> Option<String> {
    text_field(value, field, MAX_TEXT_CHARS)
}

/// Like [`text`], long enough for an encoded image.
pub(super) fn long_text(value: &Value, field: &str) -> Option<String> {
    text_field(value, field, MAX_LONG_TEXT_CHARS)
}

/// A URL that a page may link to.
pub(super) fn url(value: &Value, field: &str) -> Option<String> {
    let url = text_field(value, field, MAX_URL_CHARS)?;
    let is_web_url = url.starts_with("https://") || url.starts_with("http://");
    (is_web_url && !url.contains(char::is_whitespace)).then_some(url)
}

pub(super) fn is_deleted(value: &Value) -> bool {
    value.get("deleted").and_then(Value::as_bool).unwrap_or(false)
}

pub(super) fn subscription(value: &Value) -> Result<GatewaySubscription, PaymentGatewayError> {
    Ok(GatewaySubscription {
        id: text(value, "id").ok_or_else(|| unreadable("a subscription has no id"))?,
        customer: text(value, "customer").unwrap_or_default(),
        value: value.get("value").and_then(from_reais),
        cycle: text(value, "cycle").and_then(|cycle| cycle.parse().ok()),
        deleted: is_deleted(value),
    })
}

pub(super) fn payment(value: &Value) -> Result<GatewayPayment, PaymentGatewayError> {
    Ok(GatewayPayment {
        id: text(value, "id").ok_or_else(|| unreadable("a payment has no id"))?,
        subscription: text(value, "subscription"),
        customer: text(value, "customer"),
        billing_type: text(value, "billingType").unwrap_or_default(),
        status: text(value, "status")
            .ok_or_else(|| unreadable("a payment has no status"))?
            .into(),
        value: value.get("value").and_then(from_reais),
        invoice_url: url(value, "invoiceUrl"),
        bank_slip_url: url(value, "bankSlipUrl"),
        due_date: text(value, "dueDate").and_then(|text| dates::date(&text)),
    })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderMap;
    use serde_json::json;

    use super::*;

    fn read_response(status: u16, body: &str) -> Result<Value, PaymentGatewayError> {
        read(Ok(GatewayResponse {
            status,
            headers: HeaderMap::new(),
            body: body.to_owned().into(),
        }))
    }

    #[test]
    fn response_status_says_whether_it_may_have_happened() {
        let errors = r#"{"errors":[{"code":"invalid_value","description":"O campo é inválido."}]}"#;
        assert_eq!(read_response(200, r#"{"id":"sub_1"}"#), Ok(json!({ "id": "sub_1" })));
        for (status, body, expected) in [
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
            let error = read_response(status, body).unwrap_err();
            assert!(format!("{error:?}").starts_with(expected), "{status} {body}: {error:?}");
        }
        let not_sent = read(Err(CallError::NotSent("x".into())));
        assert_eq!(not_sent, Err(PaymentGatewayError::NotDone("x".into())));
    }

    #[test]
    fn card_data_is_masked_in_error_texts() {
        for (text, masked) in [
            ("O cartão 4111111111111111 foi recusado.", "O cartão *** foi recusado."),
            ("4111 1111 1111 1111", "***"),
            ("(4111-1111-1111-1111)", "(***)"),
            ("ccv 987, valor 97.00", "ccv ***, valor 97.00"),
            ("CPF 529.982.247-25", "CPF 529.982.247-25"),
            ("", ""),
            ("987", "***"),
        ] {
            assert_eq!(mask_card_data(text, Some("987")), masked, "{text}");
        }
        let body = json!({ "errors": [{ "code": "x", "description": "4111111111111111" }, {}, 7] });
        let refused = read_response(400, &body.to_string()).unwrap_err();
        assert!(!format!("{refused:?}").contains("4111"));
    }

    #[test]
    fn invalid_optional_fields_are_read_as_none() {
        let odd = json!({ "id": "pay_1", "status": "SOMETHING_NEW", "value": "97", "invoiceUrl": "javascript:x",
                          "dueDate": "soon", "billingType": null });
        let read = payment(&odd).unwrap();
        assert_eq!((read.value, read.invoice_url, read.due_date), (None, None, None));
        assert!(payment(&json!({ "id": "pay_1" })).is_err());
        assert!(subscription(&json!({ "id": "" })).is_err());
        assert!(items(&json!({ "data": {} })).is_err());
    }
}
