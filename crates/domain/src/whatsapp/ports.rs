//! Ports of WhatsApp: the store of numbers, and the gateway.

use async_trait::async_trait;
use serde_json::Value;
use time::Duration;

use super::{StoredProfile, WhatsappCredentials};
use crate::media::{MediaFile, MediaPath};
use crate::messaging::SendOutcome;
use crate::shared::{
    AccountId, CursorPage, CursorQuery, Event, GatewayError, MessageId, ProfileId, SendId, StoreError, UpdateOutcome,
    redacted_debug,
};
use crate::templates::{ButtonValue, HeaderType, TemplateSubmission, TextParameter};

/// Connected numbers. Every method MUST see only the rows of the given account.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ProfileStore: Send + Sync {
    /// Newest first, by id. The cursor is the last item's id.
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<StoredProfile>, StoreError>;

    async fn find(&self, account: AccountId, id: ProfileId) -> Result<Option<StoredProfile>, StoreError>;

    /// The account's default number: of the verified numbers the one that was connected first, or without any verified
    /// number the first of all.
    async fn default_profile(&self, account: AccountId) -> Result<Option<StoredProfile>, StoreError>;

    /// Inserts the number, and an entry in the directory by which callbacks find the account, together with the
    /// events. `Duplicate { field: "phone_number_id" }` if the account already has that number.
    async fn insert(&self, account: AccountId, profile: &StoredProfile, events: &[Event]) -> Result<(), StoreError>;

    /// Replaces every field if the stored version equals the version of `profile`, and adds new ids to the directory,
    /// together with the events. The verification and the number's values are replaced only if the credentials version
    /// of `profile` is greater than the stored one; a check with the earlier credentials then records nothing. Fails
    /// like `insert`.
    async fn update(
        &self,
        account: AccountId,
        profile: &StoredProfile,
        events: &[Event],
    ) -> Result<UpdateOutcome<()>, StoreError>;

    /// Returns false if the profile does not exist; then no event is stored. The directory entry stays; readers skip
    /// it.
    async fn delete(&self, account: AccountId, id: ProfileId, events: &[Event]) -> Result<bool, StoreError>;
}

/// One template message to one contact.
#[derive(Clone, PartialEq)]
pub struct OutboundTemplate {
    /// Recado's id of the send. Every status update echoes it.
    pub send_id: SendId,
    /// E.164.
    pub to: String,
    pub template: String,
    pub language: String,
    /// The values of a text header, in order.
    pub header: Vec<TextParameter>,
    /// The file of a media header.
    pub header_file: Option<OutboundFile>,
    /// The body's values, in order.
    pub body: Vec<TextParameter>,
    /// The values of the buttons that have a placeholder.
    pub buttons: Vec<ButtonValue>,
    pub cards: Vec<OutboundCard>,
}

redacted_debug!(OutboundTemplate {
    send_id,
    template,
    language
});

/// The recipient of a message.
#[derive(Clone, PartialEq, Eq)]
pub enum Addressee {
    /// A number, E.164.
    Phone(String),
    /// WhatsApp's user id of a contact who hides the phone number.
    User(String),
}

redacted_debug!(
    enum Addressee {
        Phone,
        User,
    }
);

/// One free-form text to one contact. WhatsApp accepts it within 24 hours of the contact's last message.
#[derive(Clone, PartialEq, Eq)]
pub struct OutboundText {
    /// Recado's id of the message. Every status update echoes it.
    pub message_id: MessageId,
    pub to: Addressee,
    /// 1 to 4096 characters.
    pub text: String,
}

redacted_debug!(OutboundText { message_id });

/// A file in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundFile {
    pub kind: HeaderType,
    pub source: FileSource,
}

/// Where WhatsApp gets a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileSource {
    /// WhatsApp's media id of a file that was uploaded.
    Id(String),
    /// A URL that WhatsApp fetches.
    Link(String),
}

/// A card of a carousel message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundCard {
    /// The header.
    pub file: OutboundFile,
    /// The body's values, in order.
    pub body: Vec<TextParameter>,
    /// The values of the buttons.
    pub buttons: Vec<ButtonValue>,
}

/// WhatsApp's media ids of the files that were uploaded for a number.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait FileIdStore: Send + Sync {
    /// The stored id of a file, or none if it does not exist or has expired.
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

/// The WhatsApp API. Every call has a timeout. The adapter does not retry, with one exception: an interrupted upload
/// resumes once where it stopped.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait WhatsappGateway: Send + Sync {
    /// Sends one template message. Every result is an outcome, by WhatsApp's error classes. A request that may have
    /// reached WhatsApp and has no clear response is `Unknown`: it MUST NOT be repeated.
    async fn send_template(&self, credentials: &WhatsappCredentials, message: &OutboundTemplate) -> SendOutcome;

    /// Sends one text. Every result is an outcome, as in `send_template`.
    async fn send_text(&self, credentials: &WhatsappCredentials, message: &OutboundText) -> SendOutcome;

    /// Submits a template, or replaces the content of the template `meta_template_id`.
    async fn submit_template<'a>(
        &self,
        credentials: &WhatsappCredentials,
        submission: &TemplateSubmission,
        meta_template_id: Option<&'a str>,
    ) -> Result<SubmittedTemplate, GatewayError>;

    /// Uploads a file as the example of a template's header. Returns its handle. The file is streamed, never held in
    /// memory as a whole.
    async fn upload_header(&self, credentials: &WhatsappCredentials, file: &MediaFile) -> Result<String, GatewayError>;

    /// Uploads a file for the messages of a number. Returns its media id, which is valid for 30 days.
    async fn upload_file(&self, credentials: &WhatsappCredentials, file: &MediaFile) -> Result<String, GatewayError>;

    /// A page of at most 100 templates of the number's business account. `after` is `next` of the previous page.
    async fn list_templates<'a>(
        &self,
        credentials: &WhatsappCredentials,
        after: Option<&'a str>,
    ) -> Result<RemotePage, GatewayError>;
}

/// A page of WhatsApp's templates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemotePage {
    pub templates: Vec<RemoteTemplate>,
    /// The cursor of the next page. None on the last page.
    pub next: Option<String>,
}

/// A template as WhatsApp returns it, with WhatsApp's values.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteTemplate {
    /// WhatsApp's id of the template.
    pub meta_template_id: String,
    pub name: String,
    pub language: String,
    /// For example `MARKETING`.
    pub category: String,
    /// For example `APPROVED`.
    pub status: String,
    /// The reason of a rejection. `NONE` if the template was not rejected.
    pub rejected_reason: Option<String>,
    /// For example `GREEN`.
    pub quality_score: Option<String>,
    /// `NAMED` or `POSITIONAL`. None if WhatsApp does not return it.
    pub parameter_format: Option<String>,
    /// The content in WhatsApp's format.
    pub components: Vec<Value>,
}

/// WhatsApp's response to a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmittedTemplate {
    /// WhatsApp's id of the template.
    pub meta_template_id: String,
    /// WhatsApp's status, for example `PENDING`.
    pub status: String,
    /// The category that WhatsApp assigned.
    pub category: String,
}
