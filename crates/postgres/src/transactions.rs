//! The only way in which stores run anything but a read (see [`reads`](crate::reads)): a transaction, or a single
//! statement, from beginning to end.
//!
//! **Retries.** A deadlock (40P01), a serialization failure (40001), and a row that another transaction inserted
//! first ([`concurrent_insert`](crate::errors::concurrent_insert)) roll everything back. The same work then finds the
//! other transaction's result, so the whole transaction is retried at once, up to [`RETRIES`](crate::errors::RETRIES)
//! times. Every other error (a lock timeout, a broken connection, a violated constraint) is returned to the caller:
//! it would happen again, or the outcome is unknown.
//!
//! The work is an expression (`|conn| insert(conn, account, tag)`) that may run several times: each attempt evaluates
//! it again, and it must decide by what it reads there. These are macros because `AsyncFnMut` cannot require its
//! futures to be `Send` yet.

use diesel::pg::Pg;
use diesel::query_builder::{QueryFragment, QueryId};
use diesel::result::Error;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, StoreError};

use crate::errors::{DbError, DbResult};
use crate::pool::{OwnerPool, TenantPool};
use crate::reads::{Reads, load};

/// Shared by [`in_tenant!`] and [`in_owner!`]; also for a transaction that begins in another way.
macro_rules! in_transaction {
    ($begin:expr, |$conn:ident| $work:expr) => {
        $crate::errors::retry(|| async {
            let mut tx = $begin.await?;
            let $conn = tx.conn()?;
            let done = $work.await;
            tx.end(done).await
        })
        .await
    };
    ($begin:expr, |$conn:ident| $work:expr, unless $refused:pat) => {
        $crate::errors::retry(|| async {
            let mut tx = $begin.await?;
            let $conn = tx.conn()?;
            match $work.await {
                Ok(refused @ $refused) => tx.rollback().await.map(|()| refused),
                done => tx.end(done).await,
            }
        })
        .await
    };
}

/// `in_tenant!(pool, account, |conn| work)`: a transaction of one account. It commits after `Ok` and rolls back after
/// `Err`. `, unless pattern` names outcomes that also roll back, but are returned.
macro_rules! in_tenant {
    ($pool:expr, $account:expr, $($work:tt)+) => {
        $crate::transactions::in_transaction!($pool.begin($account), $($work)+)
    };
}

/// `in_owner!(pool, |conn| work)`: like `in_tenant!`, on the owner pool.
macro_rules! in_owner {
    ($pool:expr, $($work:tt)+) => {
        $crate::transactions::in_transaction!($pool.begin(), $($work)+)
    };
}

/// `on_owner!(pool, |conn| work)`: on the owner pool without a transaction, for one statement or for several reads. A
/// retry runs all of them again. Behind a transaction pooler they have one transaction.
macro_rules! on_owner {
    ($pool:expr, |$conn:ident| $work:expr) => {
        $crate::errors::retry(|| async {
            let mut connection = $pool.get().await?;
            let $conn = connection.conn()?;
            let done = $work.await;
            connection.end(done).await
        })
        .await
    };
}

pub(crate) use {in_owner, in_tenant, in_transaction, on_owner};

/// A statement of which only the number of changed rows matters: text, or one of diesel's query language.
pub(crate) trait Command: QueryFragment<Pg> + QueryId + Send + Sync {}

impl<S: QueryFragment<Pg> + QueryId + Send + Sync> Command for S {}

impl TenantPool {
    /// Runs one statement and returns the number of changed rows.
    pub(crate) async fn run(&self, account: AccountId, statement: impl Command) -> Result<usize, StoreError> {
        in_tenant!(self, account, |conn| (&statement).execute(conn))
    }

    /// Returns the first row of a writing statement, if any. For a read, use [`read_row_if_any`](Self::read_row_if_any).
    pub(crate) async fn written_if_any<R: Send>(
        &self,
        account: AccountId,
        statement: impl Reads<R> + Sync,
    ) -> Result<Option<R>, StoreError> {
        in_tenant!(self, account, |conn| first_row_if_any(conn, &statement))
    }
}

impl OwnerPool {
    /// Runs one statement and returns the number of changed rows.
    pub(crate) async fn run(&self, statement: impl Command) -> Result<usize, StoreError> {
        on_owner!(self, |conn| (&statement).execute(conn))
    }

    pub(crate) async fn rows<R: Send>(&self, statement: impl Reads<R> + Sync) -> Result<Vec<R>, StoreError> {
        on_owner!(self, |conn| load(conn, &statement))
    }

    /// Returns the row of a statement that always has one.
    pub(crate) async fn row<R: Send>(&self, statement: impl Reads<R> + Sync) -> Result<R, StoreError> {
        on_owner!(self, |conn| first_row(conn, &statement))
    }

    pub(crate) async fn row_if_any<R: Send>(&self, statement: impl Reads<R> + Sync) -> Result<Option<R>, StoreError> {
        on_owner!(self, |conn| first_row_if_any(conn, &statement))
    }
}

async fn first_row<R, Q: Reads<R>>(conn: &AsyncPgConnection, query: &Q) -> DbResult<R> {
    let row = first_row_if_any(conn, query).await?;
    row.ok_or(DbError::Database(Error::NotFound))
}

async fn first_row_if_any<R, Q: Reads<R>>(conn: &AsyncPgConnection, query: &Q) -> DbResult<Option<R>> {
    Ok(load(conn, query).await?.into_iter().next())
}
