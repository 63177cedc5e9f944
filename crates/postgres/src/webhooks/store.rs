//! Webhook endpoints of one account and the commands on them: ping, redelivery and recovery.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Binary, Bool, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{
    AccountId, CursorPage, Event, InsertOutcome, Page, PageQuery, Sealed, StoreError, UpdateOutcome, WebhookEventId,
    WebhookId, WebhookLogId,
};
use recado_domain::webhooks::{
    FeedQuery, LogQuery, LoggedDelivery, SealedSecrets, StoredWebhook, Webhook, WebhookEvent, WebhookLog, WebhookStore,
};
use time::OffsetDateTime;
use uuid::Uuid;

use super::feed;
use crate::errors::{DbResult, parse_enum};
use crate::outbox;
use crate::pool::TenantPool;
use crate::sql::{NumberRow, Sql, sql};
use crate::transactions::in_tenant;

#[derive(Clone, Debug)]
pub struct PgWebhooks(TenantPool);

impl PgWebhooks {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

pub(super) const COLUMNS: &str = "w.id, w.name, w.url, w.events, w.direction, w.is_active, w.secret, w.secret_hint,
    w.previous_secret, w.previous_secret_until, w.disabled_at, w.disabled_reason, w.created_at, w.updated_at, w.version";

#[derive(QueryableByName)]
pub(super) struct Row {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Nullable<Text>)]
    url: Option<String>,
    #[diesel(sql_type = Array<Text>)]
    events: Vec<String>,
    #[diesel(sql_type = Text)]
    direction: String,
    #[diesel(sql_type = Bool)]
    is_active: bool,
    #[diesel(sql_type = Binary)]
    secret: Vec<u8>,
    #[diesel(sql_type = Text)]
    secret_hint: String,
    #[diesel(sql_type = Nullable<Binary>)]
    previous_secret: Option<Vec<u8>>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    previous_secret_until: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    disabled_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Text>)]
    disabled_reason: Option<String>,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
    #[diesel(sql_type = Timestamptz)]
    updated_at: OffsetDateTime,
    #[diesel(sql_type = BigInt)]
    version: i64,
}

impl Row {
    pub(super) fn stored(self) -> Result<StoredWebhook, StoreError> {
        let previous = self.previous_secret.map(Sealed).zip(self.previous_secret_until);
        Ok(StoredWebhook {
            webhook: Webhook {
                id: self.id.into(),
                name: self.name,
                url: self.url,
                events: self.events,
                direction: parse_enum(&self.direction)?,
                is_active: self.is_active,
                secret_hint: self.secret_hint,
                disabled_at: self.disabled_at,
                disabled_reason: self.disabled_reason.as_deref().map(parse_enum).transpose()?,
                created_at: self.created_at,
                updated_at: self.updated_at,
            },
            secrets: SealedSecrets {
                current: Sealed(self.secret),
                previous,
            },
            version: self.version,
        })
    }
}

/// Binds account and id to `$1` and `$2`, and the columns of an endpoint to `$3` to `$14`.
fn bind_endpoint<'a>(statement: &'static str, account: AccountId, stored: &'a StoredWebhook) -> Sql<'a> {
    let StoredWebhook { webhook, secrets, .. } = stored;
    let previous = secrets.previous.as_ref();
    sql(statement)
        .bind(account)
        .bind(webhook.id)
        .bind(webhook.name.as_str())
        .bind(webhook.url.as_deref())
        .bind(webhook.events.clone())
        .bind(webhook.direction.as_str())
        .bind(webhook.is_active)
        .bind(secrets.current.0.as_slice())
        .bind(webhook.secret_hint.as_str())
        .bind(previous.map(|(sealed, _)| sealed.0.as_slice()))
        .bind(previous.map(|(_, until)| *until))
        .bind(webhook.disabled_at)
        .bind(webhook.disabled_reason.map(|reason| reason.as_str()))
        .bind(webhook.updated_at)
}

/// Advisory lock that serializes the inserts of an account, so that concurrent inserts do not exceed the limit.
const LOCK_INSERTS: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 19))";

const INSERT: &str = "INSERT INTO webhook_endpoints (account_id, id, name, url, events, direction, is_active, secret,
       secret_hint, previous_secret, previous_secret_until, disabled_at, disabled_reason, created_at, updated_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $14)";

async fn insert(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    stored: &StoredWebhook,
    at_most: i64,
    events: &[Event],
) -> DbResult<InsertOutcome> {
    sql(LOCK_INSERTS).bind(account).execute(&mut *conn).await?;
    let count_query = sql("SELECT count(*) AS n FROM webhook_endpoints WHERE account_id = $1").bind(account);
    let count: NumberRow = count_query.get_result(&mut *conn).await?;
    if count.n >= at_most {
        return Ok(InsertOutcome::Full);
    }
    bind_endpoint(INSERT, account, stored).execute(&mut *conn).await?;
    // A call of an inbound endpoint contains the endpoint's id only, so this directory maps ids to accounts.
    sql("INSERT INTO webhook_endpoint_ids (id, account_id) VALUES ($1, $2)")
        .bind(stored.webhook.id)
        .bind(account)
        .execute(&mut *conn)
        .await?;
    outbox::append(conn, account, events).await?;
    Ok(InsertOutcome::Done)
}

const UPDATE: &str = "UPDATE webhook_endpoints SET name = $3, url = $4, events = $5, direction = $6, is_active = $7,
       secret = $8, secret_hint = $9, previous_secret = $10, previous_secret_until = $11, disabled_at = $12,
       disabled_reason = $13, updated_at = $14, version = version + 1,
       failing_since = CASE WHEN $7 AND NOT is_active THEN NULL ELSE failing_since END,
       last_failed_at = CASE WHEN $7 AND NOT is_active THEN NULL ELSE last_failed_at END
     WHERE account_id = $1 AND id = $2 AND version = $15";

/// Drops the waiting deliveries of an inactive endpoint. They are not delivered unless a member recovers them.
const DROP_WAITING: &str = "UPDATE webhook_deliveries SET state = 'dropped', leased = false, failed_at = now()
     WHERE account_id = $1 AND endpoint_id = $2 AND state = 'waiting'";

pub(super) async fn drop_waiting_deliveries(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: WebhookId,
) -> DbResult<()> {
    sql(DROP_WAITING).bind(account).bind(id).execute(conn).await?;
    Ok(())
}

async fn update(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    stored: &StoredWebhook,
    events: &[Event],
) -> DbResult<UpdateOutcome<()>> {
    let id = stored.webhook.id;
    let statement = bind_endpoint(UPDATE, account, stored).bind(stored.version);
    if statement.execute(&mut *conn).await? == 0 {
        let found = endpoint_query(account, id).get_result::<Row>(conn).await.optional()?;
        return Ok(found.map_or(UpdateOutcome::Missing, |_| UpdateOutcome::Stale));
    }
    if !stored.webhook.is_active {
        drop_waiting_deliveries(conn, account, id).await?;
    }
    outbox::append(conn, account, events).await?;
    Ok(UpdateOutcome::Done(()))
}

fn endpoint_query<'a>(account: AccountId, id: WebhookId) -> Sql<'a> {
    sql(format!(
        "SELECT {COLUMNS} FROM webhook_endpoints w WHERE w.account_id = $1 AND w.id = $2"
    ))
    .bind(account)
    .bind(id)
}

async fn delete(conn: &mut AsyncPgConnection, account: AccountId, id: WebhookId, events: &[Event]) -> DbResult<bool> {
    let query = sql("DELETE FROM webhook_endpoints WHERE account_id = $1 AND id = $2")
        .bind(account)
        .bind(id);
    if query.execute(&mut *conn).await? == 0 {
        return Ok(false);
    }
    outbox::append(conn, account, events).await?;
    Ok(true)
}

/// Makes a delivery due again from its first attempt. A leased delivery is left to the deliverer that holds the lease.
/// If the event's day is dropped meanwhile, the delivery is removed when it is claimed.
const ENQUEUE: &str = "INSERT INTO webhook_deliveries (account_id, event_id, endpoint_id)
     SELECT v.account_id, v.id, w.id FROM webhook_events v
     JOIN webhook_endpoints w ON w.account_id = v.account_id AND w.id = $2 AND w.direction = 'outbound' AND w.is_active
     WHERE v.account_id = $1 AND v.id = $3
     FOR KEY SHARE OF w
     ON CONFLICT (account_id, event_id, endpoint_id) DO UPDATE
     SET state = 'waiting', attempt = CASE WHEN webhook_deliveries.leased THEN webhook_deliveries.attempt ELSE 0 END,
       next_attempt_at = CASE WHEN webhook_deliveries.leased THEN webhook_deliveries.next_attempt_at ELSE now() END,
       failed_at = NULL";

async fn enqueue_delivery(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: WebhookId,
    event: WebhookEventId,
) -> DbResult<bool> {
    let queued = sql(ENQUEUE).bind(account).bind(id).bind(event).execute(conn).await?;
    Ok(queued > 0)
}

async fn ping(conn: &mut AsyncPgConnection, account: AccountId, id: WebhookId, event: &WebhookEvent) -> DbResult<bool> {
    sql("INSERT INTO webhook_events (account_id, id, type, payload, occurred_at) VALUES ($1, $2, $3, $4, $5)")
        .bind(account)
        .bind(event.id)
        .bind(event.kind.as_str())
        .bind(event.data.clone())
        .bind(event.timestamp)
        .execute(&mut *conn)
        .await?;
    enqueue_delivery(conn, account, id, event.id).await
}

/// The keyset position of an abandoned delivery of an endpoint.
#[derive(QueryableByName)]
struct FailedRow {
    #[diesel(sql_type = Timestamptz)]
    failed_at: OffsetDateTime,
    #[diesel(sql_type = SqlUuid)]
    event_id: Uuid,
}

/// How many deliveries a batch recovered, and the position of its last one.
#[derive(QueryableByName)]
struct RecoveredRow {
    #[diesel(sql_type = BigInt)]
    n: i64,
    #[diesel(embed)]
    last: FailedRow,
}

const LAST_FAILED: &str = "SELECT failed_at, event_id FROM webhook_deliveries
     WHERE account_id = $1 AND endpoint_id = $2 AND failed_at >= $3 ORDER BY failed_at DESC, event_id DESC LIMIT 1";

/// Recovers a batch of deliveries after one keyset position, up to another. Returns no row if there are none.
const RECOVER: &str = concat!(
    "WITH failed AS MATERIALIZED (
       SELECT account_id, event_id, endpoint_id, failed_at FROM webhook_deliveries
       WHERE account_id = $1 AND endpoint_id = $2 AND NOT leased
         AND (failed_at, event_id) > ($3, $4) AND (failed_at, event_id) <= ($5, $6)
       ORDER BY failed_at, event_id LIMIT $7 FOR UPDATE SKIP LOCKED),
     queued AS (
       UPDATE webhook_deliveries d SET state = 'waiting', attempt = 0, next_attempt_at = now(), failed_at = NULL
       FROM ",
    keys_of!("failed"),
    " WHERE d.account_id = k.account_id AND d.event_id = k.event_id AND d.endpoint_id IS NOT DISTINCT FROM k.endpoint_id
       RETURNING 1)
     SELECT (SELECT count(*) FROM queued) AS n, failed_at, event_id FROM failed
     ORDER BY failed_at DESC, event_id DESC LIMIT 1"
);

#[derive(QueryableByName)]
struct LoggedRow {
    #[diesel(sql_type = SqlUuid)]
    endpoint_id: Uuid,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    event_id: Option<Uuid>,
}

#[async_trait]
impl WebhookStore for PgWebhooks {
    async fn page(&self, account: AccountId, page: PageQuery) -> Result<Page<Webhook>, StoreError> {
        let page_query = sql(format!(
            "SELECT {COLUMNS} FROM webhook_endpoints w WHERE w.account_id = $1
             ORDER BY w.created_at DESC, w.id DESC LIMIT $2 OFFSET $3"
        ))
        .bind(account)
        .bind(page.limit())
        .bind(page.offset());
        let count_query = sql("SELECT count(*) AS n FROM webhook_endpoints WHERE account_id = $1").bind(account);
        let (total, rows) = self
            .0
            .read_page::<NumberRow, Row, _, _>(account, count_query, page_query)
            .await?;
        let webhooks = rows.into_iter().map(|row| row.stored().map(|stored| stored.webhook));
        Ok(Page::new(page, webhooks.collect::<Result<_, _>>()?, total))
    }

    async fn find(&self, account: AccountId, id: WebhookId) -> Result<Option<StoredWebhook>, StoreError> {
        let query = endpoint_query(account, id);
        let row: Option<Row> = self.0.read_row_if_any(account, query).await?;
        row.map(Row::stored).transpose()
    }

    async fn insert(
        &self,
        account: AccountId,
        webhook: &StoredWebhook,
        at_most: i64,
        events: &[Event],
    ) -> Result<InsertOutcome, StoreError> {
        in_tenant!(self.0, account, |conn| insert(conn, account, webhook, at_most, events))
    }

    async fn update(
        &self,
        account: AccountId,
        webhook: &StoredWebhook,
        events: &[Event],
    ) -> Result<UpdateOutcome<()>, StoreError> {
        in_tenant!(self.0, account, |conn| update(conn, account, webhook, events))
    }

    async fn delete(&self, account: AccountId, id: WebhookId, events: &[Event]) -> Result<bool, StoreError> {
        in_tenant!(self.0, account, |conn| delete(conn, account, id, events))
    }

    async fn logs(&self, account: AccountId, query: &LogQuery) -> Result<Vec<WebhookLog>, StoreError> {
        feed::logs(&self.0, account, query).await
    }

    async fn logged(&self, account: AccountId, id: WebhookLogId) -> Result<Option<LoggedDelivery>, StoreError> {
        let query = sql("SELECT endpoint_id, event_id FROM webhook_logs WHERE account_id = $1 AND id = $2")
            .bind(account)
            .bind(id);
        let row: Option<LoggedRow> = self.0.read_row_if_any(account, query).await?;
        Ok(row.map(|row| LoggedDelivery {
            endpoint_id: row.endpoint_id.into(),
            event_id: row.event_id.map(Into::into),
        }))
    }

    async fn feed(&self, account: AccountId, query: &FeedQuery) -> Result<CursorPage<WebhookEvent>, StoreError> {
        feed::cursor_page(&self.0, account, query).await
    }

    async fn ping(&self, account: AccountId, id: WebhookId, event: &WebhookEvent) -> Result<bool, StoreError> {
        // If the endpoint was deleted meanwhile, the rollback removes the ping event.
        in_tenant!(self.0, account, |conn| ping(conn, account, id, event), unless false)
    }

    async fn redeliver(&self, account: AccountId, id: WebhookId, event: WebhookEventId) -> Result<bool, StoreError> {
        in_tenant!(self.0, account, |conn| enqueue_delivery(conn, account, id, event))
    }

    async fn recover(
        &self,
        account: AccountId,
        id: WebhookId,
        since: OffsetDateTime,
        slice: i64,
    ) -> Result<i64, StoreError> {
        let last = sql(LAST_FAILED).bind(account).bind(id).bind(since);
        let Some(last) = self.0.read_row_if_any::<FailedRow, _>(account, last).await? else {
            return Ok(0);
        };
        let (mut queued, mut at, mut event) = (0, since, Uuid::nil());
        loop {
            let statement = sql(RECOVER)
                .bind(account)
                .bind(id)
                .bind(at)
                .bind(event)
                .bind(last.failed_at)
                .bind(last.event_id)
                .bind(slice);
            let Some(recovered) = self.0.written_if_any::<RecoveredRow>(account, statement).await? else {
                return Ok(queued);
            };
            queued += recovered.n;
            (at, event) = (recovered.last.failed_at, recovered.last.event_id);
        }
    }
}
