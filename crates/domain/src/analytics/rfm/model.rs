//! What is shown of the customers' scores.

use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use super::RfmSegment;
use crate::shared::{AccountId, StoreError, timestamp};

/// How many paid orders an account has before its customers are compared.
pub const ENOUGH_ORDERS: i64 = 20;

/// How many customers are of which kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RfmReport {
    /// Whether the account has enough paid orders.
    pub enabled: bool,
    pub order_count: i64,
    pub distribution: Vec<SegmentSize>,
    #[serde(with = "timestamp::option")]
    pub last_calculated_at: Option<OffsetDateTime>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentSize {
    pub segment: RfmSegment,
    pub count: i64,
    #[serde(with = "timestamp")]
    pub last_calculated_at: OffsetDateTime,
}

/// What the store knows of an account's customers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RfmFigures {
    /// Paid orders.
    pub orders: i64,
    /// When the scores are from; none as long as there are none.
    pub calculated_at: Option<OffsetDateTime>,
    /// How many are of which kind.
    pub sizes: Vec<(RfmSegment, i64)>,
}

/// A calculation that somebody took up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RfmClaim {
    /// Whose customers.
    pub account_id: AccountId,
    /// Who took it up; no two claims have the same.
    pub worker: uuid::Uuid,
}

/// Why a calculation does not begin.
#[derive(Debug, Error)]
pub enum RfmError {
    /// The caller's role does not suffice.
    #[error("This takes the role owner or admin")]
    NotPermitted,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
