//! The platform audit log: one entry for each change by an administrator, also after the account is gone.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::billing::{card_order, subscribe, wait_for_status};
use crate::harness::admin::{Browser, ROOT};
use crate::harness::users::User;
use crate::harness::{Server, text};

fn logs(root: &User<'_>, query: &str) -> Value {
    root.get(&format!("/api/admin/audit-logs?{query}")).ok()
}

/// The entries about the account, oldest first: action, entity type and changes.
fn entries(root: &User<'_>, account: &str) -> Vec<(String, String, Value)> {
    let page = logs(root, &format!("account_id={account}&limit=100"));
    let mut entries = page["logs"].as_array().unwrap().clone();
    assert_eq!(page["total"], json!(entries.len()));
    entries.reverse();
    let described = entries.iter().map(|entry| {
        assert_eq!(
            (&entry["account_id"], &entry["entity_id"]),
            (&json!(account), &json!(account))
        );
        assert_eq!(
            (&entry["email"], &entry["ip_address"]),
            (&json!(ROOT), &json!("127.0.0.1"))
        );
        assert_eq!(entry.as_object().unwrap().len(), 11, "{entry}");
        let texts = (text(&entry["action"]), text(&entry["entity_type"]));
        (texts.0, texts.1, entry["changes"].clone())
    });
    described.collect()
}

fn names(entries: &[(String, String, Value)]) -> Vec<String> {
    entries
        .iter()
        .map(|(action, entity, _)| format!("{action} {entity}"))
        .collect()
}

#[test]
fn every_change_of_an_administrator_leaves_one_entry() {
    let server = Server::new();
    let browser = Browser::new(server.root());
    let root = &browser.user;
    let create = root
        .request("POST", "/api/admin/accounts")
        .header("X-Request-Id", "creation-1");
    let body = json!({ "name": "Padaria Sol", "owner_email": "dona@example.com" });
    let id = text(&create.json(&body).send().created()["id"]);
    let account = format!("/api/admin/accounts/{id}");
    root.put(&account, json!({ "name": "Padaria Lua", "slug": "lua" })).ok();
    let act = |body: Value| root.post(&format!("{account}/action"), body).ok();
    act(json!({ "action": "suspend" }));
    act(json!({ "action": "reactivate" }));
    act(json!({ "action": "change_plan", "plan": "growth" }));
    browser
        .post(&format!("{account}/support"), json!({ "reason": "ticket 7" }))
        .ok();
    browser.stop().ok();
    root.delete(&account).no_content();
    root.get(&account).refused(404, "NOT_FOUND");
    let found = entries(root, &id);
    let expected = [
        "create account",
        "update account",
        "update account_action",
        "update account_action",
        "update account_action",
        "login support_mode",
        "delete support_mode",
        "delete account",
    ];
    assert_eq!(names(&found), expected);
    let changes: Vec<&Value> = found.iter().map(|(_, _, changes)| changes).collect();
    assert_eq!(
        changes[0],
        &json!({ "name": "Padaria Sol", "slug": "padaria-sol", "plan": "free", "owner_invited": true })
    );
    assert_eq!(
        changes[1],
        &json!({ "name": { "from": "Padaria Sol", "to": "Padaria Lua" },
                 "slug": { "from": "padaria-sol", "to": "lua" } })
    );
    assert_eq!(changes[2], &json!({ "action": "suspend" }));
    assert_eq!(
        changes[4],
        &json!({ "action": "change_plan", "plan": { "from": "free", "to": "growth" } })
    );
    assert_eq!(changes[5], &json!({ "reason": "ticket 7" }));
    assert_eq!(
        changes[7],
        &json!({ "name": "Padaria Lua", "slug": "lua", "plan": "growth" })
    );
    let created = &logs(root, "action=create")["logs"][0];
    assert_eq!(
        (&created["request_id"], &created["user_id"]),
        (&json!("creation-1"), &json!(root.id))
    );
    // Nothing of the invited address is stored.
    let stored = server.db.text("SELECT string_agg(p::text, '|') FROM platform_audit p");
    assert!(!stored.contains("dona@example.com"), "{stored}");
}

#[test]
fn plan_of_a_paid_subscription_is_recorded_once() {
    let server = Server::new();
    let (root, ana) = (server.root(), server.owner());
    subscribe(&ana, card_order("4111 1111 1111 1111", "123")).created();
    wait_for_status(&ana, "active");
    let act = format!("/api/admin/accounts/{}/action", ana.account);
    root.post(&act, json!({ "action": "change_plan", "plan": "scale" }))
        .ok();
    assert_eq!(ana.get("/api/billing/subscription").ok()["plan"]["id"], "scale");
    let found = entries(&root, &ana.account);
    assert_eq!(names(&found), ["update account_action"]);
    assert_eq!(found[0].2["plan"]["to"], "scale");
    // The account's own log has its entry as before.
    let own = ana.get("/api/audit-logs?entityType=admin_account_action").ok();
    assert_eq!(own["total"], json!(1));
}

#[test]
fn refused_change_leaves_no_entry() {
    let server = Server::new();
    let (root, ana) = (server.root(), server.owner());
    let (account, unknown) = (
        format!("/api/admin/accounts/{}", ana.account),
        format!("/api/admin/accounts/{}", Uuid::now_v7()),
    );
    let action = json!({ "action": "suspend" });
    root.post("/api/admin/accounts", json!({ "name": "x", "slug": "loja" }))
        .invalid();
    root.put(&account, json!({ "plan": "gold" })).invalid();
    root.put(&account, json!({ "owner_email": "bia@example.com" }))
        .invalid();
    root.put(&unknown, json!({ "name": "x" })).refused(404, "NOT_FOUND");
    root.post(&format!("{unknown}/action"), action.clone())
        .refused(404, "NOT_FOUND");
    root.post(&format!("{account}/action"), json!({ "action": "close" }))
        .invalid();
    root.post(&format!("{unknown}/support"), json!({}))
        .refused(404, "NOT_FOUND");
    root.post(&format!("{account}/support"), json!({ "reason": "x".repeat(501) }))
        .invalid();
    root.delete(&unknown).refused(404, "NOT_FOUND");
    root.request("POST", "/api/admin/stop-support")
        .send()
        .refused(500, "INTERNAL_ERROR");
    ana.post(&format!("{account}/action"), action)
        .refused(401, "AUTH_ERROR");
    assert_eq!(server.db.count("FROM platform_audit"), 0);
    assert_eq!(logs(&root, "")["logs"], json!([]));
}

/// The entry cannot be written while the table refuses inserts. The change is rolled back with it.
#[test]
fn change_without_its_entry_does_not_happen() {
    let server = Server::new();
    let (root, ana) = (server.root(), server.owner());
    let account = format!("/api/admin/accounts/{}", ana.account);
    server
        .db
        .run("ALTER TABLE platform_audit ADD CONSTRAINT full_log CHECK (false) NOT VALID");
    let suspend = root.post(&format!("{account}/action"), json!({ "action": "suspend" }));
    suspend.refused(500, "INTERNAL_ERROR");
    root.delete(&account).refused(500, "INTERNAL_ERROR");
    let user = format!("/api/admin/users/{}/sign-out", ana.id);
    root.request("POST", &user).send().refused(500, "INTERNAL_ERROR");
    ana.get("/api/contacts").ok();
    assert_eq!(root.get(&account).ok()["status"], "active");
    assert_eq!(server.db.count("FROM account_deletions"), 0);
    server.db.run("ALTER TABLE platform_audit DROP CONSTRAINT full_log");
    let suspend = root.post(&format!("{account}/action"), json!({ "action": "suspend" }));
    suspend.ok();
    assert_eq!(names(&entries(&root, &ana.account)), ["update account_action"]);
}

#[test]
fn platform_audit_log_is_filtered_and_paged() {
    let server = Server::new();
    let (root, second_root, ana) = (server.root(), server.root(), server.owner());
    for name in ["A", "B", "C"] {
        root.post("/api/admin/accounts", json!({ "name": name })).created();
    }
    let account = format!("/api/admin/accounts/{}", ana.account);
    second_root.put(&account, json!({ "name": "Nova" })).ok();
    let reply = root.get("/api/admin/audit-logs");
    assert_eq!(reply.header("x-ratelimit-limit"), Some("30"));
    let all = reply.ok();
    assert_eq!(
        (&all["total"], &all["page"], &all["limit"]),
        (&json!(4), &json!(1), &json!(50))
    );
    assert_eq!(all.as_object().unwrap().len(), 4);
    let newest = &all["logs"][0];
    assert_eq!(
        (&newest["action"], &newest["user_id"]),
        (&json!("update"), &json!(second_root.id))
    );
    let (at, before) = (text(&newest["created_at"]), text(&all["logs"][1]["created_at"]));
    let total = |query: &str| logs(&root, query)["total"].clone();
    for (query, expected) in [
        ("action=create".to_owned(), 3),
        ("action=restore".to_owned(), 0),
        ("entity_type=account".to_owned(), 4),
        ("entity_type=rate_card".to_owned(), 0),
        (format!("account_id={}", ana.account), 1),
        (format!("account_id={}", Uuid::now_v7()), 0),
        (format!("user_id={}", root.id), 3),
        (format!("user_id={}&action=update", root.id), 0),
        (format!("since={at}"), 1),
        (format!("until={before}"), 3),
        (format!("since={at}&until={before}"), 0),
        ("since=&account_id=".to_owned(), 4),
    ] {
        assert_eq!(total(&query), json!(expected), "{query}");
    }
    let page = logs(&root, "page=2&limit=3");
    assert_eq!(
        (
            &page["total"],
            &page["page"],
            &page["limit"],
            page["logs"].as_array().unwrap().len()
        ),
        (&json!(4), &json!(2), &json!(3), 1)
    );
    assert_eq!(logs(&second_root, "limit=1000")["limit"], json!(100));
    let invalid = |query: &str| second_root.get(&format!("/api/admin/audit-logs?{query}")).invalid();
    assert_eq!(
        invalid("account_id=7&user_id=x&since=yesterday&until=2026-01-01&page=one"),
        ["account_id", "page", "since", "until", "user_id"]
    );
    ana.get("/api/admin/audit-logs").refused(401, "AUTH_ERROR");
}
