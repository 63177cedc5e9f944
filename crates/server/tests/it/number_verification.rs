//! Verification of WhatsApp numbers: what WhatsApp confirms with a profile's token, what a broken set-up is called, and
//! what members are notified of.

use recado_simulators::whatsapp::{BusinessUpdateCallback, signature};
use serde_json::{Value, json};

use crate::harness::numbers::NumberFault;
use crate::harness::users::User;
use crate::harness::{Options, Server, WHATSAPP_APP_SECRET, eventually, text, until};

const NUMBER: &str = "106540352242922";
const ACCOUNT: &str = "102290129340398";
const TOKEN: &str = "EAAG-very-secret-token";
const PIN: &str = "246810";

fn body(token: &str) -> Value {
    json!({ "name": "Loja", "phone_number_id": NUMBER, "waba_id": ACCOUNT, "access_token": token })
}

fn with_pin(pin: &str) -> Value {
    let mut body = body(TOKEN);
    body["pin"] = json!(pin);
    body
}

fn connect(user: &User<'_>, body: Value) -> Value {
    user.post("/api/whatsapp/profiles", body).created()
}

fn path_of(profile: &Value) -> String {
    format!("/api/whatsapp/profiles/{}", text(&profile["id"]))
}

fn state(profile: &Value) -> String {
    text(&profile["verification"]["state"])
}

/// The names and states of the checks that are failed or unknown, each of which names a remedy.
fn complaints(checks: &Value) -> Vec<(String, String)> {
    let checks = checks.as_array().unwrap().iter();
    let complaints = checks.filter(|check| ["failed", "unknown"].contains(&check["state"].as_str().unwrap()));
    complaints
        .map(|check| {
            assert!(check["remedy"].is_string() && check["found"].is_string(), "{check}");
            (text(&check["name"]), text(&check["state"]))
        })
        .collect()
}

/// Subscribes an endpoint to all webhook events, so that the feed stores them.
fn subscribe_to_all_events(user: &User<'_>) {
    let body = json!({ "name": "feed", "url": "https://e.example", "events": ["*"], "is_active": false });
    user.post("/api/webhooks", body).created();
}

/// The events of changed numbers, oldest first: change, previous and current value.
fn number_events(user: &User<'_>) -> Vec<[Value; 3]> {
    let page = user.get("/api/webhooks/events?limit=100&type=number.changed").ok();
    let events = page["data"].as_array().unwrap().iter().rev();
    events
        .map(|event| ["change", "previous", "current"].map(|field| event["data"][field].clone()))
        .collect()
}

fn notifications(user: &User<'_>) -> Vec<(String, String)> {
    let page = user.get("/api/notifications?limit=100").ok();
    let found = page["data"].as_array().unwrap().iter();
    found
        .map(|notification| (text(&notification["type"]), text(&notification["title"])))
        .collect()
}

#[test]
fn confirmed_number_is_verified_with_whatsapps_values() {
    let server = Server::new();
    let ana = server.owner();
    subscribe_to_all_events(&ana);
    server.whatsapp.set_number(NUMBER, |number| {
        number.display_phone_number = "+1 631-555-0100".into();
        number.messaging_limit = Some("TIER_2K".into());
    });
    let profile = connect(&ana, body(TOKEN));
    assert_eq!(state(&profile), "verified");
    assert!(profile["verification"]["checked_at"].is_string() && profile["verification"]["next_check_at"].is_string());
    let names: Vec<String> = profile["verification"]["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| {
            assert_eq!(check["state"], "passed", "{check}");
            text(&check["name"])
        })
        .collect();
    let expected = [
        "token",
        "number",
        "business_account",
        "subscription",
        "registration",
        "quality",
        "pace",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        profile["number"],
        json!({ "display_phone_number": "+1 631-555-0100", "verified_name": "Empresa de Teste",
                "name_status": "approved", "status": "connected", "quality_rating": "green",
                "throughput": "standard", "max_messages_per_second": 80, "messaging_limit": 2000,
                "on_business_app": null, "portfolio_id": "506914307656634" })
    );
    assert_eq!(server.whatsapp.subscriptions(), [ACCOUNT]);
    assert_eq!(ana.get(&path_of(&profile)).ok(), profile);
    let notified = notifications(&ana);
    assert!(
        notified.contains(&("success".into(), "WhatsApp number verified: Loja".into())),
        "{notified:?}"
    );
    let verified = [[json!("verification"), json!("pending"), json!("verified")]];
    until("the event is published", || number_events(&ana) == verified);
    server.member(&ana.account, "viewer").get(&path_of(&profile)).ok();
    server.owner().get(&path_of(&profile)).refused(404, "NOT_FOUND");
}

#[test]
fn stranger_learns_nothing_about_the_number_of_another() {
    let server = Server::new();
    let (ana, eva) = (server.owner(), server.owner());
    server
        .whatsapp
        .set_number(NUMBER, |number| number.tokens = Some(vec![TOKEN.into()]));
    server.expire_token("EAAG-stolen");
    assert_eq!(state(&connect(&ana, body(TOKEN))), "verified");
    for (token, check) in [("EAAG-stolen", "token"), ("EAAG-foreign", "number")] {
        let foreign = connect(&eva, body(token));
        assert_eq!(state(&foreign), "failed");
        assert_eq!(
            complaints(&foreign["verification"]["checks"]),
            [(check.into(), "failed".into())]
        );
        let values = foreign["number"].as_object().unwrap();
        assert!(values.values().all(Value::is_null), "{values:?}");
        let health = eva.get(&format!("{}/health", path_of(&foreign))).ok();
        assert_eq!(
            (
                &health["can_send"],
                &health["entities"],
                &health["stale"],
                &health["asked_at"]
            ),
            (&json!("unknown"), &json!([]), &json!(true), &Value::Null)
        );
        assert!(health["number"].as_object().unwrap().values().all(Value::is_null));
        eva.delete(&path_of(&foreign)).no_content();
    }
    let foreign = connect(&eva, body("EAAG-foreign"));
    subscribe_to_all_events(&eva);
    server
        .whatsapp
        .business_update(&BusinessUpdateCallback::business_capability(&json!(100_000)).of_account(ACCOUNT));
    server
        .whatsapp
        .business_update(&BusinessUpdateCallback::account_update("ACCOUNT_RESTRICTION").of_account(ACCOUNT));
    until("the updates arrived", || {
        let callbacks = server.whatsapp.counters().callbacks;
        callbacks.delivered > 0 && callbacks.waiting == 0 && server.db.count("FROM whatsapp_callbacks") == 0
    });
    assert!(number_events(&eva).is_empty());
    let values = eva.get(&path_of(&foreign)).ok()["number"].clone();
    assert!(values.as_object().unwrap().values().all(Value::is_null));
}

#[test]
fn hanging_platform_leaves_a_number_pending_until_it_answers() {
    let server = Server::new();
    let ana = server.owner();
    server.break_number(NUMBER, NumberFault::Hangs);
    // WhatsApp does not answer until the test says so: the response does not wait for it.
    let profile = connect(&ana, body(TOKEN));
    assert_eq!(state(&profile), "pending");
    assert_eq!(profile["verification"]["checked_at"], Value::Null);
    assert_eq!(
        complaints(&profile["verification"]["checks"]),
        [("token".into(), "unknown".into())]
    );
    server.repair_number(NUMBER);
    until("the worker verifies the number", || {
        state(&ana.get(&path_of(&profile)).ok()) == "verified"
    });
}

#[test]
fn number_is_checked_by_the_worker_if_the_client_does_not_want_to_wait() {
    let server = Server::new();
    let ana = server.owner();
    let reply = ana.request("POST", "/api/whatsapp/profiles").query("verify=false");
    let profile = reply.json(&body(TOKEN)).send().created();
    assert_eq!(
        (state(&profile), &profile["verification"]["checks"]),
        ("pending".into(), &json!([]))
    );
    let wrong = ana.request("POST", "/api/whatsapp/profiles").query("verify=maybe");
    assert_eq!(wrong.json(&body(TOKEN)).send().invalid(), ["verify"]);
    server.db.run("UPDATE whatsapp_profiles SET next_check_at = now()");
    until("the worker verifies the number", || {
        state(&ana.get(&path_of(&profile)).ok()) == "verified"
    });
    // The check of an unchanged number sends no event and no notification.
    subscribe_to_all_events(&ana);
    server
        .db
        .run("UPDATE whatsapp_profiles SET next_check_at = now(), checked_at = checked_at - interval '1 day'");
    until("the worker checks the number again", || {
        server
            .db
            .count("FROM whatsapp_profiles WHERE checked_at > now() - interval '1 hour'")
            == 1
    });
    assert!(number_events(&ana).is_empty());
}

#[test]
fn every_broken_set_up_is_named_by_one_check() {
    let server = Server::new();
    let ana = server.owner();
    let named = |body: Value| {
        let profile = connect(&ana, body);
        let found = complaints(&profile["verification"]["checks"]);
        ana.delete(&path_of(&profile)).no_content();
        server.repair_number(NUMBER);
        (state(&profile), found)
    };
    let one =
        |state: &str, check: &str, outcome: &str| (state.to_owned(), vec![(check.to_owned(), outcome.to_owned())]);
    server.expire_token(TOKEN);
    assert_eq!(named(body(TOKEN)), one("failed", "token", "failed"));
    server.break_number(NUMBER, NumberFault::OtherOwner);
    assert_eq!(named(body(TOKEN)), one("failed", "number", "failed"));
    for fault in [NumberFault::MissingPermission, NumberFault::AbsentFromAccount] {
        server.break_number(NUMBER, fault);
        assert_eq!(
            named(body(TOKEN)),
            one("failed", "business_account", "failed"),
            "{fault:?}"
        );
    }
    server.break_number(NUMBER, NumberFault::Unregistered(PIN));
    assert_eq!(named(body(TOKEN)), one("failed", "registration", "failed"));
    server.break_number(NUMBER, NumberFault::Unregistered(PIN));
    assert_eq!(named(with_pin("111111")), one("failed", "registration", "failed"));
    server.break_number(NUMBER, NumberFault::Unregistered(PIN));
    assert_eq!(named(with_pin(PIN)), ("verified".into(), vec![]));
    for fault in [NumberFault::ServerError, NumberFault::EmptyNotFound] {
        server.break_number(NUMBER, fault);
        assert_eq!(named(body(TOKEN)), one("pending", "token", "unknown"), "{fault:?}");
    }
    server.break_number(NUMBER, NumberFault::UnknownField);
    assert_eq!(named(body(TOKEN)), ("verified".into(), vec![]));
    server.break_number(NUMBER, NumberFault::RedQuality);
    assert_eq!(named(body(TOKEN)), ("verified".into(), vec![]));
}

#[test]
fn verification_on_request_keeps_the_state_if_whatsapp_does_not_answer() {
    let server = Server::new();
    let ana = server.owner();
    let profile = connect(&ana, body(TOKEN));
    let verify = format!("{}/verify", path_of(&profile));
    server.break_number(NUMBER, NumberFault::ServerError);
    let reply = ana.post(&verify, json!({})).refused(502, "WHATSAPP_ERROR");
    let checks = &reply["details"]["checks"];
    assert_eq!(complaints(checks), [("token".into(), "unknown".into())], "{reply}");
    assert_eq!(ana.get(&path_of(&profile)).ok(), profile);
    server.repair_number(NUMBER);
    server.break_number(NUMBER, NumberFault::Unregistered(PIN));
    // One failure does not take a verification away.
    let once = ana.post(&verify, json!({})).ok();
    assert_eq!(state(&once), "verified");
    assert_eq!(
        complaints(&once["verification"]["checks"]),
        [("registration".into(), "failed".into())]
    );
    assert_eq!(ana.post(&verify, json!({ "pin": "12345" })).invalid(), ["pin"]);
    let registered = ana.post(&verify, json!({ "pin": PIN })).ok();
    assert_eq!(
        (state(&registered), &registered["number"]["status"]),
        ("verified".into(), &json!("connected"))
    );
    server.owner().post(&verify, json!({})).refused(404, "NOT_FOUND");
    server
        .member(&ana.account, "viewer")
        .post(&verify, json!({}))
        .refused(401, "AUTH_ERROR");
    let limited = ana.post(&verify, json!({}));
    assert_eq!(limited.number("x-ratelimit-limit"), 10);
}

#[test]
fn number_that_is_lost_fails_at_once() {
    let server = Server::new();
    let ana = server.owner();
    subscribe_to_all_events(&ana);
    let profile = connect(&ana, body(TOKEN));
    server.break_number(NUMBER, NumberFault::AbsentFromAccount);
    let lost = ana.post(&format!("{}/verify", path_of(&profile)), json!({})).ok();
    assert_eq!(state(&lost), "failed");
    assert_eq!(lost["number"], profile["number"], "what was known is kept");
    let notified = notifications(&ana);
    assert!(
        notified.contains(&("error".into(), "WhatsApp number not verified: Loja".into())),
        "{notified:?}"
    );
    let failed = [json!("verification"), json!("verified"), json!("failed")];
    until("the event is published", || number_events(&ana).contains(&failed));
}

#[test]
fn entering_credentials_again_starts_a_new_verification() {
    let server = Server::new();
    let ana = server.owner();
    let profile = connect(&ana, body(TOKEN));
    let path = path_of(&profile);
    let renamed = ana
        .put(&path, json!({ "name": "Loja 2", "messages_per_second": 500 }))
        .ok();
    assert_eq!(renamed["verification"], profile["verification"]);
    server.expire_token("EAAG-bad");
    let bad = ana.put(&path, json!({ "access_token": "EAAG-bad" })).ok();
    assert_eq!((state(&bad), &bad["number"]), ("failed".into(), &profile["number"]));
    let later = ana.request("PUT", &path).query("verify=false");
    let later = later.json(&json!({ "access_token": TOKEN })).send().ok();
    assert_eq!(
        (state(&later), &later["verification"]["checks"]),
        ("pending".into(), &json!([]))
    );
    let good = ana.put(&path, json!({ "access_token": TOKEN })).ok();
    assert_eq!(state(&good), "verified");
    let pace = good["verification"]["checks"].as_array().unwrap().last().unwrap();
    assert_eq!((&pace["name"], &pace["state"]), (&json!("pace"), &json!("warning")));
    assert!(pace["remedy"].is_string());
}

#[test]
fn health_is_kept_for_a_minute_and_changes_nothing() {
    let server = Server::new();
    let ana = server.owner();
    let profile = connect(&ana, body(TOKEN));
    let path = format!("{}/health", path_of(&profile));
    server.whatsapp.set_number(NUMBER, |number| {
        number.health = vec![
            json!({ "entity_type": "PHONE_NUMBER", "id": NUMBER, "can_send_message": "AVAILABLE" }),
            json!({ "entity_type": "WABA", "id": ACCOUNT, "can_send_message": "BLOCKED", "errors": [
                { "error_code": 141_006, "error_description": "no payment method", "possible_solution": "add one" }] }),
            json!({ "entity_type": "BUSINESS", "id": "5", "can_send_message": "LIMITED", "additional_info": ["x"] }),
        ];
    });
    let health = ana.get(&path).ok();
    assert_eq!(
        (&health["can_send"], &health["stale"]),
        (&json!("blocked"), &json!(false))
    );
    assert_eq!(
        health["entities"][1],
        json!({ "type": "waba", "id": ACCOUNT, "can_send": "blocked", "info": [],
                "errors": [{ "code": 141_006, "description": "no payment method", "solution": "add one" }] })
    );
    assert_eq!(health["entities"][2]["info"], json!(["x"]));
    assert_eq!(health["verification"], profile["verification"]);
    assert_eq!(health["service_messages"]["used"], 0);
    server.whatsapp.set_number(NUMBER, |number| number.health.clear());
    assert_eq!(ana.get(&path).ok(), health);
    server
        .db
        .run("UPDATE whatsapp_profiles SET health_asked_at = health_asked_at - interval '1 minute'");
    server.break_number(NUMBER, NumberFault::ServerError);
    let stale = ana.get(&path).ok();
    assert_eq!((&stale["can_send"], &stale["stale"]), (&json!("blocked"), &json!(true)));
    server.repair_number(NUMBER);
    let again = ana.get(&path).ok();
    assert_eq!(
        (&again["can_send"], &again["stale"]),
        (&json!("available"), &json!(false))
    );
    assert_eq!(ana.get(&path_of(&profile)).ok(), profile);
    server.owner().get(&path).refused(404, "NOT_FOUND");
}

#[test]
fn callback_may_be_signed_with_any_app_secret() {
    let server = Server::start(Options::default().with("WHATSAPP_APP_SECRET", format!("first, {WHATSAPP_APP_SECRET}")));
    let post = |secret: &str| {
        let body = json!({ "object": "whatsapp_business_account", "entry": [] }).to_string();
        let signed = signature(secret, body.as_bytes());
        let request = server
            .post("/api/whatsapp/webhook")
            .header("X-Hub-Signature-256", &signed);
        request.body("application/json", body).send()
    };
    assert_eq!(post("first").status, 200);
    assert_eq!(post(WHATSAPP_APP_SECRET).status, 200);
    for wrong in ["third", "first, app-secret", ""] {
        post(wrong).refused(401, "AUTH_ERROR");
    }
}

#[test]
fn token_and_pin_are_nowhere_and_every_change_is_audited_once() {
    let server = Server::new();
    let ana = server.owner();
    subscribe_to_all_events(&ana);
    server.break_number(NUMBER, NumberFault::Unregistered(PIN));
    let reply = ana.post("/api/whatsapp/profiles", with_pin("975310"));
    let mut texts = vec![reply.text.clone()];
    let profile = reply.created();
    let path = path_of(&profile);
    texts.push(ana.post(&format!("{path}/verify"), json!({ "pin": PIN })).text);
    texts.push(ana.put(&path, json!({ "access_token": TOKEN, "pin": PIN })).text);
    texts.push(ana.get(&format!("{path}/health")).text);
    texts.push(ana.get(&path).text);
    ana.delete(&path).no_content();
    let audits = ana.get("/api/audit-logs?entityType=whatsapp_profile");
    texts.push(audits.text.clone());
    let audits = audits.ok();
    let actions: Vec<String> = audits["logs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|log| text(&log["action"]))
        .collect();
    assert_eq!(actions, ["delete", "update", "update", "create"], "{audits}");
    for list in ["/api/notifications?limit=100", "/api/webhooks/events?limit=100"] {
        texts.push(ana.get(list).text);
    }
    texts.push(server.log());
    for secret in [TOKEN, PIN, "975310"] {
        for text in &texts {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}

#[test]
fn business_update_changes_the_number_and_causes_a_check() {
    let server = Server::new();
    let ana = server.owner();
    subscribe_to_all_events(&ana);
    server.whatsapp.set_number(NUMBER, |number| {
        number.display_phone_number = "+1 631-555-0100".into();
        number.messaging_limit = Some("TIER_250".into());
    });
    let profile = connect(&ana, body(TOKEN));
    let path = path_of(&profile);
    let limit = |expected: i64| {
        until("the limit is known", || {
            ana.get(&path).ok()["number"]["messaging_limit"] == expected
        });
    };
    let quality =
        |number: &str| BusinessUpdateCallback::number_quality(number, "ONBOARDING", "TIER_10K").of_account(ACCOUNT);
    server
        .whatsapp
        .set_number(NUMBER, |number| number.messaging_limit = Some("TIER_10K".into()));
    server.whatsapp.business_update(&quality("16315550199"));
    server.whatsapp.business_update(&quality("16315550100"));
    limit(10_000);
    server.whatsapp.set_number(NUMBER, |number| {
        number.messaging_limit = Some("TIER_100K".into());
        number.quality_rating = "RED".into();
    });
    server
        .whatsapp
        .business_update(&BusinessUpdateCallback::account_update("ACCOUNT_VIOLATION").of_account(ACCOUNT));
    // Nothing but a check learns these values.
    limit(100_000);
    let events = eventually("the events", || {
        Some(number_events(&ana)).filter(|events| events.len() == 5)
    });
    let mut changes: Vec<String> = events.iter().map(|[change, ..]| text(change)).collect();
    changes.sort();
    assert_eq!(
        changes,
        [
            "account",
            "messaging_limit",
            "messaging_limit",
            "quality",
            "verification"
        ]
    );
    assert!(events.contains(&[json!("account"), Value::Null, json!("account_violation")]));
    let notified = notifications(&ana);
    let fell = ("warning".into(), "Quality of a WhatsApp number fell: Loja".into());
    assert!(notified.contains(&fell), "{notified:?}");
}

#[test]
fn number_is_asked_about_thirty_times_a_minute_for_each_account() {
    let server = Server::new();
    let ana = server.owner();
    let profile = connect(&ana, body(TOKEN));
    let put = || ana.put(&path_of(&profile), json!({ "waba_id": ACCOUNT })).ok();
    let states: Vec<String> = (0..30).map(|_| state(&put())).collect();
    assert_eq!(states.iter().filter(|state| *state == "verified").count(), 29);
    assert_eq!(states.last().unwrap(), "pending");
}
