//! The server of Recado: configuration, wiring, routes, workers. Everything it decides is decided in `recado-domain`;
//! everything it stores or calls goes through the adapter crates.

pub mod app;
pub mod config;
pub mod error;
pub mod health;
pub mod logging;
pub mod payment_event_buffer;
pub mod readiness;
pub mod reference;
pub mod rollups;
pub mod routes;
pub mod serve;
pub mod streams;
pub mod system;
pub mod telemetry;
pub mod web;
pub mod wiring;
pub mod workers;
