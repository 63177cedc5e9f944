//! Another plan, another cycle, the end of a subscription, and of what was paid.

use recado_simulators::fault::{Fault, FaultKind};
use serde_json::{Value, json};

use crate::billing::{becomes, card_order, notices, order, overview, paid, plan, subscribe};
use crate::harness::users::User;
use crate::harness::{Server, text, until};

const CARD: &str = "4000000000001234";

fn change(user: &User<'_>, body: Value) -> crate::harness::client::Reply {
    user.put("/api/billing/subscription", body)
}

/// What the account was told, the payment's own news among it, which come when they come.
fn messages(user: &User<'_>) -> Vec<String> {
    let list = user.get("/api/notifications?limit=100").ok();
    let rows = list["data"].as_array().unwrap().iter();
    rows.map(|row| text(&row["message"])).collect()
}

fn last_put(server: &Server) -> Value {
    let mut puts = server
        .payment
        .ledger()
        .into_iter()
        .filter(|entry| entry.method == "PUT");
    puts.next_back().unwrap().body
}

#[test]
fn a_plan_changes_here_and_at_the_gateway() {
    let server = Server::new();
    let ana = server.owner();
    subscribe(&ana, card_order(CARD, "987")).created();
    let changed = change(&ana, json!({ "plan": "growth", "cycle": "YEARLY" })).ok();
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
    let put = last_put(&server);
    assert_eq!(
        (&put["value"], &put["cycle"], &put["updatePendingPayments"]),
        (&json!(2970), &json!("YEARLY"), &json!(true))
    );
    change(&ana, json!({ "plan": "growth", "cycle": "MONTHLY" })).ok();
    let told = messages(&ana);
    assert!(told.iter().any(|message| message.contains("monthly")), "{told:?}");
    let down = change(&ana, json!({ "plan": "starter" })).ok();
    assert_eq!(down["subscription"]["cycle"], "MONTHLY");
    let told = messages(&ana);
    let both = |message: &&String| message.contains("Growth") && message.contains("Starter");
    assert_eq!(told.iter().filter(both).count(), 2, "{told:?}");
    let audit = ana.get("/api/audit-logs?entityType=subscription&action=update").ok();
    assert_eq!(audit["total"], 3);
    assert_eq!(
        audit["logs"][0]["changes"]["plan"],
        json!({ "from": "growth", "to": "starter" })
    );
}

#[test]
fn what_does_not_fit_is_refused() {
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
        assert_eq!(change(&ana, wrong.clone()).invalid(), ["plan"], "{wrong}");
    }
    assert_eq!(
        change(&ana, json!({ "plan": "scale", "cycle": "DAILY" })).invalid(),
        ["cycle"]
    );
    for name in ["a", "b"] {
        let body = json!({ "name": name, "phone_number_id": name, "waba_id": "1", "access_token": "t" });
        ana.post("/api/whatsapp/profiles", body).created();
    }
    let error = change(&ana, json!({ "plan": "starter" })).refused(422, "VALIDATION_ERROR");
    let words = error["details"]["fields"]["plan"][0].as_str().unwrap();
    assert!(words.contains("1 WhatsApp") && words.contains('2'), "{words}");
    change(&ana, json!({ "plan": "scale" })).ok();
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
fn a_gateway_that_does_not_change_it_changes_nothing() {
    let server = Server::new();
    let ana = server.owner();
    subscribe(&ana, order("PIX")).created();
    let before = overview(&ana)["subscription"].take();
    let told = notices(&ana).len();
    let refusal = FaultKind::status(
        400,
        json!({ "errors": [{ "code": "invalid_value", "description": "Valor inválido." }] }),
    );
    let broken = FaultKind::status(500, json!({}));
    server
        .payment
        .script(vec![Fault::new(refusal.clone()).on("PUT", "/subscriptions")]);
    let error = change(&ana, json!({ "plan": "growth" })).refused(422, "VALIDATION_ERROR");
    assert_eq!(error["details"]["errors"][0]["description"], "Valor inválido.");
    server
        .payment
        .script(vec![Fault::new(broken.clone()).on("PUT", "/subscriptions")]);
    change(&ana, json!({ "plan": "growth" })).refused(502, "PAYMENT_ERROR");
    server
        .payment
        .script(vec![Fault::new(broken).on("DELETE", "/subscriptions")]);
    ana.post("/api/billing/cancel", json!({})).refused(502, "PAYMENT_ERROR");
    let mut after = overview(&ana)["subscription"].take();
    after["updated_at"] = before["updated_at"].clone();
    assert_eq!(
        (after, notices(&ana).len(), plan(&ana).as_str()),
        (before, told, "starter")
    );
    // Done in spite of its answer.
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
        let reply = change(&ana, json!({ "plan": plan }));
        assert!(reply.status == 200 || plan == "growth", "{kind:?}: {}", reply.text);
        assert_eq!(self::plan(&ana), plan, "{kind:?}");
        if plan == "growth" {
            change(&ana, json!({ "plan": "scale" })).ok();
        }
    }
    server.payment.script(vec![
        Fault::new(FaultKind::AcceptThenReset).on("DELETE", "/subscriptions"),
    ]);
    ana.post("/api/billing/cancel", json!({})).ok();
    assert_eq!(overview(&ana)["subscription"], Value::Null);
}

#[test]
fn what_is_paid_can_be_used_to_its_end() {
    let server = Server::new();
    let ana = server.owner();
    subscribe(&ana, card_order(CARD, "987")).created();
    let end = text(&becomes(&ana, "active")["current_period_end"]);
    paid(&ana);
    let cancelled = ana.request("POST", "/api/billing/cancel").send().ok();
    assert_eq!(cancelled, json!({ "cancelled": true, "effective_until": end }));
    let after = overview(&ana);
    assert_eq!(
        (&after["subscription"], &after["plan"]["id"]),
        (&Value::Null, &json!("starter"))
    );
    assert!(notices(&ana).contains(&("warning".into(), "Subscription cancelled".into())));
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
    change(&ana, json!({ "plan": "growth" })).refused(404, "NOT_FOUND");
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
    assert_eq!(customers.count(), 1, "one account is one customer");
}

#[test]
fn what_was_never_paid_ends_at_once() {
    let server = Server::new();
    let ana = server.owner();
    subscribe(&ana, order("BOLETO")).created();
    let cancelled = ana.post("/api/billing/cancel", json!({})).ok();
    assert_eq!(cancelled, json!({ "cancelled": true, "effective_until": null }));
    assert_eq!(plan(&ana), "free");
}

#[test]
fn what_is_paid_sends_beside_what_waits_for_its_payment() {
    let server = Server::new();
    let ana = server.owner();
    ana.contacts(1);
    let template = ana.approved("Oi", &[]);
    let sends = || {
        let id = ana.campaign(json!({ "name": "C", "template_id": template }));
        ana.execute(&id)
    };
    subscribe(&ana, card_order(CARD, "987")).created();
    paid(&ana);
    ana.post("/api/billing/cancel", json!({})).ok();
    let growth = json!({ "plan": "growth", "billing_type": "PIX", "cycle": "MONTHLY", "cpf_cnpj": "52998224725" });
    subscribe(&ana, growth).created();
    assert_eq!(plan(&ana), "growth");
    assert_eq!(sends().ok()["sent"], 1);
    ana.post("/api/billing/cancel", json!({})).ok();
    assert_eq!(plan(&ana), "starter");
    assert_eq!(sends().ok()["sent"], 1);
    server
        .db
        .run("UPDATE subscriptions SET current_period_end = now() WHERE plan = 'starter'");
    until("nothing is left", || plan(&ana) == "free");
}
