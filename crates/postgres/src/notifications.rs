//! Notifications of one account, and the feed of all notifications by sequence number.

use async_trait::async_trait;
use diesel::dsl::{case_when, max, now};
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, IntoSql, QueryDsl, Queryable, QueryableByName, Selectable, SelectableHelper};
use diesel::sql_types::{Nullable, Timestamptz};
use recado_domain::notifications::{
    Notification, NotificationFeed, NotificationQuery, NotificationStore, SequencedNotification,
};
use recado_domain::shared::{AccountId, CursorPage, EventKind, NotificationId, RowOutcome, StoreError};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::outbox::PgOutbox;
use crate::pool::{OwnerPool, TenantPool};
use crate::schema::notifications;
use crate::sql::{limit_hint, sql};

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

#[derive(Queryable, Selectable, QueryableByName)]
#[diesel(table_name = notifications, check_for_backend(Pg))]
struct NotificationRow {
    id: Uuid,
    #[diesel(column_name = type_)]
    kind: String,
    title: String,
    message: String,
    data: Value,
    read_at: Option<OffsetDateTime>,
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

#[derive(Queryable, Selectable)]
#[diesel(table_name = notifications, check_for_backend(Pg))]
struct SequencedNotificationRow {
    seq: i64,
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

#[async_trait]
impl NotificationStore for PgNotifications {
    async fn list(
        &self,
        account: AccountId,
        query: &NotificationQuery,
    ) -> Result<CursorPage<Notification>, StoreError> {
        let limit = query.page.limit;
        self.catch_up(account).await;
        let unread = if query.unread { " AND read_at IS NULL" } else { "" };
        let ordered = format!(
            "SELECT id, type AS type_, title, message, data, read_at, created_at FROM notifications
             WHERE account_id = $1 AND id < $2{unread} ORDER BY id DESC"
        );
        let statement = sql(limit_hint(ordered, "$3"))
            .bind(account)
            .bind(query.page.cursor.unwrap_or(Uuid::max()))
            .bind(limit + 1);
        let rows: Vec<NotificationRow> = self.tenants.in_index_order().read_rows(account, statement).await?;
        let rows = rows.into_iter().map(Notification::from).collect();
        Ok(CursorPage::cut(rows, limit, |row: &Notification| row.id))
    }

    async fn read(&self, account: AccountId, id: NotificationId) -> Result<RowOutcome, StoreError> {
        let first_read = case_when(
            notifications::read_at.is_null(),
            now.into_sql::<Nullable<Timestamptz>>(),
        )
        .otherwise(notifications::read_at);
        let mark =
            diesel::update(notifications::table.find((account.0, id.0))).set(notifications::read_at.eq(first_read));
        Ok(RowOutcome::of(self.tenants.run(account, mark).await? > 0))
    }

    async fn read_all(&self, account: AccountId) -> Result<(), StoreError> {
        self.catch_up(account).await;
        let mark = diesel::update(notifications::table)
            .filter(notifications::account_id.eq(account.0))
            .filter(notifications::read_at.is_null())
            .set(notifications::read_at.eq(now));
        self.tenants.run(account, mark).await.map(drop)
    }
}

#[async_trait]
impl NotificationFeed for PgNotificationFeed {
    async fn latest(&self) -> Result<i64, StoreError> {
        let query = notifications::table.select(max(notifications::seq));
        Ok(self.0.row::<Option<i64>>(query).await?.unwrap_or_default())
    }

    async fn after(&self, seq: i64, limit: i64) -> Result<Vec<SequencedNotification>, StoreError> {
        let query = notifications::table
            .filter(notifications::seq.gt(seq))
            .order(notifications::seq)
            .limit(limit)
            .select(SequencedNotificationRow::as_select());
        let rows = self.0.rows::<SequencedNotificationRow>(query).await?;
        Ok(rows.into_iter().map(SequencedNotification::from).collect())
    }

    async fn seq_of(&self, account: AccountId, id: NotificationId) -> Result<Option<i64>, StoreError> {
        let query = notifications::table.find((account.0, id.0)).select(notifications::seq);
        self.0.row_if_any(query).await
    }

    async fn between(
        &self,
        account: AccountId,
        after: i64,
        until: i64,
        limit: i64,
    ) -> Result<Vec<SequencedNotification>, StoreError> {
        let query = notifications::table
            .filter(notifications::account_id.eq(account.0))
            .filter(notifications::seq.gt(after))
            .filter(notifications::seq.le(until))
            .order(notifications::seq)
            .limit(limit)
            .select(SequencedNotificationRow::as_select());
        let rows = self.0.rows::<SequencedNotificationRow>(query).await?;
        Ok(rows.into_iter().map(SequencedNotification::from).collect())
    }
}
