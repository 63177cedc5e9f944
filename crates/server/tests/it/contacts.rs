//! Contacts and tags: create, read, update, delete, search and keyset pagination.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::users::{User, phone};
use crate::harness::{Server, text};

fn contact_names(list: &Value) -> Vec<String> {
    list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| text(&row["name"]))
        .collect()
}

#[test]
fn contact_is_created_read_updated_and_deleted() {
    let server = Server::new();
    let ana = server.owner();
    let tag = ana.tag("vip");
    let body = json!({ "name": " João  <i>Silva</i> ", "phone": "(11) 96123-4567", "email": "joao@loja.example",
                       "tag_ids": [tag], "attributes": { "coupon": "X", "points": 3, "vip": true } });
    let made = ana.post("/api/contacts", body).created();
    assert_eq!(
        (&made["name"], &made["phone"]),
        (&json!("João Silva"), &json!("+5511961234567"))
    );
    assert_eq!(made["tags"], json!([{ "id": tag, "name": "vip", "color": null }]));
    assert_eq!(made["attributes"], json!({ "coupon": "X", "points": 3, "vip": true }));
    assert_eq!(
        (&made["opted_out_at"], &made["wa_user_id"]),
        (&json!(null), &json!(null))
    );
    let path = format!("/api/contacts/{}", text(&made["id"]));
    let mut read = ana.get(&path).ok();
    let mut removed = |field: &str| read.as_object_mut().unwrap().remove(field).unwrap();
    assert_eq!(
        (removed("first_referral"), removed("same_person_as")),
        (json!(null), json!(null))
    );
    assert_eq!(removed("identities")[0]["wa_user_id"], made["wa_user_id"]);
    assert_eq!(read, made);

    let changed = ana.put(&path, json!({ "name": "João S." })).ok();
    assert_eq!(
        (&changed["name"], &changed["email"]),
        (&json!("João S."), &json!("joao@loja.example"))
    );
    assert_eq!(
        (&changed["tags"], &changed["attributes"]),
        (&made["tags"], &made["attributes"])
    );
    assert_eq!(ana.put(&path, json!({ "email": null })).ok()["email"], json!(null));
    assert_eq!(
        ana.put(&path, json!({ "attributes": {} })).ok()["attributes"],
        json!({})
    );
    assert_eq!(
        ana.put(&format!("{path}/tags"), json!({ "tag_ids": [] })).ok()["tags"],
        json!([])
    );
    assert_eq!(ana.get(&path).ok()["name"], "João S.");

    ana.delete(&path).no_content();
    ana.get(&path).refused(404, "NOT_FOUND");
    ana.put(&path, json!({ "name": "x" })).refused(404, "NOT_FOUND");
    ana.delete(&path).refused(404, "NOT_FOUND");
    assert_eq!(ana.get("/api/contacts").ok()["data"], json!([]));
    // The phone number is free again.
    ana.contact("Outro", "+5511961234567");
}

#[test]
fn contact_errors_name_every_invalid_field() {
    let server = Server::new();
    let ana = server.owner();
    let body = json!({ "name": " ", "phone": "123", "email": "a@b", "attributes": { "a": [1] } });
    assert_eq!(
        ana.post("/api/contacts", body).invalid(),
        ["attributes.a", "email", "name", "phone"]
    );
    assert_eq!(ana.post("/api/contacts", json!({})).invalid(), ["name", "phone"]);
    let long = json!({ "name": "x".repeat(201), "phone": phone(1) });
    assert_eq!(ana.post("/api/contacts", long).invalid(), ["name"]);
    let many: Vec<String> = (0..51).map(|_| uuid::Uuid::now_v7().to_string()).collect();
    let many = json!({ "name": "x", "phone": phone(1), "tag_ids": many });
    assert_eq!(ana.post("/api/contacts", many).invalid(), ["tag_ids"]);
    assert_eq!(
        ana.put(&format!("/api/contacts/{}/tags", uuid::Uuid::now_v7()), json!({}))
            .invalid(),
        ["tag_ids"]
    );
    assert_eq!(server.db.count("FROM contacts"), 0);
}

#[test]
fn contact_phone_is_unique_with_or_without_ninth_digit() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    ana.contact("Ana", "+5511961234567");
    let second = ana.contact("Outra", "+5511961230000");
    for same in ["1161234567", "11 96123-4567", "+55 11 6123-4567", "5511961234567"] {
        assert_eq!(
            ana.post("/api/contacts", json!({ "name": "x", "phone": same }))
                .invalid(),
            ["phone"],
            "{same}"
        );
        let put = ana.put(&format!("/api/contacts/{second}"), json!({ "phone": same }));
        assert_eq!(put.invalid(), ["phone"], "{same}");
    }
    bia.contact("Of another account", "+5511961234567");
}

#[test]
fn concurrent_creations_of_one_number_create_one_contact() {
    let server = Server::new();
    let ana = server.owner();
    let request = ana
        .request("POST", "/api/contacts")
        .json(&json!({ "name": "x", "phone": phone(1) }));
    let mut statuses = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(|| request.clone().send().status)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 422, 422, 422, 422, 422]);
}

#[test]
fn contact_list_is_filtered_by_search_and_tag() {
    let server = Server::new();
    let ana = server.owner();
    let tag = ana.tag("vip");
    let add = |name: &str, phone: &str, email: &str, tags: &[&str]| {
        let body = json!({ "name": name, "phone": phone, "email": email, "tag_ids": tags });
        ana.post("/api/contacts", body).created();
    };
    add("Ana 100%", "+5511961234567", "ana@loja.example", &[&tag]);
    add("Bia_x", "+5521961230000", "bia@casa.example", &[&tag]);
    add("Caio", "+5531961111111", "caio@loja.example", &[]);
    let found = |query: &str| contact_names(&ana.get(&format!("/api/contacts?{query}")).ok());
    assert_eq!(found("search=ANA"), ["Ana 100%"]);
    assert_eq!(found("search=loja"), ["Caio", "Ana 100%"]);
    assert_eq!(found("search=%2B5521"), ["Bia_x"]);
    assert_eq!(found("search=%25"), ["Ana 100%"], "a percent sign matches itself");
    assert_eq!(found("search=_"), ["Bia_x"], "an underscore matches itself");
    assert_eq!(found("search=%5C"), Vec::<String>::new());
    assert_eq!(found("search=%27%3B--"), Vec::<String>::new());
    assert_eq!(found(&format!("tag_id={tag}")), ["Bia_x", "Ana 100%"]);
    assert_eq!(found(&format!("tag_id={tag}&search=bia")), ["Bia_x"]);
    assert_eq!(found("search=").len(), 3);
    for number in [
        "31%206111-1111",
        "553161111111",
        "%28031%29%2096111-1111",
        "31%2096111",
        "%2B55%2031%2096111%201111",
    ] {
        assert_eq!(found(&format!("search={number}")), ["Caio"], "{number}");
    }
    assert_eq!(found("search=32%206111-1111"), Vec::<String>::new());
}

#[test]
fn contact_without_phone_is_identified_by_wa_user_id() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let made = ana
        .post(
            "/api/contacts",
            json!({ "name": "Ana", "phone": null, "wa_user_id": "BR.1aZ" }),
        )
        .created();
    assert_eq!((&made["phone"], &made["wa_user_id"]), (&json!(null), &json!("BR.1aZ")));
    assert!(made.get("wa_id").is_none(), "{made}");
    let path = format!("/api/contacts/{}", text(&made["id"]));
    let mut read = ana.get(&path).ok();
    let mut removed = |field: &str| read.as_object_mut().unwrap().remove(field).unwrap();
    assert_eq!(
        (removed("first_referral"), removed("same_person_as")),
        (json!(null), json!(null))
    );
    assert_eq!(removed("identities")[0]["wa_user_id"], made["wa_user_id"]);
    assert_eq!(read, made);
    let neither = json!({ "name": "x", "phone": null, "wa_user_id": null });
    assert_eq!(ana.post("/api/contacts", neither).invalid(), ["phone"]);
    for wrong in ["", "BR", "br.1", "BR.a-b", "BR.ENT.", "BRA.1"] {
        let body = json!({ "name": "x", "wa_user_id": wrong });
        assert_eq!(ana.post("/api/contacts", body).invalid(), ["wa_user_id"], "{wrong}");
    }
    let twice = json!({ "name": "x", "wa_user_id": "BR.1aZ" });
    assert_eq!(ana.post("/api/contacts", twice.clone()).invalid(), ["wa_user_id"]);
    bia.post("/api/contacts", twice).created();
    let second = ana.contact("Outra", &phone(2));
    let duplicate = ana.put(&format!("/api/contacts/{second}"), json!({ "wa_user_id": "BR.1aZ" }));
    assert_eq!(duplicate.invalid(), ["wa_user_id"]);
    // A contact must keep at least one identifier: phone or wa_user_id.
    assert_eq!(ana.put(&path, json!({ "wa_user_id": null })).invalid(), ["phone"]);
    let both = ana
        .put(&path, json!({ "phone": phone(1), "wa_user_id": "US.ENT.x9" }))
        .ok();
    assert_eq!(
        (&both["phone"], &both["wa_user_id"]),
        (&json!(phone(1)), &json!("US.ENT.x9"))
    );
    assert_eq!(ana.put(&path, json!({ "name": "A" })).ok()["wa_user_id"], "US.ENT.x9");
    assert_eq!(ana.put(&path, json!({ "phone": null })).ok()["phone"], json!(null));
    ana.delete(&path).no_content();
    ana.post("/api/contacts", json!({ "name": "x", "wa_user_id": "US.ENT.x9" }))
        .created();
}

#[test]
fn contact_opt_out_is_recorded_and_ended_by_the_api() {
    let server = Server::new();
    let ana = server.owner();
    let body = json!({ "name": "Ana", "phone": phone(1), "opted_out": true, "opted_out_at": "2001-01-01T00:00:00Z" });
    let made = ana.post("/api/contacts", body).created();
    let opted_out_at = text(&made["opted_out_at"]);
    assert!(
        opted_out_at.starts_with("20") && !opted_out_at.starts_with("2001"),
        "{made}"
    );
    assert!(made.get("opted_out").is_none());
    let path = format!("/api/contacts/{}", text(&made["id"]));
    assert_eq!(
        ana.put(&path, json!({ "opted_out": true })).ok()["opted_out_at"],
        json!(opted_out_at)
    );
    assert_eq!(
        ana.put(&path, json!({ "name": "A" })).ok()["opted_out_at"],
        json!(opted_out_at)
    );
    assert_eq!(ana.put(&path, json!({ "opted_out": "no" })).invalid(), ["opted_out"]);
    assert_eq!(
        ana.put(&path, json!({ "opted_out": false })).ok()["opted_out_at"],
        json!(null)
    );
    assert_eq!(ana.put(&path, json!({ "opted_out": null })).invalid(), ["opted_out"]);
    assert!(ana.put(&path, json!({ "opted_out": true })).ok()["opted_out_at"].is_string());
}

/// Reads every page of a list and returns the ids in order.
fn list_all_ids(user: &User<'_>, path: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = user.get(&format!("{path}&cursor={cursor}")).ok();
        let rows = page["data"].as_array().unwrap();
        ids.extend(rows.iter().map(|row| text(&row["id"])));
        assert_eq!(page["hasMore"], json!(!page["nextCursor"].is_null()), "{page}");
        if page["nextCursor"].is_null() {
            return ids;
        }
        assert_eq!(rows.len(), 10);
        cursor = text(&page["nextCursor"]);
    }
}

#[test]
fn contact_cursors_are_stable_under_inserts_and_deletes() {
    let server = Server::new();
    let ana = server.owner();
    ana.contacts(45);
    let ids = list_all_ids(&ana, "/api/contacts?limit=10");
    assert_eq!((ids.len(), ids.iter().collect::<BTreeSet<_>>().len()), (45, 45));
    assert!(ids.is_sorted_by(|a, b| a > b), "newest first");

    let first = ana.get("/api/contacts?limit=20").ok();
    let cursor = text(&first["nextCursor"]);
    // The cursor's row is deleted and a row is added: the following page neither loses nor repeats a row.
    ana.delete(&format!("/api/contacts/{cursor}"));
    ana.contact("New", &phone(100));
    let rest = ana.get(&format!("/api/contacts?limit=100&cursor={cursor}")).ok();
    let rest: Vec<String> = rest["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| text(&row["id"]))
        .collect();
    assert_eq!(rest, ids[20..]);
    assert_eq!(ana.get("/api/contacts").ok()["data"].as_array().unwrap().len(), 20);
    assert_eq!(
        ana.get("/api/contacts?limit=1000").ok()["data"]
            .as_array()
            .unwrap()
            .len(),
        45
    );
}

#[test]
fn tags_are_unique_by_name_and_deleted_without_contacts() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let made = ana
        .post("/api/tags", json!({ "name": " VIP ", "color": "#22c55e" }))
        .created();
    assert_eq!((&made["name"], &made["color"]), (&json!("VIP"), &json!("#22c55e")));
    assert_eq!(made.as_object().unwrap().len(), 3);
    assert_eq!(ana.post("/api/tags", json!({ "name": "vip" })).invalid(), ["name"]);
    bia.tag("VIP");
    assert_eq!(
        ana.post("/api/tags", json!({ "name": "", "color": "x".repeat(33) }))
            .invalid(),
        ["color", "name"]
    );
    let id = text(&made["id"]);
    let body = json!({ "name": "Ana", "phone": phone(1), "tag_ids": [id, id] });
    let contact = text(&ana.post("/api/contacts", body).created()["id"]);
    assert_eq!(ana.get("/api/tags").ok()["data"], json!([made]));
    ana.delete(&format!("/api/tags/{id}")).no_content();
    ana.delete(&format!("/api/tags/{id}")).refused(404, "NOT_FOUND");
    assert_eq!(ana.get(&format!("/api/contacts/{contact}")).ok()["tags"], json!([]));
    for number in 0..25 {
        ana.tag(&format!("t{number}"));
    }
    assert_eq!(list_all_ids(&ana, "/api/tags?limit=10").len(), 25);
}
