//! The brand context of an account, updated by members and by scrapes of its website.

use recado_domain::brand::{BrandFacts, BrandInput, BrandStore, Scrape};
use recado_domain::shared::{Audit, AuditAction, Event};
use recado_postgres::PgBrand;
use serde_json::json;
use time::Duration;

use crate::support::{DbFixture, NOW};

fn some(text: &str) -> Option<Option<String>> {
    Some(Some(text.to_owned()))
}

async fn count(fixture: &DbFixture, table: &str) -> i64 {
    let counted = fixture
        .client
        .query_one(&format!("SELECT count(*) FROM {table}"), &[])
        .await;
    counted.unwrap().get(0)
}

fn event() -> Event {
    Event::Audit(Audit {
        user_id: None,
        action: AuditAction::Update,
        entity_type: "brand_context".into(),
        entity_id: None,
        changes: None,
        ip_address: None,
        support_admin: None,
    })
}

#[tokio::test]
async fn brand_update_writes_clears_or_leaves_each_field() {
    let fixture = DbFixture::new().await;
    let store = PgBrand::new(fixture.tenants.clone());
    let other_account = fixture.another_account().await;
    assert_eq!(store.find(fixture.account).await.unwrap(), None);
    let first = BrandInput {
        company_name: some("Loja"),
        description: some("Pães"),
        website_url: some("https://loja.example"),
        ..BrandInput::default()
    };
    let created = store.update(fixture.account, &first, NOW, &[event()]).await.unwrap();
    assert_eq!(
        (created.created_at, created.updated_at, created.last_scraped_at),
        (NOW, NOW, None)
    );
    let later = NOW + Duration::hours(1);
    let second = BrandInput {
        description: Some(None),
        tone_of_voice: some("claro"),
        ..BrandInput::default()
    };
    let changed = store.update(fixture.account, &second, later, &[event()]).await.unwrap();
    let facts = BrandFacts {
        company_name: Some("Loja".into()),
        tone_of_voice: Some("claro".into()),
        ..BrandFacts::default()
    };
    assert_eq!(
        (&changed.facts, changed.created_at, changed.updated_at),
        (&facts, NOW, later)
    );
    assert_eq!(changed.website_url.as_deref(), Some("https://loja.example"));
    let empty = store
        .update(other_account, &BrandInput::default(), NOW, &[])
        .await
        .unwrap();
    assert_eq!((empty.facts, empty.website_url), (BrandFacts::default(), None));
    assert_eq!(store.find(fixture.account).await.unwrap(), Some(changed));
    assert_eq!(count(&fixture, "outbox_events").await, 2);
}

#[tokio::test]
async fn brand_scrape_replaces_all_facts() {
    let fixture = DbFixture::new().await;
    let store = PgBrand::new(fixture.tenants.clone());
    let scrape = |name: Option<&str>, hours| Scrape {
        facts: BrandFacts {
            company_name: name.map(str::to_owned),
            ..BrandFacts::default()
        },
        website_url: "https://loja.example".into(),
        raw_scrape_data: json!({ "hours": hours }),
        scraped_at: NOW + Duration::hours(hours),
    };
    let scraped = store
        .store_scrape(fixture.account, &scrape(Some("Loja"), 0))
        .await
        .unwrap();
    assert_eq!(
        (scraped.facts.company_name.as_deref(), scraped.last_scraped_at),
        (Some("Loja"), Some(NOW))
    );
    let written = BrandInput {
        description: some("Pães"),
        ..BrandInput::default()
    };
    let changed = store.update(fixture.account, &written, NOW, &[]).await.unwrap();
    assert_eq!(
        (changed.raw_scrape_data, changed.last_scraped_at),
        (Some(json!({ "hours": 0 })), Some(NOW))
    );
    let rescraped = store.store_scrape(fixture.account, &scrape(None, 2)).await.unwrap();
    assert_eq!(rescraped.facts, BrandFacts::default());
    assert_eq!(rescraped.raw_scrape_data, Some(json!({ "hours": 2 })));
    assert_eq!(
        (rescraped.created_at, rescraped.last_scraped_at),
        (NOW, Some(NOW + Duration::hours(2)))
    );
}

#[tokio::test]
async fn brand_updates_in_parallel_write_one_row() {
    let fixture = DbFixture::new().await;
    let store = PgBrand::new(fixture.tenants.clone());
    let (first, second) = (
        BrandInput {
            company_name: some("a"),
            ..BrandInput::default()
        },
        BrandInput {
            description: some("b"),
            ..BrandInput::default()
        },
    );
    let (a, b) = tokio::join!(
        store.update(fixture.account, &first, NOW, &[]),
        store.update(fixture.account, &second, NOW, &[])
    );
    a.unwrap();
    b.unwrap();
    let facts = store.find(fixture.account).await.unwrap().unwrap().facts;
    assert_eq!(
        (facts.company_name.as_deref(), facts.description.as_deref()),
        (Some("a"), Some("b"))
    );
    assert_eq!(count(&fixture, "brand_contexts").await, 1);
}
