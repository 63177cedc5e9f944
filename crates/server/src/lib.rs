//! The server of Recado: configuration, wiring, routes and workers. `recado-domain` makes all domain decisions. The
//! adapter crates implement all storage and all calls to other systems.

pub mod config;
pub mod contact_search;
pub mod doctor;
pub mod erasures;
pub mod health;
pub mod identifier_hash;
pub mod logging;
pub mod recipient_hash;
pub mod rollups;
pub mod sealing;
pub mod secrets;
pub mod serve;
pub mod telemetry;
mod tenant_role;
pub mod wiring;
pub mod workers;
