//! Conversations: what senders do, replies, and what becomes of them.

use recado_simulators::whatsapp::{Inbound, InboundBatch, Preference, WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::client::Reply;
use crate::harness::runs::{counted, ended, silent, status, statuses};
use crate::harness::users::{User, now, phone};
use crate::harness::{Options, Server, eventually, text, until};

const NUMBER: &str = "106500000001";
const ANA: &str = "+5531988887777";
const DAY: u64 = 24 * 3600;

/// The account's conversations, the latest first.
fn conversations(user: &User<'_>, query: &str) -> Vec<Value> {
    let found = user.get(&format!("/api/conversations{query}")).ok();
    found["data"].as_array().unwrap().clone()
}

/// Waits for the one conversation; its id.
#[track_caller]
fn conversation(user: &User<'_>) -> String {
    let found = eventually("a conversation", || {
        Some(conversations(user, "")).filter(|found| !found.is_empty())
    });
    assert_eq!(found.len(), 1, "{found:?}");
    text(&found[0]["id"])
}

/// The messages of a conversation, newest first.
fn messages(user: &User<'_>, id: &str) -> Vec<Value> {
    let found = user.get(&format!("/api/conversations/{id}/messages?limit=100")).ok();
    found["data"].as_array().unwrap().clone()
}

pub(crate) fn reply(user: &User<'_>, id: &str, words: &str) -> Reply {
    user.post(&format!("/api/conversations/{id}/messages"), json!({ "text": words }))
}

fn contacts(user: &User<'_>) -> Vec<Value> {
    user.get("/api/contacts").ok()["data"].as_array().unwrap().clone()
}

/// An account with a number, to which somebody wrote just now; the conversation's id.
pub(crate) fn written_to(user: &User<'_>) -> String {
    user.profile_at(NUMBER);
    user.server.whatsapp.inbound(&Inbound::text(NUMBER, ANA, "oi"));
    conversation(user)
}

fn stop(server: &Server, value: &str, timestamp: u64) {
    server.whatsapp.preference(&Preference {
        phone_number_id: NUMBER.into(),
        from: ANA.into(),
        value: value.into(),
        timestamp: Some(timestamp),
        ..Preference::default()
    });
}

/// Everything the simulator had to tell was told, and nothing of it is left over.
fn heard(server: &Server) {
    assert!(server.whatsapp.wait_idle(crate::harness::DEADLINE));
    until("every callback is processed", || {
        server.db.count("FROM whatsapp_callbacks") == 0
    });
}

#[test]
fn an_unknown_sender_becomes_a_contact_and_is_answered() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    ana.profile_at(NUMBER);
    let wamid = server.whatsapp.inbound(&Inbound {
        name: Some("Ana <b>Maria".into()),
        ..Inbound::text(NUMBER, ANA, "Oi!\nTudo bem?")
    });
    let id = conversation(&ana);
    let contact = contacts(&ana).remove(0);
    assert_eq!(
        (&contact["name"], &contact["phone"]),
        (&json!("Ana Maria"), &json!(ANA))
    );
    let shown = conversations(&ana, "?status=open").remove(0);
    let mut fields: Vec<&str> = shown.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["contact_id", "created_at", "id", "last_message_at", "status"]);
    assert_eq!(
        (&shown["contact_id"], &shown["status"]),
        (&contact["id"], &json!("open"))
    );
    let inbound = messages(&ana, &id).remove(0);
    let expected = json!({ "id": inbound["id"], "conversation_id": id, "direction": "inbound", "type": "text",
        "text": "Oi!\nTudo bem?", "status": "received", "wa_message_id": wamid, "referral": null, "pricing": null,
        "created_at": shown["last_message_at"] });
    assert_eq!(inbound, expected);
    let answered = reply(&ana, &id, "Olá, Ana \u{1f600}").created();
    assert_eq!(
        (&answered["direction"], &answered["type"], &answered["conversation_id"]),
        (&json!("outbound"), &json!("text"), &json!(id))
    );
    let send = server.whatsapp.sends().remove(0);
    assert_eq!(send.request.body["text"]["body"], "Olá, Ana \u{1f600}");
    assert_eq!(
        (send.to.as_deref(), send.callback_data),
        (Some(ANA), Some(text(&answered["id"])))
    );
    let read = eventually("the reply is read", || {
        messages(&ana, &id).into_iter().find(|one| one["status"] == "read")
    });
    assert_eq!(
        (&read["id"], &read["wa_message_id"]),
        (&answered["id"], &answered["wa_message_id"])
    );
    assert_eq!(conversations(&ana, "")[0]["last_message_at"], read["created_at"]);
    assert_eq!(server.db.text("SELECT wa_id FROM contacts"), "553188887777");
    assert_eq!(conversations(&bia, ""), Vec::<Value>::new());
    bia.get(&format!("/api/conversations/{id}/messages"))
        .refused(404, "NOT_FOUND");
}

#[test]
fn senders_are_found_by_number_with_or_without_the_ninth_digit_and_by_user_id() {
    let server = Server::start(silent());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let known = ana.contact("Conhecida", ANA);
    let hidden = Inbound {
        user_id: Some("BR.150200".into()),
        name: Some("Oculta".into()),
        ..Inbound::text(NUMBER, "", "oi")
    };
    server.whatsapp.inbound(&Inbound {
        user_id: Some("BR.1".into()),
        ..Inbound::text(NUMBER, ANA, "oi")
    });
    server.whatsapp.inbound(&hidden);
    server.whatsapp.inbound(&Inbound {
        user_id: Some("BR.1".into()),
        ..Inbound::text(NUMBER, "", "de novo")
    });
    heard(&server);
    let found = contacts(&ana);
    assert_eq!(found.len(), 2, "{found:?}");
    let of = |contact: &str| {
        conversations(&ana, "")
            .into_iter()
            .find(|one| one["contact_id"] == contact)
            .map(|one| text(&one["id"]))
            .unwrap()
    };
    assert_eq!(messages(&ana, &of(&known)).len(), 2);
    let oculta = found.iter().find(|contact| contact["name"] == "Oculta").unwrap();
    assert_eq!(
        (&oculta["phone"], &oculta["wa_user_id"]),
        (&json!(null), &json!("BR.150200"))
    );
    let answered = reply(&ana, &of(&text(&oculta["id"])), "oi").created();
    assert_eq!(answered["status"], "sent");
    let body = server.whatsapp.sends().pop().unwrap().request.body;
    assert_eq!((&body["recipient"], &body["to"]), (&json!("BR.150200"), &json!(null)));
    // A new number is the same person.
    server.whatsapp.inbound(&Inbound {
        new_number: Some("+5511961234567".into()),
        ..Inbound::text(NUMBER, ANA, "")
    });
    server
        .whatsapp
        .inbound(&Inbound::text(NUMBER, "+5511961234567", "mudei"));
    heard(&server);
    assert_eq!(
        ana.get(&format!("/api/contacts/{known}")).ok()["phone"],
        "+5511961234567"
    );
    assert_eq!(messages(&ana, &of(&known)).len(), 3);
}

#[test]
fn repeated_and_reordered_batches_change_nothing_they_should_not() {
    let server = Server::start(silent());
    let (ana, bia) = (server.owner(), server.owner());
    ana.profile_at(NUMBER);
    bia.profile_at(NUMBER);
    let written = |from: &str, words: &str, back: u64| Inbound {
        timestamp: Some(now() - back),
        ..Inbound::text(NUMBER, from, words)
    };
    let messages_of = vec![
        written(ANA, "um", 30),
        written("+5511961234567", "dois", 20),
        written(ANA, "três", 10),
    ];
    let batch = InboundBatch {
        phone_number_id: NUMBER.into(),
        messages: messages_of,
        reversed: true,
        repeated: 9,
    };
    server.whatsapp.inbound_batch(&batch);
    server.whatsapp.inbound_batch(&InboundBatch {
        phone_number_id: "999".into(),
        ..batch
    });
    heard(&server);
    // Both accounts have the number: each has its own copy, and nobody anything twice.
    for user in [&ana, &bia] {
        let found = conversations(user, "");
        assert_eq!(found.len(), 2, "{found:?}");
        let said: Vec<Value> = messages(user, &text(&found[0]["id"]))
            .iter()
            .map(|one| one["text"].clone())
            .collect();
        assert_eq!(said, ["três", "um"], "newest first by when they were written");
        assert_eq!(contacts(user).len(), 2);
    }
    let shared = "FROM messages a JOIN messages b ON a.id = b.id AND a.account_id <> b.account_id";
    assert_eq!(server.db.count(shared), 0);
}

#[test]
fn the_window_counts_from_the_messages_own_timestamp() {
    let server = Server::start(silent());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let written = |back: u64| Inbound {
        timestamp: Some(now() - back),
        ..Inbound::text(NUMBER, ANA, "oi")
    };
    server.whatsapp.inbound(&written(DAY + 1));
    let id = conversation(&ana);
    let refused = reply(&ana, &id, "tarde").refused(400, "VALIDATION_ERROR");
    assert!(text(&refused["message"]).contains("24 hours"), "{refused}");
    assert!(server.whatsapp.sends().is_empty() && messages(&ana, &id).len() == 1);
    // An older one that comes later opens nothing.
    server.whatsapp.inbound(&written(DAY + 100));
    heard(&server);
    reply(&ana, &id, "tarde").refused(400, "VALIDATION_ERROR");
    server.whatsapp.inbound(&written(DAY - 60));
    heard(&server);
    assert_eq!(reply(&ana, &id, "a tempo").created()["status"], "sent");
    for wrong in [
        json!({}),
        json!({ "text": "" }),
        json!({ "text": " \n" }),
        json!({ "text": "é".repeat(4097) }),
        json!({ "text": null }),
    ] {
        assert_eq!(
            ana.post(&format!("/api/conversations/{id}/messages"), wrong).invalid(),
            ["text"]
        );
    }
    reply(&ana, &id, &"é".repeat(4096)).created();
}

#[test]
fn a_conversation_is_closed_and_a_message_reopens_it() {
    let server = Server::start(silent());
    let ana = server.owner();
    let id = written_to(&ana);
    let path = format!("/api/conversations/{id}");
    let set = |status: &str| ana.put(&path, json!({ "status": status }));
    let closed = set("closed").ok();
    assert_eq!((&closed["status"], &closed["id"]), (&json!("closed"), &json!(id)));
    assert_eq!(
        (
            conversations(&ana, "?status=open").len(),
            conversations(&ana, "?status=closed").len()
        ),
        (0, 1)
    );
    server.whatsapp.inbound(&Inbound::text(NUMBER, ANA, "de novo"));
    heard(&server);
    assert_eq!(conversations(&ana, "?status=open").len(), 1);
    set("closed").ok();
    reply(&ana, &id, "olá").created();
    assert_eq!(
        conversations(&ana, "?status=open").len(),
        1,
        "our own message opens it too"
    );
    for wrong in [
        json!({}),
        json!({ "status": "gone" }),
        json!({ "status": null }),
        json!({ "status": 7 }),
    ] {
        assert_eq!(ana.put(&path, wrong.clone()).invalid(), ["status"], "{wrong}");
    }
    assert_eq!(ana.get("/api/conversations?status=gone").invalid(), ["status"]);
    assert_eq!(ana.get("/api/conversations?cursor=zz").invalid(), ["cursor"]);
    assert_eq!(ana.get(&format!("{path}/messages?cursor=zz")).invalid(), ["cursor"]);
}

#[test]
fn opt_outs_keep_campaigns_away_until_the_platform_says_otherwise() {
    let server = Server::start(silent());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let [known, other, third] =
        [(ANA, "A"), ("+5511961234567", "B"), ("+5521987654321", "C")].map(|(phone, name)| ana.contact(name, phone));
    let out = |id: &str| ana.get(&format!("/api/contacts/{id}")).ok()["opted_out_at"].clone();
    let said = now() - 100;
    server.whatsapp.inbound(&Inbound {
        timestamp: Some(said),
        ..Inbound::text(NUMBER, ANA, "  sair\n")
    });
    server.whatsapp.inbound(&Inbound {
        button_payload: Some("p".into()),
        ..Inbound::text(NUMBER, "+5511961234567", "Parar")
    });
    server
        .whatsapp
        .inbound(&Inbound::text(NUMBER, "+5521987654321", "não quero parar"));
    heard(&server);
    let first = out(&known);
    assert!(first.is_string() && out(&other).is_string() && out(&third).is_null());
    server.whatsapp.inbound(&Inbound::text(NUMBER, ANA, "STOP"));
    stop(&server, "stop", said + 10);
    heard(&server);
    assert_eq!(out(&known), first, "the first time wins");
    let campaign = ana.plain_campaign();
    assert_eq!(ana.execute(&campaign).ok()["total"], 1);
    assert_eq!(server.whatsapp.sends().len(), 1);
    stop(&server, "resume", now() + 10);
    stop(&server, "stop", said + 20);
    heard(&server);
    assert_eq!(out(&known), json!(null), "an older wish changes nothing");
    let campaign = ana.plain_campaign();
    assert_eq!(ana.execute(&campaign).ok()["total"], 2);
}

#[test]
fn who_stopped_marketing_with_the_platform_is_opted_out() {
    let server = Server::start(silent());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contacts(2);
    let refusal = WhatsappFaultKind::error(131_050, "stopped");
    server.whatsapp.script(vec![WhatsappFault::send_to(&phone(0), refusal)]);
    let campaign = ana.plain_campaign();
    ana.execute(&campaign).ok();
    assert_eq!(
        server
            .db
            .text("SELECT phone FROM contacts WHERE opted_out_at IS NOT NULL"),
        phone(0)
    );
    let sends = ana.sends(&campaign);
    let sent = sends.iter().find(|send| send["status"] == "sent").unwrap();
    let mut told = status(&text(&sent["wa_message_id"]), "failed", None);
    told["errors"] = json!([{ "code": 131_050, "title": "stopped" }]);
    server.callback(&statuses(NUMBER, &[told]));
    assert_eq!(server.db.count("FROM contacts WHERE opted_out_at IS NOT NULL"), 2);
}

#[test]
fn a_refused_reply_tells_why_and_is_kept_as_failed() {
    let server = Server::start(silent());
    let ana = server.owner();
    let id = written_to(&ana);
    let refusal = |code, details: &str| WhatsappFault::send(WhatsappFaultKind::error(code, details));
    server.whatsapp.script(vec![
        refusal(131_047, "More than 24 hours"),
        refusal(190, "expired"),
        WhatsappFault::send(WhatsappFaultKind::Throttle),
    ]);
    for code in [131_047, 190, 130_429] {
        let error = reply(&ana, &id, "oi").refused(502, "WHATSAPP_ERROR");
        assert_eq!(error["details"]["code"], code, "{error}");
        assert!(!text(&error["details"]["message"]).is_empty());
    }
    let kept = messages(&ana, &id);
    assert_eq!(kept.iter().filter(|one| one["status"] == "failed").count(), 3);
    assert_eq!(
        server
            .db
            .text("SELECT error_message FROM messages WHERE status = 'failed' ORDER BY id LIMIT 1"),
        "More than 24 hours"
    );
    assert_eq!(server.whatsapp.sends().len(), 3, "nothing is tried again");
    let profile = server.db.text("SELECT id FROM whatsapp_profiles");
    ana.delete(&format!("/api/whatsapp/profiles/{profile}")).gone();
    let refused = reply(&ana, &id, "oi").refused(400, "VALIDATION_ERROR");
    assert!(text(&refused["message"]).contains("number"), "{refused}");
    assert_eq!(messages(&ana, &id).len(), 4);
}

#[test]
fn what_may_have_left_stays_pending_until_it_is_settled() {
    let server = Server::start(silent().with("SEND_UNKNOWN_TTL", "3s"));
    let ana = server.owner();
    let id = written_to(&ana);
    let kinds = [
        WhatsappFaultKind::AcceptThenReset,
        WhatsappFaultKind::AcceptThenStatus500,
        WhatsappFaultKind::GarbageJson,
    ];
    let pending: Vec<Value> = kinds
        .into_iter()
        .map(|kind| {
            server.whatsapp.script(vec![WhatsappFault::send(kind)]);
            let answered = reply(&ana, &id, "oi").created();
            assert_eq!(
                (&answered["status"], &answered["wa_message_id"]),
                (&json!("pending"), &json!(null))
            );
            answered
        })
        .collect();
    assert_eq!(server.whatsapp.sends().len(), 3, "each was sent once");
    let ours = text(&pending[0]["id"]);
    server.callback(&statuses(NUMBER, &[status("wamid.X", "delivered", Some(&ours))]));
    let by = |id: &Value| {
        messages(&ana, &text(&pending[0]["conversation_id"]))
            .into_iter()
            .find(|one| one["id"] == *id)
            .unwrap()
    };
    assert_eq!(
        (
            &by(&pending[0]["id"])["status"],
            &by(&pending[0]["id"])["wa_message_id"]
        ),
        (&json!("delivered"), &json!("wamid.X"))
    );
    server.callback(&statuses(NUMBER, &[status("wamid.X", "read", None)]));
    assert_eq!(by(&pending[0]["id"])["status"], "read");
    for other in &pending[1..] {
        until("time settles it", || by(&other["id"])["status"] == "failed");
    }
    assert!(
        server
            .db
            .text("SELECT error_message FROM messages WHERE status = 'failed' LIMIT 1")
            .contains("unknown")
    );
    assert_eq!(server.whatsapp.sends().len(), 3);
}

#[test]
fn a_server_that_dies_in_the_call_sends_nothing_twice() {
    let server = Server::start(silent());
    let ana = server.owner();
    let id = written_to(&ana);
    server
        .whatsapp
        .script(vec![WhatsappFault::send(WhatsappFaultKind::Hang { ms: 60_000 })]);
    let request = ana
        .request("POST", &format!("/api/conversations/{id}/messages"))
        .json(&json!({ "text": "oi" }));
    let waiting = std::thread::spawn(move || request.try_send().is_ok());
    until("the call left", || server.whatsapp.counters().accepted == 1);
    server.kill();
    waiting.join().unwrap();
    server.run(&["serve"]);
    let kept = messages(&ana, &id).remove(0);
    assert_eq!((&kept["status"], &kept["text"]), (&json!("pending"), &json!("oi")));
    server.callback(&statuses(
        NUMBER,
        &[status("wamid.Y", "sent", Some(&text(&kept["id"])))],
    ));
    assert_eq!(messages(&ana, &id)[0]["status"], "sent");
    assert_eq!(server.whatsapp.sends().len(), 1);
}

/// F40h, for campaign sends and replies alike.
#[test]
fn statuses_in_any_order_ten_times_before_the_record_and_for_foreigners() {
    // The platform tells read, delivered, sent, each eleven times, while the calls still wait for their answers.
    let server = Server::start(Options::platform(|platform| platform.sent_ms = Some(10)));
    let (ana, bia) = (server.owner(), server.owner());
    let id = written_to(&ana);
    bia.profile_at("222");
    let slow = || {
        vec![
            WhatsappFault::send(WhatsappFaultKind::Hang { ms: 1500 }),
            WhatsappFault::send(WhatsappFaultKind::DuplicateCallbacks { n: 10 }),
        ]
    };
    server.whatsapp.script(slow());
    let answered = reply(&ana, &id, "oi").created();
    assert_eq!(answered["status"], "read", "the news was faster than the answer");
    server.whatsapp.script(vec![
        WhatsappFault::send(WhatsappFaultKind::Hang { ms: 1500 }),
        WhatsappFault::send(WhatsappFaultKind::ReorderCallbacks),
    ]);
    let campaign = ana.plain_campaign();
    ana.execute(&campaign).ok();
    assert_eq!(ended(&ana, &campaign), "completed");
    counted(&ana, &campaign, "read", 1);
    heard(&server);
    let send = ana.sends(&campaign).remove(0);
    let both = [
        (text(&answered["wa_message_id"]), text(&answered["id"])),
        (text(&send["wa_message_id"]), text(&send["id"])),
    ];
    let mut news = Vec::new();
    for (wamid, ours) in &both {
        for word in ["read", "delivered", "sent", "failed"] {
            news.extend((0..10).map(|_| status(wamid, word, Some(ours))));
        }
    }
    for number in [NUMBER, "222", "333"] {
        assert_eq!(server.callback(&statuses(number, &news)).status, 200);
    }
    assert_eq!(counted(&ana, &campaign, "read", 1)["total"], 1);
    assert_eq!(server.db.text("SELECT sent FROM message_usage"), "1");
    assert_eq!(messages(&ana, &id)[0]["status"], "read");
    // Known by the platform's id alone, before the record: kept, and applied once it is there.
    server
        .db
        .run("UPDATE messages SET status = 'pending', wa_message_id = NULL WHERE direction = 'outbound'");
    server.callback(&statuses(NUMBER, &[status(&both[0].0, "delivered", None)]));
    assert_eq!(messages(&ana, &id)[0]["status"], "pending");
    server.db.run(&format!(
        "UPDATE messages SET wa_message_id = '{}' WHERE id = '{}'",
        both[0].0, both[0].1
    ));
    until("the early news is applied", || {
        messages(&ana, &id)[0]["status"] == "delivered"
    });
    assert_eq!(conversations(&bia, ""), Vec::<Value>::new());
}

#[test]
fn a_reply_with_a_key_is_sent_once() {
    let server = Server::start(silent());
    let ana = server.owner();
    let id = written_to(&ana);
    let key = Uuid::new_v4().to_string();
    let send = || {
        let request = ana
            .request("POST", &format!("/api/conversations/{id}/messages"))
            .header("Idempotency-Key", &key);
        request.json(&json!({ "text": "oi" })).send().created()
    };
    assert_eq!(send(), send());
    assert_eq!(server.whatsapp.sends().len(), 1);
}
