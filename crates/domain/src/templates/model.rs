//! Templates, their input and their errors.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use time::OffsetDateTime;

use crate::media::MediaStoreError;
use crate::messaging::{Button, CarouselCard, Category, HeaderType, LimitedTimeOffer, MetaStatus, ParameterFormat};
use crate::shared::{
    AccountId, Conflict, FieldErrors, FolderId, GatewayError, ProfileId, StoreError, TemplateId, string_enum, timestamp,
};

string_enum! {
    /// The form of a template: one message, or a message with a row of cards.
    TemplateType {
        /// One message without cards.
        Standard = "standard",
        /// A message with 2 to 10 cards.
        Carousel = "carousel",
    }
}

/// A change of category that WhatsApp has scheduled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CategoryChange {
    /// The category that the template will have.
    pub to: Category,
    /// When WhatsApp will change it.
    #[serde(with = "timestamp")]
    pub at: OffsetDateTime,
}

/// A message template, the only kind of message that may open a conversation on WhatsApp.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    pub id: TemplateId,
    pub account_id: AccountId,
    /// The name: 1 to 512 lowercase letters, digits and underscores, unique in the account together with `language`.
    pub name: String,
    pub category: Category,
    /// The change of `category` that WhatsApp has scheduled. Null if none is scheduled.
    pub category_change: Option<CategoryChange>,
    /// The category that WhatsApp considers right. Null if it has not named another one than `category`.
    pub correct_category: Option<Category>,
    /// The language of its texts, for example `pt_BR` or `pt`.
    pub language: String,
    pub template_type: TemplateType,
    pub parameter_format: ParameterFormat,
    pub header_type: HeaderType,
    /// The header's text of at most 60 characters, with at most one placeholder. Null if the header is not a text.
    pub header_text: Option<String>,
    /// The URL of the header's image, video or document. Null if the header is not a file.
    pub header_media_url: Option<String>,
    /// The message of at most 1024 characters. `{{1}}`, `{{2}}`, ... (or `{{first_name}}` if `parameter_format` is
    /// `named`) are replaced by a contact's values. Null while the draft has no body.
    pub body_text: Option<String>,
    pub footer_text: Option<String>,
    pub buttons: Vec<Button>,
    /// The offer above the body. Null if there is none.
    pub limited_time_offer: Option<LimitedTimeOffer>,
    /// How long WhatsApp tries to deliver a message. Null: WhatsApp's default.
    pub message_send_ttl_seconds: Option<i64>,
    /// One example per placeholder (`example_values` of the input): in the order of their numbers, or of the first
    /// appearance of their names. The header comes first.
    pub variables: Vec<String>,
    /// The 2 to 10 cards of a carousel, in WhatsApp's format. Empty for a standard template.
    pub carousel_cards: Vec<CarouselCard>,
    pub folder_id: Option<FolderId>,
    /// The WhatsApp number to whose business account the template was submitted. Null before the first submission.
    pub profile_id: Option<ProfileId>,
    /// WhatsApp's id of the template. Null before the first submission.
    pub meta_template_id: Option<String>,
    pub meta_status: MetaStatus,
    /// WhatsApp's reason for rejecting the template. Null if it is not rejected.
    pub rejection_reason: Option<String>,
    /// What WhatsApp recommends to change in a rejected template. Null if it is not rejected, or WhatsApp named nothing.
    pub rejection_recommendation: Option<String>,
    /// WhatsApp's quality rating, based on how recipients react: `GREEN`, `YELLOW`, `RED` or `UNKNOWN`. Null before
    /// WhatsApp reports one.
    pub quality_score: Option<String>,
    /// The parts of a synchronized template that this server cannot fill and did not store, as values of the published
    /// `reasons`.
    pub unsupported: Vec<String>,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
    /// Every change increments it (optimistic locking). Internal.
    pub version: i64,
}

/// Input of which only the types are checked. On update, an absent field keeps its value and an inner none clears it.
#[derive(Clone, Debug, Default)]
pub struct TemplateInput {
    pub name: Option<String>,
    pub category: Option<String>,
    pub language: Option<String>,
    pub template_type: Option<String>,
    pub parameter_format: Option<String>,
    pub header_type: Option<Option<String>>,
    pub header_text: Option<Option<String>>,
    pub header_media_url: Option<Option<String>>,
    pub body_text: Option<Option<String>>,
    pub footer_text: Option<Option<String>>,
    pub buttons: Option<Option<Vec<Button>>>,
    pub limited_time_offer: Option<Option<LimitedTimeOffer>>,
    pub message_send_ttl_seconds: Option<Option<i64>>,
    pub example_values: Option<Option<Vec<String>>>,
    pub carousel_cards: Option<Option<Vec<CarouselCard>>>,
    pub folder_id: Option<Option<FolderId>>,
}

string_enum! {
    /// The sort field of a list of templates.
    TemplateSort {
        /// The time of creation.
        CreatedAt = "created_at",
        /// The time of the last change.
        UpdatedAt = "updated_at",
        /// The name.
        Name = "name",
    }
}

/// The filter and order of a list of templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateFilter {
    /// A substring of the name or body, case-insensitive.
    pub search: Option<String>,
    pub category: Option<Category>,
    pub meta_status: Option<MetaStatus>,
    pub folder_id: Option<FolderId>,
    /// The sort field. Ties are sorted by id.
    pub sort: TemplateSort,
    pub descending: bool,
}

#[derive(Debug, Error)]
pub enum TemplateError {
    #[error("not found")]
    NotFound,
    /// The input is invalid, or the template's state does not allow the operation.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// WhatsApp rejected the call or could not be reached.
    #[error("the call to WhatsApp failed")]
    Gateway(#[source] GatewayError),
    /// The files of the headers could not be read.
    #[error(transparent)]
    Media(#[from] MediaStoreError),
    /// The template was changed while its earlier content was submitted.
    #[error("The template was changed while it was submitted; submit it again")]
    ChangedDuringSubmission,
    /// Concurrent changes of the template won every attempt.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for TemplateError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
