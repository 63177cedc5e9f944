//! Webhook endpoints of one account and the commands on them: ping, redelivery and recovery.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::dsl::{auto_type, case_when};
use diesel::pg::Pg;
use diesel::prelude::{
    AsChangeset, ExpressionMethods, Insertable, QueryDsl, Queryable, QueryableByName, Selectable, SelectableHelper,
};
use diesel::sql_types::{BigInt, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{
    AccountId, CursorPage, Event, InsertOutcome, Page, PageQuery, RowOutcome, Sealed, StoreError, UpdateOutcome,
    WebhookEventId, WebhookId, WebhookLogId,
};
use recado_domain::webhooks::{
    FeedQuery, LogQuery, LoggedDelivery, SealedSecrets, StoredWebhook, Webhook, WebhookEvent, WebhookLog,
    WebhookLogStore, WebhookStore,
};
use time::OffsetDateTime;
use uuid::Uuid;

use super::feed;
use crate::errors::{DbResult, parse_enum};
use crate::outbox;
use crate::pool::TenantPool;
use crate::schema::{webhook_endpoint_ids, webhook_endpoints, webhook_events, webhook_logs};
use crate::sql::sql;
use crate::transactions::in_tenant;

#[derive(Clone, Debug)]
pub struct PgWebhooks(TenantPool);

impl PgWebhooks {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = webhook_endpoints, check_for_backend(Pg))]
pub(super) struct Row {
    id: Uuid,
    name: String,
    url: Option<String>,
    events: Vec<String>,
    direction: String,
    is_active: bool,
    secret: Vec<u8>,
    secret_hint: String,
    previous_secret: Option<Vec<u8>>,
    previous_secret_until: Option<OffsetDateTime>,
    disabled_at: Option<OffsetDateTime>,
    disabled_reason: Option<String>,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
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

/// The columns that an update replaces.
#[derive(Insertable, AsChangeset)]
#[diesel(table_name = webhook_endpoints, treat_none_as_null = true)]
struct Content<'a> {
    name: &'a str,
    url: Option<&'a str>,
    events: &'a [String],
    direction: &'a str,
    is_active: bool,
    secret: &'a [u8],
    secret_hint: &'a str,
    previous_secret: Option<&'a [u8]>,
    previous_secret_until: Option<OffsetDateTime>,
    disabled_at: Option<OffsetDateTime>,
    disabled_reason: Option<&'a str>,
    updated_at: OffsetDateTime,
}

impl<'a> From<&'a StoredWebhook> for Content<'a> {
    fn from(StoredWebhook { webhook, secrets, .. }: &'a StoredWebhook) -> Self {
        let previous = secrets.previous.as_ref();
        Self {
            name: &webhook.name,
            url: webhook.url.as_deref(),
            events: &webhook.events,
            direction: webhook.direction.as_str(),
            is_active: webhook.is_active,
            secret: &secrets.current.0,
            secret_hint: &webhook.secret_hint,
            previous_secret: previous.map(|(sealed, _)| sealed.0.as_slice()),
            previous_secret_until: previous.map(|(_, until)| *until),
            disabled_at: webhook.disabled_at,
            disabled_reason: webhook.disabled_reason.map(|reason| reason.as_str()),
            updated_at: webhook.updated_at,
        }
    }
}

#[auto_type]
fn by_id(account: AccountId, id: WebhookId) -> _ {
    let key: (Uuid, Uuid) = (account.0, id.0);
    webhook_endpoints::table.find(key)
}

#[auto_type]
fn of_account(account: AccountId) -> _ {
    let account: Uuid = account.0;
    webhook_endpoints::table.filter(webhook_endpoints::account_id.eq(account))
}

/// Advisory lock that serializes the inserts of an account, so that concurrent inserts do not exceed the limit.
const LOCK_INSERTS: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 19))";

async fn insert(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    stored: &StoredWebhook,
    at_most: i64,
    events: &[Event],
) -> DbResult<InsertOutcome> {
    sql(LOCK_INSERTS).bind(account).execute(&mut *conn).await?;
    let count: i64 = of_account(account).count().get_result(&mut *conn).await?;
    if count >= at_most {
        return Ok(InsertOutcome::Full);
    }
    let keys = (
        webhook_endpoints::account_id.eq(account.0),
        webhook_endpoints::id.eq(stored.webhook.id.0),
        webhook_endpoints::created_at.eq(stored.webhook.updated_at),
    );
    let endpoint = diesel::insert_into(webhook_endpoints::table).values((keys, Content::from(stored)));
    endpoint.execute(&mut *conn).await?;
    // A call of an inbound endpoint contains the endpoint's id only, so this directory maps ids to accounts.
    let entry = diesel::insert_into(webhook_endpoint_ids::table).values((
        webhook_endpoint_ids::id.eq(stored.webhook.id.0),
        webhook_endpoint_ids::account_id.eq(account.0),
    ));
    entry.execute(&mut *conn).await?;
    outbox::append(conn, account, events).await?;
    Ok(InsertOutcome::Done)
}

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
    let unchanged = by_id(account, id).filter(webhook_endpoints::version.eq(stored.version));
    // An endpoint that is activated starts without failures.
    let health = stored.webhook.is_active.then_some((
        webhook_endpoints::failing_since.eq(case_when(
            webhook_endpoints::is_active,
            webhook_endpoints::failing_since,
        )),
        webhook_endpoints::last_failed_at.eq(case_when(
            webhook_endpoints::is_active,
            webhook_endpoints::last_failed_at,
        )),
    ));
    let next_version = webhook_endpoints::version.eq(webhook_endpoints::version + 1);
    let statement = diesel::update(unchanged).set((Content::from(stored), health, next_version));
    if statement.execute(&mut *conn).await? == 0 {
        let found = by_id(account, id).select(webhook_endpoints::id);
        let found: Option<Uuid> = found.get_result(conn).await.optional()?;
        return Ok(found.map_or(UpdateOutcome::Missing, |_| UpdateOutcome::Stale));
    }
    if !stored.webhook.is_active {
        drop_waiting_deliveries(conn, account, id).await?;
    }
    outbox::append(conn, account, events).await?;
    Ok(UpdateOutcome::Done(()))
}

async fn delete(conn: &mut AsyncPgConnection, account: AccountId, id: WebhookId, events: &[Event]) -> DbResult<bool> {
    if diesel::delete(by_id(account, id)).execute(&mut *conn).await? == 0 {
        return Ok(false);
    }
    outbox::append(conn, account, events).await?;
    Ok(true)
}

/// Makes a delivery due again from its first attempt. A leased delivery is left to the deliverer that holds the lease.
/// If the event's day is dropped meanwhile, the delivery is removed when it is claimed.
///
/// A delivery that succeeded has no row any more. Its new row counts claims from the clock's microseconds on, above all
/// earlier claims: a result that is recorded late or twice must not have the number of a new claim.
const ENQUEUE: &str = "INSERT INTO webhook_deliveries (account_id, event_id, endpoint_id, claim)
     SELECT v.account_id, v.id, w.id, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM webhook_events v
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
    let insert = diesel::insert_into(webhook_events::table).values((
        webhook_events::account_id.eq(account.0),
        webhook_events::id.eq(event.id.0),
        webhook_events::type_.eq(&event.kind),
        webhook_events::payload.eq(&event.data),
        webhook_events::occurred_at.eq(event.timestamp),
    ));
    insert.execute(&mut *conn).await?;
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
    " WHERE ",
    is_delivery!("k"),
    " RETURNING 1)
     SELECT (SELECT count(*) FROM queued) AS n, failed_at, event_id FROM failed
     ORDER BY failed_at DESC, event_id DESC LIMIT 1"
);

#[async_trait]
impl WebhookStore for PgWebhooks {
    async fn page(&self, account: AccountId, page: PageQuery) -> Result<Page<Webhook>, StoreError> {
        let page_query = of_account(account)
            .order((webhook_endpoints::created_at.desc(), webhook_endpoints::id.desc()))
            .limit(page.limit())
            .offset(page.offset())
            .select(Row::as_select());
        let (total, rows) = self
            .0
            .read_page::<i64, Row, _, _>(account, of_account(account).count(), page_query)
            .await?;
        let webhooks = rows.into_iter().map(|row| row.stored().map(|stored| stored.webhook));
        Ok(Page::new(page, webhooks.collect::<Result<_, _>>()?, total))
    }

    async fn find(&self, account: AccountId, id: WebhookId) -> Result<Option<StoredWebhook>, StoreError> {
        let query = by_id(account, id).select(Row::as_select());
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

    async fn delete(&self, account: AccountId, id: WebhookId, events: &[Event]) -> Result<RowOutcome, StoreError> {
        in_tenant!(self.0, account, |conn| delete(conn, account, id, events)).map(RowOutcome::of)
    }
}

#[async_trait]
impl WebhookLogStore for PgWebhooks {
    async fn logs(&self, account: AccountId, query: &LogQuery) -> Result<Vec<WebhookLog>, StoreError> {
        feed::logs(&self.0, account, query).await
    }

    async fn logged(&self, account: AccountId, id: WebhookLogId) -> Result<Option<LoggedDelivery>, StoreError> {
        let query = webhook_logs::table
            .find((account.0, id.0))
            .select((webhook_logs::endpoint_id, webhook_logs::event_id));
        let row: Option<(Uuid, Option<Uuid>)> = self.0.read_row_if_any(account, query).await?;
        Ok(row.map(|(endpoint, event)| LoggedDelivery {
            endpoint_id: endpoint.into(),
            event_id: event.map(Into::into),
        }))
    }

    async fn feed(&self, account: AccountId, query: &FeedQuery) -> Result<CursorPage<WebhookEvent>, StoreError> {
        feed::cursor_page(&self.0, account, query).await
    }

    async fn ping(&self, account: AccountId, id: WebhookId, event: &WebhookEvent) -> Result<RowOutcome, StoreError> {
        // If the endpoint was deleted meanwhile, the rollback removes the ping event.
        in_tenant!(self.0, account, |conn| ping(conn, account, id, event), unless false).map(RowOutcome::of)
    }

    async fn redeliver(
        &self,
        account: AccountId,
        id: WebhookId,
        event: WebhookEventId,
    ) -> Result<RowOutcome, StoreError> {
        in_tenant!(self.0, account, |conn| enqueue_delivery(conn, account, id, event)).map(RowOutcome::of)
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
