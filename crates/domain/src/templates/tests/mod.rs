//! The rules and use cases of templates, with mocked ports.

mod check;
mod corpus;

use std::sync::Arc;

use time::macros::datetime;
use uuid::Uuid;

use super::*;
use crate::media::tests::{FakeMediaStore, media};
use crate::messaging::{
    Category, HeaderSubmission, HeaderType, MetaStatus, MockWhatsappGateway, ParameterFormat, SubmittedTemplate,
    TemplateSubmission, TextParameter,
};
use crate::shared::{
    AccountId, Event, FieldErrors, FolderId, GatewayError, MockCipher, MockClock, MockIds, ProfileId, Role, Sealed,
    StoreError, TemplateId, Tenant, UserId, WRITE_ATTEMPTS, WriteOutcome,
};
use crate::whatsapp::verification::{NumberFacts, VerificationRecord};
use crate::whatsapp::{MockProfileStore, Profile, StoredProfile};

const NOW: time::OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

/// A template that WhatsApp has approved. Tests of other contexts use it too.
pub(crate) fn approved_template(body: &str, examples: &[&str]) -> Template {
    Template {
        id: TemplateId(Uuid::from_u128(3)),
        account_id: AccountId(Uuid::from_u128(9)),
        name: "boas_vindas".into(),
        category: Category::Marketing,
        category_change: None,
        correct_category: None,
        language: "pt_BR".into(),
        template_type: TemplateType::Standard,
        parameter_format: ParameterFormat::Positional,
        header_type: HeaderType::None,
        header_text: None,
        header_media_url: None,
        body_text: Some(body.into()),
        footer_text: None,
        buttons: vec![],
        limited_time_offer: None,
        message_send_ttl_seconds: None,
        variables: examples.iter().map(|&example| example.to_owned()).collect(),
        carousel_cards: vec![],
        folder_id: None,
        profile_id: Some(ProfileId(Uuid::from_u128(4))),
        meta_template_id: Some("77".into()),
        meta_status: MetaStatus::Approved,
        rejection_reason: None,
        rejection_recommendation: None,
        quality_score: None,
        unsupported: vec![],
        created_at: NOW,
        updated_at: NOW,
        version: 1,
    }
}

/// The submission of a template, or the rules that it breaks.
pub(super) fn checked_submission(template: &Template) -> Result<TemplateSubmission, FieldErrors> {
    submission_rules::check(template).into_result()?;
    Ok(TemplateSubmission::of(template))
}

pub(super) fn tenant() -> Tenant {
    Tenant::for_tests(AccountId(Uuid::from_u128(9)), UserId(Uuid::from_u128(8)), Role::Member)
}

pub(super) fn input() -> TemplateInput {
    TemplateInput {
        name: Some("boas_vindas".into()),
        category: Some("MARKETING".into()),
        language: Some("pt_BR".into()),
        template_type: Some("standard".into()),
        body_text: Some(Some("Oi {{1}}, use {{2}} hoje.".into())),
        example_values: Some(Some(vec!["Ana".into(), "PROMO10".into()])),
        ..TemplateInput::default()
    }
}

pub(super) fn templates(
    store: MockTemplateStore,
    profiles: MockProfileStore,
    gateway: MockWhatsappGateway,
) -> Templates {
    with_files(store, profiles, gateway, &Arc::default())
}

pub(super) fn with_files(
    store: MockTemplateStore,
    profiles: MockProfileStore,
    gateway: MockWhatsappGateway,
    media_store: &Arc<FakeMediaStore>,
) -> Templates {
    let mut cipher = MockCipher::new();
    cipher.expect_open().returning(|_, _| Some("token".into()));
    let mut clock = MockClock::new();
    clock.expect_now().return_const(NOW);
    let mut ids = MockIds::new();
    ids.expect_next().returning(|| Uuid::from_u128(1));
    let (store, profiles, gateway) = (Arc::new(store), Arc::new(profiles), Arc::new(gateway));
    Templates::new(
        store,
        profiles,
        gateway,
        media(media_store),
        Arc::new(cipher),
        Arc::new(clock),
        Arc::new(ids),
    )
}

#[tokio::test]
async fn new_template_is_a_draft_with_examples_as_variables() {
    let mut store = MockTemplateStore::new();
    store.expect_insert().returning(|_| Ok(()));
    let made = templates(store, MockProfileStore::new(), MockWhatsappGateway::new())
        .create(&tenant(), input())
        .await;
    let made = made.unwrap();
    assert_eq!((made.meta_status, made.variables.len()), (MetaStatus::Draft, 2));
}

#[tokio::test]
async fn changed_content_is_a_draft_and_a_changed_folder_is_not() {
    let update = async |stored: Template, input: TemplateInput| {
        let mut store = MockTemplateStore::new();
        store.expect_find().return_once(move |_, _| Ok(Some(stored)));
        store.expect_update().returning(|_, _, _| Ok(WriteOutcome::Done));
        let templates = templates(store, MockProfileStore::new(), MockWhatsappGateway::new());
        templates.update(&tenant(), TemplateId(Uuid::from_u128(3)), input).await
    };
    let stored = || approved_template("Oi {{1}}!", &["Ana"]);
    let body = TemplateInput {
        body_text: Some(Some("Olá {{1}}!".into())),
        ..TemplateInput::default()
    };
    let edited = update(stored(), body.clone()).await.unwrap();
    assert_eq!(
        (edited.meta_status, edited.meta_template_id.as_deref()),
        (MetaStatus::Draft, Some("77"))
    );
    let renamed = TemplateInput {
        name: Some("outro".into()),
        ..TemplateInput::default()
    };
    assert_eq!(update(stored(), renamed).await.unwrap().meta_template_id, None);
    let folder = Some(Some(FolderId(Uuid::nil())));
    let moved = update(
        stored(),
        TemplateInput {
            folder_id: folder,
            ..TemplateInput::default()
        },
    )
    .await
    .unwrap();
    assert_eq!(moved.meta_status, MetaStatus::Approved);
    let pending = Template {
        meta_status: MetaStatus::Pending,
        ..stored()
    };
    assert!(matches!(update(pending, body).await, Err(TemplateError::Invalid(_))));
}

pub(super) fn number() -> StoredProfile {
    let profile = Profile {
        id: ProfileId(Uuid::from_u128(4)),
        name: "Loja".into(),
        phone_number_id: "1065".into(),
        waba_id: "1022".into(),
        messages_per_second: None,
        created_at: NOW,
        updated_at: NOW,
        verification: VerificationRecord::verified(NOW).verification,
        number: NumberFacts::default(),
    };
    StoredProfile {
        profile,
        token: Sealed(vec![1]),
        version: 1,
        credentials_version: 1,
        verification_version: 1,
        history: VerificationRecord::verified(NOW).history,
    }
}

fn draft() -> Template {
    Template {
        meta_status: MetaStatus::Draft,
        meta_template_id: None,
        ..approved_template("Oi {{1}}!", &["Ana"])
    }
}

async fn submit(
    template: Template,
    profile: Option<StoredProfile>,
    response: Result<SubmittedTemplate, GatewayError>,
    write: Result<WriteOutcome<MetaStatus>, StoreError>,
) -> Result<Submission, TemplateError> {
    let mut store = MockTemplateStore::new();
    store.expect_find().return_once(move |_, _| Ok(Some(template)));
    store
        .expect_update()
        .withf(|template, expected, events| {
            template.meta_status == MetaStatus::Pending
                && template.meta_template_id.as_deref() == Some("594")
                && expected.meta_status == MetaStatus::Draft
                && matches!(events, [Event::Notification(_)])
        })
        .return_once(|_, _, _| write);
    let mut profiles = MockProfileStore::new();
    profiles.expect_default_profile().return_once(|_| Ok(profile));
    let mut gateway = MockWhatsappGateway::new();
    gateway.expect_submit_template().return_once(|_, _, _| response);
    templates(store, profiles, gateway)
        .submit(&tenant(), TemplateId(Uuid::from_u128(3)), None)
        .await
}

fn accepted() -> Result<SubmittedTemplate, GatewayError> {
    let (meta_template_id, status) = ("594".into(), "PENDING".into());
    Ok(SubmittedTemplate {
        meta_template_id,
        status,
        category: "MARKETING".into(),
    })
}

#[tokio::test]
async fn submitted_template_is_pending_and_notified() {
    let submission = submit(draft(), Some(number()), accepted(), Ok(WriteOutcome::Done))
        .await
        .unwrap();
    assert_eq!(
        (submission.meta_template_id.as_str(), submission.status.as_str()),
        ("594", "PENDING")
    );
}

#[tokio::test]
async fn submission_is_refused_by_state_number_or_whatsapp() {
    let done = || Ok(WriteOutcome::Done);
    let no_number = submit(draft(), None, accepted(), done()).await;
    assert!(matches!(no_number, Err(TemplateError::Invalid(e)) if e.0.contains_key("profile_id")));
    let approved = submit(approved_template("Oi", &[]), Some(number()), accepted(), done()).await;
    assert!(matches!(approved, Err(TemplateError::Invalid(e)) if e.0.contains_key("meta_status")));
    let bodyless = submit(
        Template {
            body_text: None,
            ..draft()
        },
        Some(number()),
        accepted(),
        done(),
    )
    .await;
    assert!(matches!(bodyless, Err(TemplateError::Invalid(e)) if e.0.contains_key("body_text")));
    let refused = Err(GatewayError::Refused {
        code: 2_388_019,
        message: "too many".into(),
    });
    let refused = submit(draft(), Some(number()), refused, done()).await;
    assert!(matches!(refused, Err(TemplateError::Gateway(_))));
}

#[tokio::test]
async fn change_during_submission_stays_and_meta_id_is_stored() {
    let changed = || Template {
        body_text: Some("Novo texto, {{1}}!".into()),
        updated_at: NOW + time::Duration::SECOND,
        ..draft()
    };
    let mut store = MockTemplateStore::new();
    store.expect_find().times(1).return_once(|_, _| Ok(Some(draft())));
    store.expect_find().returning(move |_, _| Ok(Some(changed())));
    let stale = WriteOutcome::Stale(MetaStatus::Draft);
    store.expect_update().times(1).return_once(move |_, _, _| Ok(stale));
    store
        .expect_update()
        .times(1)
        .withf(move |template, expected, events| {
            let expected_template = Template {
                meta_template_id: Some("594".into()),
                profile_id: template.profile_id,
                ..changed()
            };
            *template == expected_template && *expected == changed() && events.is_empty()
        })
        .return_once(|_, _, _| Ok(WriteOutcome::Done));
    let mut profiles = MockProfileStore::new();
    profiles.expect_default_profile().return_once(|_| Ok(Some(number())));
    let mut gateway = MockWhatsappGateway::new();
    gateway.expect_submit_template().return_once(|_, _, _| accepted());
    let submitted = templates(store, profiles, gateway)
        .submit(&tenant(), TemplateId(Uuid::from_u128(3)), None)
        .await;
    assert!(
        matches!(submitted, Err(TemplateError::ChangedDuringSubmission)),
        "{submitted:?}"
    );
}

#[tokio::test]
async fn update_is_repeated_after_concurrent_change() {
    for (stale, succeeds) in [(WRITE_ATTEMPTS - 1, true), (WRITE_ATTEMPTS, false)] {
        let mut store = MockTemplateStore::new();
        store
            .expect_find()
            .times(WRITE_ATTEMPTS)
            .returning(|_, _| Ok(Some(draft())));
        let lost = || Ok(WriteOutcome::Stale(MetaStatus::Draft));
        store.expect_update().times(stale).returning(move |_, _, _| lost());
        store.expect_update().returning(|_, _, _| Ok(WriteOutcome::Done));
        let templates = templates(store, MockProfileStore::new(), MockWhatsappGateway::new());
        let input = TemplateInput {
            footer_text: Some(Some("Loja".into())),
            ..TemplateInput::default()
        };
        let updated = templates.update(&tenant(), TemplateId(Uuid::from_u128(3)), input).await;
        assert_eq!(updated.is_ok(), succeeds);
    }
}

#[test]
fn submission_header_and_body_share_one_numbering() {
    let template = Template {
        header_type: HeaderType::Text,
        header_text: Some("Cupom {{2}}".into()),
        ..approved_template("Oi {{1}}, {{2}} e {{1}}.", &["Ana", "X5"])
    };
    let submission = TemplateSubmission::of(&template);
    let header = HeaderSubmission::Text("Cupom {{2}}".into(), vec![TextParameter::numbered("X5")]);
    assert_eq!(submission.header, Some(header));
    assert_eq!(submission.body.unwrap().1, ["Ana", "X5"].map(TextParameter::numbered));
}
