//! What WhatsApp needs from the outside: the store of numbers and callbacks, and the platform itself.

use async_trait::async_trait;
use time::Duration;

use super::{DeliveryNews, Line, StoredProfile};
use crate::campaigns::SendOutcome;
use crate::shared::{AccountId, CallbackId, GatewayError, MessageId, ProfileId, SendId, Slice, SliceQuery, StoreError};
use crate::templates::TemplateSubmission;

/// Connected numbers. Every method sees the one account alone.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ProfileStore: Send + Sync {
    /// Newest first (by id); the cursor is the last item's id.
    async fn list(&self, account: AccountId, query: &SliceQuery) -> Result<Slice<StoredProfile>, StoreError>;

    /// One number.
    async fn find(&self, account: AccountId, id: ProfileId) -> Result<Option<StoredProfile>, StoreError>;

    /// The account's default number: the one connected first.
    async fn default_profile(&self, account: AccountId) -> Result<Option<StoredProfile>, StoreError>;

    /// Inserts, and enters the directory by which callbacks find the account, in one transaction. `Taken { field:
    /// "phone_number_id" }` when the account has that number already.
    async fn insert(&self, account: AccountId, profile: &StoredProfile) -> Result<(), StoreError>;

    /// Replaces every field, here and in the directory; false when there is no such profile. Fails as `insert`.
    async fn update(&self, account: AccountId, profile: &StoredProfile) -> Result<bool, StoreError>;

    /// Deletes, here and in the directory; false when there is no such profile.
    async fn delete(&self, account: AccountId, id: ProfileId) -> Result<bool, StoreError>;
}

/// Callbacks as received, kept until they were processed, and the directory from the platform's ids to accounts.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait CallbackStore: Send + Sync {
    /// Stores a callback, leased to the caller.
    async fn store(&self, id: CallbackId, body: &[u8], lease: Duration) -> Result<(), StoreError>;

    /// Leases the oldest callback that is due: not leased by anyone, and past its retry time. None when nothing is.
    async fn claim(&self, lease: Duration) -> Result<Option<StoredCallback>, StoreError>;

    /// Forgets a callback that was processed or is hopeless.
    async fn forget(&self, id: CallbackId) -> Result<(), StoreError>;

    /// Gives a callback back, due again after `delay`; its attempts are counted up.
    async fn defer(&self, id: CallbackId, delay: Duration) -> Result<(), StoreError>;

    /// The accounts that have connected this number; few, usually one.
    async fn accounts_of_number(&self, phone_number_id: &str) -> Result<Vec<AccountId>, StoreError>;

    /// The accounts that have connected a number of this business account; few, usually one.
    async fn accounts_of_business(&self, waba_id: &str) -> Result<Vec<AccountId>, StoreError>;
}

/// A callback waiting to be processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCallback {
    /// Its id.
    pub id: CallbackId,
    /// The body, as it was signed.
    pub body: Vec<u8>,
    /// How often it was tried before.
    pub attempts: u32,
}

/// Applies delivery news to campaign sends and to replies.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait DeliveryStore: Send + Sync {
    /// Applies the news to the account's sends and replies (found by our id, else by the platform's message id), in one
    /// transaction with the counters, each by `SendStatus::advance`, and each send at most once forward. Learns
    /// `wa_message_id` where it was missing; a contact who stopped marketing (`STOPPED_MARKETING`) is opted out.
    /// Returns the positions in `news` of those whose subject the account has not.
    async fn apply(&self, account: AccountId, news: &[DeliveryNews]) -> Result<Vec<usize>, StoreError>;
}

/// One template message to one person.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboundTemplate {
    /// Our id of the send; comes back in every status callback.
    pub send_id: SendId,
    /// E.164.
    pub to: String,
    /// The template's name.
    pub template: String,
    /// The template's language.
    pub language: String,
    /// The header's values, in order.
    pub header: Vec<String>,
    /// The body's values, in order.
    pub body: Vec<String>,
    /// Button position and value, for buttons whose URL ends in a placeholder.
    pub buttons: Vec<(usize, String)>,
}

/// Whom a message is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addressee {
    /// A number, E.164.
    Phone(String),
    /// The platform's user id of somebody who hides their number.
    User(String),
}

/// One text to one person, free in form: the platform takes it within 24 hours of the person's last message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundText {
    /// Our id of the message; comes back in every status callback.
    pub message_id: MessageId,
    /// To whom.
    pub to: Addressee,
    /// 1 to 4096 characters.
    pub text: String,
}

/// The messaging platform. Every call has a time-out; none is repeated by the adapter.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait WhatsappGateway: Send + Sync {
    /// Sends one template message. Every way this can end is an outcome, by the error classes of the platform:
    /// a request that may have reached it and was not clearly answered is `Unknown`, never an error to retry.
    async fn send_template(&self, line: &Line, message: &OutboundTemplate) -> SendOutcome;

    /// Sends one text. Every way this can end is an outcome, as of `send_template`.
    async fn send_text(&self, line: &Line, message: &OutboundText) -> SendOutcome;

    /// Submits a template, or replaces the content of the one known by `meta_template_id`.
    async fn submit_template<'a>(
        &self,
        line: &Line,
        submission: &TemplateSubmission,
        meta_template_id: Option<&'a str>,
    ) -> Result<SubmittedTemplate, GatewayError>;
}

/// The platform's answer to a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmittedTemplate {
    /// The platform's id of the template.
    pub meta_template_id: String,
    /// The platform's word for its state, for example `PENDING`.
    pub status: String,
    /// The category the platform put it into.
    pub category: String,
}
