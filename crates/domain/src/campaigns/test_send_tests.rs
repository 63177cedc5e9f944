//! Tests of campaigns, with mocked ports: what is refused, what is called, what it costs.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use time::Date;
use time::macros::date;
use uuid::Uuid;

use super::service::tests::{NOW, campaign, tenant};
use super::*;
use crate::billing::PlanEntitlement;
use crate::media::tests::{FakeMediaStore, media};
use crate::media::{MediaPath, MediaType};
use crate::shared::{
    AuditAction, CampaignId, Event, GatewayError, MockCipher, MockErrorReport, MockIds, ProfileId, Sealed, StoreError,
};
use crate::templates::tests::approved_template;
use crate::templates::{HeaderType, MetaStatus, Template, TextParameter};
use crate::whatsapp::{FileSource, MessageFiles, MockFileIdStore, MockWhatsappGateway, Profile, StoredProfile};

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
        },
        token: Sealed(vec![1]),
        version: 1,
    }
}

fn contact(name: &str, attributes: Value) -> TestSendContact {
    TestSendContact {
        recipient: Recipient {
            name: name.into(),
            phone: PHONE.into(),
            email: None,
            attributes: attributes.as_object().cloned().unwrap(),
        },
        opted_out: false,
    }
}

/// A campaign that was sent long ago, with a number, to a phone that nobody is known by.
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
            billing: PlanEntitlement {
                plan: "free".into(),
                granted: None,
                subscriptions: vec![],
            },
            now: NOW,
        },
        profile: Some(profile()),
        contact: None,
    }
}

/// The store, the platform and the media_store of a test; what the store was told, in order.
struct Fixture {
    store: MockTestSendStore,
    gateway: MockWhatsappGateway,
    media_store: Arc<FakeMediaStore>,
    opens: bool,
    told: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    /// Nobody is asked anything.
    fn bare() -> Self {
        Self {
            store: MockTestSendStore::new(),
            gateway: MockWhatsappGateway::new(),
            media_store: Arc::default(),
            opens: true,
            told: Arc::default(),
        }
    }

    fn new(facts: TestSendFacts) -> Self {
        let mut fixture = Self::bare();
        fixture
            .store
            .expect_facts()
            .times(1)
            .withf(|_, id, phone| *id == ID && phone.as_str() == PHONE)
            .return_once(move |_, _, _| Ok(Some(facts)));
        fixture
    }

    /// The month has a message left.
    fn paid(mut self) -> Self {
        let told = self.told.clone();
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
                told.lock().unwrap().push(format!("take {limit} {changes}"));
                Ok(Some(MONTH))
            });
        self
    }

    /// What was taken is given back.
    fn refunded(mut self, done: bool) -> Self {
        let told = self.told.clone();
        self.store.expect_release_message().times(1).returning(move |_, month| {
            assert_eq!(month, MONTH);
            told.lock().unwrap().push("give back".into());
            if done {
                Ok(())
            } else {
                Err(StoreError::Corrupt("x".into()))
            }
        });
        self
    }

    /// The platform is called once, for these values, and that ends like this.
    fn called(mut self, body: &'static [&'static str], outcome: SendOutcome) -> Self {
        let told = self.told.clone();
        self.gateway
            .expect_send_template()
            .times(1)
            .return_once(move |credentials, message| {
                assert_eq!(
                    (credentials.phone_number_id.as_str(), message.to.as_str()),
                    ("1065", PHONE)
                );
                assert_eq!(
                    (message.body.as_slice(), message.send_id.0),
                    (
                        &body.iter().map(|&b| TextParameter::numbered(b)).collect::<Vec<_>>()[..],
                        Uuid::from_u128(8)
                    )
                );
                told.lock().unwrap().push("call".into());
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
        let (mut cipher, opens) = (MockCipher::new(), self.opens);
        cipher.expect_open().returning(move |_| opens.then(|| "token".into()));
        let mut kept = MockFileIdStore::new();
        kept.expect_find().returning(|_, _, _| Ok(None));
        kept.expect_keep().returning(|_, _, _, _, _| Ok(()));
        let files = MessageFiles::new(media(&self.media_store), Arc::new(kept));
        let (store, gateway) = (Arc::new(self.store), Arc::new(self.gateway));
        let mut report = MockErrorReport::new();
        let told = self.told.clone();
        report
            .expect_swallowed()
            .returning(move |step, _| told.lock().unwrap().push(step.to_string()));
        let test_sends = TestSends::new(store, gateway, files, Arc::new(cipher), Arc::new(report), Arc::new(ids));
        let report = test_sends.send(&tenant(), ID, phone).await;
        (report, self.told.lock().unwrap().clone())
    }
}

fn accepted() -> SendOutcome {
    SendOutcome::Accepted {
        message_id: "wamid.1".into(),
        wa_id: None,
    }
}

async fn refused(facts: TestSendFacts) -> Refusal {
    let (report, told) = Fixture::new(facts).send().await;
    assert_eq!(told, Vec::<String>::new());
    match report {
        Err(TestSendError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_test_reserves_its_message_then_leaves_once() {
    let fixture = Fixture::new(facts()).paid().called(&["Ana", "PROMO10"], accepted());
    let (report, told) = fixture.send().await;
    let expected = TestSendReport {
        sent: true,
        simulated: false,
        wa_message_id: Some("wamid.1".into()),
    };
    assert_eq!(report.unwrap(), expected);
    assert_eq!(told, [r#"take 250 {"simulated":false}"#, "call"]);
}

#[tokio::test]
async fn whoever_has_the_phone_supplies_the_values() {
    let known = TestSendFacts {
        contact: Some(contact("Bia Lima", json!({ "coupon": "BIA5" }))),
        ..facts()
    };
    let fixture = Fixture::new(known).paid().called(&["Bia", "BIA5"], accepted());
    fixture.send().await.0.unwrap();
    // What they lack the example stands for.
    let lacking = TestSendFacts {
        contact: Some(contact("Bia", json!({ "coupon": " " }))),
        ..facts()
    };
    let fixture = Fixture::new(lacking).paid().called(&["Bia", "PROMO10"], accepted());
    fixture.send().await.0.unwrap();
}

#[tokio::test]
async fn without_a_number_nobody_is_called_and_it_counts_all_the_same() {
    let simulated = TestSendFacts {
        profile: None,
        ..facts()
    };
    let (report, told) = Fixture::new(simulated).paid().send().await;
    let expected = TestSendReport {
        sent: true,
        simulated: true,
        wa_message_id: None,
    };
    assert_eq!(report.unwrap(), expected);
    assert_eq!(told, [r#"take 250 {"simulated":true}"#]);
}

#[tokio::test]
async fn each_precondition_refuses() {
    let with = |change: fn(&mut TestSendFacts)| {
        let mut facts = facts();
        change(&mut facts);
        refused(facts)
    };
    assert_eq!(with(|facts| facts.run.template = None).await, Refusal::NoTemplate);
    let pending = with(|facts| facts.run.template.as_mut().unwrap().meta_status = MetaStatus::Pending);
    assert_eq!(pending.await, Refusal::TemplateNotApproved);
    assert_eq!(
        with(|facts| facts.run.billing.plan = "gold".into()).await,
        Refusal::NoActivePlan
    );
    let opted_out = with(|facts| {
        facts.contact = Some(TestSendContact {
            opted_out: true,
            ..contact("Bia", json!({}))
        });
    });
    assert_eq!(opted_out.await, Refusal::OptedOut);
    let empty = with(|facts| facts.run.template.as_mut().unwrap().variables[1] = " ".into());
    let placeholder = "2".into();
    assert_eq!(empty.await, Refusal::EmptyPlaceholder { placeholder });
}

#[tokio::test]
async fn a_month_that_is_used_up_refuses_before_anybody_is_called() {
    let mut fixture = Fixture::new(facts());
    fixture
        .store
        .expect_reserve_message()
        .times(1)
        .returning(|_, _, _| Ok(None));
    let (report, _) = fixture.send().await;
    assert!(matches!(
        report,
        Err(TestSendError::Refused(Refusal::MonthUsedUp { limit: 250 }))
    ));
}

#[tokio::test]
async fn a_phone_is_looked_at_before_the_campaign() {
    for phone in ["", "nobody", "+5511", "123"] {
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
async fn what_surely_did_not_leave_costs_nothing() {
    let message = || "no".to_owned();
    let code = 131_026;
    let throttled = |code| SendOutcome::Throttled {
        code,
        message: message(),
        retry_after: None,
    };
    let cases = [
        (
            SendOutcome::Failed {
                code,
                message: message(),
            },
            true,
        ),
        (
            SendOutcome::RunBlocked {
                code,
                message: message(),
            },
            true,
        ),
        (throttled(Some(code)), true),
        (throttled(None), false),
    ];
    for (outcome, has_code) in cases {
        for done in [true, false] {
            let fixture = Fixture::new(facts())
                .paid()
                .called(&["Ana", "PROMO10"], outcome.clone());
            let (report, told) = fixture.refunded(done).send().await;
            match report {
                Err(TestSendError::Platform(GatewayError::Refused { code: told, .. })) => {
                    assert!(has_code && told == code);
                }
                Err(TestSendError::Platform(GatewayError::Unavailable(_))) => assert!(!has_code),
                other => panic!("{other:?}"),
            }
            let steps = ["call", "give back", "return_test_quota"];
            assert_eq!(told[1..], steps[..if done { 2 } else { 3 }], "a failure is reported");
        }
    }
}

#[tokio::test]
async fn what_may_have_left_keeps_its_reservation_and_says_so() {
    let unknown = SendOutcome::Unknown {
        detail: "time-out".into(),
    };
    let fixture = Fixture::new(facts()).paid().called(&["Ana", "PROMO10"], unknown);
    let (report, told) = fixture.send().await;
    assert!(matches!(report, Err(TestSendError::Unknown)));
    assert_eq!(told.len(), 2);
}

/// The same with a picture of ours as the header, on the media_store or not.
fn pictured(on_shelf: bool) -> Fixture {
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
    if on_shelf {
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
async fn files_are_given_to_the_platform_before_the_message() {
    let mut fixture = pictured(true).paid();
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
    // One that is gone, or that the platform does not take, costs nothing and sends nothing.
    let (gone, told) = pictured(false).send().await;
    assert!(matches!(gone, Err(TestSendError::Unready(text)) if text.contains("not there")));
    assert_eq!(told, Vec::<String>::new());
    let mut fixture = pictured(true);
    fixture
        .gateway
        .expect_upload_file()
        .times(1)
        .returning(|_, _| Err(GatewayError::Unavailable("x".into())));
    assert!(matches!(
        fixture.send().await.0,
        Err(TestSendError::Platform(GatewayError::Unavailable(_)))
    ));
}

#[tokio::test]
async fn a_number_whose_token_cannot_be_read_sends_nothing() {
    let mut fixture = Fixture::new(facts());
    fixture.opens = false;
    let (report, told) = fixture.send().await;
    assert!(matches!(report, Err(TestSendError::Unready(text)) if text.contains("access token")));
    assert_eq!(told, Vec::<String>::new());
}
