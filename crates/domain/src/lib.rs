//! The domain of Recado: values, state machines, use cases, and the port traits that the use cases call.
//!
//! This crate opens no socket, contains no SQL, reads no clock and draws no random number. Those are ports, which the
//! adapter crates implement and unit tests mock (feature `mocks`). Each context has one module. Its name is the same in
//! the database crate, the routes and the URL.
#![deny(clippy::disallowed_methods)]

pub mod accounts;
pub mod administration;
pub mod analytics;
pub mod api_keys;
pub mod audit;
pub mod automations;
pub mod billing;
pub mod brand;
pub mod callbacks;
pub mod campaigns;
pub mod contact_exports;
pub mod contacts;
pub mod conversations;
pub mod costs;
pub mod direct_messages;
pub mod egress;
pub mod erasures;
pub mod folders;
pub mod holds;
pub mod idempotency;
pub mod ingestion;
pub mod limits;
pub mod links;
pub mod mail;
pub mod media;
pub mod messaging;
pub mod notifications;
pub mod retention;
pub mod rollups;
pub mod segments;
pub mod settings;
pub mod shared;
#[cfg(test)]
mod simulation;
pub mod team;
pub mod templates;
pub mod webhooks;
pub mod whatsapp;
