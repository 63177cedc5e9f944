//! RFM segments: scores from orders, permissions, one calculation per account at a time, recovery of a calculation
//! whose server died.

use serde_json::{Value, json};

use crate::api_keys;
use crate::harness::database::Database;
use crate::harness::users::{User, phone};
use crate::harness::{Server, eventually, text, until};

/// Per contact: days since the last order, number of orders, total in cents.
const SAMPLE: [(i64, i64, i64); 10] = [
    (2, 12, 250_000),
    (5, 1, 9_900),
    (8, 6, 80_000),
    (20, 2, 15_000),
    (35, 3, 21_000),
    (60, 1, 5_000),
    (90, 9, 190_000),
    (150, 4, 40_000),
    (220, 1, 7_000),
    (400, 1, 3_000),
];

fn rfm(user: &User<'_>) -> Value {
    user.get("/api/analytics/rfm").ok()
}

fn recalculate(user: &User<'_>) -> Value {
    user.request("POST", "/api/analytics/rfm/recalculate").send().ok()
}

fn order(contact: usize, number: i64, cents: i64, time: &str, status: &str) -> Value {
    json!({ "external_id": format!("{contact}-{number}"), "platform": "loja", "contact_phone": phone(contact),
            "status": status, "items": [], "placed_at": time, "paid_at": time,
            "total": format!("{}.{:02}", cents / 100, cents % 100).parse::<f64>().unwrap() })
}

fn record(user: &User<'_>, orders: Vec<Value>) {
    user.post("/api/orders", json!({ "orders": orders })).ok();
}

/// Creates the contacts of `SAMPLE` with their paid orders, and one refunded order each.
fn create_sample(user: &User<'_>) {
    user.contacts(SAMPLE.len());
    let mut orders = Vec::new();
    for (contact, (days, count, cents)) in SAMPLE.into_iter().enumerate() {
        for number in 0..count {
            let time = user.server.db.text(&format!(
                "SELECT to_char((now() - interval '{days} days {number} minutes') AT TIME ZONE 'UTC',
                   'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
            ));
            let cents = if number == 0 { cents } else { 0 };
            orders.push(order(contact, number, cents, &time, "paid"));
        }
        let time = user
            .server
            .db
            .text("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')");
        orders.push(order(contact, 99, 1_000_000, &time, "refunded"));
    }
    record(user, orders);
}

/// Waits until the scores exist, and returns the report.
fn wait_for_scores(user: &User<'_>) -> Value {
    eventually("the customers are scored", || {
        Some(rfm(user)).filter(|shown| !shown["lastCalculatedAt"].is_null())
    })
}

#[test]
fn rfm_scores_the_sample() {
    let server = Server::new();
    let ana = server.owner();
    create_sample(&ana);
    let before = json!({ "enabled": true, "orderCount": 40, "distribution": [], "lastCalculatedAt": null });
    assert_eq!(rfm(&ana), before);
    let response = recalculate(&ana);
    assert!(
        response["message"].is_string() && response.as_object().unwrap().len() == 1,
        "{response}"
    );
    let shown = wait_for_scores(&ana);
    let sizes: Vec<String> = shown["distribution"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            assert_eq!(entry["last_calculated_at"], shown["lastCalculatedAt"]);
            assert_eq!(entry.as_object().unwrap().len(), 3);
            format!("{} {}", text(&entry["segment"]), entry["count"])
        })
        .collect();
    assert_eq!(
        sizes,
        [
            "champions 1",
            "loyal 1",
            "potential_loyalists 1",
            "new_customers 1",
            "need_attention 1",
            "about_to_sleep 1",
            "at_risk 1",
            "cant_lose_them 1",
            "lost 2"
        ]
    );
    let champion = server.db.text(
        "SELECT concat_ws(' ', c.phone, recency_score, frequency_score, monetary_score) FROM contact_rfm r
         JOIN contacts c ON c.id = r.contact_id WHERE segment = 'champions'",
    );
    assert_eq!(champion, format!("{} 5 5 5", phone(0)));
    // RFM segments select the audience of a campaign.
    let campaign = ana.campaign(
        json!({ "name": "VIP", "template_id": ana.approved("Oi {{1}}", &["Ana"]),
                                        "rfm_segments": ["champions", "lost"] }),
    );
    let preview = ana
        .request("POST", &format!("/api/campaigns/{campaign}/preview"))
        .send()
        .ok();
    assert_eq!(preview["recipients"], 3, "{preview}");
    // Another account has no scores.
    let bia = server.owner();
    let empty = json!({ "enabled": false, "orderCount": 0, "distribution": [], "lastCalculatedAt": null });
    assert_eq!(rfm(&bia), empty);
}

#[test]
fn rfm_requires_twenty_paid_orders() {
    let server = Server::new();
    let ana = server.owner();
    ana.contacts(2);
    let time = "2026-01-05T12:00:00Z";
    record(&ana, (0..19).map(|n| order(0, n, 100, time, "paid")).collect());
    recalculate(&ana);
    let few = json!({ "enabled": false, "orderCount": 19, "distribution": [], "lastCalculatedAt": null });
    until("the calculation is over", || {
        server
            .db
            .count("FROM rfm_calculations WHERE due_at > now() AND worker IS NULL")
            == 1
    });
    assert_eq!(rfm(&ana), few);
    assert_eq!(server.db.count("FROM contact_rfm"), 0);
    record(&ana, vec![order(1, 0, 100, time, "paid")]);
    let before = rfm(&ana);
    assert_eq!((&before["enabled"], &before["orderCount"]), (&json!(true), &json!(20)));
    assert_eq!(
        before["lastCalculatedAt"],
        Value::Null,
        "the calculation made no scores"
    );
    recalculate(&ana);
    let shown = wait_for_scores(&ana);
    let sum: i64 = shown["distribution"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["count"].as_i64().unwrap())
        .sum();
    assert_eq!(sum, 2, "{shown}");
}

#[test]
fn rfm_recalculation_without_permission_returns_200_error() {
    let server = Server::new();
    let ana = server.owner();
    for role in ["member", "viewer"] {
        let user = server.member(&ana.account, role);
        let response = recalculate(&user);
        assert!(
            response["error"].is_string() && response.as_object().unwrap().len() == 1,
            "{response}"
        );
        rfm(&user);
    }
    let key = api_keys::create_key(&ana);
    let reply = server.post("/api/analytics/rfm/recalculate").bearer(&key).send().ok();
    assert!(reply["error"].is_string(), "{reply}");
    assert_eq!(server.db.count("FROM rfm_calculations WHERE due_at <= now()"), 0);
    let admin = server.member(&ana.account, "admin");
    assert!(recalculate(&admin)["message"].is_string());
    assert_eq!(server.db.count("FROM rfm_calculations"), 1);
}

#[test]
fn rfm_calculation_survives_the_death_of_its_server() {
    let server = Server::new();
    let ana = server.owner();
    create_sample(&ana);
    recalculate(&ana);
    let first = wait_for_scores(&ana);
    // This lock blocks every calculation: it stages what it will write.
    let holder = Database::at(&server.db.url());
    holder.run("BEGIN; LOCK TABLE rfm_changes IN EXCLUSIVE MODE");
    let started = recalculate(&ana);
    until("the calculation waits for the lock", || {
        server
            .db
            .count("FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
            > 0
    });
    let row = "SELECT concat_ws(' ', due_at, worker) FROM rfm_calculations";
    let before = server.db.text(row);
    assert_eq!(recalculate(&ana), started);
    assert_eq!(server.db.text(row), before, "a second calculation was started");
    server.kill();
    server.run(&["serve"]);
    // The previous scores stay until the new ones are complete.
    assert_eq!(rfm(&ana), first);
    holder.run("COMMIT");
    server.db.run("UPDATE rfm_calculations SET leased_until = now()");
    let shown = eventually("another server takes over the calculation", || {
        Some(rfm(&ana)).filter(|shown| shown["lastCalculatedAt"] != first["lastCalculatedAt"])
    });
    assert_eq!(shown["distribution"].as_array().unwrap().len(), 9);
    assert_eq!(server.db.count("FROM contact_rfm"), 10);
    assert_eq!(server.db.count("FROM rfm_changes"), 0);
    until("the next calculation is due", || {
        server
            .db
            .count("FROM rfm_calculations WHERE due_at > now() AND worker IS NULL")
            == 1
    });
}

#[test]
fn rfm_scores_every_account_at_night() {
    let server = Server::prepare(&crate::harness::Options::default());
    server.run(&["serve", "--no-workers"]);
    let ana = server.owner();
    create_sample(&ana);
    server.run(&["worker"]);
    until("a calculation is scheduled", || {
        server.db.count("FROM rfm_calculations WHERE due_at > now()") == 1
    });
    let hour = server
        .db
        .text("SELECT extract(hour FROM due_at AT TIME ZONE 'UTC') FROM rfm_calculations");
    assert!(["3", "4", "5", "6"].contains(&hour.as_str()), "{hour}");
    server.db.run("UPDATE rfm_calculations SET due_at = now()");
    assert_eq!(wait_for_scores(&ana)["distribution"].as_array().unwrap().len(), 9);
}
