//! What stands between a socket and a handler: who asks, how often, what they sent.

pub mod auth;
pub mod body;
pub mod callback;
pub mod cookies;
pub mod cors;
pub mod guard;
pub mod idempotency;
pub mod key_cache;
pub mod key_lookups;
pub mod limit;
pub mod memory;
pub mod multipart;
pub mod origin;
pub mod paced;
pub mod peer;
pub mod query;
pub mod refreshing_cache;
pub mod reply;
pub mod request;
pub mod secret;
pub mod shape;
pub mod shares;
pub mod support;
pub mod target_cache;
