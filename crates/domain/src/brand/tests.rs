//! Use cases of the brand context, with everything outside mocked.

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

fn some(text: &str) -> Option<Option<String>> {
    Some(Some(text.to_owned()))
}

#[tokio::test]
async fn what_is_written_is_checked_field_by_field() {
    let long = "ã".repeat(5001);
    let cases = [
        (
            BrandInput {
                description: some(&long),
                ..BrandInput::default()
            },
            vec!["description"],
        ),
        (
            BrandInput {
                company_name: some(&long),
                website_url: some("loja.example"),
                ..BrandInput::default()
            },
            vec!["company_name", "website_url"],
        ),
        (
            BrandInput {
                website_url: some(""),
                ..BrandInput::default()
            },
            vec!["website_url"],
        ),
        (
            BrandInput {
                website_url: some("ftp://loja.example"),
                ..BrandInput::default()
            },
            vec!["website_url"],
        ),
        (
            BrandInput {
                website_url: some("javascript:alert(1)"),
                ..BrandInput::default()
            },
            vec!["website_url"],
        ),
    ];
    for (input, wrong) in cases {
        let Err(BrandError::Invalid(FieldErrors(fields))) = Fixture::new().brand().update(&tenant(), &input).await
        else {
            panic!("{wrong:?}")
        };
        assert_eq!(fields.into_keys().collect::<Vec<_>>(), wrong);
    }
}

#[tokio::test]
async fn a_change_is_audited_with_the_names_of_its_fields() {
    let mut fixture = Fixture::new();
    let written = |_: &AccountId, input: &BrandInput, now: &time::OffsetDateTime, events: &[Event]| {
        let [Event::Audit(audit)] = events else { return false };
        let named = audit.changes == Some(json!({ "fields": ["description", "website_url"] }));
        let what = (audit.action, audit.entity_type.as_str(), audit.entity_id);
        named
            && what == (AuditAction::Update, "brand_context", Some(Uuid::from_u128(9)))
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
        website_url: some("https://loja.example"),
        ..BrandInput::default()
    };
    fixture.brand().update(&tenant(), &input).await.unwrap();
}

#[tokio::test]
async fn a_scrape_keeps_what_was_read_and_where() {
    let mut fixture = Fixture::new();
    fixture
        .pages
        .expect_fetch()
        .withf(|url| url == "https://loja.example")
        .returning(|_| Ok(page()));
    fixture
        .extractor
        .expect_extract()
        .withf(|given| *given == page())
        .returning(|_| {
            Ok(Extraction {
                facts: BrandFacts::new(|name| (name == "company_name").then(|| " Loja\u{0} ".into())),
                model: "small".into(),
                usage: json!({ "total_tokens": 7 }),
            })
        });
    let kept = |account: &AccountId, scrape: &Scrape| {
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
        .expect_keep()
        .withf(kept)
        .times(1)
        .returning(|_, _| Ok(context()));
    fixture
        .brand()
        .scrape(&tenant(), " https://loja.example ")
        .await
        .unwrap();
}

#[tokio::test]
async fn without_a_page_or_a_reader_nothing_is_stored() {
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
    for fault in [ExtractError::NotConfigured, ExtractError::Failed("x".into())] {
        let mut fixture = Fixture::new();
        fixture.pages.expect_fetch().returning(|_| Ok(page()));
        let told = fault.clone();
        fixture.extractor.expect_extract().returning(move |_| Err(told.clone()));
        let failed = fixture.brand().scrape(&tenant(), "http://x").await;
        assert!(
            matches!(&failed, Err(BrandError::Extractor(told)) if *told == fault),
            "{failed:?}"
        );
    }
}

#[test]
fn facts_are_cut_to_what_a_field_holds() {
    let fact = |text: &str| BrandFacts::new(|name| (name == "tone_of_voice").then(|| text.to_owned())).tone_of_voice;
    for (text, kept) in [
        ("  claro ", Some("claro")),
        ("um\r\ndois\u{0}\u{7}\u{9f}", Some("um\ndois")),
        (" \u{0}\n ", None),
        ("", None),
    ] {
        assert_eq!(fact(text).as_deref(), kept, "{text:?}");
    }
    let long = format!("{} {}", "ã".repeat(4999), "b".repeat(10));
    assert_eq!(fact(&long), Some("ã".repeat(4999)));
    let full = BrandFacts::new(|name| Some(name.to_owned()));
    let published = json!(full);
    assert_eq!(published.as_object().unwrap().len(), FACTS.len());
    for name in FACTS {
        assert_eq!(published[name], name);
    }
}

#[test]
fn every_fact_and_the_website_are_published_beside_each_other() {
    let published = json!(context());
    let mut names: Vec<_> = published.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    let mut expected = [
        &FACTS[..],
        &[
            "website_url",
            "raw_scrape_data",
            "last_scraped_at",
            "created_at",
            "updated_at",
        ],
    ]
    .concat();
    expected.sort_unstable();
    assert_eq!(names, expected);
}
