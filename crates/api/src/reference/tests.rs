//! The OpenAPI document matches the route table, and its examples match its schemas.

use std::collections::BTreeSet;

use jsonschema::Validator;
use recado_domain::campaigns::{Campaign, CampaignStatus, SendCounts, Trigger, finish};
use recado_domain::shared::{AccountId, CampaignId, Event};
use serde_json::{Value, json};
use time::macros::datetime;
use uuid::Uuid;

use super::*;
use crate::routes::TABLE;
use crate::web::examples::type_of;

/// Every operation with its method and path.
fn operations(document: &Value) -> impl Iterator<Item = (String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap();
        methods
            .iter()
            .map(move |(method, operation)| (format!("{} {path}", method.to_uppercase()), operation))
    })
}

/// Resolves a `$ref`.
fn target<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(path) => document
            .pointer(path.trim_start_matches('#'))
            .unwrap_or_else(|| panic!("{path} does not exist")),
        None => value,
    }
}

/// Compiles a validator for a schema of the document.
fn validator(document: &Value, schema: &Value) -> Validator {
    let schema = alone(document, schema);
    let options = jsonschema::draft202012::options().should_validate_formats(true);
    options
        .build(&schema)
        .unwrap_or_else(|error| panic!("{error}: {schema:#}"))
}

#[test]
fn document_has_exactly_the_routes() {
    let document = document();
    let documented: BTreeSet<String> = operations(&document).map(|(name, _)| name).collect();
    let routes = TABLE.iter().map(|spec| format!("{} {}", spec.method, spec.path));
    let missing: Vec<String> = routes.clone().filter(|route| !documented.contains(route)).collect();
    assert!(
        missing.is_empty(),
        "{} routes are not documented: {missing:#?}",
        missing.len()
    );
    assert_eq!(documented, routes.collect());
}

#[test]
fn operation_has_id_summary_description_and_responses() {
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
            "{name}: duplicate operationId"
        );
        assert!(!operation["summary"].as_str().unwrap().ends_with('.'), "{name}");
        assert!(operation["security"].is_array(), "{name}");
        let tag = &operation["tags"][0];
        let tags = document["tags"].as_array().unwrap();
        assert!(tags.iter().any(|listed| listed["name"] == *tag), "{name}: {tag}");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.contains_key("500"), "{name}");
        assert!(
            responses.keys().any(|status| status.starts_with(['2', '3'])),
            "{name}: no success response"
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
fn parameters_match_the_path_and_have_descriptions() {
    let document = document();
    for (name, operation) in operations(&document) {
        let parameters = operation["parameters"].as_array().unwrap();
        let parameters: Vec<&Value> = parameters
            .iter()
            .map(|parameter| target(&document, parameter))
            .collect();
        let locations = parameters
            .iter()
            .map(|parameter| (&parameter["in"], &parameter["name"]));
        let locations: Vec<_> = locations.map(|(location, name)| format!("{location} {name}")).collect();
        let distinct: BTreeSet<&String> = locations.iter().collect();
        assert_eq!(distinct.len(), locations.len(), "{name}: {locations:?}");
        let in_path = name.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let documented = parameters
            .iter()
            .filter(|parameter| parameter["in"] == "path")
            .map(|parameter| parameter["name"].as_str().unwrap());
        assert_eq!(documented.collect::<Vec<_>>(), in_path.collect::<Vec<_>>(), "{name}");
        for parameter in parameters {
            assert!(
                parameter["description"].as_str().is_some_and(|text| text.len() > 5),
                "{name}: {parameter}"
            );
            let validator = validator(&document, &parameter["schema"]);
            assert!(validator.is_valid(&parameter["example"]), "{name}: {parameter}");
        }
    }
}

/// Collects every field without a description, and every string field without an example.
fn undocumented_fields(path: &str, schema: &Value, errors: &mut Vec<String>) {
    let properties = schema["properties"].as_object();
    for (name, field) in properties.into_iter().flatten() {
        let path = format!("{path}.{name}");
        let is_described = |schema: &Value| schema["description"].as_str().is_some_and(|text| text.len() >= 4);
        // An object with one field, such as a condition of a filter, may be described as a whole.
        let is_only = properties.is_some_and(|fields| fields.len() == 1) && is_described(schema);
        if !is_described(field) && !is_only && field.get("$ref").is_none() {
            errors.push(format!("{path} has no description"));
        }
        let shown = ["examples", "enum", "const", "format", "default"]
            .iter()
            .any(|key| field.get(key).is_some());
        if type_of(field) == Some("string") && !shown {
            errors.push(format!("{path} has no example"));
        }
        undocumented_fields(&path, field, errors);
    }
    for inner in ["items", "additionalProperties"] {
        if schema.get(inner).is_some_and(Value::is_object) {
            undocumented_fields(&format!("{path}[]"), &schema[inner], errors);
        }
    }
    for inner in ["anyOf", "oneOf", "allOf"] {
        for part in schema[inner].as_array().into_iter().flatten() {
            undocumented_fields(path, part, errors);
        }
    }
}

#[test]
fn schema_fields_have_descriptions_and_examples() {
    let document = document();
    let mut found = vec![];
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        assert!(
            !name.ends_with(|c: char| c.is_ascii_digit()),
            "two types have the name {name}"
        );
        undocumented_fields(name, schema, &mut found);
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The body and response contents of an operation, labelled with status and media type.
fn media<'a>(document: &'a Value, operation: &'a Value) -> Vec<(String, &'a Value)> {
    let mut media = vec![];
    let body = operation["requestBody"]["content"].as_object();
    media.extend(
        body.into_iter()
            .flatten()
            .map(|(kind, media)| (format!("body {kind}"), media)),
    );
    for (status, response) in operation["responses"].as_object().unwrap() {
        let content = target(document, response)["content"].as_object();
        media.extend(
            content
                .into_iter()
                .flatten()
                .map(|(kind, media)| (format!("{status} {kind}"), media)),
        );
    }
    media
}

#[test]
fn examples_are_valid_for_their_schemas() {
    let document = document();
    for (name, operation) in operations(&document) {
        for (kind, media) in media(&document, operation) {
            let shown = media["examples"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(_, example)| &example["value"]);
            let shown: Vec<&Value> = shown.chain(media.get("example")).collect();
            assert!(!shown.is_empty(), "{name} {kind}: no example");
            let validator = validator(&document, &media["schema"]);
            for example in shown {
                let errors = validator.iter_errors(example);
                let errors: Vec<String> = errors
                    .map(|error| format!("{}: {error}", error.instance_path()))
                    .collect();
                assert!(errors.is_empty(), "{name} {kind}: {errors:#?}\n{example:#}");
            }
        }
    }
}

#[test]
fn webhooks_have_a_schema_example_and_signature_headers() {
    let document = document();
    let webhooks = document["webhooks"].as_object().unwrap();
    let kinds = event_types().iter().map(|event_type| event_type.kind);
    assert_eq!(
        webhooks.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        kinds.collect()
    );
    for (kind, webhook) in webhooks {
        let delivery = &webhook["post"];
        let headers = delivery["parameters"].as_array().unwrap().iter();
        let headers: Vec<&Value> = headers.map(|header| &target(&document, header)["name"]).collect();
        assert_eq!(headers, ["webhook-id", "webhook-timestamp", "webhook-signature"]);
        let media = &delivery["requestBody"]["content"]["application/json"];
        let validator = validator(&document, &media["schema"]);
        let errors = validator.iter_errors(&media["example"]);
        let errors: Vec<String> = errors.map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{kind}: {errors:#?}");
        for (field, value) in [("type", json!("other")), ("data", json!({})), ("id", json!(7))] {
            let mut event = media["example"].clone();
            event[field] = value;
            assert!(!validator.is_valid(&event), "{kind}: {field}");
        }
    }
    for name in ["WebhookId", "WebhookTimestamp", "WebhookSignature"] {
        let header = &document["components"]["parameters"][name];
        let validator = validator(&document, &header["schema"]);
        assert!(validator.is_valid(&header["example"]), "{header}");
    }
}

/// Whether a response of this schema has `data.id`.
fn has_data_id(document: &Value, schema: &Value) -> bool {
    let data = target(document, &schema["properties"]["data"]);
    data["properties"]["id"].is_object()
}

#[test]
fn links_lead_from_a_new_row_to_its_operations() {
    let document = document();
    let operation_ids: BTreeSet<&str> = operations(&document)
        .map(|(_, operation)| operation["operationId"].as_str().unwrap())
        .collect();
    let mut linked = 0;
    for (name, operation) in operations(&document) {
        for (status, response) in operation["responses"].as_object().unwrap() {
            let Some(links) = response["links"].as_object() else {
                continue;
            };
            let schema = &response["content"]["application/json"]["schema"];
            assert!(has_data_id(&document, schema), "{name} {status}: no data.id");
            for link in links.values() {
                let operation_id = link["operationId"].as_str().unwrap();
                assert!(operation_ids.contains(operation_id), "{name}: {operation_id}");
                assert_eq!(link["parameters"], json!({ "id": "$response.body#/data/id" }));
            }
            linked += 1;
        }
    }
    assert!(linked >= 12, "{linked}");
    let links = |path: &str| {
        let links = document["paths"][path]["post"]["responses"]["201"]["links"].as_object();
        let links = links.into_iter().flatten();
        links
            .map(|(name, link)| format!("{name} {}", link["operationId"].as_str().unwrap()))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let campaign = "delete campaigns_delete, get campaigns_get, update campaigns_update";
    assert_eq!(links("/api/campaigns"), campaign);
    assert_eq!(links("/api/tags"), "delete tags_delete");
    assert_eq!(links("/api/links"), "", "a link has no operation by id");
}

#[test]
fn references_resolve_in_the_document() {
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
            "{path} does not exist"
        );
    }
}

#[test]
fn error_codes_match_the_published_list() {
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
        "PRECONDITION_FAILED",
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
fn security_and_statuses_match_the_route_table() {
    let document = document();
    let access_of = |path: &str, method: &str| {
        let operation = &document["paths"][path][method];
        let schemes = operation["security"].as_array().unwrap().iter();
        let schemes: Vec<&str> = schemes
            .map(|scheme| scheme.as_object().unwrap().keys().next().unwrap().as_str())
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
        access_of("/api/campaigns", "get"),
        (account.clone(), "200 401 403 422 429 500 503".to_owned())
    );
    let created = "201 401 403 408 409 413 415 422 429 500 503".to_owned();
    assert_eq!(access_of("/api/campaigns", "post"), (account.clone(), created));
    let deleted = "204 400 401 403 404 412 422 429 500 503".to_owned();
    assert_eq!(access_of("/api/campaigns/{id}", "delete"), (account, deleted));
    let limited = &document["paths"]["/api/campaigns"]["post"];
    assert_eq!(limited["x-rate-limit"]["requests"], 30);
    let headers = limited["responses"]["201"]["headers"].as_object().unwrap();
    assert!(headers.contains_key("X-RateLimit-Remaining") && headers.contains_key("Idempotent-Replayed"));
    assert_eq!(limited["responses"]["429"]["headers"].as_object().unwrap().len(), 5);
}

#[test]
fn body_examples_deserialize() {
    let document = document();
    let mut read = 0;
    for spec in TABLE {
        let Some(body) = (spec.endpoint.operation)().body else {
            continue;
        };
        let method = spec.method.as_str().to_lowercase();
        let documented = &document["paths"][spec.path][method]["requestBody"]["content"];
        for content in body.content {
            let Some(reads) = content.reads else { continue };
            let error = reads(&documented[content.media_type]["example"]);
            assert_eq!(error, None, "{} {}", spec.method, spec.path);
            read += 1;
        }
    }
    assert!(read > 30, "{read}");
}

#[test]
fn notification_example_is_of_a_finished_campaign() {
    let now = datetime!(2026-03-01 12:00 UTC);
    let campaign = Campaign {
        id: CampaignId(Uuid::from_u128(7)),
        account_id: AccountId(Uuid::nil()),
        name: "Volta às aulas".into(),
        template_id: None,
        segment_id: None,
        segment_config: None,
        rfm_segments: vec![],
        scheduled_at: None,
        scheduled_by: None,
        variables: None,
        header_location: None,
        offer_expires_at: None,
        reach: recado_domain::campaigns::Reach::Phone,
        newcomers_only: false,
        budget: None,
        cost: recado_domain::costs::CampaignCost::default(),
        folder_id: None,
        status: CampaignStatus::Sending,
        total_recipients: 1840,
        simulated: false,
        executed_at: Some(now),
        completed_at: None,
        paused_at: None,
        pause_reason: None,
        late_policy: None,
        skipped_at: None,
        retry_scheduled_at: None,
        waiting_until: None,
        held: 0,
        archiving_at: None,
        archived_at: None,
        created_by: None,
        created_at: now,
        updated_at: now,
        version: 1,
    };
    let counts = SendCounts {
        total: 1840,
        read: 1832,
        failed: 8,
        ..SendCounts::default()
    };
    let (_, events) = finish(&campaign, &counts, Trigger::Send, None, now).unwrap();
    let [Event::Notification(notification), Event::Webhook(_)] = events.as_slice() else {
        panic!("{events:?}")
    };
    let document = document();
    let schema = &document["components"]["schemas"]["Notification"];
    let example = |field: &str| schema["properties"][field]["examples"][0].clone();
    assert_eq!(
        [example("type"), example("title"), example("message")],
        [
            json!(notification.kind),
            json!(notification.title),
            json!(notification.message)
        ]
    );
    let names = |data: &Value| data.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&example("data")), names(&notification.data));
}
