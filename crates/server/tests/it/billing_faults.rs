//! Subscribing while the gateway refuses, fails, disconnects or returns invalid JSON, or while the server crashes:
//! no subscription stays half created, and no account pays twice.

use recado_simulators::fault::{Fault, FaultKind};
use recado_simulators::payment::PaymentSimulator;
use serde_json::{Value, json};

use crate::billing::{notifications, order, overview, plan, subscribe, wait_for_status};
use crate::harness::users::User;
use crate::harness::{Options, Server, eventually, until};

pub fn broken(http_status: u16) -> FaultKind {
    FaultKind::status(http_status, json!({ "error": "x" }))
}

fn script_subscribe_fault(server: &Server, kind: FaultKind) {
    server
        .payment
        .script(vec![Fault::new(kind).on("POST", "/subscriptions")]);
}

fn count_subscribe_calls(gateway: &PaymentSimulator) -> usize {
    let entries = gateway.ledger().into_iter();
    entries
        .filter(|entry| entry.method == "POST" && entry.path.ends_with("/subscriptions"))
        .count()
}

#[test]
fn gateway_refusal_text_is_returned_to_the_client() {
    let server = Server::new();
    let ana = server.owner();
    let body = json!({ "errors": [
        { "code": "invalid_cpfCnpj", "description": "O CPF/CNPJ informado é inválido." },
        { "code": "invalid_other", "description": "Outro erro." } ] });
    let refusal = FaultKind::status(400, body.clone());
    server
        .payment
        .script(vec![Fault::new(refusal).on("POST", "/customers")]);
    let error = subscribe(&ana, order("PIX")).refused(422, "VALIDATION_ERROR");
    assert_eq!(error["details"]["errors"], body["errors"]);
    assert_eq!(
        error["details"]["fields"]["cpf_cnpj"],
        json!(["O CPF/CNPJ informado é inválido."])
    );
    assert_eq!(
        (overview(&ana)["subscription"].take(), plan(&ana).as_str()),
        (Value::Null, "free")
    );
    assert_eq!(
        (server.db.count("FROM subscriptions"), notifications(&ana).len()),
        (0, 0)
    );
    subscribe(&ana, order("PIX")).created();
}

#[test]
fn gateway_error_returns_502_and_creates_nothing() {
    let server = Server::new();
    let ana = server.owner();
    for status in [401, 403, 429, 500, 503] {
        script_subscribe_fault(&server, broken(status));
        subscribe(&ana, order("PIX")).refused(502, "PAYMENT_ERROR");
        assert_eq!(
            (overview(&ana)["subscription"].take(), plan(&ana).as_str()),
            (Value::Null, "free"),
            "{status}"
        );
    }
    assert_eq!(notifications(&ana).len(), 0);
    assert_eq!(ana.get("/api/audit-logs?entityType=subscription").ok()["total"], 0);
    subscribe(&ana, order("PIX")).created();
    assert_eq!(count_subscribe_calls(&server.payment), 6);
}

#[test]
fn subscription_is_found_after_lost_gateway_response() {
    for kind in [
        FaultKind::AcceptThenReset,
        FaultKind::AcceptThenStatus500,
        FaultKind::GarbageJson,
    ] {
        let server = Server::new();
        let ana = server.owner();
        script_subscribe_fault(&server, kind.clone());
        let made = subscribe(&ana, order("PIX")).created();
        assert!(made["payment_data"]["payment_id"].is_string(), "{kind:?}");
        assert_eq!(
            (count_subscribe_calls(&server.payment), plan(&ana).as_str()),
            (1, "starter")
        );
    }
}

#[test]
fn subscribe_retry_after_unknown_outcome_charges_once() {
    let server = Server::new();
    let ana = server.owner();
    server.payment.script(vec![
        Fault::new(FaultKind::AcceptThenReset).on("POST", "/subscriptions"),
        Fault::new(broken(500)).on("GET", "/subscriptions"),
    ]);
    subscribe(&ana, order("PIX")).refused(502, "PAYMENT_ERROR");
    assert_eq!(
        (overview(&ana)["subscription"].take(), plan(&ana).as_str()),
        (Value::Null, "free")
    );
    // The second request finds the subscription at the gateway: only the response to the first was lost.
    assert_eq!(subscribe(&ana, order("PIX")).invalid(), ["plan"]);
    assert_eq!(overview(&ana)["subscription"]["status"], "pending");
    assert_eq!(
        (count_subscribe_calls(&server.payment), plan(&ana).as_str()),
        (1, "starter")
    );
    until("the subscription is audited", || {
        ana.get("/api/audit-logs?entityType=subscription").ok()["total"] == 1
    });
}

/// Kills the server after the gateway created a subscription and before its response arrived. Then restarts the server.
fn kill_during_subscribe(server: &Server) -> User<'_> {
    server.run(&["serve"]);
    let ana = server.owner();
    script_subscribe_fault(server, FaultKind::Hang { ms: 20_000 });
    std::thread::scope(|scope| {
        let request = ana.request("POST", "/api/billing/subscribe").json(&order("PIX"));
        let client = scope.spawn(move || request.try_send().is_ok_and(|reply| reply.status == 201));
        until("the gateway has created the subscription", || {
            count_subscribe_calls(&server.payment) == 1
        });
        server.kill();
        assert!(!client.join().unwrap());
    });
    assert_eq!(
        server.db.text("SELECT status || attempt FROM subscriptions"),
        "pendingtrue"
    );
    assert_eq!(plan(&ana), "free", "no plan before the outcome is known");
    server.run(&["serve"]);
    ana
}

#[test]
fn subscribe_interrupted_by_crash_is_completed_by_worker() {
    let server = Server::prepare(&Options::default());
    let ana = kill_during_subscribe(&server);
    // The worker checks the intent within 30 seconds, although the lease is longer.
    let check_is_soon =
        "SELECT intent_check_at <= created_at + interval '30 s' AND intent_until > now() FROM subscriptions";
    assert_eq!(server.db.text(check_is_soon), "t");
    server.db.run("UPDATE subscriptions SET intent_check_at = now()");
    let made = wait_for_status(&ana, "pending");
    assert!(made["gateway_subscription_id"].is_string());
    assert_eq!(
        (count_subscribe_calls(&server.payment), plan(&ana).as_str()),
        (1, "starter")
    );
    subscribe(&ana, order("PIX")).invalid();
}

#[test]
fn subscribe_interrupted_by_crash_is_completed_by_request() {
    let server = Server::prepare(&Options::default());
    let ana = kill_during_subscribe(&server);
    assert_eq!(subscribe(&ana, order("PIX")).invalid(), ["plan"]);
    let made = overview(&ana)["subscription"].take();
    assert_eq!((&made["status"], plan(&ana).as_str()), (&json!("pending"), "starter"));
    assert_eq!(count_subscribe_calls(&server.payment), 1);
    // Reconciliation also finds the payment and its invoice URL.
    let history = eventually("the payment is found", || {
        let history = ana.get("/api/billing/history").ok();
        (history["total"] == 1).then_some(history)
    });
    assert!(history["items"][0]["invoice_url"].is_string(), "{history}");
}

/// Regression: the status of the response was CANCELLED, which is not published.
#[test]
fn subscribe_cancelled_before_its_response_shows_pending() {
    let server = Server::new();
    let ana = server.owner();
    // The first payment is read after the gateway has created the subscription.
    server
        .payment
        .script(vec![Fault::new(FaultKind::Hang { ms: 3_000 }).on("GET", "/payments")]);
    std::thread::scope(|scope| {
        let request = ana.request("POST", "/api/billing/subscribe").json(&order("PIX"));
        let first = scope.spawn(move || request.send().created());
        until("the gateway has created the subscription", || {
            count_subscribe_calls(&server.payment) == 1
        });
        // Completes the first one.
        assert_eq!(subscribe(&ana, order("PIX")).invalid(), ["plan"]);
        ana.post("/api/billing/cancel", json!({})).ok();
        let made = first.join().unwrap();
        assert_eq!(
            (&made["status"], &made["subscription"]["status"]),
            (&json!("PENDING"), &json!("pending"))
        );
    });
    assert_eq!(overview(&ana)["subscription"], Value::Null);
}
