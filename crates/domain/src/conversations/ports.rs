//! What conversations need from the store. Every method sees the one account alone; conversations of deleted contacts
//! are not there.

use async_trait::async_trait;
use time::Duration;

use super::{Conversation, ConversationQuery, ConversationStatus, InboundItem, Message, ReplyFacts, ReplyResult};
use crate::shared::{AccountId, ConversationId, CursorPage, CursorQuery, MessageId, ProfileId, StoreError, TimeCursor};

/// Conversations and their messages.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ConversationStore: Send + Sync {
    /// The one with the latest message first (then by id). The cursor is opaque; one of no such list is `Dangling {
    /// field: "cursor" }`.
    async fn list(&self, account: AccountId, query: &ConversationQuery)
    -> Result<CursorPage<Conversation>, StoreError>;

    /// Messages of a conversation, newest first by when they were written (then by id). None when there is no such
    /// conversation. The cursor as in `list`.
    async fn messages(
        &self,
        account: AccountId,
        id: ConversationId,
        query: &CursorQuery<TimeCursor>,
    ) -> Result<Option<CursorPage<Message>>, StoreError>;

    /// Sets the status; the conversation then, none when there is no such one.
    async fn set_status(
        &self,
        account: AccountId,
        id: ConversationId,
        status: ConversationStatus,
    ) -> Result<Option<Conversation>, StoreError>;

    /// Everything that decides whether a reply may leave; none when there is no such conversation.
    async fn reply_facts(&self, account: AccountId, id: ConversationId) -> Result<Option<ReplyFacts>, StoreError>;

    /// Writes a pending reply that leaves from this number, and what it means for its conversation (`transition`), in
    /// one transaction; false when the conversation is gone. Only after this may the platform be called.
    async fn begin_reply(&self, account: AccountId, reply: &Message, profile: ProfileId) -> Result<bool, StoreError>;

    /// Writes what the call came to, by `MessageStatus::advance`: news may have been faster. Learns the contact's id
    /// with the platform. The message as it stands then; none when it is gone.
    async fn record_reply(
        &self,
        account: AccountId,
        id: MessageId,
        result: &ReplyResult,
    ) -> Result<Option<Message>, StoreError>;

    /// Fails replies that have been pending for longer than `ttl`, across accounts, with a message that says so; at
    /// most `limit` of them. Returns how many.
    async fn fail_unknown(&self, ttl: Duration, limit: i64) -> Result<u64, StoreError>;
}

/// Takes in what senders do.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait InboxStore: Send + Sync {
    /// Applies news that came to one of the account's numbers, in its order, by `Inbox::take_in`, in one transaction
    /// and a bounded number of statements. A number that is the account's no more changes nothing. Applying twice, or
    /// twice at once, is applying once.
    async fn receive(&self, account: AccountId, phone_number_id: &str, items: &[InboundItem])
    -> Result<(), StoreError>;
}
