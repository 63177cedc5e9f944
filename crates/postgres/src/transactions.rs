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

use diesel::OptionalExtension;
use diesel::pg::Pg;
use diesel::prelude::QueryableByName;
use diesel_async::RunQueryDsl;
use recado_domain::shared::{AccountId, StoreError};

use crate::pool::{OwnerPool, TenantPool};
use crate::sql::Sql;

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

/// `on_owner!(pool, |conn| work)`: on the owner pool without a transaction, for one statement or for several
/// independent ones. Behind a transaction pooler they have one transaction.
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

impl TenantPool {
    /// Runs one statement and returns the number of changed rows.
    pub(crate) async fn run(&self, account: AccountId, statement: Sql<'_>) -> Result<usize, StoreError> {
        in_tenant!(self, account, |conn| (&statement).execute(conn))
    }

    /// Returns the row of a writing statement. For a read, use [`read_row`](Self::read_row).
    pub(crate) async fn written<R>(&self, account: AccountId, statement: Sql<'_>) -> Result<R, StoreError>
    where
        R: QueryableByName<Pg> + Send + 'static,
    {
        in_tenant!(self, account, |conn| (&statement).get_result::<R>(conn))
    }

    /// Returns the first row of a writing statement, if any.
    pub(crate) async fn written_if_any<R>(
        &self,
        account: AccountId,
        statement: Sql<'_>,
    ) -> Result<Option<R>, StoreError>
    where
        R: QueryableByName<Pg> + Send + 'static,
    {
        in_tenant!(self, account, |conn| async {
            (&statement).get_result::<R>(conn).await.optional()
        })
    }
}

impl OwnerPool {
    /// Runs one statement and returns the number of changed rows.
    pub(crate) async fn run(&self, statement: Sql<'_>) -> Result<usize, StoreError> {
        on_owner!(self, |conn| (&statement).execute(conn))
    }

    pub(crate) async fn rows<R>(&self, statement: Sql<'_>) -> Result<Vec<R>, StoreError>
    where
        R: QueryableByName<Pg> + Send + 'static,
    {
        on_owner!(self, |conn| (&statement).load::<R>(conn))
    }

    /// Returns the row of a statement that always has one.
    pub(crate) async fn row<R>(&self, statement: Sql<'_>) -> Result<R, StoreError>
    where
        R: QueryableByName<Pg> + Send + 'static,
    {
        on_owner!(self, |conn| (&statement).get_result::<R>(conn))
    }

    pub(crate) async fn row_if_any<R>(&self, statement: Sql<'_>) -> Result<Option<R>, StoreError>
    where
        R: QueryableByName<Pg> + Send + 'static,
    {
        on_owner!(self, |conn| async {
            (&statement).get_result::<R>(conn).await.optional()
        })
    }
}
