//! The faults of the harness reach a caller of the platform as the platform reports them.

use serde_json::{Value, json};

use crate::harness::numbers::NumberFault;
use crate::harness::{Options, Server};

const NUMBER: &str = "106540352242922";
const ACCOUNT: &str = "102290129340398";

/// A call of the platform; the error is one of the connection.
fn call(server: &Server, method: &str, path: &str, body: &str) -> Result<(u16, Value), ureq::Error> {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(std::time::Duration::from_millis(500)));
    let agent: ureq::Agent = config.build().into();
    let request = ureq::http::Request::builder()
        .method(method)
        .uri(format!("{}/{path}", server.whatsapp.base_url()))
        .header("Authorization", "Bearer EAAG-token");
    let mut response = agent.run(request.body(body.to_owned()).unwrap())?;
    let text = response.body_mut().read_to_string()?;
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Ok((response.status().as_u16(), body))
}

/// The answers to the calls of the checks: number, account, subscription.
fn answers(server: &Server) -> [(u16, Value); 3] {
    let number = format!("{NUMBER}?fields=id,status,quality_rating,throughput,is_on_biz_app");
    let calls = [
        ("GET", number),
        ("GET", format!("{ACCOUNT}/phone_numbers")),
        ("POST", format!("{ACCOUNT}/subscribed_apps")),
    ];
    calls.map(|(method, path)| call(server, method, &path, "").unwrap())
}

#[test]
fn number_faults_are_reported_as_the_platform_does() {
    let server = Server::prepare(&Options::default());
    let [(_, number), (_, list), (_, subscribed)] = answers(&server);
    assert_eq!(
        (&number["id"], &number["status"]),
        (&json!(NUMBER), &json!("CONNECTED"))
    );
    assert_eq!(list["data"][0]["id"], NUMBER);
    assert_eq!(subscribed, json!({ "success": true }));

    let broken = |fault: NumberFault| {
        server.repair_number(NUMBER);
        server.break_number(NUMBER, fault);
        answers(&server)
    };
    let [number, list, _] = broken(NumberFault::ServerError);
    assert_eq!((number.0, list.0), (500, 200));
    let [number, ..] = broken(NumberFault::EmptyNotFound);
    assert_eq!(number, (404, Value::Null));
    let [number, list, subscribed] = broken(NumberFault::MissingPermission);
    assert_eq!(
        (number.0, &list.1["error"]["code"], &subscribed.1["error"]["code"]),
        (200, &json!(200), &json!(200))
    );
    let [number, list, _] = broken(NumberFault::AbsentFromAccount);
    assert_eq!((number.0, &list.1["data"]), (200, &json!([])));
    for fault in [NumberFault::OtherOwner, NumberFault::UnknownField] {
        let [number, ..] = broken(fault);
        assert_eq!(number.1["error"]["code"], 100, "{fault:?}");
    }
    let [number, ..] = broken(NumberFault::RedQuality);
    assert_eq!(number.1["quality_rating"], "RED");
    let [number, ..] = broken(NumberFault::HighThroughput);
    assert_eq!(number.1["throughput"]["level"], "HIGH");
    let [number, ..] = broken(NumberFault::OnBusinessApp);
    assert_eq!(number.1["is_on_biz_app"], true);
    server.break_number(NUMBER, NumberFault::Limit("TIER_100K"));
    let (_, limit) = call(&server, "GET", NUMBER, "").unwrap();
    assert_eq!(limit["whatsapp_business_manager_messaging_limit"], "TIER_100K");
    server.expire_token("EAAG-token");
    for answer in answers(&server) {
        assert_eq!(answer.1["error"]["code"], 190);
    }
    server.repair_number(NUMBER);
    server.break_number(NUMBER, NumberFault::Hangs);
    call(&server, "GET", NUMBER, "").expect_err("the platform hangs");
}

#[test]
fn unregistered_number_takes_its_pin_alone() {
    let server = Server::prepare(&Options::default());
    server.break_number(NUMBER, NumberFault::Unregistered("246810"));
    let status = || call(&server, "GET", NUMBER, "").unwrap().1["status"].clone();
    let register = |pin: &str| {
        let body = json!({ "messaging_product": "whatsapp", "pin": pin }).to_string();
        call(&server, "POST", &format!("{NUMBER}/register"), &body).unwrap().1
    };
    assert_eq!(status(), "PENDING");
    assert_eq!(register("111111")["error"]["code"], 133_005);
    assert_eq!(status(), "PENDING");
    assert_eq!(register("246810"), json!({ "success": true }));
    assert_eq!(status(), "CONNECTED");
}
