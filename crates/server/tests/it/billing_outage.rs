//! A gateway that is down is the gateway's fault on every path: 502 `PAYMENT_ERROR`, also where something unfinished has to
//! be settled first.

use recado_simulators::fault::{Fault, FaultKind};
use serde_json::json;

use crate::billing::{order, overview, plan, subscribe};
use crate::billing_faults::broken;
use crate::harness::client::Reply;
use crate::harness::users::User;
use crate::harness::{Server, text, until};

fn down(server: &Server) {
    server.payment.script(vec![Fault::new(broken(503)).for_good()]);
}

fn change(user: &User<'_>) -> Reply {
    user.put("/api/billing/subscription", json!({ "plan": "growth" }))
}

fn cancel(user: &User<'_>) -> Reply {
    user.post("/api/billing/cancel", json!({}))
}

#[track_caller]
fn is_the_gateways(reply: &Reply) {
    let shown = (reply.status, reply.json()["error"]["code"].take());
    assert_eq!(shown, (502, json!("PAYMENT_ERROR")), "{}", reply.text);
}

#[test]
fn a_gateway_that_is_down_is_named_on_every_path() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let made = subscribe(&ana, order("PIX")).created();
    let payment = text(&made["payment_data"]["payment_id"]);
    down(&server);
    is_the_gateways(&subscribe(&bia, order("PIX")));
    is_the_gateways(&ana.get(&format!("/api/billing/payment-status?payment_id={payment}")));
    // The first leaves an intent, which all others have to settle first.
    for _ in 0..2 {
        is_the_gateways(&change(&ana));
        is_the_gateways(&cancel(&ana));
    }
    assert_eq!(
        (overview(&ana)["subscription"]["plan"].take(), plan(&bia)),
        (json!("starter"), "free".into())
    );
    server.payment.clear_faults();
    assert_eq!(change(&ana).ok()["new_plan"], "growth");
    cancel(&ana).ok();
    subscribe(&bia, order("PIX")).created();
}

#[test]
fn a_gateway_that_is_down_while_an_attempt_is_settled_is_named() {
    let server = Server::new();
    let ana = server.owner();
    server.payment.script(vec![
        Fault::new(FaultKind::AcceptThenStatus500).on("POST", "/subscriptions"),
        Fault::new(broken(503)).on("GET", "/subscriptions").for_good(),
    ]);
    for _ in 0..3 {
        is_the_gateways(&subscribe(&ana, order("PIX")));
    }
    server.payment.clear_faults();
    assert_eq!(subscribe(&ana, order("PIX")).invalid(), ["plan"]);
    assert_eq!(overview(&ana)["subscription"]["status"], "pending");
}

/// A removal does not wait for the gateway; whose fault it is that something is left there stays known.
#[test]
fn a_removal_that_the_gateway_does_not_answer_blames_the_gateway() {
    let server = Server::new();
    let (root, ana) = (server.root(), server.owner());
    subscribe(&ana, order("PIX")).created();
    down(&server);
    root.delete(&format!("/api/admin/accounts/{}", ana.account)).gone();
    server.db.run("UPDATE gateway_cancellations SET due_at = now()");
    until("the worker has asked", || {
        server.log().contains("gateway cancellations")
    });
    let log = server.log();
    let line = log.lines().find(|line| line.contains("gateway cancellations")).unwrap();
    assert!(line.contains("the payment gateway failed"), "{line}");
    assert!(!line.contains("the store is unavailable"), "{line}");
    server.payment.clear_faults();
    server.db.run("UPDATE gateway_cancellations SET due_at = now()");
    until("nothing is left", || server.db.count("FROM gateway_cancellations") == 0);
}
