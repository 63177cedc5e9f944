//! Segments: fields, members, filters and campaigns.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::users::{User, phone};
use crate::harness::{Server, text};

fn create_segment(user: &User<'_>, body: Value) -> Value {
    user.post("/api/segments", body).created()
}

fn segment_path(segment: &Value) -> String {
    format!("/api/segments/{}", text(&segment["id"]))
}

/// Creates contacts from pairs of name and city, and returns their ids.
fn create_contacts(user: &User<'_>, contacts: &[(&str, &str)]) -> Vec<String> {
    let add = |(number, (name, city)): (usize, &(&str, &str))| {
        let body = json!({ "name": name, "phone": phone(number), "attributes": { "cidade": city } });
        text(&user.post("/api/contacts", body).created()["id"])
    };
    contacts.iter().enumerate().map(add).collect()
}

/// Adds or removes members, and returns the segment's member count after it.
fn change_members(user: &User<'_>, method: &str, segment: &str, ids: &[&str]) -> Value {
    let request = user.request(method, &format!("{segment}/members"));
    let reply = request.json(&json!({ "contact_ids": ids })).send();
    if method == "DELETE" {
        reply.no_content();
        return user.get(segment).ok()["members"].take();
    }
    reply.ok()["members"].take()
}

#[test]
fn segment_can_be_created_read_updated_and_deleted() {
    let server = Server::new();
    let ana = server.owner();
    let filters = json!({ "created_after": "2026-01-01T00:00:00.000Z", "has_email": false,
                          "attributes": { "cidade": "Santos" } });
    let body = json!({ "name": " <b>Litoral</b>\n sul ", "description": " Quem mora perto ", "filters": filters });
    let segment = create_segment(&ana, body);
    assert_eq!(
        (&segment["name"], &segment["description"]),
        (&json!("Litoral sul"), &json!("Quem mora perto"))
    );
    assert_eq!((&segment["filters"], &segment["members"]), (&filters, &json!(0)));
    assert_eq!(segment.as_object().unwrap().len(), 8, "{segment}");
    let path = segment_path(&segment);
    // A small account is counted when it is read.
    let timeless = |mut segment: Value| {
        assert!(segment["members_as_of"].take().is_string());
        segment
    };
    assert_eq!(timeless(ana.get(&path).ok()), timeless(segment.clone()));
    let listed = ana.get("/api/segments").ok()["data"][0].take();
    assert_eq!(timeless(listed), timeless(segment));

    create_contacts(&ana, &[("Bia", "Santos"), ("Caio", "Natal")]);
    assert_eq!(ana.get(&path).ok()["members"], 1);
    let changed = ana.put(&path, json!({ "name": "Norte", "description": null })).ok();
    assert_eq!(
        (&changed["name"], &changed["description"]),
        (&json!("Norte"), &json!(null))
    );
    assert_eq!((&changed["filters"], &changed["members"]), (&filters, &json!(1)));
    let changed = ana
        .put(&path, json!({ "filters": { "attributes": { "cidade": "Natal" } } }))
        .ok();
    assert_eq!(changed["filters"], json!({ "attributes": { "cidade": "Natal" } }));
    for nothing in [json!(null), json!({}), json!({ "attributes": {} })] {
        let changed = ana.put(&path, json!({ "filters": nothing })).ok();
        assert_eq!((&changed["filters"], &changed["members"]), (&json!({}), &json!(0)));
    }
    assert_eq!(ana.put(&path, json!({})).ok()["name"], "Norte");

    ana.delete(&path).no_content();
    ana.get(&path).refused(404, "NOT_FOUND");
    ana.put(&path, json!({ "name": "x" })).refused(404, "NOT_FOUND");
    ana.delete(&path).refused(404, "NOT_FOUND");
    assert_eq!(ana.get("/api/segments").ok()["data"], json!([]));
    let plain = create_segment(&ana, json!({ "name": "Só nome" }));
    assert_eq!((&plain["description"], &plain["filters"]), (&json!(null), &json!({})));
}

#[test]
fn invalid_segment_names_the_field() {
    let server = Server::new();
    let ana = server.owner();
    let cases = [
        (json!({}), "name"),
        (json!({ "name": " <i></i> " }), "name"),
        (json!({ "name": "x".repeat(101) }), "name"),
        (json!({ "name": "x", "description": "x".repeat(1001) }), "description"),
        (json!({ "name": "x", "filters": { "age": 3 } }), "filters.age"),
        (
            json!({ "name": "x", "filters": { "has_email": "yes" } }),
            "filters.has_email",
        ),
        (
            json!({ "name": "x", "filters": { "created_after": "x" } }),
            "filters.created_after",
        ),
        (
            json!({ "name": "x", "filters": { "created_before": "0000-01-01T00:00:00Z" } }),
            "filters.created_before",
        ),
        (
            json!({ "name": "x", "filters": { "created_after": "9999-12-31T23:59:59-03:00" } }),
            "filters.created_after",
        ),
        (
            json!({ "name": "x", "filters": { "attributes": { "a": [1] } } }),
            "filters.attributes.a",
        ),
    ];
    for (body, field) in cases {
        assert_eq!(ana.post("/api/segments", body.clone()).invalid(), [field], "{body}");
    }
    assert_eq!(server.db.count("FROM segments"), 0);
    let config = json!({ "name": "x", "segment_config": { "filters": { "attributes": { "a": {} } } } });
    assert_eq!(
        ana.post("/api/campaigns", config).invalid(),
        ["segment_config.filters.attributes.a"]
    );
    let config = json!({ "name": "x", "segment_config": { "filters": { "age": 3 } } });
    assert_eq!(
        ana.post("/api/campaigns", config).invalid(),
        ["segment_config.filters.age"]
    );
    let path = segment_path(&create_segment(&ana, json!({ "name": "é".repeat(100) })));
    assert_eq!(ana.put(&path, json!({ "name": "" })).invalid(), ["name"]);
    let contact = ana.contact("Ana", &phone(1));
    for (method, status) in [("POST", 200), ("DELETE", 204)] {
        let call = |body: Value| ana.request(method, &format!("{path}/members")).json(&body).send();
        assert_eq!(call(json!({})).invalid(), ["contact_ids"]);
        assert_eq!(
            call(json!({ "contact_ids": [contact, 7] })).invalid(),
            ["contact_ids[1]"]
        );
        assert_eq!(
            call(json!({ "contact_ids": vec![&contact; 1001] })).invalid(),
            ["contact_ids"]
        );
        assert_eq!(call(json!({ "contact_ids": vec![&contact; 1000] })).status, status);
    }
}

#[test]
fn segment_counts_members_and_matches_once() {
    let server = Server::new();
    let ana = server.owner();
    let ids = create_contacts(
        &ana,
        &[
            ("Bia", "Santos"),
            ("Caio", "Natal"),
            ("Duda", "Santos"),
            ("Eva", "Recife"),
        ],
    );
    let path = segment_path(&create_segment(
        &ana,
        json!({ "name": "S", "filters": { "attributes": { "cidade": "Santos" } } }),
    ));
    assert_eq!(change_members(&ana, "POST", &path, &[&ids[0], &ids[1]]), 3);
    assert_eq!(
        change_members(&ana, "POST", &path, &[&ids[1], &ids[1]]),
        3,
        "adding a member twice changes nothing"
    );
    let listed = |path: &str| {
        let id = path.rsplit('/').next().unwrap();
        let list = ana.get(&format!("/api/contacts?segment_id={id}")).ok();
        let names = list["data"].as_array().unwrap().iter().map(|row| text(&row["name"]));
        names.collect::<Vec<_>>()
    };
    assert_eq!(listed(&path), ["Duda", "Caio", "Bia"]);
    // A contact that matches the filters stays after its removal from the members. Unknown ids are ignored.
    let unknown_id = Uuid::now_v7().to_string();
    assert_eq!(
        change_members(&ana, "DELETE", &path, &[&ids[0], &ids[3], &unknown_id]),
        3
    );
    assert_eq!(change_members(&ana, "DELETE", &path, &[&ids[1]]), 2);
    ana.delete(&format!("/api/contacts/{}", ids[2])).no_content();
    assert_eq!(ana.get(&path).ok()["members"], 1);
    assert_eq!(listed(&path), ["Bia"]);
    let refused = ana.post(
        &format!("{path}/members"),
        json!({ "contact_ids": [ids[0], unknown_id, ids[2]] }),
    );
    assert_eq!(refused.invalid(), ["contact_ids[1]", "contact_ids[2]"]);
    assert_eq!(change_members(&ana, "POST", &path, &[]), 1);
}

#[test]
fn another_accounts_contact_or_segment_is_not_found() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let foreign = bia.contact("Of bia", &phone(1));
    let path = segment_path(&create_segment(&ana, json!({ "name": "S" })));
    let add = |id: &str| ana.post(&format!("{path}/members"), json!({ "contact_ids": [id] }));
    let (foreign_reply, unknown_reply) = (add(&foreign), add(&Uuid::now_v7().to_string()));
    assert_eq!(foreign_reply.text, unknown_reply.text);
    assert_eq!(foreign_reply.invalid(), ["contact_ids[0]"]);
    assert_eq!(change_members(&ana, "DELETE", &path, &[&foreign]), 0);

    let foreign_path = segment_path(&create_segment(&bia, json!({ "name": "Of bia" })));
    assert_eq!(change_members(&bia, "POST", &foreign_path, &[&foreign]), 1);
    let own = ana.contact("Own", &phone(2));
    for (method, ids) in [("POST", json!([own])), ("DELETE", json!([foreign]))] {
        let request = ana.request(method, &format!("{foreign_path}/members"));
        request
            .json(&json!({ "contact_ids": ids }))
            .send()
            .refused(404, "NOT_FOUND");
    }
    assert_eq!(bia.get(&foreign_path).ok()["members"], 1);
    assert_eq!(ana.get("/api/segments").ok()["data"].as_array().unwrap().len(), 1);
}

#[test]
fn campaign_sends_to_its_segment_and_refuses_a_deleted_one() {
    let server = Server::new();
    let ana = server.owner();
    let ids = create_contacts(&ana, &[("Bia", "Santos"), ("Caio", "Natal"), ("Duda", "Santos")]);
    ana.put(&format!("/api/contacts/{}", ids[2]), json!({ "opted_out": true }))
        .ok();
    let segment = create_segment(
        &ana,
        json!({ "name": "Litoral", "filters": { "attributes": { "cidade": "Santos" } } }),
    );
    let path = segment_path(&segment);
    assert_eq!(change_members(&ana, "POST", &path, &[&ids[1]]), 3);
    let template = ana.approved("Oi {{1}}", &["Ana"]);
    let body = json!({ "name": "Oferta", "template_id": template, "segment_id": segment["id"] });
    let campaign = ana.campaign(body.clone());
    assert_eq!(
        ana.execute(&campaign).ok()["total"],
        2,
        "a contact who opted out is no recipient"
    );
    let late = ana.campaign(body.clone());
    ana.delete(&path).no_content();
    let refused = ana.execute(&late).refused(400, "VALIDATION_ERROR");
    assert!(text(&refused["message"]).contains("\"Litoral\""), "{refused}");
    assert_eq!(ana.status(&late), "draft");
    assert_eq!(
        server
            .db
            .count(&format!("FROM campaign_sends WHERE campaign_id = '{late}'")),
        0
    );
    // No new campaign can select the deleted segment.
    assert_eq!(ana.post("/api/campaigns", body).invalid(), ["segment_id"]);
    let id = text(&segment["id"]);
    assert_eq!(
        ana.get(&format!("/api/contacts?segment_id={id}")).ok()["data"],
        json!([])
    );
}

#[test]
fn segment_list_is_paged_by_cursor() {
    let server = Server::new();
    let ana = server.owner();
    for number in 0..25 {
        create_segment(&ana, json!({ "name": format!("S{number}") }));
    }
    let first = ana.get("/api/segments").ok();
    assert_eq!(
        (first["data"].as_array().unwrap().len(), &first["hasMore"]),
        (20, &json!(true))
    );
    assert_eq!(first["data"][0]["name"], "S24");
    let cursor = text(&first["nextCursor"]);
    let second = ana.get(&format!("/api/segments?limit=1000&cursor={cursor}")).ok();
    assert_eq!(
        (second["data"].as_array().unwrap().len(), &second["hasMore"]),
        (5, &json!(false))
    );
    assert_eq!(
        (&second["data"][4]["name"], &second["nextCursor"]),
        (&json!("S0"), &json!(null))
    );
    assert_eq!(ana.get("/api/segments?cursor=x").invalid(), ["cursor"]);
}
