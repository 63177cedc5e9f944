//! Locations, limited-time offers and delivery times of templates, and what WhatsApp says about a template.

use recado_simulators::whatsapp::Approval;
use serde_json::{Value, json};

use crate::harness::client::Reply;
use crate::harness::runs::{final_status, without_statuses};
use crate::harness::users::{User, phone};
use crate::harness::{DEADLINE, Options, Server, eventually, text};

/// Creates a template, submits it, lets WhatsApp approve it and returns it.
fn approved_by_whatsapp(server: &Server, user: &User<'_>, body: &Value) -> Value {
    let id = text(&user.post("/api/templates", body.clone()).created()["id"]);
    let path = format!("/api/templates/{id}");
    assert_eq!(check(user, &id)["errors"], json!([]));
    let submitted = user.request("POST", &format!("{path}/submit")).send().ok();
    let meta_id = text(&submitted["meta_template_id"]);
    server.whatsapp.set_template_status(&meta_id, "APPROVED", None);
    assert!(server.whatsapp.wait_idle(DEADLINE));
    eventually("the template is approved", || {
        Some(user.get(&path).ok()).filter(|template| template["meta_status"] == "approved")
    })
}

fn check(user: &User<'_>, template: &str) -> Value {
    let path = format!("/api/templates/{template}/check");
    user.request("POST", &path).send().ok()
}

fn act(user: &User<'_>, campaign: &str, action: &str, body: Value) -> Reply {
    user.post(&format!("/api/campaigns/{campaign}/{action}"), body)
}

fn location_body() -> Value {
    json!({ "name": "convite", "category": "UTILITY", "language": "pt_BR", "template_type": "standard",
        "header_type": "location", "parameter_format": "named", "body_text": "Oi {{nome}}, a loja {{loja}} abriu!",
        "example_values": ["Ana", "Centro"], "message_send_ttl_seconds": 3600 })
}

fn offer_body() -> Value {
    json!({ "name": "oferta", "category": "MARKETING", "language": "pt_BR", "template_type": "standard",
        "body_text": "Oi {{1}}, use {{2}} hoje.", "example_values": ["Ana", "X5"],
        "limited_time_offer": { "text": "Só hoje", "has_expiration": true },
        "buttons": [{ "type": "COPY_CODE", "example": "PROMO10" },
                    { "type": "URL", "text": "Ver", "url": "https://l.example/{{1}}", "example": ["abc"] }] })
}

fn store_location() -> Value {
    json!({ "latitude": -23.5614, "longitude": -46.6559, "name": "Loja\tPaulista ", "address": "Av. Paulista, 1578" })
}

/// Asserts that no action sends the campaign without the value of `field`.
fn assert_needs(user: &User<'_>, campaign: &str, field: &str) {
    let details = json!({ "reason": "placeholder_empty", "placeholders": [field] });
    for (action, body) in [("execute", json!({})), ("test", json!({ "phone": phone(0) }))] {
        let refused = act(user, campaign, action, body).refused(400, "VALIDATION_ERROR");
        assert_eq!(refused["details"], details, "{action}");
        assert!(text(&refused["message"]).contains(field), "{refused}");
    }
    let shown = act(user, campaign, "preview", json!({})).ok();
    assert_eq!(shown["refusals"].as_array().unwrap().len(), 1, "{shown}");
    assert_eq!(shown["refusals"][0]["reason"], "placeholder_empty");
    act(user, campaign, "send", json!({})).ok();
    let server = user.server;
    server.db.wait_for_outbox();
    eventually("the queued run is refused", || {
        (user.status(campaign) == "draft").then_some(())
    });
    assert_eq!(server.whatsapp.sends().len(), 0);
}

/// The components of every message of the run.
fn sent_components(server: &Server) -> Vec<Value> {
    let sends = server.whatsapp.sends().into_iter();
    sends
        .map(|sent| sent.request.body["template"]["components"].clone())
        .collect()
}

#[test]
fn location_template_is_sent_with_the_location_of_its_campaign() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    ana.contacts(3);
    let template = approved_by_whatsapp(&server, &ana, &location_body());
    assert_eq!(
        (
            &template["header_type"],
            &template["message_send_ttl_seconds"],
            &template["sendable"]
        ),
        (&json!("location"), &json!(3600), &json!(true))
    );
    let body =
        json!({ "name": "Convite", "template_id": template["id"], "variables": { "loja": "{attributes.loja|Sul}" } });
    let id = ana.campaign(body);
    assert_needs(&ana, &id, "header_location");
    let path = format!("/api/campaigns/{id}");
    let mut wrong = store_location();
    wrong["latitude"] = json!(90.5);
    wrong["name"] = json!(" ");
    let fields = ana.put(&path, json!({ "header_location": wrong })).invalid();
    assert_eq!(fields, ["header_location.latitude", "header_location.name"]);
    let stored = ana.put(&path, json!({ "header_location": store_location() })).ok();
    assert_eq!(stored["header_location"], store_location());

    let shown = act(&ana, &id, "preview", json!({})).ok();
    assert_eq!(shown["refusals"], json!([]));
    let mut clean = store_location();
    clean["name"] = json!("Loja Paulista");
    assert_eq!(shown["messages"][0]["header_location"], clean);
    act(&ana, &id, "test", json!({ "phone": phone(40) })).ok();
    assert_eq!(act(&ana, &id, "execute", json!({})).ok()["sent"], 3);
    let header = json!({ "type": "header", "parameters": [{ "type": "location", "location": clean }] });
    let sent = sent_components(&server);
    assert_eq!(sent.len(), 4);
    for components in sent {
        assert_eq!((&components[0], components.as_array().unwrap().len()), (&header, 2));
        assert_eq!(components[1]["parameters"][1]["parameter_name"], "loja");
    }
    let created = server.whatsapp.ledger().into_iter();
    let mut created = created.filter(|call| call.request.path.ends_with("/message_templates"));
    let created = created.next().unwrap().request.body;
    assert_eq!(created["message_send_ttl_seconds"], 3600);
    assert_eq!(
        created["components"][0],
        json!({ "type": "HEADER", "format": "LOCATION" })
    );
}

#[test]
fn offer_is_sent_with_its_end_and_fails_when_it_is_over() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    ana.contacts(3);
    let template = approved_by_whatsapp(&server, &ana, &offer_body());
    assert_eq!(template["limited_time_offer"], offer_body()["limited_time_offer"]);
    let id = ana.campaign(json!({ "name": "Oferta", "template_id": template["id"] }));
    assert_needs(&ana, &id, "offer_expires_at");
    let path = format!("/api/campaigns/{id}");
    let end = "2099-01-01T12:00:00.000Z";
    assert_eq!(
        ana.put(&path, json!({ "offer_expires_at": end })).ok()["offer_expires_at"],
        end
    );
    let shown = act(&ana, &id, "preview", json!({})).ok();
    let offer = json!({ "text": "Só hoje", "expires_at": end });
    assert_eq!(shown["messages"][0]["limited_time_offer"], offer);
    act(&ana, &id, "test", json!({ "phone": phone(40) })).ok();
    assert_eq!(act(&ana, &id, "execute", json!({})).ok()["sent"], 3);
    let offer = json!({ "type": "limited_time_offer", "parameters": [{ "type": "limited_time_offer",
        "limited_time_offer": { "expiration_time_ms": 4_070_952_000_000_i64 } }] });
    let sent = sent_components(&server);
    assert_eq!(sent.len(), 4);
    for components in sent {
        assert_eq!(components[0], offer);
        assert_eq!(components[2]["sub_type"], "copy_code");
    }

    let over = json!({ "name": "Tarde", "template_id": template["id"], "offer_expires_at": "2026-01-01T00:00:00Z" });
    let over = ana.campaign(over);
    let refused = act(&ana, &over, "test", json!({ "phone": phone(40) })).refused(400, "VALIDATION_ERROR");
    assert_eq!(refused["details"]["reason"], "offer_ended");
    act(&ana, &over, "execute", json!({})).ok();
    assert_eq!(
        (final_status(&ana, &over), ana.stats(&over)["failed"].clone()),
        ("partial".into(), json!(3))
    );
    let message = text(&ana.sends(&over)[0]["error_message"]);
    assert!(message.contains("less than 1 minute"), "{message}");
    assert_eq!(
        server.whatsapp.sends().len(),
        4,
        "an offer that is over leads to no call"
    );
}

#[test]
fn offer_and_location_rules_name_their_field() {
    let server = Server::new();
    let ana = server.owner();
    let changed = |body: &Value, field: &str, value: Value| {
        let mut body = body.clone();
        body[field] = value;
        ana.post("/api/templates", body).invalid()
    };
    let (offer, store_location) = (offer_body(), location_body());
    let long = json!({ "text": "x".repeat(17), "has_expiration": true });
    assert_eq!(changed(&offer, "limited_time_offer", long), ["limited_time_offer.text"]);
    assert_eq!(changed(&offer, "category", json!("UTILITY")), ["category"]);
    assert_eq!(changed(&offer, "footer_text", json!("Loja")), ["footer_text"]);
    assert_eq!(changed(&offer, "buttons", json!([])), ["buttons"]);
    assert_eq!(
        changed(&offer, "message_send_ttl_seconds", json!(3600)),
        ["message_send_ttl_seconds"]
    );
    assert_eq!(
        changed(&store_location, "message_send_ttl_seconds", json!(43_201)),
        ["message_send_ttl_seconds"]
    );
    assert_eq!(
        changed(&store_location, "category", json!("AUTHENTICATION")),
        ["header_type", "message_send_ttl_seconds"]
    );
    let id = text(&ana.post("/api/templates", offer).created()["id"]);
    let path = format!("/api/templates/{id}");
    assert_eq!(
        ana.put(&path, json!({ "footer_text": "Loja" })).invalid(),
        ["footer_text"]
    );
    let without = json!({ "limited_time_offer": null, "footer_text": "Loja" });
    assert_eq!(ana.put(&path, without).ok()["limited_time_offer"], Value::Null);
}

#[test]
fn sync_reads_offer_delivery_time_and_right_category() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    ana.contacts(1);
    let remote = json!({ "name": "prazo", "language": "pt_BR", "category": "MARKETING", "correct_category": "UTILITY",
        "message_send_ttl_seconds": 86_400, "components": [
            { "type": "HEADER", "format": "LOCATION" },
            { "type": "LIMITED_TIME_OFFER", "limited_time_offer": { "text": "Hoje", "has_expiration": true } },
            { "type": "BODY", "text": "Oi!" }] });
    server.whatsapp.add_template(&remote);
    ana.request("POST", "/api/templates/sync").send().ok();
    let template = ana.get("/api/templates?search=prazo").ok()["data"][0].clone();
    for (field, value) in [
        ("header_type", json!("location")),
        ("limited_time_offer", json!({ "text": "Hoje", "has_expiration": true })),
        ("message_send_ttl_seconds", json!(86_400)),
        ("correct_category", json!("UTILITY")),
        ("category", json!("MARKETING")),
        ("quality", template["quality_score"].clone()),
        ("sendable", json!(true)),
    ] {
        assert_eq!(template[field], value, "{field}");
    }
    let body = json!({ "name": "Prazo", "template_id": template["id"], "header_location": store_location(),
        "offer_expires_at": "2099-01-01T12:00:00Z" });
    let id = ana.campaign(body);
    assert_eq!(act(&ana, &id, "execute", json!({})).ok()["sent"], 1);
    let types: Vec<String> = sent_components(&server)[0]
        .as_array()
        .unwrap()
        .iter()
        .map(|component| text(&component["type"]))
        .collect();
    assert_eq!(types, ["header", "limited_time_offer"]);
}

#[test]
fn rejected_template_has_the_recommendation_of_whatsapp() {
    let server = Server::start(Options::with_whatsapp(|whatsapp| {
        whatsapp.template_approval = Approval::Reject {
            after_ms: 20,
            reason: "INVALID_FORMAT".into(),
        };
    }));
    let ana = server.owner();
    ana.profile();
    let id = ana.template("oferta", "Oi {{1}}!", &["Ana"]);
    let path = format!("/api/templates/{id}");
    ana.request("POST", &format!("{path}/submit")).send().ok();
    let rejected = eventually("the template is rejected", || {
        Some(ana.get(&path).ok()).filter(|template| template["meta_status"] == "rejected")
    });
    let recommendation = "Change the template and submit it again.";
    assert_eq!(rejected["rejection_recommendation"], recommendation);
    ana.request("POST", "/api/templates/sync").send().ok();
    assert_eq!(ana.get(&path).ok()["rejection_recommendation"], recommendation);
    let edited = ana.put(&path, json!({ "body_text": "Olá {{1}}!" })).ok();
    assert_eq!(edited["rejection_recommendation"], Value::Null);
}
