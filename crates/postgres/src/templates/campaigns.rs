//! The campaigns that send a template: a change of the template pauses or names them.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::pause_notification;
use recado_domain::shared::{AccountId, Event, TemplateId};
use uuid::Uuid;

use crate::errors::DbResult;
use crate::outbox;
use crate::sql::{IdRow, sql};

#[derive(QueryableByName)]
struct PausedRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    name: String,
}

/// Pauses every run that sends the template.
pub(crate) async fn pause_template(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    template: TemplateId,
    reason: &str,
) -> DbResult<()> {
    // Simulated runs make no call to WhatsApp, so they continue.
    let paused: Vec<PausedRow> = sql(
        "UPDATE campaigns SET paused_at = now(), pause_reason = $3, updated_at = now(), version = version + 1
         WHERE account_id = $1 AND template_id = $2 AND deleted_at IS NULL AND status = 'sending'
           AND paused_at IS NULL AND NOT simulated
         RETURNING id, name",
    )
    .bind(account)
    .bind(template)
    .bind(reason)
    .load(&mut *conn)
    .await?;
    let to_event = |row: &PausedRow| Event::Notification(pause_notification(row.id.into(), &row.name, reason));
    let events: Vec<Event> = paused.iter().map(to_event).collect();
    outbox::append(conn, account, &events).await
}

/// Returns the scheduled and sending campaigns of a template.
pub(super) async fn active_campaigns(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    template: TemplateId,
) -> DbResult<Vec<Uuid>> {
    let rows: Vec<IdRow> = sql("SELECT id FROM campaigns
         WHERE account_id = $1 AND template_id = $2 AND deleted_at IS NULL AND status IN ('scheduled', 'sending')
         ORDER BY id")
    .bind(account)
    .bind(template)
    .load(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}
