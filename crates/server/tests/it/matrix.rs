//! The hostile matrix: calls every route with every credential and body that must be refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use recado_api::reference::document;
use recado_api::routes::{Access, RouteSpec, TABLE};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::contact_exports::finished_export;
use crate::erasures::finished_erasure;
use crate::harness::client::{Reply, Request};
use crate::harness::media;
use crate::harness::users::User;
use crate::harness::{Options, Server, eventually, text, until};
use crate::{api_keys, invites};

/// A valid input of a route.
pub enum RouteInput {
    Nothing,
    /// A query whose resource does not exist.
    Query(&'static str),
    /// A query that the route requires.
    RequiredQuery(&'static str),
    Json(&'static str),
    /// A JSON body that the route reads and refuses with 422.
    Refused(&'static str),
    Csv,
    /// A rate card as CSV.
    RateCard,
    Form,
    /// A public route, and the status of a call without credentials.
    Public(u16),
}

use RouteInput::{Csv, Form, Json, Nothing, Public, Query, RateCard, Refused, RequiredQuery};

/// The inputs that do not follow from the API reference: the status of a public route, a query, a body without a JSON
/// example, and bodies in place of an example that names missing ids or addresses or would change the caller's rights.
const ROWS: &[(&str, &str, RouteInput)] = &[
    ("GET", "/healthz", Public(200)),
    ("GET", "/readyz", Public(200)),
    ("GET", "/api/openapi.json", Public(200)),
    ("GET", "/docs", Public(200)),
    ("GET", "/docs/{file}", Public(404)),
    (
        "POST",
        "/api/accounts/switch",
        Json(r#"{"account_id":"0190a1b2-0000-7000-8000-000000000000"}"#),
    ),
    ("PUT", "/api/team/members/{id}", Json(r#"{"role":"viewer"}"#)),
    ("POST", "/api/api-keys", Json(r#"{"name":"CI"}"#)),
    ("PUT", "/api/api-keys/{id}", Json(r#"{"name":"Changed"}"#)),
    ("GET", "/api/billing/plans", Public(200)),
    ("GET", "/api/billing/payment-status", Query("payment_id=pay_0")),
    ("POST", "/api/billing/webhook", Public(401)),
    ("PUT", "/api/brand-context", Json(r#"{"company_name":"Changed"}"#)),
    (
        "POST",
        "/api/brand-context/scrape",
        Refused(r#"{"url":"http://10.0.0.1/"}"#),
    ),
    (
        "POST",
        "/api/contacts",
        Json(r#"{"name":"Ana","phone":"+5511961234567"}"#),
    ),
    (
        "POST",
        "/api/campaigns/{id}/test",
        Json(r#"{"phone":"+5511961234567"}"#),
    ),
    ("POST", "/api/contacts/import", Csv),
    ("PUT", "/api/contacts/{id}", Json(r#"{"name":"Changed"}"#)),
    ("PUT", "/api/contacts/{id}/tags", Json(r#"{"tag_ids":[]}"#)),
    (
        "POST",
        "/api/messages",
        Refused(r#"{"to":{"phone":"+5511961234567"},"template":{"id":"0190a1b2-0000-7000-8000-000000000000"}}"#),
    ),
    ("POST", "/api/messages/batch", Json(r#"{"messages":[{}]}"#)),
    ("POST", "/api/segments", Json(r#"{"name":"VIP"}"#)),
    (
        "POST",
        "/api/segments/preview",
        Json(r#"{"filters":{"has_email":true}}"#),
    ),
    ("PUT", "/api/segments/{id}", Json(r#"{"name":"Changed"}"#)),
    ("POST", "/api/segments/{id}/members", Json(r#"{"contact_ids":[]}"#)),
    ("DELETE", "/api/segments/{id}/members", Json(r#"{"contact_ids":[]}"#)),
    (
        "POST",
        "/api/templates",
        Json(r#"{"name":"t","category":"UTILITY","language":"pt","template_type":"standard"}"#),
    ),
    ("POST", "/api/templates/media/upload", Form),
    ("POST", "/api/media", Form),
    ("GET", "/media/{account}/{file}", Public(404)),
    ("PUT", "/api/settings", Json(r#"{"hold_at_most_hours":24}"#)),
    ("PUT", "/api/templates/{id}", Json(r#"{"footer_text":"Changed"}"#)),
    (
        "POST",
        "/api/whatsapp/profiles",
        Json(r#"{"name":"n","phone_number_id":"77","waba_id":"88","access_token":"t"}"#),
    ),
    ("PUT", "/api/whatsapp/profiles/{id}", Json(r#"{"name":"Changed"}"#)),
    ("GET", "/api/whatsapp/webhook", Public(403)),
    ("POST", "/api/whatsapp/webhook", Public(401)),
    ("POST", "/api/hooks/{id}", Public(404)),
    ("GET", "/api/webhooks/event-types", Public(200)),
    (
        "POST",
        "/api/webhooks",
        Json(r#"{"name":"CI","url":"https://e.example","events":["test.ping"]}"#),
    ),
    ("PUT", "/api/webhooks/{id}", Json(r#"{"name":"Changed"}"#)),
    (
        "POST",
        "/api/webhooks/{id}/recover",
        Json(r#"{"since":"2026-01-01T00:00:00Z"}"#),
    ),
    ("POST", "/api/campaigns", Json(r#"{"name":"Oferta"}"#)),
    ("PUT", "/api/campaigns/{id}", Json(r#"{"name":"Changed"}"#)),
    (
        "POST",
        "/api/events",
        Json(r#"{"events":[{"metric_name":"visit","contact_phone":"11961234567","source":"site"}]}"#),
    ),
    (
        "POST",
        "/api/orders",
        Json(
            r#"{"orders":[{"external_id":"1","platform":"loja","status":"pending","total":1,"items":[],
                "placed_at":"2026-03-01T12:00:00Z"}]}"#,
        ),
    ),
    (
        "POST",
        "/api/carts",
        Json(
            r#"{"carts":[{"external_id":"1","platform":"loja","status":"open","total":1,
                "created_at":"2026-03-01T12:00:00Z"}]}"#,
        ),
    ),
    (
        "POST",
        "/api/links",
        Json(r#"{"original_url":"https://loja.example/"}"#),
    ),
    ("GET", "/r/{code}", Public(404)),
    (
        "POST",
        "/api/automations/{id}/executions",
        Json(
            r#"{"executions":[{"status":"completed","started_at":"2026-03-01T12:00:00Z",
                "finished_at":"2026-03-01T12:00:01Z"}]}"#,
        ),
    ),
    // The campaign is not archived.
    ("GET", "/api/campaigns/{id}/archive", Query("limit=10")),
    ("GET", "/api/analytics/export", RequiredQuery("type=messages")),
    ("GET", "/api/analytics/metrics/{name}", Query("period=7d")),
    ("GET", "/api/analytics/metrics/{name}/top-contacts", Query("limit=10")),
    ("GET", "/api/analytics/metrics/{name}/activity", Query("limit=10")),
    ("POST", "/api/admin/rate-cards", RateCard),
    ("POST", "/api/admin/accounts", Json(r#"{"name":"Loja"}"#)),
    ("PUT", "/api/admin/accounts/{id}", Json(r#"{"name":"Changed"}"#)),
    (
        "POST",
        "/api/admin/accounts/{id}/action",
        Json(r#"{"action":"reactivate"}"#),
    ),
];

static DOCUMENT: LazyLock<Value> = LazyLock::new(document);

/// The documented operation of a route.
fn operation(spec: &RouteSpec) -> &'static Value {
    &DOCUMENT["paths"][spec.path][spec.method.as_str().to_ascii_lowercase()]
}

/// The input of a route: its row, or else the example of its documentation. An optional body is an empty object.
pub fn row(spec: &RouteSpec) -> &'static RouteInput {
    static INPUTS: LazyLock<Vec<&RouteInput>> = LazyLock::new(|| {
        let input = |spec| own_row(spec).unwrap_or_else(|| Box::leak(Box::new(example(spec))));
        TABLE.iter().map(input).collect()
    });
    INPUTS[TABLE.iter().position(|other| std::ptr::eq(other, spec)).unwrap()]
}

fn own_row(spec: &RouteSpec) -> Option<&'static RouteInput> {
    let mut rows = ROWS.iter();
    let row = rows.find(|(method, path, _)| (*method, *path) == (spec.method.as_str(), spec.path));
    row.map(|(_, _, input)| input)
}

fn example(spec: &RouteSpec) -> RouteInput {
    let body = &operation(spec)["requestBody"];
    match &body["content"]["application/json"]["example"] {
        Value::Null if body.is_null() => Nothing,
        Value::Null => panic!("{} needs a row: its body has no JSON example", label(spec)),
        _ if body["required"] == false => Json("{}"),
        example => Json(example.to_string().leak()),
    }
}

pub fn with_body(request: Request, input: &RouteInput) -> Request {
    match input {
        Nothing | Public(_) => request,
        Query(query) | RequiredQuery(query) => request.query(query),
        Json(body) | Refused(body) => request.body("application/json", *body),
        Csv => request.body("text/csv", "name,phone\nAna,+5511961234567\n"),
        RateCard => request.query("name=Tarifas").body(
            "text/csv",
            "market,currency,category,rate,effective_from\nBR,USD,utility,0.008,2026-01-01\n",
        ),
        Form => request.body(media::FORM, media::form(&[("file", "a.png", media::PNG)])),
    }
}

pub fn is_account(spec: &RouteSpec) -> bool {
    matches!(spec.access, Access::Read | Access::Write | Access::Manage)
}

/// Creates one resource of each kind that has an id. Returns each id with the path prefix of its routes.
fn media_file(owner: &User<'_>) -> String {
    let body = media::form(&[("file", "a.txt", b"texto")]);
    let request = owner.request("POST", "/api/media").body(media::FORM, body);
    text(&request.send().created()["id"])
}

pub fn create_resources(owner: &User<'_>) -> Vec<(&'static str, String)> {
    let profile = owner.profile();
    // WhatsApp's response about the health is cached for a minute, so that later requests store nothing.
    owner.get(&format!("/api/whatsapp/profiles/{profile}/health")).ok();
    let contact = owner.contact("Contato", "+5511961111111");
    let segment = text(&owner.post("/api/segments", json!({ "name": "Meu" })).created()["id"]);
    let members = json!({ "contact_ids": [contact] });
    owner.post(&format!("/api/segments/{segment}/members"), members).ok();
    let folder = json!({ "name": "Minha", "kind": "campaign" });
    let resources = vec![
        (
            "/api/api-keys/",
            text(&api_keys::create_key_response(owner, "Chave")["id"]),
        ),
        ("/api/exports/", export(owner, &contact)),
        ("/api/erasures/", finished_erasure(owner)),
        ("/api/contacts/", contact),
        ("/api/segments/", segment),
        (
            "/api/folders/",
            text(&owner.post("/api/folders", folder).created()["id"]),
        ),
        ("/api/conversations/", conversation(owner)),
        ("/api/messages/", cancelled_message(owner)),
        ("/api/media/", media_file(owner)),
        ("/api/notifications/", notification(owner)),
        ("/api/tags/", owner.tag("rótulo")),
        ("/api/templates/", owner.template("own", "Oi", &[])),
        ("/api/whatsapp/profiles/", profile),
        ("/api/webhooks/logs/", webhook_log(owner)),
        ("/api/webhooks/", webhook(owner)),
        ("/api/campaigns/", owner.campaign(json!({ "name": "Minha" }))),
        ("/api/automations/", automation(owner)),
        (
            "/api/team/members/",
            owner.server.member(&owner.account, "admin").id.to_string(),
        ),
        (
            "/api/team/invites/",
            invites::create_invite_id(owner, "caio@example.com"),
        ),
    ];
    owner.server.db.wait_for_outbox();
    resources
}

/// Requests an export, waits for its file, and returns its id.
fn export(owner: &User<'_>, contact: &str) -> String {
    let path = finished_export(owner, contact);
    path.trim_start_matches("/api/exports/").to_owned()
}

/// Inserts a conversation with one inbound message, and returns its id.
fn conversation(owner: &User<'_>) -> String {
    let (account, id) = (&owner.account, Uuid::now_v7());
    let contact = owner.contact("Conversa", "+5511962222222");
    owner.server.db.run(&format!(
        "INSERT INTO conversations (account_id, id, contact_id, last_message_at, last_inbound_at)
           VALUES ('{account}', '{id}', '{contact}', now(), now());
         INSERT INTO messages (account_id, id, conversation_id, direction, type, text, status, created_at)
           VALUES ('{account}', '{id}', '{id}', 'inbound', 'text', 'oi', 'received', now())"
    ));
    id.to_string()
}

/// Makes a message, which is cancelled so that no worker changes it, and returns its id.
fn cancelled_message(owner: &User<'_>) -> String {
    let contact = owner.contact("Mensagem", "+5511963333333");
    let (account, id, user) = (&owner.account, Uuid::now_v7(), owner.id);
    owner.server.db.run(&format!(
        "INSERT INTO direct_messages (account_id, id, contact_id, profile_id, kind, request, status, send_at, expires_at,
           created_by, created_at, updated_at)
         VALUES ('{account}', '{id}', '{contact}', '{nil}', 'text', '{{}}', 'cancelled', now(), now(), '{user}', now(),
           now())",
        nil = Uuid::nil()
    ));
    id.to_string()
}

/// Creates an automation, one item of each ingestion route, and a clicked link. Returns the automation's id.
fn automation(owner: &User<'_>) -> String {
    let automation = json!({ "name": "Boas-vindas", "status": "active" });
    let id = text(&owner.post("/api/automations", automation).created()["id"]);
    let recorded = [
        (
            "/api/orders",
            json!({ "orders": [{ "external_id": "1", "platform": "loja", "status": "paid", "total": 10,
            "items": [{ "product_id": "1", "name": "Bolo", "quantity": 1, "price": 10 }],
            "automation_id": id, "placed_at": "2026-03-01T12:00:00Z" }] }),
        ),
        (
            "/api/carts",
            json!({ "carts": [{ "external_id": "1", "platform": "loja", "status": "open", "total": 1,
            "created_at": "2026-03-01T12:00:00Z" }] }),
        ),
        (
            "/api/ad-spend",
            json!({ "entries": [{ "date": "2026-03-01", "source": "meta", "amount": 1 }] }),
        ),
        (
            "/api/events",
            json!({ "events": [{ "metric_name": "visit", "contact_phone": "+5511962222222",
            "source": "site", "value": 1 }] }),
        ),
    ];
    for (path, body) in recorded {
        assert_eq!(owner.post(path, body).ok()["accepted"], 1, "{path}");
    }
    let link = owner
        .post("/api/links", json!({ "original_url": "https://loja.example/" }))
        .created();
    let path = format!("/r/{}", text(&link["short_code"]));
    assert_eq!(owner.server.request("GET", &path).response_head().0, 302);
    // The click is stored after its response.
    let clicks = format!("FROM link_rollups WHERE link_id = '{}'", text(&link["id"]));
    until("the click is written", || owner.server.db.count(&clicks) > 0);
    id
}

/// Creates an endpoint that only subscribes to test pings, and returns its id.
fn webhook(owner: &User<'_>) -> String {
    let body = json!({ "name": "Meu", "url": "https://e.example", "events": ["test.ping"] });
    text(&owner.post("/api/webhooks", body).created()["id"])
}

fn webhook_log(owner: &User<'_>) -> String {
    let (account, id) = (&owner.account, Uuid::now_v7());
    owner.server.db.run(&format!(
        "INSERT INTO webhook_logs (account_id, id, endpoint_id, direction, event_type, message_id, payload)
         VALUES ('{account}', '{id}', '{id}', 'inbound', 'order.recorded', 'm', '{{}}')"
    ));
    id.to_string()
}

fn notification(owner: &User<'_>) -> String {
    let (account, id) = (&owner.account, Uuid::now_v7());
    owner.server.db.run(&format!(
        "INSERT INTO notifications (account_id, id, type, title, message) VALUES ('{account}', '{id}', 'info', 't', 'm')"
    ));
    id.to_string()
}

/// All rows of an account, except tables that workers or reads change.
pub fn dump(owner: &User<'_>) -> BTreeMap<String, String> {
    let mut dump = owner.server.db.dump_account(&owner.account);
    for table in ["notifications", "outbox_events", "outgoing_mail", "rfm_calculations"] {
        dump.remove(table).unwrap();
    }
    dump
}

/// Whether the request passed the access check.
pub fn is_admitted(spec: &RouteSpec, reply: &Reply) -> bool {
    match row(spec) {
        Refused(_) => reply.status == 422,
        _ => [200, 201, 204, 404].contains(&reply.status),
    }
}

pub fn label(spec: &RouteSpec) -> String {
    format!("{} {}", spec.method, spec.path)
}

#[test]
fn every_matrix_row_is_a_route() {
    for (method, path, _) in ROWS {
        let found = TABLE
            .iter()
            .any(|spec| (spec.method.as_str(), spec.path) == (*method, *path));
        assert!(found, "{method} {path}");
    }
    let routes: BTreeSet<_> = ROWS.iter().map(|(method, path, _)| (method, path)).collect();
    assert_eq!(routes.len(), ROWS.len(), "a route has two rows");
}

#[test]
fn request_without_session_reaches_only_public_routes() {
    let server = Server::new();
    for spec in TABLE {
        let path = spec.path.replace("{id}", &Uuid::now_v7().to_string());
        let reply = with_body(server.request(spec.method.as_str(), &path), row(spec)).send();
        match (spec.access, row(spec)) {
            (Access::Public, Public(status)) => assert_eq!(reply.status, *status, "{}", label(spec)),
            (Access::Public, _) => panic!("{} is public: its row must be `Public`", label(spec)),
            (_, Public(_)) => panic!("{} is not public: its row must not be `Public`", label(spec)),
            _ => drop(reply.refused(401, "AUTH_ERROR")),
        }
        // The session is checked before path and body are read.
        if spec.access != Access::Public {
            let path = spec.path.replace("{id}", "7");
            let junk = server
                .request(spec.method.as_str(), &path)
                .body("text/plain", "junk")
                .send();
            junk.refused(401, "AUTH_ERROR");
        }
    }
}

#[test]
fn viewer_reads_but_cannot_write() {
    let server = Server::new();
    let ana = server.owner();
    let resources = create_resources(&ana);
    let viewer = server.member(&ana.account, "viewer");
    let before = dump(&ana);
    for spec in TABLE.iter().filter(|spec| is_account(spec)) {
        let path = resource_path(spec, &resources);
        let reply = with_body(viewer.request(spec.method.as_str(), &path), row(spec)).send();
        match spec.access {
            Access::Write | Access::Manage => drop(reply.refused(401, "AUTH_ERROR")),
            _ if matches!(row(spec), Query(_)) => drop(reply.refused(404, "NOT_FOUND")),
            // Marking as read counts as reading.
            _ => assert!([200, 204].contains(&reply.status), "{}: {}", label(spec), reply.text),
        }
    }
    assert_eq!(dump(&ana), before);
}

#[test]
fn admin_and_member_reach_their_routes() {
    let server = Server::new();
    for role in ["admin", "member"] {
        let ana = server.owner();
        ana.profile();
        let user = server.member(&ana.account, role);
        for spec in TABLE.iter().filter(|spec| is_account(spec)) {
            let path = spec.path.replace("{id}", &Uuid::now_v7().to_string());
            let reply = with_body(user.request(spec.method.as_str(), &path), row(spec)).send();
            if spec.access == Access::Manage && role == "member" {
                reply.refused(401, "AUTH_ERROR");
                continue;
            }
            assert!(is_admitted(spec, &reply), "{}: {}", label(spec), reply.text);
        }
    }
}

#[test]
fn suspended_account_and_outsider_are_refused() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let resources = create_resources(&ana);
    let key = api_keys::create_key(&ana);
    ana.server.db.wait_for_outbox();
    let before = dump(&ana);
    for spec in TABLE.iter().filter(|spec| is_account(spec)) {
        let request = bia.request(spec.method.as_str(), &resource_path(spec, &resources));
        let outsider = with_body(request.header("X-Account-Id", &ana.account), row(spec)).send();
        outsider.refused(401, "AUTH_ERROR");
    }
    server.db.run(&format!(
        "UPDATE accounts SET status = 'suspended' WHERE id = '{}'",
        ana.account
    ));
    eventually("the account is closed", || {
        (ana.get("/api/contacts").status == 401).then_some(())
    });
    for spec in TABLE.iter().filter(|spec| is_account(spec)) {
        let path = resource_path(spec, &resources);
        for credential in [&ana.token, &key] {
            let request = server.request(spec.method.as_str(), &path).bearer(credential);
            let error = with_body(request, row(spec)).send().refused(401, "AUTH_ERROR");
            assert!(
                error["message"].as_str().unwrap().contains("suspended"),
                "{}: {error}",
                label(spec)
            );
        }
    }
    assert_eq!(dump(&ana), before);
}

#[test]
fn api_key_reaches_only_account_routes() {
    let server = Server::new();
    let ana = server.owner();
    let key = api_keys::create_key(&ana);
    ana.profile();
    for spec in TABLE.iter().filter(|spec| spec.access != Access::Public) {
        let path = spec.path.replace("{id}", &Uuid::now_v7().to_string());
        let reply = with_body(server.request(spec.method.as_str(), &path).bearer(&key), row(spec)).send();
        match spec.access {
            Access::Session | Access::Manage | Access::Administrator => drop(reply.refused(401, "AUTH_ERROR")),
            _ => assert!(is_admitted(spec, &reply), "{}: {}", label(spec), reply.text),
        }
    }
}

#[test]
fn another_accounts_id_is_not_found() {
    let server = Server::new();
    let bia = server.owner();
    let resources = create_resources(&bia);
    let before = dump(&bia);
    let with_id = TABLE
        .iter()
        .filter(|spec| is_account(spec) && spec.path.contains("{id}"));
    let mut seen = 0;
    for spec in with_id {
        // A new account for each route, so that no rate limit applies.
        let ana = server.owner();
        let call = |path: &str| with_body(ana.request(spec.method.as_str(), path), row(spec)).send();
        let foreign = call(&resource_path(spec, &resources));
        let unknown = call(&spec.path.replace("{id}", &Uuid::now_v7().to_string()));
        assert_eq!(foreign.text, unknown.text, "{}", label(spec));
        foreign.refused(404, "NOT_FOUND");
        unknown.refused(404, "NOT_FOUND");
        seen += 1;
    }
    assert!(seen >= 54, "{seen}");
    assert_eq!(dump(&bia), before);
}

#[test]
fn malformed_path_id_is_invalid() {
    let server = Server::new();
    let (ana, root) = (server.owner(), server.root());
    for spec in TABLE.iter().filter(|spec| spec.path.contains("{id}")) {
        let caller = if spec.access == Access::Administrator {
            &root
        } else {
            &ana
        };
        for id in ["7", "not-a-uuid", "0190a1b2-0000-7000-8000-00000000000g", "%00"] {
            let path = spec.path.replace("{id}", id);
            let reply = with_body(caller.request(spec.method.as_str(), &path), row(spec)).send();
            if reply.status == 429 && spec.rate.is_some() {
                continue;
            }
            assert_eq!(reply.invalid(), ["id"], "{} {id}", label(spec));
        }
    }
}

#[test]
fn malformed_body_is_refused_by_every_route() {
    let server = Server::new();
    let (ana, root) = (server.owner(), server.root());
    let mut resources = create_resources(&ana);
    resources.push(("/api/admin/accounts/", ana.account.clone()));
    let before = dump(&ana);
    for spec in TABLE {
        let caller = if spec.access == Access::Administrator {
            &root
        } else {
            &ana
        };
        let call = |media_type: &str, body: &str| -> Reply {
            let request = caller.request(spec.method.as_str(), &resource_path(spec, &resources));
            request.body(media_type, body).send()
        };
        match row(spec) {
            Json(_) | Refused(_) => {
                assert_eq!(
                    call("application/json", "{\"name\":").invalid(),
                    ["body"],
                    "{}",
                    label(spec)
                );
                // The error message stays short for a large invalid value.
                let quoted = call("application/json", &Value::from("\u{301}".repeat(400_000)).to_string());
                assert!(quoted.text.len() < 1000, "{}: {}", label(spec), quoted.text.len());
                assert_eq!(quoted.invalid(), ["body"], "{}", label(spec));
                // An array is not accepted as an object with fields in order.
                assert_eq!(
                    call("application/json", " [\"Loja\"]").invalid(),
                    ["body"],
                    "{}",
                    label(spec)
                );
                call("text/plain", "{}").refused(415, "UNSUPPORTED_MEDIA_TYPE");
                let huge = format!("{{\"x\":\"{}\"}}", "a".repeat(1024 * 1024));
                call("application/json", &huge).refused(413, "PAYLOAD_TOO_LARGE");
            }
            Csv | RateCard => {
                assert_eq!(call("text/csv", "").status, 422, "{}", label(spec));
                call("application/json", "{}").refused(415, "UNSUPPORTED_MEDIA_TYPE");
            }
            Form => {
                assert_eq!(call(media::FORM, "").status, 422, "{}", label(spec));
                call("application/json", "{}").refused(415, "UNSUPPORTED_MEDIA_TYPE");
            }
            Nothing | Query(_) | RequiredQuery(_) | Public(_) => {}
        }
    }
    assert_eq!(dump(&ana), before);
}

#[test]
fn field_of_wrong_type_is_named_by_every_route() {
    // A value of the wrong type is reported for its field, never as a 500. Without a reachable Redis the rate limiter
    // admits every request.
    let server = Server::start(Options::default().with("REDIS_URL", "redis://127.0.0.1:1"));
    let (ana, root) = (server.owner(), server.root());
    let mut tried = 0;
    for spec in TABLE
        .iter()
        .filter(|spec| (spec.method == "POST" || spec.method == "PUT") && spec.access != Access::Public)
    {
        let caller = if spec.access == Access::Administrator {
            &root
        } else {
            &ana
        };
        let path = spec.path.replace("{id}", "0190a1b2-0000-7000-8000-000000000000");
        let fields = body_fields(spec);
        let has_body = !operation(spec)["requestBody"]["content"]["application/json"].is_null();
        assert_eq!(has_body, !fields.is_empty(), "{}", label(spec));
        for (name, schema) in fields {
            for wrong in [json!(true), json!(-1.5e300)] {
                if wrong == true && schema["type"].to_string().contains("boolean") {
                    continue;
                }
                let request = caller.request(spec.method.as_str(), &path);
                let invalid = request.json(&json!({ name: wrong })).send().invalid();
                assert!(invalid.contains(name), "{path} {name} {wrong}: {invalid:?}");
                tried += 1;
            }
        }
    }
    assert!(tried >= 100, "{tried}");
}

/// The documented fields of a route's JSON body with their schemas.
pub fn body_fields(spec: &RouteSpec) -> BTreeMap<&'static String, &'static Value> {
    let schema = &operation(spec)["requestBody"]["content"]["application/json"]["schema"];
    let parts = schema["allOf"]
        .as_array()
        .map_or(std::slice::from_ref(schema), Vec::as_slice);
    let objects = parts.iter().map(|part| match part["$ref"].as_str() {
        Some(name) => DOCUMENT.pointer(name.trim_start_matches('#')).unwrap(),
        None => part,
    });
    let properties = objects.filter_map(|object| object["properties"].as_object());
    properties.flatten().collect()
}

/// The route's path with the id of the resource of its kind.
pub fn resource_path(spec: &RouteSpec, resources: &[(&'static str, String)]) -> String {
    if !spec.path.contains("{id}") {
        return spec.path.to_owned();
    }
    let found = resources.iter().find(|(prefix, _)| spec.path.starts_with(prefix));
    let Some((_, id)) = found else {
        panic!("{}: no resource has this path prefix", label(spec))
    };
    spec.path.replace("{id}", id)
}
