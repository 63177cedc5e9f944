//! Accounts as the platform sees them, who acts on them, and why that may fail.

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use crate::accounts::{Account, AccountStatus};
use crate::billing::{Cents, PaymentGatewayError};
use crate::media::MediaStoreError;
use crate::shared::schema::Timestamp;
use crate::shared::{
    AccountId, Audit, AuditAction, Conflict, FieldErrors, Role, StoreError, SubscriptionId, UserId, redacted_debug,
    timestamp,
};
use crate::team::NewInvite;

/// A platform administrator at work.
#[derive(Clone, PartialEq, Eq)]
pub struct Admin {
    /// The person.
    pub user_id: UserId,
    /// Their e-mail address.
    pub email: String,
    /// From which address.
    pub ip_address: Option<String>,
    /// Whether they are in support mode meanwhile.
    pub in_support: bool,
}

redacted_debug!(Admin {});

impl Admin {
    /// An entry in the log of the account that they act on.
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

/// An account as an administrator made or changed it, and the invite for its owner.
#[derive(Clone, Debug)]
pub struct Administered {
    /// The account.
    pub account: Account,
    /// What is told of the invite only once.
    pub owner_invite: Option<NewInvite>,
}

/// An account, as administrators list it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AccountRow {
    /// The account's id.
    pub id: AccountId,
    /// The account's name.
    #[schemars(example = "Loja Exemplo")]
    pub company_name: String,
    /// Its slug.
    #[schemars(example = "loja-exemplo")]
    pub slug: String,
    /// The e-mail address of its owner; of several, of whoever has been one for longest. Null without an owner.
    #[schemars(example = "ana@example.com")]
    pub owner_email: Option<String>,
    /// The id of its plan.
    #[schemars(example = &"growth")]
    pub plan: String,
    /// Whether it may work.
    pub status: AccountStatus,
    /// How many people are in it, support mode aside.
    #[schemars(example = 3)]
    pub users: i64,
    /// How many contacts it has.
    #[schemars(example = 1840)]
    pub contacts: i64,
    /// How many messages it sent in the last 30 days: of campaigns, and replies.
    #[schemars(example = 5120)]
    pub messages_30d: i64,
    /// What it pays a month, in cents.
    #[schemars(example = 19900)]
    pub mrr: Cents,
    /// When the account was created.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

/// Which accounts are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountFilter {
    /// A part of the name or of the owner's address, in any case.
    pub search: Option<String>,
    /// On this plan.
    pub plan: Option<String>,
    /// In this status.
    pub status: Option<AccountStatus>,
}

/// Somebody in an account.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AccountUser {
    /// The account.
    pub account_id: AccountId,
    /// The person's id.
    pub user_id: UserId,
    /// The person's e-mail address.
    #[schemars(example = "ana@example.com")]
    pub email: String,
    /// The person's name; null when it is not known.
    #[schemars(example = "Ana Lima")]
    pub name: Option<String>,
    /// What the person may do.
    pub role: Role,
    /// When the person last switched to the account; null for never.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub last_active_at: Option<OffsetDateTime>,
    /// Since when the person is in it.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

redacted_debug!(AccountUser {});

/// What an account has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AccountMetrics {
    /// How many contacts.
    #[schemars(example = 1840)]
    pub contacts: i64,
    /// How many conversations.
    #[schemars(example = 320)]
    pub conversations: i64,
}

/// One account in full.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AccountDetail {
    /// The account.
    #[serde(flatten)]
    pub account: Account,
    /// Who is in it, support mode aside; who came first is first.
    pub users: Vec<AccountUser>,
    /// What it has.
    pub metrics: AccountMetrics,
}

/// What of an account changes; none: it stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountChange {
    pub name: Option<String>,
    pub slug: Option<String>,
    pub logo_url: Option<Option<String>>,
    pub plan: Option<String>,
    pub status: Option<AccountStatus>,
}

/// What an account that is removed may still have at the payment gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayCancellation {
    /// Our subscription: what the gateway knows it by.
    pub subscription_id: SubscriptionId,
    /// The gateway's id; none while nobody knows whether there is one.
    pub gateway_subscription_id: Option<String>,
    /// How long it may still turn up.
    pub until: OffsetDateTime,
}

/// Why an administrator did not get what they asked for.
#[derive(Debug, Error)]
pub enum AdministrationError {
    /// There is no such account.
    #[error("there is no such account")]
    NotFound,
    /// The input is wrong.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// Other changes of the account's subscription came first, again and again.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The payment gateway cannot be asked now.
    #[error(transparent)]
    Gateway(#[from] PaymentGatewayError),
    /// The files of the account cannot be removed now.
    #[error(transparent)]
    Media(#[from] MediaStoreError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
