//! Sealed values in the database: how many there are under which key, and their rotation to the current key.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Binary, Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{Resealer, SealContext, SealPurpose, Sealed, StoreError, UnsealError};
use uuid::Uuid;

use crate::errors::DbResult;
use crate::pool::OwnerPool;
use crate::sql::{Sql, collect_column, sql};
use crate::transactions::in_owner;

/// A column of sealed values. The account and the key identify a row, and are the `SealContext` of its value.
#[derive(Debug)]
pub struct SealedColumn {
    pub purpose: SealPurpose,
    pub table: &'static str,
    pub column: &'static str,
    /// The column with the account. `None`: the rows belong to no account, and the `SealContext` has the nil UUID.
    account: Option<&'static str>,
    /// The column with the row's key within the account, its type, and its least value.
    key: (&'static str, &'static str, &'static str),
    /// Whether the primary key is (account, key), and not the key alone.
    keyed_by_account: bool,
    /// Whether the row has a `version`. A rotation raises it: a writer that read the old value must not write it back.
    versioned: bool,
}

const UUID_KEY: (&str, &str, &str) = ("id", "uuid", "00000000-0000-0000-0000-000000000000");

const NO_ACCOUNT: &str = "'00000000-0000-0000-0000-000000000000'::uuid";

/// Every column of sealed values. To rotate one more, add it here: the rotation, the metric and the doctor read this
/// table. A test compares it with the binary columns of the schema.
pub const SEALED_COLUMNS: &[SealedColumn] = &[
    SealedColumn {
        purpose: SealPurpose::WhatsappToken,
        table: "whatsapp_profiles",
        column: "access_token",
        account: Some("account_id"),
        key: UUID_KEY,
        keyed_by_account: true,
        versioned: true,
    },
    SealedColumn {
        purpose: SealPurpose::WebhookSecret,
        table: "webhook_endpoints",
        column: "secret",
        account: Some("account_id"),
        key: UUID_KEY,
        keyed_by_account: true,
        versioned: true,
    },
    SealedColumn {
        purpose: SealPurpose::WebhookSecret,
        table: "webhook_endpoints",
        column: "previous_secret",
        account: Some("account_id"),
        key: UUID_KEY,
        keyed_by_account: true,
        versioned: true,
    },
    SealedColumn {
        purpose: SealPurpose::StoredResponse,
        table: "idempotency_keys",
        column: "response",
        account: Some("scope"),
        key: ("key", "text", ""),
        keyed_by_account: true,
        versioned: false,
    },
    SealedColumn {
        purpose: SealPurpose::QueuedMail,
        table: "outgoing_mail",
        column: "content",
        account: Some("account_id"),
        key: UUID_KEY,
        keyed_by_account: false,
        versioned: false,
    },
    SealedColumn {
        purpose: SealPurpose::HeldMessage,
        table: "whatsapp_held_messages",
        column: "event",
        account: None,
        key: ("key", "bytea", ""),
        keyed_by_account: false,
        versioned: false,
    },
];

/// The sealed values of one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedCount {
    pub purpose: SealPurpose,
    /// Values that name the current key.
    pub current: i64,
    /// Values that name another key, or none: `recado secrets rotate` has to seal them anew.
    pub earlier: i64,
}

/// The position of a rotation in a column: the account and the key of the last row that was read.
#[derive(Clone, Debug)]
pub struct RowKey {
    account: Uuid,
    key: String,
}

/// The outcome of one batch of a rotation.
#[derive(Debug, Default)]
pub struct ResealedBatch {
    pub resealed: usize,
    /// The values that cannot be opened. They are left as they are.
    pub unreadable: Vec<(SealContext, UnsealError)>,
    /// Where the next batch begins. `None`: the column has no further rows to read.
    pub next: Option<RowKey>,
}

#[derive(QueryableByName)]
struct ValueRow {
    #[diesel(sql_type = SqlUuid)]
    account: Uuid,
    #[diesel(sql_type = Text)]
    key: String,
    #[diesel(sql_type = Binary)]
    value: Vec<u8>,
}

#[derive(QueryableByName)]
struct CountRow {
    #[diesel(sql_type = BigInt)]
    current: i64,
    #[diesel(sql_type = BigInt)]
    earlier: i64,
}

impl SealedColumn {
    /// Counts by the marker `$1`.
    fn counts(&self) -> String {
        let Self { table, column, .. } = self;
        format!(
            "SELECT count(*) FILTER (WHERE m.is_current) AS current, count(*) FILTER (WHERE NOT m.is_current) AS earlier
             FROM (SELECT substring({column} FROM 1 FOR length($1)) = $1 AS is_current
               FROM {table} WHERE {column} IS NOT NULL) m"
        )
    }

    /// Locks the next `$4` rows whose value lacks the marker `$1`, after the row `$2`, `$3`. Rows that other
    /// transactions have locked are skipped: a rotation never waits for a writer, so no deadlock includes it.
    fn next_rows(&self) -> String {
        let Self {
            table,
            column,
            account,
            key: (key, key_type, _),
            ..
        } = self;
        let (position, order) = match account.filter(|_| self.keyed_by_account) {
            Some(account) => (
                format!("({account}, {key}) > ($2, $3::{key_type})"),
                format!("{account}, {key}"),
            ),
            None => (format!("$2 IS NOT NULL AND {key} > $3::{key_type}"), (*key).to_owned()),
        };
        let account = account.unwrap_or(NO_ACCOUNT);
        format!(
            "SELECT {account} AS account, {key}::text AS key, {column} AS value FROM {table}
             WHERE {column} IS NOT NULL AND substring({column} FROM 1 FOR length($1)) <> $1 AND {position}
             ORDER BY {order} LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED"
        )
    }

    /// Compare-and-set: replaces the values `$3` by `$4` in the rows `$1`, `$2`.
    fn replace(&self) -> String {
        let Self {
            table,
            column,
            account,
            key: (key, key_type, _),
            ..
        } = self;
        let version = if self.versioned {
            ", version = t.version + 1"
        } else {
            ""
        };
        let account = account.map_or_else(|| NO_ACCOUNT.to_owned(), |account| format!("t.{account}"));
        format!(
            "UPDATE {table} AS t SET {column} = k.fresh{version}
             FROM unnest($1, $2, $3, $4) AS k (account, key, stored, fresh)
             WHERE {account} = k.account AND t.{key} = k.key::{key_type} AND t.{column} = k.stored"
        )
    }

    fn start(&self) -> RowKey {
        RowKey {
            account: Uuid::nil(),
            key: self.key.2.to_owned(),
        }
    }
}

/// Counts and rotates sealed values on the owner pool.
#[derive(Clone, Debug)]
pub struct PgSealedValues(OwnerPool);

impl PgSealedValues {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }

    /// Counts the sealed values by purpose. `current_marker` is `Resealer::current_marker`. Reads every row of the
    /// tables of `SEALED_COLUMNS`, so call it rarely.
    pub async fn counts(&self, current_marker: &[u8]) -> Result<Vec<SealedCount>, StoreError> {
        let mut counts: Vec<SealedCount> = Vec::new();
        for column in SEALED_COLUMNS {
            let row: CountRow = self.0.row(sql(column.counts()).bind(current_marker)).await?;
            match counts.iter_mut().find(|count| count.purpose == column.purpose) {
                Some(count) => {
                    count.current += row.current;
                    count.earlier += row.earlier;
                }
                None => counts.push(SealedCount {
                    purpose: column.purpose,
                    current: row.current,
                    earlier: row.earlier,
                }),
            }
        }
        Ok(counts)
    }

    /// Counts the sealed values under earlier keys by purpose, without purposes that have none.
    pub async fn under_earlier_keys(&self, current_marker: &[u8]) -> Result<Vec<(SealPurpose, i64)>, StoreError> {
        let counts = self.counts(current_marker).await?.into_iter();
        let earlier = counts.map(|count| (count.purpose, count.earlier));
        Ok(earlier.filter(|(_, count)| *count > 0).collect())
    }

    /// Seals the next `limit` values of a column anew, in one short transaction. `after` is the `next` of the batch
    /// before. It may be interrupted and repeated at any time: it selects what does not name the current key.
    pub async fn reseal(
        &self,
        column: &SealedColumn,
        after: Option<RowKey>,
        limit: i64,
        resealer: &dyn Resealer,
    ) -> Result<ResealedBatch, StoreError> {
        let after = after.unwrap_or_else(|| column.start());
        in_owner!(self.0, |conn| reseal(conn, column, &after, limit, resealer))
    }
}

async fn reseal(
    conn: &mut AsyncPgConnection,
    column: &SealedColumn,
    after: &RowKey,
    limit: i64,
    resealer: &dyn Resealer,
) -> DbResult<ResealedBatch> {
    let marker = resealer.current_marker();
    let rows: Vec<ValueRow> = sql(column.next_rows())
        .bind(marker.as_slice())
        .bind(after.account)
        .bind(after.key.as_str())
        .bind(limit)
        .load(&mut *conn)
        .await?;
    let mut batch = ResealedBatch::default();
    let mut replaced = Vec::new();
    for row in &rows {
        let context = SealContext::new(column.purpose, row.account, &row.key);
        match resealer.reseal(&Sealed(row.value.clone()), &context) {
            Ok(fresh) => replaced.push((row, fresh)),
            Err(error) => batch.unreadable.push((context, error)),
        }
    }
    if !replaced.is_empty() {
        batch.resealed = replace_statement(column, &replaced).execute(conn).await?;
    }
    let is_full = i64::try_from(rows.len()).is_ok_and(|read| read >= limit);
    batch.next = rows.into_iter().next_back().filter(|_| is_full).map(|row| RowKey {
        account: row.account,
        key: row.key,
    });
    Ok(batch)
}

fn replace_statement<'a>(column: &SealedColumn, replaced: &[(&ValueRow, Sealed)]) -> Sql<'a> {
    sql(column.replace())
        .bind(collect_column(replaced, |(row, _)| row.account))
        .bind(collect_column(replaced, |(row, _)| row.key.clone()))
        .bind(collect_column(replaced, |(row, _)| row.value.clone()))
        .bind(collect_column(replaced, |(_, fresh)| fresh.0.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_no_account_are_found_and_replaced_by_their_key() {
        let column = SealedColumn {
            purpose: SealPurpose::QueuedMail,
            table: "t",
            column: "c",
            account: None,
            key: UUID_KEY,
            keyed_by_account: false,
            versioned: false,
        };
        let next = column.next_rows();
        assert!(next.contains("SELECT '00000000-0000-0000-0000-000000000000'::uuid AS account, id::text AS key"));
        assert!(
            next.contains("id > $3::uuid") && next.contains("ORDER BY id LIMIT"),
            "{next}"
        );
        let replace = column.replace();
        assert!(
            replace.contains("-000000000000'::uuid = k.account AND t.id = k.key::uuid"),
            "{replace}"
        );
    }
}
