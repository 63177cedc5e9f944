//! The one way in which the stores reach the database for more than a read (see [`reads`](crate::reads)): a transaction,
//! or a statement that is one by itself, from its beginning to its end.
//!
//! **When it is tried again.** A deadlock (40P01), a serialization failure (40001), and a row that another transaction
//! made first ([`concurrent_insert`](crate::errors::concurrent_insert)) take back everything that was done: nobody is
//! to blame, and the same work, done once more, finds what the other one left. So the whole of it is, at once and up to
//! three times, from `BEGIN` on. Whatever else goes wrong (a lock that was waited for too long, a connection that
//! broke, a uniqueness that was violated) is the caller's: it would happen again, or nobody knows whether it happened.
//!
//! The work is named in place of a closure (`|conn| insert(conn, account, tag)`), and may run several times: it is made
//! anew each time, and whatever it decides, it decides by what it reads there. Macros, because the compiler cannot be
//! told of a closure that its futures may be sent (`AsyncFnMut` has no such bound yet).

use diesel::OptionalExtension;
use diesel::pg::Pg;
use diesel::prelude::QueryableByName;
use diesel_async::RunQueryDsl;
use recado_domain::shared::{AccountId, StoreError};

use crate::pool::{OwnerPool, TenantPool};
use crate::sql::Sql;

/// What [`in_tenant!`] and [`in_owner!`] do, in a transaction that begins in any other way.
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

/// `in_tenant!(pool, account, |conn| work)`: one transaction of one account. What succeeded is committed, what failed
/// taken back; `, unless pattern` names outcomes that take everything back, too, and are answered.
macro_rules! in_tenant {
    ($pool:expr, $account:expr, $($work:tt)+) => {
        $crate::transactions::in_transaction!($pool.begin($account), $($work)+)
    };
}

/// `in_owner!(pool, |conn| work)`: the same, of the owner.
macro_rules! in_owner {
    ($pool:expr, $($work:tt)+) => {
        $crate::transactions::in_transaction!($pool.begin(), $($work)+)
    };
}

/// `on_owner!(pool, |conn| work)`: the owner's, without a transaction around: for one statement, or for several of
/// which each stands for itself.
macro_rules! on_owner {
    ($pool:expr, |$conn:ident| $work:expr) => {
        $crate::errors::retry(|| async {
            let mut connection = $pool.get().await?;
            let $conn = connection.conn()?;
            let done = $work.await;
            connection.end(done)
        })
        .await
    };
}

pub(crate) use {in_owner, in_tenant, in_transaction, on_owner};

impl TenantPool {
    /// Carries one statement out, and returns how many rows it changed.
    pub(crate) async fn run(&self, account: AccountId, statement: Sql<'_>) -> Result<usize, StoreError> {
        in_tenant!(self, account, |conn| (&statement).execute(conn))
    }

    /// The one row that a statement that writes returns. A read is [`read_row`](Self::read_row).
    pub(crate) async fn written<R>(&self, account: AccountId, statement: Sql<'_>) -> Result<R, StoreError>
    where
        R: QueryableByName<Pg> + Send + 'static,
    {
        in_tenant!(self, account, |conn| (&statement).get_result::<R>(conn))
    }

    /// The first row that a statement that writes returns, if any.
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
    /// Carries one statement out, and returns how many rows it changed.
    pub(crate) async fn run(&self, statement: Sql<'_>) -> Result<usize, StoreError> {
        on_owner!(self, |conn| (&statement).execute(conn))
    }

    /// The rows of a statement.
    pub(crate) async fn rows<R>(&self, statement: Sql<'_>) -> Result<Vec<R>, StoreError>
    where
        R: QueryableByName<Pg> + Send + 'static,
    {
        on_owner!(self, |conn| (&statement).load::<R>(conn))
    }

    /// The one row of a statement that always has one.
    pub(crate) async fn row<R>(&self, statement: Sql<'_>) -> Result<R, StoreError>
    where
        R: QueryableByName<Pg> + Send + 'static,
    {
        on_owner!(self, |conn| (&statement).get_result::<R>(conn))
    }

    /// The first row, if any.
    pub(crate) async fn row_if_any<R>(&self, statement: Sql<'_>) -> Result<Option<R>, StoreError>
    where
        R: QueryableByName<Pg> + Send + 'static,
    {
        on_owner!(self, |conn| async {
            (&statement).get_result::<R>(conn).await.optional()
        })
    }
}
