//! Members, invites, and why something about them did not happen.

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use super::InviteStatus;
use crate::shared::schema::Timestamp;
use crate::shared::{AccountId, Conflict, FieldErrors, InviteId, Role, StoreError, UserId, redacted_debug, timestamp};

/// A person in an account.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Member {
    /// The person's user id.
    pub user_id: UserId,
    /// Their e-mail address, as the identity provider gave it.
    #[schemars(example = &"ana@example.com")]
    pub email: String,
    /// Their name; null when the identity provider gave none.
    #[schemars(example = &"Ana Lima")]
    pub name: Option<String>,
    /// What they may do in the account.
    pub role: Role,
    /// When they last switched to the account; null when they never did.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub last_active_at: Option<OffsetDateTime>,
    /// Since when they are in it.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

redacted_debug!(Member {});

/// An invitation into an account. Its token is told once, when it is created.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Invite {
    /// The invite's id.
    pub id: InviteId,
    /// The e-mail address that it is for, as it was typed.
    #[schemars(example = &"bia@example.com")]
    pub email: String,
    /// The role that it gives.
    pub role: Role,
    /// What became of it.
    pub status: InviteStatus,
    /// From this moment on nobody can accept it.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub expires_at: OffsetDateTime,
    /// When it was created.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

redacted_debug!(Invite {});

/// What the caller says of a new invite.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct InviteInput {
    /// Whom it is for.
    pub email: Option<String>,
    /// The word of the role that it gives.
    pub role: Option<String>,
    /// How long it is good; a week when nothing is said.
    pub expires_in_hours: Option<i64>,
}

redacted_debug!(InviteInput {});

/// Who is to be the first owner of an account, and who says so.
#[derive(Clone, PartialEq, Eq)]
pub struct FirstOwner<'a> {
    /// The account.
    pub account_id: AccountId,
    /// Its name.
    pub account: &'a str,
    /// The platform administrator who invites.
    pub invited_by: UserId,
    /// How they are called in the mail.
    pub inviter: &'a str,
    /// Whom it is for.
    pub email: &'a str,
    /// Now.
    pub now: OffsetDateTime,
}

redacted_debug!(FirstOwner<'_> {});

/// A new invite and what is told of it only once.
#[derive(Clone, Debug)]
pub struct NewInvite {
    /// The invite.
    pub invite: Invite,
    /// What accepts it.
    pub token: SecretString,
    /// The page that takes the token.
    pub accept_url: SecretString,
}

/// Why an operation on a team did not happen.
#[derive(Debug, Error)]
pub enum TeamError {
    /// No such member, or no such pending invite.
    #[error("not found")]
    NotFound,
    /// The caller's role does not permit the change.
    #[error("only owners and admins may change the team, and only owners may add or change owners")]
    NotPermitted,
    /// The invite is for another user's address.
    #[error("this invite was sent to another e-mail address")]
    OtherAddress,
    /// The input is wrong, or the state of things makes it so.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// Other changes of the team came first, again and again.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
