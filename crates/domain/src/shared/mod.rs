//! Types that all contexts share: ids, tenants, pages, errors, outbox events, and ports to time and randomness.

mod amount;
pub(crate) mod clock_time;
mod errors;
mod events;
mod ids;
mod locking;
mod network;
mod pages;
mod ports;
mod redacted;
pub mod schema;
mod scope;
mod sealing;
mod strict;
pub(crate) mod string_enum;
mod tenant;
pub mod text;
pub mod timestamp;
mod traced;
mod zone;
mod zone_aliases;

pub use amount::Amount;
pub use errors::{
    FieldErrors, GatewayError, GuardOutcome, InsertOutcome, LeaseOutcome, RowOutcome, StoreError, WorkOutcome,
    WriteOutcome,
};
pub use events::{
    Audit, AuditAction, Event, EventKind, NotificationDraft, NotificationKind, WebhookEventBatch, WebhookKind,
};
pub use ids::*;
pub use locking::{Conflict, UpdateOutcome, WRITE_ATTEMPTS, retry_on_conflict, retry_up_to};
pub use network::Network;
pub use pages::{CursorPage, CursorQuery, InvalidCursor, Page, PageQuery, TimeCursor};
pub use ports::*;
pub(crate) use redacted::redacted_debug;
pub use scope::{KeyScope, KeyScopes, RouteScope, ScopeArea, ScopeVerb};
pub use sealing::*;
pub use strict::Strict;
pub(crate) use string_enum::string_enum;

pub use tenant::{Actor, CallingKey, Creation, Role, Tenant};
pub use traced::TRACED;
pub use zone::{Zone, ZoneName};
