//! What clients of a released OpenAPI document would miss in another one.
//!
//! New operations, fields, kinds and optional inputs are no break: clients ignore what they do not know. Everything
//! that a client may send must still be accepted, and everything that it may read must still be there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// The keys of a document that only explain.
const EXPLANATIONS: [&str; 8] = [
    "description",
    "example",
    "examples",
    "externalDocs",
    "headers",
    "links",
    "summary",
    "title",
];

/// Maps whose keys are names of the interface, and not keywords.
const NAMED: [&str; 4] = ["paths", "properties", "schemas", "webhooks"];

/// Who writes the values of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Writer {
    Client,
    Server,
}

/// The part of a document that is compared.
pub(super) fn interface(document: &Value) -> Value {
    let mut interface = json!({});
    for part in ["paths", "webhooks", "components"] {
        interface[part] = document[part].clone();
    }
    explain_less(&mut interface, false);
    interface
}

fn explain_less(value: &mut Value, has_names: bool) {
    match value {
        Value::Object(map) => {
            if !has_names {
                map.retain(|key, _| !EXPLANATIONS.contains(&key.as_str()));
            }
            for (key, value) in map.iter_mut() {
                explain_less(value, !has_names && NAMED.contains(&key.as_str()));
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| explain_less(value, false)),
        _ => {}
    }
}

/// Describes every break between two documents.
pub(super) fn breaks(old: &Value, new: &Value) -> Vec<String> {
    let (old, new) = (joined(old, old), joined(new, new));
    let mut comparison = Comparison {
        old: &old,
        new: &new,
        breaks: vec![],
        compared: BTreeSet::new(),
        fitting: BTreeMap::new(),
    };
    comparison.operations("paths", Writer::Client);
    comparison.operations("webhooks", Writer::Server);
    comparison.breaks
}

/// Two schemas by their addresses, and who writes their values.
type Pair = (*const Value, *const Value, Writer);

struct Comparison<'a> {
    old: &'a Value,
    new: &'a Value,
    breaks: Vec<String>,
    /// The pairs that were compared. Schemas may contain themselves.
    compared: BTreeSet<Pair>,
    /// The pairs of forms that were compared, and whether the new one fits.
    fitting: BTreeMap<Pair, bool>,
}

impl<'a> Comparison<'a> {
    fn operations(&mut self, part: &str, writer: Writer) {
        for (path, methods) in entries(&self.old[part]) {
            for (method, old) in entries(methods) {
                let location = format!("{} {path}", method.to_uppercase());
                match self.new[part].get(path).and_then(|methods| methods.get(method)) {
                    Some(new) => self.operation(&location, old, new, writer),
                    None => self.breaks.push(format!("{location} is missing")),
                }
            }
        }
    }

    fn operation(&mut self, location: &str, old: &'a Value, new: &'a Value, writer: Writer) {
        for key in ["operationId", "x-scope"] {
            if old[key] != Value::Null && old[key] != new[key] {
                self.breaks
                    .push(format!("{location}: {key} was {} and is {}", old[key], new[key]));
            }
        }
        self.parameters(location, old, new);
        let (old_body, new_body) = (&old["requestBody"], &new["requestBody"]);
        if new_body["required"] == true && old_body["required"] != true {
            self.breaks.push(format!("{location}: a body is required"));
        }
        self.contents(&format!("{location}: body"), old_body, new_body, writer);
        for (status, old) in entries(&old["responses"]) {
            if status.starts_with('2') && writer == Writer::Client {
                let location = format!("{location}: {status}");
                match new["responses"].get(status) {
                    Some(new) => {
                        let (old, new) = (target(self.old, old), target(self.new, new));
                        self.contents(&location, old, new, Writer::Server);
                    }
                    None => self.breaks.push(format!("{location} is missing")),
                }
            }
        }
    }

    fn parameters(&mut self, location: &str, old: &'a Value, new: &'a Value) {
        let (before, after) = (self.old, self.new);
        let resolved = |document: &'a Value, operation: &'a Value| -> Vec<&'a Value> {
            items(&operation["parameters"])
                .map(|parameter| target(document, parameter))
                .collect()
        };
        let (old, new) = (resolved(before, old), resolved(after, new));
        let key = |parameter: &Value| (parameter["in"].clone(), parameter["name"].clone());
        for parameter in &old {
            let location = format!("{location}: parameter {}", parameter["name"]);
            match new.iter().find(|other| key(other) == key(parameter)) {
                Some(other) => self.schema(&location, &parameter["schema"], &other["schema"], Writer::Client),
                None => self.breaks.push(format!("{location} is missing")),
            }
        }
        for parameter in new.iter().filter(|parameter| parameter["required"] == true) {
            let was_required = |other: &&Value| key(other) == key(parameter) && other["required"] == true;
            if !old.iter().any(was_required) {
                self.breaks
                    .push(format!("{location}: parameter {} is required", parameter["name"]));
            }
        }
    }

    /// Compares bodies by their content types.
    fn contents(&mut self, location: &str, old: &'a Value, new: &'a Value, writer: Writer) {
        for (content_type, content) in entries(&old["content"]) {
            match new["content"].get(content_type) {
                Some(other) => self.schema(location, &content["schema"], &other["schema"], writer),
                None => self.breaks.push(format!("{location}: {content_type} is missing")),
            }
        }
    }

    fn schema(&mut self, location: &str, old: &'a Value, new: &'a Value, writer: Writer) {
        let (forms, others) = (forms(self.old, old), forms(self.new, new));
        match (forms.as_slice(), others.as_slice()) {
            ([old], [new]) => self.form(location, old, new, writer),
            _ => self.forms(location, &forms, &others, writer),
        }
    }

    fn form(&mut self, location: &str, old: &'a Value, new: &'a Value, writer: Writer) {
        if !self.compared.insert((old, new, writer)) {
            return;
        }
        self.types(location, old, new, writer);
        self.values(location, old, new, writer);
        if writer == Writer::Client {
            self.limits(location, old, new);
        }
        self.fields(location, old, new, writer);
        for key in ["items", "additionalProperties"] {
            if old[key].is_object() {
                self.schema(&format!("{location}[]"), &old[key], &new[key], writer);
            }
        }
    }

    /// Each form of before must still be there. A server may write new forms, but no new JSON type.
    fn forms(&mut self, location: &str, old: &[&'a Value], new: &[&'a Value], writer: Writer) {
        for form in old {
            if !new.iter().any(|other| self.fits(form, other, writer)) {
                self.breaks
                    .push(format!("{location}: a form is missing: {}", shown(form)));
            }
        }
        let types_of =
            |forms: &[&'a Value]| -> BTreeSet<&'a str> { forms.iter().flat_map(|form| types(form)).collect() };
        if writer == Writer::Server {
            for name in types_of(new).difference(&types_of(old)) {
                self.breaks.push(format!("{location} may be of the type {name}"));
            }
        }
    }

    fn fits(&mut self, old: &'a Value, new: &'a Value, writer: Writer) -> bool {
        let pair: Pair = (old, new, writer);
        if let Some(&fits) = self.fitting.get(&pair) {
            return fits;
        }
        let mut comparison = Comparison {
            old: self.old,
            new: self.new,
            breaks: vec![],
            compared: self.compared.clone(),
            fitting: std::mem::take(&mut self.fitting),
        };
        comparison.form("", old, new, writer);
        let fits = comparison.breaks.is_empty();
        self.fitting = comparison.fitting;
        self.fitting.insert(pair, fits);
        fits
    }

    fn types(&mut self, location: &str, old: &Value, new: &Value, writer: Writer) {
        let (before, after) = (types(old), types(new));
        let (must_be, allowed) = match writer {
            Writer::Client => (&before, &after),
            Writer::Server => (&after, &before),
        };
        // No type is any type.
        let is_allowed = allowed.is_empty() || (!must_be.is_empty() && must_be.is_subset(allowed));
        if !is_allowed {
            self.breaks
                .push(format!("{location}: the type was {before:?} and is {after:?}"));
        }
        for key in ["format", "pattern", "not"] {
            if old[key] != new[key] && !(writer == Writer::Client && new[key].is_null()) {
                self.breaks
                    .push(format!("{location}: {key} was {} and is {}", old[key], new[key]));
            }
        }
    }

    /// A server may write new kinds, and a client may still send the old ones.
    fn values(&mut self, location: &str, old: &Value, new: &Value, writer: Writer) {
        let (Some(before), Some(after)) = (values(old), values(new)) else {
            if writer == Writer::Client && values(old).is_none() && values(new).is_some() {
                self.breaks.push(format!("{location} has an enumeration"));
            }
            return;
        };
        for value in before.iter().filter(|value| !after.contains(value)) {
            self.breaks.push(format!("{location}: {value} is missing"));
        }
    }

    /// The limits of what a client sends do not become narrower.
    fn limits(&mut self, location: &str, old: &Value, new: &Value) {
        let upper = ["maxItems", "maxLength", "maxProperties", "maximum", "exclusiveMaximum"];
        let lower = ["minItems", "minLength", "minProperties", "minimum", "exclusiveMinimum"];
        for (key, is_upper) in upper
            .map(|key| (key, true))
            .into_iter()
            .chain(lower.map(|key| (key, false)))
        {
            let Some(after) = new[key].as_f64() else {
                continue;
            };
            let is_narrower = match old[key].as_f64() {
                None => true,
                Some(before) => {
                    if is_upper {
                        after < before
                    } else {
                        after > before
                    }
                }
            };
            if is_narrower {
                self.breaks
                    .push(format!("{location}: {key} was {} and is {}", old[key], new[key]));
            }
        }
    }

    fn fields(&mut self, location: &str, old: &'a Value, new: &'a Value, writer: Writer) {
        for (name, field) in entries(&old["properties"]) {
            let location = format!("{location}.{name}");
            match new["properties"].get(name) {
                Some(other) => self.schema(&location, field, other, writer),
                None => self.breaks.push(format!("{location} is missing")),
            }
        }
        let (before, after) = (required(old), required(new));
        match writer {
            Writer::Client => {
                for name in after.difference(&before) {
                    self.breaks.push(format!("{location}.{name} is required"));
                }
            }
            Writer::Server => {
                for name in before.difference(&after) {
                    self.breaks.push(format!("{location}.{name} may be absent"));
                }
            }
        }
    }
}

/// A copy without `allOf`: the schema itself has what its parts require.
fn joined(document: &Value, value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut own: Map<String, Value> = map
                .iter()
                .filter(|(key, _)| *key != "allOf")
                .map(|(key, value)| (key.clone(), joined(document, value)))
                .collect();
            for part in items(&value["allOf"]) {
                join(&mut own, joined(document, target(document, part)));
            }
            Value::Object(own)
        }
        Value::Array(values) => values.iter().map(|value| joined(document, value)).collect(),
        value => value.clone(),
    }
}

fn join(into: &mut Map<String, Value>, part: Value) {
    let Value::Object(part) = part else {
        return;
    };
    for (key, value) in part {
        match (into.get_mut(&key), value) {
            (None, value) => {
                into.insert(key, value);
            }
            (Some(Value::Object(own)), value @ Value::Object(_)) => join(own, value),
            (Some(Value::Array(own)), Value::Array(values)) => own.extend(values),
            // The schema's own keyword is at least as narrow as that of its part.
            (Some(_), _) => {}
        }
    }
}

/// Resolves a `$ref`.
fn target<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let path = value["$ref"].as_str().map(|path| path.trim_start_matches('#'));
    path.and_then(|path| document.pointer(path)).unwrap_or(value)
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The schemas one of which a value has, without references and choices.
fn forms<'a>(document: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let schema = target(document, schema);
    match schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array()) {
        Some(choices) => choices.iter().flat_map(|choice| forms(document, choice)).collect(),
        None => vec![schema],
    }
}

fn types(schema: &Value) -> BTreeSet<&str> {
    let one = schema["type"].as_str();
    let mut types: BTreeSet<&str> = one
        .into_iter()
        .chain(items(&schema["type"]).filter_map(Value::as_str))
        .collect();
    if types.contains("number") {
        types.insert("integer");
    }
    types
}

/// The values that a schema lists.
fn values(schema: &Value) -> Option<Vec<&Value>> {
    match &schema["const"] {
        Value::Null => schema["enum"].as_array().map(|values| values.iter().collect()),
        value => Some(vec![value]),
    }
}

fn required(schema: &Value) -> BTreeSet<&str> {
    items(&schema["required"]).filter_map(Value::as_str).collect()
}

/// The start of a schema, to find it by.
fn shown(schema: &Value) -> String {
    schema.to_string().chars().take(100).collect()
}

mod tests;
