//! The brand context of each account.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Jsonb, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::brand::{BrandContext, BrandFacts, BrandInput, BrandStore, Scrape};
use recado_domain::shared::{AccountId, Event, StoreError};
use serde_json::Value;
use time::OffsetDateTime;

use crate::errors::DbResult;
use crate::outbox;
use crate::pool::TenantPool;
use crate::sql::sql;
use crate::transactions::in_tenant;

const ROW: &str = "company_name, description, products_services, tone_of_voice, target_audience, brand_values, \
    website_url, raw_scrape_data, last_scraped_at, created_at, updated_at";

#[derive(Clone, Debug)]
pub struct PgBrand(TenantPool);

impl PgBrand {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

#[derive(QueryableByName)]
struct BrandRow {
    #[diesel(sql_type = Nullable<Text>)]
    company_name: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    description: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    products_services: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    tone_of_voice: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    target_audience: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    brand_values: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    website_url: Option<String>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    raw_scrape_data: Option<Value>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    last_scraped_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
    #[diesel(sql_type = Timestamptz)]
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

/// Builds the upsert that writes the fields whose flag is set, and keeps the stored value of the others.
fn update(input: &BrandInput) -> String {
    let names = input.fields().map(|(name, _)| name);
    // $1 is the account, $2 the time; then follow value and flag of each field.
    let numbers = |at: usize| (3 + 2 * at, 4 + 2 * at);
    let values: Vec<String> = (0..names.len()).map(|at| format!("${}", numbers(at).0)).collect();
    let assignments = names.iter().enumerate().map(|(at, name)| {
        let (_, flag) = numbers(at);
        format!("{name} = CASE WHEN ${flag} THEN excluded.{name} ELSE brand_contexts.{name} END")
    });
    let assignments: Vec<String> = assignments.collect();
    format!(
        "INSERT INTO brand_contexts (account_id, created_at, updated_at, {names})
         VALUES ($1, $2, $2, {values})
         ON CONFLICT (account_id) DO UPDATE SET updated_at = excluded.updated_at, {assignments}
         RETURNING {ROW}",
        names = names.join(", "),
        values = values.join(", "),
        assignments = assignments.join(", ")
    )
}

async fn write(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    input: &BrandInput,
    now: OffsetDateTime,
    events: &[Event],
) -> DbResult<BrandContext> {
    let mut statement = sql(update(input)).bind(account).bind(now);
    for (_, value) in input.fields() {
        statement = statement.bind(value.clone().flatten()).bind(value.is_some());
    }
    let row: BrandRow = statement.get_result(&mut *conn).await?;
    outbox::append(conn, account, events).await?;
    Ok(row.into())
}

#[async_trait]
impl BrandStore for PgBrand {
    async fn find(&self, account: AccountId) -> Result<Option<BrandContext>, StoreError> {
        let found = sql(format!("SELECT {ROW} FROM brand_contexts WHERE account_id = $1")).bind(account);
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
        in_tenant!(self.0, account, |conn| write(conn, account, input, now, events))
    }

    async fn store_scrape(&self, account: AccountId, scrape: &Scrape) -> Result<BrandContext, StoreError> {
        let facts = &scrape.facts;
        let statement = sql(format!(
            "INSERT INTO brand_contexts (account_id, company_name, description, products_services, tone_of_voice,
               target_audience, brand_values, website_url, raw_scrape_data, last_scraped_at, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $10)
             ON CONFLICT (account_id) DO UPDATE SET company_name = excluded.company_name,
               description = excluded.description, products_services = excluded.products_services,
               tone_of_voice = excluded.tone_of_voice, target_audience = excluded.target_audience,
               brand_values = excluded.brand_values, website_url = excluded.website_url,
               raw_scrape_data = excluded.raw_scrape_data, last_scraped_at = excluded.last_scraped_at,
               updated_at = excluded.updated_at
             RETURNING {ROW}"
        ))
        .bind(account)
        .bind(facts.company_name.as_deref())
        .bind(facts.description.as_deref())
        .bind(facts.products_services.as_deref())
        .bind(facts.tone_of_voice.as_deref())
        .bind(facts.target_audience.as_deref())
        .bind(facts.brand_values.as_deref())
        .bind(scrape.website_url.as_str())
        .bind(scrape.raw_scrape_data.clone())
        .bind(scrape.scraped_at);
        Ok(self.0.written::<BrandRow>(account, statement).await?.into())
    }
}
