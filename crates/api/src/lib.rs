//! The HTTP API of Recado: the route table, access checks, the handlers, error responses and the API reference. It
//! calls the use cases of `recado-domain` and knows no database and no other system.

pub mod app;
pub mod app_secret;
pub mod crypto;
pub mod error;
pub mod error_chain;
pub mod origin;
pub mod payment_event_buffer;
pub mod readiness;
pub mod reference;
pub mod routes;
pub mod streams;
pub mod system;
pub mod telemetry;
pub mod web;
pub mod worker_handles;
