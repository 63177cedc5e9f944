//! Further content of WhatsApp callbacks: prices, ad referrals, reported category changes and unsupported fields.
//! Also: a callback that cannot be applied is set aside.

use serde_json::{Value, json};

use crate::conversations::{open_conversation, reply};
use crate::harness::runs::{status, statuses, wait_for_stat, without_statuses};
use crate::harness::scrape::scrape;
use crate::harness::users::User;
use crate::harness::{Server, eventually, text, until};

const NUMBER: &str = "106500000001";
const WABA: &str = "100000000000001";
const ANA: &str = "5531988887777";

/// A status update with a price, `seconds` after the first one.
fn priced_status(wamid: &str, name: &str, seconds: u64, pricing: &Value) -> Value {
    let mut item = status(wamid, name, None);
    item["timestamp"] = json!((1_780_000_000 + seconds).to_string());
    item["pricing"] = pricing.clone();
    item
}

fn regular_pricing(category: &str) -> Value {
    json!({ "billable": true, "pricing_model": "PMP", "type": "regular", "category": category })
}

/// The published price if WhatsApp reported no amount.
fn price_without_amount(category: &str, at: &str) -> Value {
    json!({ "billable": true, "model": "PMP", "type": "regular", "category": category, "market": null,
            "amount": null, "currency": null, "source": "none", "priced_at": at })
}

/// A callback with one change.
fn callback_change(field: &str, value: &Value) -> Value {
    json!({ "object": "whatsapp_business_account", "entry": [{ "id": WABA, "changes": [
        { "field": field, "value": value }] }] })
}

/// A callback with inbound messages of one sender.
fn message_callback(items: &[Value]) -> Value {
    callback_change(
        "messages",
        &json!({ "metadata": { "phone_number_id": NUMBER }, "messages": items,
            "contacts": [{ "wa_id": ANA, "profile": { "name": "Ana" } }] }),
    )
}

fn inbound_message(id: &str, seconds: u64, referral: &Value) -> Value {
    json!({ "from": ANA, "id": id, "timestamp": (1_780_000_000 + seconds).to_string(), "type": "text",
        "text": { "body": id }, "referral": referral })
}

/// The data of the account's webhook events of one type.
fn webhook_events(user: &User<'_>, kind: &str) -> Vec<Value> {
    let page = user.get(&format!("/api/webhooks/events?limit=100&type={kind}")).ok();
    let events = page["data"].as_array().unwrap();
    events.iter().map(|event| event["data"].clone()).collect()
}

/// Subscribes an endpoint to all webhook events, so that the feed stores them.
fn subscribe_to_all_events(user: &User<'_>) {
    let body = json!({ "name": "feed", "url": "https://e.example", "events": ["*"], "is_active": false });
    user.post("/api/webhooks", body).created();
}

fn count_notifications(user: &User<'_>, title: &str) -> usize {
    let page = user.get("/api/notifications?limit=100").ok();
    let notifications = page["data"].as_array().unwrap().iter();
    notifications
        .filter(|notification| text(&notification["title"]).starts_with(title))
        .count()
}

#[test]
fn send_price_comes_from_the_latest_status() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contacts(1);
    let campaign = ana.plain_campaign();
    ana.execute(&campaign).ok();
    let send = ana.sends(&campaign).remove(0);
    assert_eq!(send["pricing"], Value::Null);
    let wamid = text(&send["wa_message_id"]);
    let pricing_after = |item: Value| {
        assert_eq!(server.callback(&statuses(NUMBER, &[item])).status, 200);
        ana.sends(&campaign).remove(0)["pricing"].take()
    };
    let (first, later) = ("2026-05-28T20:26:40.000Z", "2026-05-28T20:26:50.000Z");
    assert_eq!(pricing_after(status(&wamid, "sent", None)), Value::Null);
    // The status is already recorded, its price is not.
    let marketing = price_without_amount("marketing", first);
    assert_eq!(
        pricing_after(priced_status(&wamid, "sent", 0, &regular_pricing("marketing"))),
        marketing
    );
    assert_eq!(pricing_after(status(&wamid, "delivered", None)), marketing);
    let corrected = price_without_amount("marketing_lite", later);
    assert_eq!(
        pricing_after(priced_status(
            &wamid,
            "delivered",
            10,
            &regular_pricing("marketing_lite")
        )),
        corrected
    );
    // A late status update, then a repeated one.
    assert_eq!(
        pricing_after(priced_status(&wamid, "sent", 0, &regular_pricing("marketing"))),
        corrected
    );
    assert_eq!(
        pricing_after(priced_status(&wamid, "read", 30, &regular_pricing("marketing_lite"))),
        corrected
    );
    let with_amount = json!({ "billable": true, "pricing_model": "PMP", "type": "regular", "category": "marketing",
        "currency": "USD", "price": 0.0075 });
    let amount = pricing_after(priced_status(&wamid, "read", 40, &with_amount));
    assert_eq!(
        (&amount["amount"], &amount["currency"], &amount["source"]),
        (&json!(0.0075), &json!("USD"), &json!("platform"))
    );
    let free = json!({ "pricing_model": "PMP", "type": "free_customer_service", "category": "utility" });
    let free = pricing_after(priced_status(&wamid, "read", 50, &free));
    assert_eq!(
        (&free["billable"], &free["type"], &free["amount"]),
        (&json!(false), &json!("free_customer_service"), &json!(0))
    );
    for invalid in [
        json!({}),
        json!("x"),
        json!(7),
        json!({ "billable": "yes", "type": "" }),
    ] {
        assert_eq!(pricing_after(priced_status(&wamid, "read", 60, &invalid)), free);
    }
    assert_eq!(server.db.text("SELECT sent FROM message_usage"), "1", "counted once");
}

#[test]
fn retried_send_has_no_price() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contacts(1);
    let campaign = ana.plain_campaign();
    ana.execute(&campaign).ok();
    let wamid = text(&ana.sends(&campaign)[0]["wa_message_id"]);
    server.callback(&statuses(
        NUMBER,
        &[priced_status(&wamid, "failed", 0, &regular_pricing("marketing"))],
    ));
    assert_eq!(ana.sends(&campaign)[0]["pricing"]["category"], "marketing");
    ana.command(&campaign, "retry-failed").send().ok();
    wait_for_stat(&ana, &campaign, "sent", 1);
    assert_eq!(ana.sends(&campaign)[0]["pricing"], Value::Null);
}

#[test]
fn reply_price_comes_from_the_latest_status() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = open_conversation(&ana);
    let sent = reply(&ana, &id, "Olá").created();
    assert_eq!(sent["pricing"], Value::Null);
    let wamid = text(&sent["wa_message_id"]);
    let shown = || {
        let page = ana.get(&format!("/api/conversations/{id}/messages")).ok();
        let mut messages = page["data"].as_array().unwrap().clone().into_iter();
        messages.find(|message| message["id"] == sent["id"]).unwrap()["pricing"].take()
    };
    for _ in 0..2 {
        server.callback(&statuses(
            NUMBER,
            &[priced_status(&wamid, "delivered", 10, &regular_pricing("service"))],
        ));
        assert_eq!(shown(), price_without_amount("service", "2026-05-28T20:26:50.000Z"));
    }
    server.callback(&statuses(
        NUMBER,
        &[priced_status(&wamid, "sent", 0, &regular_pricing("utility"))],
    ));
    assert_eq!(shown()["category"], "service");
}

#[test]
fn ad_referral_is_stored_with_message_and_contact() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    subscribe_to_all_events(&ana);
    ana.profile_at(NUMBER);
    let ad = |id: &str| {
        json!({ "source_type": "ad", "source_id": id, "source_url": "https://fb.me/x", "headline": "h".repeat(3000),
            "body": "Bolo", "media_type": "image", "image_url": "https://i.example/1.png", "ctwa_clid": "click",
            "welcome_message": { "text": "Oi" }, "thumbnail_url": 7 })
    };
    let stored_ad = |id: &str| {
        json!({ "source_type": "ad", "source_id": id, "source_url": "https://fb.me/x", "headline": "h".repeat(2048),
            "body": "Bolo", "media_type": "image", "image_url": "https://i.example/1.png", "video_url": null,
            "thumbnail_url": null, "ctwa_clid": "click" })
    };
    let items = [
        inbound_message("plain", 0, &Value::Null),
        inbound_message("second", 20, &ad("2")),
        inbound_message("odd", 30, &json!("x")),
    ];
    assert_eq!(server.callback(&message_callback(&items)).status, 200);
    let contact = ana.get("/api/contacts").ok()["data"][0].take();
    let path = format!("/api/contacts/{}", text(&contact["id"]));
    assert_eq!(ana.get(&path).ok()["first_referral"], stored_ad("2"));
    // An earlier message arrives later.
    server.callback(&message_callback(&[
        inbound_message("first", 10, &ad("1")),
        inbound_message("third", 40, &ad("3")),
    ]));
    assert_eq!(ana.get(&path).ok()["first_referral"], stored_ad("1"));
    let conversation = text(&ana.get("/api/conversations").ok()["data"][0]["id"]);
    let shown = ana.get(&format!("/api/conversations/{conversation}/messages")).ok();
    let shown: Vec<(String, Value)> = shown["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| (text(&message["text"]), message["referral"].clone()))
        .collect();
    let expected = [
        ("third", stored_ad("3")),
        ("odd", Value::Null),
        ("second", stored_ad("2")),
        ("first", stored_ad("1")),
        ("plain", Value::Null),
    ];
    assert_eq!(shown, expected.map(|(id, referral)| (id.to_owned(), referral)));
    let events = eventually("every message has its webhook event", || {
        Some(webhook_events(&ana, "message.received")).filter(|events| events.len() == 5)
    });
    for (id, referral) in &shown {
        let event = events.iter().find(|event| event["text"] == *id).unwrap();
        assert_eq!(event["referral"], *referral, "{id}");
    }
    let without_ad = ana.contact("Bia", "+5511960000099");
    assert_eq!(
        ana.get(&format!("/api/contacts/{without_ad}")).ok()["first_referral"],
        Value::Null
    );
}

/// Creates an approved template with this id at WhatsApp and a scheduled campaign that uses it. Returns their ids.
fn scheduled_campaign(ana: &User<'_>, meta_id: &str) -> (String, String) {
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
fn upcoming_category_change_is_published_once() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    subscribe_to_all_events(&ana);
    let (template, campaign) = scheduled_campaign(&ana, "77");
    let path = format!("/api/templates/{template}");
    let report_change = |at: u64| {
        let value = json!({ "message_template_id": 77, "message_template_name": "x", "message_template_language": "pt_BR",
            "correct_category": "UTILITY", "new_category": "MARKETING", "category_update_timestamp": at });
        assert_eq!(
            server
                .callback(&callback_change("template_category_update", &value))
                .status,
            200
        );
    };
    for _ in 0..10 {
        report_change(1_780_000_000);
    }
    let shown = ana.get(&path).ok();
    assert_eq!(
        (&shown["category"], &shown["correct_category"]),
        (&json!("MARKETING"), &json!("UTILITY"))
    );
    assert_eq!(
        shown["category_change"],
        json!({ "to": "UTILITY", "at": "2026-05-28T20:26:40.000Z" })
    );
    let published = eventually("the reported change is published", || {
        Some(webhook_events(&ana, "template.category_changing")).filter(|events| !events.is_empty())
    });
    let expected = json!({ "id": template, "name": shown["name"], "language": "pt_BR", "from": "MARKETING",
        "to": "UTILITY", "at": "2026-05-28T20:26:40.000Z", "campaigns": [campaign] });
    assert_eq!(published, [expected]);
    until("the reported change is notified", || {
        count_notifications(&ana, "Template category will change") == 1
    });
    // A changed date is reported again.
    report_change(1_780_000_060);
    until("the changed date is published", || {
        webhook_events(&ana, "template.category_changing").len() == 2
    });
    let done = json!({ "message_template_id": 77, "previous_category": "MARKETING", "new_category": "UTILITY" });
    for _ in 0..2 {
        server.callback(&callback_change("template_category_update", &done));
    }
    let shown = ana.get(&path).ok();
    assert_eq!(
        (
            &shown["category"],
            &shown["category_change"],
            &shown["correct_category"]
        ),
        (&json!("UTILITY"), &Value::Null, &Value::Null)
    );
    let changed = eventually("the change is published", || {
        Some(webhook_events(&ana, "template.status_changed")).filter(|events| !events.is_empty())
    });
    let expected = json!({ "id": template, "name": shown["name"], "language": "pt_BR", "status": "approved",
        "previous_status": "approved", "category": "UTILITY", "previous_category": "MARKETING",
        "rejection_reason": null });
    assert_eq!(changed, [expected]);
    until("the change is notified", || {
        count_notifications(&ana, "Template category changed") == 1
    });
    assert_eq!(count_notifications(&ana, "Template category will change"), 2);
}

#[test]
fn unsupported_callback_fields_are_counted_by_few_labels() {
    let server = Server::start(without_statuses().with_metrics());
    let port = server.metrics_port();
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let unread_total = |labels: &[&str]| {
        scrape(port)
            .sum("recado_whatsapp_unread_total", labels)
            .unwrap_or_default()
    };
    for _ in 0..3 {
        server.callback(&callback_change("flows", &json!({ "alert_type": "X" })));
    }
    assert_eq!(unread_total(&["field=\"flows\"", "type=\"\""]), 3.0);
    let message_of_type =
        |kind: &str| json!({ "from": ANA, "id": kind, "timestamp": "1780000000", "type": kind, kind: {} });
    assert_eq!(
        server
            .callback(&message_callback(&[
                message_of_type("hologram"),
                message_of_type("NEW KIND"),
                message_of_type("sticker"),
                message_of_type("text")
            ]))
            .status,
        200
    );
    assert_eq!(unread_total(&["field=\"messages\"", "type=\"hologram\""]), 1.0);
    assert_eq!(unread_total(&["field=\"messages\"", "type=\"other\""]), 1.0);
    assert_eq!(
        unread_total(&["field=\"messages\""]),
        2.0,
        "supported types are not counted"
    );
    for number in 0..100 {
        server.callback(&callback_change(&format!("field_{number}"), &json!({})));
    }
    let metrics = scrape(port);
    assert!(metrics.labels("field").len() <= 66, "{:?}", metrics.labels("field"));
    assert!(metrics.sum("recado_whatsapp_unread_total", &["field=\"other\""]) >= Some(36.0));
    assert_eq!(metrics.sum("recado_whatsapp_unread_total", &[]), Some(105.0));
    let broken = server.callback(&json!("not a callback"));
    assert_eq!(broken.status, 200);
    assert_eq!(
        scrape(port).sum("recado_whatsapp_callbacks_unreadable_total", &[]),
        Some(1.0)
    );
}

#[test]
fn failing_status_update_is_set_aside_and_blocks_no_other() {
    const CLAIMS: i32 = 20;
    let server = Server::start(without_statuses().with_metrics());
    let port = server.metrics_port();
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
    let updates: Vec<Value> = sends
        .iter()
        .map(|send| status(&text(&send["wa_message_id"]), "read", None))
        .collect();
    assert_eq!(server.callback(&statuses(NUMBER, &updates)).status, 200);
    wait_for_stat(&ana, &campaign, "read", 2);
    // After the maximum number of claims the callback is set aside, not lost.
    until("the callback is set aside", || {
        server.db.run(&format!(
            "UPDATE whatsapp_callbacks SET due_at = now(), claims = greatest(claims, {}) WHERE due_at < 'infinity'",
            CLAIMS - 2
        ));
        server.db.count("FROM whatsapp_callbacks WHERE due_at = 'infinity'") == 1
    });
    assert_eq!(
        server.db.text("SELECT claims FROM whatsapp_callbacks"),
        CLAIMS.to_string()
    );
    let metrics = eventually("the queue depth shows the callback", || {
        let metrics = scrape(port);
        let depth = metrics.sum("recado_queue_depth", &["queue=\"whatsapp_callbacks_set_aside\""]);
        // The worker counts the callback after its row is committed.
        let total = metrics.sum("recado_whatsapp_callbacks_set_aside_total", &[]);
        (depth == Some(1.0) && total == Some(1.0)).then_some(metrics)
    });
    assert_eq!(
        metrics.sum("recado_queue_depth", &["queue=\"whatsapp_callbacks\""]),
        Some(0.0)
    );
    assert!(server.log().contains("set aside"), "{}", server.log());
    // An operator removes the cause and makes the callback due again.
    server.db.run(
        "DROP TRIGGER refuse ON campaign_sends;
         UPDATE whatsapp_callbacks SET due_at = now(), claims = 0 WHERE due_at = 'infinity'",
    );
    wait_for_stat(&ana, &campaign, "read", 3);
    until("the callback is deleted", || {
        server.db.count("FROM whatsapp_callbacks") == 0
    });
}
