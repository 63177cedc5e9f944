//! Analytics reports: sent messages, received messages and replies, in every time zone.

use recado_simulators::whatsapp::Inbound;
use serde_json::{Value, json};

use crate::harness::users::User;
use crate::harness::{Server, eventually, text, until};

const NUMBER: &str = "106500000001";
const ANA: &str = "+5531988887777";
const ROUTES: [&str; 3] = ["messages", "campaigns", "heatmap"];

fn report(user: &User<'_>, path: &str) -> Value {
    user.get(&format!("/api/analytics{path}")).ok()
}

/// Waits until the account's totals have these values.
fn wait_for_totals(user: &User<'_>, expected: &Value) {
    eventually("the messages are counted", || {
        (report(user, "/messages")["totals"] == *expected).then_some(())
    });
}

/// Creates an account with a number, a completed campaign to three contacts, and one inbound message.
fn create_active_account(server: &Server) -> (User<'_>, String) {
    let ana = server.owner();
    ana.profile_at(NUMBER);
    ana.contacts(3);
    let campaign = ana.plain_campaign();
    assert_eq!(ana.execute(&campaign).ok()["status"], "completed");
    server.whatsapp.inbound(&Inbound::text(NUMBER, ANA, "oi"));
    wait_for_totals(
        &ana,
        &json!({ "sent": 3, "delivered": 3, "read": 3, "failed": 0, "received": 1 }),
    );
    (ana, campaign)
}

#[test]
fn empty_account_reports_zeros() {
    let server = Server::new();
    let ana = server.owner();
    assert_eq!(
        report(&ana, ""),
        json!({
            "contacts": { "total": 0, "new_this_week": 0, "new_this_month": 0 },
            "messages": { "total_sent": 0, "total_received": 0, "delivery_rate": 0, "read_rate": 0 },
            "conversations": { "total": 0, "active": 0 },
            "campaigns": { "total": 0, "this_month": 0 },
            "automations": { "active": 0 },
        })
    );
    assert_eq!(report(&ana, "/campaigns"), json!({ "campaigns": [] }));
    assert_eq!(report(&ana, "/heatmap"), json!([]));
    let before = server.db.text("SELECT (now() AT TIME ZONE 'UTC')::date");
    for (period, days) in [("7d", 7), ("30d", 30), ("90d", 90)] {
        let shown = report(&ana, &format!("/messages?period={period}"));
        assert_eq!(shown["period"], period);
        let daily = shown["daily"].as_array().unwrap();
        assert_eq!(daily.len(), days);
        let zeros = json!({ "sent": 0, "delivered": 0, "read": 0, "failed": 0, "received": 0 });
        assert_eq!(shown["totals"], zeros);
        let after = server.db.text("SELECT (now() AT TIME ZONE 'UTC')::date");
        let last = text(&daily[days - 1]["date"]);
        assert!([&before, &after].contains(&&last), "{last}");
        assert_eq!(daily[0].as_object().unwrap().len(), 6);
    }
    assert_eq!(report(&ana, "/messages")["daily"].as_array().unwrap().len(), 7);
}

#[test]
fn sent_and_received_messages_show_in_every_report() {
    let server = Server::new();
    let (ana, campaign) = create_active_account(&server);
    let automation = json!({ "name": "Boas-vindas", "status": "active" });
    ana.post("/api/automations", automation).created();
    server.db.run(&format!(
        "INSERT INTO automations (account_id, id, name, status) VALUES ('{}', gen_random_uuid(), 'Volta', 'draft')",
        ana.account
    ));
    assert_eq!(
        report(&ana, ""),
        json!({
            "contacts": { "total": 4, "new_this_week": 4, "new_this_month": 4 },
            "messages": { "total_sent": 3, "total_received": 1, "delivery_rate": 100, "read_rate": 100 },
            "conversations": { "total": 1, "active": 1 },
            "campaigns": { "total": 1, "this_month": 1 },
            "automations": { "active": 1 },
        })
    );
    let shown = report(&ana, "/campaigns?period=90d&tz=Asia/Kathmandu");
    let [campaign_row] = &shown["campaigns"].as_array().unwrap()[..] else {
        panic!("{shown}")
    };
    assert_eq!(
        (&campaign_row["id"], &campaign_row["name"]),
        (&json!(campaign), &json!("Oferta"))
    );
    let stored = ana.get(&format!("/api/campaigns/{campaign}")).ok();
    assert_eq!(campaign_row["executed_at"], stored["executed_at"]);
    for (field, expected) in [
        ("total_recipients", 3),
        ("delivered", 3),
        ("read", 3),
        ("failed", 0),
        ("delivery_rate", 100),
        ("read_rate", 100),
    ] {
        assert_eq!(campaign_row[field], expected, "{field}");
    }
    let template = server.db.text("SELECT name FROM message_templates");
    assert_eq!(
        (
            campaign_row["template_name"].as_str(),
            campaign_row.as_object().unwrap().len()
        ),
        (Some(template.as_str()), 10)
    );
    for zone in ["UTC", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Sao_Paulo"] {
        let cell = server.db.text(&format!(
            "SELECT json_build_object('day', extract(dow FROM at), 'hour', extract(hour FROM at), 'count', 1)
             FROM (SELECT created_at AT TIME ZONE '{zone}' AS at FROM messages) m"
        ));
        let cell: Value = serde_json::from_str(&cell).unwrap();
        assert_eq!(
            report(&ana, &format!("/heatmap?period=30d&tz={zone}")),
            json!([cell]),
            "{zone}"
        );
        let shown = report(&ana, &format!("/messages?tz={zone}"));
        let sum: i64 = shown["daily"]
            .as_array()
            .unwrap()
            .iter()
            .map(|day| day["read"].as_i64().unwrap())
            .sum();
        assert_eq!(sum, 3, "{zone}");
    }
}

#[test]
fn reports_keep_deleted_items_and_omit_test_sends() {
    let server = Server::new();
    let (ana, campaign) = create_active_account(&server);
    let found = ana.get("/api/conversations").ok();
    let conversation = text(&found["data"][0]["id"]);
    let reply = ana.post(
        &format!("/api/conversations/{conversation}/messages"),
        json!({ "text": "olá" }),
    );
    reply.created();
    let test = ana.post(
        &format!("/api/campaigns/{campaign}/test"),
        json!({ "phone": "+5511961234567" }),
    );
    assert_eq!(test.status, 200, "{}", test.text);
    wait_for_totals(
        &ana,
        &json!({ "sent": 4, "delivered": 4, "read": 4, "failed": 0, "received": 1 }),
    );
    ana.delete(&format!("/api/campaigns/{campaign}")).no_content();
    let close = ana.put(
        &format!("/api/conversations/{conversation}"),
        json!({ "status": "closed" }),
    );
    close.ok();
    let shown = report(&ana, "");
    assert_eq!(shown["messages"]["total_sent"], 4);
    assert_eq!(shown["campaigns"], json!({ "total": 0, "this_month": 0 }));
    assert_eq!(shown["conversations"], json!({ "total": 1, "active": 0 }));
    assert_eq!(report(&ana, "/campaigns"), json!({ "campaigns": [] }));
    // The deletion of a contact also deletes its conversation.
    let contact = text(&found["data"][0]["contact_id"]);
    ana.delete(&format!("/api/contacts/{contact}")).no_content();
    let shown = report(&ana, "");
    assert_eq!(shown["conversations"], json!({ "total": 0, "active": 0 }));
    assert_eq!(shown["contacts"]["total"], 3);
    assert_eq!(shown["messages"]["total_received"], 1);
}

#[test]
fn simulated_messages_count_as_sent() {
    let server = Server::new();
    let ana = server.owner();
    ana.contacts(4);
    let campaign = ana.plain_campaign();
    assert_eq!(ana.execute(&campaign).ok()["status"], "sent");
    wait_for_totals(
        &ana,
        &json!({ "sent": 4, "delivered": 0, "read": 0, "failed": 0, "received": 0 }),
    );
    assert_eq!(report(&ana, "")["messages"]["total_sent"], 4);
}

#[test]
fn campaign_report_shows_the_twenty_latest() {
    let server = Server::new();
    let ana = server.owner();
    let account = &ana.account;
    server.db.run(&format!(
        "INSERT INTO campaigns (account_id, id, name, status, executed_at, total_recipients)
         SELECT '{account}', gen_random_uuid(), 'c' || n, 'sent', now() - n * interval '2 days', n
         FROM generate_series(0, 40) n"
    ));
    for (period, count) in [("30d", 15), ("90d", 20)] {
        let shown = report(&ana, &format!("/campaigns?period={period}"));
        let names: Vec<String> = shown["campaigns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|campaign| text(&campaign["name"]))
            .collect();
        let expected: Vec<String> = (0..count).map(|n| format!("c{n}")).collect();
        assert_eq!(names, expected);
        assert_eq!(shown["campaigns"][0]["template_name"], Value::Null);
        assert_eq!(shown["campaigns"][1]["delivery_rate"], 0);
    }
}

#[test]
fn invalid_period_or_time_zone_names_the_field() {
    let server = Server::new();
    let ana = server.owner();
    for route in ROUTES {
        for period in ["1d", "7", "30D", "90d ", "'", "365d"] {
            let reply = ana.get(&format!("/api/analytics/{route}?period={}", period.replace(' ', "%20")));
            assert_eq!(reply.invalid(), ["period"], "{route} {period}");
        }
        for zone in ["Nowhere", "../etc", "UTC%00", "%27"] {
            assert_eq!(
                ana.get(&format!("/api/analytics/{route}?tz={zone}")).invalid(),
                ["tz"],
                "{route} {zone}"
            );
        }
        let reply = ana.get(&format!("/api/analytics/{route}?period=1d&tz=x"));
        assert_eq!(reply.invalid(), ["period", "tz"]);
        report(&ana, &format!("/{route}?period=&tz="));
        report(&ana, &format!("/{route}?period=90d&tz=America/Sao_Paulo"));
    }
    assert_eq!(ana.get("/api/analytics/campaigns?period=7d").invalid(), ["period"]);
}

#[test]
fn another_accounts_messages_are_not_counted() {
    let server = Server::new();
    let (_ana, _) = create_active_account(&server);
    let bia = server.owner();
    let shown = report(&bia, "");
    assert_eq!(shown["messages"]["total_sent"], 0);
    assert_eq!(shown["contacts"]["total"], 0);
    assert_eq!(report(&bia, "/heatmap"), json!([]));
    assert_eq!(report(&bia, "/messages")["totals"]["received"], 0);
    let mut process = server.spawn(&["rollups", "verify"]);
    assert_eq!(process.wait(), Some(0), "{}", process.log());
    until("the reports are there", || {
        report(&bia, "/campaigns") == json!({ "campaigns": [] })
    });
}
