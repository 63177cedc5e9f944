//! Templates that were created in WhatsApp's own tools: named placeholders, missing examples, three-letter languages,
//! and components that Recado cannot send.

use recado_simulators::whatsapp::ReceivedRequest;
use serde_json::{Value, json};

use crate::harness::client::Reply;
use crate::harness::runs::without_statuses;
use crate::harness::users::{User, phone};
use crate::harness::{DEADLINE, Server, text};

fn sync(user: &User<'_>) {
    user.request("POST", "/api/templates/sync").send().ok();
}

/// Adds a template to the WhatsApp simulator, synchronises it and returns it.
fn sync_template(server: &Server, user: &User<'_>, remote: Value) -> Value {
    let name = text(&remote["name"]);
    server.whatsapp.add_template(&remote);
    sync(user);
    let found = user.get(&format!("/api/templates?search={name}")).ok();
    found["data"][0].clone()
}

/// A template whose header and body both use the placeholder `first_name`.
fn named_template(name: &str) -> Value {
    json!({ "name": name, "language": "pt_BR", "category": "MARKETING", "parameter_format": "NAMED", "components": [
        { "type": "HEADER", "format": "TEXT", "text": "Para {{first_name}}",
          "example": { "header_text_named_params": [{ "param_name": "first_name", "example": "Ana" }] } },
        { "type": "BODY", "text": "Use {{cupom}} hoje, {{first_name}}! Vale até {{dia}}.",
          "example": { "body_text_named_params": [{ "param_name": "cupom", "example": "X5" },
              { "param_name": "first_name", "example": "Ana" }] } },
        { "type": "BUTTONS", "buttons": [
            { "type": "URL", "text": "Ver", "url": "https://l.example/{{1}}", "example": ["abc"] }] } ] })
}

/// The parameters of a component of a message, as sorted pairs of name and text.
fn named_parameters(sent: &ReceivedRequest, component_type: &str) -> Vec<(String, String)> {
    let components = sent.request.body["template"]["components"].as_array().unwrap();
    let component = components
        .iter()
        .find(|component| component["type"] == component_type)
        .unwrap();
    let parameters = component["parameters"].as_array().unwrap().iter();
    let mut parameters: Vec<_> = parameters
        .map(|parameter| (text(&parameter["parameter_name"]), text(&parameter["text"])))
        .collect();
    parameters.sort();
    parameters
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn act(user: &User<'_>, campaign: &str, action: &str, body: Value) -> Reply {
    user.post(&format!("/api/campaigns/{campaign}/{action}"), body)
}

#[test]
fn named_placeholders_are_filled_in_preview_test_and_run() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    ana.contacts(3);
    let template = sync_template(&server, &ana, named_template("oferta"));
    assert_eq!(
        (&template["parameter_format"], &template["variables"]),
        (&json!("named"), &json!(["Ana", "X5", ""]))
    );
    assert_eq!(
        (&template["sendable"], &template["reasons"]),
        (&json!(true), &json!([]))
    );
    let body =
        json!({ "name": "Oferta", "template_id": template["id"], "variables": { "cupom": "{attributes.x|Y7}" } });
    let id = ana.campaign(body);
    // The placeholder `dia` has neither mapping nor example.
    let refused = act(&ana, &id, "execute", json!({})).refused(400, "VALIDATION_ERROR");
    assert!(text(&refused["message"]).contains("{{dia}}"), "{refused}");
    assert_eq!(refused["details"]["reason"], "placeholder_empty");
    assert_eq!(server.whatsapp.sends().len(), 0);
    let mapped = json!({ "variables": { "cupom": "{attributes.x|Y7}", "dia": "domingo" } });
    let path = format!("/api/campaigns/{id}");
    assert_eq!(ana.put(&path, mapped.clone()).ok()["variables"], mapped["variables"]);
    for wrong in ["Cupom", "1o", "a b", "{{dia}}"] {
        let fields = ana.put(&path, json!({ "variables": { wrong: "x" } })).invalid();
        assert_eq!(fields, [format!("variables.{wrong}")]);
    }

    let shown = act(&ana, &id, "preview", json!({})).ok();
    assert_eq!(shown["refusals"], json!([]));
    let first = &shown["messages"][0];
    let name = text(&first["contact"]["name"]);
    let name = name.split(' ').next().unwrap();
    assert_eq!(
        (&first["header"], &first["body"]),
        (
            &json!(format!("Para {name}")),
            &json!(format!("Use Y7 hoje, {name}! Vale até domingo."))
        )
    );

    act(&ana, &id, "test", json!({ "phone": phone(40) })).ok();
    let test = server.whatsapp.sends().remove(0);
    assert_eq!(
        named_parameters(&test, "header"),
        [pair("first_name", "Ana")],
        "no contact has this phone number, so the example is used"
    );
    // The simulator rejects a wrong number of parameters with 132000, and wrong names with 132012.
    assert_eq!(act(&ana, &id, "execute", json!({})).ok()["sent"], 3);
    let sends = server.whatsapp.sends();
    for sent in &sends[1..] {
        let [(_, name)] = &named_parameters(sent, "header")[..] else {
            panic!("{sent:?}")
        };
        assert!(name.starts_with("Contato"), "{name}");
        let body = [pair("cupom", "Y7"), pair("dia", "domingo"), pair("first_name", name)];
        assert_eq!(named_parameters(sent, "body"), body);
    }
}

#[test]
fn named_template_can_be_created_submitted_and_sent() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    ana.contacts(2);
    let body = json!({ "name": "cupom", "category": "MARKETING", "language": "fil", "template_type": "standard",
        "parameter_format": "named", "body_text": "Oi {{nome}}, use {{cupom}} hoje!" });
    assert_eq!(ana.post("/api/templates", body.clone()).invalid(), ["example_values"]);
    let with = |field: &str, value: Value| {
        let mut body = body.clone();
        body["example_values"] = json!(["Ana", "X5"]);
        body[field] = value;
        body
    };
    let mixed = with("body_text", json!("Oi {{nome}}, use {{1}} hoje!"));
    assert_eq!(ana.post("/api/templates", mixed).invalid(), ["body_text"]);
    let numbered = with("parameter_format", json!("positional"));
    assert_eq!(ana.post("/api/templates", numbered).invalid(), ["body_text"]);
    let mut unknown_format = with("parameter_format", json!("other"));
    unknown_format["body_text"] = json!("Oi {{1}}, use {{2}} hoje!");
    assert_eq!(
        ana.post("/api/templates", unknown_format).invalid(),
        ["parameter_format"]
    );
    let template = ana.post("/api/templates", with("footer_text", json!("Loja"))).created();
    assert_eq!(template["parameter_format"], "named");
    let id = text(&template["id"]);
    let submitted = ana.request("POST", &format!("/api/templates/{id}/submit")).send().ok();
    let sent = server
        .whatsapp
        .ledger()
        .into_iter()
        .find(|call| call.template.as_deref() == Some("cupom"));
    let sent = sent.unwrap().request.body;
    assert_eq!(sent["parameter_format"], "NAMED");
    let examples = json!([{ "param_name": "nome", "example": "Ana" }, { "param_name": "cupom", "example": "X5" }]);
    assert_eq!(
        sent["components"][0]["example"],
        json!({ "body_text_named_params": examples })
    );
    server
        .whatsapp
        .set_template_status(&text(&submitted["meta_template_id"]), "APPROVED", None);
    assert!(server.whatsapp.wait_idle(DEADLINE));
    sync(&ana);
    let campaign = ana.campaign(json!({ "name": "Oferta", "template_id": id, "variables": { "cupom": "Y7" } }));
    assert_eq!(ana.execute(&campaign).ok()["sent"], 2);
    let parameters: Vec<_> = server
        .whatsapp
        .sends()
        .iter()
        .map(|sent| named_parameters(sent, "body"))
        .collect();
    assert!(
        parameters.iter().all(|parameters| parameters[0] == pair("cupom", "Y7")),
        "{parameters:?}"
    );
}

#[test]
fn synced_template_without_examples_can_be_edited() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    let remote = json!({ "name": "antigo", "language": "fil", "category": "UTILITY", "components": [
        { "type": "HEADER", "format": "TEXT", "text": "Pedido {{1}}" },
        { "type": "BODY", "text": "Oi {{1}}, chegou {{2}}." } ] });
    let template = sync_template(&server, &ana, remote);
    assert_eq!(
        (&template["language"], &template["variables"]),
        (&json!("fil"), &json!(["", "", ""]))
    );
    let path = format!("/api/templates/{}", text(&template["id"]));
    let folder = ana
        .post("/api/folders", json!({ "name": "Antigos", "kind": "template" }))
        .created();
    let moved = ana.put(&path, json!({ "folder_id": folder["id"] })).ok();
    assert_eq!(
        (&moved["folder_id"], &moved["meta_status"]),
        (&folder["id"], &json!("approved"))
    );
    let renamed = ana.put(&path, json!({ "name": "novo" })).ok();
    assert_eq!(
        (&renamed["name"], &renamed["meta_status"]),
        (&json!("novo"), &json!("draft"))
    );
    // Changed fields are validated together with the stored ones.
    let change = |body: Value| ana.put(&path, body).invalid();
    assert_eq!(
        change(json!({ "example_values": ["7", "Ana", ""] })),
        ["example_values[2]"]
    );
    assert_eq!(change(json!({ "body_text": "Oi {{2}}, chegou." })), ["example_values"]);
    assert_eq!(change(json!({ "language": "fil_ph" })), ["language"]);
    let filled = ana.put(&path, json!({ "example_values": ["7", "Ana", "hoje"] })).ok();
    assert_eq!(filled["variables"], json!(["7", "Ana", "hoje"]));
}

#[test]
fn unsendable_template_starts_no_run() {
    let server = Server::start(without_statuses());
    let body = json!({ "type": "BODY", "text": "Oi!" });
    let product = json!([{ "type": "HEADER", "format": "PRODUCT" }, body]);
    let flow = json!([body, { "type": "BUTTONS", "buttons": [{ "type": "FLOW", "text": "Agendar", "flow_id": "7" }] }]);
    let catalog = json!([body, { "type": "BUTTONS", "buttons": [{ "type": "CATALOG", "text": "Ver" }] }]);
    let call = json!([{ "type": "CALL_PERMISSION_REQUEST" }, body]);
    let image = json!([{ "type": "HEADER", "format": "IMAGE" }, body]);
    for (name, components, reason) in [
        ("produto", product, "unsupported_header:product"),
        ("fluxo", flow, "unsupported_button:flow"),
        ("loja", catalog, "unsupported_button:catalog"),
        ("ligar", call, "unsupported_component:call_permission_request"),
        ("foto", image, "missing_media"),
    ] {
        let remote = json!({ "name": name, "language": "pt_BR", "category": "MARKETING", "components": components });
        let ana = server.owner();
        ana.profile();
        ana.contacts(1);
        let template = sync_template(&server, &ana, remote);
        assert_eq!(
            (&template["meta_status"], &template["sendable"], &template["reasons"]),
            (&json!("approved"), &json!(false), &json!([reason]))
        );
        let fetched = ana.get(&format!("/api/templates/{}", text(&template["id"]))).ok();
        assert_eq!(fetched, template);
        let id = ana.campaign(json!({ "name": "Oferta", "template_id": template["id"] }));
        let later = json!({ "scheduled_at": "2100-01-01T12:00:00Z" });
        for (action, body) in [
            ("execute", json!({})),
            ("send", json!({})),
            ("schedule", later),
            ("test", json!({ "phone": phone(0) })),
        ] {
            let refused = act(&ana, &id, action, body).refused(400, "VALIDATION_ERROR");
            assert!(text(&refused["message"]).contains(reason), "{action}: {refused}");
            assert_eq!(
                refused["details"],
                json!({ "reason": "template_not_sendable", "reasons": [reason] })
            );
        }
        let shown = act(&ana, &id, "preview", json!({})).ok();
        assert_eq!(shown["refusals"][0]["reason"], "template_not_sendable");
        assert_eq!(shown["refusals"].as_array().unwrap().len(), 1);
        assert_eq!(ana.status(&id), "draft");
    }
    assert_eq!(server.whatsapp.sends().len(), 0);
}
