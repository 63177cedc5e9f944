//! The AI simulator: extraction into the schema's fields, the bearer check, scripted responses.

use recado_simulators::ai::{Ai, AiOptions, completion};
use recado_simulators::fault::{Fault, FaultKind};
use serde_json::{Value, json};

use crate::{Response, request};

const PAGE: &str = "Padaria Aurora | Pães artesanais\n\
    description: Pães de fermentação natural em Curitiba.\n\
    Fazemos pão todos os dias! Oferecemos produtos sem conservantes! \
    Atendemos famílias e restaurantes da região. Nossos valores são qualidade e respeito.";

fn ask(ai: &Ai, token: &str) -> Response {
    let field = json!({ "type": ["string", "null"] });
    let body = json!({
        "model": "small",
        "messages": [{ "role": "system", "content": "Extract." },
                     { "role": "user", "content": format!("<<<PAGE\n{PAGE}\nPAGE>>>") }],
        "response_format": { "type": "json_schema", "json_schema": { "name": "brand_context", "strict": true, "schema": {
            "type": "object", "properties": {
                "company_name": field, "description": field, "products_services": field, "tone_of_voice": field,
                "target_audience": field, "brand_values": field, "founded_in": field } } } } });
    let url = format!("{}/chat/completions", ai.base_url());
    let bearer = format!("Bearer {token}");
    request(
        "POST",
        &url,
        &[("authorization", &bearer)],
        Some(body.to_string().as_bytes()),
    )
    .unwrap()
}

#[test]
fn ai_extracts_the_fields_of_the_schema() {
    let ai = Ai::start(AiOptions::default()).unwrap();
    let response = ask(&ai, "any").json();
    assert_eq!(
        (&response["object"], &response["model"]),
        (&json!("chat.completion"), &json!("small"))
    );
    assert_eq!(response["choices"][0]["finish_reason"], "stop");
    assert!(response["usage"]["total_tokens"].as_u64().unwrap() > 0);
    let facts: Value = serde_json::from_str(response["choices"][0]["message"]["content"].as_str().unwrap()).unwrap();
    assert_eq!(
        facts,
        json!({
            "company_name": "Padaria Aurora",
            "description": "Pães de fermentação natural em Curitiba.",
            "products_services": "Oferecemos produtos sem conservantes!",
            "target_audience": "Atendemos famílias e restaurantes da região.",
            "brand_values": "Nossos valores são qualidade e respeito.",
            "tone_of_voice": "Entusiasmado e próximo",
            "founded_in": null,
        })
    );
    assert_eq!(ai.ledger().len(), 1);
}

#[test]
fn ai_requires_the_api_key() {
    let ai = Ai::start(AiOptions {
        api_key: Some("right".into()),
        ..AiOptions::default()
    })
    .unwrap();
    assert_eq!(ask(&ai, "right").status, 200);
    let refused = ask(&ai, "wrong");
    assert_eq!(
        (refused.status, &refused.json()["error"]["code"]),
        (401, &json!("invalid_api_key"))
    );
}

#[test]
fn ai_faults_change_the_response() {
    let ai = Ai::start(AiOptions::default()).unwrap();
    let refusal = completion(None, "stop", Some("No."));
    let status = |http_status, body| Fault::new(FaultKind::status(http_status, body));
    ai.script(vec![
        status(500, json!({ "error": "down" })),
        status(200, refusal),
        Fault::new(FaultKind::GarbageJson),
    ]);
    assert_eq!(ask(&ai, "t").status, 500);
    assert_eq!(ask(&ai, "t").json()["choices"][0]["message"]["refusal"], "No.");
    let garbage = ask(&ai, "t");
    assert!(garbage.status == 200 && serde_json::from_str::<Value>(&garbage.text).is_err());
    assert_eq!(ask(&ai, "t").status, 200);
}
