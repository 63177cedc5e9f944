//! The payment gateway's callback: who may post, and what its events do, repeated, reordered, or odd.

use std::time::{Duration, Instant};

use recado_simulators::payment::{Action, PaymentEvent};
use serde_json::{Value, json};

use crate::billing::{becomes, card_order, notices, order, overview, paid, plan, subscribe};
use crate::harness::users::User;
use crate::harness::{GATEWAY_TOKEN, Server, text, until};

/// A subscription by Pix; the gateway's id and its payment's.
fn pending(user: &User<'_>) -> (String, String) {
    let made = subscribe(user, order("PIX")).created();
    (
        text(&made["gateway_subscription_id"]),
        text(&made["payment_data"]["payment_id"]),
    )
}

/// An event in the published form.
fn event(kind: &str, subscription: &str, payment: &str) -> Value {
    json!({ "event": kind, "payment": { "id": payment, "subscription": subscription, "billingType": "PIX", "value": 97.0,
        "invoiceUrl": "https://g.example/i", "bankSlipUrl": null, "dueDate": "2026-12-01",
        "status": kind.trim_start_matches("PAYMENT_") } })
}

#[track_caller]
fn received(reply: &crate::harness::client::Reply) {
    assert_eq!((reply.status, reply.text.as_str()), (200, r#"{"received":true}"#));
}

fn status(user: &User<'_>) -> String {
    let account = &user.account;
    user.server.db.text(&format!(
        "SELECT status FROM subscriptions WHERE account_id = '{account}'"
    ))
}

#[test]
fn only_the_right_token_is_heard() {
    let server = Server::new();
    // Its own events would count as well.
    server.payment.set_options(|options| options.webhook_url = None);
    let ana = server.owner();
    let (subscription, payment) = pending(&ana);
    let body = event("PAYMENT_CONFIRMED", &subscription, &payment);
    let post = |headers: &[(&str, &str)]| {
        let request = server.post("/api/billing/webhook").json(&body);
        headers
            .iter()
            .fold(request, |request, (name, value)| request.header(name, value))
            .send()
    };
    let prefix = &GATEWAY_TOKEN[..GATEWAY_TOKEN.len() - 1];
    let longer = format!("{GATEWAY_TOKEN}x");
    for headers in [
        vec![],
        vec![("gateway-access-token", "")],
        vec![("gateway-access-token", "wrong")],
        vec![("gateway-access-token", prefix)],
        vec![("gateway-access-token", longer.as_str())],
        vec![("asaas-access-token", prefix)],
        vec![("access_token", GATEWAY_TOKEN)],
        vec![("authorization", GATEWAY_TOKEN)],
        vec![("gateway-access-token", "wrong"), ("asaas-access-token", GATEWAY_TOKEN)],
    ] {
        post(&headers).refused(401, "AUTH_ERROR");
    }
    assert_eq!(status(&ana), "pending");
    received(&post(&[("asaas-access-token", GATEWAY_TOKEN)]));
    assert_eq!(status(&ana), "active");
    // The server is not slowed down by foreigners: the limit is by address.
    let statuses: Vec<u16> = (0..100)
        .map(|_| post(&[("gateway-access-token", "wrong")]).status)
        .collect();
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 10);
    let limited = post(&[("gateway-access-token", GATEWAY_TOKEN)]);
    assert_eq!(limited.header("x-ratelimit-limit"), Some("100"));
    limited.refused(429, "RATE_LIMIT");
}

#[test]
fn every_published_effect() {
    let server = Server::new();
    let ana = server.owner();
    let (subscription, payment) = pending(&ana);
    for (kind, wanted, told) in [
        ("PAYMENT_OVERDUE", "past_due", Some(("warning", "Payment overdue"))),
        ("PAYMENT_CONFIRMED", "active", Some(("success", "Payment confirmed"))),
        ("PAYMENT_RECEIVED", "active", Some(("success", "Payment received"))),
    ] {
        received(&server.gateway_event(&event(kind, &subscription, &payment)));
        assert_eq!(status(&ana), wanted, "{kind}");
        let (kind, title) = told.unwrap();
        assert_eq!(notices(&ana)[0], (kind.into(), title.into()));
    }
    let row = ana.get("/api/billing/history").ok()["items"][0].take();
    assert_eq!(
        (&row["status"], &row["due_date"], &row["invoice_url"]),
        (&json!("RECEIVED"), &json!("2026-12-01"), &json!("https://g.example/i"))
    );
    let before = notices(&ana).len();
    let ended = json!({ "event": "SUBSCRIPTION_INACTIVATED", "payment": { "subscription": subscription } });
    received(&server.gateway_event(&ended));
    assert_eq!(
        (status(&ana).as_str(), plan(&ana).as_str(), notices(&ana).len()),
        ("inactive", "free", before)
    );
    assert_eq!(overview(&ana)["subscription"], Value::Null);
    // From any state, as published.
    received(&server.gateway_event(&event("PAYMENT_RECEIVED", &subscription, "pay_second")));
    assert_eq!((status(&ana).as_str(), plan(&ana).as_str()), ("active", "starter"));
    assert_eq!(ana.get("/api/billing/history").ok()["total"], 2);
}

#[test]
fn a_payment_revives_a_cancelled_subscription_and_late_money_does_not() {
    let server = Server::new();
    let ana = server.owner();
    let (subscription, payment) = pending(&ana);
    received(&server.gateway_event(&event("PAYMENT_CONFIRMED", &subscription, &payment)));
    ana.post("/api/billing/cancel", json!({})).ok();
    received(&server.gateway_event(&event("PAYMENT_RECEIVED", &subscription, &payment)));
    assert_eq!(status(&ana), "cancelled", "the money of what was confirmed before");
    received(&server.gateway_event(&event("PAYMENT_RECEIVED", &subscription, "pay_new")));
    let row = overview(&ana)["subscription"].take();
    assert_eq!((&row["status"], &row["cancelled_at"]), (&json!("active"), &Value::Null));
    // Not beside another one.
    ana.post("/api/billing/cancel", json!({})).ok();
    let second = subscribe(&ana, order("PIX")).created();
    received(&server.gateway_event(&event("PAYMENT_RECEIVED", &subscription, "pay_third")));
    assert_eq!(overview(&ana)["subscription"]["id"], second["subscription"]["id"]);
    assert_eq!(
        server
            .db
            .count("FROM subscriptions WHERE status IN ('active', 'pending', 'past_due')"),
        1
    );
    assert_eq!(ana.get("/api/billing/history").ok()["total"], 4);
}

#[test]
fn repeated_ten_times_at_once_an_event_counts_once() {
    let server = Server::new();
    let ana = server.owner();
    let (subscription, payment) = pending(&ana);
    assert!(server.payment.wait_idle(Duration::from_secs(30)));
    let before = notices(&ana).len();
    let mut with_id = event("PAYMENT_RECEIVED", &subscription, &payment);
    with_id["id"] = json!("evt_1");
    let bodies = [with_id, event("PAYMENT_OVERDUE", &subscription, "pay_2")];
    std::thread::scope(|scope| {
        for body in bodies.iter().cycle().take(20) {
            let request = server.gateway_request(body);
            scope.spawn(move || received(&request.send()));
        }
    });
    until("nothing waits", || {
        server.db.count("FROM gateway_events WHERE due_at IS NOT NULL") == 0
    });
    assert_eq!(notices(&ana).len(), before + 2);
    assert_eq!(
        (
            server.db.count("FROM gateway_events"),
            ana.get("/api/billing/history").ok()["total"].clone()
        ),
        (5 - 1, json!(2)),
        "with those of the gateway itself"
    );
    assert_eq!(server.db.count("FROM billing_history WHERE credited"), 1);
}

#[test]
fn older_news_of_a_payment_changes_nothing() {
    let server = Server::new();
    let ana = server.owner();
    let (subscription, payment) = pending(&ana);
    let at = |kind: &str, id: &str, time: &str| {
        let mut body = event(kind, &subscription, &payment);
        (body["id"], body["dateCreated"]) = (json!(id), json!(format!("2026-06-12 {time}")));
        received(&server.gateway_event(&body));
    };
    at("PAYMENT_RECEIVED", "evt_2", "16:45:03");
    at("PAYMENT_OVERDUE", "evt_1", "16:45:02");
    assert_eq!(status(&ana), "active");
    at("PAYMENT_OVERDUE", "evt_3", "16:45:03");
    assert_eq!(
        status(&ana),
        "past_due",
        "in the same second the order of arrival counts"
    );
}

#[test]
fn whatever_comes_with_the_token_is_received() {
    let server = Server::new();
    let ana = server.owner();
    let (subscription, payment) = pending(&ana);
    let before = (overview(&ana), notices(&ana));
    let post = |body: Vec<u8>| {
        let request = server
            .post("/api/billing/webhook")
            .header("gateway-access-token", GATEWAY_TOKEN);
        request.body("application/json", body).send()
    };
    for body in [
        "",
        "{",
        "null",
        "[]",
        "7",
        "{\"event\":{}}",
        "\u{0}",
        "{\"id\":\"\\u0000\"}",
        "<xml/>",
    ] {
        received(&post(body.into()));
    }
    for body in [
        event("PAYMENT_REFUNDED", &subscription, &payment),
        event("PAYMENT_SOMETHING_NEW", &subscription, &payment),
        event("PAYMENT_CONFIRMED", "sub_unknown", &payment),
        json!({ "event": "PAYMENT_CONFIRMED", "payment": { "subscription": subscription } }),
        json!({ "event": "PAYMENT_CONFIRMED", "payment": { "id": payment } }),
        json!({ "event": "PAYMENT_CONFIRMED" }),
        json!({ "event": "SUBSCRIPTION_DELETED", "subscription": { "id": subscription } }),
    ] {
        received(&server.gateway_event(&body));
    }
    received(&post(vec![b' '; 4 * 1024 * 1024]));
    post(vec![b' '; 4 * 1024 * 1024 + 1]).refused(413, "PAYLOAD_TOO_LARGE");
    post(vec![b' '; 10 * 1024 * 1024]).refused(413, "PAYLOAD_TOO_LARGE");
    assert_eq!((overview(&ana), notices(&ana)), before);
}

#[test]
fn a_card_is_confirmed_at_once_and_received_a_month_later() {
    let server = Server::new();
    let ana = server.owner();
    let made = subscribe(&ana, card_order("4000000000001234", "987")).created();
    assert_eq!(
        (&made["status"], &made["payment_data"]["type"]),
        (&json!("ACTIVE"), &json!("credit_card"))
    );
    let payment = text(&made["payment_data"]["payment_id"]);
    paid(&ana);
    let end = becomes(&ana, "active")["current_period_end"].clone();
    assert_eq!(
        end, made["subscription"]["current_period_end"],
        "one period for one payment"
    );
    ana.post("/api/billing/cancel", json!({})).ok();
    server.payment.act(&payment, Action::Receive, Duration::ZERO);
    until("the money is there", || {
        ana.get("/api/billing/history").ok()["items"][0]["status"] == "RECEIVED"
    });
    assert_eq!(status(&ana), "cancelled");
    assert!(server.payment.send_event(&PaymentEvent {
        event: "PAYMENT_REFUNDED".into(),
        id: payment,
        times: 3,
        wrong_token: false,
    }));
    assert!(server.payment.wait_idle(Duration::from_secs(30)));
    assert_eq!(status(&ana), "cancelled");
}

#[test]
fn while_the_database_is_away_an_event_is_received_and_applied_later() {
    let server = Server::new();
    let ana = server.owner();
    let (subscription, payment) = pending(&ana);
    server
        .db
        .run("ALTER TABLE gateway_events RENAME TO gateway_events_away");
    let began = Instant::now();
    received(&server.gateway_event(&event("PAYMENT_RECEIVED", &subscription, &payment)));
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "the gateway gives up after ten seconds"
    );
    assert_eq!(status(&ana), "pending");
    // What comes while one waits stays behind it.
    received(&server.gateway_event(&event("PAYMENT_OVERDUE", &subscription, &payment)));
    server
        .db
        .run("ALTER TABLE gateway_events_away RENAME TO gateway_events");
    until("both are applied, in their order", || status(&ana) == "past_due");
    assert_eq!(server.db.count("FROM billing_history WHERE credited"), 1);
}

#[test]
fn a_silent_gateway_is_asked() {
    let server = Server::new();
    server.payment.set_options(|options| options.webhook_url = None);
    let ana = server.owner();
    let (_, payment) = pending(&ana);
    server.payment.act(&payment, Action::Confirm, Duration::ZERO);
    assert!(server.payment.wait_idle(Duration::from_secs(30)));
    assert_eq!(status(&ana), "pending");
    assert_eq!(
        server
            .db
            .text("SELECT check_at > now() + interval '23 hours' FROM subscriptions"),
        "t"
    );
    server.db.run("UPDATE subscriptions SET check_at = now()");
    becomes(&ana, "active");
    assert_eq!(notices(&ana)[0].1, "Payment received");
}
