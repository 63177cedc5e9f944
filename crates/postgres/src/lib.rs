//! The stores: every repository port of the domain, on PostgreSQL.
//!
//! Connections have two types. [`TenantPool`] connects as a role that row-level security binds to the account that a
//! transaction names. [`OwnerPool`] connects as the owner, for statements that run before the tenant is known
//! (sessions, keys, callbacks, the run queue, the outbox). [`PgAudit`], [`PgApiKeys`], [`PgMembers`], [`PgInvites`],
//! the search of [`PgContacts`] and `record_and_start.sql` also use it for one account, and there every condition names
//! that account. No transaction leaves this crate.
#![deny(clippy::disallowed_methods)]

mod accounts;
mod administration;
mod analytics;
mod api_keys;
mod audit;
mod automations;
mod billing;
mod brand;
mod callbacks;
mod campaigns;
mod contact_exports;
mod contacts;
mod conversations;
mod costs;
mod deterministic_ids;
mod diagnostics;
mod direct_messages;
mod erased_opt_outs;
mod erasures;
mod errors;
mod filters;
mod folders;
mod holds;
mod idempotency;
mod ingestion;
mod links;
mod low_water;
mod mail;
mod mail_recipients;
mod media;
mod migrate;
mod notifications;
mod omitted_columns;
mod outbox;
mod partitions;
mod pool;
mod pool_registry;
mod pricing;
mod queues;
mod reads;
mod retention;
mod rollups;
mod row_locks;
mod sealed;
mod segments;
mod session;
mod sessions;
mod settings;
mod snapshots;
mod sql;
mod sqlstate;
mod statistics;
mod team;
mod templates;
mod tenant_role;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
mod transactions;
mod webhooks;
mod whatsapp;

use recado_schema as schema;

pub use accounts::PgAccounts;
pub use administration::{PgAdministration, PgDeletions, PgPlatformAudit, PgSupport};
pub use analytics::{PgAnalytics, PgExports, PgInsights, PgRfm};
pub use api_keys::PgApiKeys;
pub use audit::PgAudit;
pub use automations::PgAutomations;
pub use billing::{PgBillingWork, PgGatewayEvents, PgSubscriptions};
pub use brand::PgBrand;
pub use callbacks::{PgCallbacks, PgHeldMessages, PgStatusUpdates};
pub use campaigns::{PgCampaigns, PgRuns, PgSendSlots, PgTestSends};
pub use contact_exports::PgContactExports;
pub use contacts::{PgContacts, PgTags, SearchIndexError, has_contact_search, prepare_contact_search};
pub use conversations::{PgConversations, PgInbox};
pub use costs::{PgCosts, PgRateCards};
pub use diagnostics::{PgDiagnostics, TenantRole, tenant_role};
pub use direct_messages::{PgDirectMessageQueues, PgDirectMessages};
pub use erased_opt_outs::ErasedOptOuts;
pub use erasures::PgErasures;
pub use folders::PgFolders;
pub use idempotency::PgIdempotency;
pub use ingestion::PgIngestion;
pub use links::PgLinks;
pub use mail::PgMailQueue;
pub use media::PgMessageFiles;
pub use migrate::{LockRetryPolicy, MigrateError, migrate, migrate_over, pending, run};
pub use notifications::{PgNotificationFeed, PgNotifications};
pub use outbox::PgOutbox;
pub use partitions::{
    Interval, PARTITIONED, PartitionKey, PartitionedTable, PgPartitions, RetentionDays, RetentionTerm, first_id,
};
pub use pool::{OwnerPool, PoolConfig, TenantPool};
pub use pool_registry::{PoolLabels, PoolRegistry, PoolStats, PoolUsage};
pub use queues::{PgQueues, PgWaitingMessages, Queue, WaitingMessages};
pub use retention::PgRetention;
pub use rollups::PgRollups;
pub use row_locks::PgRowLocks;
pub use sealed::{PgSealedValues, ResealedBatch, RowKey, SEALED_COLUMNS, SealedColumn, SealedCount};
pub use segments::{PgSegmentCounts, PgSegments};
pub use sessions::PgSessions;
pub use settings::PgSettings;
pub use snapshots::{OldestSnapshot, PgSnapshots};
pub use statistics::{PgStatistics, QUEUE_TABLES};
pub use team::{PgInvites, PgMembers};
pub use templates::PgTemplates;
pub use tenant_role::{TenantRoleError, check_tenant_role, prepare_tenant_role};
pub use tls::{DatabaseTls, TlsMode, TlsRefusal, UrlTls, check_tls, url_tls};
pub use webhooks::{PgDeliveryQueue, PgInbound, PgWebhooks};
pub use whatsapp::{PgFileIds, PgProfileStates, PgProfiles, PgVerifications};
