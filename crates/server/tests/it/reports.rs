//! Analytics reports in their published form, and the `rollups` command.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::process::command;
use crate::harness::users::User;
use crate::harness::{Server, text, until};
use crate::ingestion::{ago, order};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn ingest(user: &User<'_>, path: &str, list: &str, items: Vec<Value>) {
    user.post(path, json!({ list: items })).ok();
}

fn event(name: &str, phone: &str, value: Value) -> Value {
    json!({ "metric_name": name, "contact_phone": phone, "source": "site", "value": value, "currency": "BRL" })
}

#[test]
fn revenue_report_matches_its_published_form() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let campaign = ana.campaign(json!({ "name": "Black Friday" }));
    let link = json!({ "original_url": "https://loja.example/", "campaign_id": campaign });
    let link = ana.post("/api/links", link).created();
    let code = text(&link["short_code"]);
    for _ in 0..3 {
        assert_eq!(server.request("GET", &format!("/r/{code}")).response_head().0, 302);
    }
    let mut by_link = order("1", 10.01);
    by_link["link_code"] = json!(code);
    by_link["gateway_fee"] = json!(0.25);
    let mut pending = order("3", 99.0);
    pending["status"] = json!("pending");
    ingest(&ana, "/api/orders", "orders", vec![by_link, order("2", 4.99), pending]);
    let today = ago(0)[..10].to_owned();
    ingest(
        &ana,
        "/api/ad-spend",
        "entries",
        vec![json!({ "date": today, "source": "meta", "amount": "3.00" })],
    );

    until("the clicks are written", || {
        ana.get("/api/links").ok()["data"][0]["clicks"] == 3
    });
    let report = ana.get("/api/analytics/revenue").ok();
    assert_eq!(
        report["overview"],
        json!({ "totalRevenue": 15, "attributedRevenue": 10.01, "productCosts": 5, "gatewayFees": 0.25, "adSpend": 3,
            "profit": 6.75, "roas": 3.34, "totalOrders": 2, "attributedOrders": 1, "avgOrderValue": 7.5 })
    );
    assert_eq!(report["daily"].as_array().unwrap().len(), 30);
    let last = json!({ "date": today, "totalRevenue": 15, "attributedRevenue": 10.01, "orderCount": 2 });
    assert_eq!(report["daily"][29], last);
    let by_campaign =
        json!([{ "campaignId": campaign, "campaignName": "Black Friday", "revenue": 10.01, "orderCount": 1 }]);
    assert_eq!(report["byCampaign"], by_campaign);
    assert_eq!(report["byAutomation"], json!([]));
    let links = json!([{ "linkId": link["id"], "shortCode": code, "originalUrl": "https://loja.example/", "clicks": 3,
        "orders": 1, "revenue": 10.01, "conversionRate": 33.33 }]);
    assert_eq!(report["byLink"], links);
    assert_eq!(keys(&report).len(), 5);
    let other_account = bia.get("/api/analytics/revenue?period=7d&tz=Asia/Kathmandu").ok();
    assert_eq!(other_account["overview"]["totalRevenue"], 0);
    assert_eq!(
        (
            other_account["daily"].as_array().unwrap().len(),
            &other_account["byLink"]
        ),
        (7, &json!([]))
    );
}

#[test]
fn ecommerce_report_matches_its_published_form() {
    let server = Server::new();
    let ana = server.owner();
    let mut refunded = order("2", 7.0);
    refunded["status"] = json!("refunded");
    ingest(&ana, "/api/orders", "orders", vec![order("1", 10.5), refunded]);
    let cart = |number: u8, status: &str| json!({ "external_id": number.to_string(), "platform": "loja", "status": status, "total": 3, "created_at": ago(0) });
    ingest(
        &ana,
        "/api/carts",
        "carts",
        vec![cart(1, "recovered"), cart(2, "abandoned"), cart(3, "open")],
    );
    let report = ana.get("/api/analytics/ecommerce?period=7d&tz=UTC").ok();
    assert_eq!(
        report["overview"],
        json!({ "total_orders": 2, "total_revenue": 10.5, "avg_ticket": 10.5, "pending_orders": 0,
            "cancelled_orders": 0, "refunded_orders": 1, "total_carts": 3, "recovered_carts": 1, "recovery_rate": 33.33 })
    );
    assert_eq!(
        report["byPlatform"],
        json!([{ "platform": "loja", "orders": 1, "revenue": 10.5 }])
    );
    let products = json!([{ "product_id": "bolo", "name": "Bolo", "quantity": 2, "revenue": 10.5 }]);
    assert_eq!(report["topProducts"], products);
    assert_eq!(report["daily"][6]["revenue"], 10.5);
    assert_eq!(keys(&report["daily"][6]), ["date", "orders", "revenue"]);
}

#[test]
fn metric_report_matches_its_published_form() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let contact = ana.contact("Bia", "+5511961234567");
    let name = "Visita à loja/ação 100%";
    let mut named = event(name, "11961234567", json!(2.5));
    named["display_name"] = json!("Visitas");
    named["category"] = json!("loja");
    named["properties"] = json!({ "page": "/" });
    let mut app_event = event("outro", "11960000000", Value::Null);
    app_event["source"] = json!("app");
    ingest(
        &ana,
        "/api/events",
        "events",
        vec![named, event(name, "11960000000", json!(1)), app_event],
    );
    let report = ana.get("/api/analytics/metrics").ok();
    assert_eq!(report["available_sources"], json!(["app", "site"]));
    let first = &report["metrics"][0];
    assert_eq!(first["metric_name"], name);
    assert_eq!(
        (&first["display_name"], &first["category"]),
        (&json!("Visitas"), &json!("loja"))
    );
    assert_eq!(
        (&first["total_events"], &first["total_value"]),
        (&json!(2), &json!(3.5))
    );
    assert_eq!(first["sources"], json!(["site"]));
    let app_report = ana.get("/api/analytics/metrics?source=app").ok();
    assert_eq!(
        (
            app_report["metrics"].as_array().unwrap().len(),
            &app_report["metrics"][0]["metric_name"]
        ),
        (1, &json!("outro"))
    );
    assert_eq!(app_report["available_sources"], report["available_sources"]);
    assert_metric_report(&ana, &bia, &contact, name);
}

fn assert_metric_report(ana: &User<'_>, bia: &User<'_>, contact: &str, name: &str) {
    let path = "/api/analytics/metrics/Visita%20%C3%A0%20loja%2Fa%C3%A7%C3%A3o%20100%25";
    let metric = ana.get(path).ok();
    let summary = json!({ "total_events": 2, "total_value": 3.5, "avg_value": 1.75, "unique_contacts": 1 });
    assert_eq!(
        (&metric["summary"], &metric["period"], &metric["metric_name"]),
        (&summary, &json!("30d"), &json!(name))
    );
    assert_eq!(metric["daily"][29]["count"], 2);
    assert_eq!(metric["daily"][0]["value"], 0);
    let top = ana.get(&format!("{path}/top-contacts?limit=0")).ok();
    assert_eq!(top["contacts"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&top["contacts"][0]["contact_id"], &top["contacts"][0]["total_value"]),
        (&json!(contact), &json!(2.5))
    );
    let activity = ana.get(&format!("{path}/activity")).ok();
    assert_eq!(
        (activity["items"].as_array().unwrap().len(), &activity["nextCursor"]),
        (2, &Value::Null)
    );
    let names: Vec<&Value> = activity["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["contact_name"])
        .collect();
    assert!(
        names.contains(&&json!("Bia")) && names.contains(&&Value::Null),
        "{names:?}"
    );
    for path in [
        path.to_owned(),
        format!("{path}/top-contacts"),
        format!("{path}/activity"),
    ] {
        bia.get(&path).refused(404, "NOT_FOUND");
    }
    // The report hides deleted contacts.
    ana.delete(&format!("/api/contacts/{contact}")).no_content();
    assert_eq!(ana.get(&format!("{path}/top-contacts")).ok()["contacts"], json!([]));
}

#[test]
fn activity_feed_continues_at_its_cursor() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let events: Vec<Value> = (0..5).map(|at| event("visit", "11961234567", json!(at))).collect();
    ingest(&ana, "/api/events", "events", events);
    ingest(
        &bia,
        "/api/events",
        "events",
        vec![event("visit", "11961234567", json!(7))],
    );
    let path = "/api/analytics/metrics/visit/activity";
    let (mut seen, mut query) = (vec![], "limit=2".to_owned());
    loop {
        let page = ana.get(&format!("{path}?{query}")).ok();
        let items = page["items"].as_array().unwrap().clone();
        seen.extend(items.iter().map(|item| item["value"].as_i64().unwrap()));
        if page["nextCursor"].is_null() {
            break;
        }
        assert_eq!(page["nextCursor"], items[items.len() - 1]["id"]);
        query = format!("limit=2&cursor={}", text(&page["nextCursor"]));
    }
    assert_eq!(seen, [4, 3, 2, 1, 0]);
    let foreign = text(&bia.get(path).ok()["items"][0]["id"]);
    for cursor in [foreign, Uuid::now_v7().to_string(), "7".into(), "%00".into()] {
        assert_eq!(ana.get(&format!("{path}?cursor={cursor}")).invalid(), ["cursor"]);
    }
    for (query, count) in [
        ("limit=-1", 1),
        ("limit=1000000000000000000000", 5),
        ("limit=&cursor=", 5),
    ] {
        let page = ana.get(&format!("{path}?{query}")).ok();
        assert_eq!(page["items"].as_array().unwrap().len(), count, "{query}");
    }
    assert_eq!(ana.get(&format!("{path}?limit=abc")).invalid(), ["limit"]);
}

#[test]
fn invalid_period_time_zone_or_name_is_refused() {
    let server = Server::new();
    let ana = server.owner();
    ingest(
        &ana,
        "/api/events",
        "events",
        vec![event("visit", "11961234567", json!(1))],
    );
    for path in ["revenue", "ecommerce", "automations", "metrics/visit"] {
        let get = |query: &str| ana.get(&format!("/api/analytics/{path}?{query}"));
        for period in ["0d", "366d", "30", "-7d", "7D", "%27%3B--"] {
            assert_eq!(
                get(&format!("period={period}")).invalid(),
                ["period"],
                "{path} {period}"
            );
        }
        for zone in ["Brasil", "../UTC", "-03:00", "%00"] {
            assert_eq!(get(&format!("tz={zone}")).invalid(), ["tz"], "{path} {zone}");
        }
        for query in [
            "",
            "period=&tz=",
            "period=90d&tz=Australia/Lord_Howe",
            "tz=America/Sao_Paulo",
        ] {
            get(query).ok();
        }
    }
    for name in ["%00", "a%00b"] {
        assert_eq!(ana.get(&format!("/api/analytics/metrics/{name}")).invalid(), ["name"]);
    }
    for name in [
        "%27%3B%20DROP%20TABLE%20metrics%3B--",
        "%FF",
        "nothing",
        "visit%2F",
        "a%2Fb%2Fc",
    ] {
        ana.get(&format!("/api/analytics/metrics/{name}"))
            .refused(404, "NOT_FOUND");
    }
}

#[test]
fn rollups_command_finds_and_rebuilds_wrong_sums() {
    let server = Server::new();
    let ana = server.owner();
    ingest(&ana, "/api/orders", "orders", vec![order("1", 10.0)]);
    let run = |arguments: &[&str]| {
        let output = command(arguments, &server.environment()).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), stdout)
    };
    assert_eq!(run(&["rollups", "verify"]).0, Some(0));
    server.db.run("UPDATE order_rollups SET revenue = 12345");
    let (code, stdout) = run(&["rollups", "verify", "--account", &ana.account]);
    assert_eq!(code, Some(1), "{stdout}");
    assert!(
        stdout.contains("order_rollups") && stdout.contains(&ana.account) && stdout.contains("12345"),
        "{stdout}"
    );
    assert_eq!(run(&["rollups", "rebuild"]).0, Some(0));
    let (code, stdout) = run(&["rollups", "verify"]);
    assert_eq!(code, Some(0), "{stdout}");
    assert_eq!(ana.get("/api/analytics/revenue").ok()["overview"]["totalRevenue"], 10);
    assert_eq!(run(&["rollups", "verify", "--account", "7"]).0, Some(2));
    assert_eq!(run(&["rollups"]).0, Some(2));
}
