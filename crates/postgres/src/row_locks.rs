//! Locks of rows by advisory locks, which end with their transaction.

use std::time::Duration;

use async_trait::async_trait;
use diesel_async::RunQueryDsl as _;
use recado_domain::shared::{RowLock, RowLocks, StoreError};

use crate::errors::DbError;
use crate::pool::{OwnerPool, Transaction};
use crate::sql::sql;

/// Class of advisory locks with two keys: this and a hash of the row's name. No other lock in the database uses it.
const CLASS: i32 = 0x726f_776c;

/// How long a request waits for the requests before it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Each lock holds a connection while its request uses others. So the pool MUST be for locks alone.
#[derive(Clone, Debug)]
pub struct PgRowLocks(OwnerPool);

impl PgRowLocks {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

struct AdvisoryLock(Transaction);

#[async_trait]
impl RowLocks for PgRowLocks {
    async fn lock(&self, row: &str) -> Result<Box<dyn RowLock>, StoreError> {
        let mut transaction = self.0.begin_within(LOCK_TIMEOUT).await?;
        let lock = sql("SELECT pg_advisory_xact_lock($1, hashtext($2))");
        let locked = lock.bind(CLASS).bind(row).execute(transaction.conn()?).await;
        match locked {
            Ok(_) => Ok(Box::new(AdvisoryLock(transaction))),
            Err(error) => transaction.end(Err(DbError::from(error))).await,
        }
    }
}

#[async_trait]
impl RowLock for AdvisoryLock {
    async fn release(self: Box<Self>) {
        if let Err(error) = self.0.rollback().await {
            tracing::debug!(%error, "the lock of a row is released by closing its connection");
        }
    }
}
