//! Tests of campaigns: one message to one phone, outside the statistics.

use recado_simulators::whatsapp::{On, WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::harness::client::Reply;
use crate::harness::media::PNG;
use crate::harness::runs::{silent, status, statuses};
use crate::harness::users::User;
use crate::harness::{Server, text, until};

const PHONE: &str = "+5511961234567";
const NUMBER: &str = "106500000001";

fn test(user: &User<'_>, campaign: &str, phone: &str) -> Reply {
    user.post(&format!("/api/campaigns/{campaign}/test"), json!({ "phone": phone }))
}

/// `sent/reserved/tests` of the month; empty before anything was taken of it.
fn usage(server: &Server) -> String {
    server
        .db
        .text("SELECT sent || '/' || reserved || '/' || test_sends FROM message_usage")
}

fn audited(server: &Server) -> i64 {
    server
        .db
        .count("FROM audit_logs WHERE action = 'create' AND entity_type = 'campaign_test'")
}

/// What a test must not touch.
fn statistics(server: &Server) -> Vec<String> {
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
fn mapped(user: &User<'_>) -> String {
    let template = user.approved("Oi {{1}}, use {{2}}.", &["Ana", "PROMO10"]);
    let variables = json!({ "2": "{attributes.cupom}" });
    user.campaign(json!({ "name": "Oferta", "template_id": template, "variables": variables }))
}

#[test]
fn a_test_leaves_once_with_the_values_of_whoever_has_the_phone() {
    let server = Server::start(silent());
    let ana = server.owner();
    ana.profile();
    let id = mapped(&ana);
    let body = json!({ "name": "Bia Lima", "phone": PHONE, "attributes": { "cupom": "BIA5" } });
    ana.post("/api/contacts", body).created();
    let before = statistics(&server);
    let answer = test(&ana, &id, "11 96123-4567").ok();
    let sends = server.whatsapp.sends();
    assert_eq!(sends.len(), 1);
    assert_eq!(sends[0].parameters, ["Bia", "BIA5"]);
    assert_eq!(sends[0].to.as_deref().map(|to| PHONE.ends_with(to)), Some(true));
    let wamid = text(&answer["wa_message_id"]);
    assert_eq!(
        answer,
        json!({ "sent": true, "simulated": false, "wa_message_id": wamid })
    );
    assert!(wamid.starts_with("wamid."), "{wamid}");
    // Nobody is known by this one: the examples stand for what is missing.
    test(&ana, &id, "+5511967654321").ok();
    assert_eq!(server.whatsapp.sends()[1].parameters, ["Ana", "PROMO10"]);
    assert_eq!(usage(&server), "0/0/2");
    server.db.run("DELETE FROM message_usage_slots");
    assert_eq!(statistics(&server), before);
    assert_eq!(
        (ana.status(&id).as_str(), &ana.stats(&id)["total"]),
        ("draft", &json!(0))
    );
    until("the audit rows", || audited(&server) == 2);
    let told = server
        .db
        .rows("SELECT changes, entity_id FROM audit_logs WHERE entity_type = 'campaign_test'");
    for row in told {
        assert_eq!(row, [Some(r#"{"simulated": false}"#.to_owned()), Some(id.clone())]);
    }
    assert!(!server.log().contains("961234567"), "no phone in the log");
}

#[test]
fn without_a_number_it_is_simulated_in_every_status() {
    let server = Server::start(silent());
    let ana = server.owner();
    let id = mapped(&ana);
    for status in ["draft", "scheduled", "sending", "completed", "sent"] {
        server.db.run(&format!("UPDATE campaigns SET status = '{status}'"));
        let answer = test(&ana, &id, PHONE).ok();
        assert_eq!(
            answer,
            json!({ "sent": true, "simulated": true, "wa_message_id": null })
        );
        assert_eq!(ana.status(&id), status);
    }
    assert!(server.whatsapp.ledger().is_empty());
    assert_eq!(usage(&server), "0/0/5");
    // Five a minute, counted by themselves.
    let limited = test(&ana, &id, PHONE);
    assert_eq!(limited.header("x-ratelimit-limit"), Some("5"));
    limited.refused(429, "RATE_LIMIT");
    ana.execute(&id).refused(400, "VALIDATION_ERROR");
}

#[test]
fn what_speaks_against_a_test_is_told_and_nothing_leaves() {
    let server = Server::start(silent());
    let ana = server.owner();
    ana.profile();
    let id = ana.plain_campaign();
    let refused = |campaign: &str| text(&test(&ana, campaign, PHONE).refused(400, "VALIDATION_ERROR")["message"]);
    let bare = ana.campaign(json!({ "name": "Sem modelo" }));
    assert_eq!(refused(&bare), "the campaign has no template");
    server.db.run("UPDATE message_templates SET meta_status = 'paused'");
    assert_eq!(refused(&id), "the template is not approved");
    server
        .db
        .run("UPDATE message_templates SET meta_status = 'approved'; UPDATE accounts SET plan = 'gone'");
    assert_eq!(refused(&id), "the account has no active plan");
    server.db.run("UPDATE accounts SET plan = 'free'");
    ana.contact("Bia", PHONE);
    server.db.run("UPDATE contacts SET opted_out_at = now()");
    assert_eq!(refused(&id), "the contact with this phone has opted out");
    server.db.run(
        "UPDATE contacts SET opted_out_at = NULL;
         INSERT INTO message_usage_slots (account_id, month, sent, reserved)
           SELECT id, date_trunc('month', now() AT TIME ZONE 'UTC')::date, 240, 10 FROM accounts",
    );
    assert_eq!(refused(&id), "this month's 250 messages are used up");
    assert_eq!(usage(&server), "240/10/0");
    assert!(server.whatsapp.sends().is_empty());
    assert_eq!(
        (
            audited(&server),
            server
                .db
                .count("FROM outbox_events WHERE payload::text LIKE '%campaign_test%'")
        ),
        (0, 0)
    );
}

#[test]
fn a_phone_is_validated_like_a_contacts_and_before_the_campaign_is_looked_for() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let id = ana.plain_campaign();
    let at = |body: Value| ana.post(&format!("/api/campaigns/{id}/test"), body);
    for body in [
        json!({}),
        json!({ "phone": null }),
        json!({ "phone": "nobody" }),
        json!({ "phone": 5 }),
    ] {
        assert_eq!(at(body.clone()).invalid(), ["phone"], "{body}");
    }
    let unknown = uuid::Uuid::now_v7().to_string();
    assert_eq!(test(&bia, &unknown, "+5511").invalid(), ["phone"]);
    test(&bia, &unknown, PHONE).refused(404, "NOT_FOUND");
    test(&bia, &id, PHONE).refused(404, "NOT_FOUND");
    ana.delete(&format!("/api/campaigns/{id}")).gone();
    test(&ana, &id, PHONE).refused(404, "NOT_FOUND");
    assert_eq!((usage(&server), audited(&server)), (String::new(), 0));
}

#[test]
fn what_the_platform_refuses_is_told_with_its_code_and_costs_nothing() {
    let server = Server::start(silent());
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
        let error = test(&ana, &id, PHONE).refused(502, "WHATSAPP_ERROR");
        assert_eq!(error["details"]["code"], code, "{error}");
        assert_eq!(error["details"]["message"], error["message"]);
    }
    server
        .whatsapp
        .script(vec![WhatsappFault::send(WhatsappFaultKind::Throttle)]);
    let error = test(&ana, &id, PHONE).refused(502, "WHATSAPP_ERROR");
    assert_eq!(error["details"]["code"], 130_429, "{error}");
    assert_eq!(usage(&server), "0/0/0");
    assert_eq!(ana.status(&id), "draft");
    // Not tried again, and not paused: the next one leaves.
    assert_eq!(server.whatsapp.sends().len(), 3);
    test(&ana, &id, PHONE).ok();
    assert_eq!((server.whatsapp.sends().len(), usage(&server).as_str()), (4, "0/0/1"));
}

#[test]
fn an_unreachable_platform_costs_nothing_either() {
    let server = Server::start(silent().with("WHATSAPP_API_URL", "http://127.0.0.1:9/v25.0"));
    let ana = server.owner();
    ana.profile();
    let id = ana.plain_campaign();
    let error = test(&ana, &id, PHONE).refused(502, "WHATSAPP_ERROR");
    assert_eq!(error["message"], "The messaging platform is unavailable");
    assert_eq!(usage(&server), "0/0/0");
}

#[test]
fn what_may_have_left_is_never_sent_again_and_counts() {
    let server = Server::start(silent());
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
        let error = test(&ana, &id, PHONE).refused(502, "WHATSAPP_ERROR");
        assert!(
            text(&error["message"]).contains("outcome is unknown"),
            "{fault:?}: {error}"
        );
        assert_eq!(server.whatsapp.counters().accepted, number, "{fault:?}");
        assert_eq!(usage(&server), format!("0/0/{number}"));
    }
}

#[test]
fn news_of_a_test_is_nobodys_and_changes_nothing() {
    let server = Server::start(silent());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contact("Bia", PHONE);
    let id = ana.plain_campaign();
    let wamid = text(&test(&ana, &id, PHONE).ok()["wa_message_id"]);
    // The campaign has a run of its own, too.
    assert_eq!(ana.execute(&id).ok()["sent"], 1);
    server.db.settles();
    let ours = server.whatsapp.sends()[0].callback_data.clone().unwrap();
    assert_eq!(server.db.count(&format!("FROM campaign_sends WHERE id = '{ours}'")), 0);
    let before = statistics(&server);
    for word in ["sent", "delivered", "read", "failed"] {
        for send in [Some(ours.as_str()), None] {
            assert_eq!(
                server.callback(&statuses(NUMBER, &[status(&wamid, word, send)])).status,
                200
            );
            assert_eq!(statistics(&server), before, "{word}");
        }
    }
    // Once it is clear that it is nobody's it is forgotten, and nothing more.
    server
        .db
        .run("UPDATE whatsapp_callbacks SET attempts = 6, due_at = now()");
    until("it is forgotten", || server.db.count("FROM whatsapp_callbacks") == 0);
    assert_eq!(statistics(&server), before);
    // News of the run's own send beside it is heard.
    let send = ana.sends(&id)[0].clone();
    let news = [
        status(&wamid, "read", Some(&ours)),
        status(&text(&send["wa_message_id"]), "read", None),
    ];
    server.callback(&statuses(NUMBER, &news));
    assert_eq!(ana.stats(&id)["read"], 1);
}

#[test]
fn a_repeated_key_sends_one_message() {
    let server = Server::start(silent());
    let ana = server.owner();
    ana.profile();
    let id = ana.plain_campaign();
    let ask = || {
        ana.request("POST", &format!("/api/campaigns/{id}/test"))
            .header("Idempotency-Key", "k")
            .json(&json!({ "phone": PHONE }))
            .send()
    };
    let (first, again) = (ask(), ask());
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(first.text, again.text);
    first.ok();
    assert_eq!((server.whatsapp.sends().len(), usage(&server).as_str()), (1, "0/0/1"));
    until("the audit row", || audited(&server) == 1);
}

#[test]
fn of_many_tests_at_once_no_more_leave_than_the_month_has() {
    let server = Server::start(silent());
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
    let mut answers = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..5).map(|_| scope.spawn(|| request.clone().send().status)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    answers.sort_unstable();
    assert_eq!(answers, [200, 200, 400, 400, 400]);
    assert_eq!((server.whatsapp.sends().len(), usage(&server).as_str()), (2, "248/0/2"));
    // A run finds the month as the tests left it.
    ana.contact("Bia", PHONE);
    let error = ana.execute(&id).refused(400, "VALIDATION_ERROR");
    assert!(text(&error["message"]).contains("0 of this month's 250"), "{error}");
}

#[test]
fn a_file_is_given_to_the_platform_first() {
    let server = Server::start(silent());
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
    test(&ana, &id, PHONE).refused(502, "WHATSAPP_ERROR");
    assert_eq!((usage(&server), server.whatsapp.sends().len()), (String::new(), 0));
    test(&ana, &id, PHONE).ok();
    let parameter = &server.whatsapp.sends()[0].request.body["template"]["components"][0]["parameters"][0];
    assert!(parameter["image"]["id"].is_string(), "{parameter}");
    // A file that is gone is told.
    server
        .db
        .run("DELETE FROM whatsapp_files; UPDATE message_templates SET header_media_url = 'http://10.0.0.1/a.png'");
    let error = test(&ana, &id, PHONE).refused(400, "VALIDATION_ERROR");
    assert!(text(&error["message"]).contains("no file"), "{error}");
}
