//! Checks every response that a test receives against the OpenAPI document.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jsonschema::Validator;
use recado_api::reference::{alone, document};
use recado_api::routes::TABLE;
use serde_json::{Value, json};

use super::client::Reply;
use super::webhook_events;

/// Method, path, status and media type of a response.
type Key = (String, &'static str, u16, String);

fn strict_document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let mut document = document();
        // Undocumented properties are errors.
        let schemas = document["components"]["schemas"].as_object_mut().unwrap();
        for schema in schemas.values_mut() {
            let is_open = ["additionalProperties", "allOf"]
                .iter()
                .all(|key| schema.get(key).is_none());
            if schema.get("properties").is_some() && is_open {
                schema["additionalProperties"] = json!(false);
            }
        }
        document
    })
}

/// The path of the route table that matches a request path. Fixed segments take precedence over parameters.
fn template(method: &str, path: &str) -> Option<&'static str> {
    let path = path.split('?').next().unwrap_or_default();
    let matches = |template: &str| {
        let (pattern, actual) = (template.split('/'), path.split('/'));
        pattern.clone().count() == actual.clone().count()
            && pattern
                .zip(actual)
                .all(|(pattern, actual)| pattern == actual || (pattern.starts_with('{') && !actual.is_empty()))
    };
    let paths = TABLE.iter().map(|spec| spec.path).filter(|template| matches(template));
    let best = paths.min_by_key(|template| template.matches('{').count())?;
    let has_method = TABLE.iter().any(|spec| spec.path == best && spec.method == method);
    has_method.then_some(best)
}

/// The validator of a response, compiled once per key.
fn validator((method, path, status, media_type): &Key, schema: &Value) -> Arc<Validator> {
    static VALIDATORS: OnceLock<Mutex<HashMap<Key, Arc<Validator>>>> = OnceLock::new();
    let validators = VALIDATORS.get_or_init(Mutex::default);
    let key = (method.clone(), *path, *status, media_type.clone());
    let mut validators = validators.lock().unwrap_or_else(PoisonError::into_inner);
    let validator = validators.entry(key).or_insert_with(|| {
        let options = jsonschema::draft202012::options().should_validate_formats(true);
        Arc::new(options.build(&alone(strict_document(), schema)).unwrap())
    });
    validator.clone()
}

/// Ports at which a server of the previous version may respond.
static PREVIOUS_VERSION_PORTS: Mutex<Vec<u16>> = Mutex::new(vec![]);

/// Stops the checks of responses from this port: the document has fields that the previous version does not return.
pub fn expect_previous_version(port: u16) {
    let mut ports = PREVIOUS_VERSION_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    ports.push(port);
}

/// Whether a server of the previous version may write to the databases of this test run.
pub fn has_previous_version() -> bool {
    let ports = PREVIOUS_VERSION_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    !ports.is_empty()
}

pub fn is_previous_version(port: u16) -> bool {
    let ports = PREVIOUS_VERSION_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    ports.contains(&port)
}

/// Panics if the document lacks this response or describes a different one.
pub fn check(method: &str, path: &str, reply: &Reply) {
    // The server did not receive the request head in time because the machine is busy. No route was reached.
    if reply.status == 408 && reply.text.is_empty() {
        return;
    }
    let Some(template) = template(method, path) else { return };
    let operation = &strict_document()["paths"][template][method.to_lowercase()];
    let response = &operation["responses"][reply.status.to_string()];
    assert!(
        response.is_object(),
        "{method} {path}: {} is not documented: {}",
        reply.status,
        reply.text
    );
    let response = match response["$ref"].as_str() {
        Some(path) => strict_document().pointer(&path[1..]).unwrap(),
        None => response,
    };
    let media_type = reply.header("content-type").unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().to_owned();
    let Some(content) = response["content"].as_object() else {
        assert_eq!(reply.text, "", "{method} {path}: {} has a body", reply.status);
        return;
    };
    let documented = content
        .get(&media_type)
        .unwrap_or_else(|| panic!("{method} {path}: {} is not documented as {media_type:?}", reply.status));
    if media_type == "application/json" {
        let key = (method.to_owned(), template, reply.status, media_type);
        let body: Value = serde_json::from_str(&reply.text).unwrap();
        let validator = validator(&key, &documented["schema"]);
        let errors = validator
            .iter_errors(&body)
            .map(|error| format!("{}: {error}", error.instance_path()));
        let errors: Vec<String> = errors.collect();
        assert!(
            errors.is_empty(),
            "{method} {path} {}: {errors:#?}\n{body:#}",
            reply.status
        );
        webhook_events::check_listed(template, &body);
    }
}
