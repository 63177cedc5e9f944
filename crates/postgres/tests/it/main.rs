//! Every port against a real PostgreSQL, each test in a database of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod accounts;
mod announcements;
mod api_keys;
mod audience;
mod audit;
mod billing;
mod campaigns;
mod contacts;
mod conversations;
mod deliveries;
mod folders;
mod histories;
mod idempotency;
mod invites;
mod isolation;
mod mail;
mod members;
mod migrations;
mod model;
mod notifications;
mod outbox;
mod pool;
mod preview;
mod relay;
mod retries;
mod runs;
mod segments;
mod starts;
mod support;
mod templates;
mod trial;
mod turns;
mod webhook_events;
mod whatsapp;
mod wire;
