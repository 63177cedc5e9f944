//! What WhatsApp needs from the outside: the store of numbers and callbacks, and the platform itself.

use async_trait::async_trait;
use serde_json::Value;
use time::Duration;

use super::{StatusUpdate, StoredProfile, Unread, WhatsappCredentials};
use crate::campaigns::SendOutcome;
use crate::media::{MediaFile, MediaPath};
use crate::shared::{
    AccountId, CallbackId, CursorPage, CursorQuery, GatewayError, MessageId, ProfileId, SendId, StoreError,
    UpdateOutcome, redacted_debug,
};
use crate::templates::{ButtonValue, HeaderType, TemplateSubmission, TextParameter};

/// Connected numbers. Every method sees the one account alone.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ProfileStore: Send + Sync {
    /// Newest first (by id); the cursor is the last item's id.
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<StoredProfile>, StoreError>;

    /// One number.
    async fn find(&self, account: AccountId, id: ProfileId) -> Result<Option<StoredProfile>, StoreError>;

    /// The account's default number: the one connected first.
    async fn default_profile(&self, account: AccountId) -> Result<Option<StoredProfile>, StoreError>;

    /// Inserts, and enters the directory by which callbacks find the account, in one transaction. `Duplicate { field:
    /// "phone_number_id" }` when the account has that number already.
    async fn insert(&self, account: AccountId, profile: &StoredProfile) -> Result<(), StoreError>;

    /// Replaces every field, provided that the stored profile still has the version of `profile`, and enters new ids into
    /// the directory. Fails as `insert`.
    async fn update(&self, account: AccountId, profile: &StoredProfile) -> Result<UpdateOutcome<()>, StoreError>;

    /// Deletes; false when there is no such profile. The directory keeps its entry, which is skipped when it is read.
    async fn delete(&self, account: AccountId, id: ProfileId) -> Result<bool, StoreError>;
}

/// Callbacks as received, kept until they were processed, and the directory from the platform's ids to accounts.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait CallbackStore: Send + Sync {
    /// Stores a callback, claimed by the caller.
    async fn store(&self, id: CallbackId, body: &[u8], lease: Duration) -> Result<(), StoreError>;

    /// Leases the oldest callback that is due: not leased by anyone, and past its retry time. None when nothing is. Counts
    /// the claim, so that a callback which stops every worker that takes it is known by its number of claims.
    async fn claim(&self, lease: Duration) -> Result<Option<StoredCallback>, StoreError>;

    /// Deletes a callback that was processed, or that will never match.
    async fn delete(&self, id: CallbackId) -> Result<(), StoreError>;

    /// Gives a callback that was applied as far as it can be back, due again after `delay`: `attempts` grows by one, and
    /// `claims` begins anew.
    async fn defer(&self, id: CallbackId, delay: Duration) -> Result<(), StoreError>;

    /// Gives a callback that could not be applied back, due again after `delay`.
    async fn postpone(&self, id: CallbackId, delay: Duration) -> Result<(), StoreError>;

    /// Keeps a callback without having it claimed any more, until an operator makes it due.
    async fn set_aside(&self, id: CallbackId) -> Result<(), StoreError>;

    /// The accounts that have connected this number; few, usually one.
    async fn accounts_of_number(&self, phone_number_id: &str) -> Result<Vec<AccountId>, StoreError>;

    /// The accounts that have connected this number, or had: what was sent from it is still theirs.
    async fn accounts_that_had_number(&self, phone_number_id: &str) -> Result<Vec<AccountId>, StoreError>;

    /// The accounts that have connected a number of this business account; few, usually one.
    async fn accounts_of_business(&self, waba_id: &str) -> Result<Vec<AccountId>, StoreError>;
}

/// A callback waiting to be processed.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredCallback {
    /// Its id.
    pub id: CallbackId,
    /// The body, as it was signed.
    pub body: Vec<u8>,
    /// How often it was applied before, and had to wait for what it is about.
    pub attempts: u32,
    /// How often it was claimed since, without being applied.
    pub claims: u32,
}

redacted_debug!(StoredCallback { id, attempts, claims });

/// Counts and logs what callbacks hold that is not applied. An implementation MUST NOT block, and MUST NOT log bodies.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait CallbackReport: Send + Sync {
    /// A callback holds what nothing here reads.
    fn unread(&self, unread: &Unread);

    /// A signed callback is none.
    fn unreadable(&self, id: CallbackId);

    /// A callback could not be applied for the last time, by this error.
    fn set_aside(&self, id: CallbackId, error: &StoreError);
}

/// Applies status updates to campaign sends and to replies.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait StatusUpdateStore: Send + Sync {
    /// Applies the news to the account's sends and replies (found by our id, else by the platform's message id), in one
    /// transaction with the counters, each by `SendStatus::advance`, and each send at most once forward. Learns
    /// `wa_message_id` where it was missing; a contact who stopped marketing (`STOPPED_MARKETING`) is opted out.
    /// Returns the positions in `updates` of those whose subject the account has not.
    async fn apply(&self, account: AccountId, updates: &[StatusUpdate]) -> Result<Vec<usize>, StoreError>;
}

/// One template message to one person.
#[derive(Clone, PartialEq)]
pub struct OutboundTemplate {
    /// Our id of the send; comes back in every status callback.
    pub send_id: SendId,
    /// E.164.
    pub to: String,
    /// The template's name.
    pub template: String,
    /// The template's language.
    pub language: String,
    /// The header's values, in order, where it is text.
    pub header: Vec<TextParameter>,
    /// The header, where it is a file.
    pub header_file: Option<OutboundFile>,
    /// The body's values, in order.
    pub body: Vec<TextParameter>,
    /// The values of the buttons that take one.
    pub buttons: Vec<ButtonValue>,
    /// The cards of a carousel, in order.
    pub cards: Vec<OutboundCard>,
}

redacted_debug!(OutboundTemplate {
    send_id,
    template,
    language
});

/// Whom a message is for.
#[derive(Clone, PartialEq, Eq)]
pub enum Addressee {
    /// A number, E.164.
    Phone(String),
    /// The platform's user id of somebody who hides their number.
    User(String),
}

redacted_debug!(
    enum Addressee {
        Phone,
        User,
    }
);

/// One text to one person, free in form: the platform takes it within 24 hours of the person's last message.
#[derive(Clone, PartialEq, Eq)]
pub struct OutboundText {
    /// Our id of the message; comes back in every status callback.
    pub message_id: MessageId,
    /// To whom.
    pub to: Addressee,
    /// 1 to 4096 characters.
    pub text: String,
}

redacted_debug!(OutboundText { message_id });

/// A file in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundFile {
    /// A picture, a film or a document.
    pub kind: HeaderType,
    /// Where the platform has it from.
    pub source: FileSource,
}

/// Where the platform has a file from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileSource {
    /// From us: its own id of what it was given.
    Id(String),
    /// From an address that it fetches itself.
    Link(String),
}

/// A card in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundCard {
    /// Its header.
    pub file: OutboundFile,
    /// The values of its body, in order.
    pub body: Vec<TextParameter>,
    /// The values of its buttons.
    pub buttons: Vec<ButtonValue>,
}

/// The platform's ids of files that a number was given for its messages.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait FileIdStore: Send + Sync {
    /// The id of a file, as long as it was not kept for too long.
    async fn find(
        &self,
        account: AccountId,
        phone_number_id: &str,
        path: &MediaPath,
    ) -> Result<Option<String>, StoreError>;

    /// Stores an id for `ttl`, and replaces an older one.
    async fn store(
        &self,
        account: AccountId,
        phone_number_id: &str,
        path: &MediaPath,
        id: &str,
        ttl: Duration,
    ) -> Result<(), StoreError>;
}

/// The messaging platform. Every call has a time-out; none is repeated by the adapter, but that an upload that broke
/// goes on once where it stopped.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait WhatsappGateway: Send + Sync {
    /// Sends one template message. Every way this can end is an outcome, by the error classes of the platform:
    /// a request that may have reached it and was not clearly answered is `Unknown`, never an error to retry.
    async fn send_template(&self, credentials: &WhatsappCredentials, message: &OutboundTemplate) -> SendOutcome;

    /// Sends one text. Every way this can end is an outcome, as of `send_template`.
    async fn send_text(&self, credentials: &WhatsappCredentials, message: &OutboundText) -> SendOutcome;

    /// Submits a template, or replaces the content of the one known by `meta_template_id`.
    async fn submit_template<'a>(
        &self,
        credentials: &WhatsappCredentials,
        submission: &TemplateSubmission,
        meta_template_id: Option<&'a str>,
    ) -> Result<SubmittedTemplate, GatewayError>;

    /// Gives the platform a file as an example of a template's header; answers its handle. The file is passed on as it
    /// is read, never held whole.
    async fn upload_header(&self, credentials: &WhatsappCredentials, file: &MediaFile) -> Result<String, GatewayError>;

    /// Gives the platform a file for the messages of a number; answers its id, which is good for 30 days.
    async fn upload_file(&self, credentials: &WhatsappCredentials, file: &MediaFile) -> Result<String, GatewayError>;

    /// A page of the templates of the number's business account, at most 100; `after` is the page before's `next`.
    async fn list_templates<'a>(
        &self,
        credentials: &WhatsappCredentials,
        after: Option<&'a str>,
    ) -> Result<RemotePage, GatewayError>;
}

/// A page of the platform's templates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemotePage {
    /// Its templates.
    pub templates: Vec<RemoteTemplate>,
    /// What to ask for next; none on the last page.
    pub next: Option<String>,
}

/// A template as the platform knows it, in the platform's words.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteTemplate {
    /// The platform's id.
    pub meta_template_id: String,
    /// Its name.
    pub name: String,
    /// Its language.
    pub language: String,
    /// For example `MARKETING`.
    pub category: String,
    /// For example `APPROVED`.
    pub status: String,
    /// Why it was refused; `NONE` when it was not.
    pub rejected_reason: Option<String>,
    /// For example `GREEN`.
    pub quality_score: Option<String>,
    /// `NAMED` or `POSITIONAL`; none where the platform does not say.
    pub parameter_format: Option<String>,
    /// Its content, in the platform's shape.
    pub components: Vec<Value>,
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
