//! Templates with media files, from the upload to the message, and WhatsApp's later updates of templates.

use recado_simulators::whatsapp::{On, WhatsappFault, WhatsappFaultKind};
use serde_json::{Value, json};

use crate::harness::client::Reply;
use crate::harness::media::{MP4, PNG, WEBP};
use crate::harness::runs::without_statuses;
use crate::harness::users::User;
use crate::harness::{Options, Server, eventually, text, until};

fn submit(user: &User<'_>, id: &str) -> Reply {
    user.request("POST", &format!("/api/templates/{id}/submit")).send()
}

fn wait_for_field(user: &User<'_>, id: &str, field: &str, value: &Value) -> Value {
    eventually(&format!("{field} is {value}"), || {
        let template = user.get(&format!("/api/templates/{id}")).ok();
        (&template[field] == value).then_some(template)
    })
}

fn submit_and_approve(user: &User<'_>, id: &str) {
    submit(user, id).ok();
    wait_for_field(user, id, "meta_status", &json!("approved"));
}

fn count_calls(server: &Server, path_end: &str) -> usize {
    let ledger = server.whatsapp.ledger().into_iter();
    ledger.filter(|call| call.request.path.ends_with(path_end)).count()
}

#[test]
fn uploaded_image_is_sent_in_the_message() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let url = text(&ana.upload("a.png", PNG).ok()["url"]);
    let template = ana.template_with_file("foto", "image", &url);
    submit_and_approve(&ana, &template);
    assert_eq!(count_calls(&server, "/1/uploads"), 1);
    ana.contacts(3);
    for run in 1..=2 {
        let campaign = ana.campaign(json!({ "name": "Oferta", "template_id": template }));
        let report = ana.execute(&campaign).ok();
        assert_eq!((&report["sent"], &report["failed"]), (&json!(3), &json!(0)), "{report}");
        assert_eq!(server.whatsapp.sends().len(), 3 * run);
    }
    assert_eq!(
        count_calls(&server, "/media"),
        1,
        "the file is uploaded to WhatsApp once"
    );
    let parameter = &server.whatsapp.sends()[0].request.body["template"]["components"][0]["parameters"][0];
    assert_eq!(parameter["type"], "image");
    assert!(parameter["image"]["id"].is_string(), "{parameter}");
    assert_eq!(
        server
            .db
            .count("FROM whatsapp_files WHERE expires_at > now() + interval '24 days'"),
        1
    );
}

#[test]
fn uploaded_carousel_video_is_sent_in_the_message() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let url = text(&ana.upload("a.mp4", MP4).ok()["url"]);
    let card = json!({ "components": [
        { "type": "HEADER", "format": "VIDEO", "example": { "header_handle": [url] } },
        { "type": "BODY", "text": "Por {{1}} hoje.", "example": { "body_text": [["R$ 10"]] } },
        { "type": "BUTTONS", "buttons": [{ "type": "URL", "text": "Ver", "url": "https://l.example/{{1}}", "example": ["a"] }] } ] });
    let body = json!({ "name": "vitrine", "category": "MARKETING", "language": "pt_BR", "template_type": "carousel",
        "body_text": "Oi {{1}}, veja:", "example_values": ["Ana"], "carousel_cards": [card, card] });
    let template = text(&ana.post("/api/templates", body).created()["id"]);
    submit_and_approve(&ana, &template);
    ana.contact("Ana", "+5511961234567");
    let campaign = ana.campaign(json!({ "name": "Oferta", "template_id": template }));
    assert_eq!(ana.execute(&campaign).ok()["sent"], 1);
    let send = server.whatsapp.sends().remove(0);
    assert_eq!(send.parameters.len(), 7, "{:?}", send.parameters);
    assert_eq!((&send.parameters[2][..], &send.parameters[3][..]), ("R$ 10", "a"));
}

#[test]
fn submit_refuses_unsuitable_header_file_by_its_field() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    ana.profile();
    let calls = server.whatsapp.ledger().len();
    let upload = |user: &User<'_>, content: &[u8]| text(&user.upload("a", content).ok()["url"]);
    let (webp, video, foreign) = (upload(&ana, WEBP), upload(&ana, MP4), upload(&bia, PNG));
    let internal = format!("http://127.0.0.1:{}/readyz", server.port());
    for (number, url) in [webp, video, foreign, internal, "https://elsewhere.example/a.png".into()]
        .iter()
        .enumerate()
    {
        let template = ana.template_with_file(&format!("t{number}"), "image", url);
        assert_eq!(submit(&ana, &template).invalid(), ["header_media_url"], "{url}");
    }
    assert_eq!(server.whatsapp.ledger().len(), calls, "WhatsApp is not called");
}

#[test]
fn file_rejected_by_whatsapp_returns_502_and_keeps_draft() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    let url = text(&ana.upload("a.png", PNG).ok()["url"]);
    let template = ana.template_with_file("foto", "image", &url);
    let refusal = WhatsappFaultKind::error(100, "file rejected");
    server.whatsapp.script(vec![WhatsappFault::of(On::Upload, refusal)]);
    let error = submit(&ana, &template).refused(502, "WHATSAPP_ERROR");
    assert_eq!(
        (&error["details"]["code"], &error["details"]["message"]),
        (&json!(100), &json!("file rejected"))
    );
    wait_for_field(&ana, &template, "meta_status", &json!("draft"));
    server.whatsapp.script(vec![WhatsappFault::of(
        On::Upload,
        WhatsappFaultKind::BreakAfter { bytes: 5 },
    )]);
    submit_and_approve(&ana, &template);
    let without_app_id = Server::start(Options::default().with("WHATSAPP_APP_ID", ""));
    let bia = without_app_id.owner();
    bia.profile();
    let url = text(&bia.upload("a.png", PNG).ok()["url"]);
    let template = bia.template_with_file("foto", "image", &url);
    submit(&bia, &template).refused(502, "WHATSAPP_ERROR");
}

#[test]
fn run_with_missing_file_pauses_with_reason() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let url = text(&ana.upload("a.png", PNG).ok()["url"]);
    let template = ana.template_with_file("foto", "image", &url);
    submit_and_approve(&ana, &template);
    for file in server.media.files() {
        std::fs::remove_file(server.media.path().join(file)).unwrap();
    }
    ana.contact("Ana", "+5511961234567");
    let campaign = ana.campaign(json!({ "name": "Oferta", "template_id": template }));
    let report = ana.execute(&campaign).ok();
    assert_eq!(
        (&report["paused"], &report["status"]),
        (&json!(true), &json!("sending"))
    );
    let reason = server.db.text("SELECT pause_reason FROM campaigns");
    assert_eq!(reason, "the file of the template's header no longer exists");
    assert!(server.whatsapp.sends().is_empty());
}

/// The consecutive retries of the runs that no worker has claimed.
fn count_retries(server: &Server) -> i64 {
    server
        .db
        .text("SELECT coalesce(sum(retries), 0) FROM campaign_queue WHERE worker IS NULL")
        .parse()
        .unwrap()
}

#[test]
fn run_waits_for_media_storage_and_continues() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let url = text(&ana.upload("a.png", PNG).ok()["url"]);
    let template = ana.template_with_file("foto", "image", &url);
    submit_and_approve(&ana, &template);
    ana.contacts(3);
    let campaign = || ana.campaign(json!({ "name": "Oferta", "template_id": template }));
    let (id, cancelled) = (campaign(), campaign());
    let (store, away) = (server.media.path(), server.media.path().with_extension("away"));
    std::fs::rename(store, &away).unwrap();
    std::fs::write(store, b"no directory").unwrap();
    ana.post(
        &format!("/api/campaigns/{id}/test"),
        json!({ "phone": "+5511961234567" }),
    )
    .refused(502, "STORAGE_ERROR");
    ana.send(&id);
    until("the run was retried twice", || count_retries(&server) >= 2);
    assert_eq!(
        (ana.status(&id), ana.status(&cancelled)),
        ("sending".into(), "draft".into())
    );
    assert_eq!(server.db.count("FROM campaigns WHERE paused_at IS NOT NULL"), 0);
    ana.send(&cancelled);
    until("both runs wait for a retry", || {
        server
            .db
            .count("FROM campaign_queue WHERE retries > 0 AND worker IS NULL")
            == 2
    });
    ana.cancel(&cancelled).ok();
    std::fs::remove_file(store).unwrap();
    std::fs::rename(&away, store).unwrap();
    // WhatsApp's upload also fails once when the run resumes.
    let fault = WhatsappFaultKind::Error {
        code: 131_000,
        http_status: 500,
        details: "something went wrong".into(),
    };
    server.whatsapp.script(vec![WhatsappFault::of(On::Media, fault)]);
    until("the run ends", || {
        server.db.run("UPDATE campaign_queue SET retry_at = now()");
        ana.status(&id) == "completed"
    });
    assert_eq!(
        (ana.stats(&id)["sent"].clone(), server.whatsapp.sends().len()),
        (json!(3), 3)
    );
    assert_eq!(ana.status(&cancelled), "cancelled");
    assert_eq!(
        server
            .db
            .count("FROM notifications WHERE title LIKE 'Campaign paused%'"),
        0
    );
}

#[test]
fn template_quality_and_category_follow_whatsapp() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    let id = ana.template("oferta", "Oi {{1}}!", &["Ana"]);
    let meta = text(&submit(&ana, &id).ok()["meta_template_id"]);
    assert_eq!(
        wait_for_field(&ana, &id, "meta_status", &json!("approved"))["quality_score"],
        Value::Null
    );
    for score in ["GREEN", "YELLOW", "RED", "UNKNOWN"] {
        let update = json!({ "previous_quality_score": "UNKNOWN", "new_quality_score": score });
        assert!(
            server
                .whatsapp
                .send_template_update(&meta, "message_template_quality_update", &update)
        );
        wait_for_field(&ana, &id, "quality_score", &json!(score));
    }
    let update = json!({ "previous_category": "MARKETING", "new_category": "UTILITY" });
    assert!(
        server
            .whatsapp
            .send_template_update(&meta, "template_category_update", &update)
    );
    let before = wait_for_field(&ana, &id, "category", &json!("UTILITY"));
    for event in ["FLAGGED", "LOCKED", "SOMETHING_NEW"] {
        assert!(server.whatsapp.set_template_status(&meta, event, None));
    }
    assert!(
        server
            .whatsapp
            .send_template_update(&meta, "message_template_quality_update", &json!({}))
    );
    assert!(server.whatsapp.wait_idle(crate::harness::DEADLINE));
    assert_eq!(ana.get(&format!("/api/templates/{id}")).ok(), before);
}

#[test]
fn paused_template_pauses_the_campaign_that_sends_it() {
    let server = Server::start(without_statuses().with("CAMPAIGN_MESSAGE_DELAY_MS", "200"));
    let ana = server.owner();
    ana.profile();
    let id = ana.template("oferta", "Oi {{1}}!", &["Ana"]);
    let meta = text(&submit(&ana, &id).ok()["meta_template_id"]);
    wait_for_field(&ana, &id, "meta_status", &json!("approved"));
    ana.contacts(100);
    let campaign = ana.campaign(json!({ "name": "Oferta", "template_id": id }));
    let (port, token) = (server.port(), ana.token.clone());
    let path = format!("/api/campaigns/{campaign}/execute");
    let run = std::thread::spawn(move || {
        crate::harness::client::Request::new(port, "POST", &path)
            .bearer(&token)
            .send()
    });
    until("the run is under way", || !server.whatsapp.sends().is_empty());
    assert!(server.whatsapp.set_template_status(&meta, "PAUSED", None));
    let report = run.join().unwrap().ok();
    assert_eq!(
        (&report["paused"], &report["status"]),
        (&json!(true), &json!("sending")),
        "{report}"
    );
    assert!(server.whatsapp.sends().len() < 100);
    let reason = server.db.text("SELECT pause_reason FROM campaigns");
    assert!(reason.contains("template"), "{reason}");
    wait_for_field(&ana, &id, "meta_status", &json!("paused"));
    until("the members are notified", || {
        server
            .db
            .count("FROM notifications WHERE type = 'warning' AND title LIKE 'Template paused%'")
            == 1
            && server
                .db
                .count("FROM notifications WHERE type = 'warning' AND title LIKE 'Campaign paused%'")
                == 1
    });
}
