//! Depth and age of each queue in the database, for the operator's metrics and alerts.
//!
//! One statement that uses indexes only and reads at most [`DEPTH`] rows of a queue: its cost stays the same when
//! queues grow, which is when it is needed.

mod messages;

use std::time::Duration;

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Double, Nullable, Text};
use recado_domain::shared::StoreError;

pub use self::messages::{PgWaitingMessages, WaitingMessages};
use crate::pool::OwnerPool;
use crate::sql::sql;

/// Maximum number of rows that are counted per queue.
const DEPTH: i64 = 10_000;

/// Counts due rows only: a row whose time has not come does not wait.
const WAITING: &str = include_str!("depths.sql");

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    queue: String,
    #[diesel(sql_type = BigInt)]
    depth: i64,
    #[diesel(sql_type = Nullable<Double>)]
    age: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// The queue's name. The set of names is fixed.
    pub name: String,
    /// Number of waiting rows, at most `DEPTH`.
    pub depth: i64,
    /// Age of the oldest row that was read; zero for an empty queue.
    pub oldest: Duration,
}

#[derive(Clone, Debug)]
pub struct PgQueues(OwnerPool);

impl PgQueues {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }

    /// Returns the current state of every queue.
    pub async fn read(&self) -> Result<Vec<Queue>, StoreError> {
        let query = sql(WAITING).bind(DEPTH);
        let rows = self.0.rows::<Row>(query).await?;
        Ok(rows.into_iter().map(queue).collect())
    }
}

fn queue(row: Row) -> Queue {
    // A clock that was set back could give a negative age: it becomes zero.
    let oldest = row.age.and_then(|age| Duration::try_from_secs_f64(age).ok());
    Queue {
        name: row.queue,
        depth: row.depth,
        oldest: oldest.unwrap_or_default(),
    }
}
