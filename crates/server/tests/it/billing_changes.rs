//! Plan and cycle changes, cancellation, and the end of the paid period.

use recado_simulators::fault::{Fault, FaultKind};
use serde_json::{Value, json};

use crate::billing::{
    card_order, notifications, order, overview, plan, subscribe, wait_for_first_payment, wait_for_status,
};
use crate::harness::users::User;
use crate::harness::{Server, text, until};

const CARD: &str = "4000000000001234";

fn change_subscription(user: &User<'_>, body: Value) -> crate::harness::client::Reply {
    user.put("/api/billing/subscription", body)
}

/// The account's notification messages, including those of asynchronous gateway events.
fn notification_messages(user: &User<'_>) -> Vec<String> {
    let list = user.get("/api/notifications?limit=100").ok();
    let rows = list["data"].as_array().unwrap().iter();
    rows.map(|row| text(&row["message"])).collect()
}

fn last_put_body(server: &Server) -> Value {
    let mut puts = server
        .payment
        .ledger()
        .into_iter()
        .filter(|entry| entry.method == "PUT");
    puts.next_back().unwrap().body
}

#[test]
fn plan_change_updates_account_and_gateway() {
    let server = Server::new();
    let ana = server.owner();
    subscribe(&ana, card_order(CARD, "987")).created();
    let changed = change_subscription(&ana, json!({ "plan": "growth", "cycle": "YEARLY" })).ok();
    assert_eq!(
        (&changed["previous_plan"], &changed["new_plan"]),
        (&json!("starter"), &json!("growth"))
    );
    let row = &changed["subscription"];
    assert_eq!(
        (&row["value"], &row["cycle"], &row["status"]),
        (&json!(297000), &json!("YEARLY"), &json!("active"))
    );
    assert_eq!(
        (plan(&ana).as_str(), &overview(&ana)["plan"]["id"]),
        ("growth", &json!("growth"))
    );
    let put = last_put_body(&server);
    assert_eq!(
        (&put["value"], &put["cycle"], &put["updatePendingPayments"]),
        (&json!(2970), &json!("YEARLY"), &json!(true))
    );
    change_subscription(&ana, json!({ "plan": "growth", "cycle": "MONTHLY" })).ok();
    let messages = notification_messages(&ana);
    assert!(
        messages.iter().any(|message| message.contains("monthly")),
        "{messages:?}"
    );
    let down = change_subscription(&ana, json!({ "plan": "starter" })).ok();
    assert_eq!(down["subscription"]["cycle"], "MONTHLY");
    let messages = notification_messages(&ana);
    let names_both_plans = |message: &&String| message.contains("Growth") && message.contains("Starter");
    assert_eq!(messages.iter().filter(names_both_plans).count(), 2, "{messages:?}");
    let audit = ana.get("/api/audit-logs?entityType=subscription&action=update").ok();
    assert_eq!(audit["total"], 3);
    assert_eq!(
        audit["logs"][0]["changes"]["plan"],
        json!({ "from": "growth", "to": "starter" })
    );
}

#[test]
fn plan_change_is_refused_if_invalid_or_over_limits() {
    let server = Server::new();
    let ana = server.owner();
    subscribe(
        &ana,
        json!({ "plan": "growth", "billing_type": "PIX", "cycle": "MONTHLY", "cpf_cnpj": "52998224725" }),
    )
    .created();
    for wrong in [
        json!({ "plan": "growth" }),
        json!({ "plan": "free" }),
        json!({ "plan": "gold" }),
        json!({}),
    ] {
        assert_eq!(change_subscription(&ana, wrong.clone()).invalid(), ["plan"], "{wrong}");
    }
    assert_eq!(
        change_subscription(&ana, json!({ "plan": "scale", "cycle": "DAILY" })).invalid(),
        ["cycle"]
    );
    for name in ["a", "b"] {
        let body = json!({ "name": name, "phone_number_id": name, "waba_id": "1", "access_token": "t" });
        ana.post("/api/whatsapp/profiles", body).created();
    }
    let error = change_subscription(&ana, json!({ "plan": "starter" })).refused(422, "VALIDATION_ERROR");
    let message = error["details"]["fields"]["plan"][0].as_str().unwrap();
    assert!(message.contains("1 WhatsApp") && message.contains('2'), "{message}");
    change_subscription(&ana, json!({ "plan": "scale" })).ok();
    assert_eq!(
        server
            .payment
            .ledger()
            .iter()
            .filter(|entry| entry.method == "PUT")
            .count(),
        1
    );
}

#[test]
fn failed_gateway_change_leaves_subscription_unchanged() {
    let server = Server::new();
    let ana = server.owner();
    subscribe(&ana, order("PIX")).created();
    let before = overview(&ana)["subscription"].take();
    let notification_count = notifications(&ana).len();
    let refusal = FaultKind::status(
        400,
        json!({ "errors": [{ "code": "invalid_value", "description": "Valor inválido." }] }),
    );
    let broken = FaultKind::status(500, json!({}));
    server
        .payment
        .script(vec![Fault::new(refusal.clone()).on("PUT", "/subscriptions")]);
    let error = change_subscription(&ana, json!({ "plan": "growth" })).refused(422, "VALIDATION_ERROR");
    assert_eq!(error["details"]["errors"][0]["description"], "Valor inválido.");
    server
        .payment
        .script(vec![Fault::new(broken.clone()).on("PUT", "/subscriptions")]);
    change_subscription(&ana, json!({ "plan": "growth" })).refused(502, "PAYMENT_ERROR");
    server
        .payment
        .script(vec![Fault::new(broken).on("DELETE", "/subscriptions")]);
    ana.post("/api/billing/cancel", json!({})).refused(502, "PAYMENT_ERROR");
    let mut after = overview(&ana)["subscription"].take();
    after["updated_at"] = before["updated_at"].clone();
    assert_eq!(
        (after, notifications(&ana).len(), plan(&ana).as_str()),
        (before, notification_count, "starter")
    );
    // The gateway applies the change, but its response is lost or unreadable.
    for (method, kind) in [
        ("PUT", FaultKind::AcceptThenReset),
        ("PUT", FaultKind::AcceptThenStatus500),
        ("PUT", FaultKind::GarbageJson),
    ] {
        let plan = if matches!(kind, FaultKind::AcceptThenStatus500) {
            "starter"
        } else {
            "growth"
        };
        server
            .payment
            .script(vec![Fault::new(kind.clone()).on(method, "/subscriptions")]);
        let reply = change_subscription(&ana, json!({ "plan": plan }));
        assert!(reply.status == 200 || plan == "growth", "{kind:?}: {}", reply.text);
        assert_eq!(self::plan(&ana), plan, "{kind:?}");
        if plan == "growth" {
            change_subscription(&ana, json!({ "plan": "scale" })).ok();
        }
    }
    server.payment.script(vec![
        Fault::new(FaultKind::AcceptThenReset).on("DELETE", "/subscriptions"),
    ]);
    ana.post("/api/billing/cancel", json!({})).ok();
    assert_eq!(overview(&ana)["subscription"], Value::Null);
}

#[test]
fn cancelled_paid_plan_stays_active_until_period_end() {
    let server = Server::new();
    let ana = server.owner();
    subscribe(&ana, card_order(CARD, "987")).created();
    let end = text(&wait_for_status(&ana, "active")["current_period_end"]);
    wait_for_first_payment(&ana);
    let cancelled = ana.request("POST", "/api/billing/cancel").send().ok();
    assert_eq!(cancelled, json!({ "cancelled": true, "effective_until": end }));
    let after = overview(&ana);
    assert_eq!(
        (&after["subscription"], &after["plan"]["id"]),
        (&Value::Null, &json!("starter"))
    );
    assert!(notifications(&ana).contains(&("warning".into(), "Subscription cancelled".into())));
    let audit = ana.get("/api/audit-logs?entityType=subscription&action=delete").ok();
    assert_eq!(audit["total"], 1);
    let deleted = server
        .payment
        .ledger()
        .iter()
        .filter(|entry| entry.method == "DELETE")
        .count();
    assert_eq!(deleted, 1);
    ana.post("/api/billing/cancel", json!({})).refused(404, "NOT_FOUND");
    change_subscription(&ana, json!({ "plan": "growth" })).refused(404, "NOT_FOUND");
    server.db.run("UPDATE subscriptions SET current_period_end = now()");
    until("the plan is free", || plan(&ana) == "free");
    assert_eq!(overview(&ana)["plan"]["id"], "free");
    let again = subscribe(&ana, order("PIX")).created();
    assert_eq!(
        again["subscription"]["gateway_customer_id"].as_str().map(|id| &id[..4]),
        Some("cus_")
    );
    let customers = server
        .payment
        .ledger()
        .into_iter()
        .filter(|e| e.method == "POST" && e.path.ends_with("/customers"));
    assert_eq!(customers.count(), 1, "an account has one gateway customer");
}

#[test]
fn cancelled_unpaid_subscription_ends_immediately() {
    let server = Server::new();
    let ana = server.owner();
    subscribe(&ana, order("BOLETO")).created();
    let cancelled = ana.post("/api/billing/cancel", json!({})).ok();
    assert_eq!(cancelled, json!({ "cancelled": true, "effective_until": null }));
    assert_eq!(plan(&ana), "free");
}

#[test]
fn paid_plan_allows_sends_while_new_plan_awaits_payment() {
    let server = Server::new();
    let ana = server.owner();
    ana.contacts(1);
    let template = ana.approved("Oi", &[]);
    let execute_campaign = || {
        let id = ana.campaign(json!({ "name": "C", "template_id": template }));
        ana.execute(&id)
    };
    subscribe(&ana, card_order(CARD, "987")).created();
    wait_for_first_payment(&ana);
    ana.post("/api/billing/cancel", json!({})).ok();
    let growth = json!({ "plan": "growth", "billing_type": "PIX", "cycle": "MONTHLY", "cpf_cnpj": "52998224725" });
    subscribe(&ana, growth).created();
    assert_eq!(plan(&ana), "growth");
    assert_eq!(execute_campaign().ok()["sent"], 1);
    ana.post("/api/billing/cancel", json!({})).ok();
    assert_eq!(plan(&ana), "starter");
    assert_eq!(execute_campaign().ok()["sent"], 1);
    server
        .db
        .run("UPDATE subscriptions SET current_period_end = now() WHERE plan = 'starter'");
    until("no paid plan is left", || plan(&ana) == "free");
}
