//! Verification and rebuilding of rollups.
//!
//! Every context writes its own rollups in the transactions of its rows. This context only compares and repairs them.

use std::fmt;

use async_trait::async_trait;

use crate::shared::{AccountId, StoreError};

/// A rollup row that differs from the sum of its source rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The name of the rollup.
    pub rollup: &'static str,
    pub account: AccountId,
    /// The key of the rollup row.
    pub key: String,
    /// The stored sums.
    pub stored: String,
    /// The sums of the source rows.
    pub recomputed: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rollup,
            account,
            key,
            stored,
            recomputed,
        } = self;
        write!(
            f,
            "{rollup} of account {account}: {key}: stored {stored}, recomputed {recomputed}"
        )
    }
}

/// The rollups of all contexts.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RollupStore: Send + Sync {
    /// Lists all accounts.
    async fn accounts(&self) -> Result<Vec<AccountId>, StoreError>;

    /// Returns the first hundred differences of each rollup. Concurrent writes are allowed: a rollup and its source
    /// rows MUST be read in one snapshot.
    async fn verify(&self, account: AccountId) -> Result<Vec<Difference>, StoreError>;

    /// Sets the rates of all priced messages again, with the rate cards of now, in several transactions. Amounts that
    /// WhatsApp reported stay. Returns the number of priced messages.
    async fn reprice(&self, account: AccountId) -> Result<u64, StoreError>;

    /// Recomputes every rollup from its source rows while writes continue. Returns the number of rows that it
    /// corrected.
    async fn rebuild(&self, account: AccountId) -> Result<u64, StoreError>;
}
