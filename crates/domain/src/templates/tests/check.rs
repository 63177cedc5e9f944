//! The check of a template: the errors of its submission, and warnings.

use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;

use super::{approved_template, tenant, with_files};
use crate::media::tests::FakeMediaStore;
use crate::messaging::{HeaderType, MetaStatus, MockWhatsappGateway};
use crate::shared::TemplateId;
use crate::templates::{MockTemplateStore, Template, TemplateError, TemplateType, submission_rules};
use crate::whatsapp::MockProfileStore;

#[tokio::test]
async fn check_finds_what_a_submission_refuses() {
    let check = async |template: Template| {
        let mut store = MockTemplateStore::new();
        store.expect_find().returning(move |_, _| Ok(Some(template.clone())));
        // No gateway call is expected.
        let templates = with_files(
            store,
            MockProfileStore::new(),
            MockWhatsappGateway::new(),
            &Arc::new(FakeMediaStore::default()),
        );
        let id = TemplateId(Uuid::from_u128(3));
        let check = templates.check(&tenant(), id).await.unwrap();
        let refused = match templates.submit(&tenant(), id, None).await {
            Err(TemplateError::Invalid(errors)) if !check.passes => errors.0.into_keys().collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        let mut fields: Vec<String> = check.errors.iter().map(|error| error.field.clone()).collect();
        fields.sort();
        fields.dedup();
        assert_eq!(fields, refused);
        check
    };
    let wrong = Template {
        meta_status: MetaStatus::Draft,
        header_type: HeaderType::Image,
        header_media_url: Some("https://elsewhere.example/a.png".into()),
        buttons: vec![serde_json::json!({ "type": "QUICK_REPLY", "text": "" }).into()],
        ..approved_template("PROMO HOJE {{1}} {{2}}", &["Ana"])
    };
    let found = check(wrong).await;
    let codes: Vec<_> = found
        .errors
        .iter()
        .map(|error| (error.field.as_str(), error.code.as_str()))
        .collect();
    assert_eq!(
        codes,
        [
            ("example_values", "examples"),
            ("body_text", "placeholder"),
            ("body_text", "placeholder"),
            ("buttons[0].text", "length"),
            ("header_media_url", "media"),
        ]
    );
    let warned: Vec<_> = found.warnings.iter().map(|warning| warning.code.as_str()).collect();
    assert_eq!(warned, ["many_placeholders", "all_capitals"]);
}

#[tokio::test]
async fn check_refuses_parts_that_no_message_can_fill() {
    let header =
        json!({ "type": "HEADER", "format": "IMAGE", "example": { "header_handle": ["https://m.example/a.png"] } });
    let buttons = json!({ "type": "BUTTONS", "buttons": [{ "type": "CATALOG" }, { "text": "Ver" }] });
    let card = json!({ "components": [header, { "type": "FOOTER", "text": "Loja" }, buttons] });
    for (template, fields) in [
        (
            Template {
                buttons: vec![
                    json!({ "type": "FLOW", "text": "Agendar", "flow_id": "7" }).into(),
                    json!({ "type": "mpm", "text": "Ver" }).into(),
                ],
                ..approved_template("Oi!", &[])
            },
            vec!["buttons[0].type", "buttons[1].type"],
        ),
        (
            Template {
                template_type: TemplateType::Carousel,
                carousel_cards: vec![card.clone().into(), card.into()],
                ..approved_template("Oi!", &[])
            },
            vec![
                "carousel_cards[0].components[1].type",
                "carousel_cards[0].components[2].buttons[0].type",
                "carousel_cards[0].components[2].buttons[1].type",
            ],
        ),
    ] {
        let errors = submission_rules::check(&template).into_vec();
        let of_types = errors.iter().filter(|error| error.field.ends_with(".type"));
        let found: Vec<&str> = of_types.map(|error| error.field.as_str()).take(fields.len()).collect();
        assert_eq!(found, fields);
    }
}
