//! Builds the request that submits a template for WhatsApp's review, and reads the response.

use recado_domain::messaging::{
    Button, ButtonType, CarouselCard, HeaderSubmission, LimitedTimeOffer, ParameterFormat, SubmittedTemplate,
    TemplateSubmission, TextParameter,
};
use recado_domain::shared::GatewayError;
use recado_domain::templates::numbered_from_one;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::graph::{self, GraphError};
use crate::http::GatewayResponse;

/// The review status of a template that was just submitted.
const PENDING: &str = "PENDING";

/// The body of `POST /{waba_id}/message_templates`.
pub(super) fn creation_body(submission: &TemplateSubmission) -> Value {
    let mut body = json!({
        "name": submission.name,
        "language": submission.language,
        "category": submission.category.as_str(),
        "parameter_format": parameter_format(submission),
        "components": components(submission),
    });
    insert_ttl(&mut body, submission);
    body
}

/// The body of `POST /{template_id}`: replaces every component; name and language cannot change.
pub(super) fn edit_body(submission: &TemplateSubmission) -> Value {
    let mut body = json!({
        "category": submission.category.as_str(),
        "parameter_format": parameter_format(submission),
        "components": components(submission),
    });
    insert_ttl(&mut body, submission);
    body
}

fn insert_ttl(body: &mut Value, submission: &TemplateSubmission) {
    if let Some(seconds) = submission.message_send_ttl_seconds {
        insert(body, "message_send_ttl_seconds", json!(seconds));
    }
}

fn parameter_format(submission: &TemplateSubmission) -> &'static str {
    match submission.parameter_format {
        ParameterFormat::Positional => "POSITIONAL",
        ParameterFormat::Named => "NAMED",
    }
}

fn components(submission: &TemplateSubmission) -> Vec<Value> {
    let mut components = Vec::new();
    components.extend(submission.header.as_ref().map(header));
    if let Some(LimitedTimeOffer { text, has_expiration }) = &submission.limited_time_offer {
        let offer = json!({ "text": text, "has_expiration": has_expiration });
        components.push(json!({ "type": "LIMITED_TIME_OFFER", "limited_time_offer": offer }));
    }
    components.push(match &submission.body {
        Some((text, examples)) => text_component(
            "BODY",
            text,
            component_examples(examples, "body_text", |texts| json!([texts])),
        ),
        // WhatsApp writes the text of an authentication template.
        None => json!({ "type": "BODY" }),
    });
    if let Some(footer) = &submission.footer {
        components.push(json!({ "type": "FOOTER", "text": footer }));
    }
    if !submission.buttons.is_empty() {
        let buttons: Vec<Value> = submission.buttons.iter().map(button).collect();
        components.push(json!({ "type": "BUTTONS", "buttons": buttons }));
    }
    if !submission.cards.is_empty() {
        let cards: Vec<Value> = submission.cards.iter().map(card).collect();
        components.push(json!({ "type": "CAROUSEL", "cards": cards }));
    }
    components
}

fn header(header: &HeaderSubmission) -> Value {
    match header {
        HeaderSubmission::Text(text, examples) => {
            let example = component_examples(examples, "header_text", |texts| json!(texts));
            let mut header = text_component("HEADER", text, example);
            insert(&mut header, "format", json!("TEXT"));
            header
        }
        HeaderSubmission::File { format, handle } => {
            let format = format.as_str().to_ascii_uppercase();
            json!({ "type": "HEADER", "format": format, "example": { "header_handle": [handle] } })
        }
        HeaderSubmission::Location => json!({ "type": "HEADER", "format": "LOCATION" }),
    }
}

/// The examples of a text component: named ones under `{field}_named_params`, numbered ones as `numbered` shapes them.
fn component_examples(examples: &[TextParameter], field: &str, numbered: impl Fn(&[&str]) -> Value) -> Option<Value> {
    let first = examples.first()?;
    if first.name.is_some() {
        let named = examples.iter();
        let named = named.map(|example| json!({ "param_name": example.name, "example": example.text }));
        return Some(json!({ format!("{field}_named_params"): named.collect::<Vec<_>>() }));
    }
    let texts: Vec<&str> = examples.iter().map(|example| example.text.as_str()).collect();
    Some(json!({ field: numbered(&texts) }))
}

fn text_component(kind: &str, text: &str, example: Option<Value>) -> Value {
    let mut component = json!({ "type": kind, "text": numbered_from_one(text) });
    if let Some(example) = example {
        insert(&mut component, "example", example);
    }
    component
}

/// A button with its example in WhatsApp's shape: an array of one for a URL, a string for a code.
fn button(button: &Button) -> Value {
    let mut json = button.json().clone();
    let converted = match (&button.kind, json.get("example").cloned()) {
        (ButtonType::Url, Some(example @ Value::String(_))) => Some(json!([example])),
        (ButtonType::CopyCode, Some(Value::Array(mut examples))) if examples.len() == 1 => examples.pop(),
        _ => None,
    };
    if let Some(example) = converted {
        insert(&mut json, "example", example);
    }
    insert(&mut json, "type", json!(button.kind.as_str()));
    json
}

/// A card already has WhatsApp's shape, except for its buttons and the handles of its files.
fn card(card: &CarouselCard) -> Value {
    let mut json = card.json().clone();
    let components = json.get_mut("components").and_then(Value::as_array_mut);
    for (json, component) in components.into_iter().flatten().zip(&card.components) {
        if let Some(buttons) = json.get_mut("buttons").filter(|buttons| buttons.is_array()) {
            *buttons = component.buttons.iter().map(button).collect();
        }
        if let (Some(handle), Some(file)) = (json.pointer_mut("/example/header_handle/0"), &component.file) {
            *handle = json!(file);
        }
    }
    json
}

fn insert(object: &mut Value, key: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
}

/// Reads the response to a creation, or to an edit of the template `edited_id`.
pub(super) fn parse_submission(
    response: &GatewayResponse,
    submission: &TemplateSubmission,
    edited_id: Option<&str>,
    token: &SecretString,
) -> Result<SubmittedTemplate, GatewayError> {
    let unreadable = || GatewayError::Unavailable(format!("HTTP {} without a readable body", response.status));
    let body = response.json::<Value>().ok_or_else(unreadable)?;
    if let Some(GraphError { code, message }) = graph::error(&body, graph::TEMPLATE_ERROR_TEXTS, token) {
        return Err(GatewayError::Refused { code, message });
    }
    if !response.is_success() {
        return Err(unreadable());
    }
    let text = |key: &str, default: &str| graph::id(body.get(key)).unwrap_or_else(|| default.to_owned());
    let meta_template_id = match edited_id {
        Some(id) if body.get("success") == Some(&Value::Bool(true)) => id.to_owned(),
        Some(_) => {
            return Err(GatewayError::Unavailable(
                "the response does not confirm the edit".into(),
            ));
        }
        None => graph::id(body.get("id"))
            .ok_or_else(|| GatewayError::Unavailable("the response has no template id".into()))?,
    };
    Ok(SubmittedTemplate {
        meta_template_id,
        status: text("status", PENDING),
        category: text("category", submission.category.as_str()),
    })
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderMap;

    use super::*;
    use recado_domain::messaging::{Category, HeaderType};

    fn examples(texts: &[&str]) -> Vec<TextParameter> {
        texts.iter().map(|&text| TextParameter::numbered(text)).collect()
    }

    fn submission() -> TemplateSubmission {
        TemplateSubmission {
            name: "seasonal_promo".into(),
            language: "pt_BR".into(),
            category: Category::Marketing,
            parameter_format: ParameterFormat::Positional,
            header: Some(HeaderSubmission::Text("Promo {{2}}".into(), examples(&["Junina"]))),
            body: Some(("Oi {{1}}, use {{3}} hoje, {{1}}!".into(), examples(&["Ana", "PROMO10"]))),
            footer: Some("Responda SAIR para cancelar".into()),
            buttons: vec![json!({ "type": "QUICK_REPLY", "text": "Sair" }).into()],
            cards: vec![],
            limited_time_offer: None,
            message_send_ttl_seconds: None,
        }
    }

    fn parse_response(status: u16, body: &str, edited_id: Option<&str>) -> Result<SubmittedTemplate, GatewayError> {
        let response = GatewayResponse {
            status,
            headers: HeaderMap::new(),
            body: body.to_owned().into(),
        };
        parse_submission(&response, &submission(), edited_id, &SecretString::from("token"))
    }

    #[test]
    fn creation_body_has_the_documented_shape() {
        let components = json!([
            { "type": "HEADER", "format": "TEXT", "text": "Promo {{1}}", "example": { "header_text": ["Junina"] } },
            { "type": "BODY", "text": "Oi {{1}}, use {{2}} hoje, {{1}}!",
              "example": { "body_text": [["Ana", "PROMO10"]] } },
            { "type": "FOOTER", "text": "Responda SAIR para cancelar" },
            { "type": "BUTTONS", "buttons": [{ "type": "QUICK_REPLY", "text": "Sair" }] } ]);
        let expected = json!({ "name": "seasonal_promo", "language": "pt_BR", "category": "MARKETING",
            "parameter_format": "POSITIONAL", "components": components });
        assert_eq!(creation_body(&submission()), expected);
        assert_eq!(
            edit_body(&submission()),
            json!({ "category": "MARKETING", "parameter_format": "POSITIONAL", "components": components })
        );
    }

    #[test]
    fn location_offer_and_delivery_time_have_the_documented_shape() {
        let offer = TemplateSubmission {
            header: Some(HeaderSubmission::Location),
            body: Some(("Oi!".into(), vec![])),
            footer: None,
            buttons: vec![],
            limited_time_offer: Some(LimitedTimeOffer {
                text: "Só hoje".into(),
                has_expiration: true,
            }),
            message_send_ttl_seconds: Some(43_200),
            ..submission()
        };
        let components = json!([{ "type": "HEADER", "format": "LOCATION" },
            { "type": "LIMITED_TIME_OFFER", "limited_time_offer": { "text": "Só hoje", "has_expiration": true } },
            { "type": "BODY", "text": "Oi!" }]);
        for body in [creation_body(&offer), edit_body(&offer)] {
            assert_eq!(
                (&body["components"], &body["message_send_ttl_seconds"]),
                (&components, &json!(43_200))
            );
        }
    }

    #[test]
    fn named_placeholders_have_named_examples() {
        let example = |name: &str, text: &str| TextParameter {
            name: Some(name.into()),
            text: text.into(),
        };
        let named = TemplateSubmission {
            parameter_format: ParameterFormat::Named,
            header: Some(HeaderSubmission::Text(
                "Para {{nome}}".into(),
                vec![example("nome", "Ana")],
            )),
            body: Some((
                "Oi {{nome}}, use {{cupom}} hoje!".into(),
                vec![example("nome", "Ana"), example("cupom", "X5")],
            )),
            ..submission()
        };
        let created = creation_body(&named);
        assert_eq!(created["parameter_format"], "NAMED");
        let expected = json!([
            { "type": "HEADER", "format": "TEXT", "text": "Para {{nome}}",
              "example": { "header_text_named_params": [{ "param_name": "nome", "example": "Ana" }] } },
            { "type": "BODY", "text": "Oi {{nome}}, use {{cupom}} hoje!", "example": { "body_text_named_params": [
                { "param_name": "nome", "example": "Ana" }, { "param_name": "cupom", "example": "X5" }] } } ]);
        assert_eq!(json!(created["components"].as_array().unwrap()[..2]), expected);
        assert_eq!(edit_body(&named)["parameter_format"], "NAMED");
    }

    #[test]
    fn template_without_placeholders_has_only_a_body() {
        let plain = TemplateSubmission {
            header: None,
            body: Some(("Oi".into(), vec![])),
            footer: None,
            buttons: vec![],
            ..submission()
        };
        assert_eq!(
            creation_body(&plain)["components"],
            json!([{ "type": "BODY", "text": "Oi" }])
        );
    }

    /// The examples of Meta's documentation, as far as our fields can express them.
    #[test]
    fn creation_body_matches_the_documented_examples() {
        let header = HeaderSubmission::File {
            format: HeaderType::Image,
            handle: "4::aW1h".into(),
        };
        let url =
            json!({ "type": "URL", "text": "Comprar", "url": "https://shop.example/p/{{1}}", "example": ["abc"] });
        let promo = TemplateSubmission {
            header: Some(header),
            body: Some(("Oi {{1}}, use {{2}} hoje.".into(), examples(&["Ana", "PROMO10"]))),
            buttons: vec![
                url.clone().into(),
                json!({ "type": "QUICK_REPLY", "text": "Sair" }).into(),
            ],
            ..submission()
        };
        let expected = json!({ "name": "seasonal_promo", "language": "pt_BR", "category": "MARKETING",
            "parameter_format": "POSITIONAL", "components": [
                { "type": "HEADER", "format": "IMAGE", "example": { "header_handle": ["4::aW1h"] } },
                { "type": "BODY", "text": "Oi {{1}}, use {{2}} hoje.", "example": { "body_text": [["Ana", "PROMO10"]] } },
                { "type": "FOOTER", "text": "Responda SAIR para cancelar" },
                { "type": "BUTTONS", "buttons": [url, { "type": "QUICK_REPLY", "text": "Sair" }] } ] });
        assert_eq!(creation_body(&promo), expected);
    }

    #[test]
    fn button_examples_get_the_documented_shape() {
        let mut address = json!({ "type": "url", "text": "Ver", "url": "https://l.example/{{1}}", "example": "a" });
        let code = json!({ "type": "COPY_CODE", "example": ["PROMO10"] });
        let card = json!({ "components": [{ "type": "BUTTONS", "buttons": [address] }] });
        let carousel = TemplateSubmission {
            header: None,
            footer: None,
            buttons: vec![address.clone().into(), code.into()],
            cards: vec![card.clone().into(), card.into()],
            ..submission()
        };
        insert(&mut address, "type", json!("URL"));
        insert(&mut address, "example", json!(["a"]));
        let card = json!({ "components": [{ "type": "BUTTONS", "buttons": [address] }] });
        let components = creation_body(&carousel)["components"].take();
        let buttons = json!([address, { "type": "COPY_CODE", "example": "PROMO10" }]);
        assert_eq!(components[1], json!({ "type": "BUTTONS", "buttons": buttons }));
        assert_eq!(components[2], json!({ "type": "CAROUSEL", "cards": [card, card] }));
    }

    #[test]
    fn buttons_and_cards_of_the_corpus_are_submitted() {
        let inputs = include_str!("../../../domain/src/templates/tests/corpus/inputs.jsonl");
        let expected = include_str!("corpus.jsonl");
        let list = |input: &Value, field: &str| input.get(field).cloned().unwrap_or(json!([]));
        let submitted = inputs.lines().map(|line| {
            let input: Value = serde_json::from_str(line).unwrap();
            let corpus = TemplateSubmission {
                header: None,
                footer: None,
                buttons: serde_json::from_value(list(&input, "buttons")).unwrap(),
                cards: serde_json::from_value(list(&input, "cards")).unwrap(),
                ..submission()
            };
            json!(creation_body(&corpus)["components"].as_array().unwrap()[1..]).to_string()
        });
        let submitted: Vec<String> = submitted.collect();
        assert_eq!(submitted, expected.lines().collect::<Vec<_>>());
    }

    #[test]
    fn uploaded_file_of_a_card_is_submitted_by_its_handle() {
        let header =
            |file: &str| json!({ "type": "HEADER", "format": "IMAGE", "example": { "header_handle": [file] } });
        let mut carousel: CarouselCard = json!({ "components": [header("https://media.example/a.png")] }).into();
        carousel.components[0].file = Some("4::aW1h".into());
        assert_eq!(card(&carousel), json!({ "components": [header("4::aW1h")] }));
    }

    #[test]
    fn authentication_template_has_a_body_without_text() {
        let otp = json!({ "type": "OTP", "otp_type": "COPY_CODE" });
        let code = TemplateSubmission {
            category: Category::Authentication,
            header: None,
            body: None,
            footer: None,
            buttons: vec![otp.clone().into()],
            ..submission()
        };
        let expected = json!([{ "type": "BODY" }, { "type": "BUTTONS", "buttons": [otp] }]);
        assert_eq!(creation_body(&code)["components"], expected);
    }

    #[test]
    fn placeholders_are_numbered_from_one_in_each_text() {
        for (text, expected) in [
            ("{{2}} {{3}} {{2}}", "{{1}} {{2}} {{1}}"),
            ("{{10}} {{2}} {{9}}", "{{3}} {{1}} {{2}}"),
            ("{{3}} {{1}} {{name}}", "{{2}} {{1}} {{name}}"),
            ("{{{{2}}}}", "{{{{1}}}}"),
            ("none", "none"),
        ] {
            assert_eq!(numbered_from_one(text), expected);
        }
    }

    #[test]
    fn submission_response_is_parsed() {
        let created = parse_response(
            200,
            r#"{"id":594425479261596,"status":"PENDING","category":"UTILITY"}"#,
            None,
        )
        .unwrap();
        assert_eq!(created.meta_template_id, "594425479261596");
        assert_eq!(
            (created.status.as_str(), created.category.as_str()),
            ("PENDING", "UTILITY")
        );
        let edited = parse_response(200, r#"{"success":true}"#, Some("77")).unwrap();
        assert_eq!(
            (
                edited.meta_template_id.as_str(),
                edited.status.as_str(),
                edited.category.as_str()
            ),
            ("77", "PENDING", "MARKETING")
        );
    }

    #[test]
    fn refusal_differs_from_unusable_response() {
        let refused = parse_response(
            400,
            r#"{"error":{"code":2388072,"message":"m","error_user_msg":"u"}}"#,
            None,
        );
        assert!(matches!(refused, Err(GatewayError::Refused { code: 2_388_072, message }) if message == "u"));
        for (status, body, edited_id) in [
            (200, "{\"id", None),
            (200, r#"{"status":"PENDING"}"#, None),
            (200, r#"{"success":false}"#, Some("77")),
            (500, "{}", None),
            (404, "<html>", None),
        ] {
            let result = parse_response(status, body, edited_id);
            assert!(
                matches!(result, Err(GatewayError::Unavailable(_))),
                "{status} {body}: {result:?}"
            );
        }
    }
}
