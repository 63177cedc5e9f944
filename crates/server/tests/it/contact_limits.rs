//! How large a contact may grow, whoever adds to it.

use serde_json::{Map, Value, json};

use crate::harness::Server;
use crate::harness::users::{User, phone};
use crate::hooks::Hook;

/// So many attributes, whose names begin so.
fn attributes(prefix: &str, count: usize) -> Map<String, Value> {
    (0..count).map(|n| (format!("{prefix}{n}"), json!("x"))).collect()
}

/// Imports one line of JSON for each of these.
#[track_caller]
fn import(user: &User<'_>, contacts: &[Value]) -> Value {
    let file: String = contacts.iter().map(|contact| format!("{contact}\n")).collect();
    let request = user.request("POST", "/api/contacts/import");
    request.body("application/x-ndjson", file).send().ok()
}

fn line(number: usize, prefix: &str, count: usize) -> Value {
    json!({ "name": format!("{prefix} {number}"), "phone": phone(number), "attributes": attributes(prefix, count) })
}

fn numbers(report: &Value) -> [i64; 3] {
    ["imported", "updated", "skipped"].map(|field| report[field].as_i64().unwrap())
}

fn lines(report: &Value) -> Vec<i64> {
    let errors = report["errors"].as_array().unwrap().iter();
    errors.map(|error| error["line"].as_i64().unwrap()).collect()
}

/// The contact with the number of this position.
fn contact(user: &User<'_>, number: usize) -> Value {
    let search = phone(number).replace('+', "%2B");
    user.get(&format!("/api/contacts?search={search}")).ok()["data"][0].clone()
}

fn size(contact: &Value) -> usize {
    contact["attributes"].as_object().unwrap().len()
}

#[test]
fn import_beyond_the_attribute_limit_skips_its_row_alone() {
    let server = Server::new();
    let ana = server.owner();
    let first = [line(1, "a", 60)];
    assert_eq!(numbers(&import(&ana, &first)), [1, 0, 0]);
    let report = import(
        &ana,
        &[
            json!({ "name": "x" }),
            line(1, "b", 60),
            line(2, "b", 60),
            json!({ "name": "y" }),
        ],
    );
    assert_eq!(numbers(&report), [1, 0, 3], "{report}");
    assert_eq!(lines(&report), [1, 2, 4], "{report}");
    let told = report["errors"][1]["message"].as_str().unwrap();
    assert!(told.starts_with("attributes") && told.contains("100"), "{told}");
    let kept = contact(&ana, 1);
    assert_eq!((&kept["name"], size(&kept)), (&json!("a 1"), 60));
    assert_eq!(size(&contact(&ana, 2)), 60);
    // What is there already adds nothing, and the contact can be edited.
    assert_eq!(numbers(&import(&ana, &first)), [0, 1, 0]);
    let path = format!("/api/contacts/{}", kept["id"].as_str().unwrap());
    assert_eq!(ana.put(&path, json!({ "name": "Ana" })).ok()["name"], "Ana");
}

#[test]
fn lines_of_one_person_count_until_one_would_exceed_the_limit() {
    let server = Server::new();
    let ana = server.owner();
    import(&ana, &[line(1, "a", 60)]);
    // 90, then 120, then 100, then 101, then 100 once more.
    let file = [
        line(1, "b", 30),
        line(1, "c", 30),
        line(1, "d", 10),
        line(1, "e", 1),
        line(1, "d", 10),
    ];
    let report = import(&ana, &file);
    assert_eq!(numbers(&report), [0, 3, 2], "{report}");
    assert_eq!(lines(&report), [2, 4], "{report}");
    let kept = contact(&ana, 1);
    assert_eq!((&kept["name"], size(&kept)), (&json!("d 1"), 100));
}

#[test]
fn values_of_an_import_have_a_common_size_with_what_is_there() {
    let server = Server::new();
    let ana = server.owner();
    let large = |field: &str, bytes: usize| json!({ "name": "Ana", "phone": phone(1), field: "é".repeat(bytes / 2) });
    assert_eq!(numbers(&import(&ana, &[large("a", 10_000)])), [1, 0, 0]);
    assert_eq!(numbers(&import(&ana, &[large("b", 10_000)])), [0, 0, 1]);
    assert_eq!(numbers(&import(&ana, &[large("b", 6_000)])), [0, 1, 0]);
    assert_eq!(size(&contact(&ana, 1)), 2);
}

#[test]
fn inbound_contact_beyond_the_attribute_limit_is_refused_by_its_field() {
    let server = Server::new();
    let ana = server.owner();
    let hook = Hook::new(&ana);
    let told = |message: &str, prefix: &str, tag: &str| {
        let mut data = line(1, prefix, 60);
        data["tags"] = json!([tag]);
        hook.call(&server, message, &json!({ "type": "contact.upserted", "data": data }))
    };
    told("m1", "a", "first").ok();
    let error = told("m2", "b", "second").refused(422, "VALIDATION_ERROR");
    let fields = error["details"]["fields"].as_object().unwrap();
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["data.attributes"]);
    assert_eq!(size(&contact(&ana, 1)), 60);
    assert_eq!(server.db.count("FROM tags"), 1, "nothing of it is left");
    told("m3", "a", "third").ok();
}
