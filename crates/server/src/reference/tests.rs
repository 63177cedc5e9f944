//! The reference against the table, the schemas and the examples.

use std::collections::BTreeSet;

use jsonschema::Validator;
use serde_json::{Value, json};

use super::*;
use crate::routes::TABLE;

/// Every operation by its method and path.
fn operations(document: &Value) -> impl Iterator<Item = (String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap();
        methods
            .iter()
            .map(move |(method, operation)| (format!("{} {path}", method.to_uppercase()), operation))
    })
}

/// What a reference leads to.
fn target<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(path) => document
            .pointer(path.trim_start_matches('#'))
            .unwrap_or_else(|| panic!("{path} leads nowhere")),
        None => value,
    }
}

/// Checks values of a schema of the document.
fn validator(document: &Value, schema: &Value) -> Validator {
    let schema = alone(document, schema);
    let options = jsonschema::draft202012::options().should_validate_formats(true);
    options
        .build(&schema)
        .unwrap_or_else(|error| panic!("{error}: {schema:#}"))
}

#[test]
fn the_operations_are_the_routes() {
    let document = document();
    let told: BTreeSet<String> = operations(&document).map(|(name, _)| name).collect();
    let routes = TABLE.iter().map(|spec| format!("{} {}", spec.method, spec.path));
    let missing: Vec<String> = routes.clone().filter(|route| !told.contains(route)).collect();
    assert!(
        missing.is_empty(),
        "{} routes are not told of: {missing:#?}",
        missing.len()
    );
    assert_eq!(told, routes.collect());
}

#[test]
fn every_operation_says_what_has_to_be_known() {
    let document = document();
    let mut names = BTreeSet::new();
    for (name, operation) in operations(&document) {
        for text in ["operationId", "summary", "description"] {
            assert!(
                operation[text].as_str().is_some_and(|text| text.len() > 2),
                "{name}: no {text}"
            );
        }
        assert!(
            names.insert(operation["operationId"].as_str().unwrap()),
            "{name}: its name is another's"
        );
        assert!(!operation["summary"].as_str().unwrap().ends_with('.'), "{name}");
        assert!(operation["security"].is_array(), "{name}");
        let tag = &operation["tags"][0];
        let tags = document["tags"].as_array().unwrap();
        assert!(tags.iter().any(|known| known["name"] == *tag), "{name}: {tag}");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.contains_key("500"), "{name}");
        assert!(
            responses.keys().any(|status| status.starts_with(['2', '3'])),
            "{name}: no answer"
        );
        for (status, response) in responses {
            let response = target(&document, response);
            assert!(
                response["description"].as_str().is_some_and(|text| text.len() > 5),
                "{name} {status}"
            );
        }
    }
}

#[test]
fn parameters_are_those_of_the_path_and_all_are_told_of() {
    let document = document();
    for (name, operation) in operations(&document) {
        let parameters = operation["parameters"].as_array().unwrap();
        let parameters: Vec<&Value> = parameters.iter().map(|one| target(&document, one)).collect();
        let of_path = name.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let told = parameters
            .iter()
            .filter(|one| one["in"] == "path")
            .map(|one| one["name"].as_str().unwrap());
        assert_eq!(told.collect::<Vec<_>>(), of_path.collect::<Vec<_>>(), "{name}");
        for parameter in parameters {
            assert!(
                parameter["description"].as_str().is_some_and(|text| text.len() > 5),
                "{name}: {parameter}"
            );
            let fits = validator(&document, &parameter["schema"]);
            assert!(fits.is_valid(&parameter["example"]), "{name}: {parameter}");
        }
    }
}

/// Every field of every schema that is not told of, or a text that shows nothing.
fn faults(path: &str, schema: &Value, faults: &mut Vec<String>) {
    let properties = schema["properties"].as_object();
    for (name, field) in properties.into_iter().flatten() {
        let path = format!("{path}.{name}");
        if field["description"].as_str().is_none_or(|text| text.len() < 4) && field.get("$ref").is_none() {
            faults.push(format!("{path} has no description"));
        }
        let shown = ["examples", "enum", "const", "format", "default"]
            .iter()
            .any(|key| field.get(key).is_some());
        if examples::type_of(field) == Some("string") && !shown {
            faults.push(format!("{path} has no example"));
        }
        self::faults(&path, field, faults);
    }
    for inner in ["items", "additionalProperties"] {
        if schema.get(inner).is_some_and(Value::is_object) {
            self::faults(&format!("{path}[]"), &schema[inner], faults);
        }
    }
    for inner in ["anyOf", "oneOf", "allOf"] {
        for one in schema[inner].as_array().into_iter().flatten() {
            self::faults(path, one, faults);
        }
    }
}

#[test]
fn every_field_is_told_of() {
    let document = document();
    let mut found = vec![];
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        assert!(
            !name.ends_with(|c: char| c.is_ascii_digit()),
            "two types are called {name}"
        );
        faults(name, schema, &mut found);
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The media types of an operation's body and answers, with what they are.
fn media<'a>(document: &'a Value, operation: &'a Value) -> Vec<(String, &'a Value)> {
    let mut media = vec![];
    let body = operation["requestBody"]["content"].as_object();
    media.extend(
        body.into_iter()
            .flatten()
            .map(|(kind, one)| (format!("body {kind}"), one)),
    );
    for (status, response) in operation["responses"].as_object().unwrap() {
        let content = target(document, response)["content"].as_object();
        media.extend(
            content
                .into_iter()
                .flatten()
                .map(|(kind, one)| (format!("{status} {kind}"), one)),
        );
    }
    media
}

#[test]
fn every_example_is_what_its_schema_says() {
    let document = document();
    for (name, operation) in operations(&document) {
        for (kind, media) in media(&document, operation) {
            let shown = media["examples"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(_, one)| &one["value"]);
            let shown: Vec<&Value> = shown.chain(media.get("example")).collect();
            assert!(!shown.is_empty(), "{name} {kind}: no example");
            let fits = validator(&document, &media["schema"]);
            for example in shown {
                let faults = fits.iter_errors(example);
                let faults: Vec<String> = faults
                    .map(|fault| format!("{}: {fault}", fault.instance_path()))
                    .collect();
                assert!(faults.is_empty(), "{name} {kind}: {faults:#?}\n{example:#}");
            }
        }
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn walk<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| walk(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let document = document();
    let mut found = vec![];
    walk(&document, &mut found);
    assert!(found.len() > 100);
    for path in found {
        assert!(
            document.pointer(path.trim_start_matches('#')).is_some(),
            "{path} leads nowhere"
        );
    }
}

#[test]
fn the_codes_are_the_closed_list() {
    let document = document();
    let codes = document.pointer("/components/schemas/Error/properties/error/properties/code/enum");
    let list = json!([
        "AUTH_ERROR",
        "CONFLICT",
        "FORBIDDEN",
        "INTERNAL_ERROR",
        "METHOD_NOT_ALLOWED",
        "NOT_FOUND",
        "PAYLOAD_TOO_LARGE",
        "PAYMENT_ERROR",
        "RATE_LIMIT",
        "REQUEST_TIMEOUT",
        "STORAGE_ERROR",
        "UNAVAILABLE",
        "UNSUPPORTED_MEDIA_TYPE",
        "VALIDATION_ERROR",
        "VPS_ERROR",
        "WHATSAPP_ERROR",
    ]);
    assert_eq!(codes, Some(&list));
}

#[test]
fn the_door_is_the_tables() {
    let document = document();
    let door = |path: &str, method: &str| {
        let operation = &document["paths"][path][method];
        let schemes = operation["security"].as_array().unwrap().iter();
        let schemes: Vec<&str> = schemes
            .map(|one| one.as_object().unwrap().keys().next().unwrap().as_str())
            .collect();
        let statuses: Vec<&str> = operation["responses"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        (schemes.join(" "), statuses.join(" "))
    };
    let account = "session sessionCookie apiKey apiKeyHeader".to_owned();
    assert_eq!(
        door("/api/campaigns", "get"),
        (account.clone(), "200 401 422 500 503".to_owned())
    );
    let made = "201 401 403 408 409 413 415 422 429 500 503".to_owned();
    assert_eq!(door("/api/campaigns", "post"), (account.clone(), made));
    let deleted = "204 400 401 403 404 422 429 500 503".to_owned();
    assert_eq!(door("/api/campaigns/{id}", "delete"), (account, deleted));
    let limited = &document["paths"]["/api/campaigns"]["post"];
    assert_eq!(limited["x-rate-limit"]["requests"], 30);
    let headers = limited["responses"]["201"]["headers"].as_object().unwrap();
    assert!(headers.contains_key("X-RateLimit-Remaining") && headers.contains_key("Idempotent-Replayed"));
    assert_eq!(limited["responses"]["429"]["headers"].as_object().unwrap().len(), 5);
}

#[test]
fn the_example_of_a_body_can_be_read() {
    let document = document();
    let mut read = 0;
    for spec in TABLE {
        let Some(body) = (spec.described.operation)().body else {
            continue;
        };
        let method = spec.method.as_str().to_lowercase();
        let told = &document["paths"][spec.path][method]["requestBody"]["content"];
        for content in body.content {
            let Some(reads) = content.reads else { continue };
            let fault = reads(&told[content.media_type]["example"]);
            assert_eq!(fault, None, "{} {}", spec.method, spec.path);
            read += 1;
        }
    }
    assert!(read > 30, "{read}");
}
