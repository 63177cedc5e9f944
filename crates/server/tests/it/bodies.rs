//! Request bodies of every route that accepts one: arrays where an object is expected, null in a PUT, and no body.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};

use recado_api::reference::{alone, document};
use recado_api::routes::{Access, RouteSpec, TABLE};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::client::{Reply, Request, connect};
use crate::harness::users::User;
use crate::harness::{Server, media, text};
use crate::matrix::{RouteInput, create_resources, dump, label, resource_path, row};

/// Every PUT route: its path, the fields that null clears, and the fields that reject null.
const NULL_RULES: &[(&str, &[&str], &[&str])] = &[
    (
        "/api/admin/accounts/{id}",
        &["logo_url"],
        &["name", "slug", "plan", "status", "owner_email"],
    ),
    (
        "/api/api-keys/{id}",
        &["expires_at"],
        &["name", "scopes", "allowed_cidrs"],
    ),
    ("/api/automations/{id}", &[], &["name", "status"]),
    ("/api/billing/subscription", &[], &["plan", "cycle"]),
    (
        "/api/brand-context",
        &[
            "company_name",
            "description",
            "products_services",
            "tone_of_voice",
            "target_audience",
            "brand_values",
            "website_url",
        ],
        &[],
    ),
    (
        "/api/campaigns/{id}",
        &[
            "template_id",
            "segment_id",
            "segment_config",
            "rfm_segments",
            "scheduled_at",
            "variables",
            "header_location",
            "offer_expires_at",
            "budget",
            "folder_id",
        ],
        &["name", "reach", "newcomers_only"],
    ),
    (
        "/api/contacts/{id}",
        &["phone", "email", "wa_user_id", "time_zone"],
        &["name", "opted_out", "attributes", "tag_ids"],
    ),
    ("/api/contacts/{id}/tags", &[], &["tag_ids"]),
    ("/api/conversations/{id}", &[], &["status"]),
    (
        "/api/retention",
        &[
            "campaign_sends_days",
            "messages_days",
            "media_days",
            "metric_events_days",
            "orders_days",
            "notifications_days",
            "audit_days",
        ],
        &[],
    ),
    ("/api/segments/{id}", &["description", "filters"], &["name"]),
    (
        "/api/settings",
        &[
            "timezone",
            "quiet_hours",
            "max_marketing_per_contact",
            "hold_at_most_hours",
            "opt_out_words",
            "opt_out_reply",
            "late_policy",
            "cost_alerts",
        ],
        &[],
    ),
    ("/api/team/members/{id}", &[], &["role"]),
    (
        "/api/templates/{id}",
        &[
            "header_type",
            "header_text",
            "header_media_url",
            "body_text",
            "footer_text",
            "buttons",
            "example_values",
            "carousel_cards",
            "limited_time_offer",
            "message_send_ttl_seconds",
            "folder_id",
        ],
        &["name", "category", "language", "template_type", "parameter_format"],
    ),
    (
        "/api/webhooks/{id}",
        &["url"],
        &["name", "events", "direction", "is_active"],
    ),
    (
        "/api/whatsapp/profiles/{id}",
        &["messages_per_second"],
        &["name", "phone_number_id", "waba_id", "access_token", "pin"],
    ),
];

/// Nullable fields that the test's row must not lose, because the row requires one of a group of fields.
const REQUIRED_BY_ROW: &[(&str, &str)] = &[
    ("/api/contacts/{id}", "phone"),
    ("/api/templates/{id}", "body_text"),
    ("/api/webhooks/{id}", "url"),
];

/// Every object inside a request body, according to the OpenAPI document. An array must be rejected at each of them.
const OBJECT_PATHS: &[&str] = &[
    "POST /api/ad-spend entries[0]",
    "POST /api/automations/{id}/executions executions[0]",
    "POST /api/billing/subscribe credit_card",
    "POST /api/billing/subscribe credit_card_holder_info",
    "POST /api/campaigns budget",
    "POST /api/campaigns header_location",
    "POST /api/campaigns segment_config",
    "POST /api/campaigns segment_config.filters",
    "POST /api/campaigns segment_config.filters.attributes",
    "POST /api/campaigns variables",
    "POST /api/campaigns/{id}/schedule late_policy",
    "POST /api/carts carts[0]",
    "POST /api/contacts attributes",
    "POST /api/conversations/{id}/messages interactive",
    "POST /api/conversations/{id}/messages interactive.buttons[0]",
    "POST /api/conversations/{id}/messages interactive.header",
    "POST /api/conversations/{id}/messages interactive.header.media",
    "POST /api/conversations/{id}/messages interactive.sections[0]",
    "POST /api/conversations/{id}/messages interactive.sections[0].rows[0]",
    "POST /api/conversations/{id}/messages media",
    "POST /api/conversations/{id}/messages template",
    "POST /api/conversations/{id}/messages template.header",
    "POST /api/conversations/{id}/messages template.variables",
    "POST /api/events events[0]",
    "POST /api/events events[0].properties",
    "POST /api/messages interactive",
    "POST /api/messages interactive.buttons[0]",
    "POST /api/messages interactive.header",
    "POST /api/messages interactive.header.media",
    "POST /api/messages interactive.sections[0]",
    "POST /api/messages interactive.sections[0].rows[0]",
    "POST /api/messages media",
    "POST /api/messages template",
    "POST /api/messages template.header",
    "POST /api/messages template.variables",
    "POST /api/messages to",
    "POST /api/orders orders[0]",
    "POST /api/orders orders[0].items[0]",
    "POST /api/segments filters",
    "POST /api/segments filters.attributes",
    "POST /api/segments/preview filters",
    "POST /api/segments/preview filters.attributes",
    "POST /api/templates limited_time_offer",
    "PUT /api/campaigns/{id} budget",
    "PUT /api/campaigns/{id} header_location",
    "PUT /api/campaigns/{id} segment_config",
    "PUT /api/campaigns/{id} segment_config.filters",
    "PUT /api/campaigns/{id} segment_config.filters.attributes",
    "PUT /api/campaigns/{id} variables",
    "PUT /api/contacts/{id} attributes",
    "PUT /api/segments/{id} filters",
    "PUT /api/segments/{id} filters.attributes",
    "PUT /api/settings cost_alerts[0]",
    "PUT /api/settings late_policy",
    "PUT /api/settings max_marketing_per_contact",
    "PUT /api/settings quiet_hours",
    "PUT /api/templates/{id} limited_time_offer",
];

/// One step of a path into a JSON body.
#[derive(Clone, Debug)]
enum PathStep {
    Field(String),
    Item,
}

type BodyPath = Vec<PathStep>;

/// The path as error messages write it: `orders[0].items[0]`.
fn path_name(path: &[PathStep]) -> String {
    let mut name = String::new();
    for step in path {
        match step {
            PathStep::Field(field) if name.is_empty() => name.push_str(field),
            PathStep::Field(field) => name.push_str(&format!(".{field}")),
            PathStep::Item => name.push_str("[0]"),
        }
    }
    name
}

/// A body that contains only `value`, at `path`.
fn body_with_value_at(path: &[PathStep], value: &Value) -> Value {
    path.iter().rev().fold(value.clone(), |inner, step| match step {
        PathStep::Field(field) => json!({ field.as_str(): inner }),
        PathStep::Item => json!([inner]),
    })
}

fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        single => single.as_str().into_iter().collect(),
    }
}

/// Collects the path of every object inside a body.
fn collect_object_paths(document: &Value, schema: &Value, path: &[PathStep], found: &mut Vec<BodyPath>) {
    assert!(path.len() < 10, "{path:?}");
    if let Some(reference) = schema["$ref"].as_str() {
        // Nodes contain nodes. The domain parses them, and tests the type of each.
        if reference.contains("/FilterNode") {
            return;
        }
        let referenced = document.pointer(&reference[1..]).unwrap();
        return collect_object_paths(document, referenced, path, found);
    }
    for inner in ["anyOf", "oneOf", "allOf"] {
        for part in schema[inner].as_array().into_iter().flatten() {
            collect_object_paths(document, part, path, found);
        }
    }
    if types(schema).contains(&"object") && !path.is_empty() {
        assert!(!types(schema).contains(&"array"), "{path:?}");
        found.push(path.to_vec());
    }
    let append = |step| [path, &[step]].concat();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        collect_object_paths(document, field, &append(PathStep::Field(name.clone())), found);
    }
    for (inner, next) in [
        ("items", PathStep::Item),
        ("additionalProperties", PathStep::Field("any".to_owned())),
    ] {
        if schema[inner].is_object() {
            collect_object_paths(document, &schema[inner], &append(next), found);
        }
    }
}

fn body_schema<'a>(document: &'a Value, spec: &RouteSpec) -> &'a Value {
    let operation = &document["paths"][spec.path][spec.method.as_str().to_lowercase()];
    &operation["requestBody"]["content"]["application/json"]["schema"]
}

/// The routes that accept JSON, each with a user who may call it.
fn json_routes<'a>(server: &'a Server) -> impl Iterator<Item = (&'static RouteSpec, User<'a>)> {
    let specs = TABLE
        .iter()
        .filter(|spec| matches!(row(spec), RouteInput::Json(_) | RouteInput::Refused(_)));
    specs.map(|spec| (spec, new_caller(server, spec)))
}

/// A new user for each route, so that no rate limit has counted a request of theirs.
fn new_caller<'a>(server: &'a Server, spec: &RouteSpec) -> User<'a> {
    match spec.access {
        Access::Administrator => server.root(),
        _ => server.owner(),
    }
}

/// A request whose path names an id that does not exist.
fn request_for_unknown_id(caller: &User<'_>, spec: &RouteSpec) -> Request {
    let path = spec.path.replace("{id}", &Uuid::now_v7().to_string());
    caller.request(spec.method.as_str(), &path)
}

#[test]
fn array_is_rejected_wherever_a_body_expects_an_object() {
    let (server, document) = (Server::new(), document());
    let mut seen = BTreeSet::new();
    // A bad item of a batch of messages is refused alone, and the response is 200.
    for (spec, caller) in json_routes(&server).filter(|(spec, _)| spec.path != "/api/messages/batch") {
        let mut paths = Vec::new();
        collect_object_paths(&document, body_schema(&document, spec), &[], &mut paths);
        for path in paths {
            let name = path_name(&path);
            for wrong in [json!([]), json!([1]), json!([null, "x"])] {
                let body = body_with_value_at(&path, &wrong);
                let reply = request_for_unknown_id(&caller, spec).json(&body).send();
                assert_eq!(reply.invalid(), [name.as_str()], "{} {name} {wrong}", label(spec));
            }
            seen.insert(format!("{} {name}", label(spec)));
        }
    }
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), OBJECT_PATHS);
}

/// serde reads a sequence as a struct by position: an otherwise valid body must not be accepted that way.
#[test]
fn request_rejected_for_an_array_stores_nothing() {
    let server = Server::new();
    let ana = server.owner();
    server.db.wait_for_outbox();
    let before = dump(&ana);
    for (path, body, field) in [
        (
            "/api/campaigns",
            json!({ "name": "a", "segment_config": [] }),
            "segment_config",
        ),
        (
            "/api/campaigns",
            json!({ "name": "a", "segment_config": { "filters": [] } }),
            "segment_config.filters",
        ),
        ("/api/segments", json!({ "name": "x", "filters": [] }), "filters"),
        (
            "/api/ad-spend",
            json!({ "entries": [["2026-01-01", "google", 5]] }),
            "entries[0]",
        ),
    ] {
        let error = ana.post(path, body).refused(422, "VALIDATION_ERROR");
        let expected = json!({ field: ["invalid type: sequence, expected an object"] });
        assert_eq!(error["details"]["fields"], expected, "{path}");
    }
    assert_eq!(dump(&ana), before);
}

/// Collects the field names of a body.
fn collect_fields(document: &Value, schema: &Value, found: &mut BTreeSet<String>) {
    if let Some(path) = schema["$ref"].as_str() {
        return collect_fields(document, document.pointer(&path[1..]).unwrap(), found);
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        collect_fields(document, part, found);
    }
    found.extend(
        schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone()),
    );
}

/// Whether the OpenAPI document lets this field be null, and whether the field is optional.
fn nullable_and_optional(document: &Value, schema: &Value, field: &str) -> (bool, bool) {
    let schema = alone(document, schema);
    let validator = jsonschema::draft202012::options().build(&schema).unwrap();
    let has_error = |body: &Value, message: &str| {
        let mut errors = validator.iter_errors(body);
        errors.any(|error| error.instance_path().as_str() == format!("/{field}") || error.to_string().contains(message))
    };
    let missing = format!("\"{field}\" is a required property");
    (
        !has_error(&json!({ field: null }), &missing),
        !has_error(&json!({}), &missing),
    )
}

#[test]
fn null_in_put_clears_nullable_fields_and_is_else_rejected() {
    let (server, document) = (Server::new(), document());
    let (ana, root) = (server.owner(), server.root());
    let mut ids = create_resources(&ana);
    ids.push(("/api/admin/accounts/", ana.account.clone()));
    let before = dump(&ana);
    let mut rules: Vec<_> = NULL_RULES.iter().collect();
    for spec in TABLE.iter().filter(|spec| spec.method.as_str() == "PUT") {
        let at = rules.iter().position(|(path, _, _)| *path == spec.path);
        let (path, nullable, required) = rules.swap_remove(at.unwrap_or_else(|| panic!("{}", label(spec))));
        let schema = body_schema(&document, spec);
        let mut documented = BTreeSet::new();
        collect_fields(&document, schema, &mut documented);
        let expected: BTreeSet<String> = nullable.iter().chain(*required).map(ToString::to_string).collect();
        assert_eq!(documented, expected, "{path}");
        let caller = if spec.access == Access::Administrator {
            &root
        } else {
            &ana
        };
        let put_null = |field: &str| caller.put(&resource_path(spec, &ids), json!({ field: null }));
        for field in *required {
            assert_eq!(put_null(field).invalid(), [*field], "{path}");
            let (nullable, _) = nullable_and_optional(&document, schema, field);
            assert!(!nullable, "{path} {field} is documented as nullable");
        }
        for field in *nullable {
            let documented = nullable_and_optional(&document, schema, field);
            assert_eq!(documented, (true, true), "{path} {field}");
        }
    }
    assert!(rules.is_empty(), "{rules:?}");
    assert_eq!(dump(&ana), before);
    for (path, nullable, _) in NULL_RULES {
        let spec = TABLE
            .iter()
            .find(|spec| spec.path == *path && spec.method.as_str() == "PUT");
        let spec = spec.unwrap();
        let caller = if spec.access == Access::Administrator {
            &root
        } else {
            &ana
        };
        for field in *nullable {
            let reply = caller.put(&resource_path(spec, &ids), json!({ *field: null }));
            match REQUIRED_BY_ROW.contains(&(path, field)) {
                true => assert!(
                    !reply.text.contains("must not be null"),
                    "{path} {field}: {}",
                    reply.text
                ),
                false => assert_eq!(reply.status, 200, "{path} {field}: {}", reply.text),
            }
        }
    }
}

/// In a PUT, absent fields are kept, and null clears a field or is rejected. In a POST, null means absent.
#[test]
fn rejected_null_names_its_field_and_absent_fields_stay() {
    let server = Server::new();
    let ana = server.owner();
    let campaign = format!("/api/campaigns/{}", ana.campaign(json!({ "name": "Oferta" })));
    let error = ana
        .put(&campaign, json!({ "name": null }))
        .refused(422, "VALIDATION_ERROR");
    assert_eq!(error["details"]["fields"], json!({ "name": ["must not be null"] }));
    let changed = ana
        .put(
            &campaign,
            json!({ "segment_config": { "filters": { "has_email": true } } }),
        )
        .ok();
    assert_eq!(changed["name"], "Oferta");
    let changed = ana.put(&campaign, json!({ "folder_id": null })).ok();
    assert_eq!(changed["segment_config"], json!({ "filters": { "has_email": true } }));
    // Null inside a nested object, and null in a POST, mean absent.
    let tags = json!({ "segment_config": { "tag_ids": null } });
    ana.put(&campaign, tags).ok();
    let contact = json!({ "name": "Ana", "phone": "+5511961234567", "attributes": null, "tag_ids": null,
        "opted_out": null, "email": null });
    ana.post("/api/contacts", contact).created();
    let webhook = json!({ "name": "CI", "url": "https://e.example", "events": ["test.ping"], "direction": null,
        "is_active": null });
    let made = ana.post("/api/webhooks", webhook).created();
    assert_eq!(
        (&made["direction"], &made["is_active"]),
        (&json!("outbound"), &json!(true))
    );
    let path = format!("/api/webhooks/{}", text(&made["id"]));
    for (field, value) in [("direction", json!("outbound")), ("is_active", json!(false))] {
        assert_eq!(ana.put(&path, json!({ field: null })).invalid(), [field]);
        assert_eq!(ana.put(&path, json!({ field: value })).ok()[field], value);
    }
}

/// Writes a raw request with these last header lines and this body, and returns the response.
fn send_raw(request: &Request, last_headers: &str, body: &str) -> Reply {
    let mut stream = connect(request.port());
    let whole = request.head(&format!("{last_headers}Connection: close\r\n\r\n{body}"));
    stream.write_all(whole.as_bytes()).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    let response = String::from_utf8(response).unwrap();
    let (head, text) = response.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply {
        status,
        headers: Default::default(),
        text: text.to_owned(),
        body: vec![],
    }
}

#[test]
fn missing_body_is_handled_as_an_empty_body() {
    let (server, document) = (Server::new(), document());
    let mut seen = 0;
    for spec in TABLE {
        let media_type = match row(spec) {
            RouteInput::Json(_) | RouteInput::Refused(_) => "application/json",
            RouteInput::Csv | RouteInput::RateCard => "text/csv",
            RouteInput::Form => media::FORM,
            RouteInput::Nothing | RouteInput::Query(_) | RouteInput::RequiredQuery(_) | RouteInput::Public(_) => {
                continue;
            }
        };
        let caller = new_caller(&server, spec);
        let request = request_for_unknown_id(&caller, spec);
        let operation = &document["paths"][spec.path][spec.method.as_str().to_lowercase()];
        if operation["requestBody"]["required"] == false {
            assert_ne!(send_raw(&request, "", "").status, 415, "{}", label(spec));
            continue;
        }
        let empty = request.clone().body(media_type, "").send();
        for last_headers in ["", "Content-Length: 0\r\n"] {
            let none = send_raw(&request, last_headers, "");
            if media_type != media::FORM {
                assert_eq!(none.text, empty.text, "{}", label(spec));
            }
            assert_eq!(none.invalid(), ["body"], "{}", label(spec));
        }
        for (last_headers, body) in [
            ("Content-Length: 2\r\n", "{}"),
            ("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        ] {
            send_raw(&request, last_headers, body).refused(415, "UNSUPPORTED_MEDIA_TYPE");
        }
        assert_eq!(empty.invalid(), ["body"], "{}", label(spec));
        seen += 1;
    }
    assert!(seen > 30, "{seen}");
    // A declared media type is checked even if the body is empty.
    let ana = server.owner();
    let typed = ana.request("POST", "/api/tags").body("text/plain", "");
    typed.send().refused(415, "UNSUPPORTED_MEDIA_TYPE");
}
