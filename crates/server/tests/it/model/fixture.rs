//! The real side: one server for all histories, and for each history people and accounts of its own.

use std::collections::HashMap;

use recado_simulators::whatsapp::{Approval, Whatsapp, signature};
use serde_json::{Value, json};
use uuid::Uuid;

use super::exchange::{Ask, Call, Cookie, Exchange, Expected};
use super::state::{ModelState, PEOPLE, ROOT, Role};
use crate::harness::admin::ROOT as ROOT_EMAIL;
use crate::harness::client::{Reply, Request};
use crate::harness::database::Database;
use crate::harness::users::token;
use crate::harness::{GATEWAY_TOKEN, Options, Server, WHATSAPP_APP_SECRET};

const ACTIVE: &str = "svc-active-account-id";
const SUPPORT: &str = "svc-support-mode";

/// What several threads share of a server.
#[derive(Clone, Copy)]
pub(super) struct Fixture<'a> {
    port: u16,
    db: &'a Database,
    whatsapp: &'a Whatsapp,
}

/// What waits, waits longer than a history: announced runs are held by somebody who does nothing, and news that may have
/// come too early is not looked at again. So nothing happens but what a step does.
const STANDSTILL: &str = "
    CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      NEW.worker := gen_random_uuid(); NEW.leased_until := now() + interval '1 day'; RETURN NEW; END $$;
    CREATE TRIGGER hold BEFORE INSERT ON campaign_queue FOR EACH ROW WHEN (NOT NEW.prepared) EXECUTE FUNCTION hold();
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      NEW.due_at := now() + interval '1 day'; RETURN NEW; END $$;
    CREATE TRIGGER wait BEFORE UPDATE ON whatsapp_callbacks FOR EACH ROW EXECUTE FUNCTION wait();";

/// A server with platforms that say nothing by themselves. Nobody counts requests, as when Redis is away.
pub(super) fn server() -> Server {
    let server = Server::start(Options::default().with("REDIS_URL", "redis://127.0.0.1:1"));
    server.db.run(STANDSTILL);
    server.payment.set_options(|options| options.webhook_url = None);
    server.whatsapp.set_options(|options| {
        options.callback_url = None;
        options.template_approval = Approval::Manual;
    });
    server
}

/// One history's people, and what the names in it stand for.
pub(super) struct Actors<'a> {
    fixture: Fixture<'a>,
    tokens: Vec<String>,
    known: HashMap<String, String>,
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

    /// New people; the accounts and memberships that the model begins with.
    pub(super) fn actors(self, state: &ModelState, remembers: bool) -> Actors<'a> {
        let tag = Uuid::new_v4().simple().to_string();
        let mut known = HashMap::from([
            ("tag".to_owned(), tag.clone()),
            ("unknown".to_owned(), Uuid::now_v7().to_string()),
        ]);
        let mut tokens = Vec::new();
        for person in 0..PEOPLE {
            let (id, email) = (Uuid::new_v4(), format!("p{person}-{tag}@example.com"));
            let email = if person == ROOT { ROOT_EMAIL.to_owned() } else { email };
            known.insert(format!("person:{person}"), id.to_string());
            known.insert(format!("upper:{person}"), email.to_uppercase());
            tokens.push(token(id, &email));
            known.insert(format!("email:{person}"), email);
        }
        let digits = Uuid::new_v4().as_u128() % 1_000_000_000_000;
        for account in 0..3 {
            known.insert(format!("number:{account}"), format!("{digits}{account}"));
            known.insert(format!("waba:{account}"), format!("{digits}9{account}"));
        }
        let mut actors = Actors {
            fixture: self,
            tokens,
            known,
            cookies: HashMap::new(),
        };
        for member in &state.members {
            match member.role {
                Role::Owner => actors.found(member.person, member.account),
                role => actors.hire(member.person, role.word()),
            }
        }
        if !remembers {
            actors.cookies.clear();
        }
        actors
    }
}

impl Actors<'_> {
    /// Somebody makes an account.
    fn found(&mut self, who: usize, account: usize) {
        let name = self.fill(&format!("<tag> {account}"));
        let request = self
            .request(who, "POST", "/api/accounts")
            .json(&json!({ "name": name }));
        let reply = request.send();
        if who == ROOT {
            self.keep_cookies(&reply);
        }
        let made = reply.created()["account"]["id"].take();
        self.known
            .insert(format!("account:{account}"), made.as_str().unwrap().to_owned());
    }

    /// Somebody comes to the shop's team.
    fn hire(&self, person: usize, role: &str) {
        self.fixture.db.run(&self.fill(&format!(
            "INSERT INTO users (id, email) VALUES ('<person:{person}>', '<email:{person}>');
             INSERT INTO account_users (account_id, user_id, role) VALUES ('<account:0>', '<person:{person}>', '{role}')"
        )));
    }

    fn request(&self, who: usize, method: &str, path: &str) -> Request {
        Request::new(self.fixture.port, method, path).bearer(&self.tokens[who])
    }

    /// The text with what its names stand for; what stands for nothing yet is unknown to everybody.
    fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('<') {
            let (name, after) = after.split_once('>').unwrap();
            let known = self.known.get(name).unwrap_or_else(|| &self.known["unknown"]);
            filled.push_str(before);
            filled.push_str(known);
            rest = after;
        }
        filled + rest
    }

    fn filled(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => json!(self.fill(text)),
            Value::Array(items) => items.iter().map(|item| self.filled(item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| (name.clone(), self.filled(value)))
                .collect(),
            other => other.clone(),
        }
    }

    /// Does it; what it was and what came back, and what is wrong with that.
    pub(super) fn perform(&mut self, exchange: &Exchange) -> (String, Result<(), String>) {
        let (line, reply) = match &exchange.ask {
            Ask::Sql(statement) => {
                let statement = self.fill(statement);
                self.fixture.db.run(&statement);
                return (statement, Ok(()));
            }
            Ask::Call(call) => self.call(call),
            Ask::Event(event) => {
                let body = self.filled(event);
                let request = Request::new(self.fixture.port, "POST", "/api/billing/webhook").json(&body);
                let reply = request.header("gateway-access-token", GATEWAY_TOKEN).send();
                (format!("POST /api/billing/webhook {body}"), reply)
            }
            Ask::News { waba, template, event } => self.news(waba, template, event),
        };
        let told = format!("{line}\n      {} {}", reply.status, reply.text);
        let judged = self.judge(&exchange.expected, &reply);
        (told, judged)
    }

    fn call(&mut self, call: &Call) -> (String, Reply) {
        let path = self.fill(&call.path);
        let mut request = self.request(call.who, call.method, &path);
        match call.who {
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
            _ => request = request.header("X-Account-Id", &self.fill(&format!("<account:{}>", call.account))),
        }
        let mut line = format!("{} {path}", call.method);
        if let Some(body) = &call.body {
            let body = self.filled(body);
            line = format!("{line} {body}");
            request = request.json(&body);
        }
        let reply = request.send();
        if call.who == ROOT {
            self.keep_cookies(&reply);
        }
        (line, reply)
    }

    fn keep_cookies(&mut self, reply: &Reply) {
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

    /// The platform changes its mind, and says so at once, rightly signed.
    fn news(&self, waba: &str, template: &str, event: &str) -> (String, Reply) {
        let (waba, id) = (self.fill(waba), self.fill(template));
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
        (format!("news of {id}: {event}"), request.send())
    }

    fn judge(&mut self, expected: &Expected, reply: &Reply) -> Result<(), String> {
        if reply.status != expected.status {
            return Err(format!("the model says {} {}", expected.status, expected.code));
        }
        if reply.text.is_empty() || expected.body.is_null() && expected.code.is_empty() {
            return Ok(());
        }
        let answered = reply.json();
        if !expected.code.is_empty() {
            return refusal(expected, &answered["error"]);
        }
        self.matches(&expected.body, &answered)
    }

    /// Whether an answer holds what it has to; names that stand for nothing yet stand for what is there.
    fn matches(&mut self, expected: &Value, answered: &Value) -> Result<(), String> {
        let other = || Err(format!("the model says {expected} instead of {answered}"));
        match (expected, answered) {
            (Value::Object(fields), _) if fields.contains_key("$set") => {
                let (wanted, found) = (fields["$set"].as_array().unwrap(), answered.as_array());
                let Some(found) = found.filter(|found| found.len() == wanted.len()) else {
                    return other();
                };
                let is_there = |one: &Value| found.iter().any(|item| self.matches(one, item).is_ok());
                if wanted.iter().all(is_there) { Ok(()) } else { other() }
            }
            (Value::Object(fields), Value::Object(found)) => {
                let absent = Value::String("absent".to_owned());
                fields.iter().try_for_each(|(name, value)| {
                    let found = found.get(name).unwrap_or(&absent);
                    self.matches(value, found).map_err(|wrong| format!("{name}: {wrong}"))
                })
            }
            (Value::Array(items), Value::Array(found)) if items.len() == found.len() => {
                let mut pairs = items.iter().zip(found);
                pairs.try_for_each(|(item, found)| self.matches(item, found))
            }
            (Value::String(text), Value::String(found)) => match self.stands_for(text, found) {
                true => Ok(()),
                false => Err(format!(
                    "the model says {text} ({}) instead of {found}",
                    self.fill(text)
                )),
            },
            (expected, answered) if expected == answered => Ok(()),
            _ => other(),
        }
    }

    /// A name that stands for nothing yet stands for what nothing else is called.
    fn stands_for(&mut self, text: &str, found: &str) -> bool {
        let name = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
        match name.filter(|name| !self.known.contains_key(*name) && !name.contains('<')) {
            None => text == "*" || self.fill(text) == found,
            Some(name) => {
                let is_new = self.known.values().all(|value| value != found);
                self.known.insert(name.to_owned(), found.to_owned());
                is_new
            }
        }
    }
}

/// Whether a refusal is the one that was expected.
fn refusal(expected: &Expected, error: &Value) -> Result<(), String> {
    if error["code"] != expected.code {
        return Err(format!("the model says {}", expected.code));
    }
    let named = error["details"]["fields"].as_object();
    let named: Vec<&str> = named
        .into_iter()
        .flat_map(|fields| fields.keys())
        .map(String::as_str)
        .collect();
    match expected.fields.is_empty() || named == expected.fields {
        true => Ok(()),
        false => Err(format!("the model blames {:?}", expected.fields)),
    }
}
