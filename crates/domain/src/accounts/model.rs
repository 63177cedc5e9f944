//! Accounts, memberships and sessions.

use thiserror::Error;
use time::OffsetDateTime;

use crate::shared::string_enum::string_enum;
use crate::shared::{AccountId, FieldErrors, Role, StoreError, UserId, redacted_debug};

string_enum! {
    /// Status of an account.
    AccountStatus {
        /// The account works normally.
        Active = "active",
        /// A platform administrator suspended the account: members have no access, and no messages are sent.
        Suspended = "suspended",
    }
}

/// A business that uses Recado. All other data belongs to an account.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    pub id: AccountId,
    pub name: String,
    /// Unique short name, derived from the name: at most 50 lowercase letters, digits and hyphens.
    pub slug: String,
    pub logo_url: Option<String>,
    /// Id of the account's plan: `free`, `starter`, `growth` or `scale`.
    pub plan: String,
    pub status: AccountStatus,
    pub created_at: OffsetDateTime,
}

/// A user's membership in an account.
#[derive(Clone, Debug, PartialEq)]
pub struct Membership {
    pub account_id: AccountId,
    pub role: Role,
    pub account: Account,
    /// End of a temporary membership of support mode; `None` for a regular membership.
    pub support_until: Option<OffsetDateTime>,
}

/// The fields of a membership that authentication reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipAccess {
    pub account_id: AccountId,
    pub role: Role,
    pub status: AccountStatus,
    /// End of a temporary membership of support mode; `None` for a regular membership.
    pub support_until: Option<OffsetDateTime>,
}

/// A user whom the identity provider authenticated.
#[derive(Clone, PartialEq, Eq)]
pub struct Session {
    pub user_id: UserId,
    /// E-mail address as the identity provider reports it.
    pub email: String,
    /// Name, if the identity provider reports one.
    pub name: Option<String>,
    /// Whether the identity provider says that the address is verified; `None` if it says nothing.
    pub email_verified: Option<bool>,
    /// When the session token was issued, if it says so.
    pub issued_at: Option<OffsetDateTime>,
    /// When the user proved their identity to the identity provider, if the token says so.
    pub authenticated_at: Option<OffsetDateTime>,
    /// When the user last ended all sessions. `None` until [`Sessions::check`](super::Sessions::check) has read it.
    pub signed_out_at: Option<OffsetDateTime>,
    /// When the session token expires.
    pub expires_at: OffsetDateTime,
}

redacted_debug!(Session { user_id });

impl Session {
    /// The name with the e-mail address, or the address alone.
    pub fn display_name(&self) -> String {
        match &self.name {
            Some(name) if !name.trim().is_empty() => format!("{} ({})", name.trim(), self.email),
            _ => self.email.clone(),
        }
    }

    /// A session of `ana@example.com` whose token has no optional claims.
    #[cfg(any(test, feature = "mocks"))]
    pub fn for_tests(user_id: UserId, expires_at: OffsetDateTime) -> Self {
        Self {
            user_id,
            email: "ana@example.com".into(),
            name: None,
            email_verified: None,
            issued_at: None,
            authenticated_at: None,
            signed_out_at: None,
            expires_at,
        }
    }
}

/// Why a session token is refused.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The token is malformed, expired, signed with an unknown key, or issued for another audience.
    #[error("the session is not valid")]
    Invalid,
    /// The provider's keys cannot be fetched, so the token cannot be verified.
    #[error("the identity provider is unavailable: {0}")]
    Unavailable(String),
}

/// Error of an account use case.
#[derive(Debug, Error)]
pub enum AccountError {
    #[error("you are not a member of this account")]
    NotMember,
    #[error("you have no account")]
    NoAccount,
    #[error("this account is suspended")]
    Suspended,
    /// The user ended all sessions after this one began.
    #[error("the session has ended; sign in again")]
    SessionEnded,
    #[error("requires a platform administrator")]
    NotAdministrator,
    /// The user is an administrator, but signed in too long ago.
    #[error("the sign-in is too long ago for this operation; sign in again")]
    SignInTooOld,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error(transparent)]
    Store(#[from] StoreError),
}
