//! Audiences by what people did: conditions, previews and newcomers, as clients see them.

use recado_simulators::whatsapp::Inbound;
use serde_json::{Value, json};

use crate::conversations::wait_for_callbacks;
use crate::harness::runs::{final_status, wait_for_stat};
use crate::harness::users::{User, phone};
use crate::harness::{Server, eventually, text};
use crate::ingestion::ago;

const NUMBER: &str = "106500000001";

/// Bia and Caio got a campaign and read it; Bia answered, clicked, bought and was seen. Davi has an e-mail address and
/// nothing else.
struct Shop<'s> {
    ana: User<'s>,
    tag: String,
    campaign: String,
}

fn shop(server: &Server) -> Shop<'_> {
    let ana = server.owner();
    ana.profile_at(NUMBER);
    let tag = ana.tag("vip");
    let contact = |name: &str, number: usize, more: Value| {
        let mut body = json!({ "name": name, "phone": phone(number) });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        text(&ana.post("/api/contacts", body).created()["id"])
    };
    let vip = json!({ "tag_ids": [tag], "attributes": { "cidade": "Santos", "compras": 3 } });
    let bia = contact("Bia", 1, vip);
    contact(
        "Caio",
        2,
        json!({ "tag_ids": [tag], "attributes": { "cidade": "Natal" } }),
    );
    contact("Davi", 3, json!({ "email": "davi@example.com" }));
    let template = ana.approved("Oi", &[]);
    let config = json!({ "tag_ids": [tag] });
    let campaign = ana.campaign(json!({ "name": "VIP", "template_id": template, "segment_config": config }));
    ana.execute(&campaign).ok();
    wait_for_stat(&ana, &campaign, "read", 2);
    server
        .whatsapp
        .inbound(&Inbound::text(NUMBER, phone(1).trim_start_matches('+'), "quero"));
    wait_for_callbacks(server);
    let item = json!({ "product_id": "bolo", "name": "Bolo", "quantity": 1, "price": 59.9 });
    let order = json!({ "external_id": "1", "platform": "loja", "contact_phone": phone(1), "status": "paid",
                        "total": 59.9, "items": [item], "placed_at": ago(0) });
    ana.post("/api/orders", json!({ "orders": [order] })).ok();
    let event = json!({ "metric_name": "visit", "contact_phone": phone(1), "source": "site", "value": 2.5 });
    ana.post("/api/events", json!({ "events": [event] })).ok();
    let link = json!({ "original_url": "https://loja.example/", "campaign_id": campaign, "contact_id": bia });
    let link = ana.post("/api/links", link).created();
    assert_eq!(link["contact_id"], json!(bia));
    server
        .request("GET", &format!("/r/{}", text(&link["short_code"])))
        .response_head();
    eventually("the click is written", || {
        (ana.get("/api/links").ok()["data"][0]["clicks"] == 1).then_some(())
    });
    Shop { ana, tag, campaign }
}

/// The names of a segment with these filters, as they are listed, and counted.
fn names(ana: &User<'_>, filters: Value) -> String {
    let segment = ana
        .post("/api/segments", json!({ "name": "S", "filters": filters }))
        .created();
    let path = format!("/api/contacts?segment_id={}", text(&segment["id"]));
    let page = ana.get(&path).ok();
    let mut names: Vec<String> = page["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| text(&row["name"]))
        .collect();
    names.sort();
    assert_eq!(segment["members"], names.len(), "{segment}");
    names.join(" ")
}

#[test]
fn segments_select_by_what_people_did() {
    let server = Server::new();
    let Shop { ana, tag, campaign } = shop(&server);
    let was = |outcome: &str| json!({ "campaign": { "id": campaign, "was": outcome, "within_days": 1 } });
    let test = |op: &str, value: f64| json!({ "op": op, "value": value });
    for (node, expected) in [
        (json!({ "tag": { "id": tag } }), "Bia Caio"),
        (
            json!({ "attribute": { "key": "compras", "op": "lt", "value": 10 } }),
            "Bia",
        ),
        (
            json!({ "attribute": { "key": "cidade", "op": "ne", "value": "Natal" } }),
            "Bia Davi",
        ),
        (json!({ "created": { "within_days": 1 } }), "Bia Caio Davi"),
        (json!({ "last_inbound": { "within_days": 1 } }), "Bia"),
        (json!({ "last_inbound": { "never": true } }), "Caio Davi"),
        (was("sent"), "Bia Caio"),
        (was("delivered"), "Bia Caio"),
        (was("read"), "Bia Caio"),
        (was("failed"), ""),
        (was("clicked"), "Bia"),
        (was("replied"), "Bia"),
        (was("not_sent"), "Davi"),
        (was("not_read"), ""),
        (json!({ "campaign": { "was": "read" } }), "Bia Caio"),
        (json!({ "orders": {} }), "Bia"),
        (
            json!({ "orders": { "count": { "op": "eq", "value": 0 } } }),
            "Caio Davi",
        ),
        (
            json!({ "orders": { "total": test("gte", 59.9), "product_id": "bolo", "within_days": 1 } }),
            "Bia",
        ),
        (json!({ "orders": { "status": "refunded" } }), ""),
        (json!({ "metric": { "name": "visit" } }), "Bia"),
        (
            json!({ "metric": { "name": "visit", "sum": test("lt", 2.0), "within_days": 1 } }),
            "Caio Davi",
        ),
        (json!({ "rfm": { "segments": ["champions"] } }), ""),
        (json!({ "opted_out": false }), "Bia Caio Davi"),
        (json!({ "has_phone": true }), "Bia Caio Davi"),
        (json!({ "has_email": true }), "Davi"),
    ] {
        assert_eq!(names(&ana, json!({ "all": [node] })), expected, "{node}");
        let others: Vec<&str> = ["Bia", "Caio", "Davi"]
            .into_iter()
            .filter(|name| !expected.contains(name))
            .collect();
        assert_eq!(names(&ana, json!({ "not": node })), others.join(" "), "not {node}");
    }
    // All top-level keys must hold, the published ones too.
    let filters = json!({ "any": [{ "tag": { "id": tag } }, { "has_email": true }], "not": { "orders": {} },
                          "attributes": { "cidade": "Natal" } });
    assert_eq!(names(&ana, filters), "Caio");
}

#[test]
fn preview_counts_and_shows_contacts_without_a_segment() {
    let server = Server::new();
    let ana = server.owner();
    let ids: Vec<String> = (0..12).map(|number| ana.contact("Eva", &phone(number))).collect();
    let mail = ana.post(
        "/api/contacts",
        json!({ "name": "Gil", "wa_user_id": "BR.1", "email": "g@example.com" }),
    );
    let gil = text(&mail.created()["id"]);
    let preview = |body: Value| ana.post("/api/segments/preview", body);
    let all = preview(json!({ "filters": { "all": [{ "opted_out": false }] } })).ok();
    assert_eq!((&all["count"], &all["reachable"]), (&json!(13), &json!(12)));
    assert!(all["as_of"].is_string(), "{all}");
    let sample = all["sample"].as_array().unwrap();
    assert_eq!((sample.len(), text(&sample[0]["id"])), (10, gil.clone()));
    assert_eq!(sample[0], ana.get("/api/contacts?limit=1").ok()["data"][0]);
    let members = preview(json!({ "filters": {}, "contact_ids": [ids[0], gil] })).ok();
    assert_eq!((&members["count"], &members["reachable"]), (&json!(2), &json!(1)));
    let both = preview(json!({ "filters": { "has_email": true }, "contact_ids": [ids[0]] })).ok();
    assert_eq!(both["count"], 2);
    assert_eq!(preview(json!({})).invalid(), ["filters"]);
    assert_eq!(preview(json!({ "filters": { "all": [] } })).invalid(), ["filters.all"]);
    let bob = server.owner();
    let foreign = bob.contact("Bob", &phone(50));
    assert_eq!(
        preview(json!({ "filters": {}, "contact_ids": [ids[0], foreign] })).invalid(),
        ["contact_ids[1]"]
    );
    assert_eq!(server.db.count("FROM segments"), 0);
    let refused = (0..30).find_map(|_| {
        let reply = preview(json!({ "filters": {} }));
        (reply.status != 200).then_some(reply)
    });
    refused.unwrap().refused(429, "RATE_LIMIT");
}

#[test]
fn invalid_conditions_are_named_by_path() {
    let server = Server::new();
    let Shop { ana, .. } = shop(&server);
    let bob = server.owner();
    let foreign_tag = bob.tag("vip");
    let foreign_campaign = bob.plain_campaign();
    let order = json!({ "external_id": "1", "platform": "loja", "status": "paid", "total": 1, "placed_at": ago(0),
        "items": [{ "product_id": "torta", "name": "Torta", "quantity": 1, "price": 1 }] });
    bob.post("/api/orders", json!({ "orders": [order] })).ok();
    let unknown = "0190a1b2-0000-7000-8000-000000000000";
    let nested = |depth: usize| (1..depth).fold(json!({ "has_email": true }), |node, _| json!({ "not": node }));
    let leaves = |count: usize| json!(vec![json!({ "has_email": true }); count]);
    for (node, path) in [
        (json!({ "tag": { "id": foreign_tag } }), "tag.id"),
        (json!({ "tag": { "id": unknown } }), "tag.id"),
        (
            json!({ "campaign": { "id": foreign_campaign, "was": "sent" } }),
            "campaign.id",
        ),
        (json!({ "campaign": { "id": unknown, "was": "sent" } }), "campaign.id"),
        (json!({ "orders": { "product_id": "torta" } }), "orders.product_id"),
        (json!({ "orders": { "product_id": "nunca" } }), "orders.product_id"),
        (json!({ "campaign": { "was": "seen" } }), "campaign.was"),
        (
            json!({ "attribute": { "key": "a", "op": "like", "value": "x" } }),
            "attribute.op",
        ),
        (json!({ "age": 3 }), "age"),
        (nested(5), "not.not.not.not"),
    ] {
        let filters = json!({ "all": [{ "has_phone": true }, node] });
        let path = format!("filters.all[1].{path}");
        let segment = json!({ "name": "S", "filters": filters });
        assert_eq!(ana.post("/api/segments", segment).invalid(), [path.as_str()]);
        let preview = ana.post("/api/segments/preview", json!({ "filters": filters }));
        assert_eq!(preview.invalid(), [path.as_str()]);
        let config = json!({ "name": "S", "segment_config": { "filters": filters } });
        assert_eq!(
            ana.post("/api/campaigns", config).invalid(),
            [format!("segment_config.{path}")]
        );
    }
    let fifty = json!({ "all": [{ "any": leaves(20) }, { "any": leaves(20) }], "any": leaves(8) });
    let segment = ana
        .post("/api/segments", json!({ "name": "S", "filters": fifty }))
        .created();
    assert_eq!((&segment["filters"], &segment["members"]), (&fifty, &json!(1)));
    let too_many = json!({ "all": [{ "any": leaves(20) }, { "any": leaves(20) }], "any": leaves(9) });
    assert_eq!(
        ana.post("/api/segments", json!({ "name": "S", "filters": too_many }))
            .invalid(),
        ["filters.any[8]"]
    );
}

#[test]
fn campaign_to_newcomers_leaves_out_earlier_recipients() {
    let server = Server::new();
    let Shop { ana, campaign, .. } = shop(&server);
    assert_eq!(
        ana.get(&format!("/api/campaigns/{campaign}")).ok()["newcomers_only"],
        false
    );
    let template = ana.approved("Olá", &[]);
    let body = json!({ "name": "Novos", "template_id": template, "newcomers_only": true });
    let newcomers = ana.campaign(body);
    let preview = ana.post(&format!("/api/campaigns/{newcomers}/preview"), json!({})).ok();
    assert_eq!(preview["recipients"], 1);
    assert_eq!(ana.execute(&newcomers).ok()["total"], 1);
    assert_eq!(ana.sends(&newcomers)[0]["contacts"]["name"], "Davi");
    final_status(&ana, &newcomers);
    // Now every contact got a campaign.
    let again = ana.campaign(json!({ "name": "Novos", "template_id": template, "newcomers_only": true }));
    ana.execute(&again).refused(400, "VALIDATION_ERROR");
    let all = ana
        .put(&format!("/api/campaigns/{again}"), json!({ "newcomers_only": false }))
        .ok();
    assert_eq!(all["newcomers_only"], false);
    assert_eq!(ana.execute(&again).ok()["total"], 3);
    for wrong in [json!(null), json!("yes")] {
        let body = json!({ "newcomers_only": wrong });
        let refused = ana.put(&format!("/api/campaigns/{again}"), body).invalid();
        assert_eq!(refused, ["newcomers_only"]);
    }
}

/// The conditions of a campaign narrow its audience when it starts.
#[test]
fn campaign_is_sent_to_those_who_did_not_answer() {
    let server = Server::new();
    let Shop { ana, tag, campaign } = shop(&server);
    let template = ana.approved("Lembra?", &[]);
    let filters = json!({ "all": [{ "campaign": { "id": campaign, "was": "read" } }],
                          "not": { "campaign": { "id": campaign, "was": "replied" } } });
    for config in [
        json!({ "filters": filters }),
        json!({ "tag_ids": [tag], "filters": filters }),
    ] {
        let body = json!({ "name": "Lembrete", "template_id": template, "segment_config": config });
        let reminder = ana.campaign(body);
        assert_eq!(ana.execute(&reminder).ok()["total"], 1);
        assert_eq!(ana.sends(&reminder)[0]["contacts"]["name"], "Caio");
        final_status(&ana, &reminder);
    }
}
