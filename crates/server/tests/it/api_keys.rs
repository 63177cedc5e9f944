//! API keys: they authenticate a program for one account and never replace a session.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::harness::client::Reply;
use crate::harness::users::User;
use crate::harness::{Options, Server, assert_within_a_second, eventually, text, until};

/// The published fields of a key.
const FIELDS: [&str; 13] = [
    "id",
    "name",
    "key_prefix",
    "key_hint",
    "scopes",
    "expires_at",
    "allowed_cidrs",
    "created_by",
    "last_used_at",
    "last_used_ip",
    "rotated_at",
    "previous_valid_until",
    "created_at",
];

/// Creates an API key and returns the full key.
#[track_caller]
pub fn create_key(owner: &User<'_>) -> String {
    text(&create_key_response(owner, "CI")["full_key"])
}

/// Creates an API key and returns the response.
#[track_caller]
pub fn create_key_response(owner: &User<'_>, name: &str) -> Value {
    owner.post("/api/api-keys", json!({ "name": name })).created()
}

fn field_names(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

fn request_with_key(server: &Server, key: &str) -> Reply {
    server.get("/api/contacts").bearer(key).send()
}

#[test]
fn api_key_is_created_listed_used_and_deleted() {
    let server = Server::new();
    let ana = server.owner();
    assert_eq!(ana.get("/api/api-keys").ok(), json!([]));
    let first = create_key_response(&ana, "  Loja <b>CI</b> ");
    let mut names = BTreeSet::from(FIELDS);
    names.insert("full_key");
    assert_eq!(field_names(&first), names);
    assert_eq!((&first["scopes"], &first["allowed_cidrs"]), (&json!(["*"]), &json!([])));
    assert_eq!(
        (&first["expires_at"], &first["created_by"]),
        (&Value::Null, &json!(ana.id))
    );
    let full = text(&first["full_key"]);
    assert_eq!((full.len(), &full[..12]), (44, "svc_live_sk_"));
    let random = &full[12..];
    assert!(
        random
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)),
        "{full}"
    );
    assert_eq!(first["name"], "Loja CI");
    assert_eq!(
        (&first["key_prefix"], &first["key_hint"]),
        (&json!("svc_live_sk_"), &json!(&full[40..]))
    );
    let created = text(&first["created_at"]);
    assert!(created.ends_with('Z') && created.len() == 24, "{created}");

    let second = create_key_response(&ana, "CI");
    assert_ne!(second["full_key"], first["full_key"]);
    let list = ana.get("/api/api-keys").ok();
    assert_eq!(list.as_array().unwrap().len(), 2);
    assert_eq!(
        (&list[0]["id"], &list[1]["id"]),
        (&second["id"], &first["id"]),
        "newest first"
    );
    assert_eq!(field_names(&list[1]), BTreeSet::from(FIELDS));
    assert_eq!(list[1]["last_used_at"], Value::Null);
    for field in ["name", "key_prefix", "key_hint", "created_at"] {
        assert_eq!(list[1][field], first[field]);
    }

    request_with_key(&server, &full).ok();
    let used = ana.get("/api/api-keys").ok()[1]["last_used_at"].take();
    assert!(
        used.as_str()
            .is_some_and(|used| used.ends_with('Z') && used > created.as_str()),
        "{used}"
    );
    let path = format!("/api/api-keys/{}", text(&first["id"]));
    ana.delete(&path).no_content();
    // The deletion evicts the cached key immediately.
    request_with_key(&server, &full).refused(401, "AUTH_ERROR");
    ana.delete(&path).refused(404, "NOT_FOUND");
    assert_eq!(ana.get("/api/api-keys").ok().as_array().unwrap().len(), 1);
    request_with_key(&server, &text(&second["full_key"])).ok();
}

#[test]
fn deleted_api_key_is_refused_everywhere_within_a_second() {
    let server = Server::new();
    let sibling = server.sibling();
    let ana = server.owner();
    let mut times = Vec::new();
    for _ in 0..10 {
        let made = create_key_response(&ana, "CI");
        let key = text(&made["full_key"]);
        let on_sibling = sibling.request("GET", "/api/contacts").bearer(&key);
        request_with_key(&server, &key).ok();
        on_sibling.clone().send().ok();
        ana.delete(&format!("/api/api-keys/{}", text(&made["id"]))).no_content();
        let removed = Instant::now();
        request_with_key(&server, &key).refused(401, "AUTH_ERROR");
        until("the other server refuses the key", || {
            on_sibling.clone().send().status == 401
        });
        times.push(removed.elapsed());
    }
    assert_within_a_second(&times);
}

#[test]
fn api_key_name_length_and_count_are_limited() {
    let server = Server::new();
    let ana = server.owner();
    let post = |body: Value| ana.post("/api/api-keys", body);
    for wrong in [
        json!({}),
        json!({ "name": null }),
        json!({ "name": "" }),
        json!({ "name": " <i></i> " }),
    ] {
        assert_eq!(post(wrong).invalid(), ["name"]);
    }
    assert_eq!(post(json!({ "name": "é".repeat(101) })).invalid(), ["name"]);
    let made = post(
        json!({ "name": "é".repeat(100), "id": Uuid::nil(), "full_key": "svc_live_sk_mine",
                            "key_prefix": "x", "account_id": Uuid::nil(), "created_by": Uuid::nil() }),
    );
    let made = made.created();
    assert_eq!(
        (&made["name"], &made["key_prefix"]),
        (&json!("é".repeat(100)), &json!("svc_live_sk_"))
    );
    assert_ne!(made["full_key"], "svc_live_sk_mine");
    assert_ne!(text(&made["id"]), Uuid::nil().to_string());

    server.db.run(&format!(
        "INSERT INTO api_keys (account_id, id, name, key_prefix, key_hint, created_by)
         SELECT '{}', gen_random_uuid(), 'k', 'p', 'h', '{}' FROM generate_series(1, 98)",
        ana.account, ana.id
    ));
    let last = post(json!({ "name": "the hundredth" })).created();
    let refused = post(json!({ "name": "one more" }));
    assert!(refused.text.contains("limit of 100 reached"), "{}", refused.text);
    assert_eq!(refused.invalid(), ["api_keys"]);
    assert_eq!(ana.get("/api/api-keys").ok().as_array().unwrap().len(), 100);
    ana.delete(&format!("/api/api-keys/{}", text(&last["id"]))).no_content();
    post(json!({ "name": "one more" })).created();
}

#[test]
fn api_keys_of_other_accounts_are_inaccessible() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let hers = create_key_response(&bia, "Of Bia");
    let path = format!("/api/api-keys/{}", text(&hers["id"]));
    ana.delete(&path).refused(404, "NOT_FOUND");
    ana.request("DELETE", &path)
        .header("X-Account-Id", &bia.account)
        .send()
        .refused(401, "AUTH_ERROR");
    assert_eq!(ana.get("/api/api-keys").ok(), json!([]));
    request_with_key(&server, &text(&hers["full_key"])).ok();
    // A key can list the keys of its account, but cannot create or delete any.
    let key = create_key(&ana);
    let list = server.get("/api/api-keys").bearer(&key).send().ok();
    assert_eq!(list.as_array().unwrap().len(), 1);
    for request in [
        server.post("/api/api-keys").json(&json!({ "name": "x" })),
        server.request("DELETE", &path),
        server.request("DELETE", &format!("/api/api-keys/{}", text(&list[0]["id"]))),
        server.get("/api/accounts"),
        server.post("/api/accounts").json(&json!({ "name": "x" })),
    ] {
        request.bearer(&key).send().refused(401, "AUTH_ERROR");
    }
    assert_eq!(ana.get("/api/api-keys").ok().as_array().unwrap().len(), 1);
}

#[test]
fn api_key_creation_checks_role_before_rate_limit() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let member = server.member(&ana.account, "member");
    let admin = server.member(&ana.account, "admin");
    for count in 1..=30 {
        let maker = if count % 2 == 0 { &ana } else { &admin };
        let reply = maker.post("/api/api-keys", json!({ "name": "CI" }));
        assert_eq!(
            reply.header("x-ratelimit-remaining"),
            Some((30 - count).to_string().as_str())
        );
        reply.created();
        member
            .post("/api/api-keys", json!({ "name": "CI" }))
            .refused(401, "AUTH_ERROR");
    }
    let refused = ana.post("/api/api-keys", json!({ "name": "CI" }));
    for header in [
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "retry-after",
    ] {
        assert!(refused.header(header).is_some(), "{header}");
    }
    refused.refused(429, "RATE_LIMIT");
    admin.post("/api/api-keys", json!({})).refused(429, "RATE_LIMIT");
    member
        .post("/api/api-keys", json!({ "name": "CI" }))
        .refused(401, "AUTH_ERROR");
    create_key_response(&bia, "CI");
    // Listing and deleting are not rate limited.
    for key in ana.get("/api/api-keys").ok().as_array().unwrap() {
        ana.delete(&format!("/api/api-keys/{}", text(&key["id"]))).no_content();
        ana.get("/api/api-keys").ok();
    }
}

#[test]
fn full_api_key_appears_only_in_creation_response() {
    let server = Server::start(Options::default().with("RUST_LOG", "trace"));
    let ana = server.owner();
    let made = create_key_response(&ana, "CI");
    let full = text(&made["full_key"]);
    request_with_key(&server, &full).ok();
    server.get("/api/contacts").header("X-API-Key", &full).send().ok();
    request_with_key(&server, &format!("{full}x")).refused(401, "AUTH_ERROR");
    // Authenticated by the key, so that logs and audit entries of the request could contain it.
    let campaign = server
        .post("/api/campaigns")
        .bearer(&full)
        .json(&json!({ "name": "C" }))
        .send()
        .created();
    server
        .request("DELETE", &format!("/api/campaigns/{}", text(&campaign["id"])))
        .bearer(&full)
        .send()
        .no_content();
    let listed = ana.get("/api/api-keys").text;
    let audited = ana.get("/api/audit-logs").text;
    assert!(audited.contains("api_key"), "{audited}");
    ana.delete(&format!("/api/api-keys/{}", text(&made["id"]))).no_content();
    let removed = ana.get("/api/audit-logs").text;
    // For an idempotent replay the response is stored, encrypted.
    let again = || {
        let request = ana.request("POST", "/api/api-keys").header("Idempotency-Key", "once");
        request.json(&json!({ "name": "CI" })).send().created()
    };
    let replayed = text(&again()["full_key"]);
    assert_eq!(text(&again()["full_key"]), replayed);
    assert_eq!(server.db.count("FROM api_keys"), 1);
    assert_eq!(server.db.count("FROM idempotency_keys"), 1);
    let id = server.db.text("SELECT id FROM api_keys");
    let rotated = text(&ana.post(&format!("/api/api-keys/{id}/rotate"), json!({})).ok()["full_key"]);
    request_with_key(&server, &rotated).ok();
    let changed = ana.put(&format!("/api/api-keys/{id}"), json!({ "name": "New" }));
    assert!(changed.json()["data"].get("full_key").is_none(), "{}", changed.text);
    let notified = ana.get("/api/notifications?limit=100").text;
    assert!(notified.contains("API key created"), "{notified}");
    let audited = ana.get("/api/audit-logs?limit=100").text;
    assert!(audited.contains("\"rotated\":true"), "{audited}");
    server.db.wait_for_outbox();

    // The dump writes bytes in hexadecimal.
    let stored: String = server.db.dump().into_values().collect();
    let digest = hex::encode(Sha256::digest(&replayed));
    assert!(stored.contains(&digest), "the database stores the key's hash");
    let logged = server.log();
    assert!(logged.contains("\"TRACE\""), "the log contains TRACE lines");
    for key in [&full, &replayed, &rotated] {
        let random = &key[12..];
        for (source, content) in [
            ("the list", &listed),
            ("the audit log", &audited),
            ("the audit log", &removed),
            ("the notifications", &notified),
            ("the response to a change", &changed.text),
            ("the database", &stored),
            ("the log", &logged),
        ] {
            assert!(!content.contains(random), "{source} contains the key");
            assert!(
                !content.contains(&hex::encode(random)),
                "{source} contains the key's bytes"
            );
        }
    }
}

#[test]
fn api_key_grants_access_to_its_account_only() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    bia.contact("Of Bia", "+5511961234567");
    let key = create_key(&ana);
    let made = server
        .post("/api/contacts")
        .bearer(&key)
        .json(&json!({ "name": "By key", "phone": "+5511961230000" }))
        .send();
    made.created();
    for request in [
        server.get("/api/contacts").bearer(&key),
        server.get("/api/contacts").header("X-API-Key", &key),
        // The key's account wins over the account header and cookie.
        server
            .get("/api/contacts")
            .bearer(&key)
            .header("X-Account-Id", &bia.account),
        server
            .get("/api/contacts")
            .bearer(&key)
            .cookie(&format!("svc-active-account-id={}", bia.account)),
    ] {
        let list = request.send().ok();
        assert_eq!(list["data"].as_array().unwrap().len(), 1);
        assert_eq!(list["data"][0]["name"], "By key");
    }
    let used = server.db.text("SELECT last_used_at FROM api_keys");
    assert!(!used.is_empty());
    server.get("/api/contacts").bearer(&key).send().ok();
    assert_eq!(
        server.db.text("SELECT last_used_at FROM api_keys"),
        used,
        "written at most once a minute"
    );
}

#[test]
fn api_key_is_refused_where_session_is_required() {
    let server = Server::new();
    let ana = server.owner();
    let key = create_key(&ana);
    server
        .get("/api/accounts")
        .bearer(&key)
        .send()
        .refused(401, "AUTH_ERROR");
    server
        .get("/api/accounts")
        .header("X-API-Key", &key)
        .send()
        .refused(401, "AUTH_ERROR");
    let body = json!({ "name": "x" });
    server
        .post("/api/accounts")
        .bearer(&key)
        .json(&body)
        .send()
        .refused(401, "AUTH_ERROR");
}

#[test]
fn wrong_api_key_is_refused() {
    let server = Server::new();
    let ana = server.owner();
    let key = create_key(&ana);
    let shorter = &key[..key.len() - 1];
    for wrong in [
        format!("{key}x"),
        shorter.to_owned(),
        "svc_live_sk_".to_owned(),
        key.to_uppercase(),
    ] {
        server
            .get("/api/contacts")
            .bearer(&wrong)
            .send()
            .refused(401, "AUTH_ERROR");
        server
            .get("/api/contacts")
            .header("X-API-Key", &wrong)
            .send()
            .refused(401, "AUTH_ERROR");
    }
    server
        .get("/api/contacts")
        .header("X-API-Key", "")
        .send()
        .refused(401, "AUTH_ERROR");
    // A valid session cookie does not make up for a wrong key.
    let wrong = server.get("/api/contacts").bearer("svc_live_sk_wrong");
    wrong
        .cookie(&format!("svc-session={}", ana.token))
        .send()
        .refused(401, "AUTH_ERROR");
}

#[test]
fn api_key_survives_creator_removal_but_not_suspension() {
    let server = Server::new();
    let ana = server.owner();
    let key = create_key(&ana);
    let account = &ana.account;
    server
        .db
        .run(&format!("DELETE FROM account_users WHERE account_id = '{account}'"));
    server.get("/api/contacts").bearer(&key).send().ok();
    server.db.run(&format!(
        "UPDATE accounts SET status = 'suspended' WHERE id = '{account}'"
    ));
    let error = eventually("the key of a suspended account is refused", || {
        let reply = request_with_key(&server, &key);
        (reply.status == 401).then(|| reply.refused(401, "AUTH_ERROR"))
    });
    assert!(error["message"].as_str().unwrap().contains("suspended"), "{error}");
}
