//! The brand context of each account.

use async_trait::async_trait;
use diesel::pg::Pg;
use diesel::prelude::{AsChangeset, ExpressionMethods, Insertable, QueryDsl, Queryable, Selectable, SelectableHelper};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::brand::{BrandContext, BrandFacts, BrandInput, BrandStore, Scrape};
use recado_domain::shared::{AccountId, Event, StoreError};
use serde_json::Value;
use time::OffsetDateTime;

use crate::errors::DbResult;
use crate::outbox;
use crate::pool::TenantPool;
use crate::schema::brand_contexts;
use crate::transactions::in_tenant;

#[derive(Clone, Debug)]
pub struct PgBrand(TenantPool);

impl PgBrand {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = brand_contexts, check_for_backend(Pg))]
struct BrandRow {
    company_name: Option<String>,
    description: Option<String>,
    products_services: Option<String>,
    tone_of_voice: Option<String>,
    target_audience: Option<String>,
    brand_values: Option<String>,
    website_url: Option<String>,
    raw_scrape_data: Option<Value>,
    last_scraped_at: Option<OffsetDateTime>,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
}

impl From<BrandRow> for BrandContext {
    fn from(row: BrandRow) -> Self {
        Self {
            facts: BrandFacts {
                company_name: row.company_name,
                description: row.description,
                products_services: row.products_services,
                tone_of_voice: row.tone_of_voice,
                target_audience: row.target_audience,
                brand_values: row.brand_values,
            },
            website_url: row.website_url,
            raw_scrape_data: row.raw_scrape_data,
            last_scraped_at: row.last_scraped_at,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

/// The columns of a write. `None` leaves a column as it is.
#[derive(Insertable, AsChangeset)]
#[diesel(table_name = brand_contexts)]
struct WrittenColumns<'a> {
    company_name: Option<Option<&'a str>>,
    description: Option<Option<&'a str>>,
    products_services: Option<Option<&'a str>>,
    tone_of_voice: Option<Option<&'a str>>,
    target_audience: Option<Option<&'a str>>,
    brand_values: Option<Option<&'a str>>,
    website_url: Option<Option<&'a str>>,
    raw_scrape_data: Option<&'a Value>,
    last_scraped_at: Option<OffsetDateTime>,
    updated_at: OffsetDateTime,
}

async fn upsert(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    columns: &WrittenColumns<'_>,
) -> DbResult<BrandContext> {
    let row: BrandRow = diesel::insert_into(brand_contexts::table)
        .values((
            brand_contexts::account_id.eq(account.0),
            brand_contexts::created_at.eq(columns.updated_at),
            columns,
        ))
        .on_conflict(brand_contexts::account_id)
        .do_update()
        .set(columns)
        .returning(BrandRow::as_returning())
        .get_result(conn)
        .await?;
    Ok(row.into())
}

async fn update(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    input: &BrandInput,
    now: OffsetDateTime,
    events: &[Event],
) -> DbResult<BrandContext> {
    let columns = WrittenColumns {
        company_name: input.company_name.as_ref().map(Option::as_deref),
        description: input.description.as_ref().map(Option::as_deref),
        products_services: input.products_services.as_ref().map(Option::as_deref),
        tone_of_voice: input.tone_of_voice.as_ref().map(Option::as_deref),
        target_audience: input.target_audience.as_ref().map(Option::as_deref),
        brand_values: input.brand_values.as_ref().map(Option::as_deref),
        website_url: input.website_url.as_ref().map(Option::as_deref),
        raw_scrape_data: None,
        last_scraped_at: None,
        updated_at: now,
    };
    let context = upsert(conn, account, &columns).await?;
    outbox::append(conn, account, events).await?;
    Ok(context)
}

#[async_trait]
impl BrandStore for PgBrand {
    async fn find(&self, account: AccountId) -> Result<Option<BrandContext>, StoreError> {
        let found = brand_contexts::table.find(account.0).select(BrandRow::as_select());
        let row: Option<BrandRow> = self.0.read_row_if_any(account, found).await?;
        Ok(row.map(BrandContext::from))
    }

    async fn update(
        &self,
        account: AccountId,
        input: &BrandInput,
        now: OffsetDateTime,
        events: &[Event],
    ) -> Result<BrandContext, StoreError> {
        in_tenant!(self.0, account, |conn| update(conn, account, input, now, events))
    }

    async fn store_scrape(&self, account: AccountId, scrape: &Scrape) -> Result<BrandContext, StoreError> {
        let facts = &scrape.facts;
        let columns = WrittenColumns {
            company_name: Some(facts.company_name.as_deref()),
            description: Some(facts.description.as_deref()),
            products_services: Some(facts.products_services.as_deref()),
            tone_of_voice: Some(facts.tone_of_voice.as_deref()),
            target_audience: Some(facts.target_audience.as_deref()),
            brand_values: Some(facts.brand_values.as_deref()),
            website_url: Some(Some(&scrape.website_url)),
            raw_scrape_data: Some(&scrape.raw_scrape_data),
            last_scraped_at: Some(scrape.scraped_at),
            updated_at: scrape.scraped_at,
        };
        in_tenant!(self.0, account, |conn| upsert(conn, account, &columns))
    }
}
