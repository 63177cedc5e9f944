//! Accounts, memberships, sessions.

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use crate::shared::schema::Timestamp;
use crate::shared::{AccountId, FieldErrors, Role, StoreError, UserId, redacted_debug, timestamp};

/// Whether an account may work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccountStatus {
    /// It works.
    Active,
    /// A platform administrator has stopped it: nobody gets an account context, nothing is sent.
    Suspended,
}

impl AccountStatus {
    /// The stored and published word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
        }
    }
}

impl std::str::FromStr for AccountStatus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Active, Self::Suspended]
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| format!("unknown account status {text}"))
    }
}

/// A tenant: everything else belongs to one.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Account {
    /// The account's id.
    pub id: AccountId,
    /// Its name: 1 to 200 characters.
    #[schemars(example = &"Loja da Ana")]
    pub name: String,
    /// A unique short name, made of the name: lowercase letters, digits and hyphens, at most 50.
    #[schemars(example = &"loja-da-ana")]
    pub slug: String,
    /// The address of its logo; null for none.
    #[schemars(example = &"https://example.com/logo.png")]
    pub logo_url: Option<String>,
    /// The id of its plan: `free`, `starter`, `growth` or `scale`.
    #[schemars(example = &"free")]
    pub plan: String,
    /// Whether it may work.
    pub status: AccountStatus,
    /// When it was created.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

/// A user's place in an account.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Membership {
    /// The account's id.
    pub account_id: AccountId,
    /// What the user may do there.
    pub role: Role,
    /// The account.
    pub account: Account,
    /// Where it is an administrator's in support mode: until when.
    #[serde(skip)]
    pub support_until: Option<OffsetDateTime>,
}

/// What authentication needs to know of a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipAccess {
    /// The account.
    pub account_id: AccountId,
    /// What the user may do there.
    pub role: Role,
    /// Whether the account may work.
    pub status: AccountStatus,
    /// Where the membership is an administrator's in support mode: until when.
    pub support_until: Option<OffsetDateTime>,
}

/// A person, proved by the identity provider.
#[derive(Clone, PartialEq, Eq)]
pub struct Session {
    /// The user.
    pub user_id: UserId,
    /// Their address, as the provider gave it.
    pub email: String,
    /// Their name, when the provider gave one.
    pub name: Option<String>,
    /// When the proof ends.
    pub expires_at: OffsetDateTime,
}

redacted_debug!(Session { user_id });

/// Why a token proves nothing.
#[derive(Debug, Error)]
pub enum SessionError {
    /// It is malformed, expired, signed by somebody else, or not for us.
    #[error("the session is not valid")]
    Invalid,
    /// The provider's keys cannot be had, so nothing can be said about the token.
    #[error("the identity provider is unavailable: {0}")]
    Unavailable(String),
}

/// Why an account operation did not happen.
#[derive(Debug, Error)]
pub enum AccountError {
    /// The user is no member of the account.
    #[error("you are not a member of this account")]
    NotMember,
    /// The user belongs to no account.
    #[error("you have no account")]
    NoAccount,
    /// The account is suspended.
    #[error("this account is suspended")]
    Suspended,
    /// The input is wrong.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
