//! A template as the platform takes it for review, and its answer.

use recado_domain::shared::GatewayError;
use recado_domain::templates::{TemplateSubmission, placeholders};
use recado_domain::whatsapp::SubmittedTemplate;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::graph::{self, GraphError};
use crate::http::Answer;

/// The state of a template that has just been submitted.
const PENDING: &str = "PENDING";

/// The body of `POST /{waba_id}/message_templates`.
pub(super) fn creation(submission: &TemplateSubmission) -> Value {
    json!({
        "name": submission.name,
        "language": submission.language,
        "category": submission.category.as_str(),
        "parameter_format": "POSITIONAL",
        "components": components(submission),
    })
}

/// The body of `POST /{template_id}`: replaces every component; name and language cannot change.
pub(super) fn edit(submission: &TemplateSubmission) -> Value {
    json!({ "category": submission.category.as_str(), "components": components(submission) })
}

fn components(submission: &TemplateSubmission) -> Vec<Value> {
    let mut components = Vec::new();
    if let Some((text, examples)) = &submission.header {
        let mut header = json!({ "type": "HEADER", "format": "TEXT", "text": renumbered(text) });
        if !examples.is_empty() {
            insert(&mut header, "example", json!({ "header_text": examples }));
        }
        components.push(header);
    }
    let (text, examples) = &submission.body;
    let mut body = json!({ "type": "BODY", "text": renumbered(text) });
    if !examples.is_empty() {
        insert(&mut body, "example", json!({ "body_text": [examples] }));
    }
    components.push(body);
    if let Some(footer) = &submission.footer {
        components.push(json!({ "type": "FOOTER", "text": footer }));
    }
    if !submission.buttons.is_empty() {
        components.push(json!({ "type": "BUTTONS", "buttons": submission.buttons }));
    }
    components
}

fn insert(object: &mut Value, key: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
}

/// A text with its placeholders numbered 1, 2, ... in the order of their numbers: ours are numbered over header and
/// body together, the platform's in each component. Going upwards, no new number meets an old one still to come.
fn renumbered(text: &str) -> String {
    let mut renumbered = text.to_owned();
    for (new, old) in (1_usize..).zip(placeholders(text)) {
        renumbered = renumbered.replace(&format!("{{{{{old}}}}}"), &format!("{{{{{new}}}}}"));
    }
    renumbered
}

/// The platform's answer to a creation or to an edit.
pub(super) fn submitted(
    answer: &Answer,
    submission: &TemplateSubmission,
    edited: Option<&str>,
    token: &SecretString,
) -> Result<SubmittedTemplate, GatewayError> {
    let unreadable = || GatewayError::Unavailable(format!("HTTP {} without a readable body", answer.status));
    let body = answer.json::<Value>().ok_or_else(unreadable)?;
    if let Some(GraphError { code, message }) = graph::error(&body, graph::OF_TEMPLATE, token) {
        return Err(GatewayError::Refused { code, message });
    }
    if !answer.is_success() {
        return Err(unreadable());
    }
    let text = |key: &str, default: &str| graph::id(body.get(key)).unwrap_or_else(|| default.to_owned());
    let meta_template_id = match edited {
        Some(id) if body.get("success") == Some(&Value::Bool(true)) => id.to_owned(),
        Some(_) => {
            return Err(GatewayError::Unavailable(
                "an answer that does not confirm the edit".into(),
            ));
        }
        None => graph::id(body.get("id"))
            .ok_or_else(|| GatewayError::Unavailable("an answer without a template id".into()))?,
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
    use recado_domain::templates::Category;

    use super::*;

    fn submission() -> TemplateSubmission {
        TemplateSubmission {
            name: "seasonal_promo".into(),
            language: "pt_BR".into(),
            category: Category::Marketing,
            header: Some(("Promo {{2}}".into(), vec!["Junina".into()])),
            body: (
                "Oi {{1}}, use {{3}} hoje, {{1}}!".into(),
                vec!["Ana".into(), "PROMO10".into()],
            ),
            footer: Some("Responda SAIR para cancelar".into()),
            buttons: vec![json!({ "type": "QUICK_REPLY", "text": "Sair" })],
        }
    }

    fn answered(status: u16, body: &str, edited: Option<&str>) -> Result<SubmittedTemplate, GatewayError> {
        let answer = Answer {
            status,
            headers: HeaderMap::new(),
            body: body.to_owned().into(),
        };
        submitted(&answer, &submission(), edited, &SecretString::from("token"))
    }

    #[test]
    fn a_creation_has_the_platforms_shape() {
        let components = json!([
            { "type": "HEADER", "format": "TEXT", "text": "Promo {{1}}", "example": { "header_text": ["Junina"] } },
            { "type": "BODY", "text": "Oi {{1}}, use {{2}} hoje, {{1}}!",
              "example": { "body_text": [["Ana", "PROMO10"]] } },
            { "type": "FOOTER", "text": "Responda SAIR para cancelar" },
            { "type": "BUTTONS", "buttons": [{ "type": "QUICK_REPLY", "text": "Sair" }] } ]);
        let expected = json!({ "name": "seasonal_promo", "language": "pt_BR", "category": "MARKETING",
            "parameter_format": "POSITIONAL", "components": components });
        assert_eq!(creation(&submission()), expected);
        assert_eq!(
            edit(&submission()),
            json!({ "category": "MARKETING", "components": components })
        );
    }

    #[test]
    fn a_template_without_variables_has_a_body_alone() {
        let plain = TemplateSubmission {
            header: None,
            body: ("Oi".into(), vec![]),
            footer: None,
            buttons: vec![],
            ..submission()
        };
        assert_eq!(
            creation(&plain)["components"],
            json!([{ "type": "BODY", "text": "Oi" }])
        );
    }

    #[test]
    fn numbers_start_from_one_in_each_text() {
        for (text, expected) in [
            ("{{2}} {{3}} {{2}}", "{{1}} {{2}} {{1}}"),
            ("{{10}} {{2}} {{9}}", "{{3}} {{1}} {{2}}"),
            ("{{3}} {{1}} {{name}}", "{{2}} {{1}} {{name}}"),
            ("{{{{2}}}}", "{{{{1}}}}"),
            ("none", "none"),
        ] {
            assert_eq!(renumbered(text), expected);
        }
    }

    #[test]
    fn the_answer_is_read() {
        let created = answered(
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
        let edited = answered(200, r#"{"success":true}"#, Some("77")).unwrap();
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
    fn refusals_and_the_rest_are_told_apart() {
        let refused = answered(
            400,
            r#"{"error":{"code":2388072,"message":"m","error_user_msg":"u"}}"#,
            None,
        );
        assert!(matches!(refused, Err(GatewayError::Refused { code: 2_388_072, message }) if message == "u"));
        for (status, body, edited) in [
            (200, "{\"id", None),
            (200, r#"{"status":"PENDING"}"#, None),
            (200, r#"{"success":false}"#, Some("77")),
            (500, "{}", None),
            (404, "<html>", None),
        ] {
            let result = answered(status, body, edited);
            assert!(
                matches!(result, Err(GatewayError::Unavailable(_))),
                "{status} {body}: {result:?}"
            );
        }
    }
}
