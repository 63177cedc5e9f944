//! The server from outside: the real binary, over HTTP, with a database of its own for every test.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::string_slice,
    reason = "tests say what they expect by panicking"
)]
#![allow(unreachable_pub, reason = "the harness is only for this binary")]

mod accounts;
mod api_keys;
mod callbacks;
mod campaigns;
mod contacts;
mod cors;
mod crashes;
mod events;
mod execute;
mod files;
mod harness;
mod http;
mod idempotency;
mod import;
mod limits;
mod matrix;
mod media;
mod process;
mod profiles;
mod quota;
mod references;
mod runs;
mod sessions;
mod submit;
mod sync;
mod templates;
