//! Messages that the settings of an account hold: quiet hours, and the limit of marketing messages to a contact.

use recado_simulators::whatsapp::Inbound;
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime, UtcOffset};

use crate::harness::runs::{assert_stats_add_up, calls, final_status, usage, wait_for_stat, without_statuses};
use crate::harness::users::{User, phone};
use crate::harness::{Server, eventually, text, until};

const NUMBER: &str = "106500000001";

fn settings(user: &User<'_>, change: Value) {
    user.put("/api/settings", change).ok();
}

/// Quiet hours from an hour ago to two hours ahead, on a clock with this offset from UTC in hours.
fn quiet_now(offset: i8, zone: &str) -> Value {
    let now = OffsetDateTime::now_utc().to_offset(UtcOffset::from_hms(offset, 0, 0).unwrap());
    let clock = |at: OffsetDateTime| format!("{:02}:{:02}", at.hour(), at.minute());
    let (from, to) = (clock(now - Duration::HOUR), clock(now + Duration::hours(2)));
    json!({ "from": from, "to": to, "zone": zone })
}

fn cap(n: u16, days: u16) -> Value {
    json!({ "max_marketing_per_contact": { "n": n, "days": days } })
}

fn time(value: &Value) -> OffsetDateTime {
    OffsetDateTime::parse(&text(value), &time::format_description::well_known::Rfc3339).unwrap()
}

fn campaign(user: &User<'_>, id: &str) -> Value {
    user.get(&format!("/api/campaigns/{id}")).ok()
}

#[track_caller]
fn wait_until_held(user: &User<'_>, id: &str, held: i64) -> Value {
    let stats = wait_for_stat(user, id, "held", held);
    assert_eq!(user.status(id), "sending");
    stats
}

/// Utility templates are not held unless their category is.
fn utility(user: &User<'_>) -> String {
    let template = user.approved("Pedido {{1}}", &["1042"]);
    let change = format!("UPDATE message_templates SET category = 'UTILITY' WHERE id = '{template}'");
    user.server.db.run(&change);
    template
}

#[test]
fn held_campaign_waits_and_goes_on_when_the_settings_change() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contacts(3);
    settings(&ana, json!({ "quiet_hours": quiet_now(0, "account") }));
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    let expected = json!({ "total": 3, "sent": 0, "failed": 0, "simulated": false, "status": "sending", "waiting": 3,
                           "waiting_until": report["waiting_until"] });
    assert_eq!(report, expected);
    let ends_in = time(&report["waiting_until"]) - OffsetDateTime::now_utc();
    assert!(
        (Duration::minutes(118)..=Duration::hours(2)).contains(&ends_in),
        "{ends_in}"
    );
    assert!(calls(&server).is_empty());
    let (stats, shown) = (ana.stats(&id), campaign(&ana, &id));
    assert_stats_add_up(&stats);
    for answer in [&stats, &shown] {
        assert_eq!(
            (&answer["held"], &answer["waiting_until"]),
            (&json!(3), &report["waiting_until"])
        );
    }
    assert_eq!((&stats["pending"], &shown["status"]), (&json!(3), &json!("sending")));
    for send in ana.sends(&id) {
        assert_eq!(
            (&send["status"], &send["hold_reason"], &send["retry_at"]),
            (&json!("pending"), &json!("quiet_hours"), &report["waiting_until"])
        );
    }
    // The run holds no lease, and is not claimed while it waits.
    let held = "FROM campaign_queue WHERE worker IS NULL AND waiting_until = retry_at AND held = 3";
    assert_eq!(server.db.count(held), 1);
    settings(&ana, json!({ "quiet_hours": null }));
    assert_eq!(final_status(&ana, &id), "completed");
    assert_eq!(calls(&server).values().copied().collect::<Vec<_>>(), [1, 1, 1]);
    let (stats, shown) = (ana.stats(&id), campaign(&ana, &id));
    assert_eq!((stats.get("held"), stats.get("waiting_until")), (None, None));
    assert_eq!((&shown["held"], &shown["waiting_until"]), (&json!(0), &Value::Null));
    for send in ana.sends(&id) {
        assert_eq!((&send["hold_reason"], &send["retry_at"]), (&Value::Null, &Value::Null));
    }
    assert_eq!(usage(&server, &ana.account), "3 0");
}

#[test]
fn waiting_campaign_is_cancelled_at_once() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contacts(2);
    settings(&ana, json!({ "quiet_hours": quiet_now(0, "account") }));
    let id = ana.plain_campaign();
    ana.send(&id);
    wait_until_held(&ana, &id, 2);
    ana.cancel(&id).ok();
    let stats = ana.stats(&id);
    assert_eq!(
        (&stats["pending"], stats.get("held"), ana.status(&id).as_str()),
        (&json!(2), None, "cancelled")
    );
    assert_eq!(usage(&server, &ana.account), "0 0");
    settings(&ana, json!({ "quiet_hours": null }));
    let other = ana.plain_campaign();
    ana.execute(&other).ok();
    assert_eq!(ana.stats(&id)["pending"], json!(2));
    assert_eq!(calls(&server).len(), 2);
}

#[test]
fn quiet_hours_follow_the_zone_of_each_contact() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    // Sao Paulo by phone, Tokyo by its own zone: their clocks are twelve hours apart.
    ana.contact("Bia", &phone(1));
    let abroad = json!({ "name": "Caio", "phone": phone(2), "time_zone": "Asia/Tokyo" });
    ana.post("/api/contacts", abroad).created();
    settings(&ana, json!({ "quiet_hours": quiet_now(-3, "contact") }));
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    assert_eq!((&report["sent"], &report["waiting"]), (&json!(1), &json!(1)));
    assert_eq!(calls(&server).into_keys().collect::<Vec<_>>(), [phone(2)]);
    // A campaign of another category is not held.
    let template = utility(&ana);
    let other = ana.campaign(json!({ "name": "Pedido", "template_id": template }));
    assert_eq!(ana.execute(&other).ok()["status"], "completed");
    let both = json!({ "quiet_hours": { "from": "00:00", "to": "23:59", "zone": "account",
                       "categories": ["MARKETING", "UTILITY"] } });
    settings(&ana, both);
    let template = utility(&ana);
    let other = ana.campaign(json!({ "name": "Pedido", "template_id": template }));
    let report = ana.execute(&other).ok();
    let minute = OffsetDateTime::now_utc();
    assert!(
        report["waiting"] == 2 || (minute.hour(), minute.minute()) >= (23, 59),
        "{report}"
    );
}

#[test]
fn send_that_was_held_too_long_fails_and_can_be_retried() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contacts(2);
    settings(
        &ana,
        json!({ "quiet_hours": quiet_now(0, "account"), "hold_at_most_hours": 1 }),
    );
    let id = ana.plain_campaign();
    let report = ana.execute(&id).ok();
    let looked_at = time(&report["waiting_until"]) - OffsetDateTime::now_utc();
    assert!(looked_at <= Duration::HOUR, "{looked_at}");
    // An hour later.
    server.db.run(
        "UPDATE campaign_sends SET held_since = held_since - interval '1 hour', retry_at = now();
         UPDATE campaign_queue SET retry_at = now(), waiting_until = now()",
    );
    assert_eq!(final_status(&ana, &id), "partial");
    for send in ana.sends(&id) {
        assert_eq!(
            (
                &send["status"],
                &send["error_code"],
                &send["error_message"],
                &send["failure_class"]
            ),
            (
                &json!("failed"),
                &Value::Null,
                &json!("held too long: quiet_hours"),
                &json!("again")
            )
        );
        assert_eq!((&send["hold_reason"], &send["retry_at"]), (&Value::Null, &Value::Null));
    }
    assert!(calls(&server).is_empty());
    assert_eq!(usage(&server, &ana.account), "0 0");
    settings(&ana, json!({ "quiet_hours": null }));
    let retried = ana.post(&format!("/api/campaigns/{id}/retry-failed"), json!({})).ok();
    assert_eq!(retried["retry"]["tried"], 2);
    assert_eq!(final_status(&ana, &id), "completed");
}

/// Direct messages to a contact.
fn message(user: &User<'_>, template: &str, phone: &str, fields: Value) -> Value {
    let mut body = json!({ "to": { "phone": phone }, "template": { "id": template, "variables": { "1": "Ana" } } });
    for (field, value) in fields.as_object().unwrap() {
        body[field] = value.clone();
    }
    user.post("/api/messages", body).created()
}

fn find(user: &User<'_>, message: &Value) -> Value {
    user.get(&format!("/api/messages/{}", text(&message["id"]))).ok()
}

#[test]
fn direct_messages_are_held_like_sends() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    settings(&ana, json!({ "quiet_hours": quiet_now(0, "account") }));
    let (marketing, utility) = (ana.approved("Oi {{1}}", &["Ana"]), utility(&ana));
    let held = message(&ana, &marketing, &phone(1), json!({}));
    let soon = OffsetDateTime::now_utc() + Duration::seconds(3);
    let expires_at = soon.format(&time::format_description::well_known::Rfc3339).unwrap();
    let expiring = message(&ana, &marketing, &phone(2), json!({ "expires_at": expires_at }));
    let free = message(&ana, &utility, &phone(3), json!({}));
    until("the utility message leaves", || find(&ana, &free)["status"] == "sent");
    let shown = eventually("the message is held", || {
        Some(find(&ana, &held)).filter(|message| message["hold_reason"] == "quiet_hours")
    });
    assert_eq!((&shown["status"], &shown["phase"]), (&json!("pending"), &json!("held")));
    let ends_in = time(&shown["retry_at"]) - OffsetDateTime::now_utc();
    assert!(
        (Duration::minutes(118)..=Duration::hours(2)).contains(&ends_in),
        "{ends_in}"
    );
    let failed = eventually("the message expires", || {
        Some(find(&ana, &expiring)).filter(|message| message["status"] == "failed")
    });
    assert_eq!(
        (
            &failed["error_code"],
            &failed["error_message"],
            &failed["failure_class"]
        ),
        (&Value::Null, &json!("held too long: quiet_hours"), &json!("again"))
    );
    assert_eq!(calls(&server).into_keys().collect::<Vec<_>>(), [phone(3)]);
    // Free-form messages are never held.
    server.whatsapp.inbound(&Inbound::text(NUMBER, &phone(1), "Oi"));
    let text_message = json!({ "to": { "phone": phone(1) }, "text": "Oi" });
    let text_message = eventually("the window opens", || {
        let reply = ana.post("/api/messages", text_message.clone());
        (reply.status == 201).then(|| reply.created())
    });
    until("the text leaves", || find(&ana, &text_message)["status"] == "sent");
    // Changed settings count within a minute.
    settings(&ana, json!({ "quiet_hours": null }));
    until("the held message leaves", || find(&ana, &held)["status"] == "sent");
    assert_eq!(usage(&server, &ana.account), "0 0");
}

/// Four campaigns to all contacts from two numbers, so that runs do not wait for each other's messages.
fn four_campaigns(ana: &User<'_>) -> Vec<String> {
    let profiles = [NUMBER, "106500000002"].map(|number| text(&ana.profile_at(number)["id"]));
    let campaign = |index: usize| {
        let template = ana.approved("Oi {{1}}", &["Ana"]);
        let number = &profiles[index % 2];
        ana.server.db.run(&format!(
            "UPDATE message_templates SET profile_id = '{number}' WHERE id = '{template}'"
        ));
        ana.campaign(json!({ "name": "Oferta", "template_id": template }))
    };
    (0..4).map(campaign).collect()
}

/// Starts the campaigns at two servers, and makes a direct message to each contact at the same time.
fn start_all(ana: &User<'_>, campaigns: &[String], phones: &[String]) {
    let sibling = ana.server.sibling();
    std::thread::scope(|scope| {
        for (index, id) in campaigns.iter().enumerate() {
            let path = format!("/api/campaigns/{id}/send");
            let request = match index % 2 {
                0 => ana.request("POST", &path),
                _ => sibling.request("POST", &path).bearer(&ana.token),
            };
            scope.spawn(|| request.send().ok());
        }
        let template = ana.approved("Oi {{1}}", &["Ana"]);
        for phone in phones {
            message(ana, &template, phone, json!({}));
        }
    });
    until("all messages have left or are held", || {
        for id in campaigns {
            assert_stats_add_up(&ana.stats(id));
        }
        let open = "FROM campaign_sends WHERE status = 'pending' AND hold_reason IS NULL";
        let waiting = "FROM direct_messages WHERE status = 'pending' AND hold_rule IS NULL";
        campaigns.iter().all(|id| ana.stats(id)["total"] != 0)
            && ana.server.db.count(open) + ana.server.db.count(waiting) == 0
    });
}

#[test]
fn cap_is_exact_over_servers_campaigns_and_direct_messages() {
    const CONTACTS: usize = 12;
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let phones = ana.contacts(CONTACTS);
    let campaigns = four_campaigns(&ana);
    settings(&ana, cap(2, 7));
    start_all(&ana, &campaigns, &phones);
    let called = calls(&server);
    assert_eq!(called.len(), CONTACTS);
    assert!(called.values().all(|calls| *calls == 2), "{called:?}");
    let pending = |id: &String| ana.stats(id)["pending"].as_i64().unwrap();
    let held: i64 = campaigns.iter().map(pending).sum();
    let held_messages = server.db.count("FROM direct_messages WHERE hold_rule = 'cap'");
    assert_eq!(held + held_messages, i64::try_from(3 * CONTACTS).unwrap());
    // The default limit of a hold ends before the cap has room.
    let mut sends = campaigns.iter().flat_map(|id| ana.sends(id));
    let send = sends.find(|send| send["hold_reason"] == "cap").unwrap();
    let ends_in = time(&send["retry_at"]) - OffsetDateTime::now_utc();
    assert!(
        (Duration::hours(47)..=Duration::hours(48)).contains(&ends_in),
        "{ends_in}"
    );
    // A higher limit is checked at once.
    settings(&ana, cap(5, 7));
    for id in &campaigns {
        final_status(&ana, id);
    }
    until("every message has left", || {
        calls(&server).values().all(|calls| *calls == 5)
    });
}

#[test]
fn failed_messages_do_not_count_and_retry_time_is_when_one_fits() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contacts(1);
    settings(&ana, cap(1, 1));
    let first = ana.plain_campaign();
    assert_eq!(ana.execute(&first).ok()["status"], "completed");
    let second = ana.plain_campaign();
    let report = ana.execute(&second).ok();
    assert_eq!((&report["status"], &report["waiting"]), (&json!("sending"), &json!(1)));
    let fits_in = time(&report["waiting_until"]) - OffsetDateTime::now_utc();
    assert!(
        (Duration::hours(23)..=Duration::hours(24)).contains(&fits_in),
        "{fits_in}"
    );
    assert_eq!(ana.sends(&second)[0]["hold_reason"], "cap");
    // A message of another category, and a test, are not held.
    let template = utility(&ana);
    let other = ana.campaign(json!({ "name": "Pedido", "template_id": template }));
    assert_eq!(ana.execute(&other).ok()["status"], "completed");
    // The first message fails after all, so the second fits when it is checked again.
    server
        .db
        .run("UPDATE campaign_sends SET status = 'failed', failed_at = now() WHERE sent_at IS NOT NULL");
    settings(&ana, json!({ "hold_at_most_hours": 24 }));
    assert_eq!(final_status(&ana, &second), "completed");
}

#[test]
fn codes_and_test_sends_are_never_held() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let phones = ana.contacts(2);
    let all_day = json!({ "from": "00:00", "to": "23:59", "zone": "account", "categories": ["MARKETING", "UTILITY"] });
    settings(&ana, json!({ "quiet_hours": all_day }));
    settings(&ana, cap(1, 1));
    let campaign_of = |category: &str| {
        let template = ana.approved("Oi {{1}}", &["Ana"]);
        let change = format!("UPDATE message_templates SET category = '{category}' WHERE id = '{template}'");
        server.db.run(&change);
        (
            template.clone(),
            ana.campaign(json!({ "name": category, "template_id": template })),
        )
    };
    let (_, marketing) = campaign_of("MARKETING");
    for _ in 0..2 {
        let path = format!("/api/campaigns/{marketing}/test");
        ana.post(&path, json!({ "phone": phones[0] })).ok();
    }
    let (template, codes) = campaign_of("AUTHENTICATION");
    let report = ana.execute(&codes).ok();
    assert_eq!((&report["status"], &report["sent"]), (&json!("completed"), &json!(2)));
    let code = message(&ana, &template, &phones[0], json!({}));
    until("the code leaves", || find(&ana, &code)["status"] == "sent");
    // None of them counts: of the marketing messages that were held, each contact gets one.
    let held = message(&ana, &campaign_of("MARKETING").0, &phones[1], json!({}));
    until("the direct message is held", || {
        find(&ana, &held)["hold_reason"] == "quiet_hours"
    });
    assert_eq!(ana.execute(&marketing).ok()["waiting"], 2);
    assert_eq!(calls(&server), [(phones[0].clone(), 4), (phones[1].clone(), 1)].into());
    settings(&ana, json!({ "quiet_hours": null }));
    until("each contact has one", || {
        calls(&server) == [(phones[0].clone(), 5), (phones[1].clone(), 2)].into()
    });
}
