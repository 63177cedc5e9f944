//! Egress rules (SSRF protection) for URLs that tenants choose: webhook endpoints and scraped pages.
//!
//! This module owns the rules for addresses and URLs. The adapter resolves names, and connects to exactly the address
//! that it checked, which prevents DNS rebinding.
//!
//! One parser (WHATWG) parses a URL for the check and for the call. So a host such as `0177.1`, `2130706433` or
//! `１２７.0.0.1` is an IP address before the check.

mod addresses;
mod target;
#[cfg(test)]
mod tests;

pub use addresses::{AllowList, allowed};
pub use target::{Target, TargetRefusal};
