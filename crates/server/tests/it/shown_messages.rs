//! Direct messages in the conversation of their contact: shown, quoted, and counted as replies are.

use serde_json::{Value, json};

use crate::conversations::{open_conversation, reply};
use crate::harness::media::{FORM, JPEG, form};
use crate::harness::process::command;
use crate::harness::runs::without_statuses;
use crate::harness::users::{User, now};
use crate::harness::{Server, eventually, text};

const NUMBER: &str = "106500000001";
const WABA: &str = "100000000000001";
const ANA: &str = "+5531988887777";

/// The messages of the conversation, newest first, read in pages of this size.
fn messages(user: &User<'_>, conversation: &str, limit: usize) -> Vec<Value> {
    let (mut all, mut cursor) = (vec![], String::new());
    loop {
        let path = format!("/api/conversations/{conversation}/messages?limit={limit}&cursor={cursor}");
        let page = user.get(&path).ok();
        let data = page["data"].as_array().unwrap();
        assert!(data.len() <= limit);
        all.extend(data.clone());
        match page["nextCursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => return all,
        }
    }
}

/// Sends a direct message to the contact of the conversation, and waits until it is sent.
#[track_caller]
fn send(user: &User<'_>, mut body: Value) -> Value {
    body["to"] = json!({ "phone": ANA });
    let id = text(&user.post("/api/messages", body).created()["id"]);
    eventually("the message is sent", || {
        let message = user.get(&format!("/api/messages/{id}")).ok();
        Some(message).filter(|message| message["status"] == "sent")
    })
}

fn upload(user: &User<'_>) -> String {
    let body = form(&[("file", "bolo.jpg", JPEG)]);
    text(&user.request("POST", "/api/media").body(FORM, body).send().created()["id"])
}

#[test]
fn direct_messages_are_listed_in_the_conversation() {
    let server = Server::start(without_statuses());
    let (ana, bia) = (server.owner(), server.owner());
    let conversation = open_conversation(&ana);
    let template = ana.approved("Oi {{1}}, pedido {{2}}.", &["Ana", "1042"]);
    let file = upload(&ana);
    let texted = send(&ana, json!({ "text": "Seu pedido saiu." }));
    let with_file = send(
        &ana,
        json!({ "media": { "type": "image", "media_id": file, "caption": "Bolo" } }),
    );
    let template = json!({ "id": template, "variables": { "1": "Bia", "2": "77" } });
    let templated = send(&ana, json!({ "template": template }));
    // A message that has not left is not shown.
    let later = json!({ "to": { "phone": ANA }, "template": template, "send_at": "2099-01-01T00:00:00Z" });
    assert_eq!(ana.post("/api/messages", later).invalid(), ["send_at"]);
    let shown = messages(&ana, &conversation, 100);
    let ids: Vec<&Value> = shown.iter().take(3).map(|message| &message["id"]).collect();
    assert_eq!(ids, [&templated["id"], &with_file["id"], &texted["id"]]);
    assert_eq!((shown.len(), &shown[3]["origin"]), (4, &json!("contact")));
    for limit in [1, 2, 3] {
        assert_eq!(messages(&ana, &conversation, limit), shown, "in pages of {limit}");
    }
    let expected = json!({ "id": templated["id"], "conversation_id": conversation, "direction": "outbound",
        "type": "template", "text": "Oi Bia, pedido 77.", "status": "sent", "wa_message_id": templated["wa_message_id"],
        "referral": null, "pricing": null, "address": "phone", "origin": "api", "media": null, "caption": null, "interactive": null,
        "context": null, "deleted_at": null, "created_at": templated["sent_at"] });
    assert_eq!(shown[0], expected);
    assert_eq!(
        (
            &shown[1]["type"],
            &shown[1]["text"],
            &shown[1]["caption"],
            &shown[1]["media"][0]["id"]
        ),
        (&json!("image"), &json!("Bolo"), &json!("Bolo"), &json!(file))
    );
    assert_eq!(
        (&shown[2]["type"], &shown[2]["text"]),
        (&json!("text"), &json!("Seu pedido saiu."))
    );
    let listed = ana.get("/api/conversations").ok()["data"][0].clone();
    assert_eq!(listed["last_message_at"], shown[0]["created_at"]);
    bia.get(&format!("/api/conversations/{conversation}/messages"))
        .refused(404, "NOT_FOUND");
    // A later status changes the shown message.
    let status = json!({ "object": "whatsapp_business_account", "entry": [{ "id": WABA, "changes": [{ "field": "messages",
        "value": { "metadata": { "phone_number_id": NUMBER }, "statuses": [{ "id": texted["wa_message_id"],
            "status": "read", "timestamp": now().to_string(), "recipient_id": &ANA[1..] }] } }] }] });
    assert_eq!(server.callback(&status).status, 200);
    eventually("the message is read", || {
        (messages(&ana, &conversation, 100)[2]["status"] == "read").then_some(())
    });
}

#[test]
fn direct_message_can_be_quoted_by_both_sides() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let conversation = open_conversation(&ana);
    let sent = send(&ana, json!({ "text": "Seu pedido saiu." }));
    let body = json!({ "text": "Chegou?", "reply_to": sent["id"] });
    let quoting = ana
        .post(&format!("/api/conversations/{conversation}/messages"), body)
        .created();
    let context = json!({ "message_id": sent["id"], "wa_message_id": sent["wa_message_id"] });
    assert_eq!(quoting["context"], context);
    let call = &server.whatsapp.sends()[1].request.body;
    assert_eq!(call["context"]["message_id"], sent["wa_message_id"]);
    let answer = json!({ "object": "whatsapp_business_account", "entry": [{ "id": WABA, "changes": [{ "field": "messages",
        "value": { "metadata": { "phone_number_id": NUMBER },
            "contacts": [{ "wa_id": &ANA[1..], "profile": { "name": "Ana" } }],
            "messages": [{ "from": &ANA[1..], "id": "wamid.answer", "timestamp": now().to_string(), "type": "text",
                "text": { "body": "Sim" }, "context": { "id": sent["wa_message_id"] } }] } }] }] });
    assert_eq!(server.callback(&answer).status, 200);
    let answer = eventually("the answer", || {
        let all = messages(&ana, &conversation, 100);
        all.into_iter()
            .find(|message| message["wa_message_id"] == "wamid.answer")
    });
    assert_eq!(answer["context"], context);
}

#[test]
fn direct_messages_are_counted_as_replies_are() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let conversation = open_conversation(&ana);
    let template = ana.approved("Oi {{1}}", &["Ana"]);
    reply(&ana, &conversation, "Temos.").created();
    send(&ana, json!({ "template": { "id": template } }));
    send(&ana, json!({ "text": "=1+1" }));
    // One that is cancelled and one that is reserved count nowhere yet.
    let scheduled = |seconds: u64| {
        let at = time::OffsetDateTime::from_unix_timestamp(i64::try_from(now() + seconds).unwrap()).unwrap();
        let at = at.format(&time::format_description::well_known::Rfc3339).unwrap();
        let body = json!({ "to": { "phone": ANA }, "template": { "id": template }, "send_at": at });
        text(&ana.post("/api/messages", body).created()["id"])
    };
    let cancelled = scheduled(60);
    ana.post(&format!("/api/messages/{cancelled}/cancel"), json!({})).ok();
    scheduled(60);
    let overview = ana.get("/api/analytics").ok();
    assert_eq!(
        (
            &overview["messages"]["total_sent"],
            &overview["messages"]["total_received"]
        ),
        (&json!(3), &json!(1))
    );
    let totals = ana.get("/api/analytics/messages").ok()["totals"].clone();
    assert_eq!((&totals["sent"], &totals["failed"]), (&json!(3), &json!(0)));
    let export = ana.get("/api/analytics/export?type=messages").text;
    for (row, times) in [
        ("outbound,template,sent,Oi Cliente", 1),
        ("outbound,text,sent,'=1+1", 1),
        (",template,", 2),
    ] {
        assert_eq!(export.matches(row).count(), times, "{row}: {export}");
    }
    let output = command(&["rollups", "verify"], &server.environment()).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stdout}");
}
