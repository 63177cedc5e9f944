//! A gateway that refuses, breaks, hangs up or answers nonsense, and a server that dies in between: nothing stays half
//! done, and nobody pays twice.

use recado_simulators::fault::{Fault, FaultKind};
use recado_simulators::payment::PaymentSimulator;
use serde_json::{Value, json};

use crate::billing::{becomes, notices, order, overview, plan, subscribe};
use crate::harness::users::User;
use crate::harness::{Options, Server, eventually, until};

pub fn broken(http_status: u16) -> FaultKind {
    FaultKind::status(http_status, json!({ "error": "x" }))
}

fn on_subscribe(server: &Server, kind: FaultKind) {
    server
        .payment
        .script(vec![Fault::new(kind).on("POST", "/subscriptions")]);
}

fn posts(gateway: &PaymentSimulator) -> usize {
    let entries = gateway.ledger().into_iter();
    entries
        .filter(|entry| entry.method == "POST" && entry.path.ends_with("/subscriptions"))
        .count()
}

#[test]
fn a_refusal_is_passed_on_in_the_gateways_words() {
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
    assert_eq!((server.db.count("FROM subscriptions"), notices(&ana).len()), (0, 0));
    subscribe(&ana, order("PIX")).created();
}

#[test]
fn a_fault_of_the_gateway_is_ours_to_tell_and_leaves_nothing() {
    let server = Server::new();
    let ana = server.owner();
    for status in [401, 403, 429, 500, 503] {
        on_subscribe(&server, broken(status));
        subscribe(&ana, order("PIX")).refused(502, "PAYMENT_ERROR");
        assert_eq!(
            (overview(&ana)["subscription"].take(), plan(&ana).as_str()),
            (Value::Null, "free"),
            "{status}"
        );
    }
    assert_eq!(notices(&ana).len(), 0);
    assert_eq!(ana.get("/api/audit-logs?entityType=subscription").ok()["total"], 0);
    subscribe(&ana, order("PIX")).created();
    assert_eq!(posts(&server.payment), 6);
}

#[test]
fn what_was_made_in_spite_of_its_answer_is_found() {
    for kind in [
        FaultKind::AcceptThenReset,
        FaultKind::AcceptThenStatus500,
        FaultKind::GarbageJson,
    ] {
        let server = Server::new();
        let ana = server.owner();
        on_subscribe(&server, kind.clone());
        let made = subscribe(&ana, order("PIX")).created();
        assert!(made["payment_data"]["payment_id"].is_string(), "{kind:?}");
        assert_eq!((posts(&server.payment), plan(&ana).as_str()), (1, "starter"));
    }
}

#[test]
fn in_doubt_nobody_pays_twice() {
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
    // The second request finds it at the gateway, whose answer to the first was lost.
    assert_eq!(subscribe(&ana, order("PIX")).invalid(), ["plan"]);
    assert_eq!(overview(&ana)["subscription"]["status"], "pending");
    assert_eq!((posts(&server.payment), plan(&ana).as_str()), (1, "starter"));
    until("it is audited", || {
        ana.get("/api/audit-logs?entityType=subscription").ok()["total"] == 1
    });
}

/// The gateway has made the subscription; the server dies before it has the answer.
fn killed_behind_the_answer(server: &Server) -> User<'_> {
    server.run(&["serve"]);
    let ana = server.owner();
    // The answer hangs, and the server dies while it waits.
    on_subscribe(server, FaultKind::Hang { ms: 20_000 });
    std::thread::scope(|scope| {
        let request = ana.request("POST", "/api/billing/subscribe").json(&order("PIX"));
        let asked = scope.spawn(move || request.try_send().is_ok_and(|reply| reply.status == 201));
        until("the gateway has made it", || posts(&server.payment) == 1);
        server.kill();
        assert!(!asked.join().unwrap());
    });
    assert_eq!(
        server.db.text("SELECT status || attempt FROM subscriptions"),
        "pendingtrue"
    );
    assert_eq!(plan(&ana), "free", "no plan before it is sure");
    server.run(&["serve"]);
    ana
}

#[test]
fn a_server_that_dies_behind_the_gateways_answer_leaves_nothing_unfinished() {
    let server = Server::prepare(&Options::default());
    let ana = killed_behind_the_answer(&server);
    // A worker asks within half a minute, whatever the lease is.
    let asks = "SELECT intent_check_at <= created_at + interval '30 s' AND intent_until > now() FROM subscriptions";
    assert_eq!(server.db.text(asks), "t");
    server.db.run("UPDATE subscriptions SET intent_check_at = now()");
    let made = becomes(&ana, "pending");
    assert!(made["gateway_subscription_id"].is_string());
    assert_eq!((posts(&server.payment), plan(&ana).as_str()), (1, "starter"));
    subscribe(&ana, order("PIX")).invalid();
}

#[test]
fn a_second_request_settles_what_a_dead_server_left_at_once() {
    let server = Server::prepare(&Options::default());
    let ana = killed_behind_the_answer(&server);
    assert_eq!(subscribe(&ana, order("PIX")).invalid(), ["plan"]);
    let made = overview(&ana)["subscription"].take();
    assert_eq!((&made["status"], plan(&ana).as_str()), (&json!("pending"), "starter"));
    assert_eq!(posts(&server.payment), 1);
    // Its payment is found, too, and what it takes to pay it.
    let history = eventually("the payment is found", || {
        let history = ana.get("/api/billing/history").ok();
        (history["total"] == 1).then_some(history)
    });
    assert!(history["items"][0]["invoice_url"].is_string(), "{history}");
}
