//! Direct messages whose statuses come early or late, and batches that a lost database interrupts.

use std::thread;
use std::time::{Duration, Instant};

use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::harness::runs::{usage, without_statuses};
use crate::harness::users::{User, now};
use crate::harness::{Server, eventually, text, until};

const NUMBER: &str = "106500000001";
const ANA: &str = "+5531988887777";

fn get(user: &User<'_>, id: &str) -> Value {
    user.get(&format!("/api/messages/{id}")).ok()
}

fn create(user: &User<'_>) -> String {
    let template = user.approved("Oi", &[]);
    let body = json!({ "to": { "phone": ANA }, "template": { "id": template } });
    text(&user.post("/api/messages", body).created()["id"])
}

#[test]
fn status_that_comes_before_the_record_is_applied() {
    const HANG: Duration = Duration::from_secs(6);
    let server = Server::new();
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let ms = u64::try_from(HANG.as_millis()).unwrap();
    server
        .whatsapp
        .script(vec![WhatsappFault::send(WhatsappFaultKind::Hang { ms })]);
    let begun = Instant::now();
    let id = create(&ana);
    let read = eventually("the message is read", || {
        Some(get(&ana, &id)).filter(|message| message["status"] == "read")
    });
    assert!(begun.elapsed() < HANG, "the call was over before the status came");
    assert!(read["wa_message_id"].is_string());
    assert_eq!(usage(&server, &ana.account), "0 0", "it counts as sent");
    thread::sleep(HANG.saturating_sub(begun.elapsed()) + Duration::from_secs(1));
    let after = get(&ana, &id);
    assert_eq!(
        (&after["status"], &after["sent_at"]),
        (&read["status"], &read["sent_at"])
    );
    assert_eq!(server.whatsapp.sends().len(), 1);
}

#[test]
fn read_status_after_failed_changes_nothing() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let refusal = WhatsappFaultKind::error(131_026, "not on WhatsApp");
    server.whatsapp.script(vec![WhatsappFault::send(refusal)]);
    let id = create(&ana);
    let failed = eventually("the message fails", || {
        Some(get(&ana, &id)).filter(|message| message["status"] == "failed")
    });
    let status = json!({ "object": "whatsapp_business_account", "entry": [{ "id": "1", "changes": [{ "field": "messages",
        "value": { "metadata": { "phone_number_id": NUMBER }, "statuses": [{ "id": "wamid.late", "status": "read",
            "timestamp": now().to_string(), "recipient_id": &ANA[1..], "biz_opaque_callback_data": id }] } }] }] });
    assert_eq!(server.callback(&status).status, 200);
    until("the callback is applied", || {
        server.db.count("FROM whatsapp_callbacks") == 0
    });
    let after = get(&ana, &id);
    for field in ["status", "error_code", "error_message", "sent_at", "conversation_id"] {
        assert_eq!(after[field], failed[field], "{field}");
    }
    let totals = ana.get("/api/analytics/messages").ok()["totals"].clone();
    assert_eq!((&totals["failed"], &totals["read"]), (&json!(1), &json!(0)));
}

#[test]
fn failed_message_says_whether_another_one_could_reach_the_contact() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let template = ana.approved("Oi", &[]);
    let send = |code: Option<u32>| {
        let faults = code.map(|code| WhatsappFault::send(WhatsappFaultKind::error(code, "no")));
        server.whatsapp.script(faults.into_iter().collect());
        let body = json!({ "to": { "phone": ANA }, "template": { "id": template } });
        let id = text(&ana.post("/api/messages", body).created()["id"]);
        let message = eventually("the message ends", || {
            Some(get(&ana, &id)).filter(|message| message["status"] != "pending")
        });
        (
            message["status"].clone(),
            message["failure_class"].clone(),
            message["retry_after"].is_string(),
        )
    };
    assert_eq!(send(None), (json!("sent"), json!(null), false));
    assert_eq!(send(Some(131_051)), (json!("failed"), json!("again"), false));
    assert_eq!(send(Some(131_049)), (json!("failed"), json!("later"), true));
    assert_eq!(send(Some(131_050)), (json!("failed"), json!("never"), false));
    // WhatsApp said that the person opted out.
    let again = json!({ "to": { "phone": ANA }, "template": { "id": template } });
    let refused = ana.post("/api/messages", again).refused(400, "VALIDATION_ERROR");
    assert_eq!(refused["details"]["reason"], "opted_out");
}

/// The statement, and the commit, wait long enough for a test to end their connection.
const SLOW_INSERT: &str = "
    CREATE FUNCTION wait_a_while() RETURNS trigger LANGUAGE plpgsql AS
      'BEGIN PERFORM pg_sleep(0.7); RETURN NULL; END';
    CREATE TRIGGER slow AFTER INSERT ON direct_messages FOR EACH STATEMENT EXECUTE FUNCTION wait_a_while()";
const SLOW_COMMIT: &str = "
    DROP TRIGGER slow ON direct_messages;
    CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON direct_messages DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
      WHEN (NEW.client_reference = 'r0') EXECUTE FUNCTION wait_a_while()";

#[test]
fn batch_without_its_database_is_stored_as_a_whole_or_not_at_all() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let template = ana.approved("Oi", &[]);
    let items: Vec<Value> = (0..200)
        .map(|number| {
            json!({ "to": { "phone": format!("+55119612{number:05}") }, "template": { "id": template },
                "client_reference": format!("r{number}"), "send_at": "2000-01-01T00:00:00Z" })
        })
        .collect();
    let batch = json!({ "messages": items });
    for trigger in [SLOW_INSERT, SLOW_COMMIT] {
        server.db.run(trigger);
        let reply = thread::scope(|scope| {
            let request = ana.request("POST", "/api/messages/batch").json(&batch);
            let waiting = scope.spawn(|| request.send());
            until("the connection is ended", || {
                server.db.count(
                    "FROM pg_stat_activity WHERE CASE WHEN datname = current_database() AND pid <> pg_backend_pid()
                       AND wait_event = 'PgSleep' THEN pg_terminate_backend(pid) ELSE false END",
                ) > 0
            });
            waiting.join().unwrap()
        });
        assert_eq!(reply.status, 503, "{trigger}: {}", reply.text);
        for table in [
            "direct_messages",
            "contacts",
            "direct_message_queues",
            "message_usage_slots",
        ] {
            assert_eq!(server.db.count(&format!("FROM {table}")), 0, "{trigger}: {table}");
        }
    }
    server.db.run("DROP TRIGGER slow ON direct_messages");
    // The caller repeats its request with the same references.
    let report = ana.post("/api/messages/batch", batch.clone()).ok();
    assert_eq!((&report["accepted"], &report["refused"]), (&json!(200), &json!(0)));
    let again = ana.post("/api/messages/batch", batch).ok();
    assert_eq!(
        (&again["duplicates"], server.db.count("FROM direct_messages")),
        (&json!(200), 200)
    );
}

fn failed(user: &User<'_>, id: &str) -> Value {
    eventually("the message failed", || {
        Some(get(user, id)).filter(|message| message["status"] == "failed")
    })
}

/// What WhatsApp's refusal of one message says of its template holds for all others.
#[test]
fn refused_template_of_a_message_is_not_tried_again() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    for (code, status) in [(132_015, "paused"), (132_016, "disabled")] {
        let refusal = WhatsappFaultKind::error(code, "The template is stopped.");
        server.whatsapp.script(vec![WhatsappFault::send(refusal)]);
        let template = ana.approved("Oi", &[]);
        let body = json!({ "to": { "phone": ANA }, "template": { "id": template } });
        let id = text(&ana.post("/api/messages", body.clone()).created()["id"]);
        assert_eq!(failed(&ana, &id)["error_code"], code);
        let calls = server.whatsapp.ledger().len();
        let shown = ana.get(&format!("/api/templates/{template}")).ok();
        assert_eq!(shown["meta_status"], status);
        let refused = ana.post("/api/messages", body).refused(400, "VALIDATION_ERROR");
        assert_eq!(refused["details"]["reason"], "template_not_approved");
        let campaign = ana.campaign(json!({ "name": "Oferta", "template_id": template }));
        let refused = ana
            .request("POST", &format!("/api/campaigns/{campaign}/execute"))
            .send();
        refused.refused(400, "VALIDATION_ERROR");
        assert_eq!(server.whatsapp.ledger().len(), calls);
    }
}

/// WhatsApp drops a message that it accepted if it pauses the template meanwhile.
#[test]
fn status_of_a_dropped_message_pauses_its_template_once() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let template = ana.approved("Oi", &[]);
    let body = json!({ "to": { "phone": ANA }, "template": { "id": template } });
    let id = text(&ana.post("/api/messages", body).created()["id"]);
    eventually("the message is sent", || {
        Some(get(&ana, &id)).filter(|message| message["status"] == "sent")
    });
    let status = json!({ "object": "whatsapp_business_account", "entry": [{ "id": "1", "changes": [{ "field": "messages",
        "value": { "metadata": { "phone_number_id": NUMBER }, "statuses": [{ "id": get(&ana, &id)["wa_message_id"],
            "status": "failed", "timestamp": now().to_string(), "biz_opaque_callback_data": id,
            "errors": [{ "code": 132_015, "title": "Template is paused" }] }] } }] }] });
    let path = format!("/api/templates/{template}");
    assert_eq!(server.callback(&status).status, 200);
    failed(&ana, &id);
    assert_eq!(ana.get(&path).ok()["meta_status"], "paused");
    // WhatsApp repeats a callback for days. Meanwhile it may have approved the template again.
    server.db.run("UPDATE message_templates SET meta_status = 'approved'");
    assert_eq!(server.callback(&status).status, 200);
    assert_eq!(ana.get(&path).ok()["meta_status"], "approved");
}

/// The number is refused for a quarter of a minute, the message expires before.
#[test]
fn held_message_fails_when_it_expires() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let refusal = WhatsappFaultKind::error(131_042, "Not paid");
    server.whatsapp.script(vec![WhatsappFault::send(refusal)]);
    let template = ana.approved("Oi", &[]);
    let expires_at = time::OffsetDateTime::from_unix_timestamp(i64::try_from(now() + 4).unwrap()).unwrap();
    let expires_at = expires_at
        .format(&time::format_description::well_known::Rfc3339)
        .unwrap();
    let body = json!({ "to": { "phone": ANA }, "template": { "id": template }, "expires_at": expires_at });
    let begun = Instant::now();
    let id = text(&ana.post("/api/messages", body).created()["id"]);
    let held = eventually("the message is held", || {
        Some(get(&ana, &id)).filter(|message| message["phase"] == "held")
    });
    assert_eq!(held["hold_reason"], "number");
    let message = failed(&ana, &id);
    assert!(text(&message["error_message"]).contains("expired"), "{message}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(server.whatsapp.sends().len(), 1, "the refused call alone");
}
