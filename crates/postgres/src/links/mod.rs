//! Links, the directory of their short codes, and their clicks.

use std::collections::BTreeMap;

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, QueryDsl, Queryable, QueryableByName, Selectable, SelectableHelper};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::ingestion::Granularity;
use recado_domain::links::{ClickBatch, Link, LinkStore, LinkTarget};
use recado_domain::shared::{AccountId, CursorPage, CursorQuery, LinkId, StoreError};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::{DbError, DbResult};
use crate::pool::{OwnerPool, TenantPool};
use crate::schema::{link_click_writers, link_codes, links};
use crate::sql::{IdRow, TextRow, collect_column, sql};
use crate::transactions::{in_owner, in_tenant};

/// Links. A visitor's request names no account, so `target` and `add_clicks` use the owner pool.
#[derive(Clone, Debug)]
pub struct PgLinks {
    tenants: TenantPool,
    owner: OwnerPool,
}

impl PgLinks {
    pub fn new(tenants: TenantPool, owner: OwnerPool) -> Self {
        Self { tenants, owner }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = links, check_for_backend(Pg))]
struct LinkRow {
    id: Uuid,
    short_code: String,
    original_url: String,
    campaign_id: Option<Uuid>,
    contact_id: Option<Uuid>,
    clicks: i64,
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
            contact_id: row.contact_id.map(Into::into),
            clicks: row.clicks,
            created_at: row.created_at,
        }
    }
}

#[derive(QueryableByName)]
#[diesel(table_name = links, check_for_backend(Pg))]
struct TargetRow {
    account_id: Uuid,
    id: Uuid,
    original_url: String,
}

impl From<TargetRow> for LinkTarget {
    fn from(row: TargetRow) -> Self {
        Self {
            account_id: row.account_id.into(),
            link_id: row.id.into(),
            original_url: row.original_url,
        }
    }
}

async fn insert(conn: &mut AsyncPgConnection, account: AccountId, link: &Link) -> DbResult<()> {
    let unknown: Option<TextRow> = sql("SELECT 'campaign_id' AS text WHERE $2 IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM campaigns WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL)
         UNION ALL SELECT 'contact_id' WHERE $3 IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM contacts WHERE account_id = $1 AND id = $3 AND deleted_at IS NULL)
         LIMIT 1")
    .bind(account)
    .bind(link.campaign_id)
    .bind(link.contact_id)
    .get_result(&mut *conn)
    .await
    .optional()?;
    if let Some(unknown) = unknown {
        let field = match unknown.text.as_str() {
            "contact_id" => "contact_id",
            _ => "campaign_id",
        };
        return Err(DbError::Store(StoreError::UnknownReference { field }));
    }
    diesel::insert_into(links::table)
        .values((
            links::account_id.eq(account.0),
            links::id.eq(link.id.0),
            links::short_code.eq(&link.short_code),
            links::original_url.eq(&link.original_url),
            links::campaign_id.eq(link.campaign_id.map(Uuid::from)),
            links::contact_id.eq(link.contact_id.map(Uuid::from)),
            links::created_at.eq(link.created_at),
        ))
        .execute(&mut *conn)
        .await?;
    diesel::insert_into(link_codes::table)
        .values((
            link_codes::short_code.eq(&link.short_code),
            link_codes::account_id.eq(account.0),
            link_codes::link_id.eq(link.id.0),
        ))
        .execute(conn)
        .await?;
    Ok(())
}

/// Days after its last batch for which a writer's row is stored. No writer repeats a batch after so long.
const WRITER_DAYS: i32 = 7;

/// Adds the clicks of a batch. `$1` to `$3`: each link once, with its clicks; `$4` to `$8`: the rollup rows. Links
/// whose rows another transaction holds are skipped and returned, so one lock does not delay the clicks of other
/// links. Rows are locked in key order.
const ADD_CLICKS: &str = include_str!("add_clicks.sql");

#[derive(Queryable, Selectable)]
#[diesel(table_name = link_click_writers, check_for_backend(Pg))]
struct AppliedRow {
    batch: i64,
    deferred: Vec<Uuid>,
}

/// The writer's row is locked first: a repeated batch waits for the transaction that may still apply it.
async fn add_clicks(conn: &mut AsyncPgConnection, batch: &ClickBatch) -> DbResult<Vec<LinkId>> {
    let applied: AppliedRow = diesel::insert_into(link_click_writers::table)
        .values(link_click_writers::id.eq(batch.writer))
        .on_conflict(link_click_writers::id)
        .do_update()
        .set(link_click_writers::batch.eq(link_click_writers::batch))
        .returning(AppliedRow::as_returning())
        .get_result(&mut *conn)
        .await?;
    if applied.batch == 0 {
        sql("DELETE FROM link_click_writers WHERE applied_at < now() - make_interval(days => $1)")
            .bind(WRITER_DAYS)
            .execute(&mut *conn)
            .await?;
    }
    if applied.batch >= batch.number {
        return Ok(applied.deferred.into_iter().map(Into::into).collect());
    }
    let (totals, sums) = (totals(batch), sums(batch));
    let deferred: Vec<IdRow> = sql(ADD_CLICKS)
        .bind(collect_column(&totals, |((account, _), _)| account.0))
        .bind(collect_column(&totals, |((_, link), _)| link.0))
        .bind(collect_column(&totals, |(_, clicks)| *clicks))
        .bind(collect_column(&sums, |((account, ..), _)| account.0))
        .bind(collect_column(&sums, |((_, link, ..), _)| link.0))
        .bind(collect_column(&sums, |((_, _, minutes, _), _)| *minutes))
        .bind(collect_column(&sums, |((.., at), _)| *at))
        .bind(collect_column(&sums, |(_, clicks)| *clicks))
        .bind(batch.writer)
        .bind(batch.number)
        .load(conn)
        .await?;
    Ok(deferred.into_iter().map(|row| row.id.into()).collect())
}

fn totals(batch: &ClickBatch) -> Vec<((AccountId, LinkId), i64)> {
    let mut totals = BTreeMap::new();
    for (key, clicks) in &batch.clicks {
        *totals.entry((key.account_id, key.link_id)).or_default() += clicks;
    }
    totals.into_iter().collect()
}

/// Sums clicks by rollup row: account, link, `bucket_minutes` and `bucket_start`.
fn sums(batch: &ClickBatch) -> Vec<((AccountId, LinkId, i32, OffsetDateTime), i64)> {
    let mut sums = BTreeMap::new();
    for (key, clicks) in &batch.clicks {
        for granularity in Granularity::MANY {
            let row = (
                key.account_id,
                key.link_id,
                granularity.minutes(),
                granularity.begin(key.quarter),
            );
            *sums.entry(row).or_default() += clicks;
        }
    }
    sums.into_iter().collect()
}

#[async_trait]
impl LinkStore for PgLinks {
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Link>, StoreError> {
        let listed = links::table
            .filter(links::account_id.eq(account.0))
            .filter(links::id.lt(query.cursor.unwrap_or(Uuid::max())))
            .order(links::id.desc())
            .limit(query.limit + 1)
            .select(LinkRow::as_select());
        let rows: Vec<LinkRow> = self.tenants.read_rows(account, listed).await?;
        let links = rows.into_iter().map(Link::from).collect();
        Ok(CursorPage::cut(links, query.limit, |link: &Link| link.id))
    }

    async fn insert(&self, account: AccountId, link: &Link) -> Result<(), StoreError> {
        in_tenant!(self.tenants, account, |conn| insert(conn, account, link))
    }

    async fn target(&self, short_code: &str) -> Result<Option<LinkTarget>, StoreError> {
        let target = sql("SELECT l.account_id, l.id, l.original_url
             FROM link_codes c JOIN links l ON l.account_id = c.account_id AND l.id = c.link_id
             WHERE c.short_code = $1")
        .bind(short_code);
        let found = self.owner.row_if_any::<TargetRow>(target).await?;
        Ok(found.map(LinkTarget::from))
    }

    async fn add_clicks(&self, batch: &ClickBatch) -> Result<Vec<LinkId>, StoreError> {
        in_owner!(self.owner, |conn| add_clicks(conn, batch))
    }
}
