//! API keys: an account context for programs, and no session.

use serde_json::json;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::harness::Server;
use crate::harness::people::User;

/// A key of the account, made by this user.
pub fn key(owner: &User<'_>) -> String {
    let key = format!("svc_live_sk_{}{}", Uuid::new_v4().simple(), "AA");
    let hash = hex::encode(Sha256::digest(&key));
    let (account, user, id) = (&owner.account, owner.id, Uuid::now_v7());
    owner.server.db.run(&format!(
        "INSERT INTO api_keys (account_id, id, name, key_prefix, key_hint, created_by)
           VALUES ('{account}', '{id}', 'CI', 'svc_live_sk_', '{hint}', '{user}');
         INSERT INTO api_key_hashes (key_hash, account_id, key_id, created_by)
           VALUES ('\\x{hash}', '{account}', '{id}', '{user}')",
        hint = &key[key.len() - 4..],
    ));
    key
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
    let error = server
        .get("/api/contacts")
        .bearer(&key)
        .send()
        .refused(401, "AUTH_ERROR");
    assert!(error["message"].as_str().unwrap().contains("suspended"), "{error}");
}
