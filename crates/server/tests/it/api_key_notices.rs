//! Notifications about API keys, and about other new ways into an account.

use serde_json::{Value, json};

use crate::api_keys::create_key_response;
use crate::harness::users::User;
use crate::harness::{Server, text, until};

fn notifications(user: &User<'_>) -> Vec<Value> {
    let page = user.get("/api/notifications?limit=100").ok();
    page["data"].as_array().unwrap().clone()
}

/// Type and title of the notifications about a key, oldest first.
fn about(user: &User<'_>, key: &Value) -> Vec<(String, String)> {
    let mut found: Vec<_> = notifications(user)
        .into_iter()
        .filter(|notification| notification["data"]["api_key_id"] == key["id"])
        .map(|notification| (text(&notification["type"]), text(&notification["title"])))
        .collect();
    found.reverse();
    found
}

/// Changes a key by SQL, because the API sets no times in the past.
fn age(server: &Server, key: &Value, columns: &str) {
    server.db.run(&format!(
        "UPDATE api_keys SET {columns} WHERE id = '{}'",
        text(&key["id"])
    ));
}

#[test]
fn new_key_endpoint_and_number_name_their_creator() {
    let server = Server::new();
    let ana = server.owner();
    let made = create_key_response(&ana, "Shop");
    let secret = text(&made["full_key"]);
    let body = json!({ "name": "Hook", "url": "https://e.example", "events": ["test.ping"] });
    let webhook = ana.post("/api/webhooks", body.clone()).created();
    let by_key = server
        .post("/api/webhooks")
        .bearer(&secret)
        .json(&body)
        .send()
        .created();
    let profile = ana.profile();
    let found = notifications(&ana);
    let hint = text(&made["key_hint"]);
    let caller = format!("API key Shop (...{hint})");
    for (field, id, title, who) in [
        (
            "api_key_id",
            text(&made["id"]),
            "API key created: Shop",
            ana.email.as_str(),
        ),
        ("webhook_id", text(&webhook["id"]), "Webhook created: Hook", &ana.email),
        ("webhook_id", text(&by_key["id"]), "Webhook created: Hook", &caller),
        ("profile_id", profile, "WhatsApp number connected: Loja", &ana.email),
    ] {
        let notification = found
            .iter()
            .find(|notification| notification["data"][field] == json!(id) && notification["type"] == "info");
        let notification = notification.unwrap_or_else(|| panic!("{title}: {found:?}"));
        assert_eq!(
            (&notification["type"], &notification["title"]),
            (&json!("info"), &json!(title))
        );
        assert!(text(&notification["message"]).starts_with(who), "{notification}");
        assert_eq!(notification["data"]["created_by"], json!(ana.id));
        let is_by_key = notification["data"].get("created_by_api_key").is_some();
        assert_eq!(is_by_key, who == caller);
    }
    // The four, and the verification of the number.
    assert_eq!(found.len(), 5);
    // Changes are not announced.
    ana.put(
        &format!("/api/api-keys/{}", text(&made["id"])),
        json!({ "name": "New" }),
    )
    .ok();
    ana.put(
        &format!("/api/webhooks/{}", text(&webhook["id"])),
        json!({ "name": "New" }),
    )
    .ok();
    assert_eq!(notifications(&ana).len(), 5);
}

#[test]
fn end_of_key_is_announced_twice_and_reported_once() {
    let server = Server::new();
    let _sibling = server.sibling();
    let ana = server.owner();
    let (key, endless) = (create_key_response(&ana, "Shop"), create_key_response(&ana, "Endless"));
    let created = |name: &str| ("info".to_owned(), format!("API key created: {name}"));
    let warning = || ("warning".to_owned(), "API key expires soon: Shop".to_owned());
    let mut expected = vec![created("Shop")];
    for (left, next) in [
        ("6 days", warning()),
        ("23 hours", warning()),
        ("0 seconds", ("error".to_owned(), "API key expired: Shop".to_owned())),
    ] {
        age(&server, &key, &format!("expires_at = now() + interval '{left}'"));
        expected.push(next);
        until("the notification is there", || {
            about(&ana, &key).len() >= expected.len()
        });
        assert_eq!(about(&ana, &key), expected);
    }
    // The workers of both servers look again; this key's notification shows that they did.
    age(
        &server,
        &endless,
        "created_at = now() - interval '91 days', last_used_at = NULL",
    );
    until("the workers looked again", || about(&ana, &endless).len() == 2);
    assert_eq!(about(&ana, &key), expected);
}

#[test]
fn unused_key_is_named_once_a_quarter() {
    let server = Server::new();
    let ana = server.owner();
    let (unused, used) = (create_key_response(&ana, "Old"), create_key_response(&ana, "Busy"));
    let unused_title = ("info".to_owned(), "API key not used: Old".to_owned());
    age(
        &server,
        &used,
        "created_at = now() - interval '400 days', last_used_at = now() - interval '89 days'",
    );
    age(
        &server,
        &unused,
        "created_at = now() - interval '400 days', last_used_at = now() - interval '90 days'",
    );
    until("the key is named", || about(&ana, &unused).len() == 2);
    assert_eq!(about(&ana, &unused)[1], unused_title);
    assert_eq!(server.db.count("FROM api_keys WHERE unused_notified_at IS NOT NULL"), 1);
    // The next quarter begins.
    age(&server, &unused, "unused_notified_at = now() - interval '90 days'");
    until("the key is named again", || about(&ana, &unused).len() == 3);
    assert_eq!(about(&ana, &used).len(), 1);
}
