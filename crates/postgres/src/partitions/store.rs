//! Creates partitions ahead of time, and removes those that are older than the retention term.

use std::time::Duration;

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::shared::StoreError;
use time::{Date, OffsetDateTime};

use super::bounds::start_time;
use super::tables::{PARTITIONED, PartitionedTable, RetentionDays};
use crate::errors::DbResult;
use crate::pool::OwnerPool;
use crate::sql::{FlagRow, NumberRow, sql};
use crate::transactions::in_transaction;

/// `lock_timeout` of each change. Removing a partition locks its table, and other users wait behind that request.
const LOCK_TIMEOUT: Duration = Duration::from_millis(800);

/// One process changes partitions at a time, and the others wait for it: nothing else waits behind them. The lock ends
/// with the transaction.
fn lock() -> String {
    format!(
        "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; SELECT pg_advisory_xact_lock(hashtext('recado partitions'));
         SET LOCAL lock_timeout = {}",
        LOCK_TIMEOUT.as_millis()
    )
}

/// The partitions of a table; none if the table does not exist or is not partitioned.
const PARTITIONS: &str = "SELECT c.relname::text AS name, coalesce(c.reloptions, '{}') AS options
     FROM pg_partitioned_table p
     JOIN pg_inherits i ON i.inhparent = p.partrelid JOIN pg_class c ON c.oid = i.inhrelid
     WHERE p.partrelid = to_regclass($1)";

/// The partitions of several tables.
const ATTACHED: &str = "SELECT p.relname::text AS table_name, c.relname::text AS name, now() AS now
     FROM pg_class p JOIN pg_inherits i ON i.inhparent = p.oid JOIN pg_class c ON c.oid = i.inhrelid
     WHERE p.relkind = 'p' AND p.relnamespace = 'public'::regnamespace AND p.relname = ANY ($1)";

const IS_PARTITIONED: &str =
    "SELECT EXISTS (SELECT 1 FROM pg_partitioned_table WHERE partrelid = to_regclass($1)) AS yes";

/// The days of the longest limit of marketing messages of an account; 0 without limits.
const LONGEST_LIMIT: &str =
    "SELECT coalesce(max((max_marketing_per_contact ->> 'days')::bigint), 0) AS n FROM account_settings";

/// The store of partitions. It runs as the owner of the tables.
#[derive(Clone, Debug)]
pub struct PgPartitions(OwnerPool);

#[derive(QueryableByName)]
struct PartitionRow {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Array<Text>)]
    options: Vec<String>,
}

#[derive(QueryableByName)]
struct AttachedRow {
    #[diesel(sql_type = Text)]
    table_name: String,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
}

#[derive(QueryableByName)]
struct NowRow {
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
}

impl PgPartitions {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }

    /// The database's time, which ids and partitions follow.
    pub async fn now(&self) -> Result<OffsetDateTime, StoreError> {
        Ok(self.0.row::<NowRow>(sql("SELECT now() AS now")).await?.now)
    }

    /// Creates the partitions that must exist at `now`, and returns how many it created. Idempotent, and safe while
    /// other processes do the same.
    pub async fn ensure(&self, now: OffsetDateTime) -> Result<usize, StoreError> {
        let mut created = 0;
        for table in PARTITIONED {
            created += in_transaction!(self.0.begin_within(LOCK_TIMEOUT), |conn| ensure(conn, table, now))?;
        }
        Ok(created)
    }

    /// Removes the partitions that the terms of `retention` no longer keep at `now`, and returns how many it removed.
    pub async fn drop_expired(&self, retention: &RetentionDays, now: OffsetDateTime) -> Result<usize, StoreError> {
        let limit = self.0.row::<NumberRow>(sql(LONGEST_LIMIT)).await?;
        let counted_days = u16::try_from(limit.n).unwrap_or(u16::MAX);
        let mut dropped = 0;
        for table in PARTITIONED {
            let horizon = table
                .retention_days(retention, counted_days)
                .and_then(|days| now.checked_sub(time::Duration::days(days.into())));
            if let Some(horizon) = horizon {
                dropped += self.drop_before(table, horizon).await?;
            }
        }
        Ok(dropped)
    }

    /// Removes the partitions of one table whose whole interval lies before `horizon`.
    pub async fn drop_before(&self, table: &PartitionedTable, horizon: OffsetDateTime) -> Result<usize, StoreError> {
        in_transaction!(self.0.begin_within(LOCK_TIMEOUT), |conn| drop_before(
            conn, table, horizon
        ))
    }

    /// Returns for each partitioned table how many future intervals have a partition. One statement on the catalogue.
    pub async fn ahead(&self) -> Result<Vec<(&'static str, usize)>, StoreError> {
        let names: Vec<String> = PARTITIONED.iter().map(|table| table.name.to_owned()).collect();
        let rows: Vec<AttachedRow> = self.0.rows(sql(ATTACHED).bind(names)).await?;
        let ahead = PARTITIONED.iter().map(|table| {
            let future = rows.iter().filter(|row| {
                let start = table.start(&row.name);
                row.table_name == table.name && start.is_some_and(|start| start > table.interval.start_of(row.now))
            });
            (table.name, future.count())
        });
        Ok(ahead.collect())
    }
}

impl PartitionedTable {
    fn partition(&self, start: Date) -> String {
        format!("{}_{}", self.name, self.interval.suffix(start))
    }

    fn earlier(&self) -> String {
        format!("{}_earlier", self.name)
    }

    /// The first day of a partition; `None` for `_earlier`.
    fn start(&self, partition: &str) -> Option<Date> {
        let suffix = partition.strip_prefix(self.name)?.strip_prefix('_')?;
        self.interval.parse_suffix(suffix)
    }

    /// The statements that create a partition: a table of its own first, so that only its attachment locks the
    /// partitioned table, in a mode that lets others read and write. Identities are the partitioned table's; the storage
    /// parameters are not, because it cannot have any.
    fn create(&self, name: &str, from: &str, to: Date, fillfactor: Option<u8>) -> String {
        let parent = self.name;
        let fillfactor = fillfactor.map_or_else(String::new, |percent| format!(" WITH (fillfactor = {percent})"));
        format!(
            "CREATE TABLE {name} (LIKE {parent} INCLUDING ALL EXCLUDING IDENTITY){fillfactor};
             SELECT set_storage('{name}', '{class}');
             ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ({from}) TO ({to});",
            class = self.class,
            to = self.key.bound(to),
        )
    }
}

async fn partitions(conn: &mut AsyncPgConnection, table: &PartitionedTable) -> DbResult<Option<Vec<PartitionRow>>> {
    conn.batch_execute(&lock()).await?;
    let partitioned = sql(IS_PARTITIONED).bind(table.name);
    if !partitioned.get_result::<FlagRow>(&mut *conn).await?.yes {
        return Ok(None);
    }
    Ok(Some(sql(PARTITIONS).bind(table.name).load(conn).await?))
}

async fn ensure(conn: &mut AsyncPgConnection, table: &PartitionedTable, now: OffsetDateTime) -> DbResult<usize> {
    let Some(existing) = partitions(conn, table).await? else {
        return Ok(0);
    };
    let starts: Vec<Date> = existing.iter().filter_map(|row| table.start(&row.name)).collect();
    let interval = table.interval;
    let first = starts.iter().min().copied();
    let required = interval.required(first, now);
    // Rows of the previous interval still change while its last campaigns run.
    let current = interval.start_of(now);
    let changing_from = interval.start_of(start_time(current) - time::Duration::DAY);
    let fillfactor = |start: Date| table.fillfactor.filter(|_| start >= changing_from);
    let mut created = 0;
    if let Some(first) = first.or(required.as_slice().first().copied())
        && !existing.iter().any(|row| row.name == table.earlier())
    {
        let statements = table.create(&table.earlier(), "MINVALUE", first, None);
        conn.batch_execute(&statements).await?;
        created += 1;
    }
    for start in required.iter().filter(|start| !starts.contains(start)) {
        let (from, to) = (table.key.bound(*start), interval.next(*start));
        let statements = table.create(&table.partition(*start), &from, to, fillfactor(*start));
        conn.batch_execute(&statements).await?;
        created += 1;
    }
    for row in &existing {
        let settled = table.start(&row.name).is_some_and(|start| start < changing_from);
        if settled && row.options.iter().any(|option| option.starts_with("fillfactor=")) {
            // Only new pages change: the rows of a settled partition are not rewritten.
            conn.batch_execute(&format!("ALTER TABLE {} RESET (fillfactor)", row.name))
                .await?;
        }
    }
    Ok(created)
}

async fn drop_before(
    conn: &mut AsyncPgConnection,
    table: &PartitionedTable,
    horizon: OffsetDateTime,
) -> DbResult<usize> {
    let Some(existing) = partitions(conn, table).await? else {
        return Ok(0);
    };
    let mut starts: Vec<Date> = existing.iter().filter_map(|row| table.start(&row.name)).collect();
    starts.sort_unstable();
    let ends_before = |start: &Date| start_time(table.interval.next(*start)) <= horizon;
    let (expired, kept): (Vec<Date>, Vec<Date>) = starts.iter().partition(|start| ends_before(start));
    let first_kept = match (kept.as_slice().first(), expired.as_slice().last()) {
        (Some(first), _) => *first,
        (None, Some(last)) => table.interval.next(*last),
        (None, None) => return Ok(0),
    };
    let earlier = table.earlier();
    if expired.is_empty() {
        // Rows that came late, with a time before the first interval.
        let obsolete = start_time(first_kept) <= horizon && existing.iter().any(|row| row.name == earlier);
        if !obsolete || !has_rows(conn, &earlier).await? {
            return Ok(0);
        }
        conn.batch_execute(&format!("TRUNCATE {earlier}")).await?;
    } else {
        let mut statements = format!("DROP TABLE IF EXISTS {earlier};\n");
        for start in &expired {
            statements.push_str(&format!("DROP TABLE {};\n", table.partition(*start)));
        }
        statements.push_str(&table.create(&earlier, "MINVALUE", first_kept, None));
        conn.batch_execute(&statements).await?;
    }
    sql(
        "INSERT INTO partition_horizons AS h (table_name, retained_from) VALUES ($1, $2)
         ON CONFLICT (table_name) DO UPDATE SET retained_from = greatest(h.retained_from, excluded.retained_from)",
    )
    .bind(table.name)
    .bind(start_time(first_kept))
    .execute(conn)
    .await?;
    Ok(expired.len().max(1))
}

async fn has_rows(conn: &mut AsyncPgConnection, table: &str) -> DbResult<bool> {
    let rows = sql(format!("SELECT EXISTS (SELECT 1 FROM {table}) AS yes"));
    Ok(rows.get_result::<FlagRow>(conn).await?.yes)
}
