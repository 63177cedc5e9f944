//! Costs: rate cards, prices, the report, estimates and budgets.

use serde_json::{Value, json};

use crate::harness::client::Reply;
use crate::harness::process::command;
use crate::harness::runs::{status, statuses, wait_for_stat, without_statuses};
use crate::harness::users::User;
use crate::harness::{Server, eventually, text};

pub const NUMBER: &str = "106500000001";

const HEADER: &str = "market,currency,category,rate,effective_from,countries,zone,free_per_number_month\n";

/// The seconds of 2026-03-01 0:00 in São Paulo.
const MIDNIGHT: u64 = 1_772_334_000;

fn upload(server: &Server, name: &str, rows: &str) -> Reply {
    let request = server.root().request("POST", "/api/admin/rate-cards").query(name);
    request.body("text/csv", format!("{HEADER}{rows}")).send()
}

pub fn add_card(server: &Server, rows: &str) -> String {
    text(&upload(server, "name=Tarifas", rows).created()["id"])
}

/// A status update with a price, `seconds` after midnight.
pub fn priced(send: &Value, name: &str, seconds: i64, pricing: Value) -> Value {
    let mut item = status(&text(&send["wa_message_id"]), name, None);
    item["timestamp"] = json!(MIDNIGHT.checked_add_signed(seconds).unwrap().to_string());
    item["pricing"] = pricing;
    item
}

pub fn regular(category: &str) -> Value {
    json!({ "billable": true, "pricing_model": "PMP", "type": "regular", "category": category })
}

/// A marketing campaign to contacts in Brazil.
pub fn campaign_of(user: &User<'_>, contacts: usize) -> String {
    user.profile_at(NUMBER);
    user.contacts(contacts);
    user.plain_campaign()
}

/// Asserts that the state refuses the request for this reason.
#[track_caller]
pub fn refused_for(reply: Reply, reason: &str) -> Value {
    let error = reply.refused(400, "VALIDATION_ERROR");
    assert_eq!(error["details"]["reason"], reason, "{error}");
    error
}

pub fn costs(user: &User<'_>, query: &str) -> Value {
    let query = format!("from=2026-02-28&to=2026-03-02&tz=America/Sao_Paulo&{query}");
    user.request("GET", "/api/analytics/costs").query(&query).send().ok()
}

pub fn verify(server: &Server) -> bool {
    command(&["rollups", "verify"], &server.environment())
        .status()
        .unwrap()
        .success()
}

#[test]
fn rate_cards_are_uploaded_listed_and_deleted() {
    let server = Server::new();
    let root = server.root();
    let rows = "BR,USD,marketing,0.0625,2026-03-01,,America/Sao_Paulo,\n\
        Europe,EUR,service,0.01,2026-10-01,PT;ES,,1000\n";
    let first = upload(&server, "name=Q1", rows).created();
    assert_eq!((&first["name"], &first["rows"]), (&json!("Q1"), &json!(2)));
    assert_eq!(first["currencies"], json!(["EUR", "USD"]));
    assert_eq!(first["effective_from"], "2026-03-01");
    let second = upload(&server, "name=Q2", "BR,USD,utility,0.008,2026-01-01,,,\n").created();

    let page = root.get("/api/admin/rate-cards?limit=1").ok();
    assert_eq!((&page["data"][0], &page["hasMore"]), (&second, &json!(true)));
    let next = root
        .get(&format!(
            "/api/admin/rate-cards?limit=1&cursor={}",
            text(&page["nextCursor"])
        ))
        .ok();
    assert_eq!(next["data"], json!([first]));
    let path = format!("/api/admin/rate-cards/{}", text(&first["id"]));
    assert_eq!(root.get(&path).ok(), first);
    let csv = root.request("GET", &path).header("Accept", "text/csv").send();
    assert_eq!(csv.status, 200);
    assert!(csv.header("content-type").unwrap().starts_with("text/csv"));
    let lines: Vec<&str> = csv.text.lines().collect();
    assert_eq!(lines[0], HEADER.trim_end());
    assert_eq!(lines[2], "Europe,EUR,service,0.01,2026-10-01,\"ES;PT\",UTC,1000");

    root.delete(&path).no_content();
    root.get(&path).refused(404, "NOT_FOUND");
    root.delete(&path).refused(404, "NOT_FOUND");
    let logs = root.get("/api/admin/audit-logs?entity_type=rate_card").ok();
    let actions: Vec<String> = logs["logs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|log| text(&log["action"]))
        .collect();
    assert_eq!(actions, ["delete", "create", "create"]);
    server.owner().get("/api/admin/rate-cards").refused(401, "AUTH_ERROR");
}

#[test]
fn invalid_rate_card_names_every_bad_line() {
    let server = Server::new();
    let refused = upload(
        &server,
        "name=x",
        "BR,USD,m,1,2026-01-01,,,\nBR,usd,m,1,2026-01-01,,,\nBR,USD,m,-1,x,,,\n",
    );
    let error = refused.refused(422, "VALIDATION_ERROR");
    let errors = error["details"]["errors"].as_array().unwrap();
    let lines: Vec<&Value> = errors.iter().map(|error| &error["line"]).collect();
    assert_eq!(lines, [&json!(3), &json!(4)]);
    assert!(text(&errors[0]["message"]).starts_with("currency"), "{errors:?}");
    let no_header = server.root().request("POST", "/api/admin/rate-cards").query("name=x");
    let error = no_header
        .body("text/csv", "BR,USD\n")
        .send()
        .refused(422, "VALIDATION_ERROR");
    assert_eq!(error["details"]["errors"][0]["line"], 1);
    let long = format!("name={}", "x".repeat(101));
    for name in ["", "name=", long.as_str()] {
        assert_eq!(upload(&server, name, "BR,USD,m,1,2026-01-01,,,\n").invalid(), ["name"]);
    }
    let huge = "x".repeat(5 * 1024 * 1024 + 1);
    upload(&server, "name=x", &huge).refused(413, "PAYLOAD_TOO_LARGE");
    assert_eq!(server.root().get("/api/admin/rate-cards").ok()["data"], json!([]));
}

/// Asserts the groups of the campaign, and that each grouping has the same totals.
fn assert_groups(user: &User<'_>, campaign: &str, total: &Value) {
    for (group_by, keys) in [
        ("category", vec!["marketing", "utility"]),
        ("market", vec!["BR"]),
        ("campaign", vec![campaign]),
    ] {
        let report = costs(user, &format!("group_by={group_by}&campaign_id={campaign}"));
        let found: Vec<String> = report["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| text(&group["key"]))
            .collect();
        assert_eq!(found, keys, "{group_by}");
        assert_eq!(&report["totals"], total, "{group_by}");
    }
}

#[test]
fn rate_of_the_first_status_applies_and_counts_once() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = campaign_of(&ana, 4);
    let card = add_card(
        &server,
        "BR,USD,marketing,0.0625,2026-01-01,,America/Sao_Paulo,\nBR,USD,marketing,0.07,2026-03-01,,America/Sao_Paulo,\n",
    );
    ana.execute(&id).ok();
    let sends = ana.sends(&id);
    let free = json!({ "billable": false, "pricing_model": "PMP", "type": "free_customer_service",
        "category": "utility" });
    let updates = [
        priced(&sends[0], "sent", -60, regular("marketing")),
        priced(&sends[1], "sent", 0, regular("marketing")),
        priced(&sends[0], "delivered", 30, regular("marketing")),
        priced(&sends[1], "read", 40, regular("marketing")),
        priced(&sends[2], "delivered", 50, free),
        priced(&sends[3], "sent", 60, regular("marketing")),
    ];
    for _ in 0..3 {
        assert_eq!(server.callback(&statuses(NUMBER, &updates)).status, 200);
    }
    let price = |send: &Value| {
        let shown = ana
            .sends(&id)
            .into_iter()
            .find(|other| other["id"] == send["id"])
            .unwrap();
        (
            shown["pricing"]["amount"].clone(),
            shown["pricing"]["source"].clone(),
            shown["pricing"]["market"].clone(),
        )
    };
    assert_eq!(price(&sends[0]), (json!(0.0625), json!("rate_card"), json!("BR")));
    assert_eq!(price(&sends[1]), (json!(0.07), json!("rate_card"), json!("BR")));
    let report = costs(&ana, "");
    let total =
        json!([{ "currency": "USD", "amount": 0.1325, "messages": 3, "billable": 2, "free": 1, "unpriced": 0 }]);
    assert_eq!(report["totals"], total);
    assert_eq!(report["period"], "2026-02-28/2026-03-02");
    let days: Vec<(String, Value)> = report["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|day| (text(&day["key"]), day["amount"].clone()))
        .collect();
    let expected = [
        ("2026-02-28", json!(0.0625)),
        ("2026-03-01", json!(0.07)),
        ("2026-03-02", json!(0)),
    ];
    assert_eq!(days, expected.map(|(day, amount)| (day.to_owned(), amount)));
    assert_groups(&ana, &id, &total);
    let campaign = ana.get(&format!("/api/campaigns/{id}")).ok();
    assert_eq!(
        campaign["cost"],
        json!({ "amount": 0.1325, "currency": "USD", "reserved": null, "unpriced": 0 })
    );
    refused_for(server.root().delete(&format!("/api/admin/rate-cards/{card}")), "in_use");
    assert!(verify(&server));
    let other = server.owner();
    assert_eq!(costs(&other, "")["totals"], json!([]));
}

#[test]
fn without_a_card_messages_are_unpriced_until_repriced() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = campaign_of(&ana, 1);
    ana.execute(&id).ok();
    let send = ana.sends(&id).remove(0);
    let preview = ana.request("POST", &format!("/api/campaigns/{id}/preview")).send().ok();
    assert_eq!(preview["cost"], Value::Null);
    let update = priced(&send, "delivered", 0, regular("marketing"));
    server.callback(&statuses(NUMBER, &[update]));
    let unpriced =
        json!([{ "currency": null, "amount": null, "messages": 1, "billable": 1, "free": 0, "unpriced": 1 }]);
    assert_eq!(costs(&ana, "")["totals"], unpriced);
    add_card(&server, "BR,USD,marketing,0.0625,2026-01-01,,,\n");
    assert_eq!(costs(&ana, "")["totals"], unpriced, "a new card changes no price");
    assert!(
        command(&["rollups", "rebuild", "--reprice"], &server.environment())
            .status()
            .unwrap()
            .success()
    );
    let total = costs(&ana, "")["totals"][0].clone();
    assert_eq!((&total["amount"], &total["unpriced"]), (&json!(0.0625), &json!(0)));
    assert!(verify(&server));
}

#[test]
fn direct_message_and_reported_amounts_are_counted_by_currency() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let template = ana.approved("Oi {{1}}.", &["Ana"]);
    let ids: Vec<String> = ["USD", "BRL"]
        .iter()
        .enumerate()
        .map(|(position, currency)| {
            let body = json!({ "to": { "phone": format!("+551196123456{position}") },
                "template": { "id": template, "variables": { "1": "Bia" } } });
            let id = text(&ana.post("/api/messages", body).created()["id"]);
            let sent = eventually("the message is sent", || {
                let message = ana.get(&format!("/api/messages/{id}")).ok();
                Some(message).filter(|message| message["status"] == "sent")
            });
            let mut pricing = regular("utility");
            pricing["currency"] = json!(currency);
            pricing["price"] = json!(0.012_345);
            server.callback(&statuses(NUMBER, &[priced(&sent, "delivered", 0, pricing)]));
            id
        })
        .collect();
    assert_eq!(
        ana.get(&format!("/api/messages/{}", ids[0])).ok()["pricing"]["amount"],
        0.012_345
    );
    let report = costs(&ana, "group_by=template");
    let totals: Vec<(Value, Value)> = report["totals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|total| (total["currency"].clone(), total["amount"].clone()))
        .collect();
    assert_eq!(totals, [(json!("BRL"), json!(0.0123)), (json!("USD"), json!(0.0123))]);
    assert_eq!(report["groups"][0]["key"], json!(template));
    assert_eq!(report["groups"].as_array().unwrap().len(), 2);
    let numbers = costs(&ana, "group_by=number");
    assert_eq!(numbers["groups"].as_array().unwrap().len(), 2);
    assert!(verify(&server));
}

#[test]
fn invalid_period_of_costs_is_named() {
    let server = Server::new();
    let ana = server.owner();
    for (query, fields) in [
        ("from=2026-03-01", vec!["to"]),
        ("to=2026-03-01", vec!["from"]),
        ("from=2026-03-02&to=2026-03-01", vec!["to"]),
        ("from=2025-01-01&to=2026-01-02", vec!["to"]),
        ("from=x&to=2026-13-01", vec!["from", "to"]),
        ("group_by=phone&tz=Nowhere&period=1d", vec!["group_by", "period", "tz"]),
    ] {
        let refused = ana.request("GET", "/api/analytics/costs").query(query).send();
        assert_eq!(refused.invalid(), fields, "{query}");
    }
    let report = ana.get("/api/analytics/costs").ok();
    assert_eq!(
        (&report["period"], report["groups"].as_array().unwrap().len()),
        (&json!("30d"), 30)
    );
}

#[test]
fn preview_estimates_the_cost() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = campaign_of(&ana, 3);
    ana.contact("Joana", "+351912345678");
    add_card(
        &server,
        "BR,USD,marketing,0.0625,2026-01-01,,,\nBR,USD,utility,0.01,2026-01-01,,,\n",
    );
    let preview = ana.request("POST", &format!("/api/campaigns/{id}/preview")).send().ok();
    let rate = 0.0625;
    let cost = &preview["cost"];
    assert_eq!((&cost["currency"], &cost["unpriced"]), (&json!("USD"), &json!(1)));
    assert_eq!(
        cost["by_market"],
        json!([
        { "market": "BR", "recipients": 3, "rate": rate }, { "market": "PT", "recipients": 1, "rate": null }])
    );
    assert_eq!(cost["high"], json!(3.0 * rate));
}

/// Waits for the warning about the paused run.
fn assert_warned(user: &User<'_>) {
    let title = eventually("the notification is there", || {
        let page = user.get("/api/notifications?limit=100").ok();
        let found = page["data"]
            .as_array()
            .unwrap()
            .iter()
            .find(|item| item["type"] == "warning")
            .cloned();
        found.map(|item| text(&item["title"]))
    });
    assert!(title.starts_with("Campaign paused"), "{title}");
}

#[test]
fn budget_pauses_the_run_before_it_is_exceeded() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let id = campaign_of(&ana, 8);
    let path = format!("/api/campaigns/{id}");
    ana.put(&path, json!({ "budget": { "amount": 0.25, "currency": "USD" } }))
        .ok();
    let refused = refused_for(ana.execute(&id), "no_rate");
    assert_eq!(refused["details"]["markets"], json!(["BR"]));
    refused_for(ana.command(&id, "send").send(), "no_rate");
    add_card(
        &server,
        "BR,USD,marketing,0.0625,2026-01-01,,,\nBR,USD,utility,0.0625,2026-01-01,,,\n",
    );
    let report = ana.execute(&id).ok();
    assert_eq!((&report["paused"], &report["sent"]), (&json!(true), &json!(4)));
    let paused = ana.get(&path).ok();
    assert_eq!(
        (&paused["status"], &paused["pause_reason"]),
        (&json!("sending"), &json!("budget"))
    );
    assert_eq!(
        paused["cost"],
        json!({ "amount": 0, "currency": "USD", "reserved": 0.25, "unpriced": 0 })
    );
    assert_warned(&ana);

    ana.put(&path, json!({ "budget": { "amount": 0.1, "currency": "USD" } }))
        .ok();
    refused_for(ana.command(&id, "resume").send(), "budget");
    assert_eq!(
        ana.put(&path, json!({ "budget": { "amount": 1, "currency": "EUR" } }))
            .invalid(),
        ["budget.currency"]
    );
    ana.put(
        &path,
        json!({ "budget": { "amount": 1, "currency": "USD" }, "name": "x" }),
    )
    .refused(400, "VALIDATION_ERROR");
    let raised = ana
        .put(&path, json!({ "budget": { "amount": 0.375, "currency": "USD" } }))
        .ok();
    assert_eq!(raised["budget"], json!({ "amount": 0.375, "currency": "USD" }));
    ana.command(&id, "resume").send().ok();
    wait_for_stat(&ana, &id, "sent", 6);
    eventually("the run pauses again", || {
        (ana.get(&path).ok()["pause_reason"] == "budget").then_some(())
    });
    // Delivered messages cost what was reserved for them.
    let sends: Vec<Value> = ana
        .sends(&id)
        .into_iter()
        .filter(|send| send["status"] == "sent")
        .collect();
    let deliver = |sends: &[Value]| {
        let priced = |send| priced(send, "delivered", 0, regular("marketing"));
        let updates: Vec<Value> = sends.iter().map(priced).collect();
        server.callback(&statuses(NUMBER, &updates));
    };
    deliver(&sends[..2]);
    assert_eq!(
        ana.get(&path).ok()["cost"],
        json!({ "amount": 0.125, "currency": "USD", "reserved": 0.25, "unpriced": 0 })
    );
    assert_removed_budget_returns_its_reservations(&ana, &path, || deliver(&sends[2..]));
    ana.command(&id, "resume").send().ok();
    wait_for_stat(&ana, &id, "sent", 2);
    assert!(verify(&server));
}

/// Removes the budget of a campaign that has spent 0.125 and reserved 0.25 USD.
fn assert_removed_budget_returns_its_reservations(ana: &User, path: &str, deliver_rest: impl Fn()) {
    let euro = || ana.put(path, json!({ "budget": { "amount": 1, "currency": "EUR" } }));
    let removed = ana.put(path, json!({ "budget": null })).ok();
    assert_eq!(removed["budget"], Value::Null);
    assert_eq!(ana.get(path).ok()["cost"]["reserved"], 0.25);
    assert_eq!(euro().invalid(), ["budget.currency"]);
    deliver_rest();
    assert_eq!(
        ana.get(path).ok()["cost"],
        json!({ "amount": 0.375, "currency": "USD", "reserved": null, "unpriced": 0 })
    );
    let refused = refused_for(euro(), "no_rate");
    assert_eq!(refused["details"]["markets"], json!(["BR"]));
    add_card(ana.server, "BR,EUR,marketing,0.05,2026-01-01,,,\n");
    assert_eq!(euro().ok()["budget"]["currency"], "EUR");
    ana.put(path, json!({ "budget": null })).ok();
}

#[test]
fn invalid_budget_is_refused() {
    let server = Server::new();
    let ana = server.owner();
    for (budget, field) in [
        (json!({ "amount": 0.009, "currency": "USD" }), "budget.amount"),
        (json!({ "amount": 10_000_001, "currency": "USD" }), "budget.amount"),
        (json!({ "amount": 1, "currency": "usd" }), "budget.currency"),
        (json!({ "amount": 1 }), "budget"),
    ] {
        let refused = ana.post("/api/campaigns", json!({ "name": "x", "budget": budget }));
        assert_eq!(refused.invalid(), [field], "{budget}");
    }
    let created = ana.post(
        "/api/campaigns",
        json!({ "name": "x", "budget": { "amount": 5, "currency": "BRL" } }),
    );
    let created = created.created();
    assert_eq!(created["budget"], json!({ "amount": 5, "currency": "BRL" }));
    assert_eq!(created["cost"]["unpriced"], 0);
}
