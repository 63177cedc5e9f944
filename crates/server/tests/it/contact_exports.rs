//! Exports of a contact: what the file has, who may read it, and that it expires.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api_keys::create_key;
use crate::harness::runs::{final_status, without_statuses};
use crate::harness::users::{User, now};
use crate::harness::{Server, eventually, text, until};
use crate::retention::{NUMBER, image_of, lines};

/// The sender of [`image_of`].
const PHONE: &str = "+5531988887777";

/// A contact with a row of every kind, and another one. Returns the first one.
fn person(user: &User<'_>) -> String {
    let server = user.server;
    user.profile_at(NUMBER);
    let file = recado_simulators::whatsapp::FileSettings::of(b"picture", "image/jpeg");
    let media_id = server.whatsapp.add_file(file);
    assert_eq!(server.callback(&image_of("wamid.1", &media_id, now())).status, 200);
    until("the file is stored", || {
        server.db.count("FROM message_media WHERE state = 'ready'") == 1
    });
    let contact = text(&user.get("/api/contacts").ok()["data"][0]["id"]);
    let tag = user.tag("vip");
    user.put(&format!("/api/contacts/{contact}/tags"), json!({ "tag_ids": [tag] }))
        .ok();
    let segment = text(&user.post("/api/segments", json!({ "name": "s" })).created()["id"]);
    let members = json!({ "contact_ids": [contact] });
    user.post(&format!("/api/segments/{segment}/members"), members).ok();
    let other = user.contact("Outra Pessoa", "+5511961234567");
    let at = "2026-11-01T12:00:00Z";
    for phone in [PHONE, "+5511961234567"] {
        user.post(
            "/api/events",
            json!({ "events": [{ "metric_name": "visit", "contact_phone": phone, "source": "site", "value": 2,
                "properties": { "of": phone } }] }),
        )
        .expect(200);
        let order = json!({ "external_id": phone, "platform": "loja", "contact_phone": phone, "status": "paid", "total": 10,
            "placed_at": at, "paid_at": at, "items": [{ "product_id": "p", "name": "Tenis", "quantity": 1, "price": 10 }] });
        user.post("/api/orders", json!({ "orders": [order] })).expect(200);
        let cart = json!({ "external_id": phone, "platform": "loja", "contact_phone": phone, "status": "open", "total": 3,
            "created_at": at });
        user.post("/api/carts", json!({ "carts": [cart] })).expect(200);
    }
    for id in [&contact, &other] {
        let link = json!({ "original_url": "https://loja.example/oferta", "contact_id": id });
        user.post("/api/links", link).created();
    }
    let template = user.approved("Oi", &[]);
    let message = json!({ "to": { "contact_id": contact }, "template": { "id": template } });
    user.post("/api/messages", message).created();
    let campaign = user.plain_campaign();
    user.send(&campaign);
    final_status(user, &campaign);
    contact
}

fn export(user: &User<'_>, contact: &str) -> Value {
    let response = user.post(&format!("/api/contacts/{contact}/export"), json!({}));
    let path = response.header("location").map(str::to_owned);
    let receipt = response.expect(202)["data"].clone();
    assert_eq!(path, Some(format!("/api/exports/{}", text(&receipt["id"]))));
    receipt
}

/// Requests an export, and waits for its file. Returns the path of the receipt.
pub fn finished_export(user: &User<'_>, contact: &str) -> String {
    let path = format!("/api/exports/{}", text(&export(user, contact)["id"]));
    until("the file is written", || user.get(&path).ok()["state"] == "done");
    path
}

#[test]
fn export_has_everything_of_the_person_and_of_nobody_else() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let contact = person(&ana);
    let receipt = export(&ana, &contact);
    assert_eq!(
        (&receipt["contact_id"], &receipt["state"]),
        (&json!(contact), &json!("running"))
    );
    let path = format!("/api/exports/{}", text(&receipt["id"]));
    let done = eventually("the file is written", || {
        Some(ana.get(&path).ok()).filter(|receipt| receipt["state"] == "done")
    });
    assert_eq!(done["expires_at"], receipt["expires_at"]);

    let file = ana.get(&format!("{path}/file"));
    assert_eq!(
        (file.status, file.header("content-type")),
        (200, Some("application/gzip"))
    );
    let lines = lines(&file.body);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for line in &lines {
        *counts.entry(text(&line["type"])).or_default() += 1;
        let row = line.to_string();
        assert!(!row.contains("11961234567") && !row.contains("Outra"), "{row}");
        assert!(!row.contains(&ana.account), "{row}");
    }
    // The sender of the image has no user id, and scores are computed at night.
    let expected = [
        ("campaign_send", 1),
        ("cart", 1),
        ("contact", 1),
        ("conversation", 1),
        ("direct_message", 1),
        ("link", 1),
        ("message", 1),
        ("message_file", 1),
        ("metric_event", 1),
        ("metric_totals", 1),
        ("order", 1),
        ("segment", 1),
        ("tag", 1),
    ];
    let counts: Vec<(&str, usize)> = counts.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
    assert_eq!(counts, expected);
    let of = |kind: &str| lines.iter().find(|line| line["type"] == kind).unwrap()["data"].clone();
    assert_eq!(
        (&of("contact")["id"], &of("contact")["phone"]),
        (&json!(contact), &json!(PHONE))
    );
    assert_eq!(of("order")["items"][0]["name"], "Tenis");
    // What WhatsApp sent of the message, whatever its kind.
    assert_eq!(of("message")["payload"]["image"]["mime_type"], "image/jpeg");
    assert_eq!(of("metric_totals")[0]["event_count"], 1);
    assert_eq!(of("metric_event")["properties"], json!({ "of": PHONE }));
    // A file is an entry with its id, by which it can be read.
    let media = text(&of("message_file")["id"]);
    assert_eq!(ana.get(&format!("/api/media/{media}")).text, "picture");

    server.db.wait_for_outbox();
    let entries = ana.get("/api/audit-logs?entity_type=contact&action=export").ok();
    let entry = &entries["logs"][0];
    assert_eq!(
        (&entry["entity_id"], &entry["changes"]),
        (&json!(contact), &json!({ "export_id": receipt["id"] }))
    );
}

/// The file follows `same_person_as`, and has sends that are in the archive of their campaign.
#[test]
fn export_has_linked_contacts_and_archived_sends() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let contact = ana.contact("Bia", PHONE);
    let linked = ana.contact("Beatriz", "+5511961234568");
    let other = ana.contact("Outra Pessoa", "+5511961234567");
    server.db.run(&format!(
        "UPDATE contacts SET same_person_as = '{contact}' WHERE id = '{linked}'"
    ));
    let (archived, stored) = (ana.plain_campaign(), ana.plain_campaign());
    for id in [&archived, &stored] {
        ana.send(id);
        final_status(&ana, id);
    }
    server.db.run(&format!(
        "UPDATE campaigns SET completed_at = now() - interval '40 days' WHERE id = '{archived}'"
    ));
    ana.put("/api/retention", json!({ "campaign_sends_days": 30 })).ok();
    server.db.run(
        "UPDATE retention_settings SET next_run_at = now(),
           terms = (SELECT jsonb_object_agg(k, v || '{\"effective_at\": null}') FROM jsonb_each(terms) t (k, v))",
    );
    until("the sends have left", || {
        server.db.count("FROM campaign_archives WHERE removed_at IS NOT NULL") == 1
    });
    // Asked for under either contact, it has both.
    for (asked, second) in [(&contact, &linked), (&linked, &contact)] {
        let file = ana.get(&format!("{}/file", finished_export(&ana, asked)));
        let lines = lines(&file.body);
        let of = |kind: &str| {
            let of_kind = lines.iter().filter(|line| line["type"] == kind);
            of_kind.map(|line| text(&line["contact_id"])).collect::<Vec<_>>()
        };
        assert_eq!(of("contact"), [asked.clone(), second.clone()]);
        assert_eq!(of("campaign_send"), [asked.clone(), second.clone()]);
        let mut contacts = [asked.clone(), second.clone()];
        contacts.sort();
        let mut found = of("archived_send");
        found.sort();
        assert_eq!(found, contacts);
        for line in lines.iter().filter(|line| line["type"] == "archived_send") {
            let send = &line["data"];
            assert_eq!(
                (&send["campaign_id"], &send["status"]),
                (&json!(archived), &json!("sent"))
            );
            assert_eq!(
                (&send["campaign_name"], send.get("contact_id")),
                (&json!("Oferta"), None)
            );
        }
        assert!(lines.iter().all(|line| !line.to_string().contains(&other)));
    }
}

#[test]
fn export_is_for_managers_of_the_account_for_a_week() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let contact = ana.contact("Contato", PHONE);
    let request = format!("/api/contacts/{contact}/export");
    let path = finished_export(&ana, &contact);
    let file = format!("{path}/file");
    for role in ["member", "viewer"] {
        let user = server.member(&ana.account, role);
        user.post(&request, json!({})).refused(401, "AUTH_ERROR");
        user.get(&path).refused(401, "AUTH_ERROR");
        user.get(&file).refused(401, "AUTH_ERROR");
    }
    let key = create_key(&ana);
    server
        .get(&file)
        .header("X-API-Key", &key)
        .send()
        .refused(401, "AUTH_ERROR");
    assert_eq!(server.member(&ana.account, "admin").get(&file).status, 200);
    bia.post(&request, json!({})).refused(404, "NOT_FOUND");
    bia.get(&path).refused(404, "NOT_FOUND");
    bia.get(&file).refused(404, "NOT_FOUND");
    // A deleted contact is exported, too.
    ana.delete(&format!("/api/contacts/{contact}"));
    finished_export(&ana, &contact);
    assert_eq!(server.media.files().len(), 2);

    server.db.run("UPDATE contact_exports SET expires_at = now()");
    ana.get(&path).refused(404, "NOT_FOUND");
    ana.get(&file).refused(404, "NOT_FOUND");
    until("the files are deleted", || {
        server.media.files().is_empty() && server.db.count("FROM contact_exports") == 0
    });
}
