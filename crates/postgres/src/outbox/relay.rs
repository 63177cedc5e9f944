//! Outbox relay: one transaction deletes events from the outbox and writes them to their table, so each event is
//! written exactly once. A worker of any process moves events, and so does a reader that needs its own account's
//! events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Nullable};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, EventKind, StoreError};

use super::mark::{Look, RelayMark};
use super::writes::{OutboxRow, write};
use crate::errors::DbResult;
use crate::low_water::lock;
use crate::pool::OwnerPool;
use crate::sql::{FlagRow, NumberRow, PlannedEachTime, Sql, sql};
use crate::transactions::{in_owner, in_transaction};

/// How long a reader waits for its own account's events.
const CATCH_UP: Duration = Duration::from_secs(1);

/// How long a reader waits for a relay that has locked the events. Shorter than `CATCH_UP`, so that the statement fails
/// before the reader gives up and its connection stays usable.
const CATCH_UP_LOCK: Duration = Duration::from_millis(900);

/// Events that a reader moves in one transaction.
const CATCH_UP_BATCH: i64 = 500;

/// Deletes the oldest events of a kind, from `seq` `$3` on. Skips events that another relay has locked. The array is made
/// once; for `IN` a plan from before a backlog would select and lock the events again for each row.
const DELETE_OLDEST: &str = "DELETE FROM outbox_events WHERE kind = $1 AND seq >= $3 AND seq = ANY (ARRAY
       (SELECT seq FROM outbox_events WHERE kind = $1 AND seq >= $3 AND retry_at IS NULL ORDER BY kind, seq LIMIT $2
        FOR UPDATE SKIP LOCKED))
     RETURNING seq, account_id, payload, created_at";

/// Deletes the oldest events of a kind and an account, for a reader. Waits for a relay that has locked them.
const DELETE_OF_ACCOUNT: &str = "DELETE FROM outbox_events WHERE kind = $1 AND account_id = $3 AND seq = ANY (ARRAY
       (SELECT seq FROM outbox_events WHERE kind = $1 AND account_id = $3 AND retry_at IS NULL
        ORDER BY kind, account_id, seq LIMIT $2
        FOR UPDATE))
     RETURNING seq, account_id, payload, created_at";

const DELETE_ONE: &str = "DELETE FROM outbox_events WHERE kind = $1 AND seq IN
       (SELECT seq FROM outbox_events WHERE kind = $1 AND seq = $2 FOR UPDATE SKIP LOCKED)
     RETURNING seq, account_id, payload, created_at";

/// Looks for work of a kind, from `seq` `$2` on. Only indexes on `(kind, seq)` fit: that of readers requires an account.
const LOOK: &str = "SELECT
       (SELECT seq FROM outbox_events WHERE kind = $1 AND seq >= (SELECT $2) AND retry_at IS NULL
        ORDER BY kind, seq LIMIT 1) AS oldest,
       EXISTS (SELECT 1 FROM outbox_events WHERE kind = $1 AND retry_at <= (SELECT now())) AS due,
       coalesce(pg_sequence_last_value('outbox_events_seq_seq'), 0) AS assigned,
       pg_snapshot_xmin(s.snapshot)::text::bigint AS running, pg_snapshot_xmax(s.snapshot)::text::bigint AS next
     FROM (SELECT pg_current_snapshot() AS snapshot) s";

/// The result of [`LOOK`].
#[derive(QueryableByName)]
struct PendingWork {
    #[diesel(sql_type = Nullable<BigInt>)]
    oldest: Option<i64>,
    /// Whether failed events are due for a retry.
    #[diesel(sql_type = Bool)]
    due: bool,
    #[diesel(sql_type = BigInt)]
    assigned: i64,
    #[diesel(sql_type = BigInt)]
    running: i64,
    #[diesel(sql_type = BigInt)]
    next: i64,
}

/// A relay. Clones share its low-water marks.
#[derive(Clone, Debug)]
pub struct PgOutbox {
    pool: OwnerPool,
    marks: Arc<Mutex<HashMap<&'static str, RelayMark>>>,
}

impl PgOutbox {
    pub fn new(pool: OwnerPool) -> Self {
        Self {
            pool,
            marks: Arc::default(),
        }
    }

    /// Moves up to `limit` of the oldest events of a kind to their table, each exactly once. Returns how many it moved
    /// or deferred. Several relays may run at once. Kinds of a newer version are left to servers of that version.
    ///
    /// An event that cannot be written delays no other event: it is deferred and retried alone every two seconds. If
    /// the table itself cannot be written, all events stay as they are and the call fails.
    pub async fn relay(&self, kind: EventKind, limit: usize) -> Result<usize, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let work = self.pending_work(kind).await?;
        let retried = if work.due {
            self.retry_failed(kind, limit).await?
        } else {
            0
        };
        let Some(oldest) = work.oldest else {
            return Ok(retried);
        };
        let delete_oldest = || sql(DELETE_OLDEST).bind(kind.as_str()).bind(limit).bind(oldest);
        let moved = match self.move_events(kind, delete_oldest).await {
            Ok(moved) => moved,
            Err(error @ StoreError::Unavailable(_)) => return Err(error),
            Err(_) => self.move_one_by_one(kind, limit, oldest).await?,
        };
        Ok(retried + moved)
    }

    /// One query, which reads from the kind's low-water mark.
    async fn pending_work(&self, kind: EventKind) -> Result<PendingWork, StoreError> {
        let began_at = Instant::now();
        let (from, is_full) = lock(&self.marks).entry(kind.as_str()).or_default().begin(began_at);
        let query = sql(LOOK).bind(kind.as_str()).bind(from);
        let work = self.pool.row::<PendingWork>(PlannedEachTime(query)).await?;
        let look = Look {
            oldest: work.oldest,
            assigned: work.assigned,
            running: work.running,
            next: work.next,
        };
        let mut marks = lock(&self.marks);
        marks
            .entry(kind.as_str())
            .or_default()
            .end(look, is_full, began_at, Instant::now());
        Ok(work)
    }

    /// Moves all waiting events of a kind and an account. Fails with `Unavailable` after `CATCH_UP`.
    pub(crate) async fn catch_up(&self, kind: EventKind, account: AccountId) -> Result<(), StoreError> {
        let move_all = async {
            while self.is_waiting(kind, account).await? {
                let delete_statement = || {
                    sql(DELETE_OF_ACCOUNT)
                        .bind(kind.as_str())
                        .bind(CATCH_UP_BATCH)
                        .bind(account)
                };
                in_transaction!(self.pool.begin_within(CATCH_UP_LOCK), |conn| move_events(
                    conn,
                    kind,
                    delete_statement()
                ))?;
            }
            Ok(())
        };
        match tokio::time::timeout(CATCH_UP, move_all).await {
            Ok(result) => result,
            Err(elapsed) => Err(StoreError::Unavailable(Box::new(elapsed))),
        }
    }

    /// Whether events of the account wait. Events that a relay is moving but has not committed count too.
    async fn is_waiting(&self, kind: EventKind, account: AccountId) -> Result<bool, StoreError> {
        let query = sql("SELECT EXISTS
               (SELECT 1 FROM outbox_events WHERE account_id = $1 AND kind = $2 AND retry_at IS NULL) AS yes")
        .bind(account)
        .bind(kind.as_str());
        Ok(self.pool.row::<FlagRow>(query).await?.yes)
    }

    async fn move_events<'a>(
        &self,
        kind: EventKind,
        delete_statement: impl Fn() -> Sql<'a>,
    ) -> Result<usize, StoreError> {
        in_transaction!(self.pool.begin_on_queue(), |conn| move_events(
            conn,
            kind,
            delete_statement()
        ))
    }

    async fn move_one(&self, kind: EventKind, seq: i64) -> Result<usize, StoreError> {
        self.move_events(kind, || sql(DELETE_ONE).bind(kind.as_str()).bind(seq))
            .await
    }

    /// Retries the failed events that are due, each in its own transaction, so that none fails a whole batch.
    async fn retry_failed(&self, kind: EventKind, limit: i64) -> Result<usize, StoreError> {
        let due = sql(
            "SELECT seq AS n FROM outbox_events WHERE kind = $1 AND retry_at <= now()
             ORDER BY retry_at, seq LIMIT $2",
        )
        .bind(kind.as_str())
        .bind(limit);
        let mut moved = 0;
        for seq in self.load_seqs(due).await? {
            match self.move_one(kind, seq).await {
                Ok(count) => moved += count,
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
                Err(error) => {
                    tracing::debug!(seq, %error, "an outbox event still cannot be written");
                    self.defer(kind, seq).await?;
                }
            }
        }
        Ok(moved)
    }

    /// Moves the events of a failed batch one by one and defers those that cannot be written.
    async fn move_one_by_one(&self, kind: EventKind, limit: i64, from: i64) -> Result<usize, StoreError> {
        self.check_table(kind).await?;
        let oldest = sql(
            "SELECT seq AS n FROM outbox_events WHERE kind = $1 AND seq >= $3 AND retry_at IS NULL
                 ORDER BY kind, seq LIMIT $2",
        )
        .bind(kind.as_str())
        .bind(limit)
        .bind(from);
        let mut moved = 0;
        for seq in self.load_seqs(oldest).await? {
            match self.move_one(kind, seq).await {
                Ok(_) => {}
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
                Err(error) => {
                    tracing::error!(seq, kind = kind.as_str(), cause = ?error, "an outbox event cannot be written");
                    self.defer(kind, seq).await?;
                }
            }
            moved += 1;
        }
        Ok(moved)
    }

    /// Writes an empty batch. It fails if the table of this kind cannot be written, whatever the events contain.
    async fn check_table(&self, kind: EventKind) -> Result<(), StoreError> {
        in_owner!(self.pool, |conn| write(conn, kind, &[]))
    }

    async fn defer(&self, kind: EventKind, seq: i64) -> Result<(), StoreError> {
        let query =
            sql("UPDATE outbox_events SET retry_at = now() + interval '2 seconds' WHERE kind = $1 AND seq = $2")
                .bind(kind.as_str())
                .bind(seq);
        self.pool.run(PlannedEachTime(query)).await?;
        Ok(())
    }

    async fn load_seqs(&self, query: Sql<'_>) -> Result<Vec<i64>, StoreError> {
        let rows = self.pool.rows::<NumberRow>(query).await?;
        Ok(rows.into_iter().map(|row| row.n).collect())
    }
}

/// Deletes events from the outbox and writes them to their table. Every relay locks in one order: events by `seq`, then
/// counts by their key.
async fn move_events(conn: &mut AsyncPgConnection, kind: EventKind, delete_statement: Sql<'_>) -> DbResult<usize> {
    let mut rows: Vec<OutboxRow> = delete_statement.load(&mut *conn).await?;
    if rows.is_empty() {
        return Ok(0);
    }
    rows.sort_unstable_by_key(|row| row.seq);
    write(conn, kind, &rows).await?;
    Ok(rows.len())
}
