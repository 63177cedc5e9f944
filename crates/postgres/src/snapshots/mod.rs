//! What prevents PostgreSQL from removing old row versions: the oldest snapshot of a session, prepared transaction or
//! replication slot. Queues, counters and every other row that changes often grow while it is held.

use std::time::Duration;

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Double, Nullable, Text};
use recado_domain::shared::StoreError;

use crate::pool::OwnerPool;
use crate::sql::sql;

/// Other databases do not count, apart from standbys that report their snapshots. Neither does VACUUM: it does not
/// delay the removal of row versions. A replication slot has no time.
const OLDEST: &str = include_str!("oldest.sql");

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    source: String,
    #[diesel(sql_type = BigInt)]
    transactions: i64,
    #[diesel(sql_type = Nullable<Double>)]
    age: Option<f64>,
}

/// The oldest snapshot of one kind of holder.
#[derive(Clone, Debug, PartialEq)]
pub struct OldestSnapshot {
    /// `session`, `prepared_transaction` or `replication_slot`.
    pub source: String,
    /// How many transactions have begun since; zero if none is held.
    pub transactions: i64,
    /// How long its transaction runs; zero if none is held, and for a replication slot, whose age is not known.
    pub age: Duration,
}

#[derive(Clone, Debug)]
pub struct PgSnapshots(OwnerPool);

impl PgSnapshots {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }

    /// Reads the oldest snapshot of each kind of holder. Sessions of other roles are visible only to a role that has
    /// the rights of `pg_read_all_stats`.
    pub async fn oldest(&self) -> Result<Vec<OldestSnapshot>, StoreError> {
        let rows = self.0.rows::<Row>(sql(OLDEST)).await?;
        let oldest = |row: Row| OldestSnapshot {
            source: row.source,
            transactions: row.transactions,
            // A clock that was set back could give a negative age: it becomes zero.
            age: row
                .age
                .and_then(|age| Duration::try_from_secs_f64(age).ok())
                .unwrap_or_default(),
        };
        Ok(rows.into_iter().map(oldest).collect())
    }
}
