//! The payment gateway's callback: its token, and the effect of events that are repeated, reordered, late or malformed.

use std::time::Duration;

use recado_simulators::payment::{Action, PaymentEvent};
use serde_json::{Value, json};

use crate::billing::{
    card_order, notifications, order, overview, plan, subscribe, wait_for_first_payment, wait_for_status,
};
use crate::harness::users::User;
use crate::harness::{DEADLINE, GATEWAY_TOKEN, Server, text, until};

/// Creates a pending Pix subscription. Returns the gateway's ids of the subscription and its payment.
fn create_pending_subscription(user: &User<'_>) -> (String, String) {
    let made = subscribe(user, order("PIX")).created();
    (
        text(&made["gateway_subscription_id"]),
        text(&made["payment_data"]["payment_id"]),
    )
}

fn payment_event(kind: &str, subscription: &str, payment: &str) -> Value {
    json!({ "event": kind, "payment": { "id": payment, "subscription": subscription, "billingType": "PIX", "value": 97.0,
        "invoiceUrl": "https://g.example/i", "bankSlipUrl": null, "dueDate": "2026-12-01",
        "status": kind.trim_start_matches("PAYMENT_") } })
}

#[track_caller]
fn assert_received(reply: &crate::harness::client::Reply) {
    assert_eq!((reply.status, reply.text.as_str()), (200, r#"{"received":true}"#));
}

fn subscription_status(user: &User<'_>) -> String {
    let account = &user.account;
    user.server.db.text(&format!(
        "SELECT status FROM subscriptions WHERE account_id = '{account}'"
    ))
}

#[test]
fn gateway_callback_requires_the_exact_token() {
    let server = Server::new();
    // The simulator's own events would also change the subscription.
    server.payment.set_options(|options| options.webhook_url = None);
    let ana = server.owner();
    let (subscription, payment) = create_pending_subscription(&ana);
    let body = payment_event("PAYMENT_CONFIRMED", &subscription, &payment);
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
    assert_eq!(subscription_status(&ana), "pending");
    assert_received(&post(&[("asaas-access-token", GATEWAY_TOKEN)]));
    assert_eq!(subscription_status(&ana), "active");
    // The rate limit counts requests with a wrong token, per client address.
    let statuses: Vec<u16> = (0..100)
        .map(|_| post(&[("gateway-access-token", "wrong")]).status)
        .collect();
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 10);
    let limited = post(&[("gateway-access-token", GATEWAY_TOKEN)]);
    assert_eq!(limited.header("x-ratelimit-limit"), Some("100"));
    limited.refused(429, "RATE_LIMIT");
}

#[test]
fn gateway_events_have_their_published_effects() {
    let server = Server::new();
    let ana = server.owner();
    let (subscription, payment) = create_pending_subscription(&ana);
    for (kind, expected_status, (notification, title)) in [
        ("PAYMENT_OVERDUE", "past_due", ("warning", "Payment overdue")),
        ("PAYMENT_CONFIRMED", "active", ("success", "Payment confirmed")),
        ("PAYMENT_RECEIVED", "active", ("success", "Payment received")),
    ] {
        assert_received(&server.gateway_event(&payment_event(kind, &subscription, &payment)));
        assert_eq!(subscription_status(&ana), expected_status, "{kind}");
        assert_eq!(notifications(&ana)[0], (notification.into(), title.into()));
    }
    let row = ana.get("/api/billing/history").ok()["items"][0].take();
    assert_eq!(
        (&row["status"], &row["due_date"], &row["invoice_url"]),
        (&json!("RECEIVED"), &json!("2026-12-01"), &json!("https://g.example/i"))
    );
    let before = notifications(&ana).len();
    let ended = json!({ "event": "SUBSCRIPTION_INACTIVATED", "payment": { "subscription": subscription } });
    assert_received(&server.gateway_event(&ended));
    assert_eq!(
        (
            subscription_status(&ana).as_str(),
            plan(&ana).as_str(),
            notifications(&ana).len()
        ),
        ("inactive", "free", before)
    );
    assert_eq!(overview(&ana)["subscription"], Value::Null);
    // A payment activates the subscription from any state, as the API documentation says.
    assert_received(&server.gateway_event(&payment_event("PAYMENT_RECEIVED", &subscription, "pay_second")));
    assert_eq!(
        (subscription_status(&ana).as_str(), plan(&ana).as_str()),
        ("active", "starter")
    );
    assert_eq!(ana.get("/api/billing/history").ok()["total"], 2);
}

#[test]
fn cancelled_subscription_is_reactivated_by_new_payment_only() {
    let server = Server::new();
    let ana = server.owner();
    let (subscription, payment) = create_pending_subscription(&ana);
    assert_received(&server.gateway_event(&payment_event("PAYMENT_CONFIRMED", &subscription, &payment)));
    ana.post("/api/billing/cancel", json!({})).ok();
    assert_received(&server.gateway_event(&payment_event("PAYMENT_RECEIVED", &subscription, &payment)));
    assert_eq!(
        subscription_status(&ana),
        "cancelled",
        "this payment was already confirmed"
    );
    assert_received(&server.gateway_event(&payment_event("PAYMENT_RECEIVED", &subscription, "pay_new")));
    let row = overview(&ana)["subscription"].take();
    assert_eq!((&row["status"], &row["cancelled_at"]), (&json!("active"), &Value::Null));
    // An account has at most one live subscription.
    ana.post("/api/billing/cancel", json!({})).ok();
    let second = subscribe(&ana, order("PIX")).created();
    assert_received(&server.gateway_event(&payment_event("PAYMENT_RECEIVED", &subscription, "pay_third")));
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
fn concurrent_duplicate_gateway_events_apply_once() {
    const REPEATS: usize = 10;
    let server = Server::new();
    let ana = server.owner();
    let (subscription, payment) = create_pending_subscription(&ana);
    assert!(server.payment.wait_idle(DEADLINE));
    let before = notifications(&ana).len();
    let mut with_id = payment_event("PAYMENT_RECEIVED", &subscription, &payment);
    with_id["id"] = json!("evt_1");
    let bodies = [with_id, payment_event("PAYMENT_OVERDUE", &subscription, "pay_2")];
    std::thread::scope(|scope| {
        for body in bodies.iter().cycle().take(2 * REPEATS) {
            let request = server.gateway_request(body);
            scope.spawn(move || assert_received(&request.send()));
        }
    });
    until("every event is applied", || {
        server.db.count("FROM gateway_events WHERE due_at IS NOT NULL") == 0
    });
    assert_eq!(notifications(&ana).len(), before + 2);
    assert_eq!(
        (
            server.db.count("FROM gateway_events"),
            ana.get("/api/billing/history").ok()["total"].clone()
        ),
        (5 - 1, json!(2)),
        "including the simulator's own events"
    );
    assert_eq!(server.db.count("FROM billing_history WHERE credited"), 1);
}

#[test]
fn older_payment_event_changes_nothing() {
    let server = Server::new();
    let ana = server.owner();
    let (subscription, payment) = create_pending_subscription(&ana);
    let at = |kind: &str, id: &str, time: &str| {
        let mut body = payment_event(kind, &subscription, &payment);
        (body["id"], body["dateCreated"]) = (json!(id), json!(format!("2026-06-12 {time}")));
        assert_received(&server.gateway_event(&body));
    };
    at("PAYMENT_RECEIVED", "evt_2", "16:45:03");
    at("PAYMENT_OVERDUE", "evt_1", "16:45:02");
    assert_eq!(subscription_status(&ana), "active");
    at("PAYMENT_OVERDUE", "evt_3", "16:45:03");
    assert_eq!(
        subscription_status(&ana),
        "past_due",
        "within the same second the order of arrival decides"
    );
}

#[test]
fn gateway_callback_accepts_any_body_with_valid_token() {
    let server = Server::new();
    let ana = server.owner();
    let (subscription, payment) = create_pending_subscription(&ana);
    let before = (overview(&ana), notifications(&ana));
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
        assert_received(&post(body.into()));
    }
    for body in [
        payment_event("PAYMENT_REFUNDED", &subscription, &payment),
        payment_event("PAYMENT_SOMETHING_NEW", &subscription, &payment),
        payment_event("PAYMENT_CONFIRMED", "sub_unknown", &payment),
        json!({ "event": "PAYMENT_CONFIRMED", "payment": { "subscription": subscription } }),
        json!({ "event": "PAYMENT_CONFIRMED", "payment": { "id": payment } }),
        json!({ "event": "PAYMENT_CONFIRMED" }),
        json!({ "event": "SUBSCRIPTION_DELETED", "subscription": { "id": subscription } }),
    ] {
        assert_received(&server.gateway_event(&body));
    }
    assert_received(&post(vec![b' '; 4 * 1024 * 1024]));
    post(vec![b' '; 4 * 1024 * 1024 + 1]).refused(413, "PAYLOAD_TOO_LARGE");
    post(vec![b' '; 10 * 1024 * 1024]).refused(413, "PAYLOAD_TOO_LARGE");
    assert_eq!((overview(&ana), notifications(&ana)), before);
}

#[test]
fn late_receipt_of_card_payment_reactivates_nothing() {
    let server = Server::new();
    let ana = server.owner();
    let made = subscribe(&ana, card_order("4000000000001234", "987")).created();
    assert_eq!(
        (&made["status"], &made["payment_data"]["type"]),
        (&json!("ACTIVE"), &json!("credit_card"))
    );
    let payment = text(&made["payment_data"]["payment_id"]);
    wait_for_first_payment(&ana);
    let end = wait_for_status(&ana, "active")["current_period_end"].clone();
    assert_eq!(
        end, made["subscription"]["current_period_end"],
        "one payment starts one period"
    );
    ana.post("/api/billing/cancel", json!({})).ok();
    server.payment.act(&payment, Action::Receive, Duration::ZERO);
    until("the payment is received", || {
        ana.get("/api/billing/history").ok()["items"][0]["status"] == "RECEIVED"
    });
    assert_eq!(subscription_status(&ana), "cancelled");
    assert!(server.payment.send_event(&PaymentEvent {
        event: "PAYMENT_REFUNDED".into(),
        id: payment,
        times: 3,
        wrong_token: false,
    }));
    assert!(server.payment.wait_idle(DEADLINE));
    assert_eq!(subscription_status(&ana), "cancelled");
}

#[test]
fn gateway_event_during_db_outage_is_buffered_and_applied() {
    let server = Server::new();
    let ana = server.owner();
    let (subscription, payment) = create_pending_subscription(&ana);
    server
        .db
        .run("ALTER TABLE gateway_events RENAME TO gateway_events_away");
    // The table is away until the test restores it: the response does not wait for it.
    assert_received(&server.gateway_event(&payment_event("PAYMENT_RECEIVED", &subscription, &payment)));
    assert_eq!(subscription_status(&ana), "pending");
    // An event that arrives later is applied after the buffered one.
    assert_received(&server.gateway_event(&payment_event("PAYMENT_OVERDUE", &subscription, &payment)));
    server
        .db
        .run("ALTER TABLE gateway_events_away RENAME TO gateway_events");
    until("both are applied in order of arrival", || {
        subscription_status(&ana) == "past_due"
    });
    assert_eq!(server.db.count("FROM billing_history WHERE credited"), 1);
}

#[test]
fn subscription_without_gateway_event_is_polled() {
    let server = Server::new();
    server.payment.set_options(|options| options.webhook_url = None);
    let ana = server.owner();
    let (_, payment) = create_pending_subscription(&ana);
    server.payment.act(&payment, Action::Confirm, Duration::ZERO);
    assert!(server.payment.wait_idle(DEADLINE));
    assert_eq!(subscription_status(&ana), "pending");
    assert_eq!(
        server
            .db
            .text("SELECT check_at > now() + interval '23 hours' FROM subscriptions"),
        "t"
    );
    server.db.run("UPDATE subscriptions SET check_at = now()");
    wait_for_status(&ana, "active");
    assert_eq!(notifications(&ana)[0].1, "Payment received");
}
