//! The port to WhatsApp's API for messages and templates.

use async_trait::async_trait;
use secrecy::SecretString;

use super::{Component, MetaStatus, OutboundMessage, OutboundTemplate, SendOutcome, TemplateSubmission, UploadFile};
use crate::media::MediaFile;
use crate::shared::{AccountId, GatewayError, ProfileId};

/// The WhatsApp API. Every call has a timeout. The adapter does not retry, with one exception: an interrupted upload
/// resumes once where it stopped.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait WhatsappGateway: Send + Sync {
    /// Sends one template message. Every result is an outcome, by WhatsApp's error classes. A request that may have
    /// reached WhatsApp and has no clear response is `Unknown`: it MUST NOT be repeated.
    async fn send_template(&self, credentials: &WhatsappCredentials, message: &OutboundTemplate) -> SendOutcome;

    /// Sends one free-form message. Every result is an outcome, as in `send_template`.
    async fn send_message(&self, credentials: &WhatsappCredentials, message: &OutboundMessage) -> SendOutcome;

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
    async fn upload_file(&self, credentials: &WhatsappCredentials, file: &UploadFile) -> Result<String, GatewayError>;

    /// A page of at most 100 templates of the number's business account. `after` is `next` of the previous page.
    async fn list_templates<'a>(
        &self,
        credentials: &WhatsappCredentials,
        after: Option<&'a str>,
    ) -> Result<RemotePage, GatewayError>;
}

/// The credentials of a call to WhatsApp.
#[derive(Clone, Debug)]
pub struct WhatsappCredentials {
    /// The profile of which the number and the token are.
    pub profile: ProfileKey,
    /// WhatsApp's id of the number.
    pub phone_number_id: String,
    /// WhatsApp's id of the business account.
    pub waba_id: String,
    /// The decrypted access token. It exists only in memory.
    pub token: SecretString,
}

/// A profile of any account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileKey {
    pub account_id: AccountId,
    pub profile_id: ProfileId,
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
    /// The category that WhatsApp considers right, if it is another one.
    pub correct_category: Option<String>,
    /// None: a status that changes nothing here, or that WhatsApp has added.
    pub status: Option<MetaStatus>,
    /// The reason of a rejection. `NONE` if the template was not rejected.
    pub rejected_reason: Option<String>,
    /// For example `GREEN`.
    pub quality_score: Option<String>,
    /// `NAMED` or `POSITIONAL`. None if WhatsApp does not return it.
    pub parameter_format: Option<String>,
    /// How long WhatsApp tries to deliver a message. None if WhatsApp does not return it.
    pub message_send_ttl_seconds: Option<i64>,
    pub components: Vec<Component>,
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
