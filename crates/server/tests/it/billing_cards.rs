//! Card data reaches the payment gateway and never a response, a table or the log.

use recado_simulators::fault::{Fault, FaultKind};
use serde_json::{Value, json};

use crate::billing::{card_order, subscribe};
use crate::harness::{DEADLINE, Options, Server};

/// Card numbers and code that occur nowhere else.
const NUMBER: &str = "4929531748602937";
const REFUSED: &str = "4929531748600002";
const CCV: &str = "7319";

fn assert_no_card_data(source: &str, text: &str) {
    // Four digits occur inside many numbers, so the code is searched only as a delimited value.
    let code = ["\"", " ", "="].map(|before| format!("{before}{CCV}"));
    let values = code
        .iter()
        .flat_map(|code| ["\"", "\\", " ", ",", "."].map(|after| format!("{code}{after}")));
    let numbers = [NUMBER, REFUSED, &NUMBER[..12], "4929 5317"].map(str::to_owned);
    for marker in numbers.into_iter().chain(values) {
        assert!(!text.contains(&marker), "{source} contains {marker}");
    }
    // Dumps write bytes in hexadecimal.
    let hex = hex::encode(NUMBER);
    assert!(!text.contains(&hex), "{source} contains the number's bytes");
}

#[test]
fn card_data_appears_in_no_response_table_or_log() {
    let server = Server::start(Options::default().with("RUST_LOG", "trace"));
    let mut responses = String::new();
    let mut subscribe = |order: &Value, expected_status: u16, faults: Vec<Fault>| {
        let ana = server.owner();
        server.payment.script(faults);
        let request = ana
            .request("POST", "/api/billing/subscribe")
            .header("Idempotency-Key", "card");
        let reply = request.json(order).send();
        assert_eq!(reply.status, expected_status, "{}", reply.text);
        responses += &reply.text;
    };
    let order = card_order("4929 5317 4860 2937", CCV);
    let on_subscribe = |kind: FaultKind| vec![Fault::new(kind).on("POST", "/subscriptions")];
    let echo = FaultKind::status(
        400,
        json!({ "errors": [{ "code": NUMBER, "description": format!("cartão {NUMBER}, código {CCV}") }] }),
    );
    let broken = FaultKind::status(500, json!({ "x": NUMBER }));
    subscribe(&order, 201, vec![]);
    subscribe(&card_order(REFUSED, CCV), 422, vec![]);
    subscribe(&order, 422, on_subscribe(echo));
    subscribe(&order, 502, on_subscribe(broken));
    subscribe(&order, 201, on_subscribe(FaultKind::AcceptThenReset));
    subscribe(&order, 201, on_subscribe(FaultKind::GarbageJson));
    for (field, wrong) in [
        ("credit_card", json!(NUMBER)),
        (
            "credit_card",
            json!({ "number": 4_929_531_748_602_937_u64, "ccv": 7319 }),
        ),
        ("credit_card", json!({ "number": [NUMBER], "ccv": CCV })),
        ("credit_card", json!({ "number": format!("{NUMBER}x"), "ccv": CCV })),
        ("cpf_cnpj", json!(NUMBER)),
        ("plan", json!(NUMBER)),
        ("cycle", json!(NUMBER)),
        ("billing_type", json!(4_929_531_748_602_937_u64)),
    ] {
        let mut order = order.clone();
        order[field] = wrong;
        subscribe(&order, 422, vec![]);
    }
    server.db.wait_for_outbox();
    assert!(server.payment.wait_idle(DEADLINE));
    assert_no_card_data("a response", &responses);
    assert_no_card_data("the database", &server.db.dump().into_values().collect::<String>());
    let log = server.log();
    assert!(log.contains("\"TRACE\""), "the log contains TRACE lines");
    assert_no_card_data("the log", &log);
    // The gateway received the card.
    let sent = server
        .payment
        .ledger()
        .iter()
        .any(|entry| entry.body["creditCard"]["number"] == NUMBER);
    assert!(sent);
}

#[test]
fn refused_card_can_be_replaced_by_another_one() {
    let server = Server::new();
    let ana = server.owner();
    let error = subscribe(&ana, card_order(REFUSED, CCV)).refused(422, "VALIDATION_ERROR");
    assert!(error["details"]["fields"]["credit_card"].is_array(), "{error}");
    assert_eq!(server.db.count("FROM subscriptions"), 0);
    let made = subscribe(&ana, card_order(NUMBER, CCV)).created();
    assert_eq!(
        (&made["status"], &made["payment_data"]["type"]),
        (&json!("ACTIVE"), &json!("credit_card"))
    );
    let sent = server
        .payment
        .ledger()
        .into_iter()
        .rfind(|entry| entry.path.ends_with("/subscriptions") && entry.method == "POST");
    let body = sent.unwrap().body;
    assert_eq!(
        (&body["remoteIp"], &body["creditCard"]["expiryMonth"]),
        (&json!("127.0.0.1"), &json!("05"))
    );
}

/// Keyed hash: an unkeyed hash of the body would let a reader of the table guess the card by brute force.
#[test]
fn idempotency_request_hash_is_keyed() {
    use sha2::{Digest as _, Sha256};

    let server = Server::new();
    let ana = server.owner();
    let order = card_order(NUMBER, CCV).to_string();
    let request = ana
        .request("POST", "/api/billing/subscribe")
        .header("Idempotency-Key", "card");
    request.body("application/json", order.clone()).send().created();
    let plain = Sha256::digest(format!("POST /api/billing/subscribe\n{order}"));
    let plain = hex::encode(plain);
    let stored = server
        .db
        .text("SELECT encode(request_hash, 'hex') FROM idempotency_keys WHERE key = 'card'");
    assert_eq!(stored.len(), 64);
    assert_ne!(stored, plain);
}
