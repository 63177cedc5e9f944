//! The published RFM report.

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use super::RfmSegment;
use crate::shared::schema::Timestamp;
use crate::shared::{AccountId, StoreError, timestamp};

/// The number of paid orders that an account needs before its contacts are scored.
pub const ENOUGH_ORDERS: i64 = 20;

/// The number of customers in each RFM segment. Segments rank customers by recency, frequency and monetary value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RfmReport {
    /// Whether the account has at least 20 paid orders.
    #[schemars(example = true)]
    pub enabled: bool,
    /// The number of the account's paid orders.
    #[schemars(example = 121)]
    pub order_count: i64,
    /// The sizes of all segments with customers; empty while `enabled` is false.
    pub distribution: Vec<SegmentSize>,
    /// When the segments were last calculated; null before the first calculation.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub last_calculated_at: Option<OffsetDateTime>,
}

/// The number of customers in one RFM segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SegmentSize {
    /// The segment.
    pub segment: RfmSegment,
    /// The number of customers.
    #[schemars(example = 14)]
    pub count: i64,
    /// When the segment was last calculated.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub last_calculated_at: OffsetDateTime,
}

/// The stored RFM totals of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RfmTotals {
    /// The number of paid orders.
    pub orders: i64,
    /// The time of the calculation, or `None` without scores.
    pub calculated_at: Option<OffsetDateTime>,
    /// The number of contacts in each segment.
    pub sizes: Vec<(RfmSegment, i64)>,
}

/// A claimed calculation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RfmClaim {
    pub account_id: AccountId,
    /// Fencing token: unique for each claim.
    pub worker: uuid::Uuid,
}

/// Why a calculation was not requested.
#[derive(Debug, Error)]
pub enum RfmError {
    #[error("Requires the role owner or admin")]
    NotPermitted,
    #[error(transparent)]
    Store(#[from] StoreError),
}
