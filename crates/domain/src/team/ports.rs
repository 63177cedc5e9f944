//! What teams need from the outside.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Invite, InviteStatus, Member, MemberFacts, MemberStep};
use crate::mail::OutgoingMail;
use crate::shared::{
    AccountId, CursorPage, CursorQuery, Event, InviteId, Role, StoreError, TimeCursor, UserId, WriteOutcome,
};

/// A decided change of a member.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberWrite {
    /// The account.
    pub account_id: AccountId,
    /// Whoever asked for it.
    pub actor: UserId,
    /// Whom it is about.
    pub target: UserId,
    /// What it was decided on.
    pub facts: MemberFacts,
    /// What to write.
    pub step: MemberStep,
    /// What to tell.
    pub events: Vec<Event>,
}

/// Who is in an account.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait MemberStore: Send + Sync {
    /// The members, oldest membership first.
    async fn members(
        &self,
        account: AccountId,
        query: &CursorQuery<TimeCursor>,
    ) -> Result<CursorPage<Member>, StoreError>;

    /// One member.
    async fn member(&self, account: AccountId, user: UserId) -> Result<Option<Member>, StoreError>;

    /// What a change of `target` by `actor` is decided on.
    async fn facts(&self, account: AccountId, actor: UserId, target: UserId) -> Result<MemberFacts, StoreError>;

    /// Writes a change and its events, in one transaction and only while the facts still are those that it was decided
    /// on. MUST be safe against every other change in the account at the same moment: two owners who demote each other
    /// leave one. False: the facts are others by now, and nothing is written.
    async fn write(&self, write: &MemberWrite) -> Result<bool, StoreError>;
}

/// What a new invite needs to know of the account and its maker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitationFacts {
    /// Now, by the database's clock.
    pub now: OffsetDateTime,
    /// The account's name.
    pub account: String,
    /// The maker's name, where it is known, else their address.
    pub inviter: String,
}

/// A new invite, to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct InviteInsert {
    /// The account.
    pub account_id: AccountId,
    /// The invite.
    pub invite: Invite,
    /// Whoever made it.
    pub invited_by: UserId,
    /// The hash of its token: the token itself is stored nowhere.
    pub token_hash: Vec<u8>,
    /// A pending invite to the same address goes from the first status to the second.
    pub superseded: (InviteStatus, InviteStatus),
    /// The mail that carries the link, where mail is sent.
    pub mail: Option<OutgoingMail>,
}

/// An invite that somebody presents the token of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentedInvite {
    /// The account that it opens.
    pub account_id: AccountId,
    /// The account's name.
    pub account: String,
    /// The invite.
    pub invite: Invite,
    /// Whoever made it.
    pub invited_by: UserId,
    /// Their address, by which the account's log names them: they may be no member, as platform administrators are.
    pub inviter_email: Option<String>,
    /// Now, by the database's clock.
    pub now: OffsetDateTime,
    /// Whether whoever presents it is in the account already.
    pub is_member: bool,
}

/// An invite to be accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct Acceptance {
    /// The account.
    pub account_id: AccountId,
    /// The invite.
    pub invite: InviteId,
    /// The status that it was decided on, and the one that it takes.
    pub status: (InviteStatus, InviteStatus),
    /// Who joins.
    pub user: UserId,
    /// As what.
    pub role: Role,
    /// What to tell.
    pub events: Vec<Event>,
}

/// Invites. The look-up by token crosses tenants, through a directory table: the token is how the tenant is found.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait InviteStore: Send + Sync {
    /// The invites, newest first.
    async fn invites(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Invite>, StoreError>;

    /// One invite.
    async fn invite(&self, account: AccountId, id: InviteId) -> Result<Option<Invite>, StoreError>;

    /// What a new invite by `actor` says.
    async fn facts(&self, account: AccountId, actor: UserId) -> Result<InvitationFacts, StoreError>;

    /// Stores an invite, its token's hash and its mail, and ends a pending one to the same address (without regard to
    /// case), all in one transaction.
    async fn insert(&self, insert: &InviteInsert) -> Result<(), StoreError>;

    /// Changes the status of an invite from `from` to `to` and invalidates its token.
    async fn set_status(
        &self,
        account: AccountId,
        id: InviteId,
        from: InviteStatus,
        to: InviteStatus,
    ) -> Result<WriteOutcome<InviteStatus>, StoreError>;

    /// The invite with this token, as `user` would find it.
    async fn presented(&self, token_hash: &[u8], user: UserId) -> Result<Option<PresentedInvite>, StoreError>;

    /// Writes that the time of an invite is over, if it is so by the database's clock. False: it is not, or the invite
    /// has another status by now.
    async fn expire(
        &self,
        account: AccountId,
        id: InviteId,
        from: InviteStatus,
        to: InviteStatus,
    ) -> Result<bool, StoreError>;

    /// Makes the membership, moves the invite on and leaves the events, all or nothing, and only while the invite has
    /// the expected status, its time is not over by the database's clock, and the user is no member. False: one of
    /// these does not hold any more. At most one of many concurrent calls is told true.
    async fn accept(&self, acceptance: &Acceptance) -> Result<bool, StoreError>;
}
