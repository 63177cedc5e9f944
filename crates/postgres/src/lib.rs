//! The stores: every repository port of the domain, on PostgreSQL.
//!
//! Two kinds of connections, two types: [`TenantPool`] connects as a role that row-level security binds to the one
//! account named when a transaction begins; [`PlatformPool`] connects as the owner and is used only where a tenant is
//! still to be found (sessions, keys, callbacks, the queue of runs, the outbox). No transaction leaves this crate.

mod accounts;
mod api_keys;
mod audit;
mod billing;
mod campaigns;
mod contacts;
mod conversations;
mod derived;
mod errors;
mod folders;
mod idempotency;
mod mail;
mod migrate;
mod notifications;
mod outbox;
mod platform;
mod pool;
mod schema;
mod segments;
mod sql;
mod team;
mod templates;
#[cfg(feature = "testing")]
pub mod testing;
mod whatsapp;

pub use accounts::PgAccounts;
pub use api_keys::PgApiKeys;
pub use audit::PgAudit;
pub use billing::{PgBillingWork, PgGatewayEvents, PgSubscriptions};
pub use campaigns::{PgCampaigns, PgPaces, PgRuns, PgTrials};
pub use contacts::{PgContacts, PgTags};
pub use conversations::{PgConversations, PgInbox};
pub use folders::PgFolders;
pub use idempotency::PgIdempotency;
pub use mail::PgMailQueue;
pub use migrate::{MigrateError, migrate, pending};
pub use notifications::{PgNotificationFeed, PgNotifications};
pub use outbox::PgOutbox;
pub use platform::{PgDeletions, PgPlatform, PgSupport};
pub use pool::{PlatformPool, PoolConfig, PoolUsage, TenantPool};
pub use segments::PgSegments;
pub use team::{PgInvites, PgMembers};
pub use templates::PgTemplates;
pub use whatsapp::{PgCallbacks, PgDeliveries, PgFileIds, PgProfiles};
