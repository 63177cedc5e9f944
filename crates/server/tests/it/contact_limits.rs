//! Size limits of a contact's attributes, for the API, imports and inbound webhooks.

use serde_json::{Map, Value, json};

use crate::harness::Server;
use crate::harness::users::{User, phone};
use crate::inbound_webhooks::Hook;

fn attributes_with_prefix(prefix: &str, count: usize) -> Map<String, Value> {
    (0..count).map(|n| (format!("{prefix}{n}"), json!("x"))).collect()
}

/// Imports the contacts as one line of JSON each.
#[track_caller]
fn import_contacts(user: &User<'_>, contacts: &[Value]) -> Value {
    let file: String = contacts.iter().map(|contact| format!("{contact}\n")).collect();
    let request = user.request("POST", "/api/contacts/import");
    request.body("application/x-ndjson", file).send().ok()
}

fn contact_line(number: usize, prefix: &str, count: usize) -> Value {
    let attributes = attributes_with_prefix(prefix, count);
    json!({ "name": format!("{prefix} {number}"), "phone": phone(number), "attributes": attributes })
}

/// The imported, updated and skipped counts of an import report.
fn import_counts(report: &Value) -> [i64; 3] {
    ["imported", "updated", "skipped"].map(|field| report[field].as_i64().unwrap())
}

/// The line numbers of the report's errors.
fn error_lines(report: &Value) -> Vec<i64> {
    let errors = report["errors"].as_array().unwrap().iter();
    errors.map(|error| error["line"].as_i64().unwrap()).collect()
}

/// Finds the contact whose phone number is `phone(number)`.
fn find_contact(user: &User<'_>, number: usize) -> Value {
    let search = phone(number).replace('+', "%2B");
    user.get(&format!("/api/contacts?search={search}")).ok()["data"][0].clone()
}

fn attribute_count(contact: &Value) -> usize {
    contact["attributes"].as_object().unwrap().len()
}

#[test]
fn import_row_beyond_the_attribute_limit_is_skipped_alone() {
    let server = Server::new();
    let ana = server.owner();
    let first = [contact_line(1, "a", 60)];
    assert_eq!(import_counts(&import_contacts(&ana, &first)), [1, 0, 0]);
    let report = import_contacts(
        &ana,
        &[
            json!({ "name": "x" }),
            contact_line(1, "b", 60),
            contact_line(2, "b", 60),
            json!({ "name": "y" }),
        ],
    );
    assert_eq!(import_counts(&report), [1, 0, 3], "{report}");
    assert_eq!(error_lines(&report), [1, 2, 4], "{report}");
    let message = report["errors"][1]["message"].as_str().unwrap();
    assert!(
        message.starts_with("attributes") && message.contains("100"),
        "{message}"
    );
    let stored = find_contact(&ana, 1);
    assert_eq!((&stored["name"], attribute_count(&stored)), (&json!("a 1"), 60));
    assert_eq!(attribute_count(&find_contact(&ana, 2)), 60);
    // Existing attributes add nothing, and the contact can be edited.
    assert_eq!(import_counts(&import_contacts(&ana, &first)), [0, 1, 0]);
    let path = format!("/api/contacts/{}", stored["id"].as_str().unwrap());
    assert_eq!(ana.put(&path, json!({ "name": "Ana" })).ok()["name"], "Ana");
}

#[test]
fn import_rows_of_one_contact_share_the_attribute_limit() {
    let server = Server::new();
    let ana = server.owner();
    import_contacts(&ana, &[contact_line(1, "a", 60)]);
    // Attribute counts after each line: 90, 120 (skipped), 100, 101 (skipped), 100.
    let file = [
        contact_line(1, "b", 30),
        contact_line(1, "c", 30),
        contact_line(1, "d", 10),
        contact_line(1, "e", 1),
        contact_line(1, "d", 10),
    ];
    let report = import_contacts(&ana, &file);
    assert_eq!(import_counts(&report), [0, 3, 2], "{report}");
    assert_eq!(error_lines(&report), [2, 4], "{report}");
    let stored = find_contact(&ana, 1);
    assert_eq!((&stored["name"], attribute_count(&stored)), (&json!("d 1"), 100));
}

#[test]
fn import_and_stored_attributes_share_the_size_limit() {
    let server = Server::new();
    let ana = server.owner();
    let large = |field: &str, bytes: usize| json!({ "name": "Ana", "phone": phone(1), field: "é".repeat(bytes / 2) });
    assert_eq!(import_counts(&import_contacts(&ana, &[large("a", 10_000)])), [1, 0, 0]);
    assert_eq!(import_counts(&import_contacts(&ana, &[large("b", 10_000)])), [0, 0, 1]);
    assert_eq!(import_counts(&import_contacts(&ana, &[large("b", 6_000)])), [0, 1, 0]);
    assert_eq!(attribute_count(&find_contact(&ana, 1)), 2);
}

#[test]
fn inbound_contact_beyond_attribute_limit_names_its_field() {
    let server = Server::new();
    let ana = server.owner();
    let hook = Hook::new(&ana);
    let upsert = |message_id: &str, prefix: &str, tag: &str| {
        let mut data = contact_line(1, prefix, 60);
        data["tags"] = json!([tag]);
        hook.call(
            &server,
            message_id,
            &json!({ "type": "contact.upserted", "data": data }),
        )
    };
    upsert("m1", "a", "first").ok();
    let error = upsert("m2", "b", "second").refused(422, "VALIDATION_ERROR");
    let fields = error["details"]["fields"].as_object().unwrap();
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["data.attributes"]);
    assert_eq!(attribute_count(&find_contact(&ana, 1)), 60);
    assert_eq!(server.db.count("FROM tags"), 1, "the refused contact created no tag");
    upsert("m3", "a", "third").ok();
}
