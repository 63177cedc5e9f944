//! A change or a cancellation whose answer is lost, or whose server dies behind it: the next request of the account
//! settles what the gateway has done, and so does the worker alone.

use recado_simulators::fault::{Fault, FaultKind};
use recado_simulators::payment::Action;
use serde_json::{Value, json};

use crate::billing::{becomes, order, overview, plan, subscribe};
use crate::billing_faults::broken;
use crate::harness::users::User;
use crate::harness::{Options, Server, text, until};

fn change(user: &User<'_>, plan: &str) -> crate::harness::client::Reply {
    user.put("/api/billing/subscription", json!({ "plan": plan }))
}

fn cancel(user: &User<'_>) -> crate::harness::client::Reply {
    user.post("/api/billing/cancel", json!({}))
}

/// The gateway does it; its answer is lost, and it cannot be asked whether it did.
fn lost(server: &Server, method: &str) {
    server.payment.script(vec![
        Fault::new(FaultKind::AcceptThenReset).on(method, "/subscriptions/"),
        Fault::new(broken(500)).on("GET", "/subscriptions/"),
    ]);
}

fn asked(server: &Server, method: &str) -> usize {
    let entries = server.payment.ledger().into_iter();
    entries
        .filter(|entry| entry.method == method && entry.path.contains("/subscriptions/"))
        .count()
}

#[test]
fn after_a_lost_answer_the_next_request_settles_at_once() {
    let server = Server::new();
    let ana = server.owner();
    subscribe(&ana, order("PIX")).created();
    lost(&server, "PUT");
    change(&ana, "growth").refused(502, "PAYMENT_ERROR");
    let changed = change(&ana, "scale").ok();
    assert_eq!(
        (&changed["previous_plan"], &changed["new_plan"]),
        (&json!("growth"), &json!("scale"))
    );
    lost(&server, "DELETE");
    cancel(&ana).refused(502, "PAYMENT_ERROR");
    cancel(&ana).refused(404, "NOT_FOUND");
    assert_eq!(
        (overview(&ana)["subscription"].take(), plan(&ana).as_str()),
        (Value::Null, "free")
    );
    assert_eq!((asked(&server, "PUT"), asked(&server, "DELETE")), (2, 1));
    subscribe(&ana, order("PIX")).created();
}

#[test]
fn after_a_lost_answer_the_worker_settles_alone() {
    let server = Server::new();
    let ana = server.owner();
    subscribe(&ana, order("PIX")).created();
    lost(&server, "PUT");
    change(&ana, "growth").refused(502, "PAYMENT_ERROR");
    let asks = "SELECT intent_check_at <= updated_at + interval '60 s' AND intent_check_at <= now() + interval '30 s'
                FROM subscriptions";
    assert_eq!(server.db.text(asks), "t");
    server.db.run("UPDATE subscriptions SET intent_check_at = now()");
    until("the plan is changed", || plan(&ana) == "growth");
    assert_eq!(asked(&server, "PUT"), 1);
}

#[test]
fn what_a_server_died_on_is_settled_by_the_next_request() {
    let server = Server::prepare(&Options::default());
    server.run(&["serve"]);
    let ana = server.owner();
    subscribe(&ana, order("PIX")).created();
    let dies_on = |method: &str, path: &str, body: Value| {
        let hangs = FaultKind::Hang { ms: 20_000 };
        server
            .payment
            .script(vec![Fault::new(hangs).on(method, "/subscriptions/")]);
        std::thread::scope(|scope| {
            let kind = if method == "PUT" { "PUT" } else { "POST" };
            let request = ana.request(kind, path).json(&body);
            let asked_by = scope.spawn(move || request.try_send().is_ok_and(|reply| reply.status == 200));
            until("the gateway has done it", || asked(&server, method) == 1);
            server.kill();
            assert!(!asked_by.join().unwrap());
        });
        server.run(&["serve"]);
    };
    dies_on("PUT", "/api/billing/subscription", json!({ "plan": "growth" }));
    assert_eq!(plan(&ana), "starter", "no plan before it is sure");
    assert_eq!(change(&ana, "growth").invalid(), ["plan"]);
    assert_eq!(plan(&ana), "growth");
    dies_on("DELETE", "/api/billing/cancel", json!({}));
    assert_eq!(overview(&ana)["subscription"]["status"], "pending");
    cancel(&ana).refused(404, "NOT_FOUND");
    assert_eq!(plan(&ana), "free");
}

/// Paid for a month; the account changes to years before the event is here.
#[test]
fn a_month_that_was_paid_is_a_month_whatever_the_cycle_is_then() {
    let server = Server::new();
    let ana = server.owner();
    let made = subscribe(&ana, order("PIX")).created();
    let payment = text(&made["payment_data"]["payment_id"]);
    let mut url = None;
    server.payment.set_options(|options| url = options.webhook_url.take());
    assert!(server.payment.act(&payment, Action::Confirm, std::time::Duration::ZERO));
    let paid = format!("/api/billing/payment-status?payment_id={payment}");
    until("it is paid", || ana.get(&paid).ok()["status"] == "RECEIVED");
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
    becomes(&ana, "active");
    let days = "SELECT extract(day FROM current_period_end - current_period_start)::int FROM subscriptions";
    let days: u32 = server.db.text(days).parse().unwrap();
    assert!((28..=31).contains(&days), "{days}");
}
