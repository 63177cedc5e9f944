//! Everything that runs between the socket and a handler: authentication, access checks, rate limits, idempotency keys,
//! and the extraction of bodies and queries.

pub mod access;
pub mod auth;
pub mod auth_cache;
pub mod body;
pub mod callback;
pub mod callback_secrets;
pub mod caller;
pub mod ceiling;
pub mod client_ip;
pub mod cookies;
pub mod cors;
pub mod extractors;
pub mod idempotency;
pub mod key_cache;
pub mod key_lookups;
pub mod limit;
pub mod multipart;
pub(crate) mod operation;
pub mod paced;
pub mod parameters;
mod principal;
pub mod query;
pub mod ranges;
pub mod refreshing_cache;
pub mod representation;
pub mod request;
pub mod request_hash;
pub mod request_log;
pub mod responses;
pub mod route;
pub mod secret;
pub mod session_cache;
pub mod shares;
pub mod support;
pub mod target_cache;
