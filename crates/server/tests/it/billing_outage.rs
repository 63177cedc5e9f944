//! While the gateway is down, every billing route returns 502 `PAYMENT_ERROR`, also where an earlier intent must be
//! reconciled first.

use recado_simulators::fault::{Fault, FaultKind};
use serde_json::json;

use crate::billing::{order, overview, plan, subscribe};
use crate::billing_faults::broken;
use crate::harness::client::Reply;
use crate::harness::users::User;
use crate::harness::{Server, text, until};

fn take_gateway_down(server: &Server) {
    server.payment.script(vec![Fault::new(broken(503)).for_good()]);
}

fn change_plan(user: &User<'_>) -> Reply {
    user.put("/api/billing/subscription", json!({ "plan": "growth" }))
}

fn cancel_subscription(user: &User<'_>) -> Reply {
    user.post("/api/billing/cancel", json!({}))
}

#[track_caller]
fn assert_payment_error(reply: &Reply) {
    let error = (reply.status, reply.json()["error"]["code"].take());
    assert_eq!(error, (502, json!("PAYMENT_ERROR")), "{}", reply.text);
}

#[test]
fn gateway_outage_returns_payment_error_on_every_route() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let made = subscribe(&ana, order("PIX")).created();
    let payment = text(&made["payment_data"]["payment_id"]);
    take_gateway_down(&server);
    assert_payment_error(&subscribe(&bia, order("PIX")));
    assert_payment_error(&ana.get(&format!("/api/billing/payment-status?payment_id={payment}")));
    // The first change leaves an intent, which every later request must reconcile first.
    for _ in 0..2 {
        assert_payment_error(&change_plan(&ana));
        assert_payment_error(&cancel_subscription(&ana));
    }
    assert_eq!(
        (overview(&ana)["subscription"]["plan"].take(), plan(&bia)),
        (json!("starter"), "free".into())
    );
    server.payment.clear_faults();
    assert_eq!(change_plan(&ana).ok()["new_plan"], "growth");
    cancel_subscription(&ana).ok();
    subscribe(&bia, order("PIX")).created();
}

#[test]
fn gateway_outage_in_reconciliation_returns_payment_error() {
    let server = Server::new();
    let ana = server.owner();
    server.payment.script(vec![
        Fault::new(FaultKind::AcceptThenStatus500).on("POST", "/subscriptions"),
        Fault::new(broken(503)).on("GET", "/subscriptions").for_good(),
    ]);
    for _ in 0..3 {
        assert_payment_error(&subscribe(&ana, order("PIX")));
    }
    server.payment.clear_faults();
    assert_eq!(subscribe(&ana, order("PIX")).invalid(), ["plan"]);
    assert_eq!(overview(&ana)["subscription"]["status"], "pending");
}

/// Deleting an account does not wait for the gateway. The worker's log line names the gateway as the cause.
#[test]
fn failed_cancellation_after_deletion_logs_gateway_error() {
    let server = Server::new();
    let (root, ana) = (server.root(), server.owner());
    subscribe(&ana, order("PIX")).created();
    take_gateway_down(&server);
    root.delete(&format!("/api/admin/accounts/{}", ana.account))
        .no_content();
    server.db.run("UPDATE gateway_cancellations SET due_at = now()");
    until("the worker has called the gateway", || {
        server.log().contains("gateway_cancellations")
    });
    let log = server.log();
    let line = log.lines().find(|line| line.contains("gateway_cancellations")).unwrap();
    assert!(line.contains("the payment gateway failed"), "{line}");
    assert!(!line.contains("the store is unavailable"), "{line}");
    server.payment.clear_faults();
    server.db.run("UPDATE gateway_cancellations SET due_at = now()");
    until("no cancellation is pending", || {
        server.db.count("FROM gateway_cancellations") == 0
    });
}
