//! Notifications of one account, and the feed of all notifications by sequence number.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use recado_domain::notifications::{
    Notification, NotificationFeed, NotificationQuery, NotificationStore, SequencedNotification,
};
use recado_domain::shared::{AccountId, CursorPage, EventKind, NotificationId, StoreError};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::outbox::PgOutbox;
use crate::pool::{OwnerPool, TenantPool};
use crate::sql::{NumberRow, limit_hint, sql};

#[derive(Clone, Debug)]
pub struct PgNotifications {
    tenants: TenantPool,
    outbox: PgOutbox,
}

impl PgNotifications {
    /// `owner` relays the account's notifications that are still in the outbox before they are read.
    pub fn new(tenants: TenantPool, owner: OwnerPool) -> Self {
        Self {
            tenants,
            outbox: PgOutbox::new(owner),
        }
    }

    async fn catch_up(&self, account: AccountId) {
        if let Err(error) = self.outbox.catch_up(EventKind::Notification, account).await {
            tracing::warn!(cause = ?error, "notifications are read without events that are still in the outbox");
        }
    }
}

#[derive(Clone, Debug)]
pub struct PgNotificationFeed(OwnerPool);

impl PgNotificationFeed {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

#[derive(QueryableByName)]
struct NotificationRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Text)]
    title: String,
    #[diesel(sql_type = Text)]
    message: String,
    #[diesel(sql_type = Jsonb)]
    data: Value,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    read_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
}

impl From<NotificationRow> for Notification {
    fn from(row: NotificationRow) -> Self {
        Self {
            id: row.id.into(),
            kind: row.kind,
            title: row.title,
            message: row.message,
            data: row.data,
            read_at: row.read_at,
            created_at: row.created_at,
        }
    }
}

#[derive(QueryableByName)]
struct SequencedNotificationRow {
    #[diesel(sql_type = BigInt)]
    seq: i64,
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(embed)]
    notification: NotificationRow,
}

impl From<SequencedNotificationRow> for SequencedNotification {
    fn from(row: SequencedNotificationRow) -> Self {
        Self {
            seq: row.seq,
            account_id: row.account_id.into(),
            notification: row.notification.into(),
        }
    }
}

const COLUMNS: &str = "n.id, n.type AS kind, n.title, n.message, n.data, n.read_at, n.created_at";

#[async_trait]
impl NotificationStore for PgNotifications {
    async fn list(
        &self,
        account: AccountId,
        query: &NotificationQuery,
    ) -> Result<CursorPage<Notification>, StoreError> {
        let limit = query.page.limit;
        self.catch_up(account).await;
        let unread = if query.unread { " AND n.read_at IS NULL" } else { "" };
        let ordered = format!(
            "SELECT {COLUMNS} FROM notifications n
             WHERE n.account_id = $1 AND n.id < $2{unread} ORDER BY n.id DESC"
        );
        let statement = sql(limit_hint(ordered, "$3"))
            .bind(account)
            .bind(query.page.cursor.unwrap_or(Uuid::max()))
            .bind(limit + 1);
        let rows: Vec<NotificationRow> = self.tenants.in_index_order().read_rows(account, statement).await?;
        let rows = rows.into_iter().map(Notification::from).collect();
        Ok(CursorPage::cut(rows, limit, |row: &Notification| row.id))
    }

    async fn read(&self, account: AccountId, id: NotificationId) -> Result<bool, StoreError> {
        let mark = "UPDATE notifications SET read_at = coalesce(read_at, now()) WHERE account_id = $1 AND id = $2";
        Ok(self.tenants.run(account, sql(mark).bind(account).bind(id)).await? > 0)
    }

    async fn read_all(&self, account: AccountId) -> Result<(), StoreError> {
        self.catch_up(account).await;
        let mark = "UPDATE notifications SET read_at = now() WHERE account_id = $1 AND read_at IS NULL";
        self.tenants.run(account, sql(mark).bind(account)).await.map(drop)
    }
}

#[async_trait]
impl NotificationFeed for PgNotificationFeed {
    async fn latest(&self) -> Result<i64, StoreError> {
        let query = sql("SELECT coalesce(max(seq), 0) AS n FROM notifications");
        Ok(self.0.row::<NumberRow>(query).await?.n)
    }

    async fn after(&self, seq: i64, limit: i64) -> Result<Vec<SequencedNotification>, StoreError> {
        let query = sql(format!(
            "SELECT n.seq, n.account_id, {COLUMNS} FROM notifications n WHERE n.seq > $1 ORDER BY n.seq LIMIT $2"
        ))
        .bind(seq)
        .bind(limit);
        let rows = self.0.rows::<SequencedNotificationRow>(query).await?;
        Ok(rows.into_iter().map(SequencedNotification::from).collect())
    }

    async fn seq_of(&self, account: AccountId, id: NotificationId) -> Result<Option<i64>, StoreError> {
        let query = sql("SELECT seq AS n FROM notifications WHERE account_id = $1 AND id = $2")
            .bind(account)
            .bind(id);
        Ok(self.0.row_if_any::<NumberRow>(query).await?.map(|row| row.n))
    }

    async fn between(
        &self,
        account: AccountId,
        after: i64,
        until: i64,
        limit: i64,
    ) -> Result<Vec<SequencedNotification>, StoreError> {
        let query = sql(format!(
            "SELECT n.seq, n.account_id, {COLUMNS} FROM notifications n
             WHERE n.account_id = $1 AND n.seq > $2 AND n.seq <= $3 ORDER BY n.seq LIMIT $4"
        ))
        .bind(account)
        .bind(after)
        .bind(until)
        .bind(limit);
        let rows = self.0.rows::<SequencedNotificationRow>(query).await?;
        Ok(rows.into_iter().map(SequencedNotification::from).collect())
    }
}
