//! Inbound endpoints, looked up across all accounts, and the log of their calls.

use async_trait::async_trait;
use diesel::dsl::exists;
use diesel::prelude::{BoolExpressionMethods, ExpressionMethods, JoinOnDsl, QueryDsl, SelectableHelper};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::accounts::AccountStatus;
use recado_domain::shared::{AccountId, StoreError, WebhookId};
use recado_domain::webhooks::{Direction, InboundLogEntry, InboundStore, StoredWebhook};
use uuid::Uuid;

use super::store::Row;
use crate::errors::DbResult;
use crate::pool::{OwnerPool, TenantPool};
use crate::schema::{accounts, webhook_endpoint_ids, webhook_endpoints, webhook_inbox, webhook_logs};
use crate::sql::sql;
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
    let values = (
        webhook_logs::account_id.eq(account.0),
        webhook_logs::id.eq(entry.id.0),
        webhook_logs::endpoint_id.eq(entry.endpoint_id.0),
        webhook_logs::direction.eq(Direction::Inbound.as_str()),
        webhook_logs::event_type.eq(&entry.event_type),
        webhook_logs::message_id.eq(&entry.message_id),
        webhook_logs::payload.eq(&entry.payload),
        webhook_logs::response_status.eq(entry.response_status),
        webhook_logs::error.eq(&entry.error),
        webhook_logs::created_at.eq(entry.at),
    );
    let insert = diesel::insert_into(webhook_logs::table).values(values);
    insert.on_conflict_do_nothing().execute(conn).await?;
    Ok(())
}

#[async_trait]
impl InboundStore for PgInbound {
    async fn endpoint(&self, id: WebhookId) -> Result<Option<(AccountId, StoredWebhook)>, StoreError> {
        let is_endpoint = webhook_endpoints::account_id
            .eq(webhook_endpoint_ids::account_id)
            .and(webhook_endpoints::id.eq(webhook_endpoint_ids::id));
        let query = webhook_endpoint_ids::table
            .inner_join(webhook_endpoints::table.on(is_endpoint))
            .inner_join(accounts::table.on(accounts::id.eq(webhook_endpoints::account_id)))
            .filter(webhook_endpoint_ids::id.eq(id.0))
            .filter(webhook_endpoints::direction.eq(Direction::Inbound.as_str()))
            .filter(webhook_endpoints::is_active)
            .filter(accounts::status.eq(AccountStatus::Active.as_str()))
            .select((webhook_endpoints::account_id, Row::as_select()));
        let found: Option<(Uuid, Row)> = self.owner.row_if_any(query).await?;
        found
            .map(|(account, row)| Ok((account.into(), row.stored()?)))
            .transpose()
    }

    async fn is_taken(&self, account: AccountId, id: WebhookId, message_id: &str) -> Result<bool, StoreError> {
        let message = webhook_inbox::table
            .filter(webhook_inbox::account_id.eq(account.0))
            .filter(webhook_inbox::endpoint_id.eq(id.0))
            .filter(webhook_inbox::message_id.eq(message_id));
        self.tenants.read_row(account, diesel::select(exists(message))).await
    }

    async fn log(&self, account: AccountId, entry: &InboundLogEntry) -> Result<(), StoreError> {
        in_tenant!(self.tenants, account, |conn| log(conn, account, entry))
    }
}
