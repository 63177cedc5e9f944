//! Inbound endpoints, looked up across all accounts, and the log of their calls.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::Uuid as SqlUuid;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, StoreError, WebhookId};
use recado_domain::webhooks::{InboundLogEntry, InboundStore, StoredWebhook};
use uuid::Uuid;

use super::store::{COLUMNS, Row};
use crate::errors::DbResult;
use crate::pool::{OwnerPool, TenantPool};
use crate::sql::{FlagRow, sql};
use crate::transactions::in_tenant;

#[derive(Clone, Debug)]
pub struct PgInbound {
    tenants: TenantPool,
    owner: OwnerPool,
}

impl PgInbound {
    pub fn new(tenants: TenantPool, owner: OwnerPool) -> Self {
        Self { tenants, owner }
    }
}

#[derive(QueryableByName)]
struct FoundRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(embed)]
    row: Row,
}

/// Serializes the writers of one message id: no index is unique over the partitions of the inbox.
const LOCK_MESSAGE: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1::text || $2, 20))";

/// Inserts a message into the inbox unless it is there.
const RECEIVE: &str = "INSERT INTO webhook_inbox (account_id, endpoint_id, message_id, received_at)
     SELECT $1, $2, $3, $4
     WHERE NOT EXISTS (SELECT 1 FROM webhook_inbox WHERE account_id = $1 AND endpoint_id = $2 AND message_id = $3)
     ON CONFLICT DO NOTHING";

/// Logs a call. The log of an applied message is written once, with its inbox row.
async fn log(conn: &mut AsyncPgConnection, account: AccountId, entry: &InboundLogEntry) -> DbResult<()> {
    if (200..300).contains(&entry.response_status) {
        sql(LOCK_MESSAGE)
            .bind(entry.endpoint_id)
            .bind(entry.message_id.as_str())
            .execute(&mut *conn)
            .await?;
        let received = sql(RECEIVE)
            .bind(account)
            .bind(entry.endpoint_id)
            .bind(entry.message_id.as_str())
            .bind(entry.at);
        if received.execute(&mut *conn).await? == 0 {
            return Ok(());
        }
    }
    sql("INSERT INTO webhook_logs
           (account_id, id, endpoint_id, direction, event_type, message_id, payload, response_status, error, created_at)
         VALUES ($1, $2, $3, 'inbound', $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING")
    .bind(account)
    .bind(entry.id)
    .bind(entry.endpoint_id)
    .bind(entry.event_type.as_str())
    .bind(entry.message_id.as_str())
    .bind(entry.payload.clone())
    .bind(entry.response_status)
    .bind(entry.error.as_deref())
    .bind(entry.at)
    .execute(conn)
    .await?;
    Ok(())
}

#[async_trait]
impl InboundStore for PgInbound {
    async fn endpoint(&self, id: WebhookId) -> Result<Option<(AccountId, StoredWebhook)>, StoreError> {
        let query = sql(format!(
            "SELECT w.account_id, {COLUMNS} FROM webhook_endpoint_ids i
             JOIN webhook_endpoints w ON w.account_id = i.account_id AND w.id = i.id
             JOIN accounts a ON a.id = w.account_id
             WHERE i.id = $1 AND w.direction = 'inbound' AND w.is_active AND a.status = 'active'"
        ))
        .bind(id);
        let found = self.owner.row_if_any::<FoundRow>(query).await?;
        found
            .map(|found| Ok((found.account_id.into(), found.row.stored()?)))
            .transpose()
    }

    async fn is_taken(&self, account: AccountId, id: WebhookId, message_id: &str) -> Result<bool, StoreError> {
        let query = sql("SELECT EXISTS (SELECT 1 FROM webhook_inbox
             WHERE account_id = $1 AND endpoint_id = $2 AND message_id = $3) AS yes")
        .bind(account)
        .bind(id)
        .bind(message_id);
        Ok(self.tenants.read_row::<FlagRow, _>(account, query).await?.yes)
    }

    async fn log(&self, account: AccountId, entry: &InboundLogEntry) -> Result<(), StoreError> {
        in_tenant!(self.tenants, account, |conn| log(conn, account, entry))
    }
}
