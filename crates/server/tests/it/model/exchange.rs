//! Requests and their expected responses. A placeholder in `<...>` stands for a value that the server chooses: an id,
//! token or time. The first response that contains the placeholder binds it; later ones must have the same value.

use serde_json::{Value, json};

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) action: Action,
    pub(super) expected: Expected,
}

#[derive(Debug)]
pub(super) enum Action {
    Call(Call),
    /// A change that no route makes, such as the passing of time.
    Sql(String),
    /// A callback of the payment gateway.
    GatewayEvent(Value),
    /// WhatsApp's review update of a template of this business account.
    TemplateUpdate {
        waba: String,
        template: String,
        event: &'static str,
    },
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) caller: usize,
    /// The account in `X-Account-Id`. The administrator selects it by cookie instead.
    pub(super) account: usize,
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) body: Option<Value>,
    /// The cookie of support mode that the request carries.
    pub(super) cookie: Cookie,
}

/// A valid, missing or forged cookie of support mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cookie {
    Own,
    Missing,
    Forged,
}

/// The expected response.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expected {
    pub(super) status: u16,
    /// The error code; empty for a success.
    pub(super) code: &'static str,
    /// The fields of a validation error; empty: not compared.
    pub(super) fields: &'static [&'static str],
    /// The fields that the body must contain. Further fields are ignored.
    pub(super) body: Value,
}

/// A success, or the first error.
pub(super) type ModelResult = Result<Expected, Expected>;

pub(super) fn call(caller: usize, account: usize, method: &'static str, path: impl Into<String>) -> Call {
    Call {
        caller,
        account,
        method,
        path: path.into(),
        body: None,
        cookie: Cookie::Own,
    }
}

impl Call {
    pub(super) fn with(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }
}

fn response(status: u16, body: Value) -> Expected {
    Expected {
        status,
        code: "",
        fields: &[],
        body,
    }
}

pub(super) fn ok(data: Value) -> ModelResult {
    Ok(response(200, json!({ "data": data })))
}

/// 200 with this body instead of `data`.
pub(super) fn ok_body(body: Value) -> ModelResult {
    Ok(response(200, body))
}

pub(super) fn created(data: Value) -> ModelResult {
    Ok(response(201, json!({ "data": data })))
}

pub(super) fn no_content() -> ModelResult {
    Ok(response(204, Value::Null))
}

fn refused(status: u16, code: &'static str) -> Expected {
    Expected {
        code,
        ..response(status, Value::Null)
    }
}

pub(super) fn denied() -> Expected {
    refused(401, "AUTH_ERROR")
}

pub(super) fn forbidden() -> Expected {
    refused(403, "FORBIDDEN")
}

pub(super) fn not_found() -> Expected {
    refused(404, "NOT_FOUND")
}

/// The state does not allow the operation.
pub(super) fn precondition() -> Expected {
    refused(400, "VALIDATION_ERROR")
}

pub(super) fn invalid(fields: &'static [&'static str]) -> Expected {
    Expected {
        fields,
        ..refused(422, "VALIDATION_ERROR")
    }
}

pub(super) fn internal_error() -> Expected {
    refused(500, "INTERNAL_ERROR")
}

/// WhatsApp rejects the call.
pub(super) fn whatsapp_error() -> Expected {
    refused(502, "WHATSAPP_ERROR")
}

/// A page of a cursor list, in this order.
pub(super) fn cursor_page(items: Vec<Value>) -> ModelResult {
    ok(json!({ "data": items, "nextCursor": null, "hasMore": false }))
}

/// An array that matches these items in any order.
pub(super) fn unordered(items: Vec<Value>) -> Value {
    json!({ "$set": items })
}

/// Matches every string.
pub(super) fn any_string() -> Value {
    json!("*")
}
