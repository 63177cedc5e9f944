//! What a callback says beside statuses and texts: prices, ads, coming changes of a category, fields without a reader;
//! and what becomes of a callback that cannot be applied.

use serde_json::{Value, json};

use crate::conversations::{reply, written_to};
use crate::harness::figures::scrape;
use crate::harness::process::free_port;
use crate::harness::runs::{counted, silent, status, statuses};
use crate::harness::users::User;
use crate::harness::{Options, Server, eventually, text, until};

const NUMBER: &str = "106500000001";
const WABA: &str = "100000000000001";
const ANA: &str = "5531988887777";

/// A status with a price, so many seconds after the first.
fn priced(wamid: &str, word: &str, seconds: u64, pricing: &Value) -> Value {
    let mut item = status(wamid, word, None);
    item["timestamp"] = json!((1_780_000_000 + seconds).to_string());
    item["pricing"] = pricing.clone();
    item
}

fn regular(category: &str) -> Value {
    json!({ "billable": true, "pricing_model": "PMP", "type": "regular", "category": category })
}

/// What is published of a price that the platform told no amount of.
fn published(category: &str, at: &str) -> Value {
    json!({ "billable": true, "model": "PMP", "type": "regular", "category": category, "market": null,
            "amount": null, "currency": null, "source": "none", "priced_at": at })
}

/// A callback with one change.
fn change(field: &str, value: &Value) -> Value {
    json!({ "object": "whatsapp_business_account", "entry": [{ "id": WABA, "changes": [
        { "field": field, "value": value }] }] })
}

/// A callback of messages that one sender wrote.
fn messages(items: &[Value]) -> Value {
    change(
        "messages",
        &json!({ "metadata": { "phone_number_id": NUMBER }, "messages": items,
            "contacts": [{ "wa_id": ANA, "profile": { "name": "Ana" } }] }),
    )
}

fn written(id: &str, seconds: u64, referral: &Value) -> Value {
    json!({ "from": ANA, "id": id, "timestamp": (1_780_000_000 + seconds).to_string(), "type": "text",
        "text": { "body": id }, "referral": referral })
}

fn events(user: &User<'_>, kind: &str) -> Vec<Value> {
    let found = user.get(&format!("/api/webhooks/events?limit=100&type={kind}")).ok();
    let events = found["data"].as_array().unwrap();
    events.iter().map(|event| event["data"].clone()).collect()
}

/// Has everything that happens stored for the feed.
fn listen(user: &User<'_>) {
    let body = json!({ "name": "feed", "url": "https://e.example", "events": ["*"], "is_active": false });
    user.post("/api/webhooks", body).created();
}

fn warnings(user: &User<'_>, title: &str) -> usize {
    let found = user.get("/api/notifications?limit=100").ok();
    let all = found["data"].as_array().unwrap();
    all.iter().filter(|one| text(&one["title"]).starts_with(title)).count()
}

#[test]
fn the_price_of_a_send_is_that_of_the_latest_status() {
    let server = Server::start(silent());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contacts(1);
    let campaign = ana.plain_campaign();
    ana.execute(&campaign).ok();
    let send = ana.sends(&campaign).remove(0);
    assert_eq!(send["pricing"], Value::Null);
    let wamid = text(&send["wa_message_id"]);
    let tell = |item: Value| {
        assert_eq!(server.callback(&statuses(NUMBER, &[item])).status, 200);
        ana.sends(&campaign).remove(0)["pricing"].take()
    };
    let (first, later) = ("2026-05-28T20:26:40.000Z", "2026-05-28T20:26:50.000Z");
    assert_eq!(tell(status(&wamid, "sent", None)), Value::Null);
    // The status is known already, and its price is not.
    let marketing = published("marketing", first);
    assert_eq!(tell(priced(&wamid, "sent", 0, &regular("marketing"))), marketing);
    assert_eq!(tell(status(&wamid, "delivered", None)), marketing);
    let corrected = published("marketing_lite", later);
    assert_eq!(
        tell(priced(&wamid, "delivered", 10, &regular("marketing_lite"))),
        corrected
    );
    // Late, and told again.
    assert_eq!(tell(priced(&wamid, "sent", 0, &regular("marketing"))), corrected);
    assert_eq!(tell(priced(&wamid, "read", 30, &regular("marketing_lite"))), corrected);
    let told = json!({ "billable": true, "pricing_model": "PMP", "type": "regular", "category": "marketing",
        "currency": "USD", "price": 0.0075 });
    let amount = tell(priced(&wamid, "read", 40, &told));
    assert_eq!(
        (&amount["amount"], &amount["currency"], &amount["source"]),
        (&json!(0.0075), &json!("USD"), &json!("platform"))
    );
    let free = json!({ "pricing_model": "PMP", "type": "free_customer_service", "category": "utility" });
    let free = tell(priced(&wamid, "read", 50, &free));
    assert_eq!(
        (&free["billable"], &free["type"], &free["amount"]),
        (&json!(false), &json!("free_customer_service"), &json!(0))
    );
    for odd in [
        json!({}),
        json!("x"),
        json!(7),
        json!({ "billable": "yes", "type": "" }),
    ] {
        assert_eq!(tell(priced(&wamid, "read", 60, &odd)), free);
    }
    assert_eq!(server.db.text("SELECT sent FROM message_usage"), "1", "counted once");
}

#[test]
fn a_failed_send_that_is_tried_again_has_no_price_yet() {
    let server = Server::start(silent());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contacts(1);
    let campaign = ana.plain_campaign();
    ana.execute(&campaign).ok();
    let wamid = text(&ana.sends(&campaign)[0]["wa_message_id"]);
    server.callback(&statuses(NUMBER, &[priced(&wamid, "failed", 0, &regular("marketing"))]));
    assert_eq!(ana.sends(&campaign)[0]["pricing"]["category"], "marketing");
    ana.command(&campaign, "retry-failed").send().ok();
    counted(&ana, &campaign, "sent", 1);
    assert_eq!(ana.sends(&campaign)[0]["pricing"], Value::Null);
}

#[test]
fn the_price_of_a_reply_is_shown_with_it() {
    let server = Server::start(silent());
    let ana = server.owner();
    let id = written_to(&ana);
    let sent = reply(&ana, &id, "Olá").created();
    assert_eq!(sent["pricing"], Value::Null);
    let wamid = text(&sent["wa_message_id"]);
    let shown = || {
        let all = ana.get(&format!("/api/conversations/{id}/messages")).ok();
        let all = all["data"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["id"] == sent["id"]).unwrap()["pricing"].take()
    };
    for _ in 0..2 {
        server.callback(&statuses(
            NUMBER,
            &[priced(&wamid, "delivered", 10, &regular("service"))],
        ));
        assert_eq!(shown(), published("service", "2026-05-28T20:26:50.000Z"));
    }
    server.callback(&statuses(NUMBER, &[priced(&wamid, "sent", 0, &regular("utility"))]));
    assert_eq!(shown()["category"], "service");
}

#[test]
fn the_ad_of_a_message_is_kept_with_it_and_its_contact() {
    let server = Server::start(silent());
    let ana = server.owner();
    listen(&ana);
    ana.profile_at(NUMBER);
    let ad = |id: &str| {
        json!({ "source_type": "ad", "source_id": id, "source_url": "https://fb.me/x", "headline": "h".repeat(3000),
            "body": "Bolo", "media_type": "image", "image_url": "https://i.example/1.png", "ctwa_clid": "click",
            "welcome_message": { "text": "Oi" }, "thumbnail_url": 7 })
    };
    let kept = |id: &str| {
        json!({ "source_type": "ad", "source_id": id, "source_url": "https://fb.me/x", "headline": "h".repeat(2048),
            "body": "Bolo", "media_type": "image", "image_url": "https://i.example/1.png", "video_url": null,
            "thumbnail_url": null, "ctwa_clid": "click" })
    };
    let items = [
        written("plain", 0, &Value::Null),
        written("second", 20, &ad("2")),
        written("odd", 30, &json!("x")),
    ];
    assert_eq!(server.callback(&messages(&items)).status, 200);
    let contact = ana.get("/api/contacts").ok()["data"][0].take();
    let path = format!("/api/contacts/{}", text(&contact["id"]));
    assert_eq!(ana.get(&path).ok()["first_referral"], kept("2"));
    // Written before, and told later.
    server.callback(&messages(&[
        written("first", 10, &ad("1")),
        written("third", 40, &ad("3")),
    ]));
    assert_eq!(ana.get(&path).ok()["first_referral"], kept("1"));
    let conversation = text(&ana.get("/api/conversations").ok()["data"][0]["id"]);
    let shown = ana.get(&format!("/api/conversations/{conversation}/messages")).ok();
    let shown: Vec<(String, Value)> = shown["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (text(&one["text"]), one["referral"].clone()))
        .collect();
    let expected = [
        ("third", kept("3")),
        ("odd", Value::Null),
        ("second", kept("2")),
        ("first", kept("1")),
        ("plain", Value::Null),
    ];
    assert_eq!(shown, expected.map(|(id, referral)| (id.to_owned(), referral)));
    let told = eventually("all are told", || {
        Some(events(&ana, "message.received")).filter(|told| told.len() == 5)
    });
    for (id, referral) in &shown {
        let event = told.iter().find(|event| event["text"] == *id).unwrap();
        assert_eq!(event["referral"], *referral, "{id}");
    }
    let other = ana.contact("Bia", "+5511960000099");
    assert_eq!(
        ana.get(&format!("/api/contacts/{other}")).ok()["first_referral"],
        Value::Null
    );
}

/// An approved template that the platform knows by this id, and a campaign that is to be sent with it.
fn scheduled(ana: &User<'_>, meta_id: &str) -> (String, String) {
    ana.profile_at(NUMBER);
    ana.contacts(1);
    let template = ana.approved("Oi", &[]);
    ana.server.db.run(&format!(
        "UPDATE message_templates SET meta_template_id = '{meta_id}' WHERE id = '{template}'"
    ));
    let campaign = ana.campaign(json!({ "name": "Oferta", "template_id": template }));
    ana.post(
        &format!("/api/campaigns/{campaign}/schedule"),
        json!({ "scheduled_at": "2099-01-01T00:00:00Z" }),
    )
    .ok();
    ana.campaign(json!({ "name": "Rascunho", "template_id": template }));
    (template, campaign)
}

#[test]
fn a_coming_change_of_category_is_announced_once() {
    let server = Server::start(silent());
    let ana = server.owner();
    listen(&ana);
    let (template, campaign) = scheduled(&ana, "77");
    let path = format!("/api/templates/{template}");
    let warning = |at: u64| {
        let value = json!({ "message_template_id": 77, "message_template_name": "x", "message_template_language": "pt_BR",
            "correct_category": "UTILITY", "new_category": "MARKETING", "category_update_timestamp": at });
        assert_eq!(server.callback(&change("template_category_update", &value)).status, 200);
    };
    for _ in 0..10 {
        warning(1_780_000_000);
    }
    let shown = ana.get(&path).ok();
    assert_eq!(shown["category"], "MARKETING");
    assert_eq!(
        shown["category_change"],
        json!({ "to": "UTILITY", "at": "2026-05-28T20:26:40.000Z" })
    );
    let told = eventually("the warning is told", || {
        Some(events(&ana, "template.category_changing")).filter(|told| !told.is_empty())
    });
    let expected = json!({ "id": template, "name": shown["name"], "language": "pt_BR", "from": "MARKETING",
        "to": "UTILITY", "at": "2026-05-28T20:26:40.000Z", "campaigns": [campaign] });
    assert_eq!(told, [expected]);
    until("the warning is notified", || {
        warnings(&ana, "Template category will change") == 1
    });
    // At another time it is another warning.
    warning(1_780_000_060);
    until("it is told", || events(&ana, "template.category_changing").len() == 2);
    let done = json!({ "message_template_id": 77, "previous_category": "MARKETING", "new_category": "UTILITY" });
    for _ in 0..2 {
        server.callback(&change("template_category_update", &done));
    }
    let shown = ana.get(&path).ok();
    assert_eq!(
        (&shown["category"], &shown["category_change"]),
        (&json!("UTILITY"), &Value::Null)
    );
    let told = eventually("the change is told", || {
        Some(events(&ana, "template.status_changed")).filter(|told| !told.is_empty())
    });
    let expected = json!({ "id": template, "name": shown["name"], "language": "pt_BR", "status": "approved",
        "previous_status": "approved", "category": "UTILITY", "previous_category": "MARKETING",
        "rejection_reason": null });
    assert_eq!(told, [expected]);
    until("the change is notified", || {
        warnings(&ana, "Template category changed") == 1
    });
    assert_eq!(warnings(&ana, "Template category will change"), 2);
}

#[test]
fn what_has_no_reader_is_counted_by_a_few_names() {
    let port = free_port();
    let server = Server::start(silent().with("METRICS_BIND", format!("127.0.0.1:{port}")));
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let unread = |labels: &[&str]| {
        scrape(port)
            .sum("recado_whatsapp_unread_total", labels)
            .unwrap_or_default()
    };
    for _ in 0..3 {
        server.callback(&change("account_alerts", &json!({ "alert_type": "X" })));
    }
    assert_eq!(unread(&["field=\"account_alerts\"", "type=\"\""]), 3.0);
    let of = |kind: &str| json!({ "from": ANA, "id": kind, "timestamp": "1780000000", "type": kind, kind: {} });
    assert_eq!(
        server
            .callback(&messages(&[of("hologram"), of("NEW KIND"), of("sticker"), of("text")]))
            .status,
        200
    );
    assert_eq!(unread(&["field=\"messages\"", "type=\"hologram\""]), 1.0);
    assert_eq!(unread(&["field=\"messages\"", "type=\"other\""]), 1.0);
    assert_eq!(unread(&["field=\"messages\""]), 2.0, "what is read is not counted");
    for number in 0..100 {
        server.callback(&change(&format!("field_{number}"), &json!({})));
    }
    let figures = scrape(port);
    assert!(figures.labels("field").len() <= 66, "{:?}", figures.labels("field"));
    assert!(figures.sum("recado_whatsapp_unread_total", &["field=\"other\""]) >= Some(36.0));
    assert_eq!(figures.sum("recado_whatsapp_unread_total", &[]), Some(105.0));
    let broken = server.callback(&json!("not a callback"));
    assert_eq!(broken.status, 200);
    assert_eq!(
        scrape(port).sum("recado_whatsapp_callbacks_unreadable_total", &[]),
        Some(1.0)
    );
}

#[test]
fn a_status_that_cannot_be_applied_holds_up_no_other() {
    let port = free_port();
    let options: Options = silent().with("METRICS_BIND", format!("127.0.0.1:{port}"));
    let server = Server::start(options);
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contacts(3);
    let campaign = ana.plain_campaign();
    ana.execute(&campaign).ok();
    let sends = ana.sends(&campaign);
    let poisoned = text(&sends[1]["id"]);
    server.db.run(&format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           RAISE EXCEPTION 'no' USING ERRCODE = 'check_violation'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON campaign_sends FOR EACH ROW
           WHEN (NEW.id = '{poisoned}') EXECUTE FUNCTION refuse()"
    ));
    let news: Vec<Value> = sends
        .iter()
        .map(|send| status(&text(&send["wa_message_id"]), "read", None))
        .collect();
    assert_eq!(server.callback(&statuses(NUMBER, &news)).status, 200);
    counted(&ana, &campaign, "read", 2);
    // So often that it is not tried any more, and nothing is lost.
    until("it is set aside", || {
        server.db.run(
            "UPDATE whatsapp_callbacks SET due_at = now(), claims = greatest(claims, 18) WHERE due_at < 'infinity'",
        );
        server.db.count("FROM whatsapp_callbacks WHERE due_at = 'infinity'") == 1
    });
    let figures = eventually("it is seen", || {
        let figures = scrape(port);
        let depth = figures.sum("recado_queue_depth", &["queue=\"whatsapp_callbacks_set_aside\""]);
        (depth == Some(1.0)).then_some(figures)
    });
    assert_eq!(figures.sum("recado_whatsapp_callbacks_set_aside_total", &[]), Some(1.0));
    assert_eq!(
        figures.sum("recado_queue_depth", &["queue=\"whatsapp_callbacks\""]),
        Some(0.0)
    );
    assert!(server.log().contains("set aside"), "{}", server.log());
    // An operator removes the cause and has it tried again.
    server.db.run(
        "DROP TRIGGER refuse ON campaign_sends;
         UPDATE whatsapp_callbacks SET due_at = now(), claims = 0 WHERE due_at = 'infinity'",
    );
    counted(&ana, &campaign, "read", 3);
    until("it is forgotten", || server.db.count("FROM whatsapp_callbacks") == 0);
}
