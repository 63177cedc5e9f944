//! Black-box tests of the server: the real binary, over HTTP, with a separate database for every test.
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
mod administration;
mod administration_deletion;
mod administration_support;
mod api_keys;
mod assignment;
mod audit;
mod audit_faults;
mod automations;
mod billing;
mod billing_cards;
mod billing_changes;
mod billing_events;
mod billing_faults;
mod billing_grants;
mod billing_outage;
mod billing_reconciler;
mod bodies;
mod brand;
mod brand_memory;
mod browsers;
mod callback_details;
mod callbacks;
mod campaigns;
mod concurrent_updates;
mod consent;
mod contact_limits;
mod contacts;
mod conversations;
mod cors;
mod crashes;
mod disconnects;
mod docs;
mod events;
mod execute;
mod exports;
mod faults;
mod files;
mod folders;
mod frozen_content;
mod harness;
mod hooks;
mod http;
mod idempotency;
mod identity;
mod import;
mod ingestion;
mod insights;
mod invites;
mod limiter;
mod limits;
mod links;
mod lists;
mod mail;
mod matrix;
mod media;
mod model;
mod notifications;
mod overlaps;
mod owners;
mod preview;
mod process;
mod profiles;
mod quota;
mod reference;
mod references;
mod reports;
mod retries;
mod rfm;
mod runs;
mod secrets;
mod segments;
mod send;
mod sessions;
mod standings;
mod submit;
mod sync;
mod team;
mod telemetry;
mod telling;
mod template_parameters;
mod templates;
mod tenants;
mod test_send;
mod traces;
mod webhooks;
