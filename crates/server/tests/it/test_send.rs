//! Test sends of campaigns: one message to one phone number, outside the statistics.

use recado_simulators::whatsapp::{On, WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::harness::client::Reply;
use crate::harness::media::PNG;
use crate::harness::runs::{status, statuses, without_statuses};
use crate::harness::users::User;
use crate::harness::{Server, text, until};

const PHONE: &str = "+5511961234567";
const NUMBER: &str = "106500000001";

fn test_send(user: &User<'_>, campaign: &str, phone: &str) -> Reply {
    user.post(&format!("/api/campaigns/{campaign}/test"), json!({ "phone": phone }))
}

/// The month's usage as `sent/reserved/tests`; empty before the first reservation.
fn usage(server: &Server) -> String {
    server
        .db
        .text("SELECT sent || '/' || reserved || '/' || test_sends FROM message_usage")
}

fn count_audit_entries(server: &Server) -> i64 {
    server
        .db
        .count("FROM audit_logs WHERE action = 'create' AND entity_type = 'campaign_test'")
}

/// The rows of the tables that a test send must not change.
fn dump_statistics(server: &Server) -> Vec<String> {
    // The notification about a new number is moved later.
    server.db.wait_for_outbox();
    let tables = [
        "campaigns",
        "campaign_sends",
        "campaign_counters",
        "campaign_queue",
        "message_usage",
        "messages",
        "conversations",
        "contacts",
        "notifications",
    ];
    let dump = |table: &&str| {
        server.db.text(&format!(
            "SELECT string_agg(t::text, '|' ORDER BY t::text) FROM {table} t"
        ))
    };
    tables.iter().map(dump).collect()
}

/// A campaign whose template has two placeholders, the second mapped to an attribute.
fn mapped_campaign(user: &User<'_>) -> String {
    let template = user.approved("Oi {{1}}, use {{2}}.", &["Ana", "PROMO10"]);
    let variables = json!({ "2": "{attributes.cupom}" });
    user.campaign(json!({ "name": "Oferta", "template_id": template, "variables": variables }))
}

#[test]
fn test_send_uses_the_values_of_the_phones_contact() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let id = mapped_campaign(&ana);
    let body = json!({ "name": "Bia Lima", "phone": PHONE, "attributes": { "cupom": "BIA5" } });
    ana.post("/api/contacts", body).created();
    let before = dump_statistics(&server);
    let response = test_send(&ana, &id, "11 96123-4567").ok();
    let sends = server.whatsapp.sends();
    assert_eq!(sends.len(), 1);
    assert_eq!(sends[0].parameters, ["Bia", "BIA5"]);
    assert_eq!(sends[0].to.as_deref().map(|to| PHONE.ends_with(to)), Some(true));
    let wamid = text(&response["wa_message_id"]);
    assert_eq!(
        response,
        json!({ "sent": true, "simulated": false, "wa_message_id": wamid })
    );
    assert!(wamid.starts_with("wamid."), "{wamid}");
    // No contact has this phone number: the template's examples replace the missing values.
    test_send(&ana, &id, "+5511967654321").ok();
    assert_eq!(server.whatsapp.sends()[1].parameters, ["Ana", "PROMO10"]);
    assert_eq!(usage(&server), "0/0/2");
    server.db.run("DELETE FROM message_usage_slots");
    assert_eq!(dump_statistics(&server), before);
    assert_eq!(
        (ana.status(&id).as_str(), &ana.stats(&id)["total"]),
        ("draft", &json!(0))
    );
    until("the audit rows", || count_audit_entries(&server) == 2);
    let audit_rows = server
        .db
        .rows("SELECT changes, entity_id FROM audit_logs WHERE entity_type = 'campaign_test'");
    for row in audit_rows {
        assert_eq!(row, [Some(r#"{"simulated": false}"#.to_owned()), Some(id.clone())]);
    }
    assert!(!server.log().contains("961234567"), "no phone in the log");
}

#[test]
fn test_send_without_a_number_is_simulated() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = mapped_campaign(&ana);
    for status in ["draft", "scheduled", "sending", "completed", "sent"] {
        server.db.run(&format!("UPDATE campaigns SET status = '{status}'"));
        let response = test_send(&ana, &id, PHONE).ok();
        assert_eq!(
            response,
            json!({ "sent": true, "simulated": true, "wa_message_id": null })
        );
        assert_eq!(ana.status(&id), status);
    }
    assert!(server.whatsapp.ledger().is_empty());
    assert_eq!(usage(&server), "0/0/5");
    // The limit of five a minute is separate from that of `execute`.
    let limited = test_send(&ana, &id, PHONE);
    assert_eq!(limited.header("x-ratelimit-limit"), Some("5"));
    limited.refused(429, "RATE_LIMIT");
    ana.execute(&id).refused(400, "VALIDATION_ERROR");
}

#[test]
fn refused_test_send_reports_why_and_sends_nothing() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let id = ana.plain_campaign();
    let refusal = |campaign: &str| text(&test_send(&ana, campaign, PHONE).refused(400, "VALIDATION_ERROR")["message"]);
    let without_template = ana.campaign(json!({ "name": "Sem modelo" }));
    assert_eq!(refusal(&without_template), "the campaign has no template");
    server.db.run("UPDATE message_templates SET meta_status = 'paused'");
    assert_eq!(refusal(&id), "the template is not approved");
    server
        .db
        .run("UPDATE message_templates SET meta_status = 'approved'; UPDATE accounts SET plan = 'gone'");
    assert_eq!(refusal(&id), "the account has no active plan");
    server.db.run("UPDATE accounts SET plan = 'free'");
    ana.contact("Bia", PHONE);
    server.db.run("UPDATE contacts SET opted_out_at = now()");
    assert_eq!(refusal(&id), "the contact with this phone has opted out");
    server.db.run(
        "UPDATE contacts SET opted_out_at = NULL;
         INSERT INTO message_usage_slots (account_id, month, sent, reserved)
           SELECT id, date_trunc('month', now() AT TIME ZONE 'UTC')::date, 240, 10 FROM accounts",
    );
    assert_eq!(refusal(&id), "this month's 250 messages are used up");
    assert_eq!(usage(&server), "240/10/0");
    assert!(server.whatsapp.sends().is_empty());
    assert_eq!(
        (
            count_audit_entries(&server),
            server
                .db
                .count("FROM outbox_events WHERE payload::text LIKE '%campaign_test%'")
        ),
        (0, 0)
    );
}

#[test]
fn test_send_phone_is_validated_before_the_campaign() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let id = ana.plain_campaign();
    let post = |body: Value| ana.post(&format!("/api/campaigns/{id}/test"), body);
    for body in [
        json!({}),
        json!({ "phone": null }),
        json!({ "phone": "x" }),
        json!({ "phone": 5 }),
    ] {
        assert_eq!(post(body.clone()).invalid(), ["phone"], "{body}");
    }
    let unknown = uuid::Uuid::now_v7().to_string();
    assert_eq!(test_send(&bia, &unknown, "+5511").invalid(), ["phone"]);
    test_send(&bia, &unknown, PHONE).refused(404, "NOT_FOUND");
    test_send(&bia, &id, PHONE).refused(404, "NOT_FOUND");
    ana.delete(&format!("/api/campaigns/{id}")).no_content();
    test_send(&ana, &id, PHONE).refused(404, "NOT_FOUND");
    assert_eq!((usage(&server), count_audit_entries(&server)), (String::new(), 0));
}

#[test]
fn rejected_test_send_reports_the_code_and_is_not_counted() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let id = ana.plain_campaign();
    let details = "Recipient cannot be reached".to_owned();
    for (code, http_status) in [(131_026, 400), (190, 401)] {
        let details = details.clone();
        server
            .whatsapp
            .script(vec![WhatsappFault::send(WhatsappFaultKind::Error {
                code,
                http_status,
                details,
            })]);
        let error = test_send(&ana, &id, PHONE).refused(502, "WHATSAPP_ERROR");
        assert_eq!(error["details"]["code"], code, "{error}");
        assert_eq!(error["details"]["message"], error["message"]);
    }
    server
        .whatsapp
        .script(vec![WhatsappFault::send(WhatsappFaultKind::Throttle)]);
    let error = test_send(&ana, &id, PHONE).refused(502, "WHATSAPP_ERROR");
    assert_eq!(error["details"]["code"], 130_429, "{error}");
    assert_eq!(usage(&server), "0/0/0");
    assert_eq!(ana.status(&id), "draft");
    // A rejected test send is not retried and pauses nothing: the next one is sent.
    assert_eq!(server.whatsapp.sends().len(), 3);
    test_send(&ana, &id, PHONE).ok();
    assert_eq!((server.whatsapp.sends().len(), usage(&server).as_str()), (4, "0/0/1"));
}

#[test]
fn test_send_to_unreachable_whatsapp_is_not_counted() {
    let server = Server::start(without_statuses().with("WHATSAPP_API_URL", "http://127.0.0.1:9/v25.0"));
    let ana = server.owner();
    ana.profile_without_check();
    let id = ana.plain_campaign();
    let error = test_send(&ana, &id, PHONE).refused(502, "WHATSAPP_ERROR");
    assert_eq!(error["message"], "WhatsApp is unavailable; try again later");
    assert_eq!(usage(&server), "0/0/0");
}

#[test]
fn test_send_with_unknown_outcome_counts_and_never_repeats() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let id = ana.plain_campaign();
    let faults = [
        WhatsappFaultKind::AcceptThenReset,
        WhatsappFaultKind::GarbageJson,
        WhatsappFaultKind::AcceptThenStatus500,
    ];
    for (number, fault) in (1..).zip(faults) {
        server.whatsapp.script(vec![WhatsappFault::send(fault.clone())]);
        let error = test_send(&ana, &id, PHONE).refused(502, "WHATSAPP_ERROR");
        assert!(
            text(&error["message"]).contains("outcome is unknown"),
            "{fault:?}: {error}"
        );
        assert_eq!(server.whatsapp.counters().accepted, number, "{fault:?}");
        assert_eq!(usage(&server), format!("0/0/{number}"));
    }
}

#[test]
fn status_of_a_test_send_changes_no_statistics() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contact("Bia", PHONE);
    let id = ana.plain_campaign();
    let wamid = text(&test_send(&ana, &id, PHONE).ok()["wa_message_id"]);
    // The campaign also has a run.
    assert_eq!(ana.execute(&id).ok()["sent"], 1);
    server.db.wait_for_outbox();
    let test_send_id = server.whatsapp.sends()[0].callback_data.clone().unwrap();
    assert_eq!(
        server
            .db
            .count(&format!("FROM campaign_sends WHERE id = '{test_send_id}'")),
        0
    );
    let before = dump_statistics(&server);
    for update in ["sent", "delivered", "read", "failed"] {
        for send in [Some(test_send_id.as_str()), None] {
            assert_eq!(
                server
                    .callback(&statuses(NUMBER, &[status(&wamid, update, send)]))
                    .status,
                200
            );
            assert_eq!(dump_statistics(&server), before, "{update}");
        }
    }
    // The last attempt finds no message for the callback and deletes it.
    server
        .db
        .run("UPDATE whatsapp_callbacks SET attempts = 6, due_at = now()");
    until("the callback is deleted", || {
        server.db.count("FROM whatsapp_callbacks") == 0
    });
    assert_eq!(dump_statistics(&server), before);
    // A status update of the run's send in the same callback is applied.
    let send = ana.sends(&id)[0].clone();
    let updates = [
        status(&wamid, "read", Some(&test_send_id)),
        status(&text(&send["wa_message_id"]), "read", None),
    ];
    server.callback(&statuses(NUMBER, &updates));
    assert_eq!(ana.stats(&id)["read"], 1);
}

#[test]
fn repeated_key_sends_one_test_message() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let id = ana.plain_campaign();
    let send = || {
        ana.request("POST", &format!("/api/campaigns/{id}/test"))
            .header("Idempotency-Key", "k")
            .json(&json!({ "phone": PHONE }))
            .send()
    };
    let (first, again) = (send(), send());
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(first.text, again.text);
    first.ok();
    assert_eq!((server.whatsapp.sends().len(), usage(&server).as_str()), (1, "0/0/1"));
    until("the audit row", || count_audit_entries(&server) == 1);
}

#[test]
fn concurrent_test_sends_stay_within_the_quota() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let id = ana.plain_campaign();
    server.db.run(
        "INSERT INTO message_usage_slots (account_id, month, sent)
         SELECT id, date_trunc('month', now() AT TIME ZONE 'UTC')::date, 248 FROM accounts",
    );
    let request = ana
        .request("POST", &format!("/api/campaigns/{id}/test"))
        .json(&json!({ "phone": PHONE }));
    let mut statuses = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..5).map(|_| scope.spawn(|| request.clone().send().status)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 400, 400, 400]);
    assert_eq!((server.whatsapp.sends().len(), usage(&server).as_str()), (2, "248/0/2"));
    // The test sends used up the quota of a run.
    ana.contact("Bia", PHONE);
    let error = ana.execute(&id).refused(400, "VALIDATION_ERROR");
    assert!(text(&error["message"]).contains("0 of this month's 250"), "{error}");
}

#[test]
fn test_send_uploads_the_header_file_first() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let url = text(&ana.upload("a.png", PNG).ok()["url"]);
    let template = ana.template_with_file("foto", "image", &url);
    server.db.run("UPDATE message_templates SET meta_status = 'approved'");
    let id = ana.campaign(json!({ "name": "Oferta", "template_id": template }));
    server.whatsapp.script(vec![WhatsappFault::of(
        On::Media,
        WhatsappFaultKind::AcceptThenStatus500,
    )]);
    test_send(&ana, &id, PHONE).refused(502, "WHATSAPP_ERROR");
    assert_eq!((usage(&server), server.whatsapp.sends().len()), (String::new(), 0));
    test_send(&ana, &id, PHONE).ok();
    let parameter = &server.whatsapp.sends()[0].request.body["template"]["components"][0]["parameters"][0];
    assert!(parameter["image"]["id"].is_string(), "{parameter}");
    // A missing file is reported.
    server
        .db
        .run("DELETE FROM whatsapp_files; UPDATE message_templates SET header_media_url = 'http://10.0.0.1/a.png'");
    let error = test_send(&ana, &id, PHONE).refused(400, "VALIDATION_ERROR");
    assert!(text(&error["message"]).contains("needs a file"), "{error}");
}
