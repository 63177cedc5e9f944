//! Validation of a template's content, rule by rule.

use serde_json::json;
use uuid::Uuid;

use crate::messaging::{LimitedTimeOffer, MetaStatus, MockWhatsappGateway, ParameterFormat};
use crate::shared::{FolderId, TemplateId, WriteOutcome};
use crate::templates::tests::{approved_template, input, templates, tenant};
use crate::templates::*;
use crate::whatsapp::MockProfileStore;

async fn error_fields(input: TemplateInput) -> Vec<String> {
    let templates = templates(
        MockTemplateStore::new(),
        MockProfileStore::new(),
        MockWhatsappGateway::new(),
    );
    match templates.create(&tenant(), input).await {
        Err(TemplateError::Invalid(errors)) => errors.0.into_keys().collect(),
        other => panic!("{other:?}"),
    }
}

/// The input with one change.
fn with(change: impl FnOnce(&mut TemplateInput)) -> TemplateInput {
    let mut input = input();
    change(&mut input);
    input
}

fn text(text: &str) -> Option<Option<String>> {
    Some(Some(text.to_owned()))
}

async fn assert_error_fields(cases: impl IntoIterator<Item = (&str, TemplateInput)>) {
    for (field, input) in cases {
        assert_eq!(error_fields(input.clone()).await, [field], "{input:?}");
    }
}

#[tokio::test]
async fn missing_required_fields_are_reported() {
    let empty = error_fields(TemplateInput::default()).await;
    assert_eq!(empty, ["category", "language", "name", "template_type"]);
}

#[tokio::test]
async fn name_and_enum_rules_report_their_field() {
    assert_error_fields([
        ("name", with(|t| t.name = Some("Boas".into()))),
        ("name", with(|t| t.name = Some("x".repeat(513)))),
        ("category", with(|t| t.category = Some("marketing".into()))),
        ("language", with(|t| t.language = Some("pt-BR".into()))),
        ("language", with(|t| t.language = Some("fil_ph".into()))),
        ("language", with(|t| t.language = Some("port_BR".into()))),
        ("template_type", with(|t| t.template_type = Some("video".into()))),
        ("parameter_format", with(|t| t.parameter_format = Some("NAMED".into()))),
        ("header_type", with(|t| t.header_type = text("sound"))),
        ("header_media_url", with(|t| t.header_media_url = text("file:///etc"))),
    ])
    .await;
}

#[tokio::test]
async fn text_rules_report_their_field() {
    let with_empty_example = Some(Some(vec!["a".into(), " ".into()]));
    let too_long = |t: &mut TemplateInput| {
        t.body_text = text(&"x".repeat(1025));
        t.example_values = None;
    };
    assert_error_fields([
        ("header_text", with(|t| t.header_text = text(&"x".repeat(61)))),
        ("header_text", with(|t| t.header_type = text("text"))),
        ("footer_text", with(|t| t.footer_text = text(&"x".repeat(61)))),
        ("footer_text", with(|t| t.footer_text = text("{{1}}"))),
        ("body_text", with(too_long)),
        ("body_text", with(|t| t.body_text = text("{{1}} {{3}} a"))),
        ("example_values", with(|t| t.example_values = None)),
        ("example_values[1]", with(|t| t.example_values = with_empty_example)),
    ])
    .await;
}

#[tokio::test]
async fn offer_rules_report_their_field() {
    let offer = || {
        with(|t| {
            t.limited_time_offer = Some(Some(LimitedTimeOffer {
                text: "Só hoje".into(),
                has_expiration: false,
            }));
            t.buttons = Some(Some(vec![
                json!({ "type": "URL", "text": "Ver", "url": "https://l.example" }).into(),
            ]));
        })
    };
    let changed = |change: fn(&mut TemplateInput)| {
        let mut input = offer();
        change(&mut input);
        input
    };
    assert_error_fields([
        ("category", changed(|t| t.category = Some("UTILITY".into()))),
        ("footer_text", changed(|t| t.footer_text = text("Loja"))),
        ("header_type", changed(|t| t.header_type = text("document"))),
        ("buttons", changed(|t| t.buttons = None)),
        (
            "header_type",
            with(|t| {
                t.category = Some("AUTHENTICATION".into());
                t.header_type = text("location");
            }),
        ),
        (
            "message_send_ttl_seconds",
            with(|t| t.message_send_ttl_seconds = Some(Some(29))),
        ),
        (
            "message_send_ttl_seconds",
            with(|t| t.message_send_ttl_seconds = Some(Some(43_199))),
        ),
    ])
    .await;
    let mut store = MockTemplateStore::new();
    store.expect_insert().returning(|_| Ok(()));
    let templates = templates(store, MockProfileStore::new(), MockWhatsappGateway::new());
    let made = templates.create(&tenant(), offer()).await.unwrap();
    assert!(made.limited_time_offer.is_some());
}

#[tokio::test]
async fn named_placeholder_rules_report_their_field() {
    let named = |body: &'static str, examples: usize| {
        with(|t| {
            t.parameter_format = Some("named".into());
            t.body_text = text(body);
            t.example_values = Some(Some(vec!["x".into(); examples]));
        })
    };
    assert_error_fields([
        ("body_text", with(|t| t.body_text = text("Oi {{nome}}!"))),
        ("body_text", with(|t| t.body_text = text("Oi {{1}}, {{nome}}, {{2}}!"))),
        ("body_text", named("Oi {{1}}!", 1)),
        ("body_text", named("Oi {{Nome}}!", 1)),
        ("body_text", named("Oi {{nome}}, {{ cupom }}!", 2)),
        ("example_values", named("Oi {{nome}}, {{cupom}} e {{nome}}!", 3)),
    ])
    .await;
    let mut store = MockTemplateStore::new();
    store.expect_insert().returning(|_| Ok(()));
    let templates = templates(store, MockProfileStore::new(), MockWhatsappGateway::new());
    for (language, input) in [
        ("fil", named("Oi {{nome}}, {{cupom}} e {{nome}}!", 2)),
        ("es_AR", named("Oi!", 0)),
    ] {
        let language = Some(language.to_owned());
        let made = templates.create(&tenant(), TemplateInput { language, ..input }).await;
        assert_eq!(made.unwrap().parameter_format, ParameterFormat::Named);
    }
}

#[tokio::test]
async fn update_validates_only_the_given_fields() {
    let update = async |input: TemplateInput| {
        let synced = Template {
            language: "zz_zz_1".into(),
            variables: vec![String::new()],
            unsupported: vec!["unsupported_header:location".into()],
            ..approved_template("Oi {{1}}!", &[])
        };
        let mut store = MockTemplateStore::new();
        store.expect_find().return_once(move |_, _| Ok(Some(synced)));
        store.expect_update().returning(|_, _, _| Ok(WriteOutcome::Done));
        let templates = templates(store, MockProfileStore::new(), MockWhatsappGateway::new());
        templates.update(&tenant(), TemplateId(Uuid::from_u128(3)), input).await
    };
    let moved = TemplateInput {
        folder_id: Some(Some(FolderId(Uuid::nil()))),
        ..TemplateInput::default()
    };
    let moved = update(moved).await.unwrap();
    assert_eq!((moved.meta_status, moved.unsupported.len()), (MetaStatus::Approved, 1));
    let renamed = TemplateInput {
        name: Some("outro".into()),
        ..TemplateInput::default()
    };
    let renamed = update(renamed).await.unwrap();
    assert_eq!((renamed.name.as_str(), renamed.unsupported.len()), ("outro", 0));
    for (field, input) in [
        (
            "example_values",
            TemplateInput {
                body_text: text("Oi {{1}} e {{2}}!"),
                ..TemplateInput::default()
            },
        ),
        (
            "example_values[0]",
            TemplateInput {
                example_values: Some(Some(vec![String::new()])),
                ..TemplateInput::default()
            },
        ),
        (
            "language",
            TemplateInput {
                language: Some("zz_zz_1".into()),
                ..TemplateInput::default()
            },
        ),
    ] {
        let Err(TemplateError::Invalid(errors)) = update(input).await else {
            panic!("{field}")
        };
        assert_eq!(errors.0.into_keys().collect::<Vec<_>>(), [field]);
    }
}

#[tokio::test]
async fn button_and_card_rules_report_their_field() {
    let button = json!({ "type": "QUICK_REPLY", "text": "Sair" });
    let carousel = |t: &mut TemplateInput| t.template_type = Some("carousel".into());
    let large = json!({ "type": "URL", "text": "x".repeat(64 * 1024) });
    let cards = Some(Some(vec![large.clone().into(), json!({}).into()]));
    let large_cards = |t: &mut TemplateInput| {
        carousel(t);
        t.carousel_cards = cards;
    };
    assert_error_fields([
        ("buttons", with(|t| t.buttons = Some(Some(vec![button.into(); 11])))),
        (
            "buttons[0].type",
            with(|t| t.buttons = Some(Some(vec![json!({ "text": "x" }).into()]))),
        ),
        ("buttons", with(|t| t.buttons = Some(Some(vec![large.into()])))),
        ("carousel_cards", with(large_cards)),
        ("carousel_cards", with(carousel)),
        (
            "carousel_cards",
            with(|t| t.carousel_cards = Some(Some(vec![json!({}).into()]))),
        ),
    ])
    .await;
}

#[tokio::test]
async fn update_is_validated_before_the_template_is_found() {
    let change = async |input: TemplateInput| {
        let mut store = MockTemplateStore::new();
        store.expect_find().returning(|_, _| Ok(None));
        let templates = templates(store, MockProfileStore::new(), MockWhatsappGateway::new());
        match templates.update(&tenant(), TemplateId(Uuid::nil()), input).await {
            Err(TemplateError::Invalid(errors)) => errors.0.into_keys().collect(),
            Err(TemplateError::NotFound) => vec![],
            other => panic!("{other:?}"),
        }
    };
    let only = |change: fn(&mut TemplateInput)| {
        let mut input = TemplateInput::default();
        change(&mut input);
        input
    };
    for (field, input) in [
        ("name", only(|t| t.name = Some("Boas".into()))),
        ("category", only(|t| t.category = Some("OTHER".into()))),
        ("language", only(|t| t.language = Some("pt-BR".into()))),
        ("template_type", only(|t| t.template_type = Some("video".into()))),
        ("header_type", only(|t| t.header_type = text("sound"))),
        ("header_text", only(|t| t.header_text = text(&"x".repeat(61)))),
        ("header_media_url", only(|t| t.header_media_url = text("file:///etc"))),
        ("body_text", only(|t| t.body_text = text(&"x".repeat(1025)))),
        ("footer_text", only(|t| t.footer_text = text("{{1}}"))),
        (
            "example_values[0]",
            only(|t| t.example_values = Some(Some(vec![" ".into()]))),
        ),
        (
            "buttons[0].type",
            only(|t| t.buttons = Some(Some(vec![json!({}).into()]))),
        ),
        (
            "carousel_cards[0]",
            only(|t| t.carousel_cards = Some(Some(vec![json!(1).into()]))),
        ),
    ] {
        assert_eq!(change(input).await, [field]);
    }
    // Whether these are valid depends on the stored template.
    for input in [
        TemplateInput::default(),
        only(|t| t.body_text = text("Oi {{1}}")),
        only(|t| t.body_text = text("{{2}}")),
        only(|t| t.example_values = Some(Some(vec!["Ana".into()]))),
        only(|t| t.header_type = text("text")),
        only(|t| t.template_type = Some("carousel".into())),
        only(|t| t.carousel_cards = Some(Some(vec![json!({}).into(), json!({}).into()]))),
    ] {
        assert_eq!(change(input).await, Vec::<String>::new());
    }
}
