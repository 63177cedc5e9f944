//! The published event types, and the `webhooks` of the OpenAPI document. The harness checks the events of every test
//! against them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use recado_api::reference::{alone, document};
use recado_simulators::receiver::{Receiver, ReceiverOptions};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::webhook_events::check;
use crate::harness::{Options, Server, eventually, text};

#[test]
fn event_types_are_public_and_sorted() {
    let server = Server::new();
    let types = server.get("/api/webhooks/event-types").send().ok();
    let types = types.as_array().unwrap();
    let names: Vec<String> = types.iter().map(|event_type| text(&event_type["type"])).collect();
    assert!(
        names.is_sorted() && names.contains(&"message.received".to_owned()),
        "{names:?}"
    );
    for event_type in types {
        let validator = jsonschema::draft202012::new(&event_type["schema"]).unwrap();
        assert!(validator.is_valid(&event_type["example"]), "{}", event_type["type"]);
        assert_eq!(event_type["added"], "0.1.0");
        assert!(text(&event_type["description"]).ends_with('.'));
        assert_eq!(event_type.as_object().unwrap().len(), 5);
    }
    let wrong = server.post("/api/webhooks/event-types").send();
    assert_eq!(wrong.header("allow"), Some("GET, HEAD"), "the path is no endpoint's id");
    // Credentials of any kind make no difference.
    let with_key = server.get("/api/webhooks/event-types").bearer("svc_live_sk_unknown");
    assert_eq!(with_key.send().ok(), json!(types));
}

#[test]
fn delivered_body_fits_the_documented_webhook() {
    let server = Server::start(Options::default().with("EGRESS_ALLOW_CIDRS", "127.0.0.0/8"));
    let receiver = Receiver::start(ReceiverOptions::default()).unwrap();
    let ana = server.owner();
    let hook = json!({ "name": "CI", "url": receiver.url("/a"), "events": ["*"] });
    let hook = text(&ana.post("/api/webhooks", hook).created()["id"]);
    ana.post(&format!("/api/webhooks/{hook}/test"), json!({})).expect(202);
    ana.contact("Bia", "+5511961234567");
    let deliveries = eventually("both events are delivered", || {
        Some(receiver.deliveries_to("/a")).filter(|deliveries| deliveries.len() == 2)
    });
    let document = document();
    for delivery in deliveries {
        let event = delivery.json();
        let documented = &document["webhooks"][text(&event["type"])]["post"];
        let schema = &documented["requestBody"]["content"]["application/json"]["schema"];
        let options = jsonschema::draft202012::options().should_validate_formats(true);
        let validator = options.build(&alone(&document, schema)).unwrap();
        let errors: Vec<String> = validator.iter_errors(&event).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:#?}\n{event:#}");
        for header in documented["parameters"].as_array().unwrap() {
            let header = document.pointer(&text(&header["$ref"])[1..]).unwrap();
            let value = delivery.header(&text(&header["name"])).map(Value::from);
            let schema = jsonschema::draft202012::new(&header["schema"]).unwrap();
            assert!(value.is_some_and(|value| schema.is_valid(&value)), "{}", header["name"]);
        }
    }
}

/// The harness detects an event without a schema, and one that its schema does not describe.
#[test]
fn undocumented_event_fails_the_check() {
    let fits = |kind: &str, data: &Value| catch_unwind(|| check(kind, data)).is_ok();
    let ping = json!({ "webhook_id": "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b", "name": "CI" });
    assert!(fits("test.ping", &ping));
    assert!(!fits("test.pong", &ping), "an unknown type");
    for (field, value) in [("name", Value::Null), ("webhook_id", json!("x")), ("extra", json!(1))] {
        let mut changed = ping.clone();
        changed[field] = value;
        assert!(!fits("test.ping", &changed), "{changed}");
    }
    assert!(!fits("test.ping", &json!({ "name": "CI" })), "a missing field");
}

/// Also an event that no test reads.
#[test]
fn undocumented_event_in_the_database_fails_the_test() {
    let server = Server::new();
    let (account, id) = (server.owner().account, Uuid::now_v7());
    server.db.run(&format!(
        "INSERT INTO webhook_events (account_id, id, type, payload, occurred_at)
         VALUES ('{account}', '{id}', 'test.pong', '{{}}', now())"
    ));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(server))).is_err());
}
