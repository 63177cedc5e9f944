//! The hostile matrix multiplied by scopes: every route for accounts with a key of every single scope. The expected
//! answers are written from the published table of scopes, not from the server's route table.

use std::collections::BTreeSet;

use recado_api::routes::{Access, RouteSpec, TABLE};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::users::User;
use crate::harness::{Server, text};
use crate::matrix::{is_admitted, label, row, with_body};

/// The published areas, with the first path segments below `/api` that each contains.
const AREAS: [(&str, &[&str]); 15] = [
    ("contacts", &["contacts", "tags", "folders"]),
    ("segments", &["segments"]),
    ("campaigns", &["campaigns"]),
    ("messages", &["messages"]),
    ("conversations", &["conversations", "media"]),
    ("templates", &["templates"]),
    ("whatsapp", &["whatsapp"]),
    ("webhooks", &["webhooks"]),
    ("ingest", &["events", "orders", "carts", "ad-spend"]),
    ("automations", &["automations"]),
    ("links", &["links"]),
    ("analytics", &["analytics"]),
    ("brand", &["brand-context"]),
    ("notifications", &["notifications"]),
    (
        "account",
        &["team", "api-keys", "audit-logs", "billing", "settings", "retention"],
    ),
];

/// The campaign commands that need `campaigns:send` and nothing else.
const SENDS: [&str; 6] = ["execute", "send", "schedule", "resume", "retry-failed", "test"];

/// Every single scope that has no parameter.
fn scopes() -> Vec<String> {
    let mut scopes = vec!["*".to_owned(), "campaigns:send".to_owned()];
    for (area, _) in AREAS {
        // The account is read only, and nothing is read from ingestion.
        scopes.extend((area != "ingest").then(|| format!("{area}:read")));
        scopes.extend((area != "account").then(|| format!("{area}:write")));
    }
    scopes
}

/// The scope that the table requires. `None`: no key opens the route.
fn required_scope(spec: &RouteSpec) -> Option<String> {
    let verb = match spec.access {
        Access::Read => "read",
        Access::Write => "write",
        Access::Public | Access::Session | Access::Manage | Access::Administrator => return None,
    };
    let segments: Vec<&str> = spec.path.split('/').collect();
    if segments[2] == "campaigns" && segments.get(4).is_some_and(|command| SENDS.contains(command)) {
        return Some("campaigns:send".to_owned());
    }
    let found = AREAS.iter().find(|(_, first)| first.contains(&segments[2]));
    let (area, _) = found.unwrap_or_else(|| panic!("{}: no area", label(spec)));
    Some(format!("{area}:{verb}"))
}

/// Calls every route that is not public with a key of these scopes, and compares the answers with the table.
fn check_routes(owner: &User<'_>, key: &str, scope: &str) {
    // The tests of direct messages show what a key that triggers templates may do with them.
    let by_table =
        |spec: &&RouteSpec| spec.access != Access::Public && !(spec.triggers && scope.starts_with("trigger:"));
    for spec in TABLE.iter().filter(by_table) {
        let path = spec.path.replace("{id}", &Uuid::now_v7().to_string());
        let request = owner.server.request(spec.method.as_str(), &path).bearer(key);
        let reply = with_body(request, row(spec)).send();
        match required_scope(spec) {
            None => drop(reply.refused(401, "AUTH_ERROR")),
            Some(required) if scope == "*" || scope == required => {
                assert!(is_admitted(spec, &reply), "{scope}: {}: {}", label(spec), reply.text);
            }
            Some(required) => {
                assert_eq!(reply.header("x-ratelimit-limit"), None, "{scope}: {}", label(spec));
                let error = reply.refused(403, "FORBIDDEN");
                assert_eq!(
                    error["details"],
                    json!({ "required_scope": required }),
                    "{scope}: {}",
                    label(spec)
                );
            }
        }
    }
}

fn create_key(owner: &User<'_>, scope: &str) -> String {
    let made = owner
        .post("/api/api-keys", json!({ "name": "CI", "scopes": [scope] }))
        .created();
    assert_eq!(made["scopes"], json!([scope]));
    text(&made["full_key"])
}

#[test]
fn every_route_answers_every_single_scope_as_published() {
    let server = Server::new();
    let scopes = scopes();
    assert_eq!(scopes.len(), 30);
    for scope in scopes {
        // A new account for each scope, so that no rate limit and no unique value applies.
        let owner = server.owner();
        owner.profile();
        let key = create_key(&owner, &scope);
        check_routes(&owner, &key, &scope);
    }
}

#[test]
fn trigger_scope_opens_no_other_route() {
    let server = Server::new();
    let owner = server.owner();
    let template = owner.template("trigger", "Oi", &[]);
    let scope = format!("trigger:{template}");
    let key = create_key(&owner, &scope);
    check_routes(&owner, &key, &scope);
}

#[test]
fn several_scopes_open_the_union_of_their_routes() {
    let server = Server::new();
    let owner = server.owner();
    let scopes = json!(["contacts:read", "links:write"]);
    let made = owner
        .post("/api/api-keys", json!({ "name": "CI", "scopes": scopes }))
        .created();
    let key = text(&made["full_key"]);
    server.get("/api/contacts").bearer(&key).send().ok();
    let link = json!({ "original_url": "https://loja.example/" });
    server.post("/api/links").bearer(&key).json(&link).send().created();
    for (method, path, required) in [
        ("POST", "/api/contacts", "contacts:write"),
        ("GET", "/api/links", "links:read"),
        ("GET", "/api/segments", "segments:read"),
    ] {
        let error = server
            .request(method, path)
            .bearer(&key)
            .send()
            .refused(403, "FORBIDDEN");
        assert_eq!(error["details"]["required_scope"], required);
    }
}

#[test]
fn reference_names_the_scope_of_each_operation() {
    let server = Server::new();
    let document = server.get("/api/openapi.json").send().expect(200);
    let known: BTreeSet<String> = scopes().into_iter().collect();
    for spec in TABLE {
        let method = spec.method.as_str().to_ascii_lowercase();
        let documented = &document["paths"][spec.path][method]["x-scope"];
        let required = required_scope(spec);
        assert_eq!(
            *documented,
            required.clone().map_or(Value::Null, Value::from),
            "{}",
            label(spec)
        );
        assert!(required.is_none_or(|scope| known.contains(&scope)), "{}", label(spec));
    }
}
