//! What requests and responses of WhatsApp's API have in common: the access token and the error object.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::call::{Call, Response};

/// An error response of WhatsApp's API.
#[derive(Debug)]
pub(super) struct GraphError {
    status: u16,
    code: u32,
    details: String,
}

impl GraphError {
    pub(super) fn new(code: u32, details: impl Into<String>) -> Self {
        Self {
            status: 400,
            code,
            details: details.into(),
        }
    }

    pub(super) fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    #[cfg(test)]
    pub(super) fn code(&self) -> u32 {
        self.code
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(190, "The access token is missing, invalid or has expired.").with_status(401)
    }

    pub(super) fn throttled() -> Self {
        Self::new(130429, "Cloud API message throughput has been reached.")
    }

    pub(super) fn to_response(&self) -> Response {
        let error = json!({
            "message": format!("(#{}) {}", self.code, title(self.code)),
            "type": "OAuthException",
            "code": self.code,
            "error_data": { "messaging_product": "whatsapp", "details": self.details },
            "error_subcode": 2494055,
            "fbtrace_id": Uuid::new_v4().simple().to_string(),
        });
        Response::json(self.status, &json!({ "error": error }))
    }
}

/// The error object in a status update with the status `failed`.
pub(super) fn in_status(code: u32, details: &str) -> Value {
    json!({
        "code": code,
        "title": title(code),
        "message": title(code),
        "error_data": { "details": details },
        "href": "https://developers.facebook.com/docs/whatsapp/cloud-api/support/error-codes/",
    })
}

fn title(code: u32) -> &'static str {
    match code {
        4 => "API too many calls",
        10 => "API permission denied",
        100 => "Invalid parameter",
        190 => "Error validating access token",
        200 => "API permission",
        80007 | 80008 => "Rate limit issues",
        130429 => "Rate limit hit",
        131000 => "Something went wrong",
        131008 => "Required parameter is missing",
        131009 => "Parameter value is not valid",
        131026 => "Message undeliverable",
        131048 => "Spam rate limit hit",
        131049 => "This message was not delivered to maintain healthy ecosystem engagement",
        131050 => "The user has stopped marketing messages",
        131056 => "(Business Account, Consumer Account) pair rate limit hit",
        132000 => "Number of parameters does not match the expected number of params",
        132001 => "Template name does not exist in the translation",
        132012 => "Parameter format does not match format in the created template",
        132015 => "Template is paused",
        132016 => "Template is disabled",
        133005 => "Two step verification PIN mismatch",
        133006 => "Phone number re-verification needed",
        133009 => "Two step verification PIN guessed too fast",
        133010 => "Phone number not registered",
        133015 => "Please wait a few minutes before attempting to register this phone number",
        133016 => "Account register deregister rate limit exceeded",
        2388039 | 2388040 => "Character limit exceeded",
        2388047 => "Message header format is incorrect",
        2388072 => "Message body format is incorrect",
        2388073 => "Message footer format is incorrect",
        2388299 => "Message template leading or trailing parameters",
        _ => "Generic error",
    }
}

/// The access token of a request; empty if there is none.
pub(super) fn bearer(call: &Call) -> &str {
    let header = call.header("authorization").unwrap_or_default();
    header
        .strip_prefix("Bearer ")
        .or_else(|| header.strip_prefix("OAuth "))
        .unwrap_or_default()
}
