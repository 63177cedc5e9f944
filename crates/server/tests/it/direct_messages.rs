//! Single messages by API: what is accepted and refused, uniqueness by reference, schedule, cancel, quota and statuses.

use std::thread;
use std::time::Duration;

use recado_simulators::whatsapp::{Inbound, WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::harness::client::{Reply, Request};
use crate::harness::runs::{usage, without_statuses};
use crate::harness::users::{User, now};
use crate::harness::{Server, eventually, text, until};

const NUMBER: &str = "106500000001";
const ANA: &str = "+5531988887777";
const HOUR: u64 = 3600;

fn post(user: &User<'_>, body: Value) -> Reply {
    user.post("/api/messages", body)
}

/// Sends requests at the same time.
fn at_once(requests: Vec<Request>) -> Vec<Reply> {
    thread::scope(|scope| {
        let running: Vec<_> = requests
            .into_iter()
            .map(|request| scope.spawn(|| request.send()))
            .collect();
        running.into_iter().map(|request| request.join().unwrap()).collect()
    })
}

fn get(user: &User<'_>, id: &Value) -> Value {
    user.get(&format!("/api/messages/{}", text(id))).ok()
}

fn cancel(user: &User<'_>, id: &Value) -> Reply {
    user.post(&format!("/api/messages/{}/cancel", text(id)), json!({}))
}

#[track_caller]
fn wait_for_status(user: &User<'_>, id: &Value, status: &str) -> Value {
    eventually(&format!("message in status {status}"), || {
        Some(get(user, id)).filter(|message| message["status"] == status)
    })
}

/// A message with a template to a phone number.
fn to_phone(template: &str, phone: &str) -> Value {
    json!({ "to": { "phone": phone }, "template": { "id": template } })
}

fn with(mut body: Value, field: &str, value: impl Into<Value>) -> Value {
    body[field] = value.into();
    body
}

#[track_caller]
fn refused(reply: &Reply) -> String {
    assert_eq!(reply.status, 400, "{}", reply.text);
    text(&reply.json()["error"]["details"]["reason"])
}

fn after(seconds: u64) -> String {
    let at = time::OffsetDateTime::from_unix_timestamp(i64::try_from(now() + seconds).unwrap()).unwrap();
    at.format(&time::format_description::well_known::Rfc3339).unwrap()
}

#[test]
fn template_message_leaves_at_once_and_follows_its_statuses() {
    let server = Server::new();
    let ana = server.owner();
    let profile = text(&ana.profile_at(NUMBER)["id"]);
    let template = ana.approved("Oi {{1}}, pedido {{2}}.", &["Ana", "1042"]);
    let body = json!({
        "to": { "phone": "31 98888-7777", "name": "Bia Lima" },
        "template": { "id": template, "variables": { "2": "77" } },
        "client_reference": "order-77",
    });
    let reply = post(&ana, body);
    let message = reply.clone().created();
    let location = format!("/api/messages/{}", text(&message["id"]));
    assert_eq!(reply.header("location"), Some(location.as_str()));
    assert_eq!(
        (
            &message["status"],
            &message["kind"],
            &message["to"]["phone"],
            &message["profile_id"]
        ),
        (&json!("pending"), &json!("template"), &json!(ANA), &json!(profile))
    );
    assert_eq!(message["template"]["id"], json!(template));
    let read = wait_for_status(&ana, &message["id"], "read");
    assert_eq!(
        (
            &read["phase"],
            &read["hold_reason"],
            &read["error_message"],
            &read["client_reference"]
        ),
        (&Value::Null, &Value::Null, &Value::Null, &json!("order-77"))
    );
    assert!(
        read["wa_message_id"].is_string() && read["sent_at"].is_string(),
        "{read}"
    );
    let sends = server.whatsapp.sends();
    assert_eq!(sends.len(), 1);
    assert_eq!(
        (sends[0].parameters.as_slice(), sends[0].callback_data.clone()),
        (
            ["Bia".to_owned(), "77".to_owned()].as_slice(),
            Some(text(&message["id"]))
        )
    );
    let contact = ana.get(&format!("/api/contacts/{}", text(&message["contact_id"]))).ok();
    assert_eq!((&contact["name"], &contact["phone"]), (&json!("Bia Lima"), &json!(ANA)));
    // No conversation is made, and other accounts see nothing.
    assert_eq!(server.db.count("FROM conversations"), 0);
    let bia = server.owner();
    bia.get(&location).refused(404, "NOT_FOUND");
    assert_eq!(bia.get("/api/messages").ok()["data"], json!([]));
    bia.post(&format!("{location}/cancel"), json!({}))
        .refused(404, "NOT_FOUND");
}

#[test]
fn equal_requests_with_one_reference_make_one_message() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let template = ana.approved("Oi {{1}}.", &["Ana"]);
    let body = with(to_phone(&template, ANA), "client_reference", "once");
    let replies = at_once(vec![ana.request("POST", "/api/messages").json(&body); 50]);
    let made: Vec<&Reply> = replies.iter().filter(|reply| reply.status == 201).collect();
    assert_eq!(made.len(), 1);
    let id = made[0].json()["data"]["id"].clone();
    for reply in replies.iter().filter(|reply| reply.status != 201) {
        assert_eq!(
            (reply.status, &reply.json()["data"]["id"]),
            (200, &id),
            "{}",
            reply.text
        );
        assert_eq!(reply.header("idempotent-replayed"), Some("true"));
    }
    wait_for_status(&ana, &id, "sent");
    let other = json!({ "id": template, "variables": { "1": "outra" } });
    let conflict = post(&ana, with(body.clone(), "template", other)).refused(409, "CONFLICT");
    assert_eq!(
        (&conflict["code"], &conflict["details"]["id"]),
        (&json!("CONFLICT"), &id)
    );
    // Also long after, and after the contact's phone is spelled in another way.
    server
        .db
        .run("UPDATE direct_messages SET created_at = created_at - interval '1 year', expires_at = send_at");
    let respelled = json!({ "to": { "phone": "(31) 98888-7777", "name": "x" }, "template": { "id": template },
        "client_reference": "once" });
    assert_eq!(post(&ana, respelled).ok()["id"], id);
    assert_eq!(server.whatsapp.sends().len(), 1);
    // Another account may use the same reference.
    let bia = server.owner();
    let template = bia.approved("Oi {{1}}.", &["Ana"]);
    post(&bia, with(to_phone(&template, ANA), "client_reference", "once")).created();
}

#[test]
fn message_that_may_not_be_sent_is_refused_and_stores_nothing() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let template = ana.approved("Oi {{1}}, {{2}}", &["Ana", "x"]);
    ana.profile_at(NUMBER);
    let draft = ana.template("rascunho", "Oi", &[]);
    assert_eq!(refused(&post(&ana, to_phone(&draft, ANA))), "template_not_approved");
    let empty = json!({ "to": { "phone": ANA }, "template": { "id": template, "variables": { "2": "\u{a0} " } } });
    let reply = post(&ana, empty);
    assert_eq!(refused(&reply), "placeholder_empty");
    assert_eq!(reply.json()["error"]["details"]["placeholders"], json!(["2"]));
    let text_message = json!({ "to": { "phone": ANA }, "text": "Oi" });
    assert_eq!(refused(&post(&ana, text_message)), "outside_window");
    assert_eq!(server.db.count("FROM contacts"), 0, "no contact is made");
    let contact = ana.contact("Ana", ANA);
    ana.put(&format!("/api/contacts/{contact}"), json!({ "opted_out": true }))
        .ok();
    let to_contact = json!({ "to": { "contact_id": contact }, "template": { "id": template } });
    assert_eq!(refused(&post(&ana, to_contact)), "opted_out");
    for (body, field) in [
        (
            json!({ "to": { "contact_id": uuid::Uuid::now_v7() }, "text": "x" }),
            "to.contact_id",
        ),
        (to_phone(&uuid::Uuid::now_v7().to_string(), ANA), "template.id"),
        (
            with(to_phone(&template, ANA), "profile_id", uuid::Uuid::now_v7().to_string()),
            "profile_id",
        ),
        (
            with(to_phone(&template, ANA), "send_at", after(31 * 24 * HOUR)),
            "send_at",
        ),
        (
            with(to_phone(&template, ANA), "expires_at", "2020-01-01T00:00:00Z"),
            "expires_at",
        ),
        (json!({ "to": { "phone": ANA } }), "template"),
        (json!({ "text": "x" }), "to"),
    ] {
        let error = post(&ana, body).refused(422, "VALIDATION_ERROR");
        assert!(error["details"]["fields"][field].is_array(), "{field}: {error}");
    }
    server
        .db
        .run("UPDATE whatsapp_profiles SET verification_state = 'failed'");
    assert_eq!(refused(&post(&ana, to_phone(&template, ANA))), "number_unverified");
    assert_eq!(server.db.count("FROM direct_messages"), 0);
    assert_eq!(server.db.count("FROM message_usage_slots"), 0);
    assert!(server.whatsapp.sends().is_empty());
}

#[test]
fn scheduled_message_waits_and_a_cancel_returns_its_quota() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let template = ana.approved("Oi", &[]);
    let body = with(to_phone(&template, ANA), "send_at", after(HOUR));
    let message = post(&ana, body).created();
    assert_eq!(
        (&message["status"], &message["phase"]),
        (&json!("pending"), &json!("scheduled"))
    );
    let account = server.db.text("SELECT id::text FROM accounts");
    assert_eq!(usage(&server, &account), "0 1");
    let cancelled = cancel(&ana, &message["id"]).ok();
    assert_eq!(
        (&cancelled["status"], &cancelled["phase"]),
        (&json!("cancelled"), &Value::Null)
    );
    assert_eq!(cancel(&ana, &message["id"]).ok()["status"], "cancelled");
    assert_eq!(usage(&server, &account), "0 0");
    // It never leaves, also when its time comes.
    server.db.run("UPDATE direct_messages SET send_at = now()");
    let second = post(&ana, to_phone(&template, ANA)).created();
    wait_for_status(&ana, &second["id"], "sent");
    assert_eq!(server.whatsapp.sends().len(), 1);
    assert_eq!(refused(&cancel(&ana, &second["id"])), "already_left");
    assert_eq!(
        usage(&server, &account),
        "0 0",
        "an accepted message counts as a reply does"
    );
}

/// The account had no number when the messages were made.
#[test]
fn scheduled_message_is_sent_by_a_number_that_was_connected_since() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let template = ana.approved("Oi", &[]);
    let scheduled = |seconds| {
        let body = with(to_phone(&template, ANA), "send_at", after(seconds));
        post(&ana, body).created()
    };
    let simulated = post(&ana, to_phone(&template, ANA)).created();
    wait_for_status(&ana, &simulated["id"], "sent");
    let (first, later) = (scheduled(3), scheduled(HOUR));
    assert_eq!(first["profile_id"], json!(null));
    let profile = ana.profile();
    let sent = wait_for_status(&ana, &first["id"], "sent");
    assert_eq!(sent["profile_id"], json!(profile));
    assert!(sent["wa_message_id"].is_string(), "{sent}");
    assert_eq!(server.whatsapp.sends().len(), 1);
    // Those that are due later are checked then: a number that is not verified holds them.
    server
        .db
        .run("UPDATE whatsapp_profiles SET verification_state = 'failed', next_check_at = NULL");
    server.db.run(
        "UPDATE direct_messages SET send_at = now(), due_at = now() WHERE due_at IS NOT NULL;
         UPDATE direct_message_queues SET due_at = now()",
    );
    let held = eventually("the message is held", || {
        Some(get(&ana, &later["id"])).filter(|message| message["phase"] == "held")
    });
    assert_eq!(
        (&held["hold_reason"], &held["profile_id"]),
        (&json!("number"), &json!(null))
    );
    assert_eq!(server.whatsapp.sends().len(), 1);
}

#[test]
fn text_leaves_within_the_window_and_is_shown_in_the_conversation() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    server.whatsapp.inbound(&Inbound::text(NUMBER, ANA, "oi"));
    until("the conversation", || server.db.count("FROM conversations") == 1);
    let body = json!({ "to": { "phone": ANA }, "text": "Seu pedido saiu." });
    server
        .db
        .run("UPDATE conversations SET last_inbound_at = now() - interval '24 hours 1 second', status = 'closed'");
    assert_eq!(refused(&post(&ana, body.clone())), "outside_window");
    server
        .db
        .run("UPDATE conversations SET last_inbound_at = now() - interval '23 hours 59 minutes'");
    let later = with(body.clone(), "send_at", after(2 * 60));
    assert_eq!(refused(&post(&ana, later)), "outside_window");
    let message = post(&ana, body).created();
    let sent = wait_for_status(&ana, &message["id"], "sent");
    let conversation = server.db.text("SELECT id::text FROM conversations");
    assert_eq!(sent["conversation_id"], json!(conversation));
    assert_eq!(
        server.db.text("SELECT status FROM conversations"),
        "closed",
        "it is not reopened"
    );
    let body = &server.whatsapp.sends()[0].request.body;
    assert_eq!(body["text"]["body"], "Seu pedido saiu.");
}

#[test]
fn bad_items_of_a_batch_are_refused_alone() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let template = ana.approved("Oi", &[]);
    let mut items: Vec<Value> = (0..1000)
        .map(|number| to_phone(&template, &format!("+55119612{number:05}")))
        .collect();
    let bad = [0, 3, 9, 27, 81, 243, 500, 729, 998, 999];
    for (number, index) in bad.into_iter().enumerate() {
        items[index] = [
            json!({ "to": 7 }),
            json!([]),
            json!({ "to": { "phone": ANA }, "text": "x" }),
            json!({}),
        ][number % 4]
            .clone();
    }
    server.db.run("UPDATE accounts SET plan = 'scale'");
    let report = ana.post("/api/messages/batch", json!({ "messages": items })).ok();
    assert_eq!(
        (&report["accepted"], &report["duplicates"], &report["refused"]),
        (&json!(990), &json!(0), &json!(10))
    );
    let results = report["results"].as_array().unwrap();
    let refused: Vec<usize> = results
        .iter()
        .filter(|result| result["outcome"] == "refused")
        .map(|result| usize::try_from(result["index"].as_u64().unwrap()).unwrap())
        .collect();
    assert_eq!(refused, bad);
    assert_eq!(results[9]["error"]["details"]["reason"], "outside_window");
    assert_eq!(results[0]["error"]["code"], "VALIDATION_ERROR");
    assert_eq!(server.db.count("FROM direct_messages"), 990);
    for messages in [json!([]), json!(vec![json!({}); 1001]), Value::Null] {
        let error = ana
            .post("/api/messages/batch", json!({ "messages": messages }))
            .refused(422, "VALIDATION_ERROR");
        assert!(error["details"]["fields"]["messages"].is_array(), "{error}");
    }
}

#[test]
fn repeated_reference_in_a_batch_is_a_duplicate_or_a_conflict() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let template = ana.approved("Oi {{1}}", &["Ana"]);
    let item = with(to_phone(&template, ANA), "client_reference", "r1");
    let other = json!({ "to": { "phone": ANA }, "template": { "id": template, "variables": { "1": "x" } },
        "client_reference": "r1" });
    let messages = json!([item, item, other]);
    let report = ana.post("/api/messages/batch", json!({ "messages": messages })).ok();
    let results = report["results"].as_array().unwrap();
    let outcomes: Vec<&Value> = results.iter().map(|result| &result["outcome"]).collect();
    assert_eq!(outcomes, ["accepted", "duplicate", "refused"]);
    assert_eq!(results[1]["id"], results[0]["id"]);
    assert_eq!(results[2]["error"]["details"]["id"], results[0]["id"]);
    // Without a number the message is simulated.
    let sent = wait_for_status(&ana, &results[0]["id"], "sent");
    assert_eq!(
        (&sent["wa_message_id"], &sent["profile_id"]),
        (&Value::Null, &Value::Null)
    );
    let again = ana
        .post("/api/messages/batch", json!({ "messages": [messages[0]] }))
        .ok();
    assert_eq!((&again["accepted"], &again["duplicates"]), (&json!(0), &json!(1)));
}

#[test]
fn concurrent_messages_cannot_exceed_the_months_quota() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let template = ana.approved("Oi", &[]);
    post(&ana, with(to_phone(&template, ANA), "send_at", after(10))).created();
    // The free plan has 250 messages a month.
    server.db.run("UPDATE message_usage_slots SET sent = 244");
    let request = |number| {
        let body = to_phone(&template, &format!("+55119612345{number:02}"));
        ana.request("POST", "/api/messages").json(&body)
    };
    let replies = at_once((0..20).map(request).collect());
    let accepted = replies.iter().filter(|reply| reply.status == 201).count();
    assert_eq!(accepted, 5);
    for reply in replies.iter().filter(|reply| reply.status != 201) {
        assert_eq!(refused(reply), "month_limit");
    }
    let items = json!([to_phone(&template, ANA), { "to": { "phone": ANA }, "text": "x" }]);
    let report = ana.post("/api/messages/batch", json!({ "messages": items })).ok();
    assert_eq!(report["results"][0]["error"]["details"]["reason"], "month_limit");
}

#[test]
fn message_is_looked_at_again_before_it_leaves() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let template = ana.approved("Oi", &[]);
    let contact = ana.contact("Ana", ANA);
    let body = json!({ "to": { "contact_id": contact }, "template": { "id": template }, "send_at": after(HOUR) });
    let message = post(&ana, body.clone()).created();
    ana.put(&format!("/api/contacts/{contact}"), json!({ "opted_out": true }))
        .ok();
    let make_due = "UPDATE direct_messages SET send_at = now(), due_at = now() WHERE due_at IS NOT NULL;
                    UPDATE direct_message_queues SET due_at = now()";
    server.db.run(make_due);
    let failed = wait_for_status(&ana, &message["id"], "failed");
    assert_eq!(failed["error_message"], "The contact has opted out");
    // A number that is not verified any more holds its messages.
    ana.put(&format!("/api/contacts/{contact}"), json!({ "opted_out": false }))
        .ok();
    let message = post(&ana, body).created();
    server
        .db
        .run("UPDATE whatsapp_profiles SET verification_state = 'failed'");
    server.db.run(make_due);
    let held = eventually("the message is held", || {
        Some(get(&ana, &message["id"])).filter(|message| message["phase"] == "held")
    });
    assert_eq!(held["hold_reason"], "number");
    assert!(held["retry_at"].is_string());
    assert_eq!(ana.get("/api/messages?phase=held").ok()["data"][0]["id"], message["id"]);
    server
        .db
        .run("UPDATE whatsapp_profiles SET verification_state = 'verified'");
    wait_for_status(&ana, &message["id"], "sent");
    assert_eq!(server.whatsapp.sends().len(), 1);
}

#[test]
fn ambiguous_call_is_not_repeated_and_a_throttled_one_is() {
    let server = Server::start(without_statuses().with("SEND_UNKNOWN_TTL", "2s"));
    let ana = server.owner();
    ana.profile();
    let template = ana.approved("Oi", &[]);
    server
        .whatsapp
        .script(vec![WhatsappFault::send(WhatsappFaultKind::AcceptThenReset)]);
    let message = post(&ana, to_phone(&template, ANA)).created();
    let failed = wait_for_status(&ana, &message["id"], "failed");
    assert!(text(&failed["error_message"]).contains("did not confirm"), "{failed}");
    assert_eq!(server.whatsapp.sends().len(), 1);
    server
        .whatsapp
        .script(vec![WhatsappFault::send(WhatsappFaultKind::Throttle)]);
    let message = post(&ana, to_phone(&template, ANA)).created();
    wait_for_status(&ana, &message["id"], "sent");
    assert_eq!(server.whatsapp.sends().len(), 3);
    server
        .whatsapp
        .script(vec![WhatsappFault::send(WhatsappFaultKind::error(
            131_026,
            "not on WhatsApp",
        ))]);
    let message = post(&ana, to_phone(&template, ANA)).created();
    let failed = wait_for_status(&ana, &message["id"], "failed");
    assert_eq!(failed["error_code"], 131_026);
}

#[test]
fn trigger_key_sends_its_template_alone_and_reads_its_own_messages() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let (template, other) = (ana.approved("Oi", &[]), ana.approved("Tchau", &[]));
    let key = |scope: &str| {
        let body = json!({ "name": "k", "scopes": [scope] });
        text(&ana.post("/api/api-keys", body).created()["full_key"])
    };
    let (first, second) = (key(&format!("trigger:{template}")), key(&format!("trigger:{template}")));
    let request = |key: &str, method: &str, path: &str, body: Value| {
        server.request(method, path).header("X-API-Key", key).json(&body).send()
    };
    let post = |body: Value| request(&first, "POST", "/api/messages", body);
    let message = post(to_phone(&template, ANA)).created();
    assert!(message["api_key_id"].is_string());
    for body in [
        to_phone(&other, ANA),
        json!({ "to": { "phone": ANA }, "text": "x" }),
        json!({ "to": { "phone": ANA }, "template": { "name": "x", "language": "pt_BR" } }),
    ] {
        post(body).refused(403, "FORBIDDEN");
    }
    request(
        &first,
        "POST",
        "/api/messages/batch",
        json!({ "messages": [to_phone(&template, ANA)] }),
    )
    .refused(403, "FORBIDDEN");
    request(&first, "GET", "/api/messages", Value::Null).refused(403, "FORBIDDEN");
    let path = format!("/api/messages/{}", text(&message["id"]));
    assert_eq!(request(&first, "GET", &path, Value::Null).ok()["id"], message["id"]);
    request(&second, "GET", &path, Value::Null).refused(404, "NOT_FOUND");
    request(&first, "POST", &format!("{path}/cancel"), json!({})).refused(403, "FORBIDDEN");
}

#[test]
fn crash_neither_loses_a_message_nor_sends_it_twice() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let template = ana.approved("Oi", &[]);
    server.db.run("UPDATE accounts SET plan = 'scale'");
    let items = |round: usize| {
        let item = |number: usize| to_phone(&template, &format!("+5511961{round:01}2{number:04}"));
        json!({ "messages": (0..40).map(item).collect::<Vec<_>>() })
    };
    for round in 0..5 {
        let report = ana.post("/api/messages/batch", items(round)).ok();
        assert_eq!(report["accepted"], 40);
        thread::sleep(Duration::from_millis(40 * u64::try_from(round).unwrap()));
        server.kill();
        server.serve_with(&[]);
        server.db.run(
            "UPDATE direct_message_queues SET leased_until = now() - interval '1 second'
            WHERE worker IS NOT NULL",
        );
    }
    until("every message was tried", || {
        server
            .db
            .count("FROM direct_messages WHERE status = 'pending' AND unknown_at IS NULL")
            == 0
    });
    let sends = server.whatsapp.sends();
    let mut recipients: Vec<_> = sends.iter().map(|send| send.to.clone()).collect();
    let calls = recipients.len();
    recipients.sort();
    recipients.dedup();
    assert_eq!(recipients.len(), calls, "a message was sent twice");
    let sent = server.db.count("FROM direct_messages WHERE status = 'sent'");
    let unknown = server.db.count("FROM direct_messages WHERE unknown_at IS NOT NULL");
    assert_eq!(sent + unknown, 200);
    assert!(i64::try_from(calls).unwrap() >= sent);
    assert_eq!(
        server.db.count("FROM direct_messages WHERE quota_month IS NOT NULL"),
        unknown
    );
}

/// The send slots of a number that sends this many messages a second.
const RATE: u64 = 20;

/// An owner with a number of this send rate, a template, and contacts for a campaign of this size.
fn with_rate(server: &Server, contacts: usize) -> (User<'_>, String, String) {
    let ana = server.owner();
    server.db.run("UPDATE accounts SET plan = 'scale'");
    let profile = ana.profile();
    let rate = json!({ "messages_per_second": RATE });
    ana.put(&format!("/api/whatsapp/profiles/{profile}"), rate).ok();
    let campaign = ana.campaign_to("a", 0..contacts);
    let template = ana.approved("Oi direto", &[]);
    (ana, template, campaign)
}

#[test]
fn message_beside_a_campaign_waits_for_few_of_its_sends() {
    let server = Server::start(without_statuses());
    let (ana, template, campaign) = with_rate(&server, 300);
    ana.send(&campaign);
    until("the campaign fills the number", || server.whatsapp.sends().len() > 20);
    // A third of the number's send rate for five seconds.
    for number in 0..30_usize {
        post(&ana, to_phone(&template, &format!("+55119619999{number:02}"))).created();
        thread::sleep(Duration::from_millis(1000 * 3 / RATE));
    }
    until("every message left", || {
        server.db.count("FROM direct_messages WHERE status = 'sent'") == 30
    });
    assert_eq!(
        ana.status(&campaign),
        "sending",
        "the campaign filled the number all the time"
    );
    // In send slots of the number instead of seconds, which a busy machine stretches.
    let late = server.db.count(&format!(
        "FROM direct_messages m WHERE (SELECT count(*) FROM campaign_sends s
           WHERE s.started_at > m.created_at AND s.started_at < m.started_at) > {}",
        2 * RATE
    ));
    assert_eq!(late, 0, "of 30 messages");
}

#[test]
fn campaign_keeps_its_share_beside_direct_messages() {
    let server = Server::start(without_statuses());
    let (ana, template, campaign) = with_rate(&server, 300);
    let items: Vec<Value> = (0..600)
        .map(|number| to_phone(&template, &format!("+5511961{number:06}")))
        .collect();
    let report = ana.post("/api/messages/batch", json!({ "messages": items })).ok();
    assert_eq!(report["accepted"], 600);
    until("direct messages fill the number", || server.whatsapp.sends().len() > 20);
    ana.send(&campaign);
    let of_campaign = || server.db.count("FROM campaign_sends WHERE started_at IS NOT NULL");
    until("the campaign begins", || of_campaign() > 0);
    let (campaign_before, before) = (of_campaign(), server.whatsapp.sends().len());
    until("eight seconds of sends", || {
        server.whatsapp.sends().len() >= before + usize::try_from(RATE * 8).unwrap()
    });
    let all = i64::try_from(server.whatsapp.sends().len() - before).unwrap();
    let share = of_campaign() - campaign_before;
    assert!(share * 100 >= all * 40, "{share} of {all} sends are the campaign's");
    assert!(share * 100 <= all * 60, "{share} of {all} sends are the campaign's");
}
