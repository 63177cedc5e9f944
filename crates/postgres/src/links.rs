//! Links, and the directory of their codes.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::ingestion::Grain;
use recado_domain::links::{Link, LinkStore};
use recado_domain::shared::{AccountId, Slice, SliceQuery, StoreError};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::{Attempt, Fault};
use crate::pool::{PlatformPool, TenantPool};
use crate::sql::{Word, sql};
use crate::transactions::in_tenant;

/// Links. Whoever follows one names no account, so that this happens as the platform.
#[derive(Clone, Debug)]
pub struct PgLinks {
    tenants: TenantPool,
    platform: PlatformPool,
}

impl PgLinks {
    pub fn new(tenants: TenantPool, platform: PlatformPool) -> Self {
        Self { tenants, platform }
    }
}

#[derive(QueryableByName)]
struct LinkRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    short_code: String,
    #[diesel(sql_type = Text)]
    original_url: String,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    campaign_id: Option<Uuid>,
    #[diesel(sql_type = BigInt)]
    clicks: i64,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
}

impl From<LinkRow> for Link {
    fn from(row: LinkRow) -> Self {
        Self {
            id: row.id.into(),
            short_code: row.short_code,
            short_url: String::new(),
            original_url: row.original_url,
            campaign_id: row.campaign_id.map(Into::into),
            clicks: row.clicks,
            created_at: row.created_at,
        }
    }
}

async fn insert(conn: &mut AsyncPgConnection, account: AccountId, link: &Link) -> Attempt<()> {
    let inserted = sql(
        "INSERT INTO links (account_id, id, short_code, original_url, campaign_id, created_at)
         SELECT $1, $2, $3, $4, $5, $6
         WHERE $5 IS NULL
           OR EXISTS (SELECT 1 FROM campaigns WHERE account_id = $1 AND id = $5 AND deleted_at IS NULL)",
    )
    .bind(account)
    .bind(link.id)
    .bind(link.short_code.as_str())
    .bind(link.original_url.as_str())
    .bind(link.campaign_id)
    .bind(link.created_at)
    .execute(&mut *conn)
    .await?;
    if inserted == 0 {
        return Err(Fault::Store(StoreError::Dangling { field: "campaign_id" }));
    }
    sql("INSERT INTO link_codes (short_code, account_id, link_id) VALUES ($1, $2, $3)")
        .bind(link.short_code.as_str())
        .bind(account)
        .bind(link.id)
        .execute(conn)
        .await?;
    Ok(())
}

#[async_trait]
impl LinkStore for PgLinks {
    async fn list(&self, account: AccountId, query: &SliceQuery) -> Result<Slice<Link>, StoreError> {
        let listed = sql(
            "SELECT id, short_code, original_url, campaign_id, clicks, created_at FROM links
             WHERE account_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3",
        )
        .bind(account)
        .bind(query.cursor.unwrap_or(Uuid::max()))
        .bind(query.limit + 1);
        let rows: Vec<LinkRow> = self.tenants.read_rows(account, listed).await?;
        let links = rows.into_iter().map(Link::from).collect();
        Ok(Slice::cut(links, query.limit, |link: &Link| link.id))
    }

    async fn insert(&self, account: AccountId, link: &Link) -> Result<(), StoreError> {
        in_tenant!(self.tenants, account, |conn| insert(conn, account, link))
    }

    async fn follow(&self, short_code: &str, now: OffsetDateTime) -> Result<Option<String>, StoreError> {
        let statement = sql("WITH followed AS (
               UPDATE links l SET clicks = l.clicks + 1 FROM link_codes c
               WHERE c.short_code = $1 AND l.account_id = c.account_id AND l.id = c.link_id
               RETURNING l.account_id, l.id, l.original_url),
             counted AS (
               INSERT INTO link_rollups AS r (account_id, span, at, link_id, clicks)
               SELECT f.account_id, g.span, g.at, f.id, 1
               FROM followed f CROSS JOIN unnest($2, $3) AS g (span, at)
               ON CONFLICT (account_id, span, at, link_id) DO UPDATE SET clicks = r.clicks + 1)
             SELECT original_url AS word FROM followed")
        .bind(short_code)
        .bind(Grain::MANY.map(Grain::minutes).to_vec())
        .bind(Grain::MANY.map(|grain| grain.begin(now)).to_vec());
        let followed = self.platform.row_if_any::<Word>(statement).await?;
        Ok(followed.map(|target| target.word))
    }
}
