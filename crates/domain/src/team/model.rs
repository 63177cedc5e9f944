//! Members, invites and the errors of team use cases.

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use super::InviteStatus;
use crate::shared::schema::Timestamp;
use crate::shared::{AccountId, Conflict, FieldErrors, InviteId, Role, StoreError, UserId, redacted_debug, timestamp};

/// A member of an account.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Member {
    /// Id of the user.
    pub user_id: UserId,
    /// E-mail address of the user, as the identity provider reports it.
    #[schemars(example = &"ana@example.com")]
    pub email: String,
    /// Name of the user; null if the identity provider reports none.
    #[schemars(example = &"Ana Lima")]
    pub name: Option<String>,
    /// Role of the user in the account.
    pub role: Role,
    /// When the user last switched to the account; null if never.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub last_active_at: Option<OffsetDateTime>,
    /// When the user became a member.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

redacted_debug!(Member {});

/// An offer of a role in an account. Only the response that creates it contains its token.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Invite {
    /// Id of the invite.
    pub id: InviteId,
    /// The invited e-mail address, as it was entered.
    #[schemars(example = &"bia@example.com")]
    pub email: String,
    /// The role that the invited user will have.
    pub role: Role,
    /// Status of the invite.
    pub status: InviteStatus,
    /// When the invite expires.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub expires_at: OffsetDateTime,
    /// When the invite was created.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

redacted_debug!(Invite {});

/// A new invite, not yet validated.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct InviteInput {
    pub email: Option<String>,
    pub role: Option<String>,
    /// Lifetime in hours; `None` is a week.
    pub expires_in_hours: Option<i64>,
}

redacted_debug!(InviteInput {});

/// The first owner of an account, whom a platform administrator invites.
#[derive(Clone, PartialEq, Eq)]
pub struct FirstOwner<'a> {
    pub account_id: AccountId,
    /// Name of the account.
    pub account: &'a str,
    /// The platform administrator who invites.
    pub invited_by: UserId,
    /// Name of the inviter in the mail.
    pub inviter: &'a str,
    /// Address of the first owner.
    pub email: &'a str,
    pub now: OffsetDateTime,
}

redacted_debug!(FirstOwner<'_> {});

/// A new invite with its one-time token.
#[derive(Clone, Debug)]
pub struct NewInvite {
    pub invite: Invite,
    /// The token that accepts the invite.
    pub token: SecretString,
    /// Link to the page that accepts the token.
    pub accept_url: SecretString,
    /// Whether a mail with the link was queued.
    pub mailed: bool,
}

/// Error of a team use case.
#[derive(Debug, Error)]
pub enum TeamError {
    /// The member or pending invite does not exist.
    #[error("not found")]
    NotFound,
    /// The caller's role does not permit the change.
    #[error("only owners and admins may change the team, and only owners may add or change owners")]
    NotPermitted,
    /// The invite is for another user's address.
    #[error("this invite was sent to another e-mail address")]
    OtherAddress,
    /// The input is invalid, or the current state does not allow the change.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// Concurrent changes of the team won `WRITE_ATTEMPTS` times.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error(transparent)]
    Store(#[from] StoreError),
}
