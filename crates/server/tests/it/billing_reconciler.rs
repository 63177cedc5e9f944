//! Reconciliation of a change or cancellation whose gateway response is lost, or whose server crashes: the account's
//! next request completes the intent, and so does the worker without a request.

use recado_simulators::fault::{Fault, FaultKind};
use recado_simulators::payment::Action;
use serde_json::{Value, json};

use crate::billing::{order, overview, plan, subscribe, wait_for_status};
use crate::billing_faults::broken;
use crate::harness::users::User;
use crate::harness::{Options, Server, text, until};

fn change_plan(user: &User<'_>, plan: &str) -> crate::harness::client::Reply {
    user.put("/api/billing/subscription", json!({ "plan": plan }))
}

fn cancel_subscription(user: &User<'_>) -> crate::harness::client::Reply {
    user.post("/api/billing/cancel", json!({}))
}

/// The gateway applies the call, but its response is lost, and the following query of the subscription fails.
fn lose_response(server: &Server, method: &str) {
    server.payment.script(vec![
        Fault::new(FaultKind::AcceptThenReset).on(method, "/subscriptions/"),
        Fault::new(broken(500)).on("GET", "/subscriptions/"),
    ]);
}

fn count_gateway_calls(server: &Server, method: &str) -> usize {
    let entries = server.payment.ledger().into_iter();
    entries
        .filter(|entry| entry.method == method && entry.path.contains("/subscriptions/"))
        .count()
}

#[test]
fn lost_gateway_response_is_reconciled_by_next_request() {
    let server = Server::new();
    let ana = server.owner();
    subscribe(&ana, order("PIX")).created();
    lose_response(&server, "PUT");
    change_plan(&ana, "growth").refused(502, "PAYMENT_ERROR");
    let changed = change_plan(&ana, "scale").ok();
    assert_eq!(
        (&changed["previous_plan"], &changed["new_plan"]),
        (&json!("growth"), &json!("scale"))
    );
    lose_response(&server, "DELETE");
    cancel_subscription(&ana).refused(502, "PAYMENT_ERROR");
    cancel_subscription(&ana).refused(404, "NOT_FOUND");
    assert_eq!(
        (overview(&ana)["subscription"].take(), plan(&ana).as_str()),
        (Value::Null, "free")
    );
    assert_eq!(
        (
            count_gateway_calls(&server, "PUT"),
            count_gateway_calls(&server, "DELETE")
        ),
        (2, 1)
    );
    subscribe(&ana, order("PIX")).created();
}

#[test]
fn lost_gateway_response_is_reconciled_by_worker() {
    let server = Server::new();
    let ana = server.owner();
    subscribe(&ana, order("PIX")).created();
    lose_response(&server, "PUT");
    change_plan(&ana, "growth").refused(502, "PAYMENT_ERROR");
    let check_is_soon =
        "SELECT intent_check_at <= updated_at + interval '60 s' AND intent_check_at <= now() + interval '30 s'
                FROM subscriptions";
    assert_eq!(server.db.text(check_is_soon), "t");
    server.db.run("UPDATE subscriptions SET intent_check_at = now()");
    until("the plan is changed", || plan(&ana) == "growth");
    assert_eq!(count_gateway_calls(&server, "PUT"), 1);
}

#[test]
fn change_interrupted_by_crash_is_reconciled_by_request() {
    let server = Server::prepare(&Options::default());
    server.run(&["serve"]);
    let ana = server.owner();
    subscribe(&ana, order("PIX")).created();
    let crash_during = |method: &str, path: &str, body: Value| {
        let hangs = FaultKind::Hang { ms: 20_000 };
        server
            .payment
            .script(vec![Fault::new(hangs).on(method, "/subscriptions/")]);
        std::thread::scope(|scope| {
            let kind = if method == "PUT" { "PUT" } else { "POST" };
            let request = ana.request(kind, path).json(&body);
            let client = scope.spawn(move || request.try_send().is_ok_and(|reply| reply.status == 200));
            until("the gateway has applied the call", || {
                count_gateway_calls(&server, method) == 1
            });
            server.kill();
            assert!(!client.join().unwrap());
        });
        server.run(&["serve"]);
    };
    crash_during("PUT", "/api/billing/subscription", json!({ "plan": "growth" }));
    assert_eq!(plan(&ana), "starter", "no plan before the outcome is known");
    assert_eq!(change_plan(&ana, "growth").invalid(), ["plan"]);
    assert_eq!(plan(&ana), "growth");
    crash_during("DELETE", "/api/billing/cancel", json!({}));
    assert_eq!(overview(&ana)["subscription"]["status"], "pending");
    cancel_subscription(&ana).refused(404, "NOT_FOUND");
    assert_eq!(plan(&ana), "free");
}

/// The account pays for a month and changes to a yearly cycle before the gateway event arrives.
#[test]
fn paid_month_stays_a_month_after_cycle_change() {
    let server = Server::new();
    let ana = server.owner();
    let made = subscribe(&ana, order("PIX")).created();
    let payment = text(&made["payment_data"]["payment_id"]);
    let mut url = None;
    server.payment.set_options(|options| url = options.webhook_url.take());
    assert!(server.payment.act(&payment, Action::Confirm, std::time::Duration::ZERO));
    let status_path = format!("/api/billing/payment-status?payment_id={payment}");
    until("the payment is received", || {
        ana.get(&status_path).ok()["status"] == "RECEIVED"
    });
    ana.put(
        "/api/billing/subscription",
        json!({ "plan": "starter", "cycle": "YEARLY" }),
    )
    .ok();
    server.payment.set_options(|options| options.webhook_url = url);
    assert!(server.payment.send_event(&recado_simulators::payment::PaymentEvent {
        event: "PAYMENT_RECEIVED".into(),
        id: payment,
        times: 1,
        wrong_token: false,
    }));
    wait_for_status(&ana, "active");
    let days = "SELECT extract(day FROM current_period_end - current_period_start)::int FROM subscriptions";
    let days: u32 = server.db.text(days).parse().unwrap();
    assert!((28..=31).contains(&days), "{days}");
}
