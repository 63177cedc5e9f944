//! Verification of a number: a profile counts only after WhatsApp has confirmed it with the profile's own token.
//!
//! Owns the checks and their outcomes, the state that follows from them, and the schedule of later checks. All of it
//! is pure; the calls to WhatsApp and the writes are ports ([`VerificationGateway`], [`VerificationStore`],
//! [`HeldMessageStore`]). Decision 46 gives the reasons.

mod asking;
mod business_updates;
mod changes;
mod checks;
mod health;
mod model;
mod number;
mod ports;
mod record;
mod service;

pub use business_updates::{AffectedNumbers, BusinessUpdate, BusinessUpdates};
pub(super) use changes::restart_event;
pub use checks::{
    BusinessNumbers, CheckReport, business_account_check, number_check, pace_check, proves_ownership, quality_check,
    registration_check, should_register, subscription_check, token_check,
};
pub use health::{NumberHealth, ServiceMessages};
pub use model::*;
pub use number::{NumberFacts, max_messages_per_second};
pub use ports::*;
pub use record::{CONFIRM_AFTER, FAILED_FOR, SuspectedFailure, VerificationHistory, VerificationRecord};
pub use service::{VerificationPorts, Verifications};
