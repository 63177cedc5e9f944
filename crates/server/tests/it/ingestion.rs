//! Ingestion of orders, carts, ad spend and metric events: permissions, validation, duplicates and attribution.

use recado_domain::shared::timestamp;
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::api_keys;
use crate::harness::users::User;
use crate::harness::{Server, text};

/// The time `minutes` minutes ago, as RFC 3339.
pub fn ago(minutes: i64) -> String {
    timestamp::format(OffsetDateTime::now_utc() - Duration::minutes(minutes))
}

/// A paid order placed now, with one product.
pub fn order(external_id: &str, total: f64) -> Value {
    json!({ "external_id": external_id, "platform": "loja", "status": "paid", "total": total, "placed_at": ago(0),
        "items": [{ "product_id": "bolo", "name": "Bolo", "quantity": 2, "price": total / 2.0, "cost": 1.25 }] })
}

fn with(mut item: Value, field: &str, value: Value) -> Value {
    item[field] = value;
    item
}

/// Posts items and returns the counts of accepted and duplicate items.
fn ingest(user: &User<'_>, path: &str, list: &str, items: &[Value]) -> (i64, i64) {
    let response = user.post(path, json!({ list: items })).ok();
    let count = |name: &str| response[name].as_i64().unwrap();
    assert_eq!(response.as_object().unwrap().len(), 2, "{response}");
    (count("accepted"), count("duplicates"))
}

fn event(name: &str) -> Value {
    json!({ "metric_name": name, "contact_phone": "11961234567", "source": "site" })
}

#[test]
fn repeated_item_is_a_duplicate_and_changed_one_accepted() {
    let server = Server::new();
    let ana = server.owner();
    let orders = |items: &[Value]| ingest(&ana, "/api/orders", "orders", items);
    let first = order("1", 10.01);
    assert_eq!(orders(&[first.clone(), order("2", 5.0)]), (2, 0));
    assert_eq!(orders(&[first.clone(), order("3", 5.0)]), (1, 1));
    assert_eq!(orders(&[with(first.clone(), "status", json!("refunded"))]), (1, 0));
    // The same `external_id` on another platform is another order.
    assert_eq!(orders(&[with(first.clone(), "platform", json!("outra"))]), (1, 0));
    // The last of several versions of an order in one request wins.
    assert_eq!(orders(&[first.clone(), with(first, "total", json!("7.77"))]), (1, 1));
    let stored = "SELECT total || ' ' || status FROM orders WHERE external_id = '1' AND platform = 'loja'";
    assert_eq!(server.db.text(stored), "7.77 paid");

    let cart = json!({ "external_id": "1", "platform": "loja", "status": "open", "total": 3, "created_at": ago(5) });
    let carts = |items: &[Value]| ingest(&ana, "/api/carts", "carts", items);
    assert_eq!(carts(std::slice::from_ref(&cart)), (1, 0));
    assert_eq!(carts(std::slice::from_ref(&cart)), (0, 1));
    assert_eq!(carts(&[with(cart, "status", json!("recovered"))]), (1, 0));

    let spend = json!({ "date": "2026-11-01", "source": "meta", "amount": 10.5 });
    let entries = |items: &[Value]| ingest(&ana, "/api/ad-spend", "entries", items);
    assert_eq!(entries(std::slice::from_ref(&spend)), (1, 0));
    assert_eq!(entries(&[spend.clone(), with(spend, "amount", json!(11))]), (1, 1));

    let with_id = with(event("visit"), "id", json!(Uuid::now_v7()));
    let events = |items: &[Value]| ingest(&ana, "/api/events", "events", items);
    assert_eq!(events(&[with_id.clone(), with_id.clone(), event("visit")]), (2, 1));
    // An event with a stored id is a duplicate, also with another value.
    assert_eq!(events(&[with(with_id, "value", json!(5))]), (0, 1));
    assert_eq!(server.db.count("FROM metric_events"), 2);
}

#[test]
fn invalid_item_refuses_the_batch_and_names_its_index() {
    let server = Server::new();
    let ana = server.owner();
    let good = order("1", 10.0);
    let wrong = [
        ("total", json!(-1), "total"),
        ("total", json!(1e300), "total"),
        ("total", json!(0.00001), "total"),
        ("total", Value::Null, "total"),
        ("status", json!("shipped"), "status"),
        ("external_id", json!(" "), "external_id"),
        ("platform", Value::Null, "platform"),
        ("contact_phone", json!("12"), "contact_phone"),
        ("placed_at", json!("yesterday"), "placed_at"),
        ("placed_at", Value::Null, "placed_at"),
        ("campaign_id", json!("7"), "campaign_id"),
        ("campaign_id", json!(Uuid::now_v7()), "campaign_id"),
        ("automation_id", json!(Uuid::now_v7()), "automation_id"),
        ("link_code", json!("nowhere"), "link_code"),
        ("items", Value::Null, "items"),
        (
            "items",
            json!([{ "product_id": "1", "name": "x", "quantity": 0, "price": 1 }]),
            "items[0].quantity",
        ),
    ];
    for (field, value, named) in wrong {
        let bad = with(good.clone(), field, value.clone());
        let reply = ana.post("/api/orders", json!({ "orders": [good, order("2", 1.0), bad] }));
        assert_eq!(reply.invalid(), [format!("orders[2].{named}")], "{field}: {value}");
    }
    let wrong = [
        ("metric_name", json!("")),
        ("source", Value::Null),
        ("contact_id", json!(Uuid::now_v7())),
        ("contact_phone", json!("x")),
        ("currency", json!("reais")),
        ("value", json!(true)),
        ("occurred_at", json!(ago(-60))),
        ("properties", json!([1])),
        ("properties", json!({ "page": "x".repeat(64 * 1024) })),
        ("id", json!("1")),
    ];
    for (field, value) in wrong {
        let bad = with(event("visit"), field, value.clone());
        let reply = ana.post("/api/events", json!({ "events": [event("visit"), bad] }));
        assert_eq!(reply.invalid(), [format!("events[1].{field}")], "{field}: {value}");
    }
    let no_contact = json!({ "events": [{ "metric_name": "visit", "source": "site" }] });
    assert_eq!(ana.post("/api/events", no_contact).invalid(), ["events[0].contact_id"]);
    let dates = json!({ "entries": [{ "date": "2026-02-30", "source": "x", "amount": 1 }] });
    assert_eq!(ana.post("/api/ad-spend", dates).invalid(), ["entries[0].date"]);
    for (path, list) in [
        ("orders", "orders"),
        ("carts", "carts"),
        ("ad-spend", "entries"),
        ("events", "events"),
    ] {
        let path = format!("/api/{path}");
        assert_eq!(ana.post(&path, json!({ list: [] })).invalid(), [list]);
        assert_eq!(
            ana.post(&path, json!({ list: vec![json!({}); 1001] })).invalid(),
            [list]
        );
        assert_eq!(ana.post(&path, json!({})).invalid(), [list]);
    }
    assert_eq!(server.db.count("FROM orders"), 0);
    assert_eq!(server.db.count("FROM metric_events"), 0);
}

#[test]
fn order_of_unknown_phone_is_stored_without_a_contact() {
    let server = Server::new();
    let ana = server.owner();
    let unknown = with(order("1", 10.0), "contact_phone", json!("(11) 96123-4567"));
    ingest(&ana, "/api/orders", "orders", std::slice::from_ref(&unknown));
    ingest(&ana, "/api/events", "events", &[event("visit")]);
    assert_eq!(server.db.count("FROM contacts"), 0);
    assert_eq!(server.db.count("FROM orders WHERE contact_id IS NULL"), 1);
    // The next request links the contact, with or without the ninth digit. A request without a phone keeps the link.
    let bia = ana.contact("Bia", "+5511961234567");
    let later = with(
        with(unknown.clone(), "contact_phone", json!("1161234567")),
        "total",
        json!(11),
    );
    assert_eq!(ingest(&ana, "/api/orders", "orders", &[later]), (1, 0));
    assert_eq!(ingest(&ana, "/api/orders", "orders", &[order("1", 12.0)]), (1, 0));
    assert_eq!(server.db.text("SELECT contact_id FROM orders"), bia);
}

#[test]
fn order_is_attributed_to_its_reference_or_last_message() {
    let server = Server::new();
    let ana = server.owner();
    let contact = ana.contact("Bia", "+5511961234567");
    let campaigns = ["A", "B", "C"].map(|name| ana.campaign(json!({ "name": name })));
    for (campaign, days, status) in [(0, 8, "read"), (1, 3, "delivered"), (2, 1, "failed")] {
        server.db.run(&format!(
            "INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id, status, sent_at) VALUES ('{}', '{}',
               '{}', '{contact}', '{status}', now() - interval '{days} days')",
            ana.account,
            Uuid::now_v7(),
            campaigns[campaign]
        ));
    }
    let link = json!({ "original_url": "https://loja.example/", "campaign_id": campaigns[2] });
    let link = ana.post("/api/links", link).created();
    let order_of_bia = |number: &str| with(order(number, 10.0), "contact_phone", json!("11961234567"));
    let earlier_order = with(order_of_bia("4"), "placed_at", json!(ago(5 * 1440)));
    let items = [
        order_of_bia("1"),
        with(order_of_bia("2"), "campaign_id", json!(campaigns[0])),
        with(order_of_bia("3"), "link_code", link["short_code"].clone()),
        earlier_order,
        with(order_of_bia("5"), "placed_at", json!(ago(9 * 1440))),
        order("6", 10.0),
    ];
    ingest(&ana, "/api/orders", "orders", &items);
    let attributed_campaign = |number: usize| {
        let campaign = format!("SELECT campaign_id FROM orders WHERE external_id = '{number}'");
        server.db.text(&campaign)
    };
    let [a, b, c] = campaigns;
    let expected = [b, a.clone(), c, a, String::new(), String::new()];
    assert_eq!([1, 2, 3, 4, 5, 6].map(attributed_campaign), expected);
    let link_orders = format!(
        "FROM orders WHERE external_id = '3' AND link_id = '{}'",
        text(&link["id"])
    );
    assert_eq!(server.db.count(&link_orders), 1);
    // The attribution to a message is decided once: an order without a reference keeps its attribution.
    let again = with(order_of_bia("1"), "total", json!(11));
    assert_eq!(
        ingest(&ana, "/api/orders", "orders", std::slice::from_ref(&again)),
        (1, 0)
    );
    assert_eq!(attributed_campaign(1), expected[0]);
    // A new reference alone is a change and moves the revenue.
    let named = with(again.clone(), "campaign_id", json!(expected[1]));
    assert_eq!(
        ingest(&ana, "/api/orders", "orders", std::slice::from_ref(&named)),
        (1, 0)
    );
    assert_eq!(attributed_campaign(1), expected[1]);
    for item in [named, again] {
        assert_eq!(
            ingest(&ana, "/api/orders", "orders", std::slice::from_ref(&item)),
            (0, 1)
        );
    }
    assert_eq!(attributed_campaign(1), expected[1]);
}

#[test]
fn another_accounts_ids_are_unknown_references() {
    let server = Server::new();
    let (ana, bia) = (server.owner(), server.owner());
    let id = json!(Uuid::now_v7());
    for user in [&ana, &bia] {
        assert_eq!(ingest(user, "/api/orders", "orders", &[order("1", 10.0)]), (1, 0));
        let event = with(event("visit"), "id", id.clone());
        assert_eq!(ingest(user, "/api/events", "events", &[event]), (1, 0));
    }
    let link = bia
        .post("/api/links", json!({ "original_url": "https://loja.example/" }))
        .created();
    let campaign = bia.campaign(json!({ "name": "Dela" }));
    let contact = bia.contact("Caio", "+5511961234567");
    let refused = |field: &str, foreign: &str, unknown: &str| {
        let call = |value: &str| {
            let item = with(order("2", 1.0), field, json!(value));
            ana.post("/api/orders", json!({ "orders": [item] }))
        };
        let (foreign, unknown) = (call(foreign), call(unknown));
        assert_eq!(foreign.text, unknown.text);
        assert_eq!(foreign.invalid(), [format!("orders[0].{field}")]);
    };
    refused("link_code", &text(&link["short_code"]), "nowhere");
    refused("campaign_id", &campaign, &Uuid::now_v7().to_string());
    let foreign_contact = ana.post(
        "/api/events",
        json!({ "events": [with(event("visit"), "contact_id", json!(contact))] }),
    );
    assert_eq!(foreign_contact.invalid(), ["events[0].contact_id"]);
    let link = json!({ "original_url": "https://loja.example/", "campaign_id": campaign });
    assert_eq!(ana.post("/api/links", link).invalid(), ["campaign_id"]);
    ingest(
        &ana,
        "/api/orders",
        "orders",
        &[with(order("3", 1.0), "contact_phone", json!("11961234567"))],
    );
    assert_eq!(server.db.count("FROM orders WHERE contact_id IS NOT NULL"), 0);
}

#[test]
fn api_key_event_with_repeated_key_counts_once() {
    let server = Server::new();
    let ana = server.owner();
    let key = api_keys::create_key(&ana);
    let call = || {
        let request = server
            .request("POST", "/api/events")
            .bearer(&key)
            .header("Idempotency-Key", "k1");
        request.json(&json!({ "events": [event("visit")] })).send()
    };
    let (first, second) = (call(), call());
    assert_eq!(first.text, second.text);
    assert_eq!(second.header("Idempotent-Replayed"), Some("true"));
    assert_eq!(server.db.count("FROM metric_events"), 1);
}
