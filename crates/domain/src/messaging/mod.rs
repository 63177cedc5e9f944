//! Messaging: what every message that Recado sends has, whichever context sends it.
//!
//! Owns the status and the price of a message, and the outcome of its call. Imports no other context: `campaigns`,
//! `conversations`, `whatsapp` and `callbacks` use it.

mod outcome;
mod pricing;
mod status;

pub use outcome::{STOPPED_MARKETING, SendOutcome, pauses_runs};
pub use pricing::{Pricing, PricingSource, StatusPricing};
pub use status::SendStatus;
