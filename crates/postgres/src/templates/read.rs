//! Reads a template in the transaction of another store.

use diesel::OptionalExtension;
use diesel::prelude::{BoolExpressionMethods, ExpressionMethods, QueryDsl, SelectableHelper};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, StoreError, TemplateId};
use recado_domain::templates::Template;
use time::OffsetDateTime;
use uuid::Uuid;

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

/// The templates with one of these ids or names that are not deleted.
pub(crate) async fn find_all(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    ids: &[Uuid],
    names: &[String],
) -> DbResult<Vec<Template>> {
    let named = message_templates::id
        .eq_any(ids)
        .or(message_templates::name.eq_any(names));
    let rows: Vec<TemplateRow> = message_templates::table
        .filter(message_templates::account_id.eq(account.0))
        .filter(message_templates::deleted_at.is_null())
        .filter(named)
        .select(TemplateRow::as_select())
        .load(conn)
        .await?;
    let templates = rows.into_iter().map(Template::try_from);
    Ok(templates.collect::<Result<_, StoreError>>()?)
}
