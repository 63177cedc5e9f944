//! The relay: takes events out of the outbox in the transaction that writes what they say, so that each is written
//! once, whoever takes it: a worker of any process, or a reader that wants to see its own account's.

use std::time::Duration;

use diesel::prelude::QueryableByName;
use diesel::sql_types::Bool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, EventKind, StoreError};

use super::writes::{Waiting, write};
use crate::errors::DbResult;
use crate::pool::OwnerPool;
use crate::sql::{Answer, Number, Sql, sql};
use crate::transactions::{in_owner, in_transaction};

/// How long a reader waits for its own account's events, and, a little shorter so that its connection survives, for
/// a relay that holds them.
const CATCH_UP: Duration = Duration::from_secs(1);
const CATCH_UP_LOCK: Duration = Duration::from_millis(900);

/// How many events a reader takes in one transaction.
const CATCH_UP_BATCH: i64 = 500;

/// The oldest of a kind, for a worker: what another one has is left to it.
const OLDEST: &str = "DELETE FROM outbox_events WHERE seq IN
       (SELECT seq FROM outbox_events WHERE kind = $1 AND retry_at IS NULL ORDER BY seq LIMIT $2
        FOR UPDATE SKIP LOCKED)
     RETURNING seq, account_id, payload, created_at";

/// The oldest of a kind and an account, for a reader: waits for whoever has them, and finds them gone or takes them.
const OF_ACCOUNT: &str = "DELETE FROM outbox_events WHERE seq IN
       (SELECT seq FROM outbox_events WHERE kind = $1 AND account_id = $3 AND retry_at IS NULL ORDER BY seq LIMIT $2
        FOR UPDATE)
     RETURNING seq, account_id, payload, created_at";

/// One by itself.
const ONE: &str = "DELETE FROM outbox_events WHERE seq IN
       (SELECT seq FROM outbox_events WHERE seq = $1 FOR UPDATE SKIP LOCKED)
     RETURNING seq, account_id, payload, created_at";

/// What of a kind there is to do.
#[derive(QueryableByName)]
struct Work {
    #[diesel(sql_type = Bool)]
    fresh: bool,
    #[diesel(sql_type = Bool)]
    due: bool,
}

/// The outbox, for those who empty it.
#[derive(Clone, Debug)]
pub struct PgOutbox(OwnerPool);

impl PgOutbox {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }

    /// Carries out up to `limit` of the oldest events of a kind, each exactly once. Returns how many it got out of the
    /// way; several relays may run at once. Kinds that this version does not know are left to one that does.
    ///
    /// An event that cannot be written holds up nobody: it steps aside and is tried by itself every two seconds. When
    /// nothing can be written at all, no event is to blame: all stay where they are, and the round fails.
    pub async fn relay(&self, kind: EventKind, limit: usize) -> Result<usize, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let work = self.work(kind).await?;
        let again = if work.due {
            self.try_again(kind, limit).await?
        } else {
            0
        };
        if !work.fresh {
            return Ok(again);
        }
        let oldest = || sql(OLDEST).bind(kind.as_str()).bind(limit);
        let moved = match self.carry_out(kind, oldest).await {
            Ok(moved) => moved,
            Err(error @ StoreError::Unavailable(_)) => return Err(error),
            Err(_) => self.one_by_one(kind, limit).await?,
        };
        Ok(again + moved)
    }

    /// One look, so that a round with nothing to do costs no transaction.
    async fn work(&self, kind: EventKind) -> Result<Work, StoreError> {
        let query = sql("SELECT
               EXISTS (SELECT FROM outbox_events WHERE kind = $1 AND retry_at IS NULL) AS fresh,
               EXISTS (SELECT FROM outbox_events WHERE kind = $1 AND retry_at <= now()) AS due")
        .bind(kind.as_str());
        self.0.row::<Work>(query).await
    }

    /// Carries out what an account's operations left waiting, as far as that takes no longer than a second.
    pub(crate) async fn catch_up(&self, kind: EventKind, account: AccountId) -> Result<(), StoreError> {
        let all = async {
            while self.is_waiting(kind, account).await? {
                let waiting = || sql(OF_ACCOUNT).bind(kind.as_str()).bind(CATCH_UP_BATCH).bind(account);
                in_transaction!(self.0.begin_within(CATCH_UP_LOCK), |conn| carry_out(
                    conn,
                    kind,
                    waiting()
                ))?;
            }
            Ok(())
        };
        match tokio::time::timeout(CATCH_UP, all).await {
            Ok(done) => done,
            Err(late) => Err(StoreError::Unavailable(Box::new(late))),
        }
    }

    /// Whether anything of the account's waits; also what a relay is just about to write.
    async fn is_waiting(&self, kind: EventKind, account: AccountId) -> Result<bool, StoreError> {
        let query = sql("SELECT EXISTS
               (SELECT FROM outbox_events WHERE account_id = $1 AND kind = $2 AND retry_at IS NULL) AS yes")
        .bind(account)
        .bind(kind.as_str());
        Ok(self.0.row::<Answer>(query).await?.yes)
    }

    async fn carry_out<'a>(&self, kind: EventKind, which: impl Fn() -> Sql<'a>) -> Result<usize, StoreError> {
        in_owner!(self.0, |conn| carry_out(conn, kind, which()))
    }

    async fn alone(&self, kind: EventKind, seq: i64) -> Result<usize, StoreError> {
        self.carry_out(kind, || sql(ONE).bind(seq)).await
    }

    /// The events that once failed, each by itself, so that they spoil no batch.
    async fn try_again(&self, kind: EventKind, limit: i64) -> Result<usize, StoreError> {
        let due = sql(
            "SELECT seq AS n FROM outbox_events WHERE kind = $1 AND retry_at <= now()
             ORDER BY retry_at, seq LIMIT $2",
        )
        .bind(kind.as_str())
        .bind(limit);
        let mut moved = 0;
        for seq in self.numbers(due).await? {
            match self.alone(kind, seq).await {
                Ok(one) => moved += one,
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
                Err(error) => {
                    tracing::debug!(seq, %error, "an event of the outbox still cannot be written");
                    self.put_off(seq).await?;
                }
            }
        }
        Ok(moved)
    }

    /// A batch that failed as a whole: whoever can be written is, the others step aside.
    async fn one_by_one(&self, kind: EventKind, limit: i64) -> Result<usize, StoreError> {
        self.write_nothing(kind).await?;
        let oldest =
            sql("SELECT seq AS n FROM outbox_events WHERE kind = $1 AND retry_at IS NULL ORDER BY seq LIMIT $2")
                .bind(kind.as_str())
                .bind(limit);
        let mut moved = 0;
        for seq in self.numbers(oldest).await? {
            match self.alone(kind, seq).await {
                Ok(_) => {}
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
                Err(error) => {
                    tracing::error!(seq, kind = kind.as_str(), cause = ?error, "an event of the outbox cannot be written");
                    self.put_off(seq).await?;
                }
            }
            moved += 1;
        }
        Ok(moved)
    }

    /// Fails where the events' place does, whatever they say.
    async fn write_nothing(&self, kind: EventKind) -> Result<(), StoreError> {
        in_owner!(self.0, |conn| write(conn, kind, &[]))
    }

    async fn put_off(&self, seq: i64) -> Result<(), StoreError> {
        let query = sql("UPDATE outbox_events SET retry_at = now() + interval '2 seconds' WHERE seq = $1").bind(seq);
        self.0.run(query).await?;
        Ok(())
    }

    async fn numbers(&self, query: Sql<'_>) -> Result<Vec<i64>, StoreError> {
        let rows = self.0.rows::<Number>(query).await?;
        Ok(rows.into_iter().map(|row| row.n).collect())
    }
}

/// Locks are taken in one order by everybody: events by their number, then counts by their key.
async fn carry_out(conn: &mut AsyncPgConnection, kind: EventKind, which: Sql<'_>) -> DbResult<usize> {
    let mut waiting: Vec<Waiting> = which.load(&mut *conn).await?;
    if waiting.is_empty() {
        return Ok(0);
    }
    waiting.sort_unstable_by_key(|event| event.seq);
    write(conn, kind, &waiting).await?;
    Ok(waiting.len())
}
