//! A review status that WhatsApp reports with the status of a message.

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::Timestamptz;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::messaging::MetaStatus;
use recado_domain::shared::{AccountId, TemplateId};
use recado_domain::templates::{apply_review, review_events};
use time::OffsetDateTime;

use super::campaigns::pause_template;
use super::{find, update};
use crate::errors::DbResult;
use crate::sql::sql;

#[derive(QueryableByName)]
struct NowRow {
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
}

/// Stores the status, unless the template was changed since its submission, and pauses the runs of the template.
pub(crate) async fn review(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    template: TemplateId,
    status: MetaStatus,
) -> DbResult<()> {
    let locked: Option<NowRow> = sql("SELECT now() AS now FROM message_templates
         WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL FOR NO KEY UPDATE")
    .bind(account)
    .bind(template)
    .get_result(&mut *conn)
    .await
    .optional()?;
    if let (Some(row), Some(template)) = (locked, find(conn, account, template, false).await?)
        && let Some(reviewed) = apply_review(&template, status.into(), row.now)
    {
        update(conn, &reviewed, &template, &review_events(&template, &reviewed)).await?;
    }
    // Runs pause last, as after a synchronization.
    match status.pause_reason() {
        Some(reason) => pause_template(conn, account, template, reason).await,
        None => Ok(()),
    }
}
