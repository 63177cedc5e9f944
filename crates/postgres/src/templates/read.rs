//! Reads a template in the transaction of another store.

use diesel::OptionalExtension;
use diesel::prelude::{ExpressionMethods, QueryDsl, SelectableHelper};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, TemplateId};
use recado_domain::templates::Template;
use time::OffsetDateTime;

use super::rows::TemplateRow;
use crate::errors::DbResult;
use crate::schema::message_templates;

pub(crate) async fn find(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: TemplateId,
    include_deleted: bool,
) -> DbResult<Option<Template>> {
    let row: Option<(TemplateRow, Option<OffsetDateTime>)> = message_templates::table
        .filter(message_templates::account_id.eq(account.0))
        .filter(message_templates::id.eq(id.0))
        .select((TemplateRow::as_select(), message_templates::deleted_at))
        .first(conn)
        .await
        .optional()?;
    let row = row.filter(|(_, deleted_at)| include_deleted || deleted_at.is_none());
    Ok(row.map(|(row, _)| Template::try_from(row)).transpose()?)
}

/// [`find`] with a share lock: the template does not change until the transaction ends.
pub(crate) async fn find_locked(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: TemplateId,
    include_deleted: bool,
) -> DbResult<Option<Template>> {
    let row: Option<(TemplateRow, Option<OffsetDateTime>)> = message_templates::table
        .filter(message_templates::account_id.eq(account.0))
        .filter(message_templates::id.eq(id.0))
        .select((TemplateRow::as_select(), message_templates::deleted_at))
        .for_share()
        .first(conn)
        .await
        .optional()?;
    let row = row.filter(|(_, deleted_at)| include_deleted || deleted_at.is_none());
    Ok(row.map(|(row, _)| Template::try_from(row)).transpose()?)
}
