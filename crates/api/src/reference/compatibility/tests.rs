//! A release keeps what the one before it published, and the comparison finds each kind of break.

use super::*;

/// The interface of the last release.
const RELEASED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/reference/released.json");

#[test]
fn what_the_last_release_published_is_still_there() {
    let document = crate::reference::document();
    if std::env::var("RECADO_WRITE_RELEASED").is_ok() {
        std::fs::write(RELEASED, interface(&document).to_string() + "\n").unwrap();
    }
    let released: Value = serde_json::from_str(&std::fs::read_to_string(RELEASED).unwrap()).unwrap();
    assert!(entries(&released["paths"]).count() > 100);
    let breaks = breaks(&released, &document);
    assert!(breaks.is_empty(), "clients of the last release break: {breaks:#?}");
}

fn small_document() -> Value {
    json!({
        "paths": { "/api/rows/{id}": { "put": {
            "operationId": "rows_update",
            "x-scope": "rows:write",
            "parameters": [
                { "in": "query", "name": "page", "schema": { "type": "integer", "maximum": 100 } },
                { "$ref": "#/components/parameters/Id" },
            ],
            "requestBody": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Input" } } } },
            "responses": {
                "200": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Row" } } } },
                "404": { "content": { "application/json": { "schema": {} } } },
            },
        } } },
        "webhooks": { "row.changed": { "post": {
            "requestBody": { "content": { "application/json": { "schema": { "allOf": [
                { "$ref": "#/components/schemas/Event" },
                { "properties": { "data": { "$ref": "#/components/schemas/Data" } }, "required": ["data"] },
            ] } } } },
        } } },
        "components": {
            "parameters": { "Id": { "in": "path", "name": "id", "required": true, "schema": { "type": "string" } } },
            "schemas": {
                "Input": {
                    "type": "object",
                    "properties": {
                        "name": { "type": "string", "maxLength": 100 },
                        "kind": { "enum": ["a", "b"] },
                    },
                    "required": ["name"],
                },
                "Event": {
                    "type": "object",
                    "properties": { "type": { "type": "string" }, "data": { "type": "object" } },
                    "required": ["type", "data"],
                },
                "Data": { "type": "object", "properties": { "id": { "type": "string" } }, "required": ["id"] },
                "Row": {
                    "type": "object",
                    "properties": {
                        "id": { "type": "string", "format": "uuid" },
                        "note": { "type": ["string", "null"] },
                        "state": { "oneOf": [{ "const": "new", "type": "string" }, { "const": "old", "type": "string" }] },
                        "parent": { "anyOf": [{ "$ref": "#/components/schemas/Row" }, { "type": "null" }] },
                    },
                    "required": ["id", "note", "state"],
                },
            },
        },
    })
}

/// The breaks of the small document after one value was set.
fn after(pointer: &str, value: Value) -> Vec<String> {
    let (old, mut new) = (small_document(), small_document());
    *new.pointer_mut(pointer).unwrap() = value;
    breaks(&old, &new)
}

const OPERATION: &str = "/paths/~1api~1rows~1{id}/put";
const INPUT: &str = "/components/schemas/Input";
const ROW: &str = "/components/schemas/Row";

#[test]
fn additions_are_no_breaks() {
    assert_eq!(breaks(&small_document(), &small_document()), Vec::<String>::new());
    for (pointer, value) in [
        (format!("{INPUT}/properties/name/maxLength"), json!(200)),
        (format!("{INPUT}/properties/kind/enum"), json!(["a", "b", "c"])),
        (format!("{INPUT}/properties/name/type"), json!(["string", "null"])),
        (format!("{INPUT}/required"), json!([])),
        (format!("{ROW}/properties/note/type"), json!("string")),
        (format!("{ROW}/required"), json!(["id", "note", "state", "parent"])),
        (
            format!("{ROW}/properties/state/oneOf"),
            json!([{ "const": "new", "type": "string" }, { "const": "old", "type": "string" }, { "const": "gone", "type": "string" }]),
        ),
        (format!("{OPERATION}/parameters/0/schema"), json!({ "type": "number" })),
        (format!("{OPERATION}/responses/404"), json!({})),
    ] {
        assert_eq!(after(&pointer, value), Vec::<String>::new(), "{pointer}");
    }
}

#[test]
fn changed_operations_and_parameters_are_breaks() {
    for (pointer, value, expected) in [
        ("/paths".to_owned(), json!({}), "PUT /api/rows/{id} is missing"),
        ("/webhooks".to_owned(), json!({}), "POST row.changed is missing"),
        (format!("{OPERATION}/operationId"), json!("rows_set"), "operationId was"),
        (format!("{OPERATION}/x-scope"), json!("rows:admin"), "x-scope was"),
        (
            format!("{OPERATION}/parameters"),
            json!([]),
            "parameter \"page\" is missing",
        ),
        (
            format!("{OPERATION}/parameters/0"),
            json!({ "in": "query", "name": "page", "required": true, "schema": { "type": "integer" } }),
            "parameter \"page\" is required",
        ),
        (
            format!("{OPERATION}/parameters/0/schema/maximum"),
            json!(50),
            "maximum was 100 and is 50",
        ),
        (
            format!("{OPERATION}/requestBody/content"),
            json!({}),
            "body: application/json is missing",
        ),
        (format!("{OPERATION}/responses"), json!({ "201": {} }), "200 is missing"),
    ] {
        let found = after(&pointer, value);
        assert!(
            found.iter().any(|text| text.contains(expected)),
            "{pointer}: {found:#?}"
        );
    }
}

#[test]
fn removed_fields_and_values_are_breaks() {
    for (pointer, value, expected) in [
        (format!("{INPUT}/properties"), json!({}), "body.name is missing"),
        (
            format!("{INPUT}/properties/name/type"),
            json!("integer"),
            "the type was",
        ),
        (
            format!("{INPUT}/properties/kind/enum"),
            json!(["a"]),
            "body.kind: \"b\" is missing",
        ),
        (
            format!("{INPUT}/required"),
            json!(["name", "kind"]),
            "body.kind is required",
        ),
        (
            format!("{ROW}/properties/note/type"),
            json!("integer"),
            "200.note: the type was",
        ),
        (
            format!("{ROW}/properties/id/type"),
            json!(["string", "null"]),
            "200.id: the type was",
        ),
        (
            format!("{ROW}/properties/id/format"),
            json!("uri"),
            "200.id: format was",
        ),
        (
            format!("{ROW}/properties/state/oneOf"),
            json!([{ "const": "new", "type": "string" }]),
            "200.state: a form is missing: {\"const\":\"old\"",
        ),
        (
            "/components/schemas/Event/properties".to_owned(),
            json!({}),
            "body.type is missing",
        ),
        (
            "/components/schemas/Data/properties".to_owned(),
            json!({}),
            "body.data.id is missing",
        ),
        (
            format!("{ROW}/properties/state"),
            json!({ "type": ["string", "null"] }),
            "200.state may be of the type null",
        ),
        (format!("{ROW}/required"), json!(["id"]), "200.note may be absent"),
    ] {
        let found = after(&pointer, value);
        assert!(
            found.iter().any(|text| text.contains(expected)),
            "{pointer}: {found:#?}"
        );
    }
}

#[test]
fn names_of_fields_are_no_explanations() {
    let mut document = small_document();
    document["components"]["schemas"]["Row"]["properties"]["description"] = json!({ "description": "A text." });
    document["paths"]["/api/rows/{id}"]["put"]["description"] = json!("Updates a row.");
    let interface = interface(&document);
    assert_eq!(
        interface["components"]["schemas"]["Row"]["properties"]["description"],
        json!({})
    );
    assert_eq!(interface["paths"]["/api/rows/{id}"]["put"].get("description"), None);
}

/// A keyword that the comparison does not know could change unnoticed.
#[test]
fn documents_have_only_known_keywords() {
    const KNOWN: [&str; 24] = [
        "$ref",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "contentMediaType",
        "default",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "not",
        "oneOf",
        "pattern",
        "properties",
        "required",
        "type",
        "writeOnly",
    ];
    fn check(schema: &Value) {
        for (key, value) in entries(schema) {
            assert!(KNOWN.contains(&key.as_str()), "{key}: compare it");
            match key.as_str() {
                "properties" => entries(value).for_each(|(_, field)| check(field)),
                "items" | "additionalProperties" => check(value),
                "allOf" | "anyOf" | "oneOf" => items(value).for_each(check),
                _ => {}
            }
        }
    }
    let interface = interface(&crate::reference::document());
    let schemas = &interface["components"]["schemas"];
    assert!(entries(schemas).count() > 100);
    entries(schemas).for_each(|(_, schema)| check(schema));
}
