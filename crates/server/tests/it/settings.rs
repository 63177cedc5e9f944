//! Settings of an account: defaults, partial updates, roles; opt-out words and their reply, late schedules, cost alerts
//! and the time zone of contacts.

use recado_simulators::whatsapp::Inbound;
use serde_json::{Value, json};

use crate::costs::add_card;
use crate::harness::process::command;
use crate::harness::runs::{final_status, status, statuses, without_statuses};
use crate::harness::users::{User, phone};
use crate::harness::{DEADLINE, Options, Server, eventually, text, until};

const PATH: &str = "/api/settings";
const NUMBER: &str = "106500000001";

fn set(user: &User<'_>, body: Value) -> Value {
    user.put(PATH, body).ok()
}

#[test]
fn settings_are_updated_by_field_and_null_restores_defaults() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let defaults = json!({
        "timezone": "UTC", "quiet_hours": null, "max_marketing_per_contact": null, "hold_at_most_hours": 48,
        "opt_out_words": [], "opt_out_reply": null, "late_policy": null, "cost_alerts": [],
    });
    assert_eq!(ana.get(PATH).ok(), defaults);
    assert_eq!(set(&ana, json!({})), defaults);
    let changed = set(
        &ana,
        json!({
            "timezone": "America/Sao_Paulo", "opt_out_words": ["Cancelar", " fim "], "opt_out_reply": "Pronto!",
            "quiet_hours": { "from": "21:00", "to": "08:00", "zone": "contact" },
            "max_marketing_per_contact": { "n": 4, "days": 7 }, "hold_at_most_hours": 24, "account_id": bia.account,
            "late_policy": { "within": 3600, "else": "skip" }, "cost_alerts": [{ "amount": 99.5, "currency": "USD" }],
        }),
    );
    let expected = json!({
        "timezone": "America/Sao_Paulo", "opt_out_words": ["Cancelar", "fim"], "opt_out_reply": "Pronto!",
        "quiet_hours": { "from": "21:00", "to": "08:00", "zone": "contact", "categories": ["MARKETING"],
            "days": [0, 1, 2, 3, 4, 5, 6] },
        "max_marketing_per_contact": { "n": 4, "days": 7 }, "hold_at_most_hours": 24,
        "late_policy": { "within": 3600, "else": "skip" }, "cost_alerts": [{ "amount": 99.5, "currency": "USD" }],
    });
    assert_eq!(changed, expected);
    let mut partly = expected;
    partly["timezone"] = json!("UTC");
    partly["opt_out_words"] = json!([]);
    partly["quiet_hours"] = Value::Null;
    let restored = set(
        &ana,
        json!({ "timezone": null, "opt_out_words": null, "quiet_hours": null }),
    );
    assert_eq!((&restored, &ana.get(PATH).ok()), (&partly, &partly));
    assert_eq!(bia.get(PATH).ok(), defaults, "of another account");
    let logs = eventually("the audit entries", || {
        let logs = ana.get("/api/audit-logs?entity_type=account_settings").ok()["logs"].take();
        (logs.as_array().unwrap().len() == 3).then_some(logs)
    });
    assert_eq!(
        (&logs[0]["action"], &logs[0]["entity_id"]),
        (&json!("update"), &json!(ana.account))
    );
    assert_eq!(
        logs[0]["changes"],
        json!({ "fields": ["timezone", "quiet_hours", "opt_out_words"] })
    );
    assert!(!logs.to_string().contains("Pronto"), "{logs}");
}

#[test]
fn invalid_settings_are_named_and_change_nothing() {
    let server = Server::new();
    let ana = server.owner();
    let quiet = |from: &str, to: &str| json!({ "from": from, "to": to, "zone": "account" });
    for (body, fields) in [
        (json!({ "timezone": "Mars/Base" }), vec!["timezone"]),
        (json!({ "timezone": 3 }), vec!["timezone"]),
        (
            json!({ "quiet_hours": quiet("08:00", "08:00") }),
            vec!["quiet_hours.to"],
        ),
        (
            json!({ "quiet_hours": quiet("24:00", "08:00") }),
            vec!["quiet_hours.from"],
        ),
        (
            json!({ "quiet_hours": { "from": "20:00", "to": "08:00" } }),
            vec!["quiet_hours"],
        ),
        (
            json!({ "quiet_hours": { "from": "20:00", "to": "08:00", "zone": "contact", "days": [7] } }),
            vec!["quiet_hours.days"],
        ),
        (
            json!({ "quiet_hours": { "from": "20:00", "to": "08:00", "zone": "contact", "categories": ["SERVICE"] } }),
            vec!["quiet_hours.categories[0]"],
        ),
        (
            json!({ "max_marketing_per_contact": { "n": 0, "days": 91 } }),
            vec!["max_marketing_per_contact.days", "max_marketing_per_contact.n"],
        ),
        (json!({ "hold_at_most_hours": 169 }), vec!["hold_at_most_hours"]),
        (json!({ "hold_at_most_hours": 1.5 }), vec!["hold_at_most_hours"]),
        (json!({ "opt_out_words": ["fim", ""] }), vec!["opt_out_words[1]"]),
        (json!({ "opt_out_words": vec!["x"; 51] }), vec!["opt_out_words"]),
        (json!({ "opt_out_reply": "x".repeat(1025) }), vec!["opt_out_reply"]),
        (json!({ "opt_out_reply": "" }), vec!["opt_out_reply"]),
        (
            json!({ "late_policy": { "within": 59, "else": "skip" } }),
            vec!["late_policy.within"],
        ),
        (
            json!({ "late_policy": { "within": 60, "else": "wait" } }),
            vec!["late_policy.else"],
        ),
        (
            json!({ "cost_alerts": [{ "amount": 0, "currency": "usd" }] }),
            vec!["cost_alerts[0].amount", "cost_alerts[0].currency"],
        ),
    ] {
        let mut with_valid = body.clone();
        if body.get("timezone").is_none() {
            with_valid["timezone"] = json!("Europe/Lisbon");
        }
        assert_eq!(ana.put(PATH, with_valid).invalid(), fields, "{body}");
    }
    assert_eq!(ana.get(PATH).ok()["timezone"], "UTC");
}

/// Must-hold 6 of quiet hours, caps and opt-outs: only owners and admins change settings.
#[test]
fn members_and_keys_read_settings_but_do_not_change_them() {
    let server = Server::new();
    let ana = server.owner();
    let body = json!({ "timezone": "Europe/Lisbon" });
    for role in ["member", "viewer"] {
        let user = server.member(&ana.account, role);
        user.get(PATH).ok();
        user.put(PATH, body.clone()).refused(401, "AUTH_ERROR");
    }
    let key = |scopes: Value| {
        let made = ana
            .post("/api/api-keys", json!({ "name": "k", "scopes": scopes }))
            .created();
        text(&made["full_key"])
    };
    let (all, account, other) = (
        key(json!(["*"])),
        key(json!(["account:read"])),
        key(json!(["contacts:read"])),
    );
    for key in [&all, &account] {
        server.get(PATH).bearer(key).send().ok();
        let put = server.request("PUT", PATH).bearer(key).json(&body);
        put.send().refused(401, "AUTH_ERROR");
    }
    server.get(PATH).bearer(&other).send().refused(403, "FORBIDDEN");
    assert_eq!(ana.get(PATH).ok()["timezone"], "UTC");
    set(&server.member(&ana.account, "admin"), body);
    assert_eq!(ana.get(PATH).ok()["timezone"], "Europe/Lisbon");
}

fn receive(server: &Server, from: &str, message: &str) {
    server.whatsapp.inbound(&Inbound::text(NUMBER, from, message));
    assert!(server.whatsapp.wait_idle(DEADLINE));
    until("every callback is processed", || {
        server.db.count("FROM whatsapp_callbacks") == 0
    });
}

fn is_opted_out(user: &User<'_>, contact: &str) -> bool {
    user.get(&format!("/api/contacts/{contact}")).ok()["opted_out_at"].is_string()
}

/// The texts that were sent to a phone number.
fn texts_to(server: &Server, phone: &str) -> Vec<String> {
    let digits = phone.trim_start_matches('+');
    let sends = server.whatsapp.sends().into_iter();
    let sends = sends.filter(|send| {
        send.to
            .as_deref()
            .is_some_and(|to| to.trim_start_matches('+') == digits)
    });
    sends.map(|send| text(&send.request.body["text"]["body"])).collect()
}

/// Must-hold 7: "sair agora" is no opt-out; "Sair " is. Words of the account are compared alike.
#[test]
fn opt_out_words_of_the_account_count_from_the_next_message_on() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let contacts: Vec<String> = (1..=4).map(|n| ana.contact(&format!("C{n}"), &phone(n))).collect();
    receive(&server, &phone(1), "Cancelar");
    assert!(!is_opted_out(&ana, &contacts[0]), "before the word is set");
    set(&ana, json!({ "opt_out_words": ["cancelar", "não quero"] }));
    for (contact, words, expected) in [
        (1, vec!["sair agora", "quero cancelar"], false),
        (1, vec!["Sair "], true),
        (2, vec!["cancelar já", " CANCELAR\n"], true),
        (3, vec!["Não Quero"], true),
    ] {
        for word in words {
            receive(&server, &phone(contact + 1), word);
        }
        assert_eq!(is_opted_out(&ana, &contacts[contact]), expected, "{contact}");
    }
    assert!(!is_opted_out(&ana, &contacts[0]), "never backward");
    set(&ana, json!({ "opt_out_words": null }));
    receive(&server, &phone(1), "cancelar");
    assert!(!is_opted_out(&ana, &contacts[0]), "the word was removed");
    assert!(server.whatsapp.sends().is_empty(), "no reply is set");
}

#[test]
fn opt_out_is_replied_to_once_also_after_a_crash() {
    let server = Server::start(Options {
        args: vec!["serve", "--no-workers"],
        ..without_statuses()
    });
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let [bia, caio, duda] = [1, 2, 3].map(|n| ana.contact(&format!("C{n}"), &phone(n)));
    ana.put(&format!("/api/contacts/{caio}"), json!({ "opted_out": true }))
        .ok();
    set(&ana, json!({ "opt_out_words": ["fim"], "opt_out_reply": "Pronto!" }));
    let receive = |from: usize, message: &str| {
        let wamid = server.whatsapp.inbound(&Inbound::text(NUMBER, &phone(from), message));
        assert!(server.whatsapp.wait_idle(DEADLINE));
        wamid
    };
    receive(1, "Fim ");
    receive(1, "fim");
    receive(2, "fim");
    receive(3, "fim da fila?");
    until("the opt-out", || is_opted_out(&ana, &bia));
    let queued = "FROM direct_messages WHERE status = 'pending'";
    assert_eq!(server.db.count(queued), 1, "committed with the opt-out");
    assert!(server.whatsapp.sends().is_empty());
    server.kill();
    server.run(&["serve"]);
    until("the reply", || texts_to(&server, &phone(1)) == ["Pronto!"]);
    until("the reply is recorded", || server.db.count(queued) == 0);
    receive(1, "sair");
    until("every callback is processed", || {
        server.db.count("FROM whatsapp_callbacks") == 0
    });
    assert_eq!(server.whatsapp.sends().len(), 1, "no second reply, and none to others");
    assert!(!is_opted_out(&ana, &duda));
    let reply = ana.get("/api/messages").ok()["data"][0].clone();
    assert_eq!(
        (
            &reply["contact_id"],
            &reply["kind"],
            &reply["status"],
            &reply["created_by"]
        ),
        (&json!(bia), &json!("text"), &json!("sent"), &json!(ana.id))
    );
    let path = format!("/api/conversations/{}/messages", text(&reply["conversation_id"]));
    let shown = ana.get(&path).ok();
    let texts = shown["data"].as_array().unwrap().iter();
    assert_eq!(
        texts.filter(|message| message["text"] == "Pronto!").count(),
        1,
        "{shown}"
    );
}

/// A scheduled campaign that is found two hours after its time. `own` is the policy of its schedule.
fn found_late(server: &Server, user: &User<'_>, own: &Value) -> String {
    let campaign = user.plain_campaign();
    let mut body = json!({ "scheduled_at": "2126-01-01T00:00:00Z" });
    if !own.is_null() {
        body["late_policy"] = own.clone();
    }
    let scheduled = user.post(&format!("/api/campaigns/{campaign}/schedule"), body).ok();
    assert_eq!(
        (&scheduled["late_policy"], &scheduled["skipped_at"]),
        (own, &Value::Null)
    );
    server.db.run(&format!(
        "UPDATE campaigns SET scheduled_at = now() - interval '2 hours' WHERE id = '{campaign}'"
    ));
    campaign
}

/// Must-hold 5: due at 10:00 and found at 12:00 with `{ within: 3600, else: skip }`.
#[test]
fn campaign_that_is_found_too_late_sends_nothing_and_is_a_draft() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contacts(2);
    let skip = json!({ "within": 3600, "else": "skip" });
    let id = found_late(&server, &ana, &skip);
    until("it is a draft", || ana.status(&id) == "draft");
    let draft = ana.get(&format!("/api/campaigns/{id}")).ok();
    assert!(
        draft["skipped_at"].is_string() && draft["executed_at"].is_null(),
        "{draft}"
    );
    let notification = eventually("the notification", || {
        let page = ana.get("/api/notifications?limit=100").ok();
        let mut items = page["data"].as_array().unwrap().iter();
        items.find(|item| item["type"] == "error").cloned()
    });
    assert_eq!(notification["data"], json!({ "campaign_id": id, "reason": "late" }));
    let audits =
        "FROM audit_logs WHERE action = 'update' AND entity_type = 'campaign' AND changes ->> 'skipped' = 'true'";
    until("the audit entry", || server.db.count(audits) == 1);
    assert!(ana.sends(&id).is_empty() && server.whatsapp.sends().is_empty());
    // Scheduled again and in time it is sent, and was not skipped.
    let path = format!("/api/campaigns/{id}/schedule");
    ana.post(&path, json!({ "scheduled_at": "2126-01-01T00:00:00Z" })).ok();
    assert_eq!(ana.get(&format!("/api/campaigns/{id}")).ok()["skipped_at"], Value::Null);
    server.db.run("UPDATE campaigns SET scheduled_at = now()");
    until("it starts", || ana.status(&id) != "scheduled");
    assert_eq!(final_status(&ana, &id), "completed");
    assert_eq!(server.whatsapp.sends().len(), 2);
    ana.post(&path, json!({ "late_policy": { "within": 59, "else": "skip" } }))
        .invalid();
}

#[test]
fn late_policy_of_the_account_is_for_schedules_without_their_own() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contacts(1);
    let none = found_late(&server, &ana, &Value::Null);
    until("without a policy it is sent", || {
        final_status(&ana, &none) == "completed"
    });
    set(&ana, json!({ "late_policy": { "within": 60, "else": "skip" } }));
    let of_account = found_late(&server, &ana, &Value::Null);
    until("it is skipped", || ana.status(&of_account) == "draft");
    let own = found_late(&server, &ana, &json!({ "within": 60, "else": "send" }));
    until("it starts", || ana.status(&own) != "scheduled");
    assert_eq!(final_status(&ana, &own), "completed");
    assert_eq!(server.whatsapp.sends().len(), 2);
}

/// Events of alerts in the feed, oldest first.
fn alerts(user: &User<'_>) -> Vec<Value> {
    let events = user.get("/api/webhooks/events?limit=100").ok();
    let events = events["data"].as_array().unwrap().iter();
    let events = events.filter(|event| event["type"] == "cost.threshold");
    events.map(|event| event["data"].clone()).collect()
}

/// The seconds of 2026-03-01 0:00 in São Paulo.
const MIDNIGHT: u64 = 1_772_334_000;

fn delivered(send: &Value, at: u64, price: f64) -> Value {
    let mut item = status(&text(&send["wa_message_id"]), "delivered", None);
    item["timestamp"] = json!(at.to_string());
    item["pricing"] = json!({ "billable": true, "pricing_model": "PMP", "type": "regular", "category": "marketing",
        "price": price, "currency": "USD" });
    item
}

/// Must-hold 7 of costs: a threshold that is passed twice in a month has one event.
#[test]
fn cost_alert_is_given_once_a_month_of_the_accounts_zone() {
    let server = Server::start(without_statuses());
    let (ana, bia) = (server.owner(), server.owner());
    let body = json!({ "name": "feed", "url": "https://e.example", "events": ["cost.threshold"], "is_active": false });
    ana.post("/api/webhooks", body.clone()).created();
    ana.profile_at(NUMBER);
    ana.contacts(6);
    let id = ana.plain_campaign();
    ana.execute(&id).ok();
    let sends = ana.sends(&id);
    let report = |items: &[Value]| {
        assert_eq!(server.callback(&statuses(NUMBER, items)).status, 200);
        // Callbacks are answered before they are applied, and settings MUST NOT change in between.
        until("the callback", || server.db.count("FROM whatsapp_callbacks") == 0);
    };
    report(&[delivered(&sends[0], MIDNIGHT + 60, 0.5)]);
    set(
        &ana,
        json!({ "timezone": "America/Sao_Paulo",
            "cost_alerts": [{ "amount": 1, "currency": "USD" }, { "amount": 1, "currency": "BRL" },
                { "amount": 2, "currency": "USD" }] }),
    );
    // Of the month before, in the account's zone.
    report(&[delivered(&sends[1], MIDNIGHT - 60, 0.9)]);
    let last = delivered(&sends[2], MIDNIGHT + 120, 0.625);
    for _ in 0..3 {
        report(std::slice::from_ref(&last));
    }
    let first = json!({ "threshold": 1, "currency": "USD", "month": "2026-03", "amount": 1.125, "previous": 0.5 });
    until("one event", || alerts(&ana) == [first.clone()]);
    // A correction below the threshold, and past it again.
    report(&[delivered(&sends[2], MIDNIGHT + 180, 0.25)]);
    report(&[delivered(&sends[3], MIDNIGHT + 240, 0.5)]);
    // The alert is taken away and set again.
    let again = json!({ "cost_alerts": [{ "amount": 1, "currency": "USD" }, { "amount": 2, "currency": "USD" }] });
    set(&ana, json!({ "cost_alerts": null }));
    set(&ana, again);
    report(&[delivered(&sends[3], MIDNIGHT + 300, 0.1)]);
    report(&[delivered(&sends[3], MIDNIGHT + 360, 0.6)]);
    report(&[delivered(&sends[4], MIDNIGHT + 420, 0.65)]);
    let second = json!({ "threshold": 2, "currency": "USD", "month": "2026-03", "amount": 2, "previous": 1.35 });
    until("two events", || alerts(&ana) == [first.clone(), second.clone()]);
    let warnings = eventually("the notifications", || {
        let page = ana.get("/api/notifications?limit=100").ok();
        let found: Vec<Value> = page["data"].as_array().unwrap().to_vec();
        let found: Vec<Value> = found.into_iter().filter(|item| item["type"] == "warning").collect();
        (found.len() == 2).then_some(found)
    });
    assert_eq!(warnings[1]["data"], first);
    assert!(
        bia.get("/api/notifications").ok()["data"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[test]
fn corrected_rates_pass_an_alert() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let body = json!({ "name": "feed", "url": "https://e.example", "events": ["*"], "is_active": false });
    ana.post("/api/webhooks", body).created();
    set(&ana, json!({ "cost_alerts": [{ "amount": 0.05, "currency": "USD" }] }));
    ana.profile_at(NUMBER);
    ana.contacts(1);
    let id = ana.plain_campaign();
    ana.execute(&id).ok();
    let mut update = delivered(&ana.sends(&id)[0], MIDNIGHT, 0.0);
    update["pricing"] = json!({ "billable": true, "pricing_model": "PMP", "type": "regular", "category": "marketing" });
    server.callback(&statuses(NUMBER, &[update]));
    assert!(alerts(&ana).is_empty(), "unpriced");
    add_card(&server, "BR,USD,marketing,0.0625,2026-01-01,,,\n");
    let repriced = command(&["rollups", "rebuild", "--reprice"], &server.environment());
    assert!({ repriced }.status().unwrap().success());
    let expected = json!({ "threshold": 0.05, "currency": "USD", "month": "2026-03", "amount": 0.0625, "previous": 0 });
    until("one event", || alerts(&ana) == [expected.clone()]);
}

#[test]
fn contact_has_a_time_zone_of_its_own() {
    let server = Server::new();
    let ana = server.owner();
    let body = json!({ "name": "Bia", "phone": phone(1), "time_zone": "america/manaus" });
    let made = ana.post("/api/contacts", body).created();
    assert_eq!(made["time_zone"], "America/Manaus");
    let path = format!("/api/contacts/{}", text(&made["id"]));
    assert_eq!(ana.get(&path).ok()["time_zone"], "America/Manaus");
    assert_eq!(
        ana.put(&path, json!({ "name": "B" })).ok()["time_zone"],
        "America/Manaus"
    );
    let renamed = ana.put(&path, json!({ "time_zone": "Brazil/West" })).ok();
    assert_eq!(
        renamed["time_zone"], "Brazil/West",
        "another name of the zone is returned as given"
    );
    for invalid in [json!("BRT"), json!(""), json!("-03:00"), json!(3)] {
        assert_eq!(ana.put(&path, json!({ "time_zone": invalid })).invalid(), ["time_zone"]);
    }
    assert_eq!(
        ana.put(&path, json!({ "time_zone": null })).ok()["time_zone"],
        Value::Null
    );
    let csv = format!(
        "name,phone,time_zone,city\nBia,{},America/Cuiaba,X\nCaio,{},,X\nDuda,{},Nowhere,X\n",
        phone(1),
        phone(2),
        phone(3)
    );
    let report = ana.import(csv).ok();
    assert_eq!(
        (&report["imported"], &report["updated"]),
        (&json!(1), &json!(1)),
        "{report}"
    );
    assert!(
        report.to_string().contains("time_zone must be the IANA name"),
        "{report}"
    );
    ana.import(format!("name,phone,time_zone\nBia,{},\n", phone(1))).ok();
    let listed = ana.get("/api/contacts").ok();
    let zones: Vec<(String, Value)> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|contact| (text(&contact["name"]), contact["time_zone"].clone()))
        .collect();
    let expected = [
        ("Caio".to_owned(), Value::Null),
        ("Bia".to_owned(), json!("America/Cuiaba")),
    ];
    assert_eq!(zones, expected, "an empty cell keeps it");
}

#[test]
fn segments_select_contacts_by_the_zone_that_counts() {
    let server = Server::new();
    let ana = server.owner();
    set(&ana, json!({ "timezone": "Europe/Lisbon" }));
    for (name, phone, zone) in [
        ("own", "+5511961234567", json!("America/Manaus")),
        ("by phone", "+5592961234567", Value::Null),
        ("of São Paulo", "+5511961234568", Value::Null),
        ("of the account", "+351912345678", Value::Null),
    ] {
        let body = json!({ "name": name, "phone": phone, "time_zone": zone });
        ana.post("/api/contacts", body).created();
    }
    let preview = |node: Value| ana.post("/api/segments/preview", json!({ "filters": { "all": [node] } }));
    let names = |zones: Value| {
        let found = preview(json!({ "time_zone": { "in": zones } })).ok();
        let sample = found["sample"].as_array().unwrap().iter();
        let mut names: Vec<String> = sample.map(|contact| text(&contact["name"])).collect();
        names.sort_unstable();
        assert_eq!(found["count"], names.len());
        names
    };
    assert_eq!(names(json!(["America/Manaus"])), ["by phone", "own"]);
    assert_eq!(names(json!(["Brazil/West"])), ["by phone", "own"]);
    assert_eq!(
        names(json!(["europe/lisbon", "America/Sao_Paulo"])),
        ["of São Paulo", "of the account"]
    );
    let rest = preview(json!({ "not": { "time_zone": { "in": ["America/Manaus"] } } })).ok();
    assert_eq!(rest["count"], 2);
    for (zones, path) in [(json!([]), "in"), (json!(["BRT"]), "in[0]"), (json!("UTC"), "in")] {
        let refused = preview(json!({ "time_zone": { "in": zones } })).invalid();
        assert_eq!(refused, [format!("filters.all[0].time_zone.{path}")]);
    }
}
