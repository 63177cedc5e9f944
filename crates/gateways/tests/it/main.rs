//! Tests of the gateways against the simulators, and against raw servers for responses that no simulator gives.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests say what they expect by panicking"
)]

mod ai;
mod egress;
mod files;
mod http;
mod mail;
mod media;
mod pages;
mod payment;
mod sessions;
mod verification;
mod webhooks;
mod whatsapp;
