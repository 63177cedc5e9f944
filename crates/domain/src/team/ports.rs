//! Database ports of members and invites.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Invite, InviteStatus, Member, MemberFacts, MemberStep};
use crate::mail::{OutgoingMail, RecipientHash};
use crate::shared::{
    AccountId, CursorPage, CursorQuery, Event, GuardOutcome, InviteId, Role, StoreError, TimeCursor, UserId,
    WriteOutcome,
};

/// A decided change of a member.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberWrite {
    pub account_id: AccountId,
    /// The user who requests the change.
    pub actor: UserId,
    /// The member to change.
    pub target: UserId,
    /// The facts on which the change was decided.
    pub facts: MemberFacts,
    /// The change to write.
    pub step: MemberStep,
    /// Outbox events that commit with the change.
    pub events: Vec<Event>,
}

/// Members of an account.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait MemberStore: Send + Sync {
    /// Returns the members, oldest membership first.
    async fn members(
        &self,
        account: AccountId,
        query: &CursorQuery<TimeCursor>,
    ) -> Result<CursorPage<Member>, StoreError>;

    async fn member(&self, account: AccountId, user: UserId) -> Result<Option<Member>, StoreError>;

    /// Reads the facts on which a change of `target` by `actor` is decided.
    async fn facts(&self, account: AccountId, actor: UserId, target: UserId) -> Result<MemberFacts, StoreError>;

    /// Writes a change and its events in one transaction, if the facts are unchanged. MUST be safe against concurrent
    /// changes in the account: of two owners who demote each other, one remains.
    async fn write(&self, write: &MemberWrite) -> Result<GuardOutcome, StoreError>;
}

/// What a new invite needs of its account and inviter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitationFacts {
    /// Current time of the database's clock.
    pub now: OffsetDateTime,
    /// Name of the account.
    pub account: String,
    /// Name of the inviter; the e-mail address if the name is unknown or comes from a token that does not prove the
    /// address.
    pub inviter: String,
}

/// A new invite to store.
#[derive(Clone, Debug, PartialEq)]
pub struct InviteInsert {
    pub account_id: AccountId,
    pub invite: Invite,
    pub invited_by: UserId,
    /// Hash of the token. The token itself is never stored.
    pub token_hash: Vec<u8>,
    /// A pending invite to the same address changes from the first status to the second.
    pub superseded: (InviteStatus, InviteStatus),
    /// The mail with the link; `None` if no mail is sent.
    pub mail: Option<OutgoingMail>,
    /// Hash of the invited address, for the limits on mail to one address.
    pub recipient: RecipientHash,
}

/// How storing an invite ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InviteOutcome {
    /// Stored. `mailed`: its mail was queued.
    Done { mailed: bool },
    /// The account has the maximum number of pending invites. Nothing was written.
    Full,
}

/// An invite found by its token, with the facts on which its acceptance is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentedInvite {
    pub account_id: AccountId,
    /// Name of the account.
    pub account: String,
    pub invite: Invite,
    pub invited_by: UserId,
    /// E-mail address of the inviter, for the audit log. A platform administrator is no member of the account.
    pub inviter_email: Option<String>,
    /// Current time of the database's clock.
    pub now: OffsetDateTime,
    /// Whether the accepting user already is a member.
    pub is_member: bool,
}

/// The acceptance of an invite.
#[derive(Clone, Debug, PartialEq)]
pub struct Acceptance {
    pub account_id: AccountId,
    pub invite: InviteId,
    /// The expected status and the new one.
    pub status: (InviteStatus, InviteStatus),
    /// The user who joins.
    pub user: UserId,
    pub role: Role,
    /// Outbox events that commit with the acceptance.
    pub events: Vec<Event>,
}

/// Invites. The lookup by token sees all tenants, through a directory table, because the token determines the tenant.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait InviteStore: Send + Sync {
    /// Returns the invites, newest first.
    async fn invites(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Invite>, StoreError>;

    async fn invite(&self, account: AccountId, id: InviteId) -> Result<Option<Invite>, StoreError>;

    /// Reads the facts for a new invite by `actor`.
    async fn facts(&self, account: AccountId, actor: UserId) -> Result<InvitationFacts, StoreError>;

    /// Inserts an invite, its token's hash and its mail, and ends a pending invite to the same address (compared
    /// case-insensitively), all in one transaction.
    ///
    /// Returns `Full`, and writes nothing, if `at_most` other invites are pending and have not expired. Leaves out the
    /// mail if [`may_be_mailed`](crate::mail::may_be_mailed) forbids it. MUST be exact for concurrent calls.
    async fn insert(&self, insert: &InviteInsert, at_most: i64) -> Result<InviteOutcome, StoreError>;

    /// Changes the status of an invite from `from` to `to` and invalidates its token.
    async fn set_status(
        &self,
        account: AccountId,
        id: InviteId,
        from: InviteStatus,
        to: InviteStatus,
    ) -> Result<WriteOutcome<InviteStatus>, StoreError>;

    /// Finds the invite with this token, and whether `user` already is a member.
    async fn presented(&self, token_hash: &[u8], user: UserId) -> Result<Option<PresentedInvite>, StoreError>;

    /// Changes the status of an invite that has expired by the database's clock. `Stale`: it has not expired or
    /// no longer has the status `from`.
    async fn expire(
        &self,
        account: AccountId,
        id: InviteId,
        from: InviteStatus,
        to: InviteStatus,
    ) -> Result<GuardOutcome, StoreError>;

    /// Inserts the membership, changes the invite's status and appends the events, in one transaction. Requires that
    /// the invite has the expected status and has not expired by the database's clock, and that the user is no member.
    /// Of concurrent calls at most one returns `Done`.
    async fn accept(&self, acceptance: &Acceptance) -> Result<GuardOutcome, StoreError>;
}
