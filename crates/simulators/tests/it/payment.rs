//! The payment simulator: keys, errors, objects, lists, faults and webhook events.

use recado_simulators::fault::{Fault, FaultKind};
use recado_simulators::payment::{Action, PaymentEvent, PaymentOptions, PaymentSimulator};
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::{DEADLINE, Response, request, wait_until};

fn call(gateway: &PaymentSimulator, method: &str, path: &str, body: Option<&Value>) -> Result<Response, ureq::Error> {
    let bytes = body.map(|body| body.to_string().into_bytes());
    let headers = [("access_token", "gateway-key"), ("user-agent", "recado")];
    request(
        method,
        &format!("{}{path}", gateway.base_url()),
        &headers,
        bytes.as_deref(),
    )
}

fn call_ok(gateway: &PaymentSimulator, method: &str, path: &str, body: Option<&Value>) -> Value {
    let response = call(gateway, method, path, body).unwrap();
    assert_eq!(response.status, 200, "{}", response.text);
    response.json()
}

fn customer(gateway: &PaymentSimulator) -> String {
    let body = json!({ "name": "Loja Exemplo", "cpfCnpj": "12ABC34501DE35", "externalReference": "account-1" });
    call_ok(gateway, "POST", "/customers", Some(&body))["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn subscription_body(gateway: &PaymentSimulator, kind: &str) -> Value {
    json!({ "customer": customer(gateway), "billingType": kind, "value": 19.9, "nextDueDate": "2099-12-01",
            "cycle": "MONTHLY", "externalReference": "account-1" })
}

fn card(number: &str) -> Value {
    json!({ "holderName": "ANA", "number": number, "expiryMonth": "05", "expiryYear": "2099", "ccv": "123" })
}

fn holder() -> Value {
    json!({ "name": "Ana", "email": "ana@loja.example", "cpfCnpj": "52998224725", "postalCode": "01001000",
            "addressNumber": "1", "phone": "11961234567" })
}

#[test]
fn payment_requires_a_key_and_a_user_agent() {
    let gateway = PaymentSimulator::start(PaymentOptions::default()).unwrap();
    let url = format!("{}/customers", gateway.base_url());
    let with_wrong_key = request("GET", &url, &[("user-agent", "x"), ("access_token", "other")], None).unwrap();
    assert_eq!(with_wrong_key.status, 401);
    assert!(with_wrong_key.json()["errors"][0]["code"].is_string());
    let without_user_agent = request(
        "GET",
        &url,
        &[("user-agent", ""), ("access_token", "gateway-key")],
        None,
    )
    .unwrap();
    assert_eq!(without_user_agent.status, 403);
    assert_eq!(call(&gateway, "GET", "/nothing", None).unwrap().status, 404);
}

#[test]
fn payment_refuses_missing_fields() {
    let gateway = PaymentSimulator::start(PaymentOptions::default()).unwrap();
    let response = call(&gateway, "POST", "/customers", Some(&json!({ "cpfCnpj": "1" }))).unwrap();
    assert_eq!(response.status, 400);
    assert_eq!(response.json()["errors"][0]["code"], "invalid_name");
    assert_eq!(response.json()["errors"][1]["code"], "invalid_cpfCnpj");
    let response = call(&gateway, "POST", "/subscriptions", Some(&json!({ "value": "19.9" }))).unwrap();
    assert_eq!(response.json()["errors"].as_array().unwrap().len(), 5);
}

#[test]
fn payment_subscription_lives_from_creation_to_deletion() {
    let receiver = Receiver::start(0);
    let url = Some(receiver.url.clone());
    let gateway = PaymentSimulator::start(PaymentOptions {
        webhook_url: url,
        ..PaymentOptions::default()
    })
    .unwrap();
    let created = call_ok(
        &gateway,
        "POST",
        "/subscriptions",
        Some(&subscription_body(&gateway, "PIX")),
    );
    let id = created["id"].as_str().unwrap();
    assert!(id.starts_with("sub_"));
    assert_eq!(
        (&created["status"], &created["deleted"]),
        (&json!("ACTIVE"), &json!(false))
    );
    assert_eq!(created["value"].to_string(), "19.9");
    assert_eq!(call_ok(&gateway, "GET", &format!("/subscriptions/{id}"), None), created);
    let listed = call_ok(&gateway, "GET", "/subscriptions?externalReference=account-1", None);
    assert_eq!((&listed["object"], &listed["totalCount"]), (&json!("list"), &json!(1)));
    assert_eq!(
        call_ok(&gateway, "GET", "/subscriptions?externalReference=other", None)["totalCount"],
        0
    );

    let payments = call_ok(&gateway, "GET", &format!("/subscriptions/{id}/payments"), None);
    let payment = payments["data"][0]["id"].as_str().unwrap();
    assert_eq!(payments["data"][0]["netValue"].to_string(), "17.91");
    let change = json!({ "value": 97, "updatePendingPayments": true });
    assert_eq!(
        call_ok(&gateway, "PUT", &format!("/subscriptions/{id}"), Some(&change))["value"],
        97
    );
    assert_eq!(
        call_ok(&gateway, "GET", &format!("/payments/{payment}"), None)["value"],
        97
    );
    call_ok(&gateway, "POST", &format!("/sandbox/payment/{payment}/overdue"), None);
    call_ok(&gateway, "POST", &format!("/sandbox/payment/{payment}/confirm"), None);
    assert_eq!(
        call_ok(&gateway, "GET", &format!("/payments/{payment}/status"), None),
        json!({ "status": "RECEIVED" })
    );
    assert_eq!(
        call(&gateway, "POST", &format!("/sandbox/payment/{payment}/confirm"), None)
            .unwrap()
            .status,
        400
    );
    let gone = call_ok(&gateway, "DELETE", &format!("/subscriptions/{id}"), None);
    assert_eq!(gone, json!({ "deleted": true, "id": id }));
    assert_eq!(
        call(&gateway, "DELETE", &format!("/subscriptions/{id}"), None)
            .unwrap()
            .status,
        404
    );
    assert_eq!(call_ok(&gateway, "GET", "/subscriptions", None)["totalCount"], 0);

    assert!(gateway.wait_idle(DEADLINE));
    assert_events(&receiver, id);
}

/// Asserts the events of the subscription, in order.
fn assert_events(receiver: &Receiver, id: &str) {
    let posts = receiver.posts();
    let events: Vec<Value> = posts.iter().map(|post| post.json()).collect();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    let expected = [
        "SUBSCRIPTION_CREATED",
        "PAYMENT_CREATED",
        "SUBSCRIPTION_UPDATED",
        "PAYMENT_OVERDUE",
        "PAYMENT_RECEIVED",
        "SUBSCRIPTION_DELETED",
    ];
    assert_eq!(names, expected);
    assert_eq!(events[0]["subscription"]["nextDueDate"], "01/12/2099");
    assert!(events[0]["payment"].is_null());
    assert_eq!(events[4]["payment"]["subscription"], json!(id));
    assert!(
        posts
            .iter()
            .all(|post| post.headers["asaas-access-token"] == "gateway-webhook-token")
    );
}

#[test]
fn payment_returns_the_parts_of_a_payment() {
    let gateway = PaymentSimulator::start(PaymentOptions::default()).unwrap();
    let created = call_ok(
        &gateway,
        "POST",
        "/subscriptions",
        Some(&subscription_body(&gateway, "PIX")),
    );
    let payments = call_ok(
        &gateway,
        "GET",
        &format!("/subscriptions/{}/payments", created["id"].as_str().unwrap()),
        None,
    );
    let payment = payments["data"][0]["id"].as_str().unwrap();
    let code = call_ok(&gateway, "GET", &format!("/payments/{payment}/pixQrCode"), None);
    assert!(code["payload"].is_string() && code["encodedImage"].is_string() && code["expirationDate"].is_string());
    assert!(
        call_ok(
            &gateway,
            "GET",
            &format!("/payments/{payment}/identificationField"),
            None
        )["barCode"]
            .is_string()
    );
    assert!(call_ok(&gateway, "GET", &format!("/payments/{payment}/billingInfo"), None)["bankSlip"].is_null());
}

#[test]
fn payment_cards_are_refused_hidden_and_charged() {
    let gateway = PaymentSimulator::start(PaymentOptions::default()).unwrap();
    let mut body = subscription_body(&gateway, "CREDIT_CARD");
    (body["creditCardHolderInfo"], body["remoteIp"]) = (holder(), json!("203.0.113.9"));
    body["creditCard"] = card("4000000000000002");
    let refused = call(&gateway, "POST", "/subscriptions", Some(&body)).unwrap();
    assert_eq!(
        (refused.status, &refused.json()["errors"][0]["code"]),
        (400, &json!("invalid_creditCard"))
    );
    assert_eq!(call_ok(&gateway, "GET", "/subscriptions", None)["totalCount"], 0);
    (body["creditCard"], body["nextDueDate"]) = (card("4000000000001234"), json!("2020-01-01"));
    let created = call_ok(&gateway, "POST", "/subscriptions", Some(&body));
    assert_eq!(created["creditCard"]["creditCardNumber"], "1234");
    assert!(!created.to_string().contains("4000000000001234") && !created.to_string().contains("123\""));
    let path = format!(
        "/subscriptions/{}/payments?status=CONFIRMED",
        created["id"].as_str().unwrap()
    );
    assert_eq!(call_ok(&gateway, "GET", &path, None)["totalCount"], 1);
    let replaced =
        json!({ "creditCard": card("5000000000009999"), "creditCardHolderInfo": holder(), "remoteIp": "203.0.113.9" });
    let path = format!("/subscriptions/{}/creditCard", created["id"].as_str().unwrap());
    assert_eq!(
        call_ok(&gateway, "PUT", &path, Some(&replaced))["creditCard"]["creditCardNumber"],
        "9999"
    );
}

#[test]
fn payment_lists_are_paged() {
    let gateway = PaymentSimulator::start(PaymentOptions::default()).unwrap();
    let ids: Vec<String> = (0..5).map(|_| customer(&gateway)).collect();
    let page = call_ok(&gateway, "GET", "/customers?offset=2&limit=2", None);
    assert_eq!((&page["hasMore"], &page["totalCount"]), (&json!(true), &json!(5)));
    assert_eq!(
        (&page["data"][0]["id"], &page["data"][1]["id"]),
        (&json!(ids[2]), &json!(ids[3]))
    );
    assert_eq!(
        call_ok(&gateway, "GET", "/customers?offset=4&limit=2", None)["hasMore"],
        false
    );
}

#[test]
fn payment_faults_apply_to_matching_requests() {
    let gateway = PaymentSimulator::start(PaymentOptions {
        first_charge_after_ms: 3_600_000,
        ..PaymentOptions::default()
    })
    .unwrap();
    let body = subscription_body(&gateway, "BOLETO");
    let limited = FaultKind::Status {
        http_status: 429,
        body: json!({}),
        retry_after_s: Some(3),
    };
    gateway.script(vec![
        Fault::new(limited).on("GET", "/payments"),
        Fault::new(FaultKind::AcceptThenReset).on("POST", "/subscriptions"),
    ]);
    assert!(call(&gateway, "POST", "/subscriptions", Some(&body)).is_err());
    let listed = call_ok(&gateway, "GET", "/subscriptions?externalReference=account-1", None);
    assert_eq!(listed["totalCount"], 1, "the subscription was created");
    let id = listed["data"][0]["id"].as_str().unwrap();
    let response = call(&gateway, "GET", &format!("/subscriptions/{id}/payments"), None).unwrap();
    assert_eq!((response.status, response.retry_after.as_deref()), (429, Some("3")));
    let not_charged = call_ok(&gateway, "GET", &format!("/subscriptions/{id}/payments"), None);
    assert_eq!(not_charged["totalCount"], 0);
    gateway.set_options(|options| options.first_charge_after_ms = 0);
    assert_eq!(
        call_ok(&gateway, "GET", &format!("/subscriptions/{id}/payments"), None)["totalCount"],
        1
    );
    assert!(
        gateway
            .ledger()
            .iter()
            .any(|entry| entry.method == "POST" && entry.status.is_none())
    );
}

#[test]
fn payment_events_can_be_sent_by_hand() {
    let receiver = Receiver::start(0);
    let gateway = PaymentSimulator::start(PaymentOptions {
        webhook_url: Some(receiver.url.clone()),
        ..PaymentOptions::default()
    })
    .unwrap();
    let id = call_ok(
        &gateway,
        "POST",
        "/subscriptions",
        Some(&subscription_body(&gateway, "PIX")),
    )["id"]
        .as_str()
        .unwrap()
        .to_owned();
    wait_until("the first events", || receiver.posts().len() == 2);
    let event = json!({ "event": "SUBSCRIPTION_INACTIVATED", "id": id, "times": 2 }).to_string();
    let url = format!("{}/_sim/events", gateway.origin());
    assert_eq!(request("POST", &url, &[], Some(event.as_bytes())).unwrap().status, 200);
    wait_until("the doubled event", || receiver.posts().len() == 4);
    assert_eq!(receiver.posts()[2].json()["id"], receiver.posts()[3].json()["id"]);
    assert!(gateway.send_event(&PaymentEvent {
        event: "X".into(),
        id,
        times: 1,
        wrong_token: true
    }));
    wait_until("the forged event", || receiver.posts().len() == 5);
    assert_eq!(receiver.posts()[4].headers["asaas-access-token"], "wrong");
}

fn payment_of(gateway: &PaymentSimulator, kind: &str) -> String {
    let created = call_ok(
        gateway,
        "POST",
        "/subscriptions",
        Some(&subscription_body(gateway, kind)),
    );
    let path = format!("/subscriptions/{}/payments", created["id"].as_str().unwrap());
    let payments = call_ok(gateway, "GET", &path, None);
    payments["data"][0]["id"].as_str().unwrap().to_owned()
}

fn status(gateway: &PaymentSimulator, payment: &str) -> String {
    let response = call_ok(gateway, "GET", &format!("/payments/{payment}/status"), None);
    response["status"].as_str().unwrap().to_owned()
}

#[test]
fn payment_status_changes_by_command_and_by_timer() {
    let receiver = Receiver::start(0);
    let gateway = PaymentSimulator::start(PaymentOptions {
        webhook_url: Some(receiver.url.clone()),
        ..PaymentOptions::default()
    })
    .unwrap();
    let pix = payment_of(&gateway, "PIX");
    let control = |payment: &str, action: &str, body: &str| {
        let url = format!("{}/_sim/payments/{payment}/{action}", gateway.origin());
        request("POST", &url, &[], Some(body.as_bytes())).unwrap().status
    };
    assert_eq!(control(&pix, "refund", "{}"), 200);
    assert_eq!(control(&pix, "overdue", "{}"), 200);
    assert_eq!(control(&pix, "confirm", "{\"delay_ms\":50}"), 200);
    assert_eq!(control("pay_none", "confirm", "{}"), 404);
    assert_eq!(control(&pix, "explode", "{}"), 404);
    wait_until("the payment to be received", || status(&gateway, &pix) == "RECEIVED");
    assert!(gateway.act(&pix, Action::Refund, std::time::Duration::ZERO));
    wait_until("the refund", || status(&gateway, &pix) == "REFUNDED");
    assert!(gateway.wait_idle(DEADLINE));
    let names: Vec<String> = receiver
        .posts()
        .iter()
        .map(|post| post.json()["event"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names[2..], ["PAYMENT_OVERDUE", "PAYMENT_RECEIVED", "PAYMENT_REFUNDED"]);
    gateway.set_options(|options| options.paid_after_ms = Some(20));
    let boleto = payment_of(&gateway, "BOLETO");
    wait_until("the boleto to be paid automatically", || {
        status(&gateway, &boleto) == "RECEIVED"
    });
}
