//! The server of Recado: configuration, wiring, routes and workers. `recado-domain` makes all domain decisions. The
//! adapter crates implement all storage and all calls to other systems.

pub mod app;
pub mod config;
pub mod contact_search;
mod crypto;
pub mod doctor;
pub mod error;
mod error_chain;
pub mod health;
pub mod logging;
pub mod origin;
pub mod payment_event_buffer;
pub mod readiness;
pub mod recipient_hash;
pub mod reference;
pub mod rollups;
pub mod routes;
pub mod sealing;
pub mod secrets;
pub mod serve;
pub mod streams;
pub mod system;
pub mod telemetry;
mod tenant_role;
pub mod web;
pub mod wiring;
pub mod worker_handles;
pub mod workers;
