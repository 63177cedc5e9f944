//! Pipelined reads: a read-only transaction of one account whose `BEGIN`, queries and `COMMIT` are sent in one flush,
//! without waiting for each other's results.
//!
//! **`COMMIT` must never overtake a query.** The account setting ends with the transaction, so a query that runs
//! after it has no account. The driver sends a query at once only if the connection has prepared it. Otherwise it
//! sends the preparation first, and the query after the reply to that. So `COMMIT` is sent together with the queries
//! only if all of them are prepared, and otherwise after their last row:
//!
//! - The input is queries, not a closure: no query depends on another one's result, and none can follow `COMMIT`.
//! - The driver reports a query that the connection is about to prepare ([`Preparing`]).
//! - A query that no connection caches (`diesel::sql_query`) is recognized beforehand.
//! - Every parameter has a type that is built into PostgreSQL. For any other type the driver first looks up the OID,
//!   without reporting that. Such a read fails on its first use, so its first test shows it.
//! - [`unconstrained`] disables the runtime's cooperative budget. Otherwise the driver's uncontended locks could be
//!   refused to a task that has worked for a while, and its query would not have been sent yet.
//!
//! If `COMMIT` overtakes a query anyway, the database rejects that query: outside a transaction, the account setting
//! of a tenant connection is a word that no policy can parse ([`NO_ACCOUNT`](crate::tenant_role::NO_ACCOUNT)).
//!
//! A cancelled caller and every error close the connection, because what was sent may still run on it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use diesel::QueryResult;
use diesel::connection::{Instrumentation, InstrumentationEvent};
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::pg::Pg;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::query_dsl::CompatibleType;
use diesel::result::Error;
use diesel_async::{AsyncConnection, AsyncConnectionCore, AsyncPgConnection, SimpleAsyncConnection};
use futures_util::TryStreamExt;
use futures_util::future::{BoxFuture, join_all, try_join3};
use futures_util::stream::BoxStream;
use recado_domain::shared::{AccountId, StoreError};
use tokio::task::unconstrained;

use crate::errors::{DbError, DbResult, RETRIES, is_conflict};
use crate::pool::{PooledConnection, TenantPool};

/// A row in the driver's form. Only a small part of this code is generic over the row type.
type Row = <AsyncPgConnection as AsyncConnectionCore>::Row<'static, 'static>;
type RunningQuery<'c> = BoxFuture<'c, QueryResult<BoxStream<'static, QueryResult<Row>>>>;

/// A query that can be pipelined, independent of its row type.
trait PipelinedQuery: Send {
    /// Whether the connection caches the prepared statement.
    fn is_cacheable(&self) -> QueryResult<bool>;

    /// Sends the query with the first poll, unless it has yet to be prepared.
    fn start<'c>(&self, conn: &'c AsyncPgConnection) -> RunningQuery<'c>;
}

impl<Q> PipelinedQuery for Q
where
    Q: Query + QueryFragment<Pg> + QueryId + Send,
{
    fn is_cacheable(&self) -> QueryResult<bool> {
        self.is_safe_to_cache_prepared(&Pg)
    }

    fn start<'c>(&self, mut conn: &'c AsyncPgConnection) -> RunningQuery<'c> {
        AsyncConnectionCore::load(&mut conn, self)
    }
}

#[expect(private_bounds, reason = "callers need not know how a query is sent")]
pub(crate) trait Reads<R>: PipelinedQuery {
    fn row(row: Row) -> QueryResult<R>;
}

impl<Q, R, S> Reads<R> for Q
where
    Q: Query + PipelinedQuery,
    Q::SqlType: CompatibleType<R, Pg, SqlType = S>,
    Pg: QueryMetadata<Q::SqlType>,
    R: FromSqlRow<S, Pg>,
    S: 'static,
{
    fn row(row: Row) -> QueryResult<R> {
        R::build_from_row(&row).map_err(Error::DeserializationError)
    }
}

fn rows<R, Q: Reads<R>>(rows: Vec<Row>) -> DbResult<Vec<R>> {
    Ok(rows.into_iter().map(Q::row).collect::<QueryResult<_>>()?)
}

/// Returns the rows of one statement, which may also write. The caller ends the transaction.
pub(crate) async fn load<R, Q: Reads<R>>(conn: &AsyncPgConnection, query: &Q) -> DbResult<Vec<R>> {
    rows::<R, Q>(collect_rows(query.start(conn)).await?)
}

impl TenantPool {
    pub(crate) async fn read_rows<'q, R, Q>(&self, account: AccountId, query: Q) -> Result<Vec<R>, StoreError>
    where
        Q: Reads<R> + 'q,
    {
        let mut results = self.read(account, vec![Box::new(query)]).await?.into_iter();
        Ok(rows::<R, Q>(results.next().unwrap_or_default())?)
    }

    /// Returns the first row, if any. It reads all rows, so the query should have a LIMIT.
    pub(crate) async fn read_row_if_any<'q, R, Q>(&self, account: AccountId, query: Q) -> Result<Option<R>, StoreError>
    where
        Q: Reads<R> + 'q,
    {
        Ok(self.read_rows(account, query).await?.into_iter().next())
    }

    /// Returns the row of a query that always has one.
    pub(crate) async fn read_row<'q, R, Q>(&self, account: AccountId, query: Q) -> Result<R, StoreError>
    where
        Q: Reads<R> + 'q,
    {
        let row = self.read_row_if_any(account, query).await?;
        Ok(row.ok_or(DbError::Database(Error::NotFound))?)
    }

    /// Returns the rows of two queries. Each sees what was committed when it began, as two statements of a
    /// transaction do.
    pub(crate) async fn read_both<'q, A, B, P, Q>(
        &self,
        account: AccountId,
        first: P,
        second: Q,
    ) -> Result<(Vec<A>, Vec<B>), StoreError>
    where
        P: Reads<A> + 'q,
        Q: Reads<B> + 'q,
    {
        let queries: Vec<Box<dyn PipelinedQuery + 'q>> = vec![Box::new(first), Box::new(second)];
        let mut results = self.read(account, queries).await?.into_iter();
        let mut next = || results.next().unwrap_or_default();
        Ok((rows::<A, P>(next())?, rows::<B, Q>(next())?))
    }

    /// Returns the total of a list, one page of it, and further rows about the page.
    pub(crate) async fn read_page_and<'q, N, R, F, P, Q, T>(
        &self,
        account: AccountId,
        count: P,
        part: Q,
        further: T,
    ) -> Result<(i64, Vec<R>, Vec<F>), StoreError>
    where
        N: Into<i64>,
        P: Reads<N> + 'q,
        Q: Reads<R> + 'q,
        T: Reads<F> + 'q,
    {
        let queries: Vec<Box<dyn PipelinedQuery + 'q>> = vec![Box::new(count), Box::new(part), Box::new(further)];
        let mut results = self.read(account, queries).await?.into_iter();
        let mut next = || results.next().unwrap_or_default();
        let counts = rows::<N, P>(next())?;
        let (part, further) = (rows::<R, Q>(next())?, rows::<F, T>(next())?);
        let count = counts.into_iter().next().ok_or(DbError::Database(Error::NotFound))?;
        Ok((count.into(), part, further))
    }

    /// Returns the total of a list and one page of it.
    pub(crate) async fn read_page<'q, N, R, P, Q>(
        &self,
        account: AccountId,
        count: P,
        part: Q,
    ) -> Result<(i64, Vec<R>), StoreError>
    where
        N: Into<i64>,
        P: Reads<N> + 'q,
        Q: Reads<R> + 'q,
    {
        let (counts, rows) = self.read_both::<N, R, P, Q>(account, count, part).await?;
        let count = counts.into_iter().next().ok_or(DbError::Database(Error::NotFound))?;
        Ok((count.into(), rows))
    }

    /// Returns the rows of each query, in the order of the queries. Retries the transaction after a conflict.
    ///
    /// It does not use [`retry`](crate::errors::retry): the queries are `Send` but not `Sync`, so a closure that
    /// borrows them would return a future that is not `Send`.
    async fn read(
        &self,
        account: AccountId,
        queries: Vec<Box<dyn PipelinedQuery + '_>>,
    ) -> Result<Vec<Vec<Row>>, StoreError> {
        let mut all_cacheable = true;
        for query in &queries {
            all_cacheable &= query.is_cacheable().map_err(DbError::from)?;
        }
        let mut retries_left = RETRIES;
        loop {
            let mut connection = PooledConnection::get(&self.connections).await?;
            let sessions = &self.connections.sessions;
            let begin = sessions.begin("BEGIN READ ONLY", &self.settings(account));
            let commit = sessions.commit_read();
            // Behind a transaction pooler no connection keeps a prepared statement.
            let all_cacheable = all_cacheable && !sessions.is_pooled();
            let preparing = Preparing::default();
            connection.conn()?.set_instrumentation(preparing.clone());
            let conn: &AsyncPgConnection = connection.conn()?;
            let results = join_results(queries.iter().map(|query| collect_rows(query.start(conn))).collect());
            let may_commit = || all_cacheable && !preparing.0.load(Ordering::Relaxed);
            let read = unconstrained(transaction(conn, (&begin, commit), results, may_commit)).await;
            match read.map_err(StoreError::from) {
                Ok(rows) => {
                    connection.return_to_pool();
                    return Ok(rows);
                }
                Err(error) if retries_left > 0 && is_conflict(&error) => retries_left -= 1,
                Err(error) => return Err(error),
            }
        }
    }
}

/// Waits for all results and returns the first error in query order: after an error, the driver reports for the later
/// queries only that there was one.
async fn join_results<T>(results: Vec<impl Future<Output = QueryResult<T>>>) -> QueryResult<Vec<T>> {
    join_all(results).await.into_iter().collect()
}

async fn collect_rows(results: RunningQuery<'_>) -> QueryResult<Vec<Row>> {
    results.await?.try_collect().await
}

/// `may_commit` is called after every poll of the queries: whether `COMMIT` may be sent before their results arrive.
async fn transaction<T>(
    conn: &AsyncPgConnection,
    (begin, commit): (&str, &str),
    results: impl Future<Output = QueryResult<T>>,
    may_commit: impl Fn() -> bool,
) -> DbResult<T> {
    let (mut first, mut last) = (conn, conn);
    let is_complete = AtomicBool::new(false);
    let complete = || is_complete.load(Ordering::Relaxed);
    let begin_sent = async { first.batch_execute(begin).await.map_err(DbError::from) };
    let results = async {
        let rows = results.await?;
        is_complete.store(true, Ordering::Relaxed);
        Ok(rows)
    };
    let commit_sent = async {
        // No waker is needed: it is polled after the queries, by the same task.
        poll_fn(|_| match complete() || may_commit() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        last.batch_execute(commit).await.map_err(DbError::from)
    };
    // Polled in this order, so that they are sent in this order.
    let ((), rows, ()) = try_join3(begin_sent, results, commit_sent).await?;
    Ok(rows)
}

/// Records whether the connection is preparing a statement. The driver reports that before it sends anything.
#[derive(Clone, Default)]
struct Preparing(Arc<AtomicBool>);

impl Instrumentation for Preparing {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        if matches!(event, InstrumentationEvent::CacheQuery { .. }) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
