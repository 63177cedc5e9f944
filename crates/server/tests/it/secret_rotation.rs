//! Sealed values: a moved one is useless, and `recado secrets rotate` replaces all of them beside a running server.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use recado_api::app_secret::AppSecrets;
use recado_domain::shared::{Cipher as _, Resealer as _, SealContext, SealPurpose, Sealed};
use recado_postgres::SEALED_COLUMNS;
use recado_server::sealing::AppCipher;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use sha2::Sha256;
use uuid::Uuid;

use crate::conversations::{open_conversation, reply};
use crate::harness::admin::Browser;
use crate::harness::client::Request;
use crate::harness::process::Process;
use crate::harness::runs::without_statuses;
use crate::harness::scrape::scrape;
use crate::harness::users::{User, phone};
use crate::harness::{Options, Server, text, until};
use crate::inbound_webhooks::Hook;

/// The byte that the secret of every test server repeats, and that of the secret after a rotation.
const OLD: u8 = b'k';
const NEW: u8 = b'n';

/// Stored responses that a rotation has to seal anew, so that it takes long enough to be killed on the way.
const RESPONSES: usize = 6000;

fn cipher(current: u8, previous: &[u8]) -> AppCipher {
    let secrets = AppSecrets {
        current: [current; 32].into(),
        previous: previous.iter().map(|&byte| [byte; 32].into()).collect(),
    };
    AppCipher::new(&secrets).unwrap()
}

fn new_secret() -> Vec<(&'static str, String)> {
    vec![("APP_SECRET", STANDARD.encode([NEW; 32]))]
}

fn both_secrets() -> Vec<(&'static str, String)> {
    let mut variables = new_secret();
    variables.push(("APP_SECRET_PREVIOUS", STANDARD.encode([OLD; 32])));
    variables
}

fn start_rotation(server: &Server) -> Process {
    server.spawn_with(&["secrets", "rotate"], &both_secrets())
}

/// Rotates to the end. Returns the exit code and the output.
fn rotate(server: &Server) -> (Option<i32>, String) {
    let mut process = start_rotation(server);
    (process.wait(), process.log())
}

fn bytea(value: &[u8]) -> String {
    format!("'\\x{}'", hex::encode(value))
}

/// A value in the format of earlier versions.
fn unversioned(text: &str) -> Vec<u8> {
    let key = RandomizedNonceKey::new(&AES_256_GCM, &[OLD; 32]).unwrap();
    let mut text = text.as_bytes().to_vec();
    let nonce = key.seal_in_place_append_tag(Aad::empty(), &mut text).unwrap();
    [nonce.as_ref().as_slice(), &text].concat()
}

/// How many values have the marker of the new key, and how many have not.
fn count_sealed(server: &Server) -> (i64, i64) {
    let marker = cipher(NEW, &[]).current_marker();
    let count = |comparison: &str| {
        let counts = SEALED_COLUMNS.iter().map(|column| {
            let (table, name) = (column.table, column.column);
            let prefix = format!("substring({name} FROM 1 FOR {})", marker.len());
            server
                .db
                .count(&format!("FROM {table} WHERE {prefix} {comparison} {}", bytea(&marker)))
        });
        counts.sum::<i64>()
    };
    (count("="), count("<>"))
}

fn with_key(user: &User<'_>, path: &str, key: &str, body: &str) -> Request {
    let request = user.request("POST", path).header("Idempotency-Key", key);
    request.body("application/json", body)
}

/// Calls the inbound endpoint, signed with this secret.
fn call_hook(server: &Server, id: &str, signing_secret: &str) -> u16 {
    let hook = Hook::from_response(&json!({ "id": id, "signing_secret": signing_secret }));
    let message = Uuid::new_v4().to_string();
    hook.call(server, &message, &json!({ "type": "x", "data": {} })).status
}

/// Must hold: a sealed token in another account's row cannot be used.
#[test]
fn moved_token_sends_nothing() {
    let server = Server::start(without_statuses());
    let (ana, bia) = (server.owner(), server.owner());
    ana.profile_at("106500000091");
    ana.contacts(1);
    let conversation = open_conversation(&bia);
    let (campaign, tested) = (bia.plain_campaign(), bia.plain_campaign());
    let test = |user: &User<'_>, campaign: &str| {
        user.post(&format!("/api/campaigns/{campaign}/test"), json!({ "phone": phone(7) }))
    };
    test(&bia, &tested).ok();
    server.db.run(&format!(
        "UPDATE whatsapp_profiles SET access_token =
           (SELECT access_token FROM whatsapp_profiles WHERE account_id = '{}') WHERE account_id = '{}'",
        ana.account, bia.account
    ));
    let calls = server.whatsapp.ledger().len();
    reply(&bia, &conversation, "oi").refused(400, "VALIDATION_ERROR");
    test(&bia, &tested).refused(400, "VALIDATION_ERROR");
    bia.send(&campaign);
    until("the campaign is paused", || {
        let paused = bia.get(&format!("/api/campaigns/{campaign}")).ok();
        paused["pause_reason"].is_string()
    });
    let template = bia.template("moved", "Oi", &[]);
    let submitted = bia.post(&format!("/api/templates/{template}/submit"), json!({}));
    assert_eq!(submitted.invalid(), ["profile_id"]);
    assert_eq!(server.whatsapp.ledger().len(), calls, "WhatsApp was called");
    assert!(server.log().contains("a sealed value cannot be opened"));
    // The row from which it was copied still works.
    test(&ana, &ana.plain_campaign()).ok();
}

/// A value may not move between the rows or the tables of one account either.
#[test]
fn moved_webhook_secret_verifies_nothing() {
    let server = Server::new();
    let ana = server.owner();
    let body = json!({ "name": "Loja", "direction": "inbound", "events": ["*"] });
    let hooks = [0, 1].map(|_| ana.post("/api/webhooks", body.clone()).created());
    let (ids, secrets) = (
        hooks.each_ref().map(|hook| text(&hook["id"])),
        hooks.each_ref().map(|hook| text(&hook["signing_secret"])),
    );
    assert_eq!(call_hook(&server, &ids[1], &secrets[1]), 200);
    server.db.run(&format!(
        "UPDATE webhook_endpoints SET secret = (SELECT secret FROM webhook_endpoints WHERE id = '{}') WHERE id = '{}'",
        ids[0], ids[1]
    ));
    assert_eq!(call_hook(&server, &ids[1], &secrets[0]), 401);
    assert_eq!(call_hook(&server, &ids[1], &secrets[1]), 401);
    assert_eq!(call_hook(&server, &ids[0], &secrets[0]), 200);
}

/// Stored responses of the old key, many of them in the format of earlier versions.
fn insert_responses(server: &Server, user: &User<'_>) {
    let old = cipher(OLD, &[]);
    let scope: Uuid = user.account.parse().unwrap();
    let rows: Vec<String> = (0..RESPONSES)
        .map(|number| {
            let key = format!("filler-{number:05}");
            let context = SealContext::new(SealPurpose::StoredResponse, scope, &key);
            let response = r#"{"status":201,"headers":[],"body":"{}"}"#;
            let sealed = match number % 3 {
                0 => unversioned(response),
                _ => old.seal(&SecretString::from(response), &context).0,
            };
            format!("('{scope}', '{key}', '{scope}', now(), '\\x00', {})", bytea(&sealed))
        })
        .collect();
    server.db.run(&format!(
        "INSERT INTO idempotency_keys (scope, key, holder, leased_until, request_hash, response) VALUES {}",
        rows.join(",")
    ));
}

/// What an account has before a rotation, and must have after it.
struct Before {
    inbound: Value,
    /// The secret of `inbound` before its own rotation; it still verifies.
    previous_secret: String,
    /// A request that creates a webhook, and its response with the secret.
    webhook: String,
    webhook_response: String,
    /// A request that creates a contact, and its response, which an earlier version stored.
    contact: String,
    contact_response: String,
}

fn fill(server: &Server, ana: &User<'_>) -> Before {
    ana.profile_at("106500000092");
    let earlier_profile = text(&ana.profile_at("106500000093")["id"]);
    server.db.run(&format!(
        "UPDATE whatsapp_profiles SET access_token = {} WHERE id = '{earlier_profile}'",
        bytea(&unversioned("EAAG-token"))
    ));
    let body = json!({ "name": "Loja", "direction": "inbound", "events": ["*"] });
    let first = ana.post("/api/webhooks", body).created();
    let path = format!("/api/webhooks/{}/rotate-secret", text(&first["id"]));
    let inbound = ana.post(&path, json!({})).ok();
    ana.post(
        "/api/team/invites",
        json!({ "email": "bia@example.com", "role": "member" }),
    )
    .created();
    let webhook = json!({ "name": "CI", "url": "https://e.example", "events": ["*"] }).to_string();
    let webhook_response = with_key(ana, "/api/webhooks", "webhook", &webhook).send();
    assert_eq!(webhook_response.status, 201);
    let contact = json!({ "name": "Bia", "phone": phone(1) });
    let contact_response = ana.post("/api/contacts", contact.clone()).text;
    let contact = contact.to_string();
    store_earlier_response(server, ana, &contact, &contact_response);
    insert_responses(server, ana);
    Before {
        inbound,
        previous_secret: text(&first["signing_secret"]),
        webhook,
        webhook_response: webhook_response.text,
        contact,
        contact_response,
    }
}

/// A stored response in the format of earlier versions, and the hash of its request.
fn store_earlier_response(server: &Server, ana: &User<'_>, body: &str, response: &str) {
    let key = [[OLD; 32].as_slice(), b"idempotency: what a request asks"].concat();
    let mut hash = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    hash.update(format!("POST /api/contacts\n{body}").as_bytes());
    let stored = json!({ "status": 201, "headers": [["content-type", "application/json"]], "body": response });
    server.db.run(&format!(
        "INSERT INTO idempotency_keys (scope, key, holder, leased_until, request_hash, response)
         VALUES ('{0}', 'earlier', '{0}', now(), {1}, {2})",
        ana.account,
        bytea(&hash.finalize().into_bytes()),
        bytea(&unversioned(&stored.to_string()))
    ));
}

fn assert_complete(server: &Server, ana: &User<'_>, before: &Before) {
    let replay = with_key(ana, "/api/webhooks", "webhook", &before.webhook).send();
    assert_eq!(replay.header("idempotent-replayed"), Some("true"));
    assert_eq!((replay.status, &replay.text), (201, &before.webhook_response));
    let replay = with_key(ana, "/api/contacts", "earlier", &before.contact).send();
    assert_eq!(replay.header("idempotent-replayed"), Some("true"));
    assert_eq!((replay.status, &replay.text), (201, &before.contact_response));
    with_key(ana, "/api/contacts", "earlier", "{}")
        .send()
        .refused(409, "CONFLICT");
    let inbound = text(&before.inbound["id"]);
    for secret in [&text(&before.inbound["signing_secret"]), &before.previous_secret] {
        assert_eq!(call_hook(server, &inbound, secret), 200);
    }
    let test = json!({ "phone": phone(7) });
    let campaign = ana.plain_campaign();
    ana.post(&format!("/api/campaigns/{campaign}/test"), test).ok();
}

/// Opens every token and mail with the new secret alone.
fn assert_all_open(server: &Server) {
    let new = cipher(NEW, &[]);
    let open = |purpose, row: &[Option<String>]| {
        let [account, id, value] = [0, 1, 2].map(|at: usize| row[at].clone().unwrap());
        let context = SealContext::new(purpose, account.parse::<Uuid>().unwrap(), id);
        let sealed = Sealed(hex::decode(value).unwrap());
        new.try_open(&sealed, &context).unwrap().expose_secret().to_owned()
    };
    let tokens = server
        .db
        .rows("SELECT account_id::text, id::text, encode(access_token, 'hex') FROM whatsapp_profiles");
    assert!(tokens.len() >= 2);
    for row in tokens {
        assert_eq!(open(SealPurpose::WhatsappToken, &row), "EAAG-token");
    }
    let mails = server
        .db
        .rows("SELECT account_id::text, id::text, encode(content, 'hex') FROM outgoing_mail");
    assert_eq!(mails.len(), 1);
    assert!(open(SealPurpose::QueuedMail, &mails[0]).contains("bia@example.com"));
}

/// Requests that write sealed values. Each is repeated until the rotation has ended.
fn writers(ana: &User<'_>, before: &Before) -> Vec<Request> {
    let profile = ana.get("/api/whatsapp/profiles").ok()["data"][0]["id"].clone();
    let profile = format!("/api/whatsapp/profiles/{}", text(&profile));
    let webhook: Value = serde_json::from_str(&before.webhook_response).unwrap();
    let webhook = format!("/api/webhooks/{}", text(&webhook["data"]["id"]));
    vec![
        ana.request("PUT", &profile).json(&json!({ "messages_per_second": 5 })),
        ana.request("PUT", &webhook).json(&json!({ "name": "CI 2" })),
        ana.request("POST", &format!("{webhook}/rotate-secret"))
            .json(&json!({})),
    ]
}

/// Kills a rotation after it has sealed some further values.
fn kill_midway(server: &Server) {
    let (resealed, _) = count_sealed(server);
    let mut process = start_rotation(server);
    until("some values are sealed anew", || {
        count_sealed(server).0 > resealed + 100
    });
    process.kill();
    assert!(count_sealed(server).1 > 0, "the rotation ended before it was killed");
}

/// F41a. Must hold: during and after a rotation that is killed again and again, every number, webhook and replay works.
#[test]
fn killed_rotation_beside_writes_is_resumed() {
    let server = Server::start(without_statuses().with("SMTP_URL", "smtp://127.0.0.1:9"));
    let ana = server.owner();
    let before = fill(&server, &ana);
    server.stop();
    server.serve_with(&both_secrets());
    let (stop, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for request in writers(&ana, &before) {
            let (stop, written) = (&stop, &written);
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let reply = request.clone().send();
                    assert!([200, 429].contains(&reply.status), "{}", reply.text);
                    written.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
        }
        // A panic must not keep the writers running.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..3 {
                kill_midway(&server);
                assert_complete(&server, &ana, &before);
            }
            let (code, output) = rotate(&server);
            assert_eq!(code, Some(0), "{output}");
            for kind in ["whatsapp_token", "webhook_secret", "stored_response", "queued_mail"] {
                assert!(output.contains(&format!("{kind}: ")), "{output}");
            }
        }));
        stop.store(true, Ordering::SeqCst);
        done.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
    });
    assert!(written.load(Ordering::SeqCst) > 10);
    assert_eq!(count_sealed(&server).1, 0);
    server.stop();
    server.serve_with(&new_secret());
    assert_complete(&server, &ana, &before);
    assert_all_open(&server);
}

/// A value that cannot be opened is named, and the command fails until it is replaced.
#[test]
fn rotation_fails_while_a_value_is_unreadable() {
    let server = Server::start(Options::default());
    let (ana, bia) = (server.owner(), server.owner());
    ana.profile();
    let profile = bia.profile();
    server.db.run(&format!(
        "UPDATE whatsapp_profiles SET access_token =
           (SELECT access_token FROM whatsapp_profiles WHERE account_id = '{}') WHERE account_id = '{}'",
        ana.account, bia.account
    ));
    let (code, output) = rotate(&server);
    assert_eq!(code, Some(1), "{output}");
    for part in [
        "whatsapp_token: 1 sealed anew, 1 under the current key, 1 under an earlier key",
        &format!("whatsapp_profiles.access_token of {profile}, account {}", bia.account),
        "another row, table or account",
        "keep APP_SECRET_PREVIOUS",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    server.stop();
    server.serve_with(&both_secrets());
    let path = format!("/api/whatsapp/profiles/{profile}");
    bia.put(&path, json!({ "access_token": "EAAG-token" })).ok();
    assert_eq!(rotate(&server).0, Some(0));
}

#[test]
fn rotation_without_the_previous_secret_names_the_missing_key() {
    let server = Server::start(Options::default());
    server.owner().profile();
    let mut process = server.spawn_with(&["secrets", "rotate"], &new_secret());
    assert_eq!(process.wait(), Some(1));
    let log = process.log();
    assert!(
        log.contains("is sealed under key") && log.contains("APP_SECRET_PREVIOUS"),
        "{log}"
    );
    // Without a new secret there is nothing to do.
    let mut process = server.spawn(&["secrets", "rotate"]);
    assert_eq!(process.wait(), Some(0), "{}", process.log());
    assert_eq!(server.spawn(&["secrets"]).wait(), Some(2));
}

#[test]
fn support_cookie_outlives_the_rotation_while_its_secret_is_configured() {
    let server = Server::start(Options::default());
    let ana = server.owner();
    let mut root = server.root();
    root.account = text(&root.post("/api/accounts", json!({ "name": "Nossa" })).created()["account"]["id"]);
    let browser = Browser::new(root);
    browser.support(&ana.account);
    let is_in_support = || browser.get("/api/accounts").ok()["support_mode"].is_object();
    assert!(is_in_support());
    server.stop();
    server.serve_with(&both_secrets());
    assert!(is_in_support());
    server.stop();
    server.serve_with(&new_secret());
    assert!(!is_in_support());
}

#[test]
fn metric_counts_sealed_values_by_key() {
    let server = Server::start(Options::default().with_metrics());
    server.owner().profile();
    let wait_for = |key: &str, expected: f64| {
        until("the sealed values are counted", || {
            let label = format!("key=\"{key}\"");
            scrape(server.metrics_port()).sum("recado_sealed_values", &[&label]) == Some(expected)
        });
    };
    wait_for("current", 1.0);
    wait_for("previous", 0.0);
    server.stop();
    server.serve_with(&both_secrets());
    wait_for("previous", 1.0);
    assert_eq!(rotate(&server).0, Some(0));
    wait_for("previous", 0.0);
    wait_for("current", 1.0);
}
