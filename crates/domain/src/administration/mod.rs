//! Use cases of platform administrators: all accounts, one account, and support mode inside an account.
//!
//! Owns the account list, suspension, granted plans and deletion of accounts, the temporary memberships of support
//! mode, the platform audit log, and the revenue and churn reports. The `accounts` context decides who is an administrator, `billing` writes
//! subscriptions, and the server owns the cookie of support mode.

mod accounts;
mod deletion;
mod model;
mod platform_audit;
mod platform_entry;
mod ports;
mod stats;
mod support;

#[cfg(test)]
mod tests;

pub use accounts::{AccountInput, AccountPatch, ActionInput, Administration};
pub use deletion::{CANCELLATION_PAUSE, CANCELLATION_WATCH_TIME, DELETION_LEASE, Deletions};
pub use model::*;
pub use platform_audit::PlatformAudit;
pub use platform_entry::{PlatformAuditFilter, PlatformAuditLog, PlatformEntity, PlatformEntry};
pub use ports::*;
pub use stats::{
    AdministrationStats, ChurnDay, DayChurn, DayRevenue, Days, PlatformRevenueDay, PlatformRevenueOverview, Revenue,
    SubscriptionTotals, Totals, arr, monthly_value,
};
pub use support::{SUPPORT_MODE_DURATION, Support, SupportStarted};
