//! What may be reached of addresses that callers choose: webhook endpoints and pages.
//!
//! Owns the rules for addresses and URLs. How a name becomes an address, and how a connection is made to exactly the
//! address that was judged, is the adapter's part.
//!
//! One parser (WHATWG) reads a URL for the check and for the call: a host such as `0177.1`, `2130706433` or `１２７.0.0.1`
//! is an address before anybody judges it.

mod addresses;
mod target;
#[cfg(test)]
mod tests;

pub use addresses::{AllowList, allowed};
pub use target::{Target, TargetRefusal};
