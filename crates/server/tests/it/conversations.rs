//! Conversations: inbound messages, replies and their statuses, the service window, and opt-outs by message.

use recado_simulators::whatsapp::{Inbound, InboundBatch, Preference, WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::client::Reply;
use crate::harness::runs::{final_status, status, statuses, wait_for_stat, without_statuses};
use crate::harness::users::{User, now, phone};
use crate::harness::{Options, Server, eventually, text, until};

const NUMBER: &str = "106500000001";
const ANA: &str = "+5531988887777";
const DAY: u64 = 24 * 3600;

fn list_conversations(user: &User<'_>, query: &str) -> Vec<Value> {
    let page = user.get(&format!("/api/conversations{query}")).ok();
    page["data"].as_array().unwrap().clone()
}

/// Waits until the account has exactly one conversation and returns its id.
#[track_caller]
fn wait_for_conversation(user: &User<'_>) -> String {
    let found = eventually("a conversation", || {
        Some(list_conversations(user, "")).filter(|found| !found.is_empty())
    });
    assert_eq!(found.len(), 1, "{found:?}");
    text(&found[0]["id"])
}

/// The messages of a conversation, newest first.
fn list_messages(user: &User<'_>, id: &str) -> Vec<Value> {
    let page = user.get(&format!("/api/conversations/{id}/messages?limit=100")).ok();
    page["data"].as_array().unwrap().clone()
}

pub(crate) fn reply(user: &User<'_>, id: &str, message: &str) -> Reply {
    user.post(&format!("/api/conversations/{id}/messages"), json!({ "text": message }))
}

fn list_contacts(user: &User<'_>) -> Vec<Value> {
    user.get("/api/contacts").ok()["data"].as_array().unwrap().clone()
}

/// Connects a number and receives one inbound message on it. Returns the conversation's id.
pub(crate) fn open_conversation(user: &User<'_>) -> String {
    user.profile_at(NUMBER);
    user.server.whatsapp.inbound(&Inbound::text(NUMBER, ANA, "oi"));
    wait_for_conversation(user)
}

/// Sends a `user_preferences` callback of `ANA`: `stop` or `resume`.
fn send_preference(server: &Server, value: &str, timestamp: u64) {
    server.whatsapp.preference(&Preference {
        phone_number_id: NUMBER.into(),
        from: ANA.into(),
        value: value.into(),
        timestamp: Some(timestamp),
        ..Preference::default()
    });
}

/// Waits until the simulator has delivered every callback and the server has applied them.
pub(crate) fn wait_for_callbacks(server: &Server) {
    assert!(server.whatsapp.wait_idle(crate::harness::DEADLINE));
    until("every callback is processed", || {
        server.db.count("FROM whatsapp_callbacks") == 0
    });
}

#[test]
fn message_of_unknown_sender_creates_contact_to_reply_to() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    ana.profile_at(NUMBER);
    let wamid = server.whatsapp.inbound(&Inbound {
        name: Some("Ana <b>Maria".into()),
        ..Inbound::text(NUMBER, ANA, "Oi!\nTudo bem?")
    });
    let id = wait_for_conversation(&ana);
    let contact = list_contacts(&ana).remove(0);
    assert_eq!(
        (&contact["name"], &contact["phone"]),
        (&json!("Ana Maria"), &json!(ANA))
    );
    let shown = list_conversations(&ana, "?status=open").remove(0);
    let mut fields: Vec<&str> = shown.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["contact_id", "created_at", "id", "last_message_at", "status"]);
    assert_eq!(
        (&shown["contact_id"], &shown["status"]),
        (&contact["id"], &json!("open"))
    );
    let inbound = list_messages(&ana, &id).remove(0);
    let expected = json!({ "id": inbound["id"], "conversation_id": id, "direction": "inbound", "type": "text",
        "text": "Oi!\nTudo bem?", "status": "received", "wa_message_id": wamid, "referral": null, "pricing": null, "address": null,
        "origin": "contact", "media": null, "caption": null, "interactive": null, "context": null, "deleted_at": null,
        "created_at": shown["last_message_at"] });
    assert_eq!(inbound, expected);
    let sent_reply = reply(&ana, &id, "Olá, Ana \u{1f600}").created();
    assert_eq!(
        (
            &sent_reply["direction"],
            &sent_reply["type"],
            &sent_reply["conversation_id"]
        ),
        (&json!("outbound"), &json!("text"), &json!(id))
    );
    let send = server.whatsapp.sends().remove(0);
    assert_eq!(send.request.body["text"]["body"], "Olá, Ana \u{1f600}");
    assert_eq!(
        (send.to.as_deref(), send.callback_data),
        (Some(ANA), Some(text(&sent_reply["id"])))
    );
    let read = eventually("the reply is read", || {
        list_messages(&ana, &id)
            .into_iter()
            .find(|message| message["status"] == "read")
    });
    assert_eq!(
        (&read["id"], &read["wa_message_id"]),
        (&sent_reply["id"], &sent_reply["wa_message_id"])
    );
    assert_eq!(list_conversations(&ana, "")[0]["last_message_at"], read["created_at"]);
    assert_eq!(server.db.text("SELECT wa_id FROM contacts"), "553188887777");
    assert_eq!(list_conversations(&bia, ""), Vec::<Value>::new());
    bia.get(&format!("/api/conversations/{id}/messages"))
        .refused(404, "NOT_FOUND");
}

#[test]
fn senders_are_matched_by_ninth_digit_variant_and_user_id() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let stored = ana.contact("Conhecida", ANA);
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
    wait_for_callbacks(&server);
    let found = list_contacts(&ana);
    assert_eq!(found.len(), 2, "{found:?}");
    let conversation_of = |contact: &str| {
        list_conversations(&ana, "")
            .into_iter()
            .find(|conversation| conversation["contact_id"] == contact)
            .map(|conversation| text(&conversation["id"]))
            .unwrap()
    };
    assert_eq!(list_messages(&ana, &conversation_of(&stored)).len(), 2);
    let oculta = found.iter().find(|contact| contact["name"] == "Oculta").unwrap();
    assert_eq!(
        (&oculta["phone"], &oculta["wa_user_id"]),
        (&json!(null), &json!("BR.150200"))
    );
    let sent_reply = reply(&ana, &conversation_of(&text(&oculta["id"])), "oi").created();
    assert_eq!(sent_reply["status"], "sent");
    let body = server.whatsapp.sends().pop().unwrap().request.body;
    assert_eq!((&body["recipient"], &body["to"]), (&json!("BR.150200"), &json!(null)));
    // A changed number keeps the contact.
    server.whatsapp.inbound(&Inbound {
        new_number: Some("+5511961234567".into()),
        ..Inbound::text(NUMBER, ANA, "")
    });
    server
        .whatsapp
        .inbound(&Inbound::text(NUMBER, "+5511961234567", "mudei"));
    wait_for_callbacks(&server);
    assert_eq!(
        ana.get(&format!("/api/contacts/{stored}")).ok()["phone"],
        "+5511961234567"
    );
    assert_eq!(list_messages(&ana, &conversation_of(&stored)).len(), 3);
}

#[test]
fn repeated_and_reordered_messages_are_stored_once() {
    let server = Server::start(without_statuses());
    let (ana, bia) = (server.owner(), server.owner());
    ana.profile_at(NUMBER);
    bia.profile_at(NUMBER);
    let inbound = |from: &str, message: &str, seconds_ago: u64| Inbound {
        timestamp: Some(now() - seconds_ago),
        ..Inbound::text(NUMBER, from, message)
    };
    let messages = vec![
        inbound(ANA, "um", 30),
        inbound("+5511961234567", "dois", 20),
        inbound(ANA, "três", 10),
    ];
    let batch = InboundBatch {
        phone_number_id: NUMBER.into(),
        messages,
        reversed: true,
        repeated: 9,
    };
    server.whatsapp.inbound_batch(&batch);
    server.whatsapp.inbound_batch(&InboundBatch {
        phone_number_id: "999".into(),
        ..batch
    });
    wait_for_callbacks(&server);
    // Both accounts have the number: each stores its own copy of every message exactly once.
    for user in [&ana, &bia] {
        let found = list_conversations(user, "");
        assert_eq!(found.len(), 2, "{found:?}");
        let texts: Vec<Value> = list_messages(user, &text(&found[0]["id"]))
            .iter()
            .map(|message| message["text"].clone())
            .collect();
        assert_eq!(texts, ["três", "um"], "newest first by WhatsApp's timestamp");
        assert_eq!(list_contacts(user).len(), 2);
    }
    let shared = "FROM messages a JOIN messages b ON a.id = b.id AND a.account_id <> b.account_id";
    assert_eq!(server.db.count(shared), 0);
}

#[test]
fn service_window_starts_at_the_messages_own_timestamp() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let inbound = |seconds_ago: u64| Inbound {
        timestamp: Some(now() - seconds_ago),
        ..Inbound::text(NUMBER, ANA, "oi")
    };
    server.whatsapp.inbound(&inbound(DAY + 1));
    let id = wait_for_conversation(&ana);
    let refused = reply(&ana, &id, "tarde").refused(400, "VALIDATION_ERROR");
    assert!(text(&refused["message"]).contains("24 hours"), "{refused}");
    assert!(server.whatsapp.sends().is_empty() && list_messages(&ana, &id).len() == 1);
    // An older message that arrives later does not open the window.
    server.whatsapp.inbound(&inbound(DAY + 100));
    wait_for_callbacks(&server);
    reply(&ana, &id, "tarde").refused(400, "VALIDATION_ERROR");
    server.whatsapp.inbound(&inbound(DAY - 60));
    wait_for_callbacks(&server);
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
fn closed_conversation_is_reopened_by_a_message() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = open_conversation(&ana);
    let path = format!("/api/conversations/{id}");
    let set = |status: &str| ana.put(&path, json!({ "status": status }));
    let closed = set("closed").ok();
    assert_eq!((&closed["status"], &closed["id"]), (&json!("closed"), &json!(id)));
    assert_eq!(
        (
            list_conversations(&ana, "?status=open").len(),
            list_conversations(&ana, "?status=closed").len()
        ),
        (0, 1)
    );
    server.whatsapp.inbound(&Inbound::text(NUMBER, ANA, "de novo"));
    wait_for_callbacks(&server);
    assert_eq!(list_conversations(&ana, "?status=open").len(), 1);
    set("closed").ok();
    reply(&ana, &id, "olá").created();
    assert_eq!(
        list_conversations(&ana, "?status=open").len(),
        1,
        "a reply reopens it too"
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
fn opt_out_message_excludes_contact_until_whatsapp_resume() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let [first, second, third] =
        [(ANA, "A"), ("+5511961234567", "B"), ("+5521987654321", "C")].map(|(phone, name)| ana.contact(name, phone));
    let opted_out_at = |id: &str| ana.get(&format!("/api/contacts/{id}")).ok()["opted_out_at"].clone();
    let first_at = now() - 100;
    server.whatsapp.inbound(&Inbound {
        timestamp: Some(first_at),
        ..Inbound::text(NUMBER, ANA, "  sair\n")
    });
    server.whatsapp.inbound(&Inbound {
        button_payload: Some("p".into()),
        ..Inbound::text(NUMBER, "+5511961234567", "Parar")
    });
    server
        .whatsapp
        .inbound(&Inbound::text(NUMBER, "+5521987654321", "não quero parar"));
    wait_for_callbacks(&server);
    let first_opt_out = opted_out_at(&first);
    assert!(first_opt_out.is_string() && opted_out_at(&second).is_string() && opted_out_at(&third).is_null());
    server.whatsapp.inbound(&Inbound::text(NUMBER, ANA, "STOP"));
    send_preference(&server, "stop", first_at + 10);
    wait_for_callbacks(&server);
    assert_eq!(opted_out_at(&first), first_opt_out, "the first opt-out keeps its time");
    let campaign = ana.plain_campaign();
    assert_eq!(ana.execute(&campaign).ok()["total"], 1);
    assert_eq!(server.whatsapp.sends().len(), 1);
    send_preference(&server, "resume", now() + 10);
    send_preference(&server, "stop", first_at + 20);
    wait_for_callbacks(&server);
    assert_eq!(opted_out_at(&first), json!(null), "an older preference changes nothing");
    let campaign = ana.plain_campaign();
    assert_eq!(ana.execute(&campaign).ok()["total"], 2);
}

#[test]
fn contact_who_stopped_marketing_is_opted_out() {
    let server = Server::start(without_statuses());
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
    let mut failed = status(&text(&sent["wa_message_id"]), "failed", None);
    failed["errors"] = json!([{ "code": 131_050, "title": "stopped" }]);
    server.callback(&statuses(NUMBER, &[failed]));
    assert_eq!(server.db.count("FROM contacts WHERE opted_out_at IS NOT NULL"), 2);
}

#[test]
fn refused_reply_returns_the_reason_and_is_stored_as_failed() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = open_conversation(&ana);
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
    let stored = list_messages(&ana, &id);
    assert_eq!(stored.iter().filter(|message| message["status"] == "failed").count(), 3);
    assert_eq!(
        server
            .db
            .text("SELECT error_message FROM messages WHERE status = 'failed' ORDER BY id LIMIT 1"),
        "More than 24 hours"
    );
    assert_eq!(server.whatsapp.sends().len(), 3, "a refused reply is not retried");
    let profile = server.db.text("SELECT id FROM whatsapp_profiles");
    ana.delete(&format!("/api/whatsapp/profiles/{profile}")).no_content();
    let refused = reply(&ana, &id, "oi").refused(400, "VALIDATION_ERROR");
    assert!(text(&refused["message"]).contains("number"), "{refused}");
    assert_eq!(list_messages(&ana, &id).len(), 4);
}

#[test]
fn reply_with_unknown_outcome_is_pending_until_resolved() {
    let server = Server::start(without_statuses().with("SEND_UNKNOWN_TTL", "3s"));
    let ana = server.owner();
    let id = open_conversation(&ana);
    let kinds = [
        WhatsappFaultKind::AcceptThenReset,
        WhatsappFaultKind::AcceptThenStatus500,
        WhatsappFaultKind::GarbageJson,
    ];
    let pending: Vec<Value> = kinds
        .into_iter()
        .map(|kind| {
            server.whatsapp.script(vec![WhatsappFault::send(kind)]);
            let sent_reply = reply(&ana, &id, "oi").created();
            assert_eq!(
                (&sent_reply["status"], &sent_reply["wa_message_id"]),
                (&json!("pending"), &json!(null))
            );
            sent_reply
        })
        .collect();
    assert_eq!(server.whatsapp.sends().len(), 3, "each was sent once");
    let message_id = text(&pending[0]["id"]);
    server.callback(&statuses(NUMBER, &[status("wamid.X", "delivered", Some(&message_id))]));
    let message_by_id = |id: &Value| {
        list_messages(&ana, &text(&pending[0]["conversation_id"]))
            .into_iter()
            .find(|message| message["id"] == *id)
            .unwrap()
    };
    assert_eq!(
        (
            &message_by_id(&pending[0]["id"])["status"],
            &message_by_id(&pending[0]["id"])["wa_message_id"]
        ),
        (&json!("delivered"), &json!("wamid.X"))
    );
    server.callback(&statuses(NUMBER, &[status("wamid.X", "read", None)]));
    assert_eq!(message_by_id(&pending[0]["id"])["status"], "read");
    for reply in &pending[1..] {
        until("the unknown outcome expires", || {
            message_by_id(&reply["id"])["status"] == "failed"
        });
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
fn server_killed_during_reply_sends_it_once() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = open_conversation(&ana);
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
    let stored = list_messages(&ana, &id).remove(0);
    assert_eq!((&stored["status"], &stored["text"]), (&json!("pending"), &json!("oi")));
    server.callback(&statuses(
        NUMBER,
        &[status("wamid.Y", "sent", Some(&text(&stored["id"])))],
    ));
    assert_eq!(list_messages(&ana, &id)[0]["status"], "sent");
    assert_eq!(server.whatsapp.sends().len(), 1);
}

/// F40h of docs/faults.md, for campaign sends and replies.
#[test]
fn repeated_early_and_foreign_statuses_apply_once() {
    // WhatsApp reports read, delivered and sent, each eleven times, before it responds to the calls.
    let server = Server::start(Options::with_whatsapp(|whatsapp| whatsapp.sent_ms = Some(10)));
    let (ana, bia) = (server.owner(), server.owner());
    let id = open_conversation(&ana);
    bia.profile_at("222");
    let slow_with_duplicates = || {
        vec![
            WhatsappFault::send(WhatsappFaultKind::Hang { ms: 1500 }),
            WhatsappFault::send(WhatsappFaultKind::DuplicateCallbacks { n: 10 }),
        ]
    };
    server.whatsapp.script(slow_with_duplicates());
    let sent_reply = reply(&ana, &id, "oi").created();
    assert_eq!(sent_reply["status"], "read", "the status update precedes the response");
    server.whatsapp.script(vec![
        WhatsappFault::send(WhatsappFaultKind::Hang { ms: 1500 }),
        WhatsappFault::send(WhatsappFaultKind::ReorderCallbacks),
    ]);
    let campaign = ana.plain_campaign();
    ana.execute(&campaign).ok();
    assert_eq!(final_status(&ana, &campaign), "completed");
    wait_for_stat(&ana, &campaign, "read", 1);
    wait_for_callbacks(&server);
    let send = ana.sends(&campaign).remove(0);
    let both = [
        (text(&sent_reply["wa_message_id"]), text(&sent_reply["id"])),
        (text(&send["wa_message_id"]), text(&send["id"])),
    ];
    let mut updates = Vec::new();
    for (wamid, message_id) in &both {
        for name in ["read", "delivered", "sent", "failed"] {
            updates.extend((0..10).map(|_| status(wamid, name, Some(message_id))));
        }
    }
    for number in [NUMBER, "222", "333"] {
        assert_eq!(server.callback(&statuses(number, &updates)).status, 200);
    }
    assert_eq!(wait_for_stat(&ana, &campaign, "read", 1)["total"], 1);
    assert_eq!(server.db.text("SELECT sent FROM message_usage"), "1");
    assert_eq!(list_messages(&ana, &id)[0]["status"], "read");
    // A status update that names only WhatsApp's id arrives before that id is recorded: it waits, then applies.
    server
        .db
        .run("UPDATE messages SET status = 'pending', wa_message_id = NULL WHERE direction = 'outbound'");
    server.callback(&statuses(NUMBER, &[status(&both[0].0, "delivered", None)]));
    assert_eq!(list_messages(&ana, &id)[0]["status"], "pending");
    server.db.run(&format!(
        "UPDATE messages SET wa_message_id = '{}' WHERE id = '{}'",
        both[0].0, both[0].1
    ));
    until("the early status update is applied", || {
        list_messages(&ana, &id)[0]["status"] == "delivered"
    });
    assert_eq!(list_conversations(&bia, ""), Vec::<Value>::new());
}

#[test]
fn reply_with_idempotency_key_is_sent_once() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = open_conversation(&ana);
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
