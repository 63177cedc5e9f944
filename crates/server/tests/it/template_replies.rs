//! Templates in replies, their refusals and quota, and the files of template headers.

use recado_simulators::whatsapp::{WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::conversations::open_conversation;
use crate::harness::client::Reply;
use crate::harness::media::{FORM, JPEG, PDF, form};
use crate::harness::runs::{usage, without_statuses};
use crate::harness::users::User;
use crate::harness::{Server, eventually, text};

const ANA: &str = "+5531988887777";

fn post(user: &User<'_>, conversation: &str, body: Value) -> Reply {
    user.post(&format!("/api/conversations/{conversation}/messages"), body)
}

#[track_caller]
fn refused(reply: &Reply) -> String {
    assert_eq!(reply.status, 400, "{}", reply.text);
    text(&reply.json()["error"]["details"]["reason"])
}

fn upload(user: &User<'_>, name: &str, content: &[u8]) -> String {
    let body = form(&[("file", name, content)]);
    text(&user.request("POST", "/api/media").body(FORM, body).send().created()["id"])
}

#[test]
fn template_reply_is_sent_outside_the_window() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let conversation = open_conversation(&ana);
    let inbound = ana.get(&format!("/api/conversations/{conversation}/messages")).ok()["data"][0].clone();
    let template = ana.approved("Oi {{1}}, pedido {{2}}.", &["Ana", "1042"]);
    server
        .db
        .run("UPDATE conversations SET last_inbound_at = now() - interval '2 days', status = 'closed'");
    assert_eq!(
        refused(&post(&ana, &conversation, json!({ "text": "Oi" }))),
        "outside_window"
    );
    let body = json!({ "template": { "id": template, "variables": { "1": "Bia", "2": "77" } },
        "reply_to": inbound["id"] });
    let sent = post(&ana, &conversation, body).created();
    assert_eq!(
        (
            &sent["type"],
            &sent["text"],
            &sent["status"],
            &sent["origin"],
            &sent["media"]
        ),
        (
            &json!("template"),
            &json!("Oi Bia, pedido 77."),
            &json!("sent"),
            &json!("reply"),
            &Value::Null
        )
    );
    let call = &server.whatsapp.sends()[0];
    assert_eq!(call.parameters, ["Bia", "77"]);
    assert_eq!(call.request.body["context"]["message_id"], inbound["wa_message_id"]);
    assert_eq!(call.callback_data, Some(text(&sent["id"])));
    assert_eq!(server.db.text("SELECT status FROM conversations"), "open");
    // The accepted reply counts as a reply, and nothing stays reserved.
    assert_eq!(usage(&server, &ana.account), "0 0");
    assert_eq!(ana.get("/api/analytics").ok()["messages"]["total_sent"], 1);
}

#[test]
fn template_reply_has_the_refusals_and_the_quota_of_messages() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let conversation = open_conversation(&ana);
    let template = ana.approved("Oi {{1}}", &["Ana"]);
    let draft = ana.template("rascunho", "Oi", &[]);
    let reply = |template: Value| post(&ana, &conversation, json!({ "template": template }));
    assert_eq!(refused(&reply(json!({ "id": draft }))), "template_not_approved");
    let empty = reply(json!({ "id": template, "variables": { "1": " " } }));
    assert_eq!(refused(&empty), "placeholder_empty");
    assert_eq!(empty.json()["error"]["details"]["placeholders"], json!(["1"]));
    assert_eq!(reply(json!({ "id": uuid::Uuid::now_v7() })).invalid(), ["template.id"]);
    assert_eq!(reply(json!({ "name": "x" })).invalid(), ["template"]);
    let both = json!({ "text": "Oi", "template": { "id": template } });
    assert_eq!(post(&ana, &conversation, both).invalid(), ["text"]);
    server.db.run("UPDATE contacts SET opted_out_at = now()");
    assert_eq!(refused(&reply(json!({ "id": template }))), "opted_out");
    server.db.run("UPDATE contacts SET opted_out_at = NULL");
    assert!(server.whatsapp.sends().is_empty());
    // A failed reply gives its message back, an unknown one does not.
    let kinds = [
        WhatsappFaultKind::error(131_026, "not on WhatsApp"),
        WhatsappFaultKind::AcceptThenReset,
    ];
    server.whatsapp.script(kinds.map(WhatsappFault::send).into());
    reply(json!({ "id": template })).refused(502, "WHATSAPP_ERROR");
    assert_eq!(usage(&server, &ana.account), "0 0");
    assert_eq!(reply(json!({ "id": template })).created()["status"], "pending");
    assert_eq!(usage(&server, &ana.account), "0 1");
    // The free plan has 250 messages a month.
    server.db.run("UPDATE message_usage_slots SET sent = 248");
    reply(json!({ "id": template })).created();
    assert_eq!(refused(&reply(json!({ "id": template }))), "month_limit");
    post(
        &ana,
        &conversation,
        json!({ "text": "a full quota never blocks a reply" }),
    )
    .created();
    let stored = server.db.count("FROM messages WHERE type = 'template'");
    assert_eq!(stored, 3, "a refused reply is not stored");
}

#[test]
fn uploaded_file_is_the_header_of_a_template() {
    let server = Server::start(without_statuses());
    let (ana, bia) = (server.owner(), server.owner());
    let conversation = open_conversation(&ana);
    let template = ana.approved("Oi", &[]);
    server.db.run("UPDATE message_templates SET header_type = 'image'");
    let own = upload(&ana, "bolo.jpg", JPEG);
    let direct = |header: Value| {
        let body = json!({ "to": { "phone": ANA }, "template": { "id": template, "header": header } });
        ana.post("/api/messages", body)
    };
    let without = ana.post(
        "/api/messages",
        json!({ "to": { "phone": ANA }, "template": { "id": template } }),
    );
    assert_eq!(refused(&without), "template_not_sendable");
    for wrong in [
        upload(&ana, "a.pdf", PDF),
        upload(&bia, "b.jpg", JPEG),
        uuid::Uuid::nil().to_string(),
    ] {
        assert_eq!(
            direct(json!({ "media_id": wrong })).invalid(),
            ["template.header.media_id"]
        );
    }
    server
        .db
        .run("UPDATE message_media SET expires_at = now() + interval '1 hour'");
    let id = text(&direct(json!({ "media_id": own })).created()["id"]);
    eventually("the message is sent", || {
        let message = ana.get(&format!("/api/messages/{id}")).ok();
        (message["status"] == "sent").then_some(())
    });
    let reserved = server.db.count(&format!(
        "FROM message_media WHERE id = '{own}' AND expires_at > now() + interval '29 days'"
    ));
    assert_eq!(reserved, 1);
    let body = json!({ "template": { "id": template, "header": { "media_id": own } } });
    let reply = post(&ana, &conversation, body).created();
    assert_eq!(reply["media"][0]["id"], json!(own));
    let shown = ana.get(&format!("/api/conversations/{conversation}/messages")).ok()["data"][1].clone();
    assert_eq!((&shown["origin"], &shown["media"]), (&json!("api"), &reply["media"]));
    let sends = server.whatsapp.sends();
    let header = |at: usize| sends[at].request.body["template"]["components"][0].clone();
    assert!(header(0)["parameters"][0]["image"]["id"].is_string(), "{}", header(0));
    assert_eq!(header(0), header(1));
    let uploads = server.whatsapp.ledger().into_iter();
    assert_eq!(
        uploads.filter(|entry| entry.request.path.ends_with("/media")).count(),
        1
    );
}
