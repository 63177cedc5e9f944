//! The schemas of all body and response types: each type once, under its name.

use std::collections::BTreeSet;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::web::operation::SchemaOf;
use crate::web::schemas::tidied;

/// JSON pointers of the shared schemas. Schemas of bodies are under `BODIES` until the document is complete.
const RESPONSES: &str = "/components/schemas";
const BODIES: &str = "/components/bodies";

/// Generates schemas and collects the named types that they refer to.
pub(super) struct Schemas {
    responses: SchemaGenerator,
    bodies: SchemaGenerator,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let settings = |path: &str| {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = path.to_owned().into();
                settings.meta_schema = None;
            })
        };
        Self {
            responses: settings(RESPONSES).for_serialize().into_generator(),
            bodies: settings(BODIES).for_deserialize().into_generator(),
        }
    }

    /// The schema of a serialized type.
    pub(super) fn response_schema(&mut self, schema: SchemaOf) -> Value {
        tidied(schema(&mut self.responses).to_value())
    }

    /// The schema of a deserialized type.
    pub(super) fn body_schema(&mut self, schema: SchemaOf) -> Value {
        tidied(schema(&mut self.bodies).to_value())
    }

    /// The schema of a body field for an operation that rejects null in it.
    pub(super) fn non_null_field(&self, body: &Value, field: &str) -> Value {
        let name = body
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|path| path.rsplit('/').next());
        let definition = name.and_then(|name| self.bodies.definitions().get(name));
        let types = definition.and_then(|schema| schema.pointer(&format!("/properties/{field}/type")));
        match types.and_then(Value::as_array).map(Vec::as_slice) {
            Some([value_type, null]) if null == "null" => serde_json::json!({ "type": value_type }),
            _ => serde_json::json!({ "not": { "type": "null" } }),
        }
    }

    /// Adds the named schemas to the document. A type whose body schema differs from its response schema gets two, the
    /// second with the suffix `Input`.
    pub(super) fn publish(mut self, document: &mut Value) {
        let tidy = |definitions: Map<String, Value>| -> Map<String, Value> {
            definitions
                .into_iter()
                .map(|(name, schema)| (name, tidied(schema)))
                .collect()
        };
        let mut published = tidy(self.responses.take_definitions(true));
        let bodies = tidy(self.bodies.take_definitions(true));
        let differing = differing(&published, &bodies);
        let rename = |name: &str| renamed(name, &differing);
        for (name, schema) in bodies {
            published.insert(rename(&name), relocated(schema, &rename));
        }
        *document = relocated(document.take(), &rename);
        if let Some(schemas) = document.pointer_mut(RESPONSES).and_then(Value::as_object_mut) {
            schemas.extend(published);
        }
    }
}

/// The types whose body schema differs from the response schema, directly or through a type that they refer to.
fn differing(responses: &Map<String, Value>, bodies: &Map<String, Value>) -> BTreeSet<String> {
    let mut differing = BTreeSet::new();
    loop {
        let rename = |name: &str| renamed(name, &differing);
        let differs = |name: &str, schema: &Value| {
            let response = responses.get(name);
            response.is_some_and(|response| *response != relocated(schema.clone(), &rename))
        };
        let more = bodies
            .iter()
            .filter(|(name, schema)| !differing.contains(*name) && differs(name, schema));
        let more: Vec<String> = more.map(|(name, _)| name.clone()).collect();
        if more.is_empty() {
            return differing;
        }
        differing.extend(more);
    }
}

fn renamed(name: &str, differing: &BTreeSet<String>) -> String {
    match differing.contains(name) {
        true => format!("{name}Input"),
        false => name.to_owned(),
    }
}

/// Rewrites every reference to a body's schema to its final path.
fn relocated(value: Value, rename: &dyn Fn(&str) -> String) -> Value {
    let prefix = format!("#{BODIES}/");
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| {
                let name = value
                    .as_str()
                    .filter(|_| key == "$ref")
                    .and_then(|path| path.strip_prefix(&prefix));
                let value = match name {
                    Some(name) => Value::String(format!("#{RESPONSES}/{}", rename(name))),
                    None => relocated(value, rename),
                };
                (key, value)
            })
            .collect(),
        Value::Array(items) => items.into_iter().map(|item| relocated(item, rename)).collect(),
        other => other,
    }
}

pub(super) fn put(object: &mut Value, name: &str, value: Value) {
    if let Value::Object(fields) = object {
        fields.insert(name.to_owned(), value);
    }
}

/// A self-contained schema: the schema with every component that it refers to.
pub fn alone(document: &Value, schema: &Value) -> Value {
    let mut named = Map::new();
    let mut pending = vec![schema];
    while let Some(value) = pending.pop() {
        match value {
            Value::Object(fields) => {
                let path = fields.get("$ref").and_then(Value::as_str).unwrap_or_default();
                let name = path.strip_prefix(&format!("#{RESPONSES}/"));
                let target = document.pointer(path.trim_start_matches('#'));
                if let (Some(name), Some(target)) = (name, target)
                    && !named.contains_key(name)
                {
                    named.insert(name.to_owned(), target.clone());
                    pending.push(target);
                }
                pending.extend(fields.values());
            }
            Value::Array(items) => pending.extend(items),
            _ => {}
        }
    }
    let mut standalone = schema.clone();
    put(&mut standalone, "components", serde_json::json!({ "schemas": named }));
    standalone
}
