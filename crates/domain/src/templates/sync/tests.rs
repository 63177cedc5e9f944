//! What a synchronization changes.

use serde_json::json;
use time::macros::datetime;
use uuid::Uuid;

use super::*;
use crate::messaging::{Category, Component, HeaderType, LimitedTimeOffer, ParameterFormat};
use crate::templates::TemplateType;
use crate::templates::tests::approved_template;

const PROFILE: ProfileId = ProfileId(Uuid::from_u128(4));
const LATER: time::OffsetDateTime = datetime!(2026-03-02 12:00 UTC);

fn remote() -> RemoteTemplate {
    RemoteTemplate {
        meta_template_id: "77".into(),
        name: "boas_vindas".into(),
        language: "pt_BR".into(),
        category: "MARKETING".into(),
        correct_category: None,
        status: Some(MetaStatus::Approved),
        rejected_reason: Some("NONE".into()),
        quality_score: None,
        parameter_format: None,
        message_send_ttl_seconds: None,
        components: vec![],
    }
}

fn new_draft() -> Template {
    Template {
        updated_at: LATER,
        variables: vec![],
        meta_status: MetaStatus::Draft,
        body_text: None,
        ..approved_template("", &[])
    }
}

fn is_own_file(url: &str) -> bool {
    url.starts_with("https://media.example/")
}

fn changed(local: &Template, remote: &RemoteTemplate) -> Option<Template> {
    match reconcile(Some(local), remote, PROFILE, new_draft(), &is_own_file) {
        Some(SyncedTemplate::Changed { template, pause_reason }) => {
            assert_eq!((template.version, template.updated_at), (local.version, LATER));
            assert_eq!(
                pause_reason.is_some(),
                matches!(remote.status, Some(MetaStatus::Paused | MetaStatus::Disabled))
            );
            Some(template)
        }
        Some(SyncedTemplate::New(new)) => panic!("{new:?}"),
        None => None,
    }
}

#[test]
fn sync_of_an_equal_template_changes_nothing() {
    assert_eq!(changed(&approved_template("Oi", &[]), &remote()), None);
}

#[test]
fn sync_takes_the_review_and_the_content() {
    let local = approved_template("Oi", &[]);
    let rejected = RemoteTemplate {
        status: Some(MetaStatus::Rejected),
        rejected_reason: Some("SCAM".into()),
        category: "UTILITY".into(),
        quality_score: Some("RED".into()),
        components: components(&json!([{ "type": "BODY", "text": "Outro" }])),
        ..remote()
    };
    let synced = changed(&local, &rejected).unwrap();
    assert_eq!(
        (synced.meta_status, synced.rejection_reason.as_deref()),
        (MetaStatus::Rejected, Some("SCAM"))
    );
    assert_eq!(
        (synced.category, synced.quality_score.as_deref()),
        (Category::Utility, Some("RED"))
    );
    assert_eq!(synced.body_text.as_deref(), Some("Outro"));
    for status in [MetaStatus::Paused, MetaStatus::Disabled] {
        let stopped = RemoteTemplate {
            status: Some(status),
            ..remote()
        };
        assert_eq!(changed(&local, &stopped).unwrap().meta_status, status);
    }
    let unknown = RemoteTemplate {
        status: None,
        ..remote()
    };
    assert_eq!(changed(&local, &unknown), None);
}

#[test]
fn sync_of_a_draft_only_sets_its_meta_id() {
    let draft = Template {
        meta_status: MetaStatus::Draft,
        meta_template_id: None,
        profile_id: None,
        ..approved_template("Escrito aqui", &[])
    };
    let synced = changed(&draft, &remote()).unwrap();
    assert_eq!(
        (synced.meta_status, synced.category),
        (MetaStatus::Draft, draft.category)
    );
    assert_eq!(
        (synced.meta_template_id.as_deref(), synced.profile_id),
        (Some("77"), Some(PROFILE))
    );
    assert_eq!(synced.body_text, draft.body_text);
}

#[test]
fn sync_skips_a_template_of_another_number() {
    let of_other_number = Template {
        profile_id: Some(ProfileId(Uuid::from_u128(6))),
        meta_template_id: Some("66".into()),
        meta_status: MetaStatus::Pending,
        ..approved_template("Oi", &[])
    };
    assert_eq!(changed(&of_other_number, &remote()), None);
    let same = Template {
        meta_template_id: Some("77".into()),
        ..of_other_number
    };
    let synced = changed(&same, &remote()).unwrap();
    assert_eq!(
        (synced.meta_status, synced.profile_id),
        (MetaStatus::Approved, same.profile_id)
    );
}

fn components(json: &serde_json::Value) -> Vec<Component> {
    json.as_array().unwrap().iter().map(Component::from).collect()
}

fn new(json: &serde_json::Value) -> Template {
    let remote = RemoteTemplate {
        components: components(json),
        ..remote()
    };
    match reconcile(None, &remote, PROFILE, new_draft(), &is_own_file) {
        Some(SyncedTemplate::New(template)) => template,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sync_reads_components_into_fields() {
    let template = new(&json!([
        { "type": "HEADER", "format": "TEXT", "text": "Cupom {{1}}", "example": { "header_text": ["X5"] } },
        { "type": "BODY", "text": "Oi {{1}}, {{2}} e {{1}}.", "example": { "body_text": [["Ana", "hoje"]] } },
        { "type": "FOOTER", "text": "SAIR" },
        { "type": "BUTTONS", "buttons": [{ "type": "QUICK_REPLY", "text": "Sair" }] } ]));
    assert_eq!(
        (template.header_type, template.header_text.as_deref()),
        (HeaderType::Text, Some("Cupom {{1}}"))
    );
    assert_eq!(template.body_text.as_deref(), Some("Oi {{2}}, {{3}} e {{2}}."));
    assert_eq!(template.variables, ["X5", "Ana", "hoje"]);
    assert_eq!(
        (template.footer_text.as_deref(), template.buttons.len()),
        (Some("SAIR"), 1)
    );
    assert_eq!(
        (template.meta_status, template.profile_id),
        (MetaStatus::Approved, Some(PROFILE))
    );
}

#[test]
fn sync_reads_named_placeholders_with_examples() {
    let named = |format: Option<&str>| RemoteTemplate {
        parameter_format: format.map(str::to_owned),
        components: components(&json!([
            { "type": "HEADER", "format": "TEXT", "text": "Cupom de {{nome}}",
              "example": { "header_text_named_params": [{ "param_name": "nome", "example": "Ana" }] } },
            { "type": "BODY", "text": "Use {{cupom}}, {{nome}}, até {{dia}}.",
              "example": { "body_text_named_params": [{ "param_name": "cupom", "example": "X5" }] } } ])),
        ..remote()
    };
    for format in [Some("NAMED"), None] {
        let Some(SyncedTemplate::New(template)) = reconcile(None, &named(format), PROFILE, new_draft(), &is_own_file)
        else {
            panic!()
        };
        assert_eq!(template.parameter_format, ParameterFormat::Named);
        assert_eq!(
            template.body_text.as_deref(),
            Some("Use {{cupom}}, {{nome}}, até {{dia}}.")
        );
        assert_eq!(template.variables, ["Ana", "X5", ""]);
    }
    // A template that an older version imported as numbered is converted.
    let before = Template {
        body_text: Some("Use {{cupom}}, {{nome}}, até {{dia}}.".into()),
        folder_id: Some(crate::shared::FolderId(Uuid::nil())),
        ..approved_template("", &[])
    };
    let synced = changed(&before, &named(Some("NAMED"))).unwrap();
    assert_eq!(
        (synced.parameter_format, synced.variables.len(), synced.folder_id),
        (ParameterFormat::Named, 3, before.folder_id)
    );
    assert_eq!(changed(&synced, &named(Some("NAMED"))), None);
    let draft = Template {
        meta_status: MetaStatus::Draft,
        ..before
    };
    assert_eq!(changed(&draft, &named(Some("NAMED"))).map(|t| t.parameter_format), None);
}

#[test]
fn sync_records_unsupported_parts() {
    let json = json!([{ "type": "HEADER", "format": "PRODUCT" }, { "type": "BODY", "text": "Oi" }]);
    assert_eq!(new(&json).unsendable_reasons(), ["unsupported_header:product"]);
    let remote = RemoteTemplate {
        components: components(&json),
        ..remote()
    };
    let synced = changed(&approved_template("Oi", &[]), &remote).unwrap();
    assert_eq!(synced.unsendable_reasons(), ["unsupported_header:product"]);
    let mixed_format = RemoteTemplate {
        parameter_format: Some("MIXED".into()),
        ..self::remote()
    };
    let synced = changed(&approved_template("Oi", &[]), &mixed_format).unwrap();
    assert_eq!(synced.unsendable_reasons(), ["unsupported_parameter_format"]);
}

#[test]
fn sync_reads_locations_offers_and_delivery_times() {
    let json = json!([{ "type": "HEADER", "format": "LOCATION" },
        { "type": "LIMITED_TIME_OFFER", "limited_time_offer": { "text": "Hoje", "has_expiration": true } },
        { "type": "BODY", "text": "Oi" }]);
    let created = new(&json);
    let offer = Some(LimitedTimeOffer {
        text: "Hoje".into(),
        has_expiration: true,
    });
    assert_eq!(
        (created.header_type, &created.limited_time_offer),
        (HeaderType::Location, &offer)
    );
    assert_eq!(created.unsendable_reasons(), Vec::<String>::new());
    let remote = RemoteTemplate {
        components: components(&json),
        message_send_ttl_seconds: Some(43_200),
        ..remote()
    };
    // An older version stored the template without both parts.
    let before = Template {
        unsupported: vec!["unsupported_header:location".into()],
        ..approved_template("Oi", &[])
    };
    let synced = changed(&before, &remote).unwrap();
    assert_eq!(
        (synced.header_type, &synced.limited_time_offer),
        (HeaderType::Location, &offer)
    );
    assert_eq!(
        (synced.message_send_ttl_seconds, synced.unsendable_reasons().len()),
        (Some(43_200), 0)
    );
    let without_offer = RemoteTemplate {
        components: components(&json!([{ "type": "HEADER", "format": "LOCATION" }])),
        ..self::remote()
    };
    let synced = changed(&synced, &without_offer).unwrap();
    assert_eq!(
        (synced.limited_time_offer, synced.message_send_ttl_seconds),
        (None, Some(43_200))
    );
    let unreadable = json!([{ "type": "LIMITED_TIME_OFFER" }, { "type": "BODY", "text": "Oi" }]);
    let reasons = new(&unreadable).unsendable_reasons();
    assert_eq!(reasons, ["unsupported_component:limited_time_offer"]);
}

#[test]
fn sync_reads_the_right_category() {
    let remote = |correct: Option<&str>, category: &str| RemoteTemplate {
        correct_category: correct.map(str::to_owned),
        category: category.into(),
        ..remote()
    };
    let warned = changed(&approved_template("Oi", &[]), &remote(Some("UTILITY"), "MARKETING")).unwrap();
    assert_eq!(
        (warned.category, warned.correct_category),
        (Category::Marketing, Some(Category::Utility))
    );
    assert_eq!(changed(&warned, &remote(None, "MARKETING")), None);
    let moved = changed(&warned, &remote(Some("UTILITY"), "UTILITY")).unwrap();
    assert_eq!((moved.category, moved.correct_category), (Category::Utility, None));
    let wrong = approved_template("Oi", &[]);
    assert_eq!(changed(&wrong, &remote(Some("MARKETING"), "MARKETING")), None);
}

#[test]
fn sync_keeps_the_recommendation_of_the_same_rejection() {
    let rejected = Template {
        meta_status: MetaStatus::Rejected,
        rejection_reason: Some("SCAM".into()),
        rejection_recommendation: Some("Change it".into()),
        ..approved_template("Oi", &[])
    };
    let remote = |reason: &str| RemoteTemplate {
        status: Some(MetaStatus::Rejected),
        rejected_reason: Some(reason.into()),
        ..remote()
    };
    assert_eq!(changed(&rejected, &remote("SCAM")), None);
    assert_eq!(
        changed(&rejected, &remote("PROMOTIONAL"))
            .unwrap()
            .rejection_recommendation,
        None
    );
}

#[test]
fn sync_reads_files_cards_and_missing_examples() {
    let header = json!({ "type": "HEADER", "format": "image", "example": { "header_handle": ["https://cdn/x"] } });
    let card = json!({ "components": [header] });
    let template = new(&json!([header, { "type": "BODY", "text": "Oi {{1}}!" },
        { "type": "CAROUSEL", "cards": [card, card] }]));
    assert_eq!(template.header_type, HeaderType::Image);
    assert_eq!(template.header_media_url.as_deref(), Some("https://cdn/x"));
    assert_eq!(template.variables, [""]);
    assert_eq!(
        (template.template_type, template.carousel_cards.len()),
        (TemplateType::Carousel, 2)
    );
}

/// The template as it was submitted, and as WhatsApp lists it.
fn submitted() -> (Template, serde_json::Value) {
    let local = Template {
        header_type: HeaderType::Text,
        header_text: Some("Cupom {{2}}".into()),
        footer_text: Some("Loja".into()),
        buttons: vec![
            json!({ "type": "url", "text": "Ver", "url": "https://l.example/{{1}}", "example": "a" }).into(),
            json!({ "type": "QUICK_REPLY", "text": "Sair" }).into(),
        ],
        ..approved_template("Oi {{1}}, use {{2}} até {{3}}.", &["Ana", "X5", "hoje"])
    };
    let listed = json!([
        { "type": "HEADER", "format": "TEXT", "text": "Cupom {{1}}", "example": { "header_text": ["X5"] } },
        { "type": "BODY", "text": "Oi {{1}}, use {{2}} até {{3}}.", "example": { "body_text": [["Ana", "X5", "hoje"]] } },
        { "type": "FOOTER", "text": "Loja" },
        { "type": "BUTTONS", "buttons": [
            { "type": "URL", "text": "Ver", "url": "https://l.example/{{1}}", "example": ["a"] },
            { "type": "QUICK_REPLY", "text": "Sair" }] } ]);
    (local, listed)
}

fn listed(components_json: &serde_json::Value) -> RemoteTemplate {
    RemoteTemplate {
        components: components(components_json),
        ..remote()
    }
}

#[test]
fn sync_keeps_the_form_of_equal_content() {
    let (local, json) = submitted();
    assert_eq!(changed(&local, &listed(&json)), None);
    // WhatsApp writes the text of these, and lists their button as a URL.
    let otp = Template {
        category: Category::Authentication,
        buttons: vec![json!({ "type": "OTP", "otp_type": "COPY_CODE" }).into()],
        ..approved_template("{{1}}", &["123456"])
    };
    let url = "https://www.whatsapp.com/otp/code/?otp_type=COPY_CODE&code=otp{{1}}";
    let json = json!([{ "type": "BODY" }, { "type": "BUTTONS", "buttons": [
        { "type": "URL", "text": "Copiar", "url": url, "example": ["otp123456"] }] }]);
    let remote = RemoteTemplate {
        category: "AUTHENTICATION".into(),
        ..listed(&json)
    };
    assert_eq!(changed(&otp, &remote), None);
}

#[test]
fn sync_refreshes_what_whatsapp_changed() {
    let (local, json) = submitted();
    let mut edited = json.clone();
    edited[1]["example"]["body_text"][0] = json!(["Bia", "Y7", ""]);
    let synced = changed(&local, &listed(&edited)).unwrap();
    assert_eq!(
        (&synced.variables, &synced.body_text),
        (&vec!["Bia".to_owned(), "Y7".into(), "hoje".into()], &local.body_text)
    );
    let mut edited = json.clone();
    edited[3]["buttons"][0]["example"] = json!(["b"]);
    let synced = changed(&local, &listed(&edited)).unwrap();
    assert_eq!(synced.buttons[0].example.as_deref(), Some("b"));
    let mut edited = json.clone();
    edited[1] = json!({ "type": "BODY", "text": "Oi {{1}}!", "example": { "body_text": [["Bia"]] } });
    edited[2] = json!({ "type": "BUTTONS", "buttons": [{ "type": "FLOW", "text": "Agendar", "flow_id": "7" }] });
    edited[3].take();
    let synced = changed(&local, &listed(&edited)).unwrap();
    assert_eq!(
        (synced.header_text.as_deref(), synced.body_text.as_deref()),
        (Some("Cupom {{1}}"), Some("Oi {{2}}!"))
    );
    assert_eq!(
        (synced.variables.as_slice(), &synced.footer_text),
        (["X5".to_owned(), "Bia".into()].as_slice(), &None)
    );
    assert!(
        synced
            .unsendable_reasons()
            .contains(&"unsupported_button:flow".to_owned())
    );
    assert_eq!(changed(&synced, &listed(&edited)), None);
    let body = json!([{ "type": "BODY", "text": "Oi!" }]);
    let synced = changed(&local, &listed(&body)).unwrap();
    assert_eq!(
        (
            synced.header_type,
            &synced.header_text,
            synced.buttons.len(),
            synced.variables.len()
        ),
        (HeaderType::None, &None, 0, 0)
    );
    let draft = Template {
        meta_status: MetaStatus::Draft,
        ..local
    };
    assert_eq!(changed(&draft, &listed(&body)), None);
}

/// WhatsApp's URL of a file expires. That of an upload does not.
#[test]
fn sync_refreshes_only_the_files_of_whatsapp() {
    let header = |url: &str| json!({ "type": "HEADER", "format": "IMAGE", "example": { "header_handle": [url] } });
    let body = json!({ "type": "BODY", "text": "Oi" });
    let card = |url: &str| json!({ "components": [header(url)] });
    let list = |url: &str| listed(&json!([header(url), body, { "type": "CAROUSEL", "cards": [card(url), card(url)] }]));
    let with_file = |url: &str| Template {
        header_type: HeaderType::Image,
        header_media_url: Some(url.into()),
        template_type: TemplateType::Carousel,
        carousel_cards: vec![card(url).into(), card(url).into()],
        ..approved_template("Oi", &[])
    };
    let own = with_file("https://media.example/a.png");
    assert_eq!(changed(&own, &list("https://cdn.example/1")), None);
    let synced = changed(&with_file("https://cdn.example/1"), &list("https://cdn.example/2")).unwrap();
    let cards = synced
        .carousel_cards
        .iter()
        .map(|card| card.header().unwrap().file.clone());
    let files: Vec<_> = cards.chain([synced.header_media_url.clone()]).flatten().collect();
    assert_eq!(files, ["https://cdn.example/2"; 3]);
    assert_eq!(changed(&synced, &list("4::handle")), None);
}
