//! API keys: an account context for programs, and no session.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::harness::client::Reply;
use crate::harness::users::User;
use crate::harness::{Options, Server, eventually, text};

/// A key of the account, made by this user.
#[track_caller]
pub fn key(owner: &User<'_>) -> String {
    text(&made(owner, "CI")["full_key"])
}

/// A new key, as it was answered.
#[track_caller]
pub fn made(owner: &User<'_>, name: &str) -> Value {
    owner.post("/api/api-keys", json!({ "name": name })).created()
}

fn fields(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

fn presented(server: &Server, key: &str) -> Reply {
    server.get("/api/contacts").bearer(key).send()
}

#[test]
fn a_key_is_made_listed_used_and_removed() {
    let server = Server::new();
    let ana = server.owner();
    assert_eq!(ana.get("/api/api-keys").ok(), json!([]));
    let first = made(&ana, "  Loja <b>CI</b> ");
    let names = ["id", "name", "key_prefix", "key_hint", "full_key", "created_at"];
    assert_eq!(fields(&first), BTreeSet::from(names));
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

    let second = made(&ana, "CI");
    assert_ne!(second["full_key"], first["full_key"]);
    let list = ana.get("/api/api-keys").ok();
    assert_eq!(list.as_array().unwrap().len(), 2);
    assert_eq!(
        (&list[0]["id"], &list[1]["id"]),
        (&second["id"], &first["id"]),
        "newest first"
    );
    let names = ["id", "name", "key_prefix", "key_hint", "last_used_at", "created_at"];
    assert_eq!(fields(&list[1]), BTreeSet::from(names));
    assert_eq!(list[1]["last_used_at"], Value::Null);
    for field in ["name", "key_prefix", "key_hint", "created_at"] {
        assert_eq!(list[1][field], first[field]);
    }

    presented(&server, &full).ok();
    let used = ana.get("/api/api-keys").ok()[1]["last_used_at"].take();
    assert!(
        used.as_str()
            .is_some_and(|used| used.ends_with('Z') && used > created.as_str()),
        "{used}"
    );
    let path = format!("/api/api-keys/{}", text(&first["id"]));
    ana.delete(&path).gone();
    // At once, however often it was let in before.
    presented(&server, &full).refused(401, "AUTH_ERROR");
    ana.delete(&path).refused(404, "NOT_FOUND");
    assert_eq!(ana.get("/api/api-keys").ok().as_array().unwrap().len(), 1);
    presented(&server, &text(&second["full_key"])).ok();
}

#[test]
fn a_removed_key_stops_at_once_here_and_within_a_second_elsewhere() {
    let server = Server::new();
    let other = server.sibling();
    let ana = server.owner();
    for _ in 0..10 {
        let made = made(&ana, "CI");
        let key = text(&made["full_key"]);
        let elsewhere = other.request("GET", "/api/contacts").bearer(&key);
        presented(&server, &key).ok();
        elsewhere.clone().send().ok();
        ana.delete(&format!("/api/api-keys/{}", text(&made["id"]))).gone();
        let removed = Instant::now();
        presented(&server, &key).refused(401, "AUTH_ERROR");
        eventually("the other server refuses it", || {
            let asked = removed.elapsed();
            let reply = elsewhere.clone().send();
            assert!(reply.status == 401 || asked < Duration::from_secs(1), "{asked:?}");
            (reply.status == 401).then_some(())
        });
    }
}

#[test]
fn names_have_1_to_100_characters_and_an_account_100_keys() {
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
    assert!(refused.text.contains("at most 100"), "{}", refused.text);
    assert_eq!(refused.invalid(), ["name"]);
    assert_eq!(ana.get("/api/api-keys").ok().as_array().unwrap().len(), 100);
    ana.delete(&format!("/api/api-keys/{}", text(&last["id"]))).gone();
    post(json!({ "name": "one more" })).created();
}

#[test]
fn keys_of_another_account_are_out_of_sight_and_reach() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let hers = made(&bia, "Of Bia");
    let path = format!("/api/api-keys/{}", text(&hers["id"]));
    ana.delete(&path).refused(404, "NOT_FOUND");
    ana.request("DELETE", &path)
        .header("X-Account-Id", &bia.account)
        .send()
        .refused(401, "AUTH_ERROR");
    assert_eq!(ana.get("/api/api-keys").ok(), json!([]));
    presented(&server, &text(&hers["full_key"])).ok();
    // A key lists the keys of its account, and neither makes nor removes any.
    let key = key(&ana);
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
fn making_is_limited_and_the_role_comes_first() {
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
    made(&bia, "CI");
    // Neither looking nor removing is limited.
    for key in ana.get("/api/api-keys").ok().as_array().unwrap() {
        ana.delete(&format!("/api/api-keys/{}", text(&key["id"]))).gone();
        ana.get("/api/api-keys").ok();
    }
}

#[test]
fn a_key_is_whole_in_one_answer_and_nowhere_else() {
    let server = Server::start(Options::default().with("RUST_LOG", "trace"));
    let ana = server.owner();
    let made = made(&ana, "CI");
    let full = text(&made["full_key"]);
    presented(&server, &full).ok();
    server.get("/api/contacts").header("X-API-Key", &full).send().ok();
    presented(&server, &format!("{full}x")).refused(401, "AUTH_ERROR");
    // By key, too, so that the key is near whatever is written about it.
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
        .gone();
    let listed = ana.get("/api/api-keys").text;
    let audited = ana.get("/api/audit-logs").text;
    assert!(audited.contains("api_key"), "{audited}");
    ana.delete(&format!("/api/api-keys/{}", text(&made["id"]))).gone();
    let removed = ana.get("/api/audit-logs").text;
    // Answered twice, it is kept in between, encrypted.
    let again = || {
        let request = ana.request("POST", "/api/api-keys").header("Idempotency-Key", "once");
        request.json(&json!({ "name": "CI" })).send().created()
    };
    let other = text(&again()["full_key"]);
    assert_eq!(text(&again()["full_key"]), other);
    assert_eq!(server.db.count("FROM api_keys"), 1);
    assert_eq!(server.db.count("FROM idempotency_keys"), 1);
    server.db.settles();

    // Bytes are in hexadecimal.
    let stored: String = server.db.dump().into_values().collect();
    let digest = hex::encode(Sha256::digest(&other));
    assert!(stored.contains(&digest), "what is stored of a key is its hash");
    let logged = server.log();
    assert!(logged.contains("\"TRACE\""), "the log says everything");
    for key in [&full, &other] {
        let random = &key[12..];
        for (place, found) in [
            ("the list", &listed),
            ("the audit log", &audited),
            ("the audit log", &removed),
            ("the database", &stored),
            ("the log", &logged),
        ] {
            assert!(!found.contains(random), "{place} holds the key");
            assert!(!found.contains(&hex::encode(random)), "{place} holds the key's bytes");
        }
    }
}

#[test]
fn a_key_opens_its_account_and_no_other() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    bia.contact("Of Bia", "+5511961234567");
    let key = key(&ana);
    let made = server
        .post("/api/contacts")
        .bearer(&key)
        .json(&json!({ "name": "By key", "phone": "+5511961230000" }))
        .send();
    made.created();
    for request in [
        server.get("/api/contacts").bearer(&key),
        server.get("/api/contacts").header("X-API-Key", &key),
        // What else is said about accounts does not count.
        server
            .get("/api/contacts")
            .bearer(&key)
            .header("X-Account-Id", &bia.account),
        server
            .get("/api/contacts")
            .bearer(&key)
            .cookie(&format!("svc-active-account-id={}", bia.account)),
    ] {
        let seen = request.send().ok();
        assert_eq!(seen["data"].as_array().unwrap().len(), 1);
        assert_eq!(seen["data"][0]["name"], "By key");
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
fn a_key_is_no_session() {
    let server = Server::new();
    let ana = server.owner();
    let key = key(&ana);
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
fn a_wrong_key_opens_nothing() {
    let server = Server::new();
    let ana = server.owner();
    let key = key(&ana);
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
    // A good session does not help a wrong key out.
    let wrong = server.get("/api/contacts").bearer("svc_live_sk_wrong");
    wrong
        .cookie(&format!("svc-session={}", ana.token))
        .send()
        .refused(401, "AUTH_ERROR");
}

#[test]
fn a_key_outlives_its_makers_membership_and_not_its_account() {
    let server = Server::new();
    let ana = server.owner();
    let key = key(&ana);
    let account = &ana.account;
    server
        .db
        .run(&format!("DELETE FROM account_users WHERE account_id = '{account}'"));
    server.get("/api/contacts").bearer(&key).send().ok();
    server.db.run(&format!(
        "UPDATE accounts SET status = 'suspended' WHERE id = '{account}'"
    ));
    let error = eventually("the key of a suspended account is refused", || {
        let reply = presented(&server, &key);
        (reply.status == 401).then(|| reply.refused(401, "AUTH_ERROR"))
    });
    assert!(error["message"].as_str().unwrap().contains("suspended"), "{error}");
}
