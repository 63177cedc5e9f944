//! Use cases of the brand context, with mocked ports.

use std::sync::Arc;

use serde_json::json;
use time::macros::datetime;
use uuid::Uuid;

use super::*;
use crate::egress;
use crate::shared::{AccountId, AuditAction, Event, FieldErrors, MockClock, Role, Tenant, UserId};

const NOW: time::OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

struct Fixture {
    store: MockBrandStore,
    pages: MockPageFetcher,
    extractor: MockBrandExtractor,
}

impl Fixture {
    fn new() -> Self {
        Self {
            store: MockBrandStore::new(),
            pages: MockPageFetcher::new(),
            extractor: MockBrandExtractor::new(),
        }
    }

    fn brand(self) -> Brand {
        let mut clock = MockClock::new();
        clock.expect_now().return_const(NOW);
        Brand::new(
            Arc::new(self.store),
            Arc::new(self.pages),
            Arc::new(self.extractor),
            Arc::new(clock),
        )
    }
}

fn tenant() -> Tenant {
    Tenant::for_tests(AccountId(Uuid::from_u128(9)), UserId(Uuid::nil()), Role::Member)
}

fn context() -> BrandContext {
    BrandContext {
        facts: BrandFacts::default(),
        website_url: None,
        raw_scrape_data: None,
        last_scraped_at: None,
        created_at: NOW,
        updated_at: NOW,
    }
}

fn page() -> PageText {
    PageText {
        url: "https://loja.example/final".into(),
        title: Some("t".repeat(600)),
        text: "Olá".into(),
    }
}

fn set_to(text: &str) -> Option<Option<String>> {
    Some(Some(text.to_owned()))
}

#[tokio::test]
async fn brand_update_validates_every_field() {
    let long = "ã".repeat(5001);
    let cases = [
        (
            BrandInput {
                description: set_to(&long),
                ..BrandInput::default()
            },
            vec!["description"],
        ),
        (
            BrandInput {
                company_name: set_to(&long),
                website_url: set_to("loja.example"),
                ..BrandInput::default()
            },
            vec!["company_name", "website_url"],
        ),
        (
            BrandInput {
                website_url: set_to(""),
                ..BrandInput::default()
            },
            vec!["website_url"],
        ),
        (
            BrandInput {
                website_url: set_to("ftp://loja.example"),
                ..BrandInput::default()
            },
            vec!["website_url"],
        ),
        (
            BrandInput {
                website_url: set_to("javascript:alert(1)"),
                ..BrandInput::default()
            },
            vec!["website_url"],
        ),
    ];
    for (input, invalid_fields) in cases {
        let Err(BrandError::Invalid(FieldErrors(fields))) = Fixture::new().brand().update(&tenant(), &input).await
        else {
            panic!("{invalid_fields:?}")
        };
        assert_eq!(fields.into_keys().collect::<Vec<_>>(), invalid_fields);
    }
}

#[tokio::test]
async fn brand_update_is_audited_with_field_names() {
    let mut fixture = Fixture::new();
    let written = |_: &AccountId, input: &BrandInput, now: &time::OffsetDateTime, events: &[Event]| {
        let [Event::Audit(audit)] = events else { return false };
        let has_field_names = audit.changes == Some(json!({ "fields": ["description", "website_url"] }));
        let subject = (audit.action, audit.entity_type.as_str(), audit.entity_id);
        has_field_names
            && subject == (AuditAction::Update, "brand_context", Some(Uuid::from_u128(9)))
            && *now == NOW
            && input.description == Some(None)
    };
    fixture
        .store
        .expect_update()
        .withf(written)
        .times(1)
        .returning(|_, _, _, _| Ok(context()));
    let input = BrandInput {
        description: Some(None),
        website_url: set_to("https://loja.example"),
        ..BrandInput::default()
    };
    fixture.brand().update(&tenant(), &input).await.unwrap();
}

#[tokio::test]
async fn scrape_stores_facts_and_source() {
    let mut fixture = Fixture::new();
    fixture
        .pages
        .expect_fetch()
        .withf(|url| url == "https://loja.example")
        .returning(|_| Ok(page()));
    fixture
        .extractor
        .expect_extract()
        .withf(|page_text| *page_text == page())
        .returning(|_| {
            Ok(Extraction {
                facts: BrandFacts::new(|name| (name == "company_name").then(|| " Loja\u{0} ".into())),
                model: "small".into(),
                usage: json!({ "total_tokens": 7 }),
            })
        });
    let is_expected = |account: &AccountId, scrape: &Scrape| {
        let raw = &scrape.raw_scrape_data;
        let facts = BrandFacts {
            company_name: Some("Loja".into()),
            ..BrandFacts::default()
        };
        let title = raw["title"].as_str().unwrap().len();
        let hash = "6d7ff2d0b1cb3bea7fbb2e0ce7df6b24d4ca7f2bb04e4a2ef9f7d3a4b5b9e2d1".len();
        *account == AccountId(Uuid::from_u128(9))
            && scrape.facts == facts
            && (scrape.website_url.as_str(), scrape.scraped_at) == ("https://loja.example", NOW)
            && (&raw["url"], &raw["model"]) == (&json!("https://loja.example/final"), &json!("small"))
            && (&raw["text_chars"], &raw["usage"]["total_tokens"]) == (&json!(3), &json!(7))
            && (title, raw["text_sha256"].as_str().unwrap().len()) == (500, hash)
    };
    fixture
        .store
        .expect_store_scrape()
        .withf(is_expected)
        .times(1)
        .returning(|_, _| Ok(context()));
    fixture
        .brand()
        .scrape(&tenant(), " https://loja.example ")
        .await
        .unwrap();
}

#[tokio::test]
async fn failed_fetch_or_extraction_stores_nothing() {
    let refusals = [
        PageRefusal::Url(egress::TargetRefusal::Address),
        PageRefusal::Redirect(egress::TargetRefusal::Scheme),
        PageRefusal::Status(404),
        PageRefusal::TooLarge,
    ];
    for refusal in refusals {
        let mut fixture = Fixture::new();
        fixture.pages.expect_fetch().returning(move |_| Err(refusal));
        let refused = fixture.brand().scrape(&tenant(), "http://x").await;
        let Err(BrandError::Invalid(errors)) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(errors, FieldErrors::one("url", refusal.to_string()));
    }
    for error in [ExtractError::NotConfigured, ExtractError::Failed("x".into())] {
        let mut fixture = Fixture::new();
        fixture.pages.expect_fetch().returning(|_| Ok(page()));
        let returned = error.clone();
        fixture
            .extractor
            .expect_extract()
            .returning(move |_| Err(returned.clone()));
        let failed = fixture.brand().scrape(&tenant(), "http://x").await;
        assert!(
            matches!(&failed, Err(BrandError::Extractor(actual)) if *actual == error),
            "{failed:?}"
        );
    }
}

#[test]
fn brand_facts_are_cut_to_the_field_length() {
    let fact = |text: &str| BrandFacts::new(|name| (name == "tone_of_voice").then(|| text.to_owned())).tone_of_voice;
    for (text, expected) in [
        ("  claro ", Some("claro")),
        ("um\r\ndois\u{0}\u{7}\u{9f}", Some("um\ndois")),
        (" \u{0}\n ", None),
        ("", None),
    ] {
        assert_eq!(fact(text).as_deref(), expected, "{text:?}");
    }
    let long = format!("{} {}", "ã".repeat(4999), "b".repeat(10));
    assert_eq!(fact(&long), Some("ã".repeat(4999)));
}
