//! Tests of test sends with mocked ports: refusals, calls to WhatsApp and quota.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use time::Date;
use time::macros::date;
use uuid::Uuid;

use crate::billing::PlanEntitlement;
use crate::campaigns::service::tests::{NOW, campaign, tenant};
use crate::campaigns::*;
use crate::contacts::Phone;
use crate::media::tests::{FakeMediaStore, media};
use crate::media::{MediaPath, MediaType};
use crate::messaging::{
    BlockCause, ErrorClass, FileSource, HeaderType, MetaStatus, MockWhatsappGateway, SendOutcome, TextParameter,
};
use crate::shared::{
    AuditAction, CampaignId, Event, GatewayError, MockCipher, MockErrorReport, MockIds, ProfileId, Sealed, StoreError,
};
use crate::templates::Template;
use crate::templates::tests::approved_template;
use crate::whatsapp::verification::{NumberFacts, VerificationRecord};
use crate::whatsapp::{MessageFiles, MockFileIdStore, Profile, StoredProfile};

const ID: CampaignId = CampaignId(Uuid::from_u128(1));
const MONTH: Date = date!(2026 - 03 - 01);
const PHONE: &str = "+5511961234567";

fn profile() -> StoredProfile {
    StoredProfile {
        profile: Profile {
            id: ProfileId(Uuid::from_u128(4)),
            name: "Loja".into(),
            phone_number_id: "1065".into(),
            waba_id: "1022".into(),
            messages_per_second: None,
            created_at: NOW,
            updated_at: NOW,
            verification: VerificationRecord::verified(NOW).verification,
            number: NumberFacts::default(),
        },
        token: Sealed(vec![1]),
        version: 1,
        credentials_version: 1,
        verification_version: 1,
        history: VerificationRecord::verified(NOW).history,
    }
}

fn contact(name: &str, attributes: Value) -> TestSendContact {
    TestSendContact {
        recipient: Recipient {
            name: name.into(),
            phone: PHONE.into(),
            user_id: None,
            email: None,
            attributes: attributes.as_object().cloned().unwrap(),
        },
        opted_out: false,
    }
}

/// A completed campaign with a connected number, and a phone number without a contact.
fn facts() -> TestSendFacts {
    let template = approved_template("Oi {{1}}, use {{2}}.", &["Ana", "PROMO10"]);
    TestSendFacts {
        run: RunFacts {
            campaign: Campaign {
                template_id: Some(template.id),
                variables: Some(Variables([("2".to_owned(), "{attributes.coupon}".to_owned())].into())),
                ..campaign(CampaignStatus::Completed)
            },
            template: Some(template),
            content_frozen: false,
            profile_id: Some(ProfileId(Uuid::from_u128(4))),
            number_unverified: false,
            billing: PlanEntitlement {
                plan: "free".into(),
                granted: None,
                subscriptions: vec![],
            },
            late_policy: None,
            now: NOW,
        },
        profile: Some(profile()),
        contact: None,
    }
}

struct Fixture {
    store: MockTestSendStore,
    gateway: MockWhatsappGateway,
    media_store: Arc<FakeMediaStore>,
    /// Whether the cipher can open the access token.
    token_is_readable: bool,
    /// The calls of store, gateway and error report, in order.
    steps: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    /// Expects no call.
    fn bare() -> Self {
        Self {
            store: MockTestSendStore::new(),
            gateway: MockWhatsappGateway::new(),
            media_store: Arc::default(),
            token_is_readable: true,
            steps: Arc::default(),
        }
    }

    fn new(facts: TestSendFacts) -> Self {
        let mut fixture = Self::bare();
        fixture
            .store
            .expect_facts()
            .times(1)
            .withf(|_, id, to| *id == ID && *to == TestRecipient::Phone(Phone::parse(PHONE).unwrap()))
            .return_once(move |_, _, _| Ok(Some(facts)));
        fixture
    }

    /// The month has a message left.
    fn with_quota(mut self) -> Self {
        let steps = self.steps.clone();
        self.store
            .expect_reserve_message()
            .times(1)
            .returning(move |_, limit, events| {
                let [Event::Audit(audit)] = events else {
                    panic!("{events:?}")
                };
                assert_eq!(
                    (audit.action, audit.entity_type.as_str()),
                    (AuditAction::Create, "campaign_test")
                );
                assert_eq!(audit.entity_id, Some(ID.0));
                let changes = audit.changes.as_ref().unwrap().to_string();
                assert!(!changes.contains("96123"), "{changes}");
                steps.lock().unwrap().push(format!("reserve {limit} {changes}"));
                Ok(Some(MONTH))
            });
        self
    }

    /// Expects that the message is released; the store fails unless `succeeds`.
    fn expects_release(mut self, succeeds: bool) -> Self {
        let steps = self.steps.clone();
        self.store.expect_release_message().times(1).returning(move |_, month| {
            assert_eq!(month, MONTH);
            steps.lock().unwrap().push("release".into());
            if succeeds {
                Ok(())
            } else {
                Err(StoreError::Corrupt("x".into()))
            }
        });
        self
    }

    /// Expects one call to WhatsApp with these values, which ends with `outcome`.
    fn expects_call(mut self, body: &'static [&'static str], outcome: SendOutcome) -> Self {
        let steps = self.steps.clone();
        self.gateway
            .expect_send_template()
            .times(1)
            .return_once(move |credentials, message| {
                assert_eq!(
                    (credentials.phone_number_id.as_str(), message.to.value()),
                    ("1065", PHONE)
                );
                assert_eq!(
                    (message.body.as_slice(), message.send_id.0),
                    (
                        &body.iter().map(|&b| TextParameter::numbered(b)).collect::<Vec<_>>()[..],
                        Uuid::from_u128(8)
                    )
                );
                steps.lock().unwrap().push("call".into());
                outcome
            });
        self
    }

    async fn send(self) -> (Result<TestSendReport, TestSendError>, Vec<String>) {
        self.send_to("11 96123-4567").await
    }

    async fn send_to(self, phone: &str) -> (Result<TestSendReport, TestSendError>, Vec<String>) {
        let mut ids = MockIds::new();
        ids.expect_next().returning(|| Uuid::from_u128(8));
        let (mut cipher, is_readable) = (MockCipher::new(), self.token_is_readable);
        cipher
            .expect_open()
            .returning(move |_, _| is_readable.then(|| "token".into()));
        let mut file_ids = MockFileIdStore::new();
        file_ids.expect_find().returning(|_, _, _| Ok(None));
        file_ids.expect_store().returning(|_, _, _, _, _| Ok(()));
        let files = MessageFiles::new(media(&self.media_store), Arc::new(file_ids));
        let (store, gateway) = (Arc::new(self.store), Arc::new(self.gateway));
        let mut report = MockErrorReport::new();
        let steps = self.steps.clone();
        report
            .expect_swallowed()
            .returning(move |step, _| steps.lock().unwrap().push(step.to_string()));
        let test_sends = TestSends::new(store, gateway, files, Arc::new(cipher), Arc::new(report), Arc::new(ids));
        let to = TestSendInput {
            phone: Some(phone.to_owned()),
            ..TestSendInput::default()
        };
        let report = test_sends.send(&tenant(), ID, to).await;
        (report, self.steps.lock().unwrap().clone())
    }
}

fn accepted() -> SendOutcome {
    SendOutcome::Accepted {
        message_id: "wamid.1".into(),
        wa_id: None,
    }
}

async fn refused(facts: TestSendFacts) -> CampaignRefusal {
    let (report, steps) = Fixture::new(facts).send().await;
    assert_eq!(steps, Vec::<String>::new());
    match report {
        Err(TestSendError::Refused(refusal)) => refusal,
        unexpected => panic!("{unexpected:?}"),
    }
}

#[tokio::test]
async fn test_send_reserves_its_message_then_calls_once() {
    let fixture = Fixture::new(facts())
        .with_quota()
        .expects_call(&["Ana", "PROMO10"], accepted());
    let (report, steps) = fixture.send().await;
    let expected = TestSendReport {
        sent: true,
        simulated: false,
        wa_message_id: Some("wamid.1".into()),
    };
    assert_eq!(report.unwrap(), expected);
    assert_eq!(steps, [r#"reserve 250 {"simulated":false}"#, "call"]);
}

#[tokio::test]
async fn test_send_uses_the_values_of_the_contact() {
    let with_coupon = TestSendFacts {
        contact: Some(contact("Bia Lima", json!({ "coupon": "BIA5" }))),
        ..facts()
    };
    let fixture = Fixture::new(with_coupon)
        .with_quota()
        .expects_call(&["Bia", "BIA5"], accepted());
    fixture.send().await.0.unwrap();
    // The template's example replaces an empty value.
    let without_coupon = TestSendFacts {
        contact: Some(contact("Bia", json!({ "coupon": " " }))),
        ..facts()
    };
    let fixture = Fixture::new(without_coupon)
        .with_quota()
        .expects_call(&["Bia", "PROMO10"], accepted());
    fixture.send().await.0.unwrap();
}

#[tokio::test]
async fn test_send_without_a_number_is_simulated_and_counts() {
    let simulated = TestSendFacts {
        profile: None,
        ..facts()
    };
    let (report, steps) = Fixture::new(simulated).with_quota().send().await;
    let expected = TestSendReport {
        sent: true,
        simulated: true,
        wa_message_id: None,
    };
    assert_eq!(report.unwrap(), expected);
    assert_eq!(steps, [r#"reserve 250 {"simulated":true}"#]);
}

#[tokio::test]
async fn test_send_is_refused_by_each_failed_precondition() {
    let with = |change: fn(&mut TestSendFacts)| {
        let mut facts = facts();
        change(&mut facts);
        refused(facts)
    };
    assert_eq!(
        with(|facts| facts.run.template = None).await,
        CampaignRefusal::NoTemplate
    );
    let pending = with(|facts| facts.run.template.as_mut().unwrap().meta_status = MetaStatus::Pending);
    assert_eq!(pending.await, CampaignRefusal::TemplateNotApproved);
    assert_eq!(
        with(|facts| facts.run.billing.plan = "gold".into()).await,
        CampaignRefusal::NoActivePlan
    );
    let opted_out = with(|facts| {
        facts.contact = Some(TestSendContact {
            opted_out: true,
            ..contact("Bia", json!({}))
        });
    });
    assert_eq!(opted_out.await, CampaignRefusal::OptedOut);
    let empty = with(|facts| facts.run.template.as_mut().unwrap().variables[1] = " ".into());
    let placeholder = "2".into();
    assert_eq!(empty.await, CampaignRefusal::EmptyPlaceholder { placeholder });
}

#[tokio::test]
async fn test_send_is_refused_when_the_month_is_used_up() {
    let mut fixture = Fixture::new(facts());
    fixture
        .store
        .expect_reserve_message()
        .times(1)
        .returning(|_, _, _| Ok(None));
    let (report, _) = fixture.send().await;
    assert!(matches!(
        report,
        Err(TestSendError::Refused(CampaignRefusal::MonthUsedUp { limit: 250 }))
    ));
}

#[tokio::test]
async fn test_send_checks_the_phone_before_the_campaign() {
    for phone in ["", "letters", "+5511", "123"] {
        let (report, _) = Fixture::bare().send_to(phone).await;
        assert!(
            matches!(report, Err(TestSendError::Invalid(errors)) if errors.0.contains_key("phone")),
            "{phone}"
        );
    }
    let mut fixture = Fixture::bare();
    fixture.store.expect_facts().returning(|_, _, _| Ok(None));
    assert!(matches!(fixture.send().await.0, Err(TestSendError::NotFound)));
}

#[tokio::test]
async fn test_send_that_did_not_leave_releases_its_message() {
    let message = || "no".to_owned();
    let code = 131_026;
    let throttled = |code| SendOutcome::Throttled {
        code,
        scope: None,
        message: message(),
        retry_after: None,
    };
    let cases = [
        (
            SendOutcome::Failed {
                code,
                class: ErrorClass::Other,
                message: message(),
            },
            true,
        ),
        (
            SendOutcome::RunBlocked {
                code,
                cause: BlockCause::Token,
                message: message(),
            },
            true,
        ),
        (throttled(Some(code)), true),
        (throttled(None), false),
    ];
    for (outcome, has_code) in cases {
        for release_succeeds in [true, false] {
            let fixture = Fixture::new(facts())
                .with_quota()
                .expects_call(&["Ana", "PROMO10"], outcome.clone());
            let (report, steps) = fixture.expects_release(release_succeeds).send().await;
            match report {
                Err(TestSendError::Gateway(GatewayError::Refused { code: reported, .. })) => {
                    assert!(has_code && reported == code);
                }
                Err(TestSendError::Gateway(GatewayError::Unavailable(_))) => assert!(!has_code),
                unexpected => panic!("{unexpected:?}"),
            }
            let expected = ["call", "release", "return_test_quota"];
            assert_eq!(
                steps[1..],
                expected[..if release_succeeds { 2 } else { 3 }],
                "a failed release is reported"
            );
        }
    }
}

#[tokio::test]
async fn test_send_with_unknown_outcome_keeps_its_reservation() {
    let unknown = SendOutcome::Unknown {
        detail: "time-out".into(),
    };
    let fixture = Fixture::new(facts())
        .with_quota()
        .expects_call(&["Ana", "PROMO10"], unknown);
    let (report, steps) = fixture.send().await;
    assert!(matches!(report, Err(TestSendError::Unknown)));
    assert_eq!(steps.len(), 2);
}

/// A fixture whose template has an uploaded image as its header; the media store has the file or not.
fn with_header_image(is_stored: bool) -> Fixture {
    let path = MediaPath {
        account_id: tenant().account_id,
        id: Uuid::from_u128(5),
        kind: MediaType::Png,
    };
    let mut facts = facts();
    facts.run.template = facts.run.template.map(|template| Template {
        header_type: HeaderType::Image,
        header_media_url: Some(format!("https://media.example/{path}")),
        ..template
    });
    let fixture = Fixture::new(facts);
    if is_stored {
        fixture
            .media_store
            .files
            .lock()
            .unwrap()
            .insert(path.to_string(), b"png".to_vec());
    }
    fixture
}

#[tokio::test]
async fn test_send_uploads_files_before_the_message() {
    let mut fixture = with_header_image(true).with_quota();
    fixture
        .gateway
        .expect_upload_file()
        .times(1)
        .returning(|_, _| Ok("55".into()));
    fixture
        .gateway
        .expect_send_template()
        .times(1)
        .withf(|_, message| {
            let file = message.header_file.as_ref().unwrap();
            (file.kind, &file.source) == (HeaderType::Image, &FileSource::Id("55".into()))
        })
        .return_once(|_, _| accepted());
    fixture.send().await.0.unwrap();
    // A missing file, or one that WhatsApp does not accept, reserves nothing and sends nothing.
    let (missing, steps) = with_header_image(false).send().await;
    assert!(matches!(missing, Err(TestSendError::Unready(text)) if text.contains("no longer exists")));
    assert_eq!(steps, Vec::<String>::new());
    let mut fixture = with_header_image(true);
    fixture
        .gateway
        .expect_upload_file()
        .times(1)
        .returning(|_, _| Err(GatewayError::Unavailable("x".into())));
    assert!(matches!(
        fixture.send().await.0,
        Err(TestSendError::Gateway(GatewayError::Unavailable(_)))
    ));
}

#[tokio::test]
async fn test_send_with_an_unreadable_token_sends_nothing() {
    let mut fixture = Fixture::new(facts());
    fixture.token_is_readable = false;
    let (report, steps) = fixture.send().await;
    assert!(matches!(report, Err(TestSendError::Unready(text)) if text.contains("access token")));
    assert_eq!(steps, Vec::<String>::new());
}
