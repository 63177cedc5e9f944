//! The server side of the test: one server for all histories, with separate users and accounts for each history.

use std::collections::HashMap;

use recado_simulators::whatsapp::{Approval, Whatsapp, signature};
use serde_json::{Value, json};
use uuid::Uuid;

use super::exchange::{Action, Call, Cookie, Exchange, Expected};
use super::state::{ModelState, ROOT, Role, USERS};
use crate::harness::admin::ROOT as ROOT_EMAIL;
use crate::harness::client::{Reply, Request};
use crate::harness::database::Database;
use crate::harness::users::token;
use crate::harness::{GATEWAY_TOKEN, Options, Server, WHATSAPP_APP_SECRET};

const ACTIVE: &str = "svc-active-account-id";
const SUPPORT: &str = "svc-support-mode";

/// The parts of a server that several threads may share.
#[derive(Clone, Copy)]
pub(super) struct Fixture<'a> {
    port: u16,
    db: &'a Database,
    whatsapp: &'a Whatsapp,
}

/// Stops background work, so that only steps change the state. Queued starts are leased to a worker that does not
/// exist, and early callbacks are not retried during a history.
const DISABLE_WORKERS: &str = "
    CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      NEW.worker := gen_random_uuid(); NEW.leased_until := now() + interval '1 day'; RETURN NEW; END $$;
    CREATE TRIGGER hold BEFORE INSERT ON campaign_queue FOR EACH ROW WHEN (NOT NEW.prepared) EXECUTE FUNCTION hold();
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      NEW.due_at := now() + interval '1 day'; RETURN NEW; END $$;
    CREATE TRIGGER wait BEFORE UPDATE ON whatsapp_callbacks FOR EACH ROW EXECUTE FUNCTION wait();";

/// A server whose simulators send no callbacks. Without a reachable Redis the rate limiter admits every request.
pub(super) fn server() -> Server {
    let server = Server::start(Options::default().with("REDIS_URL", "redis://127.0.0.1:1"));
    server.db.run(DISABLE_WORKERS);
    server.payment.set_options(|options| options.webhook_url = None);
    server.whatsapp.set_options(|options| {
        options.callback_url = None;
        options.template_approval = Approval::Manual;
    });
    server
}

/// The users of one history, and the values of its placeholders.
pub(super) struct Actors<'a> {
    fixture: Fixture<'a>,
    tokens: Vec<String>,
    bindings: HashMap<String, String>,
    /// The administrator's cookies.
    cookies: HashMap<String, String>,
}

impl<'a> Fixture<'a> {
    pub(super) fn of(server: &'a Server) -> Self {
        Self {
            port: server.port(),
            db: &server.db,
            whatsapp: &server.whatsapp,
        }
    }

    /// Creates the users, accounts and memberships of the model's initial state.
    pub(super) fn actors(self, state: &ModelState, has_active_cookie: bool) -> Actors<'a> {
        let tag = Uuid::new_v4().simple().to_string();
        let mut bindings = HashMap::from([
            ("tag".to_owned(), tag.clone()),
            ("unknown".to_owned(), Uuid::now_v7().to_string()),
        ]);
        let mut tokens = Vec::new();
        for user in 0..USERS {
            let (id, email) = (Uuid::new_v4(), format!("p{user}-{tag}@example.com"));
            let email = if user == ROOT { ROOT_EMAIL.to_owned() } else { email };
            bindings.insert(format!("user:{user}"), id.to_string());
            bindings.insert(format!("upper:{user}"), email.to_uppercase());
            tokens.push(token(id, &email));
            bindings.insert(format!("email:{user}"), email);
        }
        let digits = Uuid::new_v4().as_u128() % 1_000_000_000_000;
        for account in 0..3 {
            bindings.insert(format!("number:{account}"), format!("{digits}{account}"));
            bindings.insert(format!("waba:{account}"), format!("{digits}9{account}"));
        }
        let mut actors = Actors {
            fixture: self,
            tokens,
            bindings,
            cookies: HashMap::new(),
        };
        for member in &state.members {
            match member.role {
                Role::Owner => actors.create_account(member.user, member.account),
                role => actors.add_team_member(member.user, role.as_str()),
            }
        }
        if !has_active_cookie {
            actors.cookies.clear();
        }
        actors
    }
}

impl Actors<'_> {
    /// Creates an account that the user owns.
    fn create_account(&mut self, caller: usize, account: usize) {
        let name = self.substitute(&format!("<tag> {account}"));
        let request = self
            .request(caller, "POST", "/api/accounts")
            .json(&json!({ "name": name }));
        let reply = request.send();
        if caller == ROOT {
            self.store_cookies(&reply);
        }
        let id = reply.created()["account"]["id"].take();
        self.bindings
            .insert(format!("account:{account}"), id.as_str().unwrap().to_owned());
    }

    /// Adds a user to the shop's team.
    fn add_team_member(&self, user: usize, role: &str) {
        self.fixture.db.run(&self.substitute(&format!(
            "INSERT INTO users (id, email) VALUES ('<user:{user}>', '<email:{user}>');
             INSERT INTO account_users (account_id, user_id, role) VALUES ('<account:0>', '<user:{user}>', '{role}')"
        )));
    }

    fn request(&self, caller: usize, method: &str, path: &str) -> Request {
        Request::new(self.fixture.port, method, path).bearer(&self.tokens[caller])
    }

    /// Replaces the placeholders of a text. An unbound placeholder becomes an id that does not exist.
    fn substitute(&self, text: &str) -> String {
        let mut result = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('<') {
            let (name, after) = after.split_once('>').unwrap();
            let value = self.bindings.get(name).unwrap_or_else(|| &self.bindings["unknown"]);
            result.push_str(before);
            result.push_str(value);
            rest = after;
        }
        result + rest
    }

    fn substitute_json(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => json!(self.substitute(text)),
            Value::Array(items) => items.iter().map(|item| self.substitute_json(item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| (name.clone(), self.substitute_json(value)))
                .collect(),
            value => value.clone(),
        }
    }

    /// Performs an action. Returns a line for the transcript, and the difference from the expected response.
    pub(super) fn perform(&mut self, exchange: &Exchange) -> (String, Result<(), String>) {
        let (line, reply) = match &exchange.action {
            Action::Sql(statement) => {
                let statement = self.substitute(statement);
                self.fixture.db.run(&statement);
                return (statement, Ok(()));
            }
            Action::Call(call) => self.call(call),
            Action::GatewayEvent(event) => {
                let body = self.substitute_json(event);
                let request = Request::new(self.fixture.port, "POST", "/api/billing/webhook").json(&body);
                let reply = request.header("gateway-access-token", GATEWAY_TOKEN).send();
                (format!("POST /api/billing/webhook {body}"), reply)
            }
            Action::TemplateUpdate { waba, template, event } => self.send_template_update(waba, template, event),
        };
        let transcript = format!("{line}\n      {} {}", reply.status, reply.text);
        let result = self.check_response(&exchange.expected, &reply);
        (transcript, result)
    }

    fn call(&mut self, call: &Call) -> (String, Reply) {
        let path = self.substitute(&call.path);
        let mut request = self.request(call.caller, call.method, &path);
        match call.caller {
            ROOT => {
                let cookies: Vec<String> = self
                    .cookies
                    .iter()
                    .filter_map(|(name, value)| match (name.as_str(), call.cookie) {
                        (SUPPORT, Cookie::Missing) => None,
                        (SUPPORT, Cookie::Forged) => Some(format!("{name}={value}x")),
                        _ => Some(format!("{name}={value}")),
                    })
                    .collect();
                if !cookies.is_empty() {
                    request = request.cookie(&cookies.join("; "));
                }
            }
            _ => request = request.header("X-Account-Id", &self.substitute(&format!("<account:{}>", call.account))),
        }
        let mut line = format!("{} {path}", call.method);
        if let Some(body) = &call.body {
            let body = self.substitute_json(body);
            line = format!("{line} {body}");
            request = request.json(&body);
        }
        let reply = request.send();
        if call.caller == ROOT {
            self.store_cookies(&reply);
        }
        (line, reply)
    }

    fn store_cookies(&mut self, reply: &Reply) {
        for line in reply.headers.get_all("set-cookie") {
            let line = line.to_str().unwrap();
            let (name, value) = line.split(';').next().unwrap().split_once('=').unwrap();
            assert!([ACTIVE, SUPPORT].contains(&name), "{line}");
            match line.contains("Max-Age=0") {
                true => self.cookies.remove(name),
                false => self.cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
    }

    /// Changes the template's status at WhatsApp and sends the signed callback that reports it.
    fn send_template_update(&self, waba: &str, template: &str, event: &str) -> (String, Reply) {
        let (waba, id) = (self.substitute(waba), self.substitute(template));
        let reason = (event == "REJECTED").then_some("INVALID_FORMAT");
        self.fixture.whatsapp.set_template_status(&id, event, reason);
        let number: u64 = id.parse().unwrap_or(1);
        let value = json!({ "event": event, "message_template_id": number, "message_template_language": "pt_BR",
                            "reason": reason.unwrap_or("NONE") });
        let body = json!({ "object": "whatsapp_business_account", "entry": [{ "id": waba,
            "changes": [{ "field": "message_template_status_update", "value": value }] }] })
        .to_string();
        let signed = signature(WHATSAPP_APP_SECRET, body.as_bytes());
        let request = Request::new(self.fixture.port, "POST", "/api/whatsapp/webhook");
        let request = request
            .header("X-Hub-Signature-256", &signed)
            .body("application/json", body);
        (format!("update of template {id}: {event}"), request.send())
    }

    fn check_response(&mut self, expected: &Expected, reply: &Reply) -> Result<(), String> {
        if reply.status != expected.status {
            return Err(format!("the model expects {} {}", expected.status, expected.code));
        }
        if reply.text.is_empty() || expected.body.is_null() && expected.code.is_empty() {
            return Ok(());
        }
        let actual = reply.json();
        if !expected.code.is_empty() {
            return check_error(expected, &actual["error"]);
        }
        self.matches(&expected.body, &actual)
    }

    /// Compares a response with the expected one. Binds placeholders that are unbound.
    fn matches(&mut self, expected: &Value, actual: &Value) -> Result<(), String> {
        let mismatch = || Err(format!("the model expects {expected} instead of {actual}"));
        match (expected, actual) {
            (Value::Object(fields), _) if fields.contains_key("$set") => {
                let (items, found) = (fields["$set"].as_array().unwrap(), actual.as_array());
                let Some(found) = found.filter(|found| found.len() == items.len()) else {
                    return mismatch();
                };
                let is_found = |item: &Value| found.iter().any(|candidate| self.matches(item, candidate).is_ok());
                if items.iter().all(is_found) { Ok(()) } else { mismatch() }
            }
            (Value::Object(fields), Value::Object(found)) => {
                let absent = Value::String("absent".to_owned());
                fields.iter().try_for_each(|(name, value)| {
                    let found = found.get(name).unwrap_or(&absent);
                    self.matches(value, found).map_err(|error| format!("{name}: {error}"))
                })
            }
            (Value::Array(items), Value::Array(found)) if items.len() == found.len() => {
                let mut pairs = items.iter().zip(found);
                pairs.try_for_each(|(item, found)| self.matches(item, found))
            }
            (Value::String(text), Value::String(found)) => match self.compare_or_bind(text, found) {
                true => Ok(()),
                false => Err(format!(
                    "the model expects {text} ({}) instead of {found}",
                    self.substitute(text)
                )),
            },
            (expected, actual) if expected == actual => Ok(()),
            _ => mismatch(),
        }
    }

    /// Compares a text with placeholders. An unbound placeholder is bound to the value, which must be new.
    fn compare_or_bind(&mut self, text: &str, found: &str) -> bool {
        let name = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
        match name.filter(|name| !self.bindings.contains_key(*name) && !name.contains('<')) {
            None => text == "*" || self.substitute(text) == found,
            Some(name) => {
                let is_new = self.bindings.values().all(|value| value != found);
                self.bindings.insert(name.to_owned(), found.to_owned());
                is_new
            }
        }
    }
}

/// Compares an error's code and fields with the expected ones.
fn check_error(expected: &Expected, error: &Value) -> Result<(), String> {
    if error["code"] != expected.code {
        return Err(format!("the model expects {}", expected.code));
    }
    let fields = error["details"]["fields"].as_object();
    let fields: Vec<&str> = fields
        .into_iter()
        .flat_map(|fields| fields.keys())
        .map(String::as_str)
        .collect();
    match expected.fields.is_empty() || fields == expected.fields {
        true => Ok(()),
        false => Err(format!("the model expects the fields {:?}", expected.fields)),
    }
}
