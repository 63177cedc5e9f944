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

mod abuse;
mod accounts;
mod administration;
mod administration_deletion;
mod administration_support;
mod administrators;
mod api_key_limits;
mod api_key_notices;
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
mod callback_details;
mod callbacks;
mod campaigns;
mod concurrent_commands;
mod concurrent_updates;
mod consent;
mod contact_limits;
mod contacts;
mod conversations;
mod cors;
mod crashes;
mod csrf;
mod direct_messages;
mod disconnects;
mod docs;
mod doctor;
mod events;
mod execute;
mod exports;
mod faults;
mod files;
mod folders;
mod frozen_content;
mod harness;
mod histories;
mod http;
mod idempotency;
mod identity;
mod import;
mod inbound_webhooks;
mod ingestion;
mod insights;
mod invites;
mod limiter;
mod limits;
mod links;
mod mail;
mod matrix;
mod matrix_scopes;
mod media;
mod membership_revocation;
mod model;
mod notifications;
mod number_delivery;
mod number_faults;
mod number_refusals;
mod number_verification;
mod owners;
mod pagination;
mod platform_audit;
mod pooler;
mod preview;
mod process;
mod profiles;
mod quota;
mod reference;
mod references;
mod reports;
mod request_log;
mod retries;
mod rfm;
mod runs;
mod secret_rotation;
mod secrets;
mod segments;
mod send;
mod sessions;
mod sign_out;
mod submit;
mod sync;
mod team;
mod telemetry;
mod template_check;
mod template_parameters;
mod template_parts;
mod templates;
mod tenants;
mod test_send;
mod tls_clients;
mod tls_database;
mod traces;
mod webhook_payloads;
mod webhooks;
