//! The stores: every repository port of the domain, on PostgreSQL.
//!
//! Two kinds of connections, two types: [`TenantPool`] connects as a role that row-level security binds to the one
//! account named when a transaction begins; [`PlatformPool`] connects as the owner and is used only where a tenant is
//! still to be found (sessions, keys, callbacks, the queue of runs, the outbox). No transaction leaves this crate.

mod accounts;
mod api_keys;
mod campaigns;
mod contacts;
mod derived;
mod errors;
mod idempotency;
mod migrate;
mod outbox;
mod pool;
mod schema;
mod sql;
mod templates;
#[cfg(feature = "testing")]
pub mod testing;
mod whatsapp;

pub use accounts::PgAccounts;
pub use api_keys::PgApiKeys;
pub use campaigns::{PgCampaigns, PgRuns};
pub use contacts::{PgContacts, PgTags};
pub use idempotency::PgIdempotency;
pub use migrate::{MigrateError, migrate, pending};
pub use outbox::PgOutbox;
pub use pool::{PlatformPool, PoolConfig, PoolUsage, TenantPool};
pub use templates::PgTemplates;
pub use whatsapp::{PgCallbacks, PgDeliveries, PgFileIds, PgProfiles};
