//! No secret appears in the log at TRACE level, in a table, in Redis or in a response.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use recado_simulators::payment;
use serde_json::{Value, json};

use crate::billing::{card_order, subscribe};
use crate::harness::process::{SESSION_SECRET, own_redis};
use crate::harness::users::{User, phone};
use crate::harness::{DEADLINE, GATEWAY_TOKEN, Options, Server, VERIFY_TOKEN, WHATSAPP_APP_SECRET, text};

const CARD_NUMBER: &str = "4929531748602937";
const ACCESS_TOKEN: &str = "EAAGmarkedaccesstoken";

/// A secret and its description.
type Secret = (&'static str, String);

/// The encodings in which a secret could appear.
fn encodings(secret: &str) -> Vec<String> {
    let hex = hex::encode(secret);
    vec![
        secret.to_owned(),
        hex.clone(),
        hex.to_uppercase(),
        STANDARD.encode(secret),
        STANDARD_NO_PAD.encode(secret),
        URL_SAFE_NO_PAD.encode(secret),
    ]
}

fn assert_clean(what: &str, written: &str, secrets: &[Secret]) {
    for (name, secret) in secrets {
        for encoded in encodings(secret) {
            let found = written.find(&encoded);
            let around = found.map(|at| written[at.saturating_sub(200)..].chars().take(500).collect::<String>());
            assert_eq!(around, None, "{name} appears in {what}");
        }
    }
}

/// Uses every secret in valid and invalid requests. Returns the created secrets, and the responses that must hold none.
fn use_secrets(ana: &User<'_>) -> (Vec<Secret>, String) {
    let server = ana.server;
    let number = ana.profile_at("106500000071");
    let profile = text(&number["id"]);
    let change = json!({ "access_token": ACCESS_TOKEN });
    let mut responses = ana.put(&format!("/api/whatsapp/profiles/{profile}"), change).text;
    ana.contacts(3);
    let campaign = ana.plain_campaign();
    ana.execute(&campaign).ok();
    let template = ana.template("t", "Oi", &[]);
    responses += &ana.post(&format!("/api/templates/{template}/submit"), json!({})).text;
    let key = ana.post("/api/api-keys", json!({ "name": "CI" })).created();
    let invited = server.stranger();
    let invite = json!({ "email": invited.email, "role": "member" });
    let invite = ana.post("/api/team/invites", invite).created();
    let hook = json!({ "name": "CI", "url": "https://e.example", "events": ["*"] });
    let hook = ana.post("/api/webhooks", hook).created();
    let rotated = ana
        .post(&format!("/api/webhooks/{}/rotate-secret", text(&hook["id"])), json!({}))
        .ok();
    let field = |value: &Value, name: &str| text(&value[name]);
    let mut secrets = vec![
        ("an API key", field(&key, "full_key")),
        ("an invite's token", field(&invite, "token")),
        ("a webhook's secret", field(&hook, "secret")),
        ("a webhook's new secret", field(&rotated, "secret")),
        ("a session", ana.token.clone()),
    ];
    responses += &server.get("/api/contacts").bearer(&secrets[0].1).send().text;
    let wrong = format!("{}x", secrets[0].1);
    responses += &server.get("/api/contacts").bearer(&wrong).send().text;
    responses += &server
        .get("/api/contacts")
        .cookie(&format!("svc-session={}", ana.token))
        .send()
        .text;
    responses += &invited
        .post("/api/auth/accept-invite", json!({ "token": invite["token"] }))
        .text;
    responses += &invited
        .post("/api/auth/accept-invite", json!({ "token": invite["token"] }))
        .text;
    responses += &subscribe(ana, card_order(CARD_NUMBER, "7319")).text;
    responses += &send_callbacks(server, &mut secrets);
    responses += &send_lists_and_errors(ana);
    (secrets, responses)
}

/// Callbacks of the payment gateway and WhatsApp with valid and invalid tokens.
fn send_callbacks(server: &Server, secrets: &mut Vec<Secret>) -> String {
    let mut responses = String::new();
    let wrong_token = "a-wrong-gateway-token-must-not-be-logged-either";
    secrets.push(("a wrong gateway token", wrong_token.to_owned()));
    for token in [GATEWAY_TOKEN, wrong_token] {
        let event = server
            .post("/api/billing/webhook")
            .json(&json!({ "event": "PAYMENT_CONFIRMED" }));
        responses += &event.header("gateway-access-token", token).send().text;
    }
    let shake = format!("/api/whatsapp/webhook?hub.mode=subscribe&hub.challenge=1&hub.verify_token={VERIFY_TOKEN}");
    responses += &server.get(&shake).send().text;
    responses
}

/// Lists of resources with secrets, and requests that fail with a secret in their body.
fn send_lists_and_errors(ana: &User<'_>) -> String {
    let mut responses = String::new();
    for path in [
        "/api/webhooks",
        "/api/api-keys",
        "/api/team/invites",
        "/api/whatsapp/profiles",
        "/api/audit-logs",
    ] {
        responses += &ana.get(path).text;
    }
    responses += &ana
        .post("/api/whatsapp/profiles", json!({ "access_token": ACCESS_TOKEN }))
        .text;
    responses += &ana
        .post(
            "/api/contacts",
            json!({ "name": "C", "phone": phone(1), "x": ACCESS_TOKEN }),
        )
        .text;
    responses
}

/// R12.
#[test]
fn secrets_appear_in_no_log_table_or_response() {
    let redis = own_redis();
    let options = Options::default()
        .with("RUST_LOG", "trace")
        .with("REDIS_URL", redis.url());
    let server = Server::start(options);
    let ana = server.owner();
    server.db.run("UPDATE accounts SET plan = 'scale'");
    let (mut secrets, responses) = use_secrets(&ana);
    secrets.extend([
        ("the WhatsApp access token", ACCESS_TOKEN.to_owned()),
        ("the card number", CARD_NUMBER.to_owned()),
        ("the gateway's API key", payment::PaymentOptions::default().api_key),
        ("the gateway's callback token", GATEWAY_TOKEN.to_owned()),
        ("the WhatsApp app secret", WHATSAPP_APP_SECRET.to_owned()),
        ("the session secret", SESSION_SECRET.to_owned()),
        ("the encryption key", "k".repeat(32)),
    ]);
    assert!(secrets.iter().all(|(_, secret)| secret.len() > 9), "{secrets:?}");
    server.db.wait_for_outbox();
    assert!(server.payment.wait_idle(DEADLINE));
    let log = server.log();
    assert!(log.contains("\"TRACE\""), "the log has no TRACE lines");
    let stored: String = server.db.dump().into_values().collect();
    // Check that the searched texts are complete: each contains a value that is not secret.
    assert!(log.contains("/api/billing/webhook") && stored.contains(&ana.account) && responses.contains("key_prefix"));
    assert_clean("the log", &log, &secrets);
    assert_clean("the database", &stored, &secrets);
    assert_clean("a response", &responses, &secrets);
    let keys = redis.command("KEYS *");
    assert!(keys.contains("recado:limit:"), "{keys}");
    assert_clean("Redis", &keys, &secrets);
    let values: String = keys
        .lines()
        .filter(|line| line.starts_with("recado"))
        .map(|key| redis.command(&format!("ZRANGE {key} 0 -1")))
        .collect();
    assert_clean("Redis", &values, &secrets);
}
