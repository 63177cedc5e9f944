//! The WhatsApp simulator's numbers and business accounts: fields, lists, subscriptions, registration, faults and
//! updates.

use recado_simulators::whatsapp::{
    BusinessUpdateCallback, On, Whatsapp, WhatsappFault, WhatsappFaultKind, WhatsappOptions, signature,
};
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::whatsapp::{TO, code, control, send, start};
use crate::{DEADLINE, Response, request};

const FIELDS: &str = "id,display_phone_number,verified_name,name_status,status,quality_rating,\
    code_verification_status,platform_type,throughput,account_mode,is_on_biz_app,\
    whatsapp_business_manager_messaging_limit";

fn call_as(whatsapp: &Whatsapp, token: &str, method: &str, path: &str, body: Option<&Value>) -> Response {
    let url = format!("{}{path}", whatsapp.base_url());
    let bearer = format!("Bearer {token}");
    let bytes = body.map(|body| body.to_string().into_bytes());
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    request(method, &url, &headers, bytes.as_deref()).unwrap()
}

fn get(whatsapp: &Whatsapp, path: &str) -> Response {
    call_as(whatsapp, "token", "GET", path, None)
}

fn ids(page: &Value) -> Vec<&str> {
    let data = page["data"].as_array().unwrap();
    data.iter().map(|number| number["id"].as_str().unwrap()).collect()
}

fn register(whatsapp: &Whatsapp, pin: &str) -> Response {
    let body = json!({ "messaging_product": "whatsapp", "pin": pin });
    call_as(whatsapp, "token", "POST", "/1065/register", Some(&body))
}

#[test]
fn number_has_the_fields_of_one_that_works() {
    let whatsapp = start(WhatsappOptions::default());
    let number = get(&whatsapp, &format!("/1065?fields={FIELDS}")).json();
    assert_eq!(
        number,
        json!({ "id": "1065", "display_phone_number": "551130000000", "verified_name": "Empresa de Teste",
            "name_status": "APPROVED", "status": "CONNECTED", "quality_rating": "GREEN",
            "code_verification_status": "VERIFIED", "platform_type": "CLOUD_API",
            "throughput": { "level": "STANDARD" }, "account_mode": "LIVE",
            "whatsapp_business_manager_messaging_limit": "TIER_2K" })
    );
    let health = get(&whatsapp, "/1065?fields=health_status").json();
    assert_eq!(health["health_status"]["can_send_message"], "AVAILABLE");
    let kinds: Vec<&Value> = health["health_status"]["entities"].as_array().unwrap().iter().collect();
    let kinds: Vec<_> = kinds
        .iter()
        .map(|entity| entity["entity_type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["PHONE_NUMBER", "WABA", "BUSINESS", "APP"]);
    let account = get(&whatsapp, "/77?fields=id,name,currency,timezone_id,health_status").json();
    assert_eq!((&account["id"], &account["currency"]), (&json!("77"), &json!("BRL")));
}

#[test]
fn account_lists_the_numbers_that_the_token_asked_for() {
    let whatsapp = start(WhatsappOptions::default());
    assert_eq!(get(&whatsapp, "/77/phone_numbers").json(), json!({ "data": [] }));
    get(&whatsapp, "/1065");
    get(&whatsapp, "/1066?fields=id");
    let page = get(&whatsapp, "/77/phone_numbers?fields=id,display_phone_number").json();
    assert_eq!(ids(&page), ["1065", "1066"]);
    assert_eq!(page["data"][0]["display_phone_number"], "551130000000");
    assert_eq!(page["paging"]["next"], Value::Null);
    let other = call_as(&whatsapp, "other", "GET", "/77/phone_numbers", None);
    assert_eq!(other.json(), json!({ "data": [] }), "another token asked for no number");
    whatsapp.reset();
    assert_eq!(get(&whatsapp, "/77/phone_numbers").json(), json!({ "data": [] }));
}

#[test]
fn account_with_many_numbers_lists_them_in_pages() {
    let whatsapp = start(WhatsappOptions::default());
    whatsapp.set_other_numbers("77", 201);
    get(&whatsapp, "/1065");
    let (mut path, mut found, mut pages) = ("/77/phone_numbers?fields=id&limit=100".to_owned(), Vec::new(), 0);
    loop {
        let page = get(&whatsapp, &path).json();
        found.extend(ids(&page).into_iter().map(str::to_owned));
        pages += 1;
        let Some(next) = page["paging"]["next"].as_str() else {
            break;
        };
        path = next.strip_prefix(&whatsapp.base_url()).unwrap().to_owned();
    }
    assert_eq!((pages, found.len()), (3, 202));
    assert_eq!(found.last().map(String::as_str), Some("1065"));
    let distinct: std::collections::HashSet<_> = found.iter().collect();
    assert_eq!(distinct.len(), 202);
    let beyond = get(&whatsapp, "/77/phone_numbers?after=ffff").json();
    assert_eq!(beyond, json!({ "data": [] }));
}

#[test]
fn number_of_one_account_is_listed_there_alone() {
    let whatsapp = start(WhatsappOptions::default());
    whatsapp.set_number("1065", |number| number.waba_id = Some("77".into()));
    get(&whatsapp, "/1065");
    assert_eq!(ids(&get(&whatsapp, "/77/phone_numbers").json()), ["1065"]);
    assert_eq!(get(&whatsapp, "/78/phone_numbers").json(), json!({ "data": [] }));
    whatsapp.set_number("1065", |number| number.unlisted = true);
    assert_eq!(get(&whatsapp, "/77/phone_numbers").json(), json!({ "data": [] }));
}

#[test]
fn number_of_other_tokens_does_not_exist() {
    let whatsapp = start(WhatsappOptions::default());
    whatsapp.set_number("1065", |number| number.tokens = Some(vec!["owner".into()]));
    let foreign = get(&whatsapp, "/1065?fields=id");
    assert_eq!((foreign.status, code(&foreign)), (400, 100));
    assert_eq!(get(&whatsapp, "/77/phone_numbers").json(), json!({ "data": [] }));
    assert_eq!(call_as(&whatsapp, "owner", "GET", "/1065?fields=id", None).status, 200);
    assert_eq!(code(&register(&whatsapp, "123456")), 100);
}

#[test]
fn unknown_field_fails_the_whole_call() {
    let whatsapp = start(WhatsappOptions::default());
    whatsapp.set_number("1065", |number| number.unknown_fields = vec!["is_on_biz_app".into()]);
    let refused = get(&whatsapp, &format!("/1065?fields={FIELDS}"));
    assert_eq!((refused.status, code(&refused)), (400, 100));
    assert_eq!(
        get(&whatsapp, "/1065?fields=id,display_phone_number,verified_name").status,
        200
    );
}

#[test]
fn subscription_is_stored_per_account() {
    let whatsapp = start(WhatsappOptions::default());
    let path = "/77/subscribed_apps";
    assert_eq!(get(&whatsapp, path).json(), json!({ "data": [] }));
    for _ in 0..2 {
        let subscribed = call_as(&whatsapp, "token", "POST", path, None);
        assert_eq!(subscribed.json(), json!({ "success": true }));
    }
    assert_eq!(whatsapp.subscriptions(), ["77"]);
    assert_eq!(control(&whatsapp, "GET", "/subscriptions", None).json(), json!(["77"]));
    let app = get(&whatsapp, path).json()["data"][0]["whatsapp_business_api_data"].clone();
    assert_eq!(app["name"], "Recado");
    assert_eq!(call_as(&whatsapp, "token", "DELETE", path, None).status, 200);
    assert_eq!(get(&whatsapp, path).json(), json!({ "data": [] }));
}

#[test]
fn registration_takes_the_right_pin_and_locks_after_ten() {
    let whatsapp = start(WhatsappOptions::default());
    whatsapp.set_number("1065", |number| {
        (number.status, number.pin) = (Some("PENDING".into()), Some("123456".into()));
    });
    let status = || get(&whatsapp, "/1065?fields=status").json()["status"].clone();
    assert_eq!(code(&register(&whatsapp, "12345")), 131_009);
    assert_eq!(code(&register(&whatsapp, "654321")), 133_005);
    assert_eq!(status(), "PENDING");
    assert_eq!(register(&whatsapp, "123456").json(), json!({ "success": true }));
    assert_eq!(status(), "CONNECTED");
    for _ in 0..10 {
        assert_eq!(code(&register(&whatsapp, "654321")), 133_005);
    }
    assert_eq!(code(&register(&whatsapp, "123456")), 133_016);
    whatsapp.reset();
    assert_eq!(
        register(&whatsapp, "654321").status,
        200,
        "without settings every PIN is right"
    );
}

#[test]
fn number_settings_change_over_the_control_routes() {
    let whatsapp = start(WhatsappOptions::default());
    let blocked = json!({ "entity_type": "WABA", "id": "77", "can_send_message": "BLOCKED",
        "errors": [{ "error_code": 141_006, "error_description": "no payment", "possible_solution": "pay" }] });
    let change = json!({ "quality_rating": "RED", "throughput": "HIGH", "on_business_app": true,
        "messaging_limit": "TIER_UNLIMITED", "health": [blocked] });
    let changed = control(&whatsapp, "POST", "/numbers/1065", Some(&change));
    assert_eq!((changed.status, &changed.json()["status"]), (200, &json!("CONNECTED")));
    let number = get(&whatsapp, &format!("/1065?fields={FIELDS}")).json();
    assert_eq!(
        (
            &number["quality_rating"],
            &number["throughput"]["level"],
            &number["is_on_biz_app"]
        ),
        (&json!("RED"), &json!("HIGH"), &json!(true))
    );
    assert_eq!(number["whatsapp_business_manager_messaging_limit"], "TIER_UNLIMITED");
    let health = get(&whatsapp, "/1065?fields=health_status").json()["health_status"].clone();
    assert_eq!(
        (&health["can_send_message"], &health["entities"]),
        (&json!("BLOCKED"), &json!([blocked]))
    );
    assert_eq!(
        code(&register(&whatsapp, "123456")),
        100,
        "the phone registers this number"
    );
    for nonsense in [json!({ "colour": "blue" }), json!({ "status": 1 }), json!([])] {
        assert_eq!(control(&whatsapp, "POST", "/numbers/1065", Some(&nonsense)).status, 400);
    }
    assert_eq!(control(&whatsapp, "DELETE", "/numbers/1065", None).status, 200);
    assert_eq!(control(&whatsapp, "DELETE", "/numbers/1065", None).status, 404);
    let shown = control(&whatsapp, "GET", "/numbers/1065", None).json();
    assert_eq!(shown["quality_rating"], "GREEN");
    let others = json!({ "other_numbers": 3 });
    assert_eq!(control(&whatsapp, "POST", "/accounts/77", Some(&others)).status, 200);
    let page = get(&whatsapp, "/77/phone_numbers").json();
    assert_eq!(
        (ids(&page).len(), ids(&page)[3]),
        (4, "1065"),
        "the other numbers come first"
    );
}

#[test]
fn account_fault_is_restricted_by_call_token_and_object() {
    let whatsapp = start(WhatsappOptions::default());
    whatsapp.script(vec![
        WhatsappFault::of(On::Subscription, WhatsappFaultKind::error(200, "no permission"))
            .for_token("narrow")
            .for_good(),
        WhatsappFault::of(On::Any, WhatsappFaultKind::error(190, "expired"))
            .for_token("old")
            .for_good(),
        WhatsappFault::of(On::Account, WhatsappFaultKind::EmptyStatus { http_status: 404 }).for_id("1067"),
    ]);
    let subscribe = |token: &str| call_as(&whatsapp, token, "POST", "/77/subscribed_apps", None);
    for _ in 0..2 {
        assert_eq!(code(&subscribe("narrow")), 200);
        assert_eq!(call_as(&whatsapp, "narrow", "GET", "/1065?fields=id", None).status, 200);
        assert_eq!(subscribe("token").status, 200);
        assert_eq!(code(&call_as(&whatsapp, "old", "GET", "/1065?fields=id", None)), 190);
        let body = json!({ "messaging_product": "whatsapp", "to": TO, "type": "text", "text": { "body": "oi" } });
        assert_eq!(
            code(&call_as(&whatsapp, "old", "POST", "/1065/messages", Some(&body))),
            190
        );
    }
    assert_eq!(send(&whatsapp, TO).status, 200, "other tokens send");
    let missing = get(&whatsapp, "/1067?fields=id");
    assert_eq!((missing.status, missing.text.as_str()), (404, ""));
    assert_eq!(
        get(&whatsapp, "/1067?fields=id").status,
        200,
        "the fault was for one call"
    );
    whatsapp.clear_faults();
    assert_eq!(subscribe("narrow").status, 200);
    let fault = json!({ "kind": "empty_status", "http_status": 502, "on": "health", "id": "1065", "stays": true });
    assert_eq!(control(&whatsapp, "POST", "/faults", Some(&fault)).status, 200);
    assert_eq!(get(&whatsapp, "/1065?fields=health_status").status, 502);
    assert_eq!(get(&whatsapp, "/1065?fields=id").status, 200);
}

#[test]
fn token_is_described_and_expired_ones_are_refused() {
    let whatsapp = start(WhatsappOptions::default());
    let token = get(&whatsapp, "/debug_token?input_token=token").json()["data"].clone();
    assert_eq!(
        (&token["is_valid"], &token["type"]),
        (&json!(true), &json!("SYSTEM_USER"))
    );
    assert_eq!(code(&get(&whatsapp, "/debug_token")), 100);
    for path in ["/1065?fields=id", "/77/phone_numbers", "/77/subscribed_apps"] {
        let refused = call_as(&whatsapp, "expired-1", "GET", path, None);
        assert_eq!((refused.status, code(&refused)), (401, 190), "{path}");
    }
}

#[test]
fn business_updates_are_signed_callbacks_of_their_account() {
    let receiver = Receiver::start(0);
    let whatsapp = start(WhatsappOptions {
        callback_url: Some(receiver.url.clone()),
        ..WhatsappOptions::default()
    });
    whatsapp.business_update(&BusinessUpdateCallback::account_update("ACCOUNT_RESTRICTION").of_account("77"));
    whatsapp.business_update(&BusinessUpdateCallback::account_alert(
        "LOW_BALANCE",
        "Add a payment method.",
    ));
    whatsapp.business_update(&BusinessUpdateCallback::number_quality(
        "551130000000",
        "THROUGHPUT_UPGRADE",
        "TIER_10K",
    ));
    whatsapp.business_update(&BusinessUpdateCallback::number_name("551130000000", "REJECTED", "Loja"));
    whatsapp.business_update(&BusinessUpdateCallback::business_capability(&json!("TIER_100K")));
    let by_hand = json!({ "waba_id": "78", "field": "business_capability_update",
        "value": { "max_daily_conversations_per_business": -1 } });
    assert_eq!(
        control(&whatsapp, "POST", "/business-update", Some(&by_hand)).status,
        200
    );
    assert!(whatsapp.wait_idle(DEADLINE));
    let mut fields = Vec::new();
    for post in receiver.posts() {
        assert_eq!(post.headers["x-hub-signature-256"], signature("app-secret", &post.body));
        for entry in post.json()["entry"].as_array().unwrap() {
            for change in entry["changes"].as_array().unwrap() {
                let field = change["field"].as_str().unwrap().to_owned();
                fields.push((entry["id"].as_str().unwrap().to_owned(), field));
            }
        }
    }
    fields.sort();
    let own = |field: &str| ("100000000000001".to_owned(), field.to_owned());
    assert_eq!(
        fields,
        [
            own("account_alerts"),
            own("business_capability_update"),
            own("phone_number_name_update"),
            own("phone_number_quality_update"),
            ("77".to_owned(), "account_update".to_owned()),
            ("78".to_owned(), "business_capability_update".to_owned()),
        ]
    );
    let values = receiver.values();
    assert!(
        values
            .iter()
            .any(|value| value["rejection_reason"] == "NAME_NOT_ACCEPTABLE")
    );
    assert!(values.iter().any(|value| value["current_limit"] == "TIER_10K"));
}
