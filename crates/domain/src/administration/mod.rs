//! What platform administrators do: over all accounts, with one account, and inside one in support mode.
//!
//! Owns the overview of accounts, what is decided about one of them (suspension, plan, removal), the life of a
//! membership of support mode, and the figures of the business. Does not own who an administrator is (`accounts`), how
//! a subscription is written (`billing`) nor the cookie of support mode (the server).

mod accounts;
mod deletion;
mod model;
mod ports;
mod stats;
mod support;

#[cfg(test)]
mod tests;

pub use accounts::{AccountInput, AccountPatch, ActionInput, Administration};
pub use deletion::{CANCELLATION_PAUSE, CANCELLATION_WATCH_TIME, DELETION_LEASE, Deletions};
pub use model::*;
pub use ports::*;
pub use stats::{
    AdministrationStats, ChurnDay, DayChurn, DayRevenue, Days, Percent, PlatformRevenueDay, PlatformRevenueOverview,
    Revenue, SubscriptionTotals, Totals, arr, monthly_value,
};
pub use support::{SUPPORT_MODE_DURATION, Support, SupportStarted};
