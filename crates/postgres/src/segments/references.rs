//! The rows that filters and requests name. A row of another account does not exist.

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::segments::FilterReference;
use recado_domain::shared::{AccountId, ContactId};

use crate::errors::DbResult;
use crate::sql::{NumberRow, Sql, collect_column, key_rows, sql, uuids};

/// Selects the paths of the references that name no row. A product exists once an order had it.
pub(crate) fn unknown<'a>(account: AccountId, references: &[(String, FilterReference)]) -> Sql<'a> {
    let kind_and_key = |reference: &FilterReference| match reference {
        FilterReference::Tag(id) => ("tag", id.to_string()),
        FilterReference::Campaign(id) => ("campaign", id.to_string()),
        FilterReference::Product(id) => ("product", id.clone()),
    };
    sql(
        "SELECT r.path AS text FROM unnest($2, $3, $4) WITH ORDINALITY AS r (path, kind, key, position)
         WHERE NOT CASE r.kind
           WHEN 'tag' THEN EXISTS (SELECT 1 FROM tags t WHERE t.account_id = $1 AND t.id = r.key::uuid)
           WHEN 'campaign' THEN EXISTS (SELECT 1 FROM campaigns n
             WHERE n.account_id = $1 AND n.id = r.key::uuid AND n.deleted_at IS NULL)
           ELSE EXISTS (SELECT 1 FROM product_names p WHERE p.account_id = $1 AND p.product_id = r.key)
         END ORDER BY r.position",
    )
    .bind(account)
    .bind(collect_column(references, |(path, _)| path.clone()))
    .bind(collect_column(references, |(_, reference)| {
        kind_and_key(reference).0.to_owned()
    }))
    .bind(collect_column(references, |(_, reference)| kind_and_key(reference).1))
}

/// Returns the positions of the contacts that do not exist.
pub(super) async fn unknown_contacts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    contacts: &[ContactId],
) -> DbResult<Vec<usize>> {
    let unknown: Vec<NumberRow> = sql(format!(
        "SELECT i.position - 1 AS n FROM {keys} i
         WHERE NOT EXISTS (SELECT 1 FROM contacts c
           WHERE c.account_id = $1 AND c.id = i.id AND c.deleted_at IS NULL)
         ORDER BY i.position",
        keys = key_rows("$2", "id"),
    ))
    .bind(account)
    .bind(uuids(contacts))
    .load(conn)
    .await?;
    let positions = unknown.iter().map(|row| usize::try_from(row.n).unwrap_or_default());
    Ok(positions.collect())
}
