//! Deletes the rows of an account. The system catalog lists its tables, so a new table is included automatically, and
//! each table is emptied in primary key order. `account_deletions` stores the current table and the last deleted key.
//! So no batch scans the dead index entries of earlier batches, which only VACUUM removes.

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, Bool, Nullable, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::AccountId;

use crate::errors::DbResult;
use crate::sql::sql;

/// Rows per transaction, few enough that no statement comes near its timeout.
const BATCH: usize = 2_000;

/// Every table with an `account_id`, with the columns of its primary key and their types. A table comes before the
/// tables that it references. The platform audit log survives its accounts.
const TABLES: &str = include_str!("purge_tables.sql");

#[derive(QueryableByName)]
struct Table {
    #[diesel(sql_type = Text)]
    name: String,
    /// Columns of the primary key.
    #[diesel(sql_type = Array<Text>)]
    columns: Vec<String>,
    #[diesel(sql_type = Array<Text>)]
    types: Vec<String>,
    /// Whether the primary key begins with `account_id`.
    #[diesel(sql_type = Bool)]
    by_account: bool,
}

/// The progress of a deletion: the current table, and the last deleted key.
#[derive(Default, QueryableByName)]
struct Progress {
    #[diesel(sql_type = Nullable<Text>)]
    table_name: Option<String>,
    #[diesel(sql_type = Nullable<Array<Text>>)]
    after: Option<Vec<String>>,
}

#[derive(QueryableByName)]
struct Key {
    #[diesel(sql_type = Array<Text>)]
    key: Vec<String>,
}

impl Table {
    /// Conditions that split the table. Every row meets one, and each has an index on the account.
    fn parts(&self) -> &'static [&'static str] {
        match self.name.as_str() {
            "outbox_events" => &[
                "kind IN ('audit', 'notification', 'webhook') AND retry_at IS NULL",
                "(retry_at IS NOT NULL OR kind NOT IN ('audit', 'notification', 'webhook'))",
            ],
            _ => &["true"],
        }
    }

    /// The primary key without the account: its columns, their values as text, and the values of the array
    /// `parameter` cast to the columns' types.
    fn key(&self, parameter: &str) -> (String, String, String) {
        let columns = self.columns.get(1..).unwrap_or_default();
        let texts: Vec<String> = columns.iter().map(|column| format!("{column}::text")).collect();
        let types = self.types.iter().skip(1).enumerate();
        let values: Vec<String> = types
            .map(|(at, kind)| format!("(({parameter})[{}])::{kind}", at + 1))
            .collect();
        (columns.join(", "), texts.join(", "), values.join(", "))
    }

    /// Deletes up to `limit` rows after a key. Returns the number of deleted rows, and the last key if more may remain.
    async fn purge(
        &self,
        conn: &mut AsyncPgConnection,
        account: AccountId,
        after: &[String],
        limit: usize,
    ) -> DbResult<(usize, Option<Vec<String>>)> {
        match (self.by_account, self.columns.len()) {
            (true, 1) => Ok((self.purge_all(conn, account).await?, None)),
            (true, _) => self.purge_after(conn, account, after, limit).await,
            (false, _) => self.purge_any(conn, account, limit).await,
        }
    }

    /// For a table whose primary key is the account.
    async fn purge_all(&self, conn: &mut AsyncPgConnection, account: AccountId) -> DbResult<usize> {
        let statement = format!("DELETE FROM {} WHERE account_id = $1", self.name);
        Ok(sql(statement).bind(account).execute(conn).await?)
    }

    async fn purge_after(
        &self,
        conn: &mut AsyncPgConnection,
        account: AccountId,
        after: &[String],
        limit: usize,
    ) -> DbResult<(usize, Option<Vec<String>>)> {
        let name = &self.name;
        let (columns, texts, values) = self.key("$2");
        let after_key = match after.is_empty() {
            true => "$2 IS NOT NULL".to_owned(),
            false => format!("({columns}) > ({values})"),
        };
        let last: Option<Key> = sql(format!(
            "SELECT ARRAY[{texts}] AS key FROM {name} WHERE account_id = $1 AND {after_key}
             ORDER BY {columns} LIMIT 1 OFFSET $3"
        ))
        .bind(account)
        .bind(after.to_vec())
        .bind(i64::try_from(limit.saturating_sub(1)).unwrap_or(i64::MAX))
        .get_result(&mut *conn)
        .await
        .optional()?;
        let Some(Key { key: last }) = last else {
            let rest = sql(format!("DELETE FROM {name} WHERE account_id = $1 AND {after_key}"));
            let removed = rest.bind(account).bind(after.to_vec()).execute(conn).await?;
            return Ok((removed, None));
        };
        let (_, _, until) = self.key("$3");
        let batch = sql(format!(
            "DELETE FROM {name} WHERE account_id = $1 AND {after_key} AND ({columns}) <= ({until})"
        ));
        let batch = batch.bind(account).bind(after.to_vec()).bind(last.clone());
        Ok((batch.execute(conn).await?, Some(last)))
    }

    /// For a directory, whose primary key does not begin with the account: few rows, in any order.
    async fn purge_any(
        &self,
        conn: &mut AsyncPgConnection,
        account: AccountId,
        limit: usize,
    ) -> DbResult<(usize, Option<Vec<String>>)> {
        let (name, columns) = (&self.name, self.columns.join(", "));
        let mut removed = 0;
        for part in self.parts() {
            let statement = format!(
                "DELETE FROM {name} WHERE account_id = $1 AND ({columns}) IN
                   (SELECT {columns} FROM {name} WHERE account_id = $1 AND {part} LIMIT $2)"
            );
            let remaining = i64::try_from(limit.saturating_sub(removed)).unwrap_or(i64::MAX);
            removed += sql(statement).bind(account).bind(remaining).execute(&mut *conn).await?;
        }
        Ok((removed, (removed >= limit).then(Vec::new)))
    }
}

/// Makes the rest of the transaction read rows in index order: the statistics of a table that is being emptied
/// mislead the planner.
pub(super) async fn plan_by_key(conn: &mut AsyncPgConnection) -> DbResult<()> {
    sql("SELECT set_config(name, 'off', true) FROM unnest(ARRAY[
           'enable_seqscan', 'enable_bitmapscan', 'enable_sort', 'enable_hashjoin', 'enable_mergejoin']) AS s (name)")
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes up to `BATCH` rows. True: more may remain.
pub(super) async fn purge(conn: &mut AsyncPgConnection, account: AccountId) -> DbResult<bool> {
    let tables: Vec<Table> = sql(TABLES).load(&mut *conn).await?;
    plan_by_key(&mut *conn).await?;
    let progress: Option<Progress> =
        sql("SELECT table_name, after FROM account_deletions WHERE account_id = $1 FOR UPDATE")
            .bind(account)
            .get_result(&mut *conn)
            .await
            .optional()?;
    let Progress { table_name, after } = progress.unwrap_or_default();
    let current = tables.iter().position(|table| table_name.as_ref() == Some(&table.name));
    let mut after = current.and(after).unwrap_or_default();
    let mut remaining = BATCH;
    for table in tables.iter().skip(current.unwrap_or(0)) {
        let (removed, last) = table.purge(&mut *conn, account, &after, remaining).await?;
        remaining = remaining.saturating_sub(removed);
        if last.is_some() || remaining == 0 {
            record_progress(conn, account, Some(&table.name), last.unwrap_or_default()).await?;
            return Ok(true);
        }
        after.clear();
    }
    record_progress(conn, account, None, Vec::new()).await?;
    Ok(false)
}

async fn record_progress(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    table: Option<&str>,
    after: Vec<String>,
) -> DbResult<()> {
    sql("UPDATE account_deletions SET table_name = $2, after = $3 WHERE account_id = $1")
        .bind(account)
        .bind(table)
        .bind(after)
        .execute(conn)
        .await?;
    Ok(())
}
