//! Conditional writes: `If-Match` of PUT and DELETE.

use std::thread;

use recado_api::routes::{RouteSpec, TABLE, row_read};
use serde_json::{Value, json};

use crate::harness::client::Reply;
use crate::harness::users::User;
use crate::harness::{Server, text};
use crate::matrix::{create_resources, is_account, label, resource_path};

fn conditional() -> impl Iterator<Item = &'static RouteSpec> {
    TABLE.iter().filter(|spec| row_read(spec).is_some())
}

fn etag(reply: &Reply) -> String {
    reply.header("etag").map(str::to_owned).unwrap_or_default()
}

fn put_if(user: &User<'_>, path: &str, tags: &str, body: &Value) -> Reply {
    user.request("PUT", path).header("If-Match", tags).json(body).send()
}

#[test]
fn other_entity_tag_is_refused_and_changes_nothing() {
    let server = Server::new();
    let ana = server.owner();
    let resources = create_resources(&ana);
    let mut seen = 0;
    for spec in conditional().filter(|spec| is_account(spec)) {
        let path = resource_path(spec, &resources);
        let before = ana.get(&path);
        for tags in ["\"x\"", &format!("W/{}", etag(&before)), ""] {
            let request = ana.request(spec.method.as_str(), &path).header("If-Match", tags);
            let reply = request.json(&json!({})).send();
            assert_eq!(etag(&reply), etag(&before), "{}", label(spec));
            let error = reply.refused(412, "PRECONDITION_FAILED");
            assert_eq!(error["details"]["etag"], etag(&before), "{}", label(spec));
        }
        assert_eq!(etag(&ana.get(&path)), etag(&before), "{}", label(spec));
        if spec.path.contains("{id}") {
            let missing = spec.path.replace("{id}", "0190a1b2-0000-7000-8000-000000000000");
            let request = ana.request(spec.method.as_str(), &missing).header("If-Match", "\"x\"");
            request.json(&json!({ "name": "x" })).send().refused(404, "NOT_FOUND");
        }
        seen += 1;
    }
    assert!(seen >= 14, "{seen}");
}

/// A valid change of the row of each PUT.
const CHANGES: &[(&str, &str)] = &[
    ("/api/brand-context", r#"{ "company_name": "Loja" }"#),
    ("/api/retention", r#"{ "messages_days": 400 }"#),
    ("/api/settings", r#"{ "hold_at_most_hours": 5 }"#),
    ("/api/contacts/{id}", r#"{ "name": "Outro" }"#),
    ("/api/segments/{id}", r#"{ "name": "Outro" }"#),
    ("/api/templates/{id}", r#"{ "body_text": "Outro" }"#),
    ("/api/whatsapp/profiles/{id}", r#"{ "name": "Outro" }"#),
    ("/api/webhooks/{id}", r#"{ "name": "Outro" }"#),
    ("/api/campaigns/{id}", r#"{ "name": "Outro" }"#),
];

#[test]
fn put_returns_the_new_entity_tag() {
    let server = Server::new();
    let ana = server.owner();
    let resources = create_resources(&ana);
    for spec in conditional().filter(|spec| is_account(spec) && spec.method == "PUT") {
        let path = resource_path(spec, &resources);
        let Some((_, change)) = CHANGES.iter().find(|(path, _)| *path == spec.path) else {
            // A change of the plan needs a payment.
            assert_eq!(spec.path, "/api/billing/subscription");
            continue;
        };
        let change: Value = serde_json::from_str(change).unwrap();
        let before = etag(&ana.get(&path));
        let changed = put_if(&ana, &path, &format!("\"x\", {before}"), &change);
        let new = etag(&changed);
        changed.ok();
        assert_ne!(new, before, "{}", label(spec));
        assert_eq!(etag(&ana.get(&path)), new, "{}", label(spec));
        put_if(&ana, &path, &before, &change).refused(412, "PRECONDITION_FAILED");
        put_if(&ana, &path, &format!("{}-gzip\"", new.trim_end_matches('"')), &change).ok();
        put_if(&ana, &path, "*", &change).ok();
    }
}

#[test]
fn one_of_many_writes_with_one_entity_tag_is_applied() {
    let server = Server::new();
    let ana = server.owner();
    let path = format!("/api/contacts/{}", ana.contact("Ana", "+5511961111111"));
    let tag = etag(&ana.get(&path));
    let version = || {
        server
            .db
            .count("FROM (SELECT generate_series(1, version) FROM contacts) v")
    };
    let before = version();
    let replies: Vec<Reply> = thread::scope(|scope| {
        let write = |number: usize| {
            let request = ana.request("PUT", &path).header("If-Match", &tag);
            let request = request.json(&json!({ "name": format!("Ana {number}") }));
            scope.spawn(move || request.send())
        };
        let writes: Vec<_> = (0..20).map(write).collect();
        writes.into_iter().map(|write| write.join().unwrap()).collect()
    });
    let mut names = vec![];
    for reply in replies {
        match reply.status {
            200 => names.push(text(&reply.ok()["name"])),
            _ => drop(reply.refused(412, "PRECONDITION_FAILED")),
        }
    }
    assert_eq!(names, [text(&ana.get(&path).ok()["name"])]);
    assert_eq!(version(), before + 1);
}

#[test]
fn conditional_deletion_checks_the_tag() {
    let server = Server::new();
    let ana = server.owner();
    let path = format!("/api/contacts/{}", ana.contact("Ana", "+5511961111111"));
    let tag = etag(&ana.get(&path));
    ana.put(&path, json!({ "name": "Bia" })).ok();
    let delete = |tag: &str| ana.request("DELETE", &path).header("If-Match", tag).send();
    delete(&tag).refused(412, "PRECONDITION_FAILED");
    let tag = etag(&ana.get(&path));
    assert_eq!(delete(&tag).status, 204);
    delete(&tag).refused(404, "NOT_FOUND");
    delete("*").refused(404, "NOT_FOUND");
}

#[test]
fn administrators_write_conditionally() {
    let server = Server::new();
    let (ana, admin) = (server.owner(), server.root());
    let path = format!("/api/admin/accounts/{}", ana.account);
    let tag = etag(&admin.get(&path));
    assert_ne!(tag, "");
    put_if(&admin, &path, "\"x\"", &json!({ "name": "Outra" })).refused(412, "PRECONDITION_FAILED");
    let changed = put_if(&admin, &path, &tag, &json!({ "name": "Outra" }));
    let new = etag(&changed);
    changed.ok();
    assert_eq!(etag(&admin.get(&path)), new);
}
