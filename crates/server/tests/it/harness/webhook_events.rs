//! Checks the webhook events of every test against the published event types.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jsonschema::Validator;
use recado_api::reference::{closed, event_types};
use serde_json::Value;

/// The validators of `data` by event type. Undocumented fields are errors.
fn validators() -> &'static BTreeMap<&'static str, Validator> {
    static VALIDATORS: OnceLock<BTreeMap<&'static str, Validator>> = OnceLock::new();
    VALIDATORS.get_or_init(|| {
        let validator = |schema: &Value| {
            let options = jsonschema::draft202012::options().should_validate_formats(true);
            options.build(&closed(schema.clone())).unwrap()
        };
        event_types()
            .iter()
            .map(|event_type| (event_type.kind, validator(&event_type.schema)))
            .collect()
    })
}

/// Panics if the event type is not published or its schema describes other data.
pub fn check(kind: &str, data: &Value) {
    let validator = validators()
        .get(kind)
        .unwrap_or_else(|| panic!("the event type {kind} is not published: add it to WebhookKind and its EventType"));
    let errors = validator
        .iter_errors(data)
        .map(|error| format!("{}: {error}", error.instance_path()));
    let errors: Vec<String> = errors.collect();
    assert!(
        errors.is_empty(),
        "{kind} does not fit its event type: {errors:#?}\n{data:#}"
    );
}

/// Checks the events that a response of this route lists: those of the feed, and the bodies of deliveries in the logs.
pub fn check_listed(path: &str, body: &Value) {
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let events = match path {
        "/api/webhooks/events" => items(&body["data"]["data"]),
        "/api/webhooks/logs" => {
            let logs = items(&body["data"]).into_iter();
            let outbound = logs.filter(|log| log["direction"] == "outbound");
            outbound.map(|log| log["payload"].clone()).collect()
        }
        _ => return,
    };
    for event in events {
        check(event["type"].as_str().unwrap(), &event["data"]);
    }
}
