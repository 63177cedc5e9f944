//! Assembles the OpenAPI document.

use std::collections::BTreeMap;

use actix_web::http::Method;
use serde_json::{Map, Value, json};

use super::descriptions;
use super::errors::{error_schema, header_references, headers};
use super::schemas::{Schemas, put};
use super::webhooks::webhooks;
use crate::error::ErrorCode;
use crate::routes::{TABLE, row_read};
use crate::web::ceiling::is_exempt;
use crate::web::examples::{example_of, patched};
use crate::web::operation::{
    Body, BodyContent, BodySchema, OpenApiTag, Operation, Parameter, ParameterLocation, ParameterSchema,
    RequiredFields, ResponseContent, ResponseDoc, ResponseSchema, empty,
};
use crate::web::route::{Access, RouteSpec};

const RATE_HEADERS: [&str; 3] = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"];

/// Generates the OpenAPI document of a route table.
pub(super) fn document(table: &'static [RouteSpec]) -> Value {
    let mut schemas = Schemas::new();
    let mut paths: Map<String, Value> = Map::new();
    let mut tags: BTreeMap<&str, &OpenApiTag> = BTreeMap::new();
    for spec in table {
        let method = spec.method.as_str().to_ascii_lowercase();
        tags.insert(spec.tag.name, spec.tag);
        let path = paths.entry(spec.path).or_insert_with(|| json!({}));
        put(path, &method, operation(spec, &mut schemas));
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": descriptions::info(),
        "servers": [{ "url": "/", "description": "The server that returned this document." }],
        "tags": tags.values().map(|tag| json!({ "name": tag.name, "description": tag.description })).collect::<Value>(),
        "paths": paths,
        "webhooks": webhooks(&mut schemas),
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

fn operation(spec: &RouteSpec, schemas: &mut Schemas) -> Value {
    let documented = (spec.endpoint.operation)();
    let mut operation = json!({
        "operationId": spec.operation_id(),
        "tags": [spec.tag.name],
        "summary": documented.summary,
        "description": descriptions::description(spec, documented.description),
        "security": descriptions::security(spec.access),
        "parameters": parameters(spec, &documented, schemas),
        "responses": responses(spec, &documented, schemas),
    });
    if let Some(body) = &documented.body {
        put(&mut operation, "requestBody", request_body(body, schemas));
    }
    if let Some(scope) = spec.scope {
        put(&mut operation, "x-scope", json!(scope.to_string()));
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
    let own_parameters = operation
        .parameters
        .iter()
        .map(|parameter| parameter_value(parameter, schemas));
    let mut parameters: Vec<Value> = own_parameters.collect();
    let mut shared = vec![];
    if descriptions::has_account(spec.access) {
        shared.push("AccountId");
    }
    if accepts_idempotency_key(spec) {
        shared.push("IdempotencyKey");
    }
    let describes = |name| operation.parameters.iter().any(|parameter| parameter.name == name);
    if spec.has_entity_tag() && !describes("If-None-Match") {
        shared.push("IfNoneMatch");
    }
    if row_read(spec).is_some() {
        shared.push("IfMatch");
    }
    shared.push("RequestId");
    let reference = |name| json!({ "$ref": format!("#/components/parameters/{name}") });
    parameters.extend(shared.into_iter().map(reference));
    parameters
}

fn parameter_value(parameter: &Parameter, schemas: &mut Schemas) -> Value {
    let schema = match &parameter.schema {
        ParameterSchema::Of(schema) => schemas.body_schema(*schema),
        ParameterSchema::Custom(schema) => schema.clone(),
    };
    let mut value = json!({
        "name": parameter.name,
        "in": match parameter.location {
            ParameterLocation::Path => "path",
            ParameterLocation::Query => "query",
            ParameterLocation::Header => "header",
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
        BodySchema::Custom(schema) => schema.clone(),
        BodySchema::Of(of, required, fields) => {
            let schema = schemas.body_schema(*of);
            match fields {
                [] => schema,
                fields => {
                    let required_fields: Map<String, Value> = fields
                        .iter()
                        .map(|&field| (field.to_owned(), schemas.non_null_field(&schema, field)))
                        .collect();
                    let mut schema = json!({ "allOf": [schema], "properties": required_fields });
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
    for response in &operation.responses {
        responses.insert(response.status, response_value(spec, response, schemas));
    }
    if spec.has_entity_tag() {
        let not_modified = empty(304, "The client's copy is current: `If-None-Match` has the entity tag.");
        let not_modified = response_value(spec, &not_modified, schemas);
        responses.entry(304).or_insert(not_modified);
    }
    let mut errors: BTreeMap<u16, Vec<(ErrorCode, Vec<&str>)>> = BTreeMap::new();
    let derived = derived_errors(spec, operation).into_iter().map(|error| (error, None));
    let documented = operation.refusals.iter();
    let documented = documented.map(|(error, cause)| (*error, Some(*cause).filter(|cause| !cause.is_empty())));
    for (error, cause) in derived.chain(documented) {
        let same_status = errors.entry(error.status().as_u16()).or_default();
        match same_status.iter_mut().find(|(present, _)| *present == error) {
            Some((_, causes)) => causes.extend(cause),
            None => same_status.push((error, cause.into_iter().collect())),
        }
    }
    for (status, errors) in errors {
        responses.insert(status, error_response(spec, &errors));
    }
    responses
        .into_iter()
        .map(|(status, value)| (status.to_string(), value))
        .collect()
}

/// The error codes that follow from access, method, path, parameters and body of the route.
fn derived_errors(spec: &RouteSpec, operation: &Operation) -> Vec<ErrorCode> {
    let open = spec.access == Access::Public;
    let changes = spec.method != Method::GET;
    let has_query = operation
        .parameters
        .iter()
        .any(|parameter| parameter.location == ParameterLocation::Query);
    let has_body = operation.body.is_some();
    let has_id = spec.path.contains("{id}");
    let cases = [
        (ErrorCode::Auth, !open),
        (ErrorCode::Forbidden, !open && (changes || spec.scope.is_some())),
        (ErrorCode::NotFound, spec.path.contains('{')),
        (ErrorCode::SlowBody, has_body),
        (ErrorCode::Conflict, accepts_idempotency_key(spec)),
        (ErrorCode::Changed, row_read(spec).is_some()),
        (ErrorCode::TooLarge, has_body),
        (ErrorCode::MediaType, has_body),
        (
            ErrorCode::Invalid,
            has_body || has_id || has_query || accepts_idempotency_key(spec),
        ),
        (ErrorCode::RateLimited, spec.rate.is_some() || !is_exempt(spec)),
        (ErrorCode::Internal, true),
        (ErrorCode::Unavailable, true),
    ];
    let errors = cases
        .into_iter()
        .filter(|(error, applies)| *applies && !operation.never.contains(error));
    errors.map(|(error, _)| error).collect()
}

/// Whether the route accepts an `Idempotency-Key`.
fn accepts_idempotency_key(spec: &RouteSpec) -> bool {
    spec.method == Method::POST && spec.access != Access::Public
}

fn response_value(spec: &RouteSpec, response: &ResponseDoc, schemas: &mut Schemas) -> Value {
    let mut headers = header_references(spec.rate.iter().flat_map(|_| RATE_HEADERS));
    if accepts_idempotency_key(spec) {
        headers.extend(header_references(["Idempotent-Replayed"]));
    }
    let is_tagged = spec.has_entity_tag() || (spec.method == Method::PUT && row_read(spec).is_some());
    if is_tagged && matches!(response.status, 200 | 304) {
        headers.extend(header_references(["ETag"]));
    }
    if matches!(response.status, 201 | 202) && spec.makes.is_some() {
        headers.extend(header_references(["Location"]));
    }
    for (name, description, schema) in &response.headers {
        headers.insert(
            (*name).to_owned(),
            json!({ "description": description, "schema": schema }),
        );
    }
    let mut value = json!({ "description": response.description, "headers": headers });
    if !response.content.is_empty() {
        let content = response.content.iter();
        let content = content.map(|content| (content.media_type.to_owned(), response_content(content, schemas)));
        put(&mut value, "content", Value::Object(content.collect()));
    }
    if matches!(response.status, 201 | 202) {
        let links = links(spec);
        if !links.is_empty() {
            put(&mut value, "links", Value::Object(links));
        }
    }
    value
}

/// The links from a response that names a new row to the operations on the row.
fn links(spec: &RouteSpec) -> Map<String, Value> {
    let row = spec
        .makes
        .map_or_else(|| format!("{}/{{id}}", spec.path), str::to_owned);
    let operations = TABLE.iter().filter(|operation| operation.path == row);
    let links = operations.filter_map(|operation| {
        let (name, description) = match operation.method {
            Method::GET => ("get", "Reads the new row."),
            Method::PUT => ("update", "Updates the new row."),
            Method::DELETE => ("delete", "Deletes the new row."),
            _ => return None,
        };
        let link = json!({
            "operationId": operation.operation_id(),
            "parameters": { "id": "$response.body#/data/id" },
            "description": description,
        });
        Some((name.to_owned(), link))
    });
    links.collect()
}

fn response_content(content: &ResponseContent, schemas: &mut Schemas) -> Value {
    let (schema, enveloped) = match &content.schema {
        ResponseSchema::Custom(schema) => (schema.clone(), false),
        ResponseSchema::Bare(of) => (schemas.response_schema(*of), false),
        ResponseSchema::Data(of) => (enveloped(schemas.response_schema(*of)), true),
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

/// The response of one error status. A single error without causes of its own refers to the shared response.
fn error_response(spec: &RouteSpec, errors: &[(ErrorCode, Vec<&str>)]) -> Value {
    if let [(error, causes)] = errors
        && causes.is_empty()
        && (*error != ErrorCode::RateLimited || spec.rate.is_none())
    {
        return json!({ "$ref": format!("#/components/responses/{}", error.name()) });
    }
    let description = errors
        .iter()
        .map(|(error, causes)| descriptions::error_description(spec, *error, causes));
    let codes = errors.iter().map(|(error, _)| *error).collect::<Vec<_>>();
    let description = description.collect::<Vec<_>>().join("\n\n");
    response(&description, &codes)
}

fn shared_responses() -> Value {
    let responses = ErrorCode::ALL.iter();
    let responses = responses.map(|&error| (error.name(), response(error.description(), &[error])));
    Value::Object(responses.collect())
}

fn response(description: &str, errors: &[ErrorCode]) -> Value {
    let codes: Vec<&str> = errors.iter().map(|error| error.as_str()).collect();
    let headers = errors
        .first()
        .map(|error| error.header_references())
        .unwrap_or_default();
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

/// Adds an example to every body, response and parameter that has none, and completes the partial examples of
/// responses.
fn with_examples(mut document: Value) -> Value {
    let complete_document = document.clone();
    let operations = document.get_mut("paths").and_then(Value::as_object_mut).into_iter();
    let operations = operations
        .flat_map(|paths| paths.values_mut())
        .filter_map(Value::as_object_mut);
    for operation in operations.flat_map(|path| path.values_mut()) {
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
        let parameters = parameters.into_iter().flatten();
        for parameter in parameters.filter(|parameter| parameter.get("$ref").is_none()) {
            complete(&complete_document, parameter, false);
        }
        for media in contents(operation.get_mut("requestBody")) {
            complete(&complete_document, media, false);
        }
        let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
        for response in responses.into_iter().flat_map(|responses| responses.values_mut()) {
            contents(Some(response)).for_each(|media| complete(&complete_document, media, true));
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

/// Adds or completes the example of `target`. The written example of a response is a patch of the generated one; the
/// example of a body or parameter is complete.
fn complete(document: &Value, target: &mut Value, is_response: bool) {
    if target.get("examples").is_some() || (!is_response && target.get("example").is_some()) {
        return;
    }
    let generated = example_of(document, target.get("schema").unwrap_or(&Value::Null));
    let example = match target.get("example") {
        Some(patch) => patched(generated, patch),
        None => generated,
    };
    put(target, "example", example);
}
