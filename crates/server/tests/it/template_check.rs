//! The check of a template against its submission and against WhatsApp's own format rules.

use recado_simulators::whatsapp::Approval;
use serde_json::{Value, json};

use crate::harness::media::{MP4, PNG, WEBP};
use crate::harness::rng::{TestRng, runs, seed};
use crate::harness::runs::without_statuses;
use crate::harness::users::User;
use crate::harness::{Options, Server, text};

fn check(user: &User<'_>, template: &str) -> Value {
    let path = format!("/api/templates/{template}/check");
    user.request("POST", &path).send().ok()
}

/// Asserts that check and submission agree, and that WhatsApp accepts what passes. Returns whether the template passes.
fn assert_check_agrees(user: &User<'_>, id: &str) -> bool {
    let check = check(user, id);
    let errors = check["errors"].as_array().unwrap();
    assert_eq!(check["passes"], json!(errors.is_empty()), "{check}");
    let submitted = user.request("POST", &format!("/api/templates/{id}/submit")).send();
    if errors.is_empty() {
        // WhatsApp's refusal of the format would be a 502.
        submitted.ok();
        return true;
    }
    let mut fields: Vec<String> = errors.iter().map(|error| text(&error["field"])).collect();
    fields.sort();
    fields.dedup();
    assert_eq!(submitted.invalid(), fields, "{check}");
    false
}

fn pick(rng: &mut TestRng, choices: &[Value]) -> Value {
    let at = rng.below(choices.len().try_into().unwrap());
    choices[usize::try_from(at).unwrap()].clone()
}

fn random_buttons(rng: &mut TestRng) -> Value {
    let kinds = [
        json!({ "type": "QUICK_REPLY", "text": "Sim" }),
        json!({ "type": "QUICK_REPLY", "text": "" }),
        json!({ "type": "URL", "text": "Ver", "url": "https://l.example" }),
        json!({ "type": "URL", "text": "Ver", "url": "https://l.example/{{1}}", "example": "a" }),
        json!({ "type": "URL", "text": "Ver", "url": "https://l.example/{{1}}/b", "example": ["a"] }),
        json!({ "type": "URL", "text": "Ver", "url": "https://l.example/{{1}}" }),
        json!({ "type": "PHONE_NUMBER", "text": "Ligar", "phone_number": "+5511961234567" }),
        json!({ "type": "PHONE_NUMBER", "text": "Ligar" }),
        json!({ "type": "COPY_CODE", "example": "PROMO10" }),
        json!({ "type": "COPY_CODE", "example": "x".repeat(18) }),
        json!({ "type": "OTP", "otp_type": "COPY_CODE" }),
    ];
    let offer = json!([{ "type": "COPY_CODE", "example": "PROMO10" },
        { "type": "URL", "text": "Ver", "url": "https://l.example" }]);
    match rng.below(4) {
        0 => json!([]),
        1 => offer,
        2 => json!([{ "type": "OTP", "otp_type": "COPY_CODE" }]),
        _ => (0..=rng.below(4)).map(|_| pick(rng, &kinds)).collect(),
    }
}

fn random_card(rng: &mut TestRng, files: &[Value]) -> Value {
    let bodies = [json!("Por {{1}} hoje."), json!("x".repeat(161)), json!("Oferta.")];
    let mut components = vec![
        json!({ "type": "HEADER", "format": pick(rng, &["IMAGE", "IMAGE", "VIDEO"].map(Value::from)),
                "example": { "header_handle": [pick(rng, files)] } }),
        json!({ "type": "BODY", "text": pick(rng, &bodies), "example": { "body_text": [["R$ 10"]] } }),
    ];
    if rng.below(4) > 0 {
        components.push(json!({ "type": "BUTTONS", "buttons": [{ "type": "QUICK_REPLY", "text": "Ver" }] }));
    }
    json!({ "components": components })
}

/// Body and examples, most of them valid.
fn random_body(rng: &mut TestRng, named: bool) -> (Value, Value) {
    let bodies = match named {
        true => [
            "Oi {{nome}}, use {{cupom}} hoje.",
            "{{nome}}, oi",
            "Oi {{nome}}{{cupom}} hoje.",
            "Oi.",
        ],
        false => [
            "Oi {{1}}, use {{2}} hoje.",
            "Oi {{1}}",
            "Oi {{1}} {{2}} hoje.",
            "Oi {{ 1 }}.",
        ],
    };
    let bodies = bodies.map(Value::from);
    let body = match rng.below(8) {
        0 => pick(rng, &bodies),
        1 => json!("x".repeat(700)),
        2 => json!(""),
        _ => bodies[0].clone(),
    };
    let examples = body.as_str().unwrap().matches("}}").count() - usize::from(body == "Oi {{ 1 }}.");
    (body, json!(vec!["Ana"; examples]))
}

/// Replaces fields of the template by those of a carousel.
fn make_carousel(rng: &mut TestRng, template: &mut Value, files: &[Value]) {
    let first = random_card(rng, files);
    let second = match rng.below(3) {
        0 => random_card(rng, files),
        _ => first.clone(),
    };
    template["template_type"] = json!("carousel");
    template["carousel_cards"] = json!([first, second]);
    template["header_type"] = json!("none");
    template["category"] = json!("MARKETING");
}

/// A template of random parts, of which most fit together.
fn random_template(rng: &mut TestRng, number: u64, files: &[Value]) -> Value {
    const CATEGORIES: [&str; 4] = ["MARKETING", "MARKETING", "UTILITY", "AUTHENTICATION"];
    const HEADERS: [&str; 7] = ["none", "none", "text", "location", "image", "video", "document"];
    let named = rng.below(3) == 0;
    let (body, examples) = random_body(rng, named);
    let mut template = json!({
        "name": format!("t{number}"), "language": "pt_BR", "category": pick(rng, &CATEGORIES.map(Value::from)),
        "template_type": "standard", "parameter_format": if named { "named" } else { "positional" },
        "body_text": body, "example_values": examples, "buttons": random_buttons(rng),
        "header_type": pick(rng, &HEADERS.map(Value::from)),
    });
    if template["header_type"] == "text" {
        template["header_text"] = pick(rng, &["Olá", "Olá {{ x }}"].map(Value::from));
    } else if rng.below(5) > 0 {
        template["header_media_url"] = pick(rng, files);
    }
    if rng.below(4) == 0 {
        template["footer_text"] = pick(rng, &["Responda SAIR", "Oi {{ x }}"].map(Value::from));
    }
    if rng.below(4) == 0 {
        template["limited_time_offer"] = json!({ "text": "Hoje", "has_expiration": rng.below(2) == 0 });
    }
    if rng.below(4) == 0 {
        template["message_send_ttl_seconds"] = pick(rng, &[600, 3600, 86_400].map(Value::from));
    }
    if rng.below(5) == 0 {
        make_carousel(rng, &mut template, files);
    }
    template
}

#[test]
fn passing_check_means_accepted_submission() {
    let server = Server::start(Options::with_whatsapp(|whatsapp| {
        whatsapp.template_approval = Approval::Manual;
    }));
    let ana = server.owner();
    ana.profile();
    let mut files: Vec<Value> = [PNG, PNG, MP4, WEBP]
        .into_iter()
        .zip(0..4)
        .map(|(content, number)| ana.upload(&format!("a{number}"), content).ok()["url"].clone())
        .collect();
    files.push(json!("https://elsewhere.example/a.png"));
    let (seed, mut passed, mut refused) = (seed(7), 0, 0);
    for number in 0..runs(200) {
        let mut rng = TestRng::of(seed, number);
        let template = random_template(&mut rng, number, &files);
        let created = ana.post("/api/templates", template.clone());
        if created.status == 422 {
            continue;
        }
        let id = text(&created.created()["id"]);
        println!("seed {seed}, template {template}");
        match assert_check_agrees(&ana, &id) {
            true => passed += 1,
            false => refused += 1,
        }
    }
    assert!(passed > 15 && refused > 30, "{passed} passed, {refused} were refused");
}

/// This server could not send a message of such a template.
#[test]
fn unknown_button_is_refused_by_check_and_submission() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    ana.profile();
    let calls = server.whatsapp.ledger().len();
    for kind in ["FLOW", "CATALOG", "SOMETHING_NEW"] {
        let template = json!({ "name": kind.to_lowercase(), "category": "MARKETING", "language": "pt_BR",
            "template_type": "standard", "body_text": "Oi!", "buttons": [{ "type": kind, "text": "Ver" }] });
        let id = text(&ana.post("/api/templates", template).created()["id"]);
        assert_eq!(check(&ana, &id)["errors"][0]["field"], "buttons[0].type");
        assert!(!assert_check_agrees(&ana, &id));
    }
    assert_eq!(server.whatsapp.ledger().len(), calls);
}

#[test]
fn check_calls_nobody_and_changes_nothing() {
    let server = Server::start(without_statuses());
    let ana = server.owner();
    let viewer = server.member(&ana.account, "viewer");
    let id = ana.template("oferta", "Oi {{1}}, veja bit.ly/abc hoje.", &["Ana"]);
    let path = format!("/api/templates/{id}");
    let before = ana.get(&path).ok();
    let shown = check(&viewer, &id);
    let warning = json!({ "field": "body_text", "code": "shortened_link",
        "message": "has a shortened link; write the address of its target" });
    assert_eq!(shown, json!({ "passes": true, "errors": [], "warnings": [warning] }));
    assert_eq!((check(&ana, &id), ana.get(&path).ok()), (shown, before));
    assert!(server.whatsapp.ledger().is_empty());
    let other = server.owner();
    other
        .request("POST", &format!("{path}/check"))
        .send()
        .refused(404, "NOT_FOUND");
    // The review status does not matter: only the content is checked.
    server.db.run("UPDATE message_templates SET meta_status = 'approved'");
    assert_eq!(check(&ana, &id)["passes"], true);
}

#[test]
fn submit_reports_every_error_of_the_check() {
    let server = Server::new();
    let ana = server.owner();
    ana.profile();
    let body = json!({ "name": "oferta", "category": "UTILITY", "language": "pt_BR", "template_type": "standard",
        "header_type": "image", "header_media_url": "https://elsewhere.example/a.png",
        "body_text": "{{1}} {{2}}", "example_values": ["Ana", "X5"],
        "buttons": [{ "type": "URL", "text": "Ver", "url": "https://l.example/{{1}}/a", "example": "a" }] });
    let id = text(&ana.post("/api/templates", body).created()["id"]);
    let shown = check(&ana, &id);
    let codes: Vec<(String, String)> = shown["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| (text(&error["field"]), text(&error["code"])))
        .collect();
    let expected = [
        ("body_text", "placeholder"),
        ("body_text", "placeholder"),
        ("buttons[0].url", "placeholder"),
        ("header_media_url", "media"),
    ];
    assert_eq!(codes, expected.map(|(field, code)| (field.to_owned(), code.to_owned())));
    let calls = server.whatsapp.ledger().len();
    assert!(!assert_check_agrees(&ana, &id));
    assert_eq!(server.whatsapp.ledger().len(), calls, "WhatsApp is not asked");
}
