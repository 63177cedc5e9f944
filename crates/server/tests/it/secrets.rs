//! Leaks of secrets: the tests search the trace log, the metrics and error responses for every secret that the server
//! gets or creates, and for message texts. `docs/operating/logs.md` lists what must not be logged.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use recado_simulators::fault::{Fault, FaultKind};
use recado_simulators::payment;
use recado_simulators::whatsapp::Inbound;
use serde_json::{Value, json};

use crate::api_keys;
use crate::billing::{card_order, order, subscribe};
use crate::harness::admin::Browser;
use crate::harness::client::Reply;
use crate::harness::database::Database;
use crate::harness::process::SESSION_SECRET;
use crate::harness::runs::final_status;
use crate::harness::scrape::scrape;
use crate::harness::users::User;
use crate::harness::{GATEWAY_TOKEN, Options, Server, VERIFY_TOKEN, WHATSAPP_APP_SECRET, eventually, text, until};

const NUMBER: &str = "106500000077";
const SERVER_KEY: &[u8; 32] = b"leak-application-secret-32-bytes";
const DATABASE: &str = "leak-database-password";
const REDIS: &str = "leak-redis-password";
const SMTP: &str = "leak-smtp-password";
const AI: &str = "leak-ai-key";
const WHATSAPP: &str = "EAAG-leak-whatsapp-token";
const CARD: &str = "4929531748602937";
const DOCUMENT: &str = "52998224725";
const PHONE: &str = "+5531977776666";
const SENDER: &str = "+5531955554444";
const EMAIL: &str = "leak-address@example.com";
const NAME: &str = "Leakname";
const TEMPLATE: &str = "leak-template-text";
const INBOUND: &str = "leak-inbound-text";
const REPLY: &str = "leak-reply-text";
const SEARCH: &str = "leak-search-words";

/// A description of a secret, and the text that must not be found.
pub type Marker = (&'static str, String);

/// Starts a server that logs at level `trace`, with a unique text for each secret. Returns it with its metrics port.
pub fn start(options: Options) -> (Server, u16) {
    let db = Database::new();
    let url = db.url().replacen("postgres@", &format!("postgres:{DATABASE}@"), 1);
    assert!(url.contains(&database_password()), "no password");
    let options = options
        .with("RUST_LOG", "trace")
        .with_metrics()
        .with("DATABASE_URL", url)
        .with("APP_SECRET", STANDARD.encode(SERVER_KEY))
        .with("REDIS_URL", format!("redis://:{REDIS}@127.0.0.1:9"))
        .with("SMTP_URL", format!("smtp://mailer:{SMTP}@127.0.0.1:9"))
        .with("AI_API_URL", "http://127.0.0.1:9/v1")
        .with("AI_API_KEY", AI)
        .with("AI_MODEL", "m")
        .with("EGRESS_ALLOW_CIDRS", "127.0.0.0/8")
        .with("WEBHOOK_RETRY_SCHEDULE", "10ms");
    let server = Server::start_on(db, &options);
    let port = server.metrics_port();
    (server, port)
}

/// The password of `TEST_DATABASE_URL` if it has one, else `DATABASE`.
fn database_password() -> String {
    let url = std::env::var("TEST_DATABASE_URL").unwrap();
    let user = url
        .split_once("://")
        .and_then(|(_, rest)| rest.split_once('@'))
        .unwrap()
        .0;
    let password = user.split_once(':').map_or(DATABASE, |(_, password)| password);
    password.to_owned()
}

/// The secrets of the configuration, and the card number. They must not occur in any output.
fn configured_secrets() -> Vec<Marker> {
    [
        ("the server's key", String::from_utf8(SERVER_KEY.to_vec()).unwrap()),
        ("the server's key in base64", STANDARD.encode(SERVER_KEY)),
        ("the sessions' secret", SESSION_SECRET.to_owned()),
        ("the database's password", database_password()),
        ("the password of Redis", REDIS.to_owned()),
        ("the mail server's password", SMTP.to_owned()),
        ("the key of the AI service", AI.to_owned()),
        ("the gateway's key", payment::PaymentOptions::default().api_key),
        ("the token of the gateway's events", GATEWAY_TOKEN.to_owned()),
        ("the secret of WhatsApp's callbacks", WHATSAPP_APP_SECRET.to_owned()),
        ("the token of the handshake", VERIFY_TOKEN.to_owned()),
        ("a WhatsApp access token", WHATSAPP.to_owned()),
        ("a card", CARD.to_owned()),
        ("the first half of a card", CARD[..10].to_owned()),
    ]
    .into()
}

/// Personal data and message texts. Only responses to their own account may contain them.
fn personal_data() -> Vec<Marker> {
    [
        ("a document", DOCUMENT),
        ("a document as it was written", "529.982.247"),
        ("a phone", &PHONE[3..]),
        ("a sender's phone", &SENDER[3..]),
        ("an address", EMAIL),
        ("a name", NAME),
        ("a template's text", TEMPLATE),
        ("an inbound message", INBOUND),
        ("a reply", REPLY),
        ("a search text", SEARCH),
    ]
    .map(|(what, word)| (what, word.to_owned()))
    .into()
}

#[track_caller]
pub fn assert_clean(what: &str, output: &str, markers: &[Marker]) {
    for (secret, word) in markers {
        assert!(word.len() >= 8, "{secret} is too short to be looked for");
        if let Some(at) = output.find(word.as_str()) {
            let line = output[..at].rsplit('\n').next().unwrap_or_default();
            let end = output[at..].find('\n').map_or(output.len(), |end| at + end);
            panic!("{what} holds {secret}: {line}{}", &output[at..end]);
        }
    }
}

/// Calls every feature that handles a secret, with valid and invalid input. Returns the markers that must not occur in
/// the output, and all error responses.
pub fn use_every_secret(server: &Server) -> (Vec<Marker>, String) {
    let (mut markers, mut errors) = (configured_secrets(), String::new());
    markers.extend(personal_data());
    let ana = server.owner();
    markers.push(("a session", ana.token.clone()));
    use_credentials(server, &ana, &mut markers, &mut errors);
    exchange_messages(server, &ana);
    use_billing(server, &ana, &mut errors);
    use_webhooks(server, &ana, &mut markers);
    (markers, errors)
}

fn expect_error(errors: &mut String, reply: &Reply, status: u16) {
    assert_eq!(reply.status, status, "{}", reply.text);
    errors.push_str(&reply.text);
    errors.push('\n');
}

fn use_credentials(server: &Server, ana: &User<'_>, markers: &mut Vec<Marker>, errors: &mut String) {
    let key = api_keys::create_key(ana);
    server.get("/api/contacts").bearer(&key).send().ok();
    server.get("/api/contacts").header("X-API-Key", &key).send().ok();
    let wrong = format!("{}x", ana.token);
    expect_error(errors, &server.get("/api/contacts").bearer(&wrong).send(), 401);
    let cookie = format!("svc-session={}", ana.token);
    server.get("/api/contacts").cookie(&cookie).send().ok();
    // The second request gets the stored response, which contains the secret.
    let create_key = || {
        let request = ana.request("POST", "/api/api-keys").header("Idempotency-Key", "once");
        text(&request.json(&json!({ "name": "Two" })).send().created()["full_key"])
    };
    let second = create_key();
    assert_eq!(second, create_key());
    let invite = ana
        .post("/api/team/invites", json!({ "email": EMAIL, "role": "member" }))
        .created();
    let token = text(&invite["token"]);
    until("the mail failed", || server.log().contains("a mail was not sent"));
    let bia = server.user(uuid::Uuid::new_v4(), EMAIL);
    expect_error(
        errors,
        &bia.post("/api/auth/accept-invite", json!({ "token": format!("{token}x") })),
        404,
    );
    bia.post("/api/auth/accept-invite", json!({ "token": token })).ok();
    let browser = Browser::new(server.root());
    let path = format!("/api/admin/accounts/{}/support", ana.account);
    browser
        .send(browser.request("POST", &path).json(&json!({ "reason": "x" })))
        .ok();
    browser.get("/api/contacts").ok();
    let support = browser.cookie("svc-support-mode").unwrap();
    markers.extend([
        ("an API key", key),
        ("another API key", second),
        ("an invite's token", token),
        ("the cookie of support mode", support),
        ("a guest's session", bia.token.clone()),
        ("an administrator's session", browser.user.token.clone()),
    ]);
}

fn exchange_messages(server: &Server, ana: &User<'_>) {
    let number =
        json!({ "name": "Loja", "phone_number_id": NUMBER, "waba_id": "100000000000001", "access_token": WHATSAPP });
    ana.post("/api/whatsapp/profiles", number).created();
    let contact = json!({ "name": NAME, "phone": PHONE, "email": EMAIL });
    ana.post("/api/contacts", contact.clone()).created();
    // A duplicate: the database's error message contains the phone number.
    ana.post("/api/contacts", contact).invalid();
    ana.get(&format!("/api/contacts?search={SEARCH}")).ok();
    ana.import(format!("name,phone\n{NAME},{PHONE}\n{NAME},nowhere\n")).ok();
    let template = ana.approved(&format!("Oi {{{{1}}}}, {TEMPLATE}"), &["Ana"]);
    let campaign = ana.campaign(json!({ "name": "C", "template_id": template }));
    ana.execute(&campaign).ok();
    final_status(ana, &campaign);
    ana.post(&format!("/api/campaigns/{campaign}/test"), json!({ "phone": PHONE }))
        .ok();
    server.whatsapp.inbound(&Inbound::text(NUMBER, SENDER, INBOUND));
    let conversation = eventually("the message is there", || {
        let found = ana.get("/api/conversations").ok();
        found["data"][0]["id"].as_str().map(str::to_owned)
    });
    ana.post(
        &format!("/api/conversations/{conversation}/messages"),
        json!({ "text": REPLY }),
    )
    .created();
    let query = format!("hub.mode=subscribe&hub.verify_token={VERIFY_TOKEN}&hub.challenge=1");
    server.get("/api/whatsapp/webhook").query(&query).send();
    server
        .post("/api/whatsapp/webhook")
        .header("X-Hub-Signature-256", "sha256=00")
        .json(&json!({}))
        .send();
}

fn use_billing(server: &Server, ana: &User<'_>, errors: &mut String) {
    let broken = FaultKind::status(500, json!({ "echo": CARD }));
    server
        .payment
        .script(vec![Fault::new(broken).on("POST", "/subscriptions")]);
    expect_error(errors, &subscribe(ana, card_order(CARD, "7319")), 502);
    let bia = server.owner();
    subscribe(&bia, card_order(CARD, "7319")).created();
    server.gateway_event(&json!({ "id": "evt_1", "event": "PAYMENT_CREATED", "payment": { "id": "pay_1" } }));
    server
        .post("/api/billing/webhook")
        .header("gateway-access-token", "wrong")
        .json(&json!({}))
        .send();
}

fn use_webhooks(server: &Server, ana: &User<'_>, markers: &mut Vec<Marker>) {
    let outbound = json!({ "name": "CI", "url": "http://127.0.0.1:9/hook", "events": ["*"] });
    let outbound = ana.post("/api/webhooks", outbound).created();
    let inbound = json!({ "name": "Loja", "direction": "inbound", "events": ["*"] });
    let inbound = ana.post("/api/webhooks", inbound).created();
    ana.contact(NAME, "+5531933332222");
    until("the delivery failed", || {
        server.db.count("FROM webhook_logs WHERE attempt = 2") > 0
    });
    let path = format!("/api/hooks/{}", text(&inbound["id"]));
    server
        .post(&path)
        .header("webhook-id", "1")
        .header("webhook-signature", "v1,eA==")
        .json(&json!({}))
        .send();
    let rotated = ana
        .post(
            &format!("/api/webhooks/{}/rotate-secret", text(&outbound["id"])),
            Value::Null,
        )
        .ok();
    for (what, made) in [
        ("a webhook's secret", &outbound),
        ("an inbound webhook's secret", &inbound),
        ("a rotated secret", &rotated),
    ] {
        markers.push((what, text(&made["secret"])));
        markers.push((what, text(&made["signing_secret"])));
    }
}

#[test]
fn error_responses_and_metrics_hold_no_secret() {
    for format in ["json", "pretty"] {
        let (server, metrics_port) = start(Options::default().with("LOG_FORMAT", format));
        let (markers, errors) = use_every_secret(&server);
        assert_clean("an error response", &errors, &configured_secrets());
        assert_clean("the metrics", &scrape(metrics_port).text, &markers);
        assert_eq!(server.stop(), Some(0));
    }
}

#[test]
fn trace_log_holds_no_secret() {
    for format in ["json", "pretty"] {
        let (server, _) = start(Options::default().with("LOG_FORMAT", format));
        let (markers, _) = use_every_secret(&server);
        let log = server.log();
        assert!(log.contains("TRACE"), "the log holds TRACE lines");
        assert!(
            log.contains("a mail was not sent") && log.contains("requests are not counted"),
            "{format}"
        );
        assert_clean(&format!("the {format} log"), &log, &markers);
    }
}

#[test]
fn failed_command_output_holds_no_secret() {
    let server = Server::prepare(&Options::default());
    let mut env = server.environment();
    env.push((
        "DATABASE_URL",
        format!("postgres://someone:{DATABASE}@127.0.0.1:9/none"),
    ));
    for arguments in [&["migrate"][..], &["rollups", "verify"][..]] {
        let output = crate::harness::process::command(arguments, &env).output().unwrap();
        assert!(!output.status.success());
        let output_text =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(!output_text.is_empty());
        assert_clean(
            "the output of the command",
            &output_text,
            &[("the database's password", DATABASE.to_owned())],
        );
    }
}

/// Log injection: text from outside stays inside one log line.
#[test]
fn external_text_cannot_forge_a_log_line() {
    const FORGED: &str = "2031-01-01T00:00:00.000000Z  INFO forged";
    for format in ["pretty", "json"] {
        let server = Server::start(Options::default().with("LOG_FORMAT", format));
        let description = format!("no\r\n{FORGED}\n{{\"level\":\"INFO\",\"forged\":true}}");
        let fault = FaultKind::status(400, json!({ "errors": [{ "code": "x", "description": description }] }));
        server.payment.script(vec![Fault::new(fault).on("GET", "/payments")]);
        let ana = server.owner();
        subscribe(&ana, order("PIX"));
        server
            .get(&format!("/api/contacts%0d%0a{}", FORGED.replace(' ', "%20")))
            .send();
        server.get("/healthz").header("X-Request-Id", "a\u{e9}forged").send();
        until("the gateway's error is logged", || {
            server.log().contains("payment of a subscription could not be read")
        });
        let log = server.log();
        assert!(!log.contains("forged"), "text from outside is not logged at all: {log}");
        let is_forged = |line: &str| line.starts_with("2031") || line.starts_with("{\"level\":\"INFO\",\"forged");
        assert!(!log.lines().any(is_forged), "{log}");
        if format == "json" {
            for line in log.lines() {
                assert!(serde_json::from_str::<Value>(line).is_ok(), "not JSON: {line}");
            }
        }
    }
}
