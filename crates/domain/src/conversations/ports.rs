//! Ports of conversations. Every method MUST see only the rows of the given account, and no conversations of deleted
//! contacts.

use async_trait::async_trait;
use time::Duration;

use super::{
    Conversation, ConversationQuery, ConversationStatus, InboundItem, Message, MessageContext, ReplyFacts, ReplyResult,
};
use crate::direct_messages::RequestedContent;
use crate::messaging::AddressKind;
use crate::shared::{
    AccountId, ConversationId, CursorPage, CursorQuery, MessageId, ProfileId, StoreError, TemplateId, TimeCursor,
};
use time::OffsetDateTime;

/// A reply that is not stored yet.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplyDraft {
    pub id: MessageId,
    pub conversation_id: ConversationId,
    /// The number that sends it.
    pub profile_id: ProfileId,
    pub content: RequestedContent,
    /// The template of the message.
    pub template_id: Option<TemplateId>,
    /// The readable text: of a template, with the message's values.
    pub text: Option<String>,
    pub context: Option<MessageContext>,
    /// The kind of address that it leaves to.
    pub address: AddressKind,
    pub created_at: OffsetDateTime,
    /// The most messages of `created_at`'s month. None: the reply is sent whatever the quota.
    pub monthly_limit: Option<i64>,
}

/// How the insert of a reply ended. Unless it is `Stored`, nothing was written.
#[derive(Clone, Debug, PartialEq)]
pub enum BegunReply {
    Stored(Box<Message>),
    /// The conversation does not exist any more.
    Missing,
    /// The month has no message left for the reply.
    QuotaExceeded,
}

/// How the storing of a contact request ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ContactRequestOutcome {
    Stored(Box<Message>),
    /// A request to the contact is not older than `REQUEST_INTERVAL`.
    AskedAlready,
    /// The conversation does not exist.
    Missing,
}

/// Conversations and their messages.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ConversationStore: Send + Sync {
    /// Latest message first, then by id. The cursor is opaque; a cursor of another list is `UnknownReference { field:
    /// "cursor" }`.
    async fn list(&self, account: AccountId, query: &ConversationQuery)
    -> Result<CursorPage<Conversation>, StoreError>;

    /// The messages of a conversation, newest first by the time they were written, then by id. None if the
    /// conversation does not exist. The cursor follows the rules of `list`.
    async fn messages(
        &self,
        account: AccountId,
        id: ConversationId,
        query: &CursorQuery<TimeCursor>,
    ) -> Result<Option<CursorPage<Message>>, StoreError>;

    /// Sets the status and returns the changed conversation, or none if it does not exist.
    async fn set_status(
        &self,
        account: AccountId,
        id: ConversationId,
        status: ConversationStatus,
    ) -> Result<Option<Conversation>, StoreError>;

    /// Reads what decides whether a reply may be sent. None if the conversation does not exist. `quoted` is the message
    /// of the conversation that the reply quotes.
    async fn reply_facts(
        &self,
        account: AccountId,
        id: ConversationId,
        quoted: Option<MessageId>,
    ) -> Result<Option<ReplyFacts>, StoreError>;

    /// Stores a pending reply, and applies it to its conversation (`transition`), in one transaction. An upload that it
    /// uses is kept for `KEPT_FOR` from now on. With `monthly_limit` it reserves one message of the month, which MUST be
    /// released when the message is pending no more (`Message::reserved_month`). The gateway MUST be called only after
    /// this commit.
    async fn begin_reply(&self, account: AccountId, reply: &ReplyDraft) -> Result<BegunReply, StoreError>;

    /// Stores a pending contact request by the rules of `begin_reply`, unless one that has not failed was written within
    /// `REQUEST_INTERVAL` before it. Of two concurrent requests MUST store one.
    async fn begin_contact_request(
        &self,
        account: AccountId,
        request: &ReplyDraft,
    ) -> Result<ContactRequestOutcome, StoreError>;

    /// The language of most of the account's templates; of several, the one of the newest template.
    async fn template_language(&self, account: AccountId) -> Result<Option<String>, StoreError>;

    /// Records the outcome of the call by `MessageStatus::advance`, because a status update may have arrived first.
    /// Stores the contact's WhatsApp id. Returns the message after the write, or none if it no longer exists.
    async fn record_reply(
        &self,
        account: AccountId,
        id: MessageId,
        result: &ReplyResult,
    ) -> Result<Option<Message>, StoreError>;

    /// Fails at most `limit` replies, of all accounts, that have been pending for longer than `ttl`, with an error
    /// message that says so. Returns how many.
    async fn fail_unknown(&self, ttl: Duration, limit: i64) -> Result<u64, StoreError>;
}

/// How an account received inbound events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveOutcome {
    Received,
    /// All were received, but a message that its author revoked or edited is not stored. It may come later.
    ReceivedEarly,
    /// The account's profile with the number is not verified. Nothing was changed.
    NotVerified,
    /// The account has no profile with the number. Nothing was changed.
    NoNumber,
}

impl ReceiveOutcome {
    pub fn is_received(self) -> bool {
        matches!(self, Self::Received | Self::ReceivedEarly)
    }
}

/// Counts what inbound events show about contacts.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait IdentityReport: Send + Sync {
    /// So many contacts turned out to be the same person as another one and were not joined, or sent a contact card with
    /// the number of another contact.
    fn same_persons(&self, count: usize);
}

/// Applies inbound events.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait InboxStore: Send + Sync {
    /// Applies the inbound events of one of the account's numbers in their order, by `Inbox::apply`, in one
    /// transaction and a bounded number of statements. Only a verified profile receives them. MUST be idempotent, also
    /// under concurrency.
    async fn receive(
        &self,
        account: AccountId,
        phone_number_id: &str,
        items: &[InboundItem],
    ) -> Result<ReceiveOutcome, StoreError>;
}
