//! Accounts as administrators see them, the acting administrator, and the errors of administration.

use thiserror::Error;
use time::OffsetDateTime;

use crate::accounts::{Account, AccountStatus};
use crate::billing::{Cents, PaymentGatewayError};
use crate::media::MediaStoreError;
use crate::shared::{
    AccountId, Audit, AuditAction, AuditLogId, Conflict, FieldErrors, Role, StoreError, SubscriptionId, UserId,
    redacted_debug,
};
use crate::team::NewInvite;

/// The platform administrator who makes a request.
#[derive(Clone, PartialEq, Eq)]
pub struct Admin {
    pub user_id: UserId,
    pub email: String,
    /// Client IP address.
    pub ip_address: Option<String>,
    /// `X-Request-Id` of the request.
    pub request_id: Option<String>,
    /// Id of the request's entry in the platform audit log, if it writes one.
    pub entry_id: AuditLogId,
    /// Whether the session is in support mode.
    pub in_support: bool,
}

redacted_debug!(Admin {});

impl Admin {
    /// Builds an entry for the audit log of the changed account.
    pub(super) fn audit(&self, action: AuditAction, entity_type: &str, account: AccountId) -> Audit {
        Audit {
            user_id: Some(self.user_id),
            action,
            entity_type: entity_type.to_owned(),
            entity_id: Some(account.0),
            changes: None,
            ip_address: self.ip_address.clone(),
            support_admin: self.in_support.then(|| self.email.clone()),
        }
    }
}

/// An account that an administrator created or updated, with the invite of its owner.
#[derive(Clone, Debug)]
pub struct Administered {
    pub account: Account,
    /// The invite with its one-time token, which only this response contains.
    pub owner_invite: Option<NewInvite>,
}

/// An account in the administrators' list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRow {
    pub id: AccountId,
    pub company_name: String,
    pub slug: String,
    /// E-mail address of the owner; of several owners, of the one who has been owner longest.
    pub owner_email: Option<String>,
    pub plan: String,
    pub status: AccountStatus,
    /// Number of members, without those in support mode.
    pub users: i64,
    pub contacts: i64,
    /// Number of campaign messages and replies that the account sent in the last 30 days.
    pub messages_30d: i64,
    /// Monthly value of the account's active or past due subscription, in cents.
    pub mrr: Cents,
    pub created_at: OffsetDateTime,
}

/// Filter of the account list. `None` matches every account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountFilter {
    /// Part of the name or of the owner's e-mail address, case-insensitive.
    pub search: Option<String>,
    pub plan: Option<String>,
    pub status: Option<AccountStatus>,
}

/// A member of an account.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountUser {
    pub account_id: AccountId,
    pub user_id: UserId,
    pub email: String,
    pub name: Option<String>,
    pub role: Role,
    /// When the user last switched to the account, if ever.
    pub last_active_at: Option<OffsetDateTime>,
    pub created_at: OffsetDateTime,
}

redacted_debug!(AccountUser {});

/// Row counts of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountMetrics {
    pub contacts: i64,
    pub conversations: i64,
}

/// An account with its members and row counts.
#[derive(Clone, Debug, PartialEq)]
pub struct AccountDetail {
    pub account: Account,
    /// Members in the order in which they joined, without those in support mode.
    pub users: Vec<AccountUser>,
    pub metrics: AccountMetrics,
}

/// Validated changes of an account. `None` keeps the field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountChange {
    pub name: Option<String>,
    pub slug: Option<String>,
    pub logo_url: Option<Option<String>>,
    pub plan: Option<String>,
    pub status: Option<AccountStatus>,
}

/// A subscription of a deleted account that must be cancelled at the payment gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayCancellation {
    /// External reference of the subscription at the gateway.
    pub subscription_id: SubscriptionId,
    /// The gateway's id; `None` if it is unknown whether the gateway created the subscription.
    pub gateway_subscription_id: Option<String>,
    /// Until when a subscription without a gateway id is looked for.
    pub until: OffsetDateTime,
}

/// Error of an administration use case.
#[derive(Debug, Error)]
pub enum AdministrationError {
    #[error("there is no such account")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// Concurrent changes of the account's subscription won `WRITE_ATTEMPTS` times.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error(transparent)]
    Gateway(#[from] PaymentGatewayError),
    /// The media store could not delete the account's files.
    #[error(transparent)]
    Media(#[from] MediaStoreError),
    #[error(transparent)]
    Store(#[from] StoreError),
}
