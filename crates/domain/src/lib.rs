//! The pure heart of Recado: values, state machines, use cases and the port traits they speak through.
//!
//! Nothing here opens a socket, speaks SQL, reads the clock or draws a random number: those are ports, implemented by
//! the adapter crates and mocked in unit tests (feature `mocks`). One module a context, named by the one word that the
//! same thing bears in the database crate, the routes and the URL.
#![deny(clippy::disallowed_methods)]

pub mod accounts;
pub mod administration;
pub mod analytics;
pub mod api_keys;
pub mod audit;
pub mod automations;
pub mod billing;
pub mod brand;
pub mod campaigns;
pub mod contacts;
pub mod conversations;
pub mod egress;
pub mod folders;
pub mod idempotency;
pub mod ingestion;
pub mod limits;
pub mod links;
pub mod mail;
pub mod media;
pub mod notifications;
pub mod rollups;
pub mod segments;
pub mod shared;
pub mod team;
pub mod templates;
pub mod webhooks;
pub mod whatsapp;
