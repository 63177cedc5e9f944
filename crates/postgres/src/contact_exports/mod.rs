//! The exports of contacts: receipts, their queue, and the rows that they contain.

mod parts;

use async_trait::async_trait;
use diesel::OptionalExtension as _;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Jsonb, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::contact_exports::{
    ContactExport, ContactExportQueue, ContactExportStore, ExportClaim, ExportPage, ExportPart, ExportedArchive,
    ExportedRow,
};
use recado_domain::media::MessageFilePath;
use recado_domain::retention::StoredArchive;
use recado_domain::shared::{AccountId, CampaignId, ContactId, Event, ExportId, RowOutcome, StoreError};
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::errors::{DbResult, parse_enum};
use crate::outbox;
use crate::pool::{OwnerPool, TenantPool};
use crate::retention::FileRow;
use crate::sql::{IdRow, sql, uuids};
use crate::transactions::{in_owner, in_tenant};

/// The store of exports. Tenants make and read receipts; the worker uses the owner pool.
#[derive(Clone, Debug)]
pub struct PgContactExports {
    tenants: TenantPool,
    owner: OwnerPool,
}

impl PgContactExports {
    pub fn new(tenants: TenantPool, owner: OwnerPool) -> Self {
        Self { tenants, owner }
    }
}

#[derive(QueryableByName)]
struct ExportRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = Text)]
    state: String,
    #[diesel(sql_type = Timestamptz)]
    requested_at: OffsetDateTime,
    #[diesel(sql_type = Timestamptz)]
    expires_at: OffsetDateTime,
}

#[derive(QueryableByName)]
struct ClaimRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = Array<SqlUuid>)]
    abandoned: Vec<Uuid>,
}

#[derive(QueryableByName)]
struct KeysRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Array<SqlUuid>)]
    keys: Vec<Uuid>,
}

#[derive(QueryableByName)]
struct PartRow {
    #[diesel(sql_type = Timestamptz)]
    at: OffsetDateTime,
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Jsonb)]
    data: Value,
}

async fn insert(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    export: &ContactExport,
    events: &[Event],
) -> DbResult<bool> {
    let inserted = sql(
        "INSERT INTO contact_exports (account_id, id, contact_id, requested_at, expires_at, due_at)
         SELECT account_id, $2, id, $4, $5, now() FROM contacts WHERE account_id = $1 AND id = $3 AND erased_at IS NULL",
    )
    .bind(account)
    .bind(export.id)
    .bind(export.contact_id)
    .bind(export.requested_at)
    .bind(export.expires_at)
    .execute(&mut *conn)
    .await?;
    if inserted == 0 {
        return Ok(false);
    }
    outbox::append(conn, account, events).await?;
    Ok(true)
}

#[async_trait]
impl ContactExportStore for PgContactExports {
    async fn insert(
        &self,
        account: AccountId,
        export: &ContactExport,
        events: &[Event],
    ) -> Result<RowOutcome, StoreError> {
        in_tenant!(self.tenants, account, |conn| insert(conn, account, export, events)).map(RowOutcome::of)
    }

    async fn find(&self, account: AccountId, id: ExportId) -> Result<Option<ContactExport>, StoreError> {
        let query = sql(
            "SELECT id, contact_id, state, requested_at, expires_at FROM contact_exports
             WHERE account_id = $1 AND id = $2 AND expires_at > now()",
        )
        .bind(account)
        .bind(id);
        let Some(row) = self.tenants.read_row_if_any::<ExportRow, _>(account, query).await? else {
            return Ok(None);
        };
        Ok(Some(ContactExport {
            id: row.id.into(),
            contact_id: row.contact_id.into(),
            state: parse_enum(&row.state)?,
            requested_at: row.requested_at,
            expires_at: row.expires_at,
        }))
    }

    async fn file(
        &self,
        account: AccountId,
        id: ExportId,
    ) -> Result<Option<(MessageFilePath, StoredArchive)>, StoreError> {
        let query = sql("SELECT file_key, size, sha256 FROM contact_exports
             WHERE account_id = $1 AND id = $2 AND expires_at > now() AND state = 'done'")
        .bind(account)
        .bind(id);
        let row: Option<FileRow> = self.tenants.read_row_if_any(account, query).await?;
        row.map(|row| row.stored(account)).transpose()
    }
}

/// An interrupted attempt may have stored its file, so its key is stored until the next one has deleted it.
const CLAIM: &str = "UPDATE contact_exports e SET due_at = now() + $2 * interval '1 microsecond', file_key = $1,
       abandoned = e.abandoned || array_remove(ARRAY[e.file_key], NULL)
     FROM (SELECT account_id, id FROM contact_exports WHERE due_at <= now() AND expires_at > now()
       ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED) k
     WHERE e.account_id = k.account_id AND e.id = k.id
     RETURNING e.account_id, e.id, e.contact_id, e.abandoned";

async fn claim(conn: &mut AsyncPgConnection, key: Uuid, lease: Duration) -> DbResult<Option<ExportClaim>> {
    let row: Option<ClaimRow> = sql(CLAIM)
        .bind(key)
        .bind(lease)
        .get_result(&mut *conn)
        .await
        .optional()?;
    let Some(row) = row else { return Ok(None) };
    let persons: Vec<IdRow> = sql("SELECT p.id FROM same_person_contacts($1, $2) p (id) ORDER BY p.id <> $2, p.id")
        .bind(row.account_id)
        .bind(row.contact_id)
        .load(conn)
        .await?;
    Ok(Some(ExportClaim {
        account_id: row.account_id.into(),
        id: row.id.into(),
        contacts: persons.into_iter().map(|row| row.id.into()).collect(),
        key,
        abandoned: row.abandoned,
    }))
}

#[derive(QueryableByName)]
struct ArchiveRow {
    #[diesel(sql_type = SqlUuid)]
    campaign_id: Uuid,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = SqlUuid)]
    file_key: Uuid,
    #[diesel(sql_type = BigInt)]
    size: i64,
}

/// A campaign that froze its recipients before the contacts existed has no sends to them. A day: clocks of servers differ.
const ARCHIVES: &str = "SELECT a.campaign_id, c.name, a.file_key, coalesce(a.size, 0) AS size FROM campaign_archives a
     JOIN campaigns c ON c.account_id = a.account_id AND c.id = a.campaign_id
     WHERE a.account_id = $1 AND a.campaign_id > $2 AND a.verified_at IS NOT NULL
       AND c.frozen_at > (SELECT min(created_at) FROM contacts WHERE account_id = $1 AND id = ANY ($3)) - interval '1 day'
     ORDER BY a.campaign_id LIMIT $4";

#[async_trait]
impl ContactExportQueue for PgContactExports {
    async fn claim(&self, key: Uuid, lease: Duration) -> Result<Option<ExportClaim>, StoreError> {
        in_owner!(self.owner, |conn| claim(conn, key, lease))
    }

    async fn renew(&self, claim: &ExportClaim, lease: Duration) -> Result<bool, StoreError> {
        let statement = sql(
            "UPDATE contact_exports SET due_at = now() + $4 * interval '1 microsecond'
             WHERE account_id = $1 AND id = $2 AND file_key = $3 AND state = 'running'",
        )
        .bind(claim.account_id)
        .bind(claim.id)
        .bind(claim.key)
        .bind(lease);
        Ok(self.owner.run(statement).await? > 0)
    }

    async fn page(
        &self,
        claim: &ExportClaim,
        contact: ContactId,
        part: ExportPart,
        after: Option<ExportedRow>,
        limit: i64,
    ) -> Result<ExportPage, StoreError> {
        let query = sql(parts::page(part))
            .bind(claim.account_id)
            .bind(contact)
            .bind(after.map(|after| after.at))
            .bind(after.map(|after| after.id))
            .bind(limit);
        let rows: Vec<PartRow> = self.owner.rows(query).await?;
        let last = rows.last().map(|row| ExportedRow { at: row.at, id: row.id });
        Ok(ExportPage {
            rows: rows.into_iter().map(|row| row.data).collect(),
            last,
        })
    }

    async fn archives(
        &self,
        claim: &ExportClaim,
        after: CampaignId,
        limit: i64,
    ) -> Result<Vec<ExportedArchive>, StoreError> {
        let query = sql(ARCHIVES)
            .bind(claim.account_id)
            .bind(after)
            .bind(uuids(&claim.contacts))
            .bind(limit);
        let rows: Vec<ArchiveRow> = self.owner.rows(query).await?;
        let archive = |row: ArchiveRow| ExportedArchive {
            campaign_id: row.campaign_id.into(),
            campaign_name: row.name,
            path: MessageFilePath {
                account_id: claim.account_id,
                key: row.file_key,
            },
            size: row.size.unsigned_abs(),
        };
        Ok(rows.into_iter().map(archive).collect())
    }

    async fn complete(&self, claim: &ExportClaim, file: StoredArchive) -> Result<bool, StoreError> {
        let statement = sql(
            "UPDATE contact_exports SET state = 'done', due_at = NULL, abandoned = '{}', size = $4, sha256 = $5
             WHERE account_id = $1 AND id = $2 AND file_key = $3 AND state = 'running'",
        )
        .bind(claim.account_id)
        .bind(claim.id)
        .bind(claim.key)
        .bind(i64::try_from(file.size).unwrap_or(i64::MAX))
        .bind(file.sha256.to_vec());
        Ok(self.owner.run(statement).await? > 0)
    }

    async fn expired(&self, limit: i64) -> Result<Vec<(AccountId, ExportId, Vec<Uuid>)>, StoreError> {
        let query = sql(
            "SELECT account_id, id, abandoned || array_remove(ARRAY[file_key], NULL) AS keys FROM contact_exports
             WHERE expires_at <= now() AND (due_at <= now()) IS NOT FALSE ORDER BY expires_at LIMIT $1",
        )
        .bind(limit);
        let rows: Vec<KeysRow> = self.owner.rows(query).await?;
        let expired = rows
            .into_iter()
            .map(|row| (row.account_id.into(), row.id.into(), row.keys));
        Ok(expired.collect())
    }

    async fn delete(&self, account: AccountId, id: ExportId) -> Result<(), StoreError> {
        let statement = sql("DELETE FROM contact_exports WHERE account_id = $1 AND id = $2 AND expires_at <= now()");
        self.owner.run(statement.bind(account).bind(id)).await.map(drop)
    }
}
