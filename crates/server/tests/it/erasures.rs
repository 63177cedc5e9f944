//! Erasure of a contact: receipts, what is left of the person in tables, files and feeds, and the opt-out that stays.

use std::collections::BTreeMap;

use recado_simulators::whatsapp::{FileSettings, Inbound, InboundFile};
use serde_json::{Value, json};

use crate::api_keys::create_key;
use crate::conversations::wait_for_callbacks;
use crate::harness::process::command;
use crate::harness::runs::{final_status, status, statuses};
use crate::harness::users::{User, now};
use crate::harness::{Server, eventually, text, until};
use crate::inbound_webhooks::Hook;
use crate::retention::NUMBER;

const PHONE: &str = "+5531988887777";
const EMAIL: &str = "eufrasia@segredo.example";
const NAME: &str = "Eufrasia Esquecida";
const USER_ID: &str = "BR.eufrasia77";

/// What belongs to the person. No other row of the account has it.
const SECRETS: [&str; 10] = [
    "5531988887777",
    "eufrasia@segredo.example",
    "eufrasia esquecida",
    "br.eufrasia77",
    "mensagem secreta",
    "resposta secreta",
    "legenda secreta",
    "atributo secreto",
    "propriedade secreta",
    "pagina-secreta",
];

pub fn erase(user: &User<'_>, contact: &str) -> Value {
    let response = user.post(&format!("/api/contacts/{contact}/erase"), json!({}));
    let path = response.header("location").map(str::to_owned);
    let receipt = response.expect(202)["data"].clone();
    assert_eq!(path, Some(format!("/api/erasures/{}", text(&receipt["id"]))));
    receipt
}

#[track_caller]
pub fn wait_until_done(user: &User<'_>, receipt: &Value) -> Value {
    let path = format!("/api/erasures/{}", text(&receipt["id"]));
    eventually("the erasure is done", || {
        Some(user.get(&path).ok()).filter(|receipt| receipt["state"] == "done")
    })
}

/// Erases a new contact, and waits for the end. Returns the id of the receipt.
pub fn finished_erasure(user: &User<'_>) -> String {
    let contact = user.contact("Apagado", "+5511962222222");
    text(&wait_until_done(user, &erase(user, &contact))["id"])
}

/// The tables that have one of the texts, in clear or as hexadecimal bytes.
pub fn tables_with(dump: &BTreeMap<String, String>, secrets: &[&str]) -> Vec<String> {
    let mut found = vec![];
    for (table, rows) in dump {
        let rows = rows.to_lowercase();
        for secret in secrets {
            if rows.contains(secret) || rows.contains(&hex::encode(secret)) {
                found.push(format!("{table}: {secret}"));
            }
        }
    }
    found
}

/// Tag, segment, metric, order, cart and link of the contact.
fn add_rows(user: &User<'_>, contact: &str) {
    let tag = user.tag("vip");
    user.put(&format!("/api/contacts/{contact}/tags"), json!({ "tag_ids": [tag] }))
        .ok();
    let segment = text(&user.post("/api/segments", json!({ "name": "s" })).created()["id"]);
    user.post(
        &format!("/api/segments/{segment}/members"),
        json!({ "contact_ids": [contact] }),
    )
    .ok();
    let properties = json!({ "nota": "propriedade secreta" });
    let event = json!({ "metric_name": "visit", "contact_phone": PHONE, "source": "site", "value": 2, "properties": properties });
    user.post("/api/events", json!({ "events": [event] })).expect(200);
    let at = "2026-11-01T12:00:00Z";
    let order = json!({ "external_id": "1001", "platform": "loja", "contact_phone": PHONE, "status": "paid", "total": 10,
        "placed_at": at, "paid_at": at, "items": [{ "product_id": "p", "name": "Tenis", "quantity": 1, "price": 10 }] });
    user.post("/api/orders", json!({ "orders": [order] })).expect(200);
    let cart = json!({ "external_id": "7", "platform": "loja", "contact_phone": PHONE, "status": "open", "total": 3, "created_at": at });
    user.post("/api/carts", json!({ "carts": [cart] })).expect(200);
    let link = json!({ "original_url": "https://loja.example/pagina-secreta?f=eufrasia", "contact_id": contact });
    user.post("/api/links", link).created();
}

/// A person with a row in every table. Returns contact and campaign.
fn person(user: &User<'_>) -> (String, String) {
    let server = user.server;
    let hook = Hook::new(user);
    add_feed(user);
    user.profile_at(NUMBER);
    let body = json!({ "name": NAME, "phone": PHONE, "email": EMAIL, "attributes": { "nota": "atributo secreto" } });
    let created = user
        .request("POST", "/api/contacts")
        .header("Idempotency-Key", "person")
        .json(&body)
        .send();
    let contact = text(&created.created()["id"]);
    let media_id = server.whatsapp.add_file(FileSettings::of(b"picture", "image/jpeg"));
    let file = InboundFile {
        kind: "image".into(),
        id: media_id,
        mime_type: "image/jpeg".into(),
    };
    let message = Inbound {
        user_id: Some(USER_ID.into()),
        name: Some(NAME.into()),
        ..Inbound::text(NUMBER, PHONE, "mensagem secreta")
    };
    server.whatsapp.inbound(&message);
    server.whatsapp.inbound(&Inbound {
        file: Some(file),
        ..Inbound::text(NUMBER, PHONE, "legenda secreta")
    });
    wait_for_callbacks(server);
    until("the file is stored", || {
        server.db.count("FROM message_media WHERE state = 'ready'") == 1
    });
    let conversation = text(&user.get("/api/conversations").ok()["data"][0]["id"]);
    let reply = json!({ "text": "resposta secreta" });
    user.post(&format!("/api/conversations/{conversation}/messages"), reply)
        .created();
    add_rows(user, &contact);
    let upsert = json!({ "type": "contact.upserted", "data": { "name": NAME, "phone": PHONE } });
    assert_eq!(hook.call(server, "m1", &upsert).status, 200);
    let template = user.approved("Oi", &[]);
    let message = json!({ "to": { "phone": PHONE }, "template": { "id": template }, "client_reference": "ref-1" });
    user.post("/api/messages", message).created();
    let later =
        json!({ "to": { "contact_id": contact }, "template": { "id": template }, "send_at": "2026-12-20T12:00:00Z" });
    user.post("/api/messages", later).created();
    let campaign = user.plain_campaign();
    user.send(&campaign);
    final_status(user, &campaign);
    user.post(&format!("/api/contacts/{contact}/export"), json!({}))
        .expect(202);
    until("the export is written", || {
        server.db.count("FROM contact_exports WHERE state = 'done'") == 1
    });
    until("the direct message has left", || {
        server
            .db
            .count("FROM direct_messages WHERE status = 'pending' AND send_at <= now()")
            == 0
    });
    wait_for_callbacks(server);
    server.db.wait_for_outbox();
    (contact, campaign)
}

fn check_removed(done: &Value) {
    let removed = done["removed"].as_object().unwrap();
    for (kind, count) in [
        ("contacts", 1),
        ("user_ids", 1),
        ("tags", 1),
        ("segments", 1),
        ("exports", 1),
        ("files", 1),
        ("messages", 3),
        ("direct_messages", 2),
        ("campaign_sends", 1),
        ("metric_events", 1),
        ("orders", 1),
        ("carts", 1),
        ("links", 1),
        ("webhook_logs", 1),
        ("stored_responses", 1),
    ] {
        assert_eq!(removed.get(kind), Some(&json!(count)), "{kind} of {removed:?}");
    }
    assert!(removed["webhook_events"].as_i64() > Some(5) && removed["webhook_deliveries"].as_i64() > Some(5));
}

/// Searches all tables, files and the log for the person. `bia` has a contact with the same number, and another contact
/// of the account has a message with `others_id`.
fn search(server: &Server, bia: &User<'_>, same_number: &str, wa_ids: &[String], others_id: &str) {
    let after = server.db.dump();
    let after: BTreeMap<_, _> = after
        .into_iter()
        .map(|(table, rows)| {
            let rows = rows
                .split('|')
                .filter(|row| !row.contains(&bia.account) && !row.contains(same_number));
            (table, rows.collect::<Vec<_>>().join("|"))
        })
        .collect();
    assert_eq!(tables_with(&after, &SECRETS), Vec::<String>::new());
    let ids: Vec<String> = wa_ids
        .iter()
        .filter(|id| *id != others_id)
        .map(|id| id.to_lowercase())
        .collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(tables_with(&after, &ids), Vec::<String>::new());
    assert!(tables_with(&after, &[&others_id.to_lowercase()]).len() >= 2);
    // The file by which a restored backup is erased again is left.
    let files = server.media.files();
    assert!(files.len() == 1 && files[0].contains("erasures"), "{files:?}");
    let listed = server.media.contents();
    assert_eq!(tables_with(&listed, &SECRETS), Vec::<String>::new());
    let log = server.log().to_lowercase();
    for secret in SECRETS {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
}

#[test]
fn erasure_leaves_nothing_of_the_person() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let other = ana.contact("Outra Pessoa", "+5511961234567");
    let (contact, campaign) = person(&ana);
    let same_number = bia.contact("Pessoa de Bia", PHONE);
    let bias_rows = server.db.dump_account(&bia.account);
    let before = server.db.dump_account(&ana.account);
    for secret in SECRETS {
        assert!(
            !tables_with(&before, &[secret]).is_empty(),
            "{secret} is stored nowhere"
        );
    }
    let wa_ids: Vec<String> = ["messages", "direct_messages", "campaign_sends"]
        .iter()
        .flat_map(|table| {
            server.db.rows(&format!(
                "SELECT wa_message_id FROM {table} WHERE wa_message_id IS NOT NULL"
            ))
        })
        .filter_map(|mut row| row.remove(0))
        .collect();
    assert!(wa_ids.len() >= 5, "{wa_ids:?}");
    // The other contact is in the campaign, too.
    let others_id = server.db.text(&format!(
        "SELECT wa_message_id FROM campaign_sends WHERE contact_id = '{other}'"
    ));
    let stats = ana.stats(&campaign);

    let receipt = erase(&ana, &contact);
    assert_eq!(
        (&receipt["contact_id"], &receipt["state"]),
        (&json!(contact), &json!("running"))
    );
    let list = ana.get("/api/contacts").ok();
    assert_eq!(list["data"].as_array().unwrap().len(), 1, "{list}");
    ana.get(&format!("/api/contacts/{contact}")).refused(404, "NOT_FOUND");
    let done = wait_until_done(&ana, &receipt);
    assert!(!done["finished_at"].is_null());
    server.db.wait_for_outbox();

    search(&server, &bia, &same_number, &wa_ids, &others_id);
    assert_eq!(server.db.dump_account(&bia.account), bias_rows);

    check_removed(&done);
    // Rows and sums stay.
    assert_eq!(ana.stats(&campaign), stats);
    assert_eq!(server.db.count("FROM campaign_sends"), 2);
    // The list leaves out the sends to deleted contacts.
    assert_eq!(ana.sends(&campaign).len(), 1);
    let verified = command(&["rollups", "verify"], &server.environment()).output().unwrap();
    assert!(
        verified.status.success(),
        "{}",
        String::from_utf8_lossy(&verified.stdout)
    );
    // A scheduled message does not leave.
    assert_eq!(server.db.count("FROM direct_messages WHERE status = 'pending'"), 0);
    check_feed(&ana, &contact, &receipt);
}

/// The feed has the erasure, and nothing else of the person.
fn check_feed(user: &User<'_>, contact: &str, receipt: &Value) {
    let feed = user.get("/api/webhooks/events?limit=100").ok();
    let of_person = feed["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event.to_string().contains(contact));
    let of_person: Vec<(&Value, &Value)> = of_person.map(|event| (&event["type"], &event["data"])).collect();
    let expected = json!({ "id": contact, "erased_at": receipt["requested_at"] });
    assert_eq!(of_person, [(&json!("contact.erased"), &expected)]);
    let entries = user.get("/api/audit-logs?entity_type=contact_erasure").ok();
    let entry = &entries["logs"][0];
    assert_eq!(
        (&entry["entity_id"], &entry["action"]),
        (&receipt["id"], &json!("delete"))
    );
    assert!(entry["changes"].is_null(), "{entry}");
}

#[test]
fn erasing_twice_gives_one_receipt() {
    let server = Server::new();
    let ana = server.owner();
    let contact = ana.contact(NAME, PHONE);
    let receipt = erase(&ana, &contact);
    assert_eq!(erase(&ana, &contact)["id"], receipt["id"]);
    wait_until_done(&ana, &receipt);
    let again = erase(&ana, &contact);
    assert_eq!((&again["id"], &again["state"]), (&receipt["id"], &json!("done")));
    // A deleted contact is erased, too.
    let deleted = ana.contact("Bia", "+5511961234567");
    ana.delete(&format!("/api/contacts/{deleted}")).no_content();
    let second = erase(&ana, &deleted);
    wait_until_done(&ana, &second);
    assert_eq!(
        server.db.count("FROM contacts WHERE name <> '' OR phone IS NOT NULL"),
        0
    );
    let list = ana.get("/api/erasures?limit=1").ok();
    assert_eq!(
        (&list["data"][0]["id"], &list["hasMore"]),
        (&second["id"], &json!(true))
    );
    let cursor = text(&list["nextCursor"]);
    let rest = ana.get(&format!("/api/erasures?cursor={cursor}")).ok();
    assert_eq!(
        (&rest["data"][0]["id"], &rest["hasMore"]),
        (&receipt["id"], &json!(false))
    );
    server.db.wait_for_outbox();
    let entries = ana.get("/api/audit-logs?entity_type=contact_erasure").ok();
    assert_eq!(entries["logs"].as_array().unwrap().len(), 2);
    let long = json!({ "reason": "x".repeat(201) });
    assert_eq!(
        ana.post(&format!("/api/contacts/{contact}/erase"), long).invalid(),
        ["reason"]
    );
}

#[test]
fn erasure_is_for_managers_of_the_account() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let contact = ana.contact(NAME, PHONE);
    let request = format!("/api/contacts/{contact}/erase");
    let key = create_key(&ana);
    for role in ["member", "viewer"] {
        let user = server.member(&ana.account, role);
        user.post(&request, json!({})).refused(401, "AUTH_ERROR");
        user.get("/api/erasures").refused(401, "AUTH_ERROR");
    }
    server
        .post(&request)
        .header("X-API-Key", &key)
        .json(&json!({}))
        .send()
        .refused(401, "AUTH_ERROR");
    bia.post(&request, json!({})).refused(404, "NOT_FOUND");
    let receipt = erase(&server.member(&ana.account, "admin"), &contact);
    let path = format!("/api/erasures/{}", text(&receipt["id"]));
    bia.get(&path).refused(404, "NOT_FOUND");
    assert!(bia.get("/api/erasures").ok()["data"].as_array().unwrap().is_empty());
    server
        .get(&path)
        .header("X-API-Key", &key)
        .send()
        .refused(401, "AUTH_ERROR");
}

/// By API, by import, by an inbound webhook, and by a message of the person.
#[test]
fn opt_out_outlives_the_erasure() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let hook = Hook::new(&ana);
    let opted_out = json!({ "name": NAME, "phone": PHONE, "opted_out": true });
    let contact = text(&ana.post("/api/contacts", opted_out.clone()).created()["id"]);
    wait_until_done(&ana, &erase(&ana, &contact));
    let is_opted_out = |id: &str| !ana.get(&format!("/api/contacts/{id}")).ok()["opted_out_at"].is_null();
    let found = || text(&ana.get("/api/contacts").ok()["data"][0]["id"]);
    let created = ana
        .post("/api/contacts", json!({ "name": NAME, "phone": PHONE }))
        .created();
    assert!(!created["opted_out_at"].is_null(), "{created}");
    wait_until_done(&ana, &erase(&ana, &text(&created["id"])));

    assert_eq!(ana.import(format!("name,phone\n{NAME},{PHONE}\n")).ok()["imported"], 1);
    assert!(is_opted_out(&found()));
    let campaign = ana.plain_campaign();
    let preview = ana.post(&format!("/api/campaigns/{campaign}/preview"), json!({})).ok();
    assert_eq!(
        (&preview["recipients"], &preview["unreachable"]["opted_out"]),
        (&json!(0), &json!(1))
    );
    wait_until_done(&ana, &erase(&ana, &found()));

    let upsert = json!({ "type": "contact.upserted", "data": { "name": NAME, "phone": PHONE, "opted_out": false } });
    assert_eq!(hook.call(&server, "m1", &upsert).status, 200);
    assert!(is_opted_out(&found()));
    wait_until_done(&ana, &erase(&ana, &found()));

    server.whatsapp.inbound(&Inbound {
        timestamp: Some(now() + 2),
        ..Inbound::text(NUMBER, PHONE, "oi")
    });
    wait_for_callbacks(&server);
    assert!(is_opted_out(&found()));
    // The owner states a consent that is newer, and the next erasure deletes the hash.
    wait_until_done(&ana, &erase(&ana, &found()));
    let opted_in = json!({ "name": NAME, "phone": PHONE, "opted_out": false });
    let contact = text(&ana.post("/api/contacts", opted_in).created()["id"]);
    assert!(!is_opted_out(&contact));
    wait_until_done(&ana, &erase(&ana, &contact));
    assert_eq!(server.db.count("FROM erased_opt_outs"), 0);
}

fn add_feed(user: &User<'_>) {
    let endpoint = json!({ "name": "feed", "url": "https://nowhere.invalid/hook", "events": ["*"] });
    user.post("/api/webhooks", endpoint).created();
}

/// Copies that have an earlier number or address are found by the contact's id.
#[test]
fn erasure_removes_copies_with_earlier_values() {
    let server = Server::new();
    let ana = server.owner();
    add_feed(&ana);
    ana.profile_at(NUMBER);
    let body = json!({ "name": NAME, "phone": PHONE, "email": EMAIL });
    let created = ana
        .request("POST", "/api/contacts")
        .header("Idempotency-Key", "person")
        .json(&body)
        .send();
    let contact = text(&created.created()["id"]);
    let template = ana.approved("Oi", &[]);
    let message = json!({ "to": { "phone": PHONE }, "template": { "id": template } });
    ana.post("/api/messages", message).created();
    until("the message has left", || {
        server.db.count("FROM direct_messages WHERE status = 'pending'") == 0
    });
    wait_for_callbacks(&server);
    let changed = json!({ "phone": "+5531977776666", "email": "outra@segredo.example" });
    ana.put(&format!("/api/contacts/{contact}"), changed).ok();
    server.db.wait_for_outbox();
    assert!(!tables_with(&server.db.dump(), &["5531988887777"]).is_empty());
    let receipt = erase(&ana, &contact);
    wait_until_done(&ana, &receipt);
    server.db.wait_for_outbox();
    let earlier = ["5531988887777", "eufrasia@segredo.example"];
    let later = ["5531977776666", "outra@segredo.example"];
    assert_eq!(
        tables_with(&server.db.dump(), &[earlier, later].concat()),
        Vec::<String>::new()
    );
    check_feed(&ana, &contact, &receipt);
}

#[test]
fn status_after_the_erasure_stores_no_id() {
    let server = Server::start(crate::harness::runs::without_statuses());
    let ana = server.owner();
    add_feed(&ana);
    ana.profile_at(NUMBER);
    let contact = ana.contact(NAME, PHONE);
    let campaign = ana.plain_campaign();
    ana.send(&campaign);
    final_status(&ana, &campaign);
    let send = server.db.text("SELECT id FROM campaign_sends");
    let wamid = server.db.text("SELECT wa_message_id FROM campaign_sends");
    let receipt = erase(&ana, &contact);
    wait_until_done(&ana, &receipt);
    assert_eq!(
        server
            .callback(&statuses(NUMBER, &[status(&wamid, "delivered", Some(&send))]))
            .status,
        200
    );
    wait_for_callbacks(&server);
    let stored = server
        .db
        .text("SELECT status || ' ' || coalesce(wa_message_id, 'none') FROM campaign_sends");
    assert_eq!(stored, "delivered none");
    server.db.wait_for_outbox();
    check_feed(&ana, &contact, &receipt);
    assert_eq!(tables_with(&server.db.dump(), &SECRETS), Vec::<String>::new());
}

/// A message from before the erasure that WhatsApp delivers while it runs makes no new contact.
#[test]
fn old_message_during_the_erasure_is_not_stored() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let contact = ana.contact(NAME, PHONE);
    let receipt = erase(&ana, &contact);
    server.db.run("UPDATE erasures SET due_at = now() + interval '1 hour'");
    let old = Inbound {
        timestamp: Some(now() - 60),
        ..Inbound::text(NUMBER, PHONE, "mensagem secreta")
    };
    server.whatsapp.inbound(&old);
    wait_for_callbacks(&server);
    assert!(ana.get("/api/contacts").ok()["data"].as_array().unwrap().is_empty());
    server.db.run("UPDATE erasures SET due_at = now()");
    wait_until_done(&ana, &receipt);
    assert_eq!(tables_with(&server.db.dump(), &SECRETS), Vec::<String>::new());
    // A new message makes a new contact.
    server.whatsapp.inbound(&Inbound::text(NUMBER, PHONE, "sou eu"));
    wait_for_callbacks(&server);
    assert_eq!(ana.get("/api/contacts").ok()["data"].as_array().unwrap().len(), 1);
}

#[test]
fn killed_erasure_goes_on_where_it_was() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile_at(NUMBER);
    for text in ["mensagem secreta", "resposta secreta"] {
        server.whatsapp.inbound(&Inbound {
            name: Some(NAME.into()),
            ..Inbound::text(NUMBER, PHONE, text)
        });
    }
    wait_for_callbacks(&server);
    let contact = text(&ana.get("/api/contacts").ok()["data"][0]["id"]);
    let receipt = erase(&ana, &contact);
    server.kill();
    // A worker that died in the middle of a step.
    server.db.run(
        "UPDATE erasures SET step = 'messages', claim_id = gen_random_uuid(), due_at = now() + interval '2 seconds'",
    );
    server.serve_with(&[]);
    let done = wait_until_done(&ana, &receipt);
    assert_eq!(done["removed"]["messages"], 2);
    assert_eq!(tables_with(&server.db.dump(), &SECRETS), Vec::<String>::new());
}

/// A backup from before the erasure is restored: the receipts, and what was emptied, are as they were.
#[test]
fn restored_backup_is_erased_again() {
    let server = Server::new();
    let ana = server.owner();
    let opted_out = json!({ "name": NAME, "phone": PHONE, "opted_out": true });
    let contact = text(&ana.post("/api/contacts", opted_out).created()["id"]);
    let unknown = ana.contact("Depois do backup", "+5511961234567");
    wait_until_done(&ana, &erase(&ana, &contact));
    wait_until_done(&ana, &erase(&ana, &unknown));
    let doctor = || {
        let output = command(&["doctor"], &server.environment()).output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        text(&json!(lines.lines().find(|line| line.contains("erasures")).unwrap()))
    };
    let replay = || {
        let output = command(&["erasures", "replay"], &server.environment())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(doctor().starts_with("ok"), "{}", doctor());
    assert_eq!(replay(), "0 erasures requested again\n");
    server.db.run(&format!(
        "DELETE FROM erasures; DELETE FROM erased_opt_outs;
         UPDATE contacts SET name = '{NAME}', phone = '{PHONE}', erased_at = NULL, deleted_at = NULL, opted_out_at = NULL
           WHERE id = '{contact}';
         DELETE FROM contacts WHERE id = '{unknown}'"
    ));
    assert!(
        doctor().starts_with("fail") && doctor().contains("1 erasures"),
        "{}",
        doctor()
    );
    assert_eq!(replay(), "1 erasures requested again\n");
    assert!(doctor().starts_with("ok"), "{}", doctor());
    let receipt = ana.get("/api/erasures").ok()["data"][0].clone();
    assert_eq!(receipt["contact_id"], contact);
    wait_until_done(&ana, &receipt);
    // The opt-out is newer than the backup.
    let again = ana
        .post("/api/contacts", json!({ "name": NAME, "phone": PHONE }))
        .created();
    assert!(!again["opted_out_at"].is_null(), "{again}");
}
