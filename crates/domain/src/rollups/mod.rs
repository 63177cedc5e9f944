//! Roll-ups: whether the kept sums are those of the rows that they count, and making them so.
//!
//! Every context keeps its own sums with its own rows; this one only compares, and repairs.

use std::fmt;

use async_trait::async_trait;

use crate::shared::{AccountId, StoreError};

/// A kept sum that is not the sum of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Of which roll-up.
    pub rollup: &'static str,
    /// Whose it is.
    pub account: AccountId,
    /// What it is the sum of.
    pub key: String,
    /// What is kept.
    pub stored: String,
    /// What the rows say.
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

/// Every roll-up that is kept.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RollupStore: Send + Sync {
    /// The accounts there are.
    async fn accounts(&self) -> Result<Vec<AccountId>, StoreError>;

    /// What is kept otherwise than it is counted, the first hundred of each roll-up. Writers may go on: each roll-up
    /// and its rows are looked at in one moment.
    async fn verify(&self, account: AccountId) -> Result<Vec<Difference>, StoreError>;

    /// Makes every kept sum what its rows say, while writers go on; how many were wrong.
    async fn rebuild(&self, account: AccountId) -> Result<u64, StoreError>;
}
