//! A template within the transaction of another store.

use diesel::OptionalExtension;
use diesel::prelude::{ExpressionMethods, QueryDsl, SelectableHelper};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, TemplateId};
use recado_domain::templates::Template;
use time::OffsetDateTime;

use super::TemplateRow;
use crate::errors::DbResult;
use crate::schema::message_templates;

/// A template, for those who read it as part of something else.
pub(crate) async fn one(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: TemplateId,
    deleted_too: bool,
) -> DbResult<Option<Template>> {
    let row: Option<(TemplateRow, Option<OffsetDateTime>)> = message_templates::table
        .filter(message_templates::account_id.eq(account.0))
        .filter(message_templates::id.eq(id.0))
        .select((TemplateRow::as_select(), message_templates::deleted_at))
        .first(conn)
        .await
        .optional()?;
    let row = row.filter(|(_, deleted_at)| deleted_too || deleted_at.is_none());
    Ok(row.map(|(row, _)| Template::try_from(row)).transpose()?)
}

/// The same, and it stays as it is until the transaction ends.
pub(crate) async fn locked(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: TemplateId,
    deleted_too: bool,
) -> DbResult<Option<Template>> {
    let row: Option<(TemplateRow, Option<OffsetDateTime>)> = message_templates::table
        .filter(message_templates::account_id.eq(account.0))
        .filter(message_templates::id.eq(id.0))
        .select((TemplateRow::as_select(), message_templates::deleted_at))
        .for_share()
        .first(conn)
        .await
        .optional()?;
    let row = row.filter(|(_, deleted_at)| deleted_too || deleted_at.is_none());
    Ok(row.map(|(row, _)| Template::try_from(row)).transpose()?)
}
