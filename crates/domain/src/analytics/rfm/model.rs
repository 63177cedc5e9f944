//! What is shown of the customers' scores.

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use super::RfmSegment;
use crate::shared::schema::Timestamp;
use crate::shared::{AccountId, StoreError, timestamp};

/// How many paid orders an account has before its customers are compared.
pub const ENOUGH_ORDERS: i64 = 20;

/// How many customers are of which kind, by how recently, how often and for how much they bought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RfmReport {
    /// Whether the account has enough paid orders: 20.
    #[schemars(example = true)]
    pub enabled: bool,
    /// How many paid orders it has.
    #[schemars(example = 121)]
    pub order_count: i64,
    /// How many customers are of each kind that there are any of; empty while it is not enabled.
    pub distribution: Vec<SegmentSize>,
    /// When the kinds were last calculated; null before the first time.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub last_calculated_at: Option<OffsetDateTime>,
}

/// How many customers are of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SegmentSize {
    /// The kind.
    pub segment: RfmSegment,
    /// How many they are.
    #[schemars(example = 14)]
    pub count: i64,
    /// When that was calculated.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub last_calculated_at: OffsetDateTime,
}

/// What the store knows of an account's customers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RfmTotals {
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
    #[error("Requires the role owner or admin")]
    NotPermitted,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
