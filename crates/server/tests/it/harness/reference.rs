//! Every answer that any test gets against what the reference says of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jsonschema::Validator;
use recado_server::reference::{alone, document};
use recado_server::routes::TABLE;
use serde_json::{Value, json};

use super::client::Reply;

/// What one operation answers with one status and media type.
type Key = (String, &'static str, u16, String);

fn told() -> &'static Value {
    static TOLD: OnceLock<Value> = OnceLock::new();
    TOLD.get_or_init(|| {
        let mut document = document();
        // What the reference does not tell of must not be answered.
        let schemas = document["components"]["schemas"].as_object_mut().unwrap();
        for schema in schemas.values_mut() {
            let open = ["additionalProperties", "allOf"]
                .iter()
                .all(|key| schema.get(key).is_none());
            if schema.get("properties").is_some() && open {
                schema["additionalProperties"] = json!(false);
            }
        }
        document
    })
}

/// The path of the table that a path is one of; a fixed one before one with a name in it.
fn template(method: &str, path: &str) -> Option<&'static str> {
    let path = path.split('?').next().unwrap_or_default();
    let matches = |template: &str| {
        let (wanted, given) = (template.split('/'), path.split('/'));
        wanted.clone().count() == given.clone().count()
            && wanted
                .zip(given)
                .all(|(wanted, given)| wanted == given || (wanted.starts_with('{') && !given.is_empty()))
    };
    let paths = TABLE.iter().map(|spec| spec.path).filter(|template| matches(template));
    let best = paths.min_by_key(|template| template.matches('{').count())?;
    let known = TABLE.iter().any(|spec| spec.path == best && spec.method == method);
    known.then_some(best)
}

/// The validator of an answer; made once.
fn validator((method, path, status, media_type): &Key, schema: &Value) -> Arc<Validator> {
    static MADE: OnceLock<Mutex<HashMap<Key, Arc<Validator>>>> = OnceLock::new();
    let made = MADE.get_or_init(Mutex::default);
    let key = (method.clone(), *path, *status, media_type.clone());
    let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
    let validator = made.entry(key).or_insert_with(|| {
        let options = jsonschema::draft202012::options().should_validate_formats(true);
        Arc::new(options.build(&alone(told(), schema)).unwrap())
    });
    validator.clone()
}

/// Panics where the reference does not tell of this answer, or tells of another one.
pub fn check(method: &str, path: &str, reply: &Reply) {
    // The request's head did not arrive in time: the machine is busy, and no route was reached.
    if reply.status == 408 && reply.text.is_empty() {
        return;
    }
    let Some(template) = template(method, path) else { return };
    let operation = &told()["paths"][template][method.to_lowercase()];
    let response = &operation["responses"][reply.status.to_string()];
    assert!(
        response.is_object(),
        "{method} {path}: {} is not told of: {}",
        reply.status,
        reply.text
    );
    let response = match response["$ref"].as_str() {
        Some(path) => told().pointer(&path[1..]).unwrap(),
        None => response,
    };
    let media_type = reply.header("content-type").unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().to_owned();
    let Some(content) = response["content"].as_object() else {
        assert_eq!(reply.text, "", "{method} {path}: {} has a body", reply.status);
        return;
    };
    let told = content.get(&media_type);
    let told = told.unwrap_or_else(|| panic!("{method} {path}: {} is not told of as {media_type:?}", reply.status));
    if media_type == "application/json" {
        let key = (method.to_owned(), template, reply.status, media_type);
        let body: Value = serde_json::from_str(&reply.text).unwrap();
        let validator = validator(&key, &told["schema"]);
        let faults = validator
            .iter_errors(&body)
            .map(|fault| format!("{}: {fault}", fault.instance_path()));
        let faults: Vec<String> = faults.collect();
        assert!(
            faults.is_empty(),
            "{method} {path} {}: {faults:#?}\n{body:#}",
            reply.status
        );
    }
}
