//! The WhatsApp simulator: responses, errors, files and control routes; and the helpers of its other tests.

use recado_simulators::whatsapp::{Inbound, Whatsapp, WhatsappOptions, wa_id};
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::{Response, request, wait_until};

pub(crate) const TO: &str = "+5511961234567";

pub(crate) fn start(options: WhatsappOptions) -> Whatsapp {
    Whatsapp::start(options).unwrap()
}

pub(crate) fn call(whatsapp: &Whatsapp, method: &str, path: &str, body: Option<&Value>) -> Response {
    let url = format!("{}{path}", whatsapp.base_url());
    let bytes = body.map(|body| body.to_string().into_bytes());
    let headers = [("authorization", "Bearer token"), ("content-type", "application/json")];
    request(method, &url, &headers, bytes.as_deref()).unwrap()
}

pub(crate) fn control(whatsapp: &Whatsapp, method: &str, path: &str, body: Option<&Value>) -> Response {
    let bytes = body.map(|body| body.to_string().into_bytes());
    request(
        method,
        &format!("{}/_sim{path}", whatsapp.origin()),
        &[],
        bytes.as_deref(),
    )
    .unwrap()
}

pub(crate) fn message(to: &str, parameters: &[&str]) -> Value {
    let parameters: Vec<Value> = parameters
        .iter()
        .map(|text| json!({ "type": "text", "text": text }))
        .collect();
    json!({
        "messaging_product": "whatsapp", "recipient_type": "individual", "to": to, "type": "template",
        "biz_opaque_callback_data": "send-1",
        "template": { "name": "promo", "language": { "code": "pt_BR" },
                      "components": [{ "type": "body", "parameters": parameters }] } })
}

pub(crate) fn send(whatsapp: &Whatsapp, to: &str) -> Response {
    call(whatsapp, "POST", "/1065/messages", Some(&message(to, &["Ana"])))
}

pub(crate) fn code(response: &Response) -> u64 {
    response.json()["error"]["code"].as_u64().unwrap()
}

pub(crate) fn template(name: &str) -> Value {
    json!({ "name": name, "language": "pt_BR", "category": "MARKETING", "components": [
        { "type": "BODY", "text": "Oi {{1}}, tudo bem?", "example": { "body_text": [["Ana"]] } } ] })
}

#[test]
fn whatsapp_accepts_a_send() {
    let whatsapp = start(WhatsappOptions::default());
    let response = send(&whatsapp, TO);
    assert_eq!(response.status, 200);
    let body = response.json();
    assert_eq!(body["messaging_product"], "whatsapp");
    assert_eq!(body["contacts"], json!([{ "input": TO, "wa_id": "5511961234567" }]));
    assert_eq!(body["messages"][0]["message_status"], "accepted");
    assert!(body["messages"][0]["id"].as_str().unwrap().starts_with("wamid."));
    let south = send(&whatsapp, "+5531988887777").json();
    assert_eq!(south["contacts"][0]["wa_id"], "553188887777");
    let text = json!({ "messaging_product": "whatsapp", "to": TO, "type": "text", "text": { "body": "oi" } });
    assert_eq!(call(&whatsapp, "POST", "/1065/messages", Some(&text)).status, 200);
    let other_version = format!("{}/v26.0/1065/messages", whatsapp.origin());
    let bytes = text.to_string();
    let response = request(
        "POST",
        &other_version,
        &[("authorization", "Bearer t")],
        Some(bytes.as_bytes()),
    )
    .unwrap();
    assert_eq!(response.status, 200);
    let counters = whatsapp.counters();
    assert_eq!(
        (counters.accepted, counters.recipients, counters.per_recipient_max),
        (4, 2, 3)
    );
}

#[test]
fn wa_id_follows_the_ninth_digit_rule() {
    for (dialled, expected) in [
        ("+5511961234567", "5511961234567"),
        ("5521987654321", "5521987654321"),
        ("552187654321", "5521987654321"),
        ("+5531988887777", "553188887777"),
        ("553188887777", "553188887777"),
        ("+5585991234567", "558591234567"),
        ("+551133334444", "551133334444"),
        ("+555133334444", "555133334444"),
        ("+16505551234", "16505551234"),
        ("55", "55"),
    ] {
        assert_eq!(wa_id(dialled), expected, "{dialled}");
    }
}

#[test]
fn whatsapp_refuses_missing_and_expired_tokens() {
    let whatsapp = start(WhatsappOptions::default());
    let url = format!("{}/1065/messages", whatsapp.base_url());
    for headers in [&[][..], &[("authorization", "Bearer expired-1")][..]] {
        let response = request("POST", &url, headers, Some(b"{}")).unwrap();
        assert_eq!((response.status, code(&response)), (401, 190));
        assert_eq!(response.json()["error"]["type"], "OAuthException");
    }
}

#[test]
fn whatsapp_refuses_invalid_messages() {
    let whatsapp = start(WhatsappOptions::default());
    let code_after = |change: &dyn Fn(&mut Value)| {
        let mut body = message(TO, &[]);
        change(&mut body);
        let response = call(&whatsapp, "POST", "/1065/messages", Some(&body));
        assert_eq!(response.status, 400);
        code(&response)
    };
    assert_eq!(code_after(&|body| body["messaging_product"] = json!("sms")), 100);
    assert_eq!(code_after(&|body| body["to"] = json!("")), 131008);
    assert_eq!(code_after(&|body| body["to"] = json!("123")), 131009);
    assert_eq!(code_after(&|body| body["type"] = json!("carrier pigeon")), 131009);
    assert_eq!(code_after(&|body| body["template"]["name"] = json!("")), 131008);
    assert_eq!(whatsapp.counters().rejected, 5);
}

/// The parts of a form that the simulator checks.
const FORM: &[u8] = b"name=\"messaging_product\" name=\"type\" name=\"file\"";

#[test]
fn whatsapp_serves_uploads_media_and_the_phone_number() {
    let whatsapp = start(WhatsappOptions::default());
    let webp = call(
        &whatsapp,
        "POST",
        "/9/uploads?file_name=h.webp&file_length=6&file_type=image/webp",
        None,
    );
    assert_eq!(webp.status, 400);
    let opened = call(
        &whatsapp,
        "POST",
        "/9/uploads?file_name=h.png&file_length=6&file_type=image/png",
        None,
    )
    .json();
    let id = opened["id"].as_str().unwrap();
    assert!(id.starts_with("upload:"));
    let url = format!("{}/{id}", whatsapp.base_url());
    let part = |offset: &str, bytes: &[u8]| {
        request(
            "POST",
            &url,
            &[("authorization", "OAuth t"), ("file_offset", offset)],
            Some(bytes),
        )
        .unwrap()
    };
    assert_eq!(part("0", b"abc").status, 200);
    assert_eq!(part("0", b"abc").status, 400);
    assert_eq!(
        call(&whatsapp, "GET", &format!("/{id}"), None).json(),
        json!({ "id": id, "file_offset": 3 })
    );
    assert!(part("3", b"def").json()["h"].as_str().unwrap().starts_with("4::"));
    let media = format!("{}/1065/media", whatsapp.base_url());
    let headers = [
        ("authorization", "Bearer t"),
        ("content-type", "multipart/form-data; boundary=x"),
    ];
    assert!(request("POST", &media, &headers, Some(FORM)).unwrap().json()["id"].is_string());
    let number = call(&whatsapp, "GET", "/1065?fields=quality_rating,throughput", None).json();
    assert_eq!(
        number,
        json!({ "id": "1065", "quality_rating": "GREEN", "throughput": { "level": "STANDARD" } })
    );
}

#[test]
fn whatsapp_control_routes_change_the_simulator() {
    let receiver = Receiver::start(0);
    let whatsapp = start(WhatsappOptions::default());
    let set = json!({ "callback_url": receiver.url, "delivered_ms": null, "template_approval": { "kind": "manual" } });
    assert_eq!(control(&whatsapp, "POST", "/options", Some(&set)).status, 200);
    assert_eq!(
        control(&whatsapp, "POST", "/options", Some(&json!({ "nonsense": 1 }))).status,
        400
    );
    assert_eq!(
        control(&whatsapp, "GET", "/options", None).json()["delivered_ms"],
        Value::Null
    );
    let id = control(&whatsapp, "POST", "/templates", Some(&template("promo"))).json()["id"].clone();
    let path = format!("/templates/{}/status", id.as_str().unwrap());
    assert_eq!(
        control(
            &whatsapp,
            "POST",
            &path,
            Some(&json!({ "event": "PAUSED", "reason": "x" }))
        )
        .status,
        200
    );
    assert_eq!(
        control(&whatsapp, "POST", &path, Some(&json!({ "event": "APPROVED" }))).status,
        200
    );
    let faults = json!([{ "kind": "error", "code": 131049, "to": TO }, { "kind": "hang", "ms": 1, "on": "template" }]);
    assert_eq!(
        control(&whatsapp, "POST", "/faults", Some(&faults)).json(),
        json!({ "scripted": 2 })
    );
    assert_eq!(
        control(&whatsapp, "POST", "/faults", Some(&json!({ "kind": "?" }))).status,
        400
    );
    assert_eq!(code(&send(&whatsapp, TO)), 131049);
    let inbound = json!({ "phone_number_id": "1065", "from": "+5531988887777", "text": "SAIR" });
    assert_eq!(control(&whatsapp, "POST", "/inbound", Some(&inbound)).status, 200);
    whatsapp.inbound(&Inbound {
        phone_number_id: "1065".into(),
        from: TO.into(),
        text: "oi".into(),
        ..Default::default()
    });
    wait_until("two inbound messages", || receiver.changes("messages").len() == 2);
    let first = receiver.changes("messages").remove(0);
    assert_eq!(
        (&first["from"], &first["text"]["body"]),
        (&json!("553188887777"), &json!("SAIR"))
    );
    let entry = control(&whatsapp, "GET", "/ledger", None).json()[0].clone();
    assert_eq!(
        (&entry["to"], &entry["template"], &entry["status"]),
        (&json!(TO), &json!("promo"), &json!(400))
    );
    assert_eq!(
        (&entry["callback_data"], &entry["parameters"]),
        (&json!("send-1"), &json!(["Ana"]))
    );
    assert_eq!(control(&whatsapp, "GET", "/counters", None).json()["rejected"], 1);
    assert_eq!(control(&whatsapp, "POST", "/reset", None).status, 200);
    assert!(whatsapp.ledger().is_empty());
    assert_eq!(control(&whatsapp, "GET", "/nothing", None).status, 404);
}

#[test]
fn whatsapp_sends_callbacks_of_scripted_user_actions() {
    let receiver = Receiver::start(0);
    let options = WhatsappOptions {
        callback_url: Some(receiver.url.clone()),
        ..WhatsappOptions::default()
    };
    let whatsapp = start(options);
    let text = json!({ "messaging_product": "whatsapp", "recipient": "BR.1", "type": "text",
        "biz_opaque_callback_data": "reply-1", "text": { "body": "Oi" } });
    let response = call(&whatsapp, "POST", "/1065/messages", Some(&text)).json();
    assert_eq!(response["contacts"][0], json!({ "input": "BR.1", "user_id": "BR.1" }));
    let hidden = json!({ "user_id": "BR.1", "text": "um", "timestamp": 7 });
    let with_number = json!({ "from": "+5531988887777", "text": "dois", "id": "wamid.2" });
    let batch =
        json!({ "phone_number_id": "1065", "messages": [hidden, with_number], "reversed": true, "repeated": 1 });
    let ids = control(&whatsapp, "POST", "/inbound/batch", Some(&batch)).json();
    assert_eq!(ids["ids"][1], "wamid.2");
    let preference = json!({ "phone_number_id": "1065", "from": "+5531988887777", "value": "stop" });
    assert_eq!(
        control(&whatsapp, "POST", "/preferences", Some(&preference)).status,
        200
    );
    let number_change = json!({ "phone_number_id": "1065", "from": "+5531988887777", "new_number": "+5511961234567" });
    assert_eq!(control(&whatsapp, "POST", "/inbound", Some(&number_change)).status, 200);
    let request_content = json!({ "type": "request_contact_info", "body": { "text": "?" }, "action": { "name": "request_contact_info" } });
    let request = |interactive: &Value| {
        let body = json!({ "messaging_product": "whatsapp", "recipient": "BR.1", "type": "interactive", "interactive": interactive });
        call(&whatsapp, "POST", "/1065/messages", Some(&body)).status
    };
    assert_eq!(request(&request_content), 200);
    assert_eq!(request(&json!({ "type": "request_contact_info" })), 400);
    let card = json!({ "phone_number_id": "1065", "user_id": "BR.1",
        "card": { "origin": "contact_request", "numbers": ["+5511961234567"] } });
    assert_eq!(control(&whatsapp, "POST", "/inbound", Some(&card)).status, 200);
    wait_until("all callbacks", || receiver.changes("messages").len() == 6);
    let messages = receiver.changes("messages");
    assert_eq!(
        (&messages[0]["id"], &messages[0]["from"]),
        (&json!("wamid.2"), &json!("553188887777"))
    );
    assert_eq!(
        (
            &messages[1]["from"],
            &messages[1]["from_user_id"],
            &messages[1]["timestamp"]
        ),
        (&json!(null), &json!("BR.1"), &json!("7"))
    );
    assert_eq!(messages[2], messages[0]);
    assert_eq!(messages[4]["system"]["wa_id"], "5511961234567");
    let phone = json!({ "phone": "+5511961234567", "type": "CELL", "wa_id": "5511961234567" });
    assert_eq!(messages[5]["contacts"][0]["phones"], json!([phone]));
    assert_eq!(messages[5]["contacts"][0]["origin"], "contact_request");
    let preferences = receiver.changes("user_preferences");
    assert_eq!(
        (&preferences[0]["value"], &preferences[0]["wa_id"]),
        (&json!("stop"), &json!("553188887777"))
    );
}
