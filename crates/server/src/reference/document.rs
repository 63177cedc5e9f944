//! The document, put together.

use std::collections::BTreeMap;

use actix_web::http::Method;
use serde_json::{Map, Value, json};

use super::descriptions;
use super::error_codes::{ErrorCode, error_schema, header_references, headers};
use super::examples::{example_of, patched};
use super::operation::{
    Answer, AnswerContent, AnswerSchema, Body, BodyContent, BodySchema, Operation, Parameter, ParameterSchema, Place,
    RequiredFields,
};
use super::schemas::{Schemas, put};
use super::{OpenApiTag, OperationDoc};
use crate::routes::{Access, RouteSpec};

/// The rate limit's headers.
const RATE_HEADERS: [&str; 3] = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"];

/// The document of a table.
pub(super) fn document(table: &'static [RouteSpec]) -> Value {
    let mut schemas = Schemas::new();
    let mut paths: Map<String, Value> = Map::new();
    let mut tags: BTreeMap<&str, &OpenApiTag> = BTreeMap::new();
    for spec in table {
        let described = &spec.described;
        let method = spec.method.as_str().to_ascii_lowercase();
        tags.insert(described.tag.name, described.tag);
        let path = paths.entry(spec.path).or_insert_with(|| json!({}));
        put(path, &method, operation(spec, described, &mut schemas));
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": descriptions::info(),
        "servers": [{ "url": "/", "description": "The server that answers this document." }],
        "tags": tags.values().map(|tag| json!({ "name": tag.name, "description": tag.description })).collect::<Value>(),
        "paths": paths,
        "components": {
            "schemas": { "Error": error_schema() },
            "responses": shared_responses(),
            "headers": headers(),
            "parameters": descriptions::parameters(),
            "securitySchemes": descriptions::security_schemes(),
        },
    });
    schemas.publish(&mut document);
    with_examples(document)
}

fn operation(spec: &RouteSpec, described: &OperationDoc, schemas: &mut Schemas) -> Value {
    let documented = (described.operation)();
    let mut operation = json!({
        "operationId": described.name,
        "tags": [described.tag.name],
        "summary": documented.summary,
        "description": descriptions::description(spec, documented.description),
        "security": descriptions::security(spec.access),
        "parameters": parameters(spec, &documented, schemas),
        "responses": responses(spec, &documented, schemas),
    });
    if let Some(body) = &documented.body {
        put(&mut operation, "requestBody", request_body(body, schemas));
    }
    if let Some(rule) = spec.rate {
        put(
            &mut operation,
            "x-rate-limit",
            json!({
                "requests": rule.limit.requests,
                "window_seconds": rule.limit.window.whole_seconds(),
                "counted_by": descriptions::counted_by(rule.key).0,
                "counter": descriptions::counted_by(rule.key).1,
            }),
        );
    }
    operation
}

fn parameters(spec: &RouteSpec, operation: &Operation, schemas: &mut Schemas) -> Vec<Value> {
    let of_route = operation
        .parameters
        .iter()
        .map(|parameter| parameter_value(parameter, schemas));
    let mut parameters: Vec<Value> = of_route.collect();
    let mut shared = vec![];
    if descriptions::has_account(spec.access) {
        shared.push("AccountId");
    }
    if takes_keys(spec) {
        shared.push("IdempotencyKey");
    }
    shared.push("RequestId");
    let reference = |name| json!({ "$ref": format!("#/components/parameters/{name}") });
    parameters.extend(shared.into_iter().map(reference));
    parameters
}

fn parameter_value(parameter: &Parameter, schemas: &mut Schemas) -> Value {
    let schema = match &parameter.schema {
        ParameterSchema::Of(schema) => schemas.of_body(*schema),
        ParameterSchema::Written(schema) => schema.clone(),
    };
    let mut value = json!({
        "name": parameter.name,
        "in": match parameter.place {
            Place::Path => "path",
            Place::Query => "query",
            Place::Header => "header",
        },
        "description": parameter.description,
        "required": parameter.required,
        "schema": schema,
    });
    if let Some(example) = &parameter.example {
        put(&mut value, "example", example.clone());
    }
    value
}

fn request_body(body: &Body, schemas: &mut Schemas) -> Value {
    let content: Map<String, Value> = body
        .content
        .iter()
        .map(|content| (content.media_type.to_owned(), body_content(content, schemas)))
        .collect();
    let mut value = json!({ "required": body.required, "content": content });
    if !body.description.is_empty() {
        put(&mut value, "description", json!(body.description));
    }
    value
}

fn body_content(content: &BodyContent, schemas: &mut Schemas) -> Value {
    let schema = match &content.schema {
        BodySchema::Written(schema) => schema.clone(),
        BodySchema::Of(of, required, fields) => {
            let schema = schemas.of_body(*of);
            match fields {
                [] => schema,
                fields => {
                    let needed: Map<String, Value> = fields
                        .iter()
                        .map(|&field| (field.to_owned(), schemas.needed(&schema, field)))
                        .collect();
                    let mut schema = json!({ "allOf": [schema], "properties": needed });
                    if *required == RequiredFields::Given {
                        put(&mut schema, "required", json!(fields));
                    }
                    schema
                }
            }
        }
    };
    let mut value = json!({ "schema": schema });
    if let Some(example) = &content.example {
        put(&mut value, "example", example.clone());
    }
    value
}

fn responses(spec: &RouteSpec, operation: &Operation, schemas: &mut Schemas) -> Map<String, Value> {
    let mut responses: BTreeMap<u16, Value> = BTreeMap::new();
    for answer in &operation.answers {
        responses.insert(answer.status, answer_value(spec, answer, schemas));
    }
    let mut errors: BTreeMap<u16, Vec<(ErrorCode, Vec<&str>)>> = BTreeMap::new();
    let derived = derived(spec, operation).into_iter().map(|error| (error, None));
    let said = operation.refusals.iter();
    let said = said.map(|(error, when)| (*error, Some(*when).filter(|when| !when.is_empty())));
    for (error, when) in derived.chain(said) {
        let of_status = errors.entry(error.status()).or_default();
        match of_status.iter_mut().find(|(known, _)| *known == error) {
            Some((_, words)) => words.extend(when),
            None => of_status.push((error, when.into_iter().collect())),
        }
    }
    for (status, errors) in errors {
        responses.insert(status, refusal_value(spec, &errors));
    }
    responses
        .into_iter()
        .map(|(status, value)| (status.to_string(), value))
        .collect()
}

/// What follows from the route itself.
fn derived(spec: &RouteSpec, operation: &Operation) -> Vec<ErrorCode> {
    let open = spec.access == Access::Public;
    let changes = spec.method != Method::GET;
    let places = |place| operation.parameters.iter().any(|parameter| parameter.place == place);
    let has_body = operation.body.is_some();
    let has_id = spec.path.contains("{id}");
    let cases = [
        (ErrorCode::Auth, !open),
        (ErrorCode::Forbidden, !open && changes),
        (ErrorCode::NotFound, spec.path.contains('{')),
        (ErrorCode::SlowBody, has_body),
        (ErrorCode::Conflict, takes_keys(spec)),
        (ErrorCode::TooLarge, has_body),
        (ErrorCode::MediaType, has_body),
        (
            ErrorCode::Invalid,
            has_body || has_id || places(Place::Query) || takes_keys(spec),
        ),
        (ErrorCode::RateLimited, spec.rate.is_some()),
        (ErrorCode::Internal, true),
        (ErrorCode::Unavailable, true),
    ];
    let holds = cases
        .into_iter()
        .filter(|(error, holds)| *holds && !operation.never.contains(error));
    holds.map(|(error, _)| error).collect()
}

/// Whether `Idempotency-Key` counts.
fn takes_keys(spec: &RouteSpec) -> bool {
    spec.method == Method::POST && spec.access != Access::Public
}

fn answer_value(spec: &RouteSpec, answer: &Answer, schemas: &mut Schemas) -> Value {
    let mut headers = header_references(spec.rate.iter().flat_map(|_| RATE_HEADERS));
    if takes_keys(spec) {
        headers.extend(header_references(["Idempotent-Replayed"]));
    }
    for (name, description, schema) in &answer.headers {
        headers.insert(
            (*name).to_owned(),
            json!({ "description": description, "schema": schema }),
        );
    }
    let mut value = json!({ "description": answer.description, "headers": headers });
    if !answer.content.is_empty() {
        let content = answer.content.iter();
        let content = content.map(|content| (content.media_type.to_owned(), answer_content(content, schemas)));
        put(&mut value, "content", Value::Object(content.collect()));
    }
    value
}

fn answer_content(content: &AnswerContent, schemas: &mut Schemas) -> Value {
    let (schema, enveloped) = match &content.schema {
        AnswerSchema::Written(schema) => (schema.clone(), false),
        AnswerSchema::Bare(of) => (schemas.of_answer(*of), false),
        AnswerSchema::Data(of) => (enveloped(schemas.of_answer(*of)), true),
    };
    let mut value = json!({ "schema": schema });
    if let Some(example) = &content.example {
        put(
            &mut value,
            "example",
            match enveloped {
                true => json!({ "data": example }),
                false => example.clone(),
            },
        );
    }
    value
}

fn enveloped(schema: Value) -> Value {
    json!({ "type": "object", "required": ["data"], "properties": { "data": schema } })
}

/// The refusals of one status.
fn refusal_value(spec: &RouteSpec, errors: &[(ErrorCode, Vec<&str>)]) -> Value {
    if let [(error, words)] = errors
        && words.is_empty()
        && *error != ErrorCode::RateLimited
    {
        return json!({ "$ref": format!("#/components/responses/{}", error.name()) });
    }
    let description = errors
        .iter()
        .map(|(error, words)| descriptions::refusal(spec, *error, words));
    let codes = errors.iter().map(|(error, _)| *error).collect::<Vec<_>>();
    let description = description.collect::<Vec<_>>().join("\n\n");
    response(&description, &codes)
}

fn shared_responses() -> Value {
    let responses = ErrorCode::ALL.map(|error| (error.name(), response(error.description(), &[error])));
    Value::Object(responses.into_iter().collect())
}

fn response(description: &str, errors: &[ErrorCode]) -> Value {
    let codes: Vec<&str> = errors.iter().map(|error| error.code()).collect();
    let headers = errors.first().map(|error| error.headers()).unwrap_or_default();
    let examples = errors
        .iter()
        .map(|error| (error.name(), json!({ "value": error.example() })));
    json!({
        "description": description,
        "headers": headers,
        "content": { "application/json": {
            "schema": {
                "allOf": [{ "$ref": "#/components/schemas/Error" }],
                "properties": { "error": { "properties": { "code": { "enum": codes } } } },
            },
            "examples": examples.collect::<Map<String, Value>>(),
        } },
    })
}

/// With an example wherever a body, an answer or a parameter has none of its own, and the rest of those that have only
/// a part.
fn with_examples(mut document: Value) -> Value {
    let shown = document.clone();
    let operations = document.get_mut("paths").and_then(Value::as_object_mut).into_iter();
    let operations = operations
        .flat_map(|paths| paths.values_mut())
        .filter_map(Value::as_object_mut);
    for operation in operations.flat_map(|path| path.values_mut()) {
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten().filter(|one| one.get("$ref").is_none()) {
            complete(&shown, parameter, false);
        }
        for media in contents(operation.get_mut("requestBody")) {
            complete(&shown, media, false);
        }
        let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
        for response in responses.into_iter().flat_map(|responses| responses.values_mut()) {
            contents(Some(response)).for_each(|media| complete(&shown, media, true));
        }
    }
    document
}

fn contents(holder: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    let content = holder
        .and_then(|holder| holder.get_mut("content"))
        .and_then(Value::as_object_mut);
    content.into_iter().flat_map(|content| content.values_mut())
}

/// An example of its own is a part of an answer's, and the whole of anything else's.
fn complete(document: &Value, shown: &mut Value, of_answer: bool) {
    if shown.get("examples").is_some() || (!of_answer && shown.get("example").is_some()) {
        return;
    }
    let made = example_of(document, shown.get("schema").unwrap_or(&Value::Null));
    let whole = match shown.get("example") {
        Some(patch) => patched(made, patch),
        None => made,
    };
    put(shown, "example", whole);
}
