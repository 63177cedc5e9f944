//! Members, invites and the errors of team use cases.

use secrecy::SecretString;
use thiserror::Error;
use time::OffsetDateTime;

use super::InviteStatus;
use crate::shared::{AccountId, Conflict, FieldErrors, InviteId, Role, StoreError, UserId, redacted_debug};

/// A member of an account.
#[derive(Clone, PartialEq, Eq)]
pub struct Member {
    pub user_id: UserId,
    /// E-mail address of the user, as the identity provider reports it.
    pub email: String,
    /// Name of the user, if the identity provider reports one.
    pub name: Option<String>,
    pub role: Role,
    /// When the user last switched to the account, if ever.
    pub last_active_at: Option<OffsetDateTime>,
    pub created_at: OffsetDateTime,
}

redacted_debug!(Member {});

/// An offer of a role in an account. Only the response that creates it contains its token.
#[derive(Clone, PartialEq, Eq)]
pub struct Invite {
    pub id: InviteId,
    /// The invited e-mail address, as it was entered.
    pub email: String,
    pub role: Role,
    pub status: InviteStatus,
    pub expires_at: OffsetDateTime,
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
