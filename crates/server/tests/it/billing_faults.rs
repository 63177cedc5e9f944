//! A gateway that refuses, breaks, hangs up or answers nonsense, and a server that dies in between: nothing stays half
//! done, and nobody pays twice.

use recado_simulators::fault::{Fault, FaultKind};
use recado_simulators::payment::Payment;
use serde_json::{Value, json};

use crate::billing::{becomes, notices, order, plan, standing, subscribe};
use crate::harness::{Options, Server, until};

fn broken(http_status: u16) -> FaultKind {
    FaultKind::status(http_status, json!({ "error": "x" }))
}

fn on_subscribe(server: &Server, kind: FaultKind) {
    server
        .payment
        .script(vec![Fault::new(kind).on("POST", "/subscriptions")]);
}

fn posts(gateway: &Payment) -> usize {
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
        (standing(&ana)["subscription"].take(), plan(&ana).as_str()),
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
            (standing(&ana)["subscription"].take(), plan(&ana).as_str()),
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
        (standing(&ana)["subscription"].take(), plan(&ana).as_str()),
        (Value::Null, "free")
    );
    assert_eq!(subscribe(&ana, order("PIX")).invalid(), ["plan"]);
    server.db.run("UPDATE subscriptions SET intent_until = now()");
    becomes(&ana, "pending");
    assert_eq!((posts(&server.payment), plan(&ana).as_str()), (1, "starter"));
    until("it is audited", || {
        ana.get("/api/audit-logs?entityType=subscription").ok()["total"] == 1
    });
}

#[test]
fn a_server_that_dies_behind_the_gateways_answer_leaves_nothing_unfinished() {
    let server = Server::prepare(&Options::default());
    server.run(&["serve"]);
    let ana = server.owner();
    // The answer hangs, and the server dies while it waits.
    on_subscribe(&server, FaultKind::Hang { ms: 20_000 });
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
    assert_eq!(standing(&ana)["subscription"], Value::Null);
    server.db.run("UPDATE subscriptions SET intent_until = now()");
    let made = becomes(&ana, "pending");
    assert!(made["gateway_subscription_id"].is_string());
    assert_eq!((posts(&server.payment), plan(&ana).as_str()), (1, "starter"));
    subscribe(&ana, order("PIX")).invalid();
}
