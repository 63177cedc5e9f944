//! Every secret of a busy day, looked for in everything that is written down: the log at its loudest, every table, the
//! counters, and what people are answered.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use recado_simulators::payment;
use serde_json::{Value, json};

use crate::billing::{card_order, subscribe};
use crate::harness::process::{SESSION_SECRET, own_redis};
use crate::harness::users::{User, phone};
use crate::harness::{GATEWAY_TOKEN, Options, Server, VERIFY_TOKEN, WHATSAPP_APP_SECRET, text};

const NUMBER: &str = "4929531748602937";
const PLATFORM_TOKEN: &str = "EAAGmarkedaccesstoken";

/// What must not be found, and the words for it.
type Secret = (&'static str, String);

/// The ways in which a secret may be written down.
fn forms(secret: &str) -> Vec<String> {
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
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
        for form in forms(secret) {
            let found = written.find(&form);
            let around = found.map(|at| written[at.saturating_sub(200)..].chars().take(500).collect::<String>());
            assert_eq!(around, None, "{name} stands in {what}");
        }
    }
}

/// Uses every secret, well and badly; the new ones, and what was answered where none of them may be.
fn use_them(ana: &User<'_>) -> (Vec<Secret>, String) {
    let server = ana.server;
    let number = ana.profile_at("106500000071");
    let profile = text(&number["id"]);
    let change = json!({ "access_token": PLATFORM_TOKEN });
    let mut said = ana.put(&format!("/api/whatsapp/profiles/{profile}"), change).text;
    ana.contacts(3);
    let campaign = ana.plain_campaign();
    ana.execute(&campaign).ok();
    let template = ana.template("t", "Oi", &[]);
    said += &ana.post(&format!("/api/templates/{template}/submit"), json!({})).text;
    let key = ana.post("/api/api-keys", json!({ "name": "CI" })).created();
    let invited = server.stranger();
    let invite = json!({ "email": invited.email, "role": "member" });
    let invite = ana.post("/api/team/invites", invite).created();
    let hook = json!({ "name": "CI", "url": "https://e.example", "events": ["*"] });
    let hook = ana.post("/api/webhooks", hook).created();
    let rotated = ana
        .post(&format!("/api/webhooks/{}/rotate-secret", text(&hook["id"])), json!({}))
        .ok();
    let find = |value: &Value, name: &str| text(&value[name]);
    let mut secrets = vec![
        ("an API key", find(&key, "full_key")),
        ("an invite's token", find(&invite, "token")),
        ("a webhook's secret", find(&hook, "secret")),
        ("a webhook's new secret", find(&rotated, "secret")),
        ("a session", ana.token.clone()),
    ];
    said += &server.get("/api/contacts").bearer(&secrets[0].1).send().text;
    let wrong = format!("{}x", secrets[0].1);
    said += &server.get("/api/contacts").bearer(&wrong).send().text;
    said += &server
        .get("/api/contacts")
        .cookie(&format!("svc-session={}", ana.token))
        .send()
        .text;
    said += &invited
        .post("/api/auth/accept-invite", json!({ "token": invite["token"] }))
        .text;
    said += &invited
        .post("/api/auth/accept-invite", json!({ "token": invite["token"] }))
        .text;
    said += &subscribe(ana, card_order(NUMBER, "7319")).text;
    said += &from_outside(server, &mut secrets);
    said += &lists_and_faults(ana);
    (secrets, said)
}

/// What the gateway and the platform show, well and badly.
fn from_outside(server: &Server, secrets: &mut Vec<Secret>) -> String {
    let mut said = String::new();
    let own = "signs nothing of ours, and is ours all the same";
    secrets.push(("a token that was wrong", own.replace(' ', "-")));
    for token in [GATEWAY_TOKEN, &own.replace(' ', "-")] {
        let event = server
            .post("/api/billing/webhook")
            .json(&json!({ "event": "PAYMENT_CONFIRMED" }));
        said += &event.header("gateway-access-token", token).send().text;
    }
    let shake = format!("/api/whatsapp/webhook?hub.mode=subscribe&hub.challenge=1&hub.verify_token={VERIFY_TOKEN}");
    said += &server.get(&shake).send().text;
    said
}

/// What tells of things with secrets, and faults with everything in their hands.
fn lists_and_faults(ana: &User<'_>) -> String {
    let mut said = String::new();
    for path in [
        "/api/webhooks",
        "/api/api-keys",
        "/api/team/invites",
        "/api/whatsapp/profiles",
        "/api/audit-logs",
    ] {
        said += &ana.get(path).text;
    }
    said += &ana
        .post("/api/whatsapp/profiles", json!({ "access_token": PLATFORM_TOKEN }))
        .text;
    said += &ana
        .post(
            "/api/contacts",
            json!({ "name": "C", "phone": phone(1), "x": PLATFORM_TOKEN }),
        )
        .text;
    said
}

/// R12.
#[test]
fn no_secret_is_written_down_anywhere() {
    let redis = own_redis();
    let options = Options::default()
        .with("RUST_LOG", "trace")
        .with("REDIS_URL", redis.url());
    let server = Server::start(options);
    let ana = server.owner();
    server.db.run("UPDATE accounts SET plan = 'scale'");
    let (mut secrets, said) = use_them(&ana);
    secrets.extend([
        ("the platform's token", PLATFORM_TOKEN.to_owned()),
        ("a card's number", NUMBER.to_owned()),
        ("the gateway's key", payment::PaymentOptions::default().api_key),
        ("the gateway's token", GATEWAY_TOKEN.to_owned()),
        ("the platform's secret", WHATSAPP_APP_SECRET.to_owned()),
        ("the secret of the sessions", SESSION_SECRET.to_owned()),
        ("the key of what is encrypted", "k".repeat(32)),
    ]);
    assert!(secrets.iter().all(|(_, secret)| secret.len() > 9), "{secrets:?}");
    server.db.settles();
    assert!(server.payment.wait_idle(std::time::Duration::from_secs(30)));
    let log = server.log();
    assert!(log.contains("\"TRACE\""), "the log is as loud as it can be");
    let stored: String = server.db.dump().into_values().collect();
    // What is looked through is what was written: what is no secret is found.
    assert!(log.contains("/api/billing/webhook") && stored.contains(&ana.account) && said.contains("key_prefix"));
    assert_clean("the log", &log, &secrets);
    assert_clean("the database", &stored, &secrets);
    assert_clean("an answer", &said, &secrets);
    let keys = redis.say("KEYS *");
    assert!(keys.contains("recado:limit:"), "{keys}");
    assert_clean("Redis", &keys, &secrets);
    let values: String = keys
        .lines()
        .filter(|line| line.starts_with("recado"))
        .map(|key| redis.say(&format!("ZRANGE {key} 0 -1")))
        .collect();
    assert_clean("Redis", &values, &secrets);
}
