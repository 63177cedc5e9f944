//! How bodies are read, at every route that takes one: arrays where objects are due, null in changes, no body at all.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};

use recado_server::reference::{alone, document};
use recado_server::routes::{Access, RouteSpec, TABLE};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::client::{Reply, Request, connect};
use crate::harness::users::User;
use crate::harness::{Server, media, text};
use crate::matrix::{Takes, belongings, dump, label, path_of, row};

/// The changes of the interface: the fields that null clears, and those that it is refused for.
const CHANGES: &[(&str, &[&str], &[&str])] = &[
    (
        "/api/admin/accounts/{id}",
        &["logo_url"],
        &["name", "slug", "plan", "status", "owner_email"],
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
            "folder_id",
        ],
        &["name"],
    ),
    (
        "/api/contacts/{id}",
        &["phone", "email", "wa_user_id"],
        &["name", "opted_out", "attributes", "tag_ids"],
    ),
    ("/api/contacts/{id}/tags", &[], &["tag_ids"]),
    ("/api/conversations/{id}", &[], &["status"]),
    ("/api/segments/{id}", &["description", "filters"], &["name"]),
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
        &["name", "phone_number_id", "waba_id", "access_token"],
    ),
];

/// What may be empty by its type, and not in the row that the test has: each needs one of its fields.
const NEEDED_THERE: &[(&str, &str)] = &[
    ("/api/contacts/{id}", "phone"),
    ("/api/templates/{id}", "body_text"),
    ("/api/webhooks/{id}", "url"),
];

/// Where arrays of a number or of nothing must be refused: every object within a body, as the reference tells of it.
const OBJECTS: &[&str] = &[
    "POST /api/ad-spend entries[0]",
    "POST /api/automations/{id}/executions executions[0]",
    "POST /api/billing/subscribe credit_card",
    "POST /api/billing/subscribe credit_card_holder_info",
    "POST /api/campaigns segment_config",
    "POST /api/campaigns segment_config.filters",
    "POST /api/campaigns segment_config.filters.attributes",
    "POST /api/campaigns variables",
    "POST /api/carts carts[0]",
    "POST /api/contacts attributes",
    "POST /api/events events[0]",
    "POST /api/events events[0].properties",
    "POST /api/orders orders[0]",
    "POST /api/orders orders[0].items[0]",
    "POST /api/segments filters",
    "POST /api/segments filters.attributes",
    "PUT /api/campaigns/{id} segment_config",
    "PUT /api/campaigns/{id} segment_config.filters",
    "PUT /api/campaigns/{id} segment_config.filters.attributes",
    "PUT /api/campaigns/{id} variables",
    "PUT /api/contacts/{id} attributes",
    "PUT /api/segments/{id} filters",
    "PUT /api/segments/{id} filters.attributes",
];

/// A step into a body.
#[derive(Clone, Debug)]
enum Step {
    Field(String),
    Item,
}

/// A place in a body.
type Place = Vec<Step>;

fn named(place: &[Step]) -> String {
    let mut name = String::new();
    for step in place {
        match step {
            Step::Field(field) if name.is_empty() => name.push_str(field),
            Step::Field(field) => name.push_str(&format!(".{field}")),
            Step::Item => name.push_str("[0]"),
        }
    }
    name
}

/// A body that has nothing but this value, at this place.
fn holding(place: &[Step], value: &Value) -> Value {
    place.iter().rev().fold(value.clone(), |inner, step| match step {
        Step::Field(field) => json!({ field.as_str(): inner }),
        Step::Item => json!([inner]),
    })
}

fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    }
}

/// Every place in a body where an object is due.
fn objects(document: &Value, schema: &Value, place: &[Step], found: &mut Vec<Place>) {
    assert!(place.len() < 10, "{place:?}");
    if let Some(path) = schema["$ref"].as_str() {
        return objects(document, document.pointer(&path[1..]).unwrap(), place, found);
    }
    for inner in ["anyOf", "oneOf", "allOf"] {
        for one in schema[inner].as_array().into_iter().flatten() {
            objects(document, one, place, found);
        }
    }
    if types(schema).contains(&"object") && !place.is_empty() {
        assert!(!types(schema).contains(&"array"), "{place:?}");
        found.push(place.to_vec());
    }
    let step = |step| [place, &[step]].concat();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        objects(document, field, &step(Step::Field(name.clone())), found);
    }
    for (inner, next) in [
        ("items", Step::Item),
        ("additionalProperties", Step::Field("any".to_owned())),
    ] {
        if schema[inner].is_object() {
            objects(document, &schema[inner], &step(next), found);
        }
    }
}

fn body_of<'a>(document: &'a Value, spec: &RouteSpec) -> &'a Value {
    let operation = &document["paths"][spec.path][spec.method.as_str().to_lowercase()];
    &operation["requestBody"]["content"]["application/json"]["schema"]
}

/// The routes that read JSON themselves, and who may call them.
fn json_routes<'a>(server: &'a Server) -> impl Iterator<Item = (&'static RouteSpec, User<'a>)> {
    let specs = TABLE
        .iter()
        .filter(|spec| matches!(row(spec), Takes::Json(_) | Takes::Unfetched(_)));
    specs.map(|spec| (spec, caller(server, spec)))
}

/// Somebody new for each route, whom no limit has counted yet.
fn caller<'a>(server: &'a Server, spec: &RouteSpec) -> User<'a> {
    match spec.access {
        Access::Administrator => server.root(),
        _ => server.owner(),
    }
}

fn at_nothing(caller: &User<'_>, spec: &RouteSpec) -> Request {
    let path = spec.path.replace("{id}", &Uuid::now_v7().to_string());
    caller.request(spec.method.as_str(), &path)
}

#[test]
fn an_array_is_no_object_anywhere_in_a_body() {
    let (server, document) = (Server::new(), document());
    let mut seen = BTreeSet::new();
    for (spec, caller) in json_routes(&server) {
        let mut places = Vec::new();
        objects(&document, body_of(&document, spec), &[], &mut places);
        for place in places {
            let name = named(&place);
            for wrong in [json!([]), json!([1]), json!([null, "x"])] {
                let reply = at_nothing(&caller, spec).json(&holding(&place, &wrong)).send();
                assert_eq!(reply.invalid(), [name.as_str()], "{} {name} {wrong}", label(spec));
            }
            seen.insert(format!("{} {name}", label(spec)));
        }
    }
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), OBJECTS);
}

/// With all else in order, an array has no fields to lend.
#[test]
fn what_is_refused_for_an_array_leaves_nothing() {
    let server = Server::new();
    let ana = server.owner();
    server.db.settles();
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
        let words = json!({ field: ["invalid type: sequence, expected an object"] });
        assert_eq!(error["details"]["fields"], words, "{path}");
    }
    assert_eq!(dump(&ana), before);
}

/// The names of a body's fields.
fn fields(document: &Value, schema: &Value, found: &mut BTreeSet<String>) {
    if let Some(path) = schema["$ref"].as_str() {
        return fields(document, document.pointer(&path[1..]).unwrap(), found);
    }
    for one in schema["allOf"].as_array().into_iter().flatten() {
        fields(document, one, found);
    }
    found.extend(
        schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone()),
    );
}

/// Whether the reference says that a body may have this field as null, and whether it may be without it.
fn told(document: &Value, schema: &Value, field: &str) -> (bool, bool) {
    let schema = alone(document, schema);
    let validator = jsonschema::draft202012::options().build(&schema).unwrap();
    let blamed = |body: &Value, keyword: &str| {
        let mut faults = validator.iter_errors(body);
        faults.any(|fault| fault.instance_path().as_str() == format!("/{field}") || fault.to_string().contains(keyword))
    };
    let absent = format!("\"{field}\" is a required property");
    (!blamed(&json!({ field: null }), &absent), !blamed(&json!({}), &absent))
}

#[test]
fn null_in_a_change_clears_what_may_be_empty_and_is_refused_for_all_else() {
    let (server, document) = (Server::new(), document());
    let (ana, root) = (server.owner(), server.root());
    let mut things = belongings(&ana);
    things.push(("/api/admin/accounts/", ana.account.clone()));
    let before = dump(&ana);
    let mut changes: Vec<_> = CHANGES.iter().collect();
    for spec in TABLE.iter().filter(|spec| spec.method.as_str() == "PUT") {
        let at = changes.iter().position(|(path, _, _)| *path == spec.path);
        let (path, clearable, never) = changes.swap_remove(at.unwrap_or_else(|| panic!("{}", label(spec))));
        let schema = body_of(&document, spec);
        let mut all = BTreeSet::new();
        fields(&document, schema, &mut all);
        let known: BTreeSet<String> = clearable.iter().chain(*never).map(ToString::to_string).collect();
        assert_eq!(all, known, "{path}");
        let caller = if spec.access == Access::Administrator {
            &root
        } else {
            &ana
        };
        let null = |field: &str| caller.put(&path_of(spec, &things), json!({ field: null }));
        for field in *never {
            assert_eq!(null(field).invalid(), [*field], "{path}");
            assert!(!told(&document, schema, field).0, "{path} {field} is told to be null");
        }
        for field in *clearable {
            assert_eq!(told(&document, schema, field), (true, true), "{path} {field}");
        }
    }
    assert!(changes.is_empty(), "{changes:?}");
    assert_eq!(dump(&ana), before);
    for (path, clearable, _) in CHANGES {
        let spec = TABLE
            .iter()
            .find(|spec| spec.path == *path && spec.method.as_str() == "PUT");
        let spec = spec.unwrap();
        let caller = if spec.access == Access::Administrator {
            &root
        } else {
            &ana
        };
        for field in *clearable {
            let reply = caller.put(&path_of(spec, &things), json!({ *field: null }));
            match NEEDED_THERE.contains(&(path, field)) {
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

/// Absent keeps, null clears or is refused; in what makes something, null is still nothing.
#[test]
fn a_refused_null_says_so_and_what_is_absent_stays() {
    let server = Server::new();
    let ana = server.owner();
    let campaign = format!("/api/campaigns/{}", ana.campaign(json!({ "name": "Oferta" })));
    let error = ana
        .put(&campaign, json!({ "name": null }))
        .refused(422, "VALIDATION_ERROR");
    assert_eq!(error["details"]["fields"], json!({ "name": ["must not be null"] }));
    let kept = ana
        .put(
            &campaign,
            json!({ "segment_config": { "filters": { "has_email": true } } }),
        )
        .ok();
    assert_eq!(kept["name"], "Oferta");
    let kept = ana.put(&campaign, json!({ "folder_id": null })).ok();
    assert_eq!(kept["segment_config"], json!({ "filters": { "has_email": true } }));
    // Within a body null is what it was, and so it is where something is made.
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

/// The answer to a request as it is written by hand: these last lines of the head, and this body.
fn by_hand(request: &Request, last: &str, body: &str) -> Reply {
    let mut stream = connect(request.port());
    let whole = request.head(&format!("{last}Connection: close\r\n\r\n{body}"));
    stream.write_all(whole.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply {
        status,
        headers: Default::default(),
        text: text.to_owned(),
    }
}

#[test]
fn no_body_at_all_is_an_empty_one() {
    let (server, document) = (Server::new(), document());
    let mut seen = 0;
    for spec in TABLE {
        let media_type = match row(spec) {
            Takes::Json(_) | Takes::Unfetched(_) => "application/json",
            Takes::Csv => "text/csv",
            Takes::Form => media::FORM,
            Takes::Nothing | Takes::Query(_) | Takes::Needs(_) | Takes::Public(_) => continue,
        };
        let caller = caller(&server, spec);
        let request = at_nothing(&caller, spec);
        let operation = &document["paths"][spec.path][spec.method.as_str().to_lowercase()];
        if operation["requestBody"]["required"] == false {
            assert_ne!(by_hand(&request, "", "").status, 415, "{}", label(spec));
            continue;
        }
        let empty = request.clone().body(media_type, "").send();
        for last in ["", "Content-Length: 0\r\n"] {
            let none = by_hand(&request, last, "");
            if media_type != media::FORM {
                assert_eq!(none.text, empty.text, "{}", label(spec));
            }
            assert_eq!(none.invalid(), ["body"], "{}", label(spec));
        }
        for (last, body) in [
            ("Content-Length: 2\r\n", "{}"),
            ("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        ] {
            by_hand(&request, last, body).refused(415, "UNSUPPORTED_MEDIA_TYPE");
        }
        assert_eq!(empty.invalid(), ["body"], "{}", label(spec));
        seen += 1;
    }
    assert!(seen > 30, "{seen}");
    // A type that is said is a type that counts, whatever it is of.
    let ana = server.owner();
    let typed = ana.request("POST", "/api/tags").body("text/plain", "");
    typed.send().refused(415, "UNSUPPORTED_MEDIA_TYPE");
}
