//! Transactional outbox: a transaction that changes contacts also appends `contact.*` events. Without a subscriber this
//! costs one index probe and no round trip.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Bool, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::contacts::ContactEvent;
use recado_domain::shared::{AccountId, WebhookKind};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::DbResult;
use crate::outbox;
use crate::schema::contacts;
use crate::sql::{key_rows, sql};

/// A column for the RETURNING list of a statement whose `$1` is the account: whether an endpoint subscribes to `kind`.
/// The statement looks this up once.
pub(crate) fn is_subscribed(kind: WebhookKind) -> String {
    format!("(SELECT has_subscribers($1, '{}')) AS is_subscribed", kind.as_str())
}

/// A row of RETURNING: a contact that a statement has changed, and the column of [`is_subscribed`].
#[derive(QueryableByName)]
pub(crate) struct ChangedContact {
    #[diesel(sql_type = SqlUuid)]
    pub(crate) id: Uuid,
    #[diesel(sql_type = Bool)]
    is_subscribed: bool,
}

#[derive(QueryableByName)]
#[diesel(table_name = contacts, check_for_backend(diesel::pg::Pg))]
struct EventRow {
    id: Uuid,
    name: String,
    phone: Option<String>,
    email: Option<String>,
    wa_user_id: Option<String>,
    opted_out_at: Option<OffsetDateTime>,
    updated_at: OffsetDateTime,
}

impl From<EventRow> for ContactEvent {
    fn from(row: EventRow) -> Self {
        Self {
            id: row.id.into(),
            name: row.name,
            phone: row.phone,
            email: row.email,
            wa_user_id: row.wa_user_id,
            opted_out_at: row.opted_out_at,
            updated_at: row.updated_at,
        }
    }
}

/// Appends an event for each changed contact if an endpoint subscribes to `kind`, which the statement must have asked.
pub(crate) async fn append_if_subscribed(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    kind: WebhookKind,
    changed: &[ChangedContact],
) -> DbResult<()> {
    if !changed.iter().any(|contact| contact.is_subscribed) {
        return Ok(());
    }
    append(conn, account, kind, changed.iter().map(|contact| contact.id).collect()).await
}

/// Appends an event for each of these contacts, with the values that the transaction has just written. The rows of
/// deleted contacts still exist.
pub(super) async fn append(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    kind: WebhookKind,
    ids: Vec<Uuid>,
) -> DbResult<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let rows: Vec<EventRow> = sql(format!(
        "SELECT c.id, c.name, c.phone, c.email, c.wa_user_id, c.opted_out_at, c.updated_at
         FROM {keys} k JOIN contacts c ON c.account_id = $1 AND c.id = k.id ORDER BY k.position",
        keys = key_rows("$2", "id"),
    ))
    .bind(account)
    .bind(ids)
    .load(&mut *conn)
    .await?;
    let contacts: Vec<ContactEvent> = rows.into_iter().map(ContactEvent::from).collect();
    outbox::append(conn, account, &[ContactEvent::event(kind, &contacts)]).await
}
