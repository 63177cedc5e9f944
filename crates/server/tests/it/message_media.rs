//! Files of messages: fetched from WhatsApp, served under authentication, uploaded and sent; echoes of the business's
//! own app; replies with files, buttons and lists.

use recado_simulators::whatsapp::{FileSettings, Whatsapp, WhatsappOptions};
use serde_json::{Value, json};

use crate::conversations::open_conversation;
use crate::harness::client::Reply;
use crate::harness::media::{FORM, JPEG, form};
use crate::harness::runs::without_statuses;
use crate::harness::users::{User, now};
use crate::harness::{Options, Server, eventually, text, until};

const NUMBER: &str = "106500000001";
const WABA: &str = "100000000000001";
const ANA: &str = "5531988887777";

/// Readable bytes, so that a response can be compared as text.
const CONTENT: &str = "The quick brown fox jumps over the lazy dog. 0123456789";

fn callback(server: &Server, field: &str, value: &Value) {
    let body = json!({ "object": "whatsapp_business_account", "entry": [{ "id": WABA, "changes": [
        { "field": field, "value": value }] }] });
    assert_eq!(server.callback(&body).status, 200);
}

fn message_value(items: &[Value]) -> Value {
    json!({ "metadata": { "phone_number_id": NUMBER }, "messages": items,
            "contacts": [{ "wa_id": ANA, "profile": { "name": "Ana" } }] })
}

/// An image whose file the platform has under `media_id`.
fn image(id: &str, media_id: &str, at: u64) -> Value {
    json!({ "from": ANA, "id": id, "timestamp": at.to_string(), "type": "image",
            "image": { "id": media_id, "mime_type": "image/jpeg", "caption": format!("caption {id}") } })
}

fn messages(user: &User<'_>) -> Vec<Value> {
    let conversations = user.get("/api/conversations").ok();
    let Some(id) = conversations["data"][0]["id"].as_str() else {
        return vec![];
    };
    let page = user.get(&format!("/api/conversations/{id}/messages?limit=100")).ok();
    page["data"].as_array().unwrap().clone()
}

/// Waits until the file of the message with this WhatsApp id is in `state`, and returns the file.
#[track_caller]
fn wait_for_file(user: &User<'_>, wamid: &str, state: &str) -> Value {
    eventually(state, || {
        let message = messages(user)
            .into_iter()
            .find(|message| message["wa_message_id"] == wamid)?;
        Some(message["media"][0].clone()).filter(|file| file["state"] == state)
    })
}

fn events(user: &User<'_>, kind: &str) -> Vec<Value> {
    let page = user.get(&format!("/api/webhooks/events?limit=100&type={kind}")).ok();
    let events = page["data"].as_array().unwrap();
    events.iter().map(|event| event["data"].clone()).collect()
}

fn subscribe(user: &User<'_>) {
    let body = json!({ "name": "feed", "url": "https://e.example", "events": ["*"], "is_active": false });
    user.post("/api/webhooks", body).created();
}

fn lost_notifications(user: &User<'_>) -> Vec<Value> {
    let page = user.get("/api/notifications?limit=100").ok();
    let all = page["data"].as_array().unwrap().iter();
    all.filter(|notification| notification["title"] == "Files of messages were lost")
        .cloned()
        .collect()
}

#[test]
fn inbound_file_becomes_ready_once_and_is_served_in_parts() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    ana.profile_at(NUMBER);
    subscribe(&ana);
    let file = FileSettings::of(CONTENT.as_bytes(), "image/jpeg");
    let media_id = server.whatsapp.add_file(file);
    for _ in 0..10 {
        callback(
            &server,
            "messages",
            &message_value(&[image("wamid.1", &media_id, now())]),
        );
    }
    let file = wait_for_file(&ana, "wamid.1", "ready");
    let message = messages(&ana).remove(0);
    assert_eq!(
        (&message["caption"], &message["text"]),
        (&json!("caption wamid.1"), &json!("caption wamid.1"))
    );
    assert_eq!(
        (&message["origin"], &message["deleted_at"]),
        (&json!("contact"), &Value::Null)
    );
    let sha256 = text(&file["sha256"]);
    let expected = json!({ "id": file["id"], "type": "image", "mime_type": "image/jpeg", "file_name": null,
        "size": CONTENT.len(), "sha256": sha256, "state": "ready", "reason": null, "expires_at": null });
    assert_eq!(file, expected);
    let ready = eventually("the event", || {
        Some(events(&ana, "message.media_ready")).filter(|events| !events.is_empty())
    });
    let expected = json!({ "message_id": message["id"], "conversation_id": message["conversation_id"],
        "contact_id": ana.get("/api/contacts").ok()["data"][0]["id"], "media": file });
    assert_eq!(ready, [expected]);
    let received = events(&ana, "message.received");
    assert_eq!(
        (received.len(), &received[0]["media"][0]["state"]),
        (1, &json!("pending"))
    );
    assert_served(&ana, &bia, &file);
}

/// A ready file is served to its account alone, whole and in parts.
fn assert_served(ana: &User<'_>, bia: &User<'_>, file: &Value) {
    let sha256 = text(&file["sha256"]);
    let path = format!("/api/media/{}", text(&file["id"]));
    let get = |headers: &[(&str, &str)]| {
        let request = headers
            .iter()
            .fold(ana.request("GET", &path), |request, (name, value)| {
                request.header(name, value)
            });
        request.send()
    };
    let etag = format!("\"{sha256}\"");
    let whole = get(&[]);
    assert_eq!((whole.status, whole.text.as_str()), (200, CONTENT));
    let length = CONTENT.len().to_string();
    for (name, value) in [
        ("content-type", "text/plain"),
        ("content-length", length.as_str()),
        ("etag", etag.as_str()),
        ("accept-ranges", "bytes"),
        ("content-disposition", "attachment"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox"),
        ("cache-control", "private, no-cache"),
    ] {
        assert_eq!(whole.header(name), Some(value), "{name}");
    }
    let part = get(&[("Range", "bytes=10-19")]);
    assert_eq!((part.status, part.text.as_str()), (206, &CONTENT[10..20]));
    let range = format!("bytes 10-19/{}", CONTENT.len());
    assert_eq!(part.header("content-range"), Some(range.as_str()));
    assert_eq!(get(&[("Range", "bytes=-5")]).text, CONTENT[CONTENT.len() - 5..]);
    let outside = get(&[("Range", "bytes=1000-")]);
    let range = format!("bytes */{}", CONTENT.len());
    assert_eq!(
        (outside.status, outside.header("content-range")),
        (416, Some(range.as_str()))
    );
    assert_eq!(get(&[("Range", "bytes=0-1,5-6")]).status, 200);
    assert_eq!(get(&[("If-None-Match", &etag)]).status, 304);
    assert_eq!(get(&[("If-Range", &etag), ("Range", "bytes=0-1")]).status, 206);
    assert_eq!(get(&[("If-Range", "\"x\""), ("Range", "bytes=0-1")]).status, 200);
    bia.get(&path).refused(404, "NOT_FOUND");
    ana.get(&format!("/api/media/{}", uuid::Uuid::nil()))
        .refused(404, "NOT_FOUND");
}

#[test]
fn file_is_fetched_again_after_a_failure_and_a_wrong_hash() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let missing = server.whatsapp.add_file(FileSettings {
        missing: 1,
        ..FileSettings::of(CONTENT.as_bytes(), "image/jpeg")
    });
    let wrong = server.whatsapp.add_file(FileSettings {
        wrong_hashes: 1,
        ..FileSettings::of(CONTENT.as_bytes(), "image/jpeg")
    });
    let items = [image("wamid.1", &missing, now()), image("wamid.2", &wrong, now())];
    callback(&server, "messages", &message_value(&items));
    let file = wait_for_file(&ana, "wamid.1", "pending");
    let pending = ana.get(&format!("/api/media/{}", text(&file["id"])));
    assert_eq!(pending.header("retry-after"), Some("5"));
    assert_eq!(pending.refused(409, "CONFLICT")["details"]["state"], "pending");
    let first = wait_for_file(&ana, "wamid.1", "ready");
    let second = wait_for_file(&ana, "wamid.2", "ready");
    assert_eq!(first["sha256"], second["sha256"]);
    assert_eq!(server.media.files().len(), 2, "nothing of the failed attempts is left");
    assert!(lost_notifications(&ana).is_empty());
}

#[test]
fn lost_files_have_their_reason_and_one_notification() {
    let foreign = Whatsapp::start(WhatsappOptions::default()).unwrap();
    let server = Server::start(Options::default().with("MEDIA_INBOUND_MAX", "1KiB"));
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let elsewhere = server.whatsapp.add_file(FileSettings {
        url: Some(foreign.origin().replace("127.0.0.1", "localhost") + "/files/1"),
        ..FileSettings::of(CONTENT.as_bytes(), "image/jpeg")
    });
    let large = server.whatsapp.add_file(FileSettings::of(&[b'x'; 1025], "image/jpeg"));
    let flood = server.whatsapp.add_file(FileSettings {
        zeros: Some(5000),
        ..FileSettings::default()
    });
    let week = 7 * 24 * 3600;
    let items = [
        image("wamid.host", &elsewhere, now()),
        image("wamid.large", &large, now()),
        image("wamid.flood", &flood, now()),
        image("wamid.old", "unknown", now() - week),
    ];
    callback(&server, "messages", &message_value(&items));
    for (wamid, state, reason) in [
        ("wamid.host", "failed", json!("host")),
        ("wamid.large", "failed", json!("too_large")),
        ("wamid.flood", "failed", json!("too_large")),
        ("wamid.old", "expired", Value::Null),
    ] {
        let file = wait_for_file(&ana, wamid, state);
        assert_eq!((&file["reason"], &file["size"]), (&reason, &Value::Null), "{wamid}");
        let refused = ana
            .get(&format!("/api/media/{}", text(&file["id"])))
            .refused(404, "NOT_FOUND");
        assert_eq!(refused["details"]["state"], state);
    }
    assert!(foreign.ledger().is_empty(), "the token went to a foreign host");
    until("the account is notified", || !lost_notifications(&ana).is_empty());
    std::thread::sleep(std::time::Duration::from_secs(6));
    assert_eq!(lost_notifications(&ana).len(), 1);
    assert_eq!(messages(&ana).len(), 4);
    assert_eq!(server.media.files(), Vec::<String>::new());
}

fn upload(user: &User<'_>, name: &str, content: &[u8]) -> Reply {
    let body = form(&[("file", name, content)]);
    user.request("POST", "/api/media").body(FORM, body).send()
}

#[test]
fn upload_is_kept_checked_and_sent_by_its_id() {
    let server = Server::start(without_statuses());
    let (ana, bia) = (server.owner(), server.owner());
    let conversation = open_conversation(&ana);
    let reply = |media: Value| {
        let body = json!({ "media": media });
        ana.post(&format!("/api/conversations/{conversation}/messages"), body)
    };
    let stored = upload(&ana, "bolo.png", JPEG).created();
    assert_eq!(
        (
            &stored["type"],
            &stored["mime_type"],
            &stored["state"],
            &stored["file_name"]
        ),
        (
            &json!("image"),
            &json!("image/jpeg"),
            &json!("ready"),
            &json!("bolo.png")
        )
    );
    assert!(stored["expires_at"].is_string());
    for refused in [
        &b"MZ\x90\0"[..],
        b"",
        &[b"RIFF\0\0\0\0WEBP".as_slice(), &[0; 512_001]].concat(),
    ] {
        assert_eq!(upload(&ana, "a.webp", refused).invalid(), ["file"]);
    }
    assert_eq!(server.media.files().len(), 1);
    let id = text(&stored["id"]);
    for _ in 0..2 {
        let sent = reply(json!({ "type": "image", "media_id": id, "caption": "Bolo" })).created();
        assert_eq!(
            (&sent["type"], &sent["caption"], &sent["origin"]),
            (&json!("image"), &json!("Bolo"), &json!("reply"))
        );
        assert_eq!(sent["media"][0]["id"], stored["id"]);
    }
    let uploads = server.whatsapp.ledger().into_iter();
    assert_eq!(
        uploads.filter(|entry| entry.request.path.ends_with("/media")).count(),
        1
    );
    let sends = server.whatsapp.sends();
    assert_eq!(sends[0].request.body["image"], sends[1].request.body["image"]);
    assert_eq!(sends[0].request.body["image"]["caption"], "Bolo");
    let foreign = text(&upload(&bia, "a.jpg", JPEG).created()["id"]);
    let wrong_kind = json!({ "type": "video", "media_id": id });
    for wrong in [json!({ "type": "image", "media_id": foreign }), wrong_kind] {
        assert_eq!(reply(wrong).invalid(), ["media.media_id"]);
    }
    reply(json!({ "type": "document", "url": "https://l.example/a.pdf", "file_name": "a.pdf" })).created();
    assert_eq!(server.whatsapp.sends().len(), 3);
}

#[test]
fn interactive_replies_are_sent_and_their_limits_name_the_field() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let conversation = open_conversation(&ana);
    let inbound = messages(&ana).remove(0);
    let post = |body: Value| ana.post(&format!("/api/conversations/{conversation}/messages"), body);
    let button = |id: usize, title: &str| json!({ "id": id.to_string(), "title": title });
    let buttons =
        |buttons: Vec<Value>| json!({ "interactive": { "type": "buttons", "body": "Quer?", "buttons": buttons } });
    let rows: Vec<Value> = (0..11).map(|n| button(n, "Bolo")).collect();
    let list = |rows: &[Value]| json!({ "interactive": { "type": "list", "body": "Qual?", "button": "Ver", "sections": [{ "rows": rows }] } });
    for (wrong, field) in [
        (
            buttons((0..4).map(|n| button(n, "Sim")).collect()),
            "interactive.buttons",
        ),
        (
            buttons(vec![button(0, &"t".repeat(21))]),
            "interactive.buttons[0].title",
        ),
        (list(&rows), "interactive.sections[0].rows"),
        (json!({ "text": "oi", "reply_to": uuid::Uuid::nil() }), "reply_to"),
        (json!({ "media": { "type": "image", "url": 7 } }), "media.url"),
    ] {
        assert_eq!(post(wrong).invalid(), [field]);
    }
    assert!(server.whatsapp.sends().is_empty());
    let mut quoting = buttons(vec![button(0, "Sim")]);
    quoting["reply_to"] = inbound["id"].clone();
    let sent = post(quoting).created();
    let context = json!({ "message_id": inbound["id"], "wa_message_id": inbound["wa_message_id"] });
    assert_eq!(
        (&sent["type"], &sent["text"], &sent["context"]),
        (&json!("interactive"), &json!("Quer?"), &context)
    );
    post(list(&rows[..10])).created();
    let sends = server.whatsapp.sends();
    assert_eq!(sends[0].request.body["context"]["message_id"], inbound["wa_message_id"]);
    assert_eq!(sends[1].request.body["interactive"]["type"], "list");
    // What the contact presses quotes the reply.
    let pressed = json!({ "from": ANA, "id": "wamid.p", "timestamp": now().to_string(), "type": "interactive",
        "context": { "id": sent["wa_message_id"] },
        "interactive": { "type": "button_reply", "button_reply": { "id": "0", "title": "Sim" } } });
    callback(&server, "messages", &message_value(&[pressed]));
    let pressed = eventually("the answer", || {
        messages(&ana)
            .into_iter()
            .find(|message| message["wa_message_id"] == "wamid.p")
    });
    assert_eq!(pressed["interactive"], json!({ "id": "0", "title": "Sim" }));
    assert_eq!(pressed["context"]["message_id"], sent["id"]);
}

#[test]
fn echo_appears_once_and_opens_no_window() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let media_id = server
        .whatsapp
        .add_file(FileSettings::of(CONTENT.as_bytes(), "image/jpeg"));
    let echo = |item: Value| {
        let value = json!({ "metadata": { "phone_number_id": NUMBER }, "message_echoes": [item] });
        callback(&server, "smb_message_echoes", &value);
    };
    let item = |id: &str, kind: &str, content: Value| json!({ "from": "5511999990000", "to": ANA, "id": id, "timestamp": now(), "type": kind, kind: content });
    for _ in 0..3 {
        echo(item(
            "wamid.e",
            "image",
            json!({ "id": media_id, "mime_type": "image/jpeg", "caption": "Olá" }),
        ));
    }
    wait_for_file(&ana, "wamid.e", "ready");
    let [message] = &messages(&ana)[..] else {
        panic!("not once")
    };
    assert_eq!(
        (
            &message["direction"],
            &message["origin"],
            &message["status"],
            &message["text"]
        ),
        (
            &json!("outbound"),
            &json!("business_app"),
            &json!("sent"),
            &json!("Olá")
        )
    );
    let path = format!("/api/conversations/{}/messages", text(&message["conversation_id"]));
    let refused = ana
        .post(&path, json!({ "text": "oi" }))
        .refused(400, "VALIDATION_ERROR");
    assert_eq!(refused["details"]["reason"], "outside_window");
    assert_eq!(
        server.db.count("FROM message_rollups WHERE sent > 0"),
        0,
        "an echo counts towards no month"
    );
    let edit = json!({ "original_message_id": "wamid.e", "message": { "type": "text", "text": { "body": "Oi" } } });
    echo(item("wamid.x", "edit", edit));
    until("the text is changed", || messages(&ana)[0]["text"] == "Oi");
    echo(item("wamid.y", "revoke", json!({ "original_message_id": "wamid.e" })));
    until("the message is revoked", || messages(&ana)[0]["deleted_at"].is_string());
    let message = messages(&ana).remove(0);
    assert_eq!(
        (&message["text"], &message["caption"], &message["media"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
}

#[test]
fn change_that_comes_before_its_message_is_not_lost() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let text_message = |id: &str| json!({ "from": ANA, "id": id, "timestamp": now().to_string(), "type": "text", "text": { "body": "Oi" } });
    let change = |id: &str, kind: &str, content: Value| json!({ "from": ANA, "id": id, "timestamp": now().to_string(), "type": kind, kind: content });
    let revoke = change("wamid.x", "revoke", json!({ "original_message_id": "wamid.1" }));
    let edit = json!({ "original_message_id": "wamid.2", "message": { "type": "text", "text": { "body": "Olá" } } });
    let edit = change("wamid.y", "edit", edit);
    callback(&server, "messages", &message_value(&[revoke, edit]));
    until("the changes wait", || {
        server.db.count("FROM whatsapp_callbacks WHERE attempts > 0") == 1
    });
    let items = [text_message("wamid.1"), text_message("wamid.2")];
    callback(&server, "messages", &message_value(&items));
    let find = |id: &str| {
        messages(&ana)
            .into_iter()
            .find(|message| message["wa_message_id"] == id)
    };
    let revoked = eventually("the message is revoked", || {
        find("wamid.1").filter(|message| message["deleted_at"].is_string())
    });
    assert_eq!(revoked["text"], Value::Null);
    until("the message is edited", || {
        find("wamid.2").is_some_and(|message| message["text"] == "Olá")
    });
    until("no change waits", || server.db.count("FROM whatsapp_callbacks") == 0);
}
