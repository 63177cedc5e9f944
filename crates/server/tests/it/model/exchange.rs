//! What is asked and what has to come back. Names in `<...>` stand for what only the server knows: ids, tokens, moments.
//! The first answer that holds one says what it is; from then on it is that.

use serde_json::{Value, json};

/// One thing done to the server, and its answer.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) ask: Ask,
    pub(super) expected: Expected,
}

/// What is done.
#[derive(Debug)]
pub(super) enum Ask {
    /// A request of somebody's.
    Call(Call),
    /// What no route does: the passing of time, mostly.
    Sql(String),
    /// An event of the payment gateway.
    Event(Value),
    /// The messaging platform's news of a template of this business account.
    News {
        waba: String,
        template: String,
        event: &'static str,
    },
}

/// A request.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) who: usize,
    /// In the name of which account; whoever keeps cookies says it by them.
    pub(super) account: usize,
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) body: Option<Value>,
    /// What is done to the cookie of support mode on its way.
    pub(super) cookie: Cookie,
}

/// Which cookie of support mode comes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cookie {
    Own,
    Missing,
    Forged,
}

/// What has to be answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expected {
    pub(super) status: u16,
    /// Of an error.
    pub(super) code: &'static str,
    /// What a 422 names; empty: nothing is said of it.
    pub(super) fields: &'static [&'static str],
    /// What the body holds at least.
    pub(super) body: Value,
}

/// An answer, or the refusal that came first.
pub(super) type Verdict = Result<Expected, Expected>;

pub(super) fn ask(who: usize, account: usize, method: &'static str, path: impl Into<String>) -> Call {
    Call {
        who,
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

fn answer(status: u16, body: Value) -> Expected {
    Expected {
        status,
        code: "",
        fields: &[],
        body,
    }
}

/// 200 with this data.
pub(super) fn ok(data: Value) -> Verdict {
    Ok(answer(200, json!({ "data": data })))
}

/// 200 with this body.
pub(super) fn whole(body: Value) -> Verdict {
    Ok(answer(200, body))
}

/// 201 with this data.
pub(super) fn created(data: Value) -> Verdict {
    Ok(answer(201, json!({ "data": data })))
}

/// 204.
pub(super) fn gone() -> Verdict {
    Ok(answer(204, Value::Null))
}

fn refused(status: u16, code: &'static str) -> Expected {
    Expected {
        code,
        ..answer(status, Value::Null)
    }
}

pub(super) fn denied() -> Expected {
    refused(401, "AUTH_ERROR")
}

pub(super) fn forbidden() -> Expected {
    refused(403, "FORBIDDEN")
}

pub(super) fn missing() -> Expected {
    refused(404, "NOT_FOUND")
}

/// The state does not allow it.
pub(super) fn precondition() -> Expected {
    refused(400, "VALIDATION_ERROR")
}

pub(super) fn invalid(fields: &'static [&'static str]) -> Expected {
    Expected {
        fields,
        ..refused(422, "VALIDATION_ERROR")
    }
}

pub(super) fn fault() -> Expected {
    refused(500, "INTERNAL_ERROR")
}

/// The messaging platform does not take it.
pub(super) fn platform_refuses() -> Expected {
    refused(502, "WHATSAPP_ERROR")
}

/// A list in cursor mode, in this order.
pub(super) fn slice(items: Vec<Value>) -> Verdict {
    ok(json!({ "data": items, "nextCursor": null, "hasMore": false }))
}

/// These items in any order.
pub(super) fn in_any_order(items: Vec<Value>) -> Value {
    json!({ "$set": items })
}

/// Something that is not null.
pub(super) fn something() -> Value {
    json!("*")
}
