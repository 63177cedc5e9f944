//! Inbound endpoints, looked up across all accounts, and the log of their calls.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::Uuid as SqlUuid;
use recado_domain::shared::{AccountId, StoreError, WebhookId};
use recado_domain::webhooks::{InboundLogEntry, InboundStore, StoredWebhook};
use uuid::Uuid;

use super::store::{COLUMNS, Row};
use crate::pool::{OwnerPool, TenantPool};
use crate::sql::{FlagRow, sql};

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
        let query = sql("SELECT EXISTS (SELECT FROM webhook_logs
             WHERE account_id = $1 AND endpoint_id = $2 AND message_id = $3 AND direction = 'inbound'
               AND response_status BETWEEN 200 AND 299) AS yes")
        .bind(account)
        .bind(id)
        .bind(message_id);
        Ok(self.tenants.read_row::<FlagRow, _>(account, query).await?.yes)
    }

    async fn log(&self, account: AccountId, entry: &InboundLogEntry) -> Result<(), StoreError> {
        let statement = sql("INSERT INTO webhook_logs
                   (account_id, id, endpoint_id, direction, event_type, message_id, payload, response_status, error,
                    created_at)
                 VALUES ($1, $2, $3, 'inbound', $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING")
        .bind(account)
        .bind(entry.id)
        .bind(entry.endpoint_id)
        .bind(entry.event_type.as_str())
        .bind(entry.message_id.as_str())
        .bind(entry.payload.clone())
        .bind(entry.response_status)
        .bind(entry.error.as_deref())
        .bind(entry.at);
        self.tenants.run(account, statement).await.map(drop)
    }
}
