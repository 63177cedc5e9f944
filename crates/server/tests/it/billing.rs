//! Billing routes: plan catalogue, subscribe, overview, payment history and payment status.

use std::collections::BTreeSet;

use recado_simulators::payment::Action;
use serde_json::{Value, json};

use crate::harness::client::{Reply, Request};
use crate::harness::users::User;
use crate::harness::{Options, Server, eventually, text, until};

/// A valid body of `POST /api/billing/subscribe`.
pub fn order(billing_type: &str) -> Value {
    json!({ "plan": "starter", "billing_type": billing_type, "cycle": "MONTHLY", "cpf_cnpj": "529.982.247-25",
            "billing_email": "ana@example.com" })
}

/// A valid subscribe body with a credit card.
pub fn card_order(number: &str, ccv: &str) -> Value {
    let mut order = order("CREDIT_CARD");
    order["credit_card"] = json!({ "holder_name": "ANA SOUZA", "number": number, "expiry_month": "5",
                                   "expiry_year": "2099", "ccv": ccv });
    order["credit_card_holder_info"] = json!({ "name": "Ana Souza", "email": "ana@example.com",
        "cpf_cnpj": "529.982.247-25", "postal_code": "01001-000", "address_number": "1", "phone": "(11) 96123-4567" });
    order
}

pub fn subscribe(user: &User<'_>, order: Value) -> Reply {
    user.post("/api/billing/subscribe", order)
}

pub fn overview(user: &User<'_>) -> Value {
    user.get("/api/billing/subscription").ok()
}

/// The plan in the `accounts` table.
pub fn plan(user: &User<'_>) -> String {
    user.server
        .db
        .text(&format!("SELECT plan FROM accounts WHERE id = '{}'", user.account))
}

/// Waits until the subscription has this status and returns it.
pub fn wait_for_status(user: &User<'_>, status: &str) -> Value {
    eventually(&format!("the subscription is {status}"), || {
        let subscription = overview(user)["subscription"].take();
        (subscription["status"] == status).then_some(subscription)
    })
}

/// Waits for the gateway event of the first card payment. If it came after a cancellation, it would reactivate the
/// subscription.
pub fn wait_for_first_payment(user: &User<'_>) {
    until("the payment is confirmed", || {
        notifications(user)
            .iter()
            .any(|(_, title)| title == "Payment confirmed")
    });
}

/// Type and title of the account's notifications, newest first.
pub fn notifications(user: &User<'_>) -> Vec<(String, String)> {
    let list = user.get("/api/notifications?limit=100").ok();
    let rows = list["data"].as_array().unwrap().iter();
    rows.map(|row| (text(&row["type"]), text(&row["title"]))).collect()
}

fn field_names(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn plan_catalogue_is_public() {
    let server = Server::new();
    let plans = server.get("/api/billing/plans").send().ok();
    let plans = plans.as_array().unwrap();
    let ids: Vec<&str> = plans.iter().map(|plan| plan["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["free", "starter", "growth", "scale"]);
    let growth = &plans[2];
    let price = json!({ "monthly": 29700, "yearly": 297000, "monthly_formatted": "R$\u{a0}297,00",
                        "yearly_formatted": "R$\u{a0}2.970,00" });
    assert_eq!((&growth["price"], &growth["highlighted"]), (&price, &json!(true)));
    let limits = json!({ "contacts": 25000, "messagesPerMonth": 30000, "automations": 20, "teamMembers": 15,
                         "whatsappNumbers": 3 });
    assert_eq!(growth["limits"], limits);
    assert!(
        growth["features"]
            .as_array()
            .is_some_and(|features| !features.is_empty())
    );
}

#[test]
fn overview_without_subscription_shows_plan_and_usage() {
    let server = Server::new();
    let ana = server.owner();
    ana.contacts(3);
    let overview = overview(&ana);
    assert_eq!(
        (&overview["subscription"], &overview["plan"]["id"]),
        (&Value::Null, &json!("free"))
    );
    assert_eq!(
        field_names(&overview["plan"]),
        BTreeSet::from(["id", "name", "limits", "features"])
    );
    let usage = json!({ "contacts": 3, "messages": 0, "automations": 0, "team": 1, "whatsapp": 0 });
    assert_eq!(overview["usage"], usage);
    ana.post("/api/billing/cancel", json!({})).refused(404, "NOT_FOUND");
    ana.put("/api/billing/subscription", json!({ "plan": "growth" }))
        .refused(404, "NOT_FOUND");
    let history = ana.get("/api/billing/history").ok();
    assert_eq!(history, json!({ "items": [], "total": 0, "page": 1, "limit": 20 }));
}

fn subscription_fields() -> BTreeSet<&'static str> {
    BTreeSet::from([
        "id",
        "plan",
        "cycle",
        "status",
        "billing_type",
        "value",
        "value_formatted",
        "billing_email",
        "gateway_customer_id",
        "gateway_subscription_id",
        "current_period_start",
        "current_period_end",
        "cancelled_at",
        "created_at",
        "updated_at",
    ])
}

#[test]
fn pix_subscription_is_active_after_payment() {
    let server = Server::new();
    let ana = server.owner();
    let made = subscribe(&ana, order("PIX")).created();
    assert_eq!(made["status"], "PENDING");
    assert_eq!(
        made["gateway_subscription_id"],
        made["subscription"]["gateway_subscription_id"]
    );
    let data = &made["payment_data"];
    assert_eq!(data["type"], "pix");
    for field in [
        "payment_id",
        "pix_qr_code",
        "pix_payload",
        "pix_expires_at",
        "invoice_url",
    ] {
        assert!(
            data[field].as_str().is_some_and(|text| !text.is_empty()),
            "{field}: {data}"
        );
    }
    assert!(data.get("boleto_url").is_none());
    assert_eq!(field_names(&made["subscription"]), subscription_fields());
    assert_eq!(
        (&made["subscription"]["value"], plan(&ana).as_str()),
        (&json!(9700), "starter")
    );
    assert_eq!(made["subscription"]["value_formatted"], "R$\u{a0}97,00");
    assert_eq!(overview(&ana)["subscription"], made["subscription"]);
    subscribe(&ana, order("PIX")).invalid();
    let payment = text(&data["payment_id"]);
    let assert_payment_status = |status: &str| {
        let shown = ana
            .get(&format!("/api/billing/payment-status?payment_id={payment}"))
            .ok();
        assert_eq!(
            (&shown["status"], &shown["billing_type"]),
            (&json!(status), &json!("PIX"))
        );
        assert!(shown["invoice_url"].is_string() && field_names(&shown).len() == 3);
    };
    assert_payment_status("PENDING");
    assert!(server.payment.act(&payment, Action::Confirm, std::time::Duration::ZERO));
    let active = wait_for_status(&ana, "active");
    assert!(active["current_period_end"].as_str() > active["current_period_start"].as_str());
    assert_payment_status("RECEIVED");
    let history = ana.get("/api/billing/history").ok();
    let row = &history["items"][0];
    assert_eq!(
        (&history["total"], &row["status"], &row["value"]),
        (&json!(1), &json!("RECEIVED"), &json!(9700))
    );
    assert_eq!(row["gateway_payment_id"], json!(payment));
    assert!(
        row["paid_at"].is_string() && row["due_date"].as_str().unwrap().len() == 10,
        "{row}"
    );
    assert_eq!(notifications(&ana)[0], ("success".into(), "Payment received".into()));
    let audit = ana.get("/api/audit-logs?entityType=subscription").ok();
    assert_eq!(
        (&audit["total"], &audit["logs"][0]["action"]),
        (&json!(1), &json!("create"))
    );
}

#[test]
fn boleto_subscription_returns_slip_and_follows_payment() {
    let server = Server::new();
    let ana = server.owner();
    let mut order = order("BOLETO");
    order["cycle"] = json!("YEARLY");
    order["cpf_cnpj"] = json!("12.abc.345/01de-35");
    let made = subscribe(&ana, order).created();
    let data = &made["payment_data"];
    assert_eq!(
        (&data["type"], &made["subscription"]["value"]),
        (&json!("boleto"), &json!(97000))
    );
    assert!(data["boleto_url"].is_string() && data["boleto_line"].is_string() && data["invoice_url"].is_string());
    let customers: Vec<Value> = server
        .payment
        .ledger()
        .into_iter()
        .filter(|e| e.path.ends_with("/customers") && e.method == "POST")
        .map(|e| e.body)
        .collect();
    assert_eq!(
        (customers.len(), &customers[0]["cpfCnpj"]),
        (1, &json!("12ABC34501DE35"))
    );
    assert_eq!(customers[0]["externalReference"], json!(ana.account));
    let payment = text(&data["payment_id"]);
    server.payment.act(&payment, Action::Overdue, std::time::Duration::ZERO);
    wait_for_status(&ana, "past_due");
    assert_eq!(notifications(&ana)[0], ("warning".into(), "Payment overdue".into()));
    subscribe(&ana, self::order("PIX")).invalid();
    // The payment is confirmed and received in the same second: it starts one period.
    server.payment.act(&payment, Action::Confirm, std::time::Duration::ZERO);
    let active = wait_for_status(&ana, "active");
    let years = |field: &str| active[field].as_str().unwrap()[..4].parse::<i32>().unwrap();
    assert_eq!(years("current_period_end") - years("current_period_start"), 1);
    until("both events are applied", || notifications(&ana).len() == 4);
    assert_eq!(
        wait_for_status(&ana, "active")["current_period_end"],
        active["current_period_end"]
    );
}

#[test]
fn subscribe_names_invalid_fields() {
    let server = Server::new();
    let ana = server.owner();
    assert_eq!(
        subscribe(&ana, json!({})).invalid(),
        ["billing_type", "cpf_cnpj", "cycle", "plan"]
    );
    for (field, wrong) in [
        ("plan", "free"),
        ("plan", "gold"),
        ("billing_type", "CASH"),
        ("cycle", "WEEKLY"),
        ("billing_email", "not an address"),
        ("cpf_cnpj", "111.111.111-11"),
        ("cpf_cnpj", "12ABC34501DE34"),
    ] {
        let mut order = order("PIX");
        order[field] = json!(wrong);
        assert_eq!(subscribe(&ana, order).invalid(), [field], "{wrong}");
    }
    assert_eq!(
        subscribe(&ana, order("CREDIT_CARD")).invalid(),
        ["credit_card", "credit_card_holder_info"]
    );
    assert!(server.payment.ledger().is_empty(), "the gateway was not called");
    assert_eq!(ana.get("/api/billing/payment-status").invalid(), ["payment_id"]);
    assert_eq!(
        ana.get("/api/billing/payment-status?payment_id=").invalid(),
        ["payment_id"]
    );
    assert_eq!(server.db.count("FROM subscriptions"), 0);
}

#[test]
fn payment_status_of_other_account_is_not_found() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let made = subscribe(&ana, order("PIX")).created();
    let payment = text(&made["payment_data"]["payment_id"]);
    let path = format!("/api/billing/payment-status?payment_id={payment}");
    ana.get(&path).ok();
    let foreign = bia.get(&path);
    let unknown = bia.get("/api/billing/payment-status?payment_id=pay_none");
    assert_eq!(foreign.text, unknown.text);
    foreign.refused(404, "NOT_FOUND");
    let traversal = bia.get("/api/billing/payment-status?payment_id=..%2F..%2Fcustomers%3Fx");
    traversal.refused(404, "NOT_FOUND");
    assert_eq!(overview(&bia)["subscription"], Value::Null);
    assert_eq!(bia.get("/api/billing/history").ok()["total"], 0);
}

/// Sends `count` requests at the same time and returns their statuses.
fn send_concurrently(count: usize, request: &Request) -> Vec<u16> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|_| scope.spawn(|| request.clone().send().status))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Concurrent requests of one account.
const SUBSCRIBES: usize = 20;

#[test]
fn twenty_concurrent_subscribes_create_one_subscription() {
    let server = Server::new();
    let ana = server.owner();
    // Opens the pool's connections first: on a busy machine that takes longer than a request waits for one.
    let reads = ana.request("GET", "/api/billing/subscription");
    until("all are served at once", || {
        send_concurrently(SUBSCRIBES, &reads)
            .iter()
            .all(|status| *status == 200)
    });
    let request = ana.request("POST", "/api/billing/subscribe").json(&order("PIX"));
    let statuses = send_concurrently(SUBSCRIBES, &request);
    // 503: the machine was too busy for that request. A sibling has its own rate limit counts, so it can show whether
    // the account has a subscription.
    assert!(
        statuses.iter().all(|status| [201, 422, 503].contains(status)),
        "{statuses:?}"
    );
    let sibling = server.sibling();
    let again = sibling.request("POST", "/api/billing/subscribe").bearer(&ana.token);
    let again = again.json(&order("PIX")).send_until_served().status;
    let created = statuses.iter().filter(|status| **status == 201).count();
    let all_served = !statuses.contains(&503);
    assert!(created == 1 || (created == 0 && !all_served), "{statuses:?}");
    assert!(
        again == 422 || (again == 201 && created == 0),
        "{again} after {statuses:?}"
    );
    assert_eq!(overview(&ana)["subscription"]["status"], "pending");
    assert_eq!(server.db.count("FROM subscriptions"), 1);
    let posts = |path: &str| {
        let made = server.payment.ledger().into_iter();
        made.filter(|entry| entry.method == "POST" && entry.path.ends_with(path))
            .count()
    };
    assert_eq!((posts("/customers"), posts("/subscriptions")), (1, 1));
}

#[test]
fn subscribe_with_idempotency_key_replays_response() {
    let server = Server::new();
    let ana = server.owner();
    let subscribe_with_key = || {
        let request = ana.request("POST", "/api/billing/subscribe");
        request.header("Idempotency-Key", "k1").json(&order("PIX")).send()
    };
    let first = subscribe_with_key();
    let again = subscribe_with_key();
    assert_eq!((first.status, again.status, &first.text), (201, 201, &again.text));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(server.db.count("FROM subscriptions"), 1);
}

#[test]
fn billing_routes_without_gateway_return_payment_error() {
    let options = Options::default()
        .with("PAYMENT_GATEWAY_URL", "")
        .with("PAYMENT_GATEWAY_WEBHOOK_TOKEN", "");
    let server = Server::start(options);
    let ana = server.owner();
    let error = subscribe(&ana, order("PIX")).refused(502, "PAYMENT_ERROR");
    assert!(error["message"].as_str().unwrap().contains("not configured"), "{error}");
    ana.get("/api/billing/payment-status?payment_id=pay_1")
        .refused(502, "PAYMENT_ERROR");
    assert_eq!(
        (overview(&ana)["subscription"].take(), plan(&ana).as_str()),
        (Value::Null, "free")
    );
    for token in [None, Some("x"), Some("")] {
        let request = server.post("/api/billing/webhook").json(&json!({}));
        let request = token
            .iter()
            .fold(request, |request, token| request.header("gateway-access-token", token));
        request.send().refused(500, "INTERNAL_ERROR");
    }
}
