//! Submissions: every rule of WhatsApp by its field, the files of headers and cards, and the synchronization.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::media::tests::{ACCOUNT, FakeMediaStore};
use crate::media::{MediaPath, MediaType};
use crate::messaging::{
    CarouselCard, Category, Component, HeaderSubmission, HeaderType, MetaStatus, MockWhatsappGateway, RemotePage,
    RemoteTemplate, SubmittedTemplate, TemplateSubmission,
};
use crate::shared::{AccountId, GatewayError, TemplateId, WriteOutcome};
use crate::templates::outbound_tests::{location_template, offer_template};
use crate::templates::tests::{approved_template, checked_submission, number, tenant, with_files};
use crate::templates::*;
use crate::whatsapp::MockProfileStore;

fn draft() -> Template {
    Template {
        meta_status: MetaStatus::Draft,
        meta_template_id: None,
        ..approved_template("Oi {{1}}!", &["Ana"])
    }
}

fn with(change: impl FnOnce(&mut Template)) -> Template {
    let mut template = draft();
    change(&mut template);
    template
}

fn with_buttons(buttons: Value) -> Template {
    with(|t| t.buttons = serde_json::from_value(buttons).unwrap())
}

fn card(format: &str, handle: &str) -> Value {
    json!({ "components": [
        { "type": "HEADER", "format": format, "example": { "header_handle": [handle] } },
        { "type": "BODY", "text": "Por {{1}}.", "example": { "body_text": [["R$ 10"]] } },
        { "type": "BUTTONS", "buttons": [
            { "type": "URL", "text": "Ver", "url": "https://l.example/{{1}}", "example": ["a"] }] } ] })
}

fn carousel(cards: Vec<Value>) -> Template {
    with(|t| {
        t.template_type = TemplateType::Carousel;
        t.carousel_cards = cards.into_iter().map(CarouselCard::from).collect();
    })
}

fn code() -> Template {
    with(|t| {
        t.category = Category::Authentication;
        t.body_text = Some("{{1}} é seu código.".into());
        t.buttons = vec![json!({ "type": "OTP", "otp_type": "COPY_CODE" }).into()];
    })
}

fn error_fields(template: &Template) -> Vec<String> {
    checked_submission(template)
        .err()
        .map(|errors| errors.0.into_keys().collect())
        .unwrap_or_default()
}

fn assert_error_fields(cases: impl IntoIterator<Item = (&'static str, Template)>) {
    for (field, template) in cases {
        let expected: Vec<&str> = if field.is_empty() { vec![] } else { vec![field] };
        assert_eq!(error_fields(&template), expected, "{template:?}");
    }
}

#[test]
fn submission_rules_for_texts() {
    let body = |text: &str| {
        with(|t| {
            t.variables = placeholders(text)
                .into_iter()
                .map(|number| number.to_string())
                .collect();
            t.body_text = Some(text.into());
        })
    };
    let header = |text: &str| {
        with(|t| {
            t.header_type = HeaderType::Text;
            t.header_text = Some(text.into());
        })
    };
    assert_error_fields([
        ("", body("Oi {{1}}!")),
        ("", body("Oi {{1}} e {{2}}!")),
        ("", body("chaves }} no meio {{ daqui")),
        ("body_text", body(" ")),
        ("body_text", body("{{1}}, oi")),
        ("body_text", body("Oi {{1}}")),
        ("body_text", body(" Oi {{1}} ")),
        ("body_text", body("Oi {{1}}, {{nome}}!")),
        ("body_text", body("Oi {{ 1 }}!")),
        ("body_text", body("Oi {{1}} {{2}}!")),
        ("body_text", body("Oi {{2}}!")),
        ("", body("Oi {{1}} e {{2}}, {{1}}!")),
        ("body_text", body("Oi {{2}} e {{1}}!")),
        ("body_text", body(&"x".repeat(1025))),
        ("", header("Oi")),
        ("header_text", header("Oi {{ 1 }}")),
        ("footer_text", with(|t| t.footer_text = Some("Oi {{ x }}".into()))),
        ("example_values[0]", with(|t| t.variables = vec![" ".into()])),
        ("example_values", with(|t| t.variables = vec![])),
        ("header_media_url", with(|t| t.header_type = HeaderType::Video)),
    ]);
    let missing = with(|t| {
        t.body_text = None;
        t.variables = vec![];
    });
    assert_error_fields([("body_text", missing)]);
}

#[test]
fn submission_rules_for_locations_offers_and_delivery_times() {
    let offer = |change: fn(&mut Template)| {
        let mut template = offer_template(true);
        change(&mut template);
        template
    };
    let ttl = |category: Category, seconds: i64| {
        with(|t| {
            t.category = category;
            t.message_send_ttl_seconds = Some(seconds);
        })
    };
    assert_error_fields([
        ("", location_template()),
        ("", offer(|_| ())),
        ("", offer_template(false)),
        ("category", offer(|t| t.category = Category::Utility)),
        ("footer_text", offer(|t| t.footer_text = Some("Loja".into()))),
        ("", offer(|t| t.footer_text = Some(String::new()))),
        (
            "body_text",
            offer(|t| t.body_text = Some(format!("Oi {{{{1}}}}{}", "x".repeat(593)))),
        ),
        (
            "",
            offer(|t| t.body_text = Some(format!("Oi {{{{1}}}}{}", "x".repeat(592)))),
        ),
        ("header_type", offer(|t| t.header_type = HeaderType::Location)),
        (
            "limited_time_offer.text",
            offer(|t| t.limited_time_offer.as_mut().unwrap().text = "x".repeat(17)),
        ),
        (
            "limited_time_offer.text",
            offer(|t| t.limited_time_offer.as_mut().unwrap().text = " ".into()),
        ),
        ("buttons", offer(|t| t.buttons.swap(0, 1))),
        ("buttons", offer(|t| t.buttons.truncate(1))),
        (
            "buttons[0].example",
            offer(|t| t.buttons[0] = json!({ "type": "COPY_CODE", "example": "x".repeat(16) }).into()),
        ),
        ("", ttl(Category::Marketing, 43_200)),
        ("message_send_ttl_seconds", ttl(Category::Marketing, 43_199)),
        ("", ttl(Category::Utility, 43_200)),
        ("message_send_ttl_seconds", ttl(Category::Utility, 43_201)),
        ("message_send_ttl_seconds", ttl(Category::Utility, 29)),
        ("message_send_ttl_seconds", ttl(Category::Marketing, 2_592_001)),
    ]);
}

#[test]
fn submission_rules_for_buttons() {
    let quick = json!({ "type": "QUICK_REPLY", "text": "Sair" });
    let url = json!({ "type": "url", "text": "Ver", "url": "https://l.example/{{1}}", "example": "a" });
    let phone = json!({ "type": "PHONE_NUMBER", "text": "Ligar", "phone_number": "+5511961234567" });
    let code = json!({ "type": "COPY_CODE", "example": "PROMO10" });
    let changed_button = |change: Value, button: &Value| {
        let mut button = button.clone();
        button
            .as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        with_buttons(json!([button]))
    };
    assert_error_fields([
        ("", with_buttons(json!([quick, quick, url, url, phone, code]))),
        ("", with_buttons(json!([url, quick, quick]))),
        ("buttons", with_buttons(json!([quick, url, quick]))),
        ("buttons", with_buttons(json!([url, url, url]))),
        ("buttons", with_buttons(json!([phone, phone]))),
        ("buttons", with_buttons(json!([code, code]))),
        ("buttons", with_buttons(json!([{ "type": "OTP" }]))),
        (
            "buttons[1].text",
            with_buttons(json!([quick, { "type": "QUICK_REPLY", "text": "x".repeat(26) }])),
        ),
        ("buttons[0].text", changed_button(json!({ "text": " " }), &url)),
        ("", changed_button(json!({ "text": "é".repeat(25) }), &quick)),
        (
            "buttons[0].url",
            changed_button(json!({ "url": "https://l.example/{{1}}/x" }), &url),
        ),
        (
            "buttons[0].url",
            changed_button(json!({ "url": "https://l.example/{{1}}{{1}}" }), &url),
        ),
        (
            "buttons[0].url",
            changed_button(json!({ "url": "https://l.example/{{nome}}" }), &url),
        ),
        (
            "buttons[0].url",
            changed_button(json!({ "url": "ftp://l.example" }), &url),
        ),
        (
            "buttons[0].url",
            changed_button(json!({ "url": format!("https://{}", "x".repeat(1993)) }), &url),
        ),
        ("buttons[0].example", changed_button(json!({ "example": [] }), &url)),
        (
            "buttons[0].example",
            changed_button(json!({ "example": "x".repeat(21) }), &code),
        ),
        (
            "buttons[0].phone_number",
            changed_button(json!({ "phone_number": "1".repeat(21) }), &phone),
        ),
    ]);
}

#[test]
fn submission_rules_for_one_time_codes() {
    let changed = |change: fn(&mut Template)| {
        let mut template = code();
        change(&mut template);
        template
    };
    assert_error_fields([
        ("", code()),
        ("", changed(|t| t.body_text = None)),
        ("buttons", changed(|t| t.buttons.clear())),
        ("buttons", changed(|t| t.buttons.push(json!({ "type": "OTP" }).into()))),
        ("header_type", changed(|t| t.header_type = HeaderType::Text)),
        ("footer_text", changed(|t| t.footer_text = Some("x".into()))),
    ]);
    assert_eq!(TemplateSubmission::of(&code()).body, None, "WhatsApp provides the text");
}

#[test]
fn submission_rules_for_carousels() {
    let (image, video) = (card("IMAGE", "u"), card("VIDEO", "u"));
    let changed = |path: &str, value: Value| {
        let mut card = image.clone();
        *card.pointer_mut(path).unwrap() = value;
        carousel(vec![card.clone(), card])
    };
    assert_error_fields([
        ("", carousel(vec![image.clone(), image.clone()])),
        ("", carousel(vec![video.clone(), video.clone()])),
        ("carousel_cards[1].components", carousel(vec![image.clone(), video])),
        ("category", {
            let mut template = carousel(vec![image.clone(), image.clone()]);
            template.category = Category::Utility;
            template
        }),
    ]);
    for (path, value, field) in [
        ("/components/0/format", json!("DOCUMENT"), "components[0].format"),
        ("/components/0/type", json!("FOOTER"), "components"),
        (
            "/components/0/example",
            json!({}),
            "components[0].example.header_handle",
        ),
        ("/components/1/text", json!("x".repeat(161)), "components[1].text"),
        ("/components/1/text", json!("Por {{2}}."), "components[1].text"),
        ("/components/1/example", json!({}), "components[1].example.body_text"),
        (
            "/components/2/buttons/0/text",
            json!(""),
            "components[2].buttons[0].text",
        ),
    ] {
        let named = error_fields(&changed(path, value));
        assert!(
            named.contains(&format!("carousel_cards[1].{field}")),
            "{path}: {named:?}"
        );
    }
    let button = json!({ "type": "QUICK_REPLY", "text": "x" });
    let too_many_buttons = changed("/components/2/buttons", json!([button, button, button]));
    assert!(error_fields(&too_many_buttons).contains(&"carousel_cards[1].components[2].buttons".to_owned()));
    let headed = Template {
        header_type: HeaderType::Image,
        header_media_url: Some("https://x".into()),
        ..carousel(vec![image.clone(), image])
    };
    assert_eq!(error_fields(&headed), ["header_type"]);
}

/// A media store with a file of each type, and a function that returns their URLs.
fn media_store() -> (Arc<FakeMediaStore>, impl Fn(AccountId, MediaType) -> String) {
    let path = |account_id, kind| MediaPath {
        account_id,
        id: Uuid::from_u128(7),
        kind,
    };
    let media_store = Arc::<FakeMediaStore>::default();
    for &kind in MediaType::ALL {
        for account in [ACCOUNT, AccountId(Uuid::from_u128(1))] {
            let mut files = media_store.files.lock().unwrap();
            files.insert(path(account, kind).to_string(), b"content".to_vec());
        }
    }
    (media_store, move |account, kind| {
        format!("https://media.example/{}", path(account, kind))
    })
}

/// The submission that WhatsApp received and the files uploaded before it, or the error.
async fn submitted(
    template: Template,
    media_store: &Arc<FakeMediaStore>,
) -> Result<(TemplateSubmission, Vec<String>), TemplateError> {
    let mut store = MockTemplateStore::new();
    store.expect_find().return_once(move |_, _| Ok(Some(template)));
    store.expect_update().returning(|_, _, _| Ok(WriteOutcome::Done));
    let mut profiles = MockProfileStore::new();
    profiles.expect_default_profile().returning(|_| Ok(Some(number())));
    let mut gateway = MockWhatsappGateway::new();
    let received = Arc::new(Mutex::new((None, vec![])));
    let recorder = received.clone();
    gateway.expect_upload_header().returning(move |_, file| {
        recorder.lock().unwrap().1.push(file.path.to_string());
        Ok(format!("4::{}", file.path.kind.extension()))
    });
    let recorder = received.clone();
    gateway.expect_submit_template().returning(move |_, submission, _| {
        recorder.lock().unwrap().0 = Some(submission.clone());
        Ok(SubmittedTemplate {
            meta_template_id: "594".into(),
            status: "PENDING".into(),
            category: "MARKETING".into(),
        })
    });
    let templates = with_files(store, profiles, gateway, media_store);
    let result = templates.submit(&tenant(), TemplateId(Uuid::from_u128(3)), None).await;
    let (submission, files) = received.lock().unwrap().clone();
    match result {
        Ok(_) => Ok((submission.unwrap(), files)),
        Err(error) => {
            assert_eq!((submission, files.len()), (None, 0), "nothing reached WhatsApp");
            Err(error)
        }
    }
}

#[tokio::test]
async fn submitted_files_become_handles() {
    let (media_store, url) = media_store();
    for (header_type, kind) in [
        (HeaderType::Image, MediaType::Jpeg),
        (HeaderType::Image, MediaType::Png),
        (HeaderType::Video, MediaType::Mp4),
        (HeaderType::Document, MediaType::Pdf),
    ] {
        let template = with(|t| {
            t.header_type = header_type;
            t.header_media_url = Some(url(ACCOUNT, kind));
        });
        let (submission, files) = submitted(template, &media_store).await.unwrap();
        let expected = HeaderSubmission::File {
            format: header_type,
            handle: format!("4::{}", kind.extension()),
        };
        assert_eq!((submission.header, files.len()), (Some(expected), 1));
    }
    let image_card = card("IMAGE", &url(ACCOUNT, MediaType::Png));
    let template = carousel(vec![image_card.clone(), image_card]);
    let (submission, files) = submitted(template, &media_store).await.unwrap();
    assert_eq!(files.len(), 2);
    for card in submission.cards {
        assert_eq!(card.header().unwrap().file.as_deref(), Some("4::png"));
    }
}

#[tokio::test]
async fn submission_needs_an_own_file_of_an_accepted_type() {
    let (media_store, url) = media_store();
    let deleted = url(ACCOUNT, MediaType::Png).replace("0007", "0008");
    for (header_type, address) in [
        (HeaderType::Image, url(ACCOUNT, MediaType::Webp)),
        (HeaderType::Image, url(ACCOUNT, MediaType::Pdf)),
        (HeaderType::Video, url(ACCOUNT, MediaType::Png)),
        (HeaderType::Image, url(AccountId(Uuid::from_u128(1)), MediaType::Png)),
        (HeaderType::Image, deleted),
        (HeaderType::Image, "http://169.254.169.254/latest/meta-data".to_owned()),
    ] {
        let template = with(|t| {
            t.header_type = header_type;
            t.header_media_url = Some(address.clone());
        });
        let refused = submitted(template, &media_store).await;
        let Err(TemplateError::Invalid(errors)) = refused else {
            panic!("{address}: {refused:?}")
        };
        assert_eq!(errors.0.into_keys().collect::<Vec<_>>(), ["header_media_url"]);
    }
    let foreign = card("VIDEO", "https://elsewhere.example/a.mp4");
    let own = card("VIDEO", &url(ACCOUNT, MediaType::Mp4));
    let Err(TemplateError::Invalid(errors)) = submitted(carousel(vec![own, foreign]), &media_store).await else {
        panic!()
    };
    let field = "carousel_cards[1].components[0].example.header_handle";
    assert_eq!(errors.0.into_keys().collect::<Vec<_>>(), [field]);
}

fn remote(number: usize) -> RemoteTemplate {
    RemoteTemplate {
        parameter_format: None,
        message_send_ttl_seconds: None,
        correct_category: None,
        meta_template_id: number.to_string(),
        name: format!("t{number}"),
        language: "pt_BR".into(),
        category: "UTILITY".into(),
        status: Some(MetaStatus::Approved),
        rejected_reason: None,
        quality_score: Some("GREEN".into()),
        components: vec![Component::from(&json!({ "type": "BODY", "text": "Oi" }))],
    }
}

async fn synced(last_page: Result<RemotePage, GatewayError>) -> Result<SyncReport, TemplateError> {
    let mut gateway = MockWhatsappGateway::new();
    let mut pages = vec![last_page];
    for page in (0..2_usize).rev() {
        let templates = (0..100).map(|at| remote(page * 100 + at)).collect();
        let next = Some(format!("after {page}"));
        pages.push(Ok(RemotePage { templates, next }));
    }
    let cursors = Mutex::new(vec![]);
    gateway.expect_list_templates().times(3).returning(move |_, after| {
        cursors.lock().unwrap().push(after.map(str::to_owned));
        pages.pop().unwrap()
    });
    let mut profiles = MockProfileStore::new();
    profiles.expect_default_profile().returning(|_| Ok(Some(number())));
    let mut store = MockTemplateStore::new();
    let local = Template {
        name: "t7".into(),
        meta_template_id: Some("7".into()),
        quality_score: Some("GREEN".into()),
        category: Category::Utility,
        ..approved_template("Oi", &[])
    };
    store.expect_named().times(1..=3).returning(move |_, keys| {
        assert!(keys.len() <= 100, "a page at a time");
        let key = TemplateKey::from(&local);
        Ok(keys.contains(&key).then(|| local.clone()).into_iter().collect())
    });
    store.expect_sync().returning(|_, templates| {
        let new = |synced: &&SyncedTemplate| matches!(synced, SyncedTemplate::New(_));
        let created = templates.iter().filter(new).count();
        Ok(SyncReport {
            created,
            updated: templates.len() - created,
            unchanged: 0,
        })
    });
    with_files(store, profiles, gateway, &Arc::default())
        .sync(&tenant(), None)
        .await
}

#[tokio::test]
async fn sync_reads_every_page_before_it_writes() {
    // The last page repeats a template of the first page.
    let last = RemotePage {
        templates: vec![remote(3), remote(200)],
        next: None,
    };
    let report = synced(Ok(last)).await.unwrap();
    assert_eq!((report.created, report.updated, report.unchanged), (200, 0, 1));
    let failed = synced(Err(GatewayError::Unavailable("down".into()))).await;
    assert!(matches!(failed, Err(TemplateError::Gateway(_))), "{failed:?}");
}
