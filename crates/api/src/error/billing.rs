//! Responses for errors of the billing context.

use std::collections::BTreeMap;

use recado_domain::billing::{BillingError, Description};
use serde_json::json;

use super::{ApiError, ErrorCode};

/// Groups the payment gateway's messages by the request field that they concern. The gateway names no field, so the
/// field is derived from the error code.
fn messages_by_field(texts: &[Description]) -> BTreeMap<&'static str, Vec<&str>> {
    let mut fields: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for text in texts {
        let field = match text.code.as_str() {
            code if code.contains("creditCardHolderInfo") => "credit_card_holder_info",
            code if code.contains("creditCard") || code.contains("CreditCard") => "credit_card",
            code if code.contains("cpfCnpj") => "cpf_cnpj",
            code if code.contains("mail") => "billing_email",
            _ => "gateway",
        };
        fields.entry(field).or_default().push(&text.description);
    }
    fields
}

/// The payment gateway rejected the input.
fn refused_payment(texts: &[Description]) -> ApiError {
    let messages: Vec<&str> = texts.iter().map(|text| text.description.as_str()).collect();
    let message = format!("The payment gateway rejected the request: {}", messages.join(" "));
    ApiError::new(ErrorCode::Invalid, message).details(json!({ "fields": messages_by_field(texts), "errors": texts }))
}

impl From<BillingError> for ApiError {
    fn from(error: BillingError) -> Self {
        match error {
            BillingError::NotFound => Self::not_found(),
            BillingError::Invalid(errors) => errors.into(),
            BillingError::Refused(texts) => refused_payment(&texts),
            BillingError::Gateway(error) => error.into(),
            BillingError::Contended => Self::new(ErrorCode::Conflict, error.to_string()),
            BillingError::Store(error) => error.into(),
        }
    }
}
