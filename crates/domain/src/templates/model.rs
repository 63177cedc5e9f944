//! Templates, as stored and published.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use time::OffsetDateTime;

use super::MetaStatus;
use crate::media::{MediaStoreError, MediaType};
use crate::shared::schema::Timestamp;
use crate::shared::{
    AccountId, Conflict, FieldErrors, FolderId, GatewayError, ProfileId, StoreError, TemplateId, string_enum, timestamp,
};

string_enum! {
    /// What a template is for; the platform prices and limits by it.
    Category {
        /// Offers.
        Marketing = "MARKETING",
        /// About something the person ordered or asked.
        Utility = "UTILITY",
        /// One-time codes.
        Authentication = "AUTHENTICATION",
    }
}

string_enum! {
    /// One message, or one with a row of cards.
    TemplateType {
        /// One message.
        Standard = "standard",
        /// With 2 to 10 cards.
        Carousel = "carousel",
    }
}

string_enum! {
    /// What stands above the body.
    HeaderType {
        /// Nothing.
        None = "none",
        /// A line of text.
        Text = "text",
        /// A picture.
        Image = "image",
        /// A film.
        Video = "video",
        /// A file.
        Document = "document",
    }
}

string_enum! {
    /// How the placeholders of header and body are written.
    ParameterFormat {
        /// `{{1}}`, `{{2}}`, ...
        Positional = "positional",
        /// `{{first_name}}`: names of lowercase letters, digits and underscores.
        Named = "named",
    }
}

impl HeaderType {
    /// Whether WhatsApp accepts a file of this type as this header. It accepts WebP for none.
    pub fn accepts(self, kind: MediaType) -> bool {
        match self {
            Self::None | Self::Text => false,
            Self::Image => matches!(kind, MediaType::Jpeg | MediaType::Png),
            Self::Video => kind == MediaType::Mp4,
            Self::Document => kind == MediaType::Pdf,
        }
    }

    /// Whether it is a file.
    pub fn is_file(self) -> bool {
        matches!(self, Self::Image | Self::Video | Self::Document)
    }
}

/// A change of category that WhatsApp has announced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CategoryChange {
    /// The category that the template will have.
    pub to: Category,
    /// When WhatsApp will change it.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub at: OffsetDateTime,
}

/// A message template: the only form in which a business may begin a conversation on WhatsApp.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Template {
    /// The template's id.
    pub id: TemplateId,
    /// The account that it belongs to.
    pub account_id: AccountId,
    /// Its name: 1 to 512 lowercase letters, digits and underscores, unique in the account together with `language`.
    #[schemars(example = &"volta_as_aulas")]
    pub name: String,
    /// What it is for; WhatsApp prices and limits by it.
    pub category: Category,
    /// The change of `category` that WhatsApp has announced; null while none is coming.
    pub category_change: Option<CategoryChange>,
    /// The language of its texts, for example `pt_BR` or `pt`.
    #[schemars(example = &"pt_BR")]
    pub language: String,
    /// One message, or one with a row of cards.
    pub template_type: TemplateType,
    /// How the placeholders of header and body are written.
    pub parameter_format: ParameterFormat,
    /// What stands above the body.
    pub header_type: HeaderType,
    /// The header's text, at most 60 characters, with at most one placeholder; null for a header that is no text.
    #[schemars(example = "Volta às aulas")]
    pub header_text: Option<String>,
    /// Where the header's picture, film or document is; null for a header that is no file.
    #[schemars(
        example = "https://api.recado.example/media/0190a1b2-c3d4-7e5f-8a9b-000000000001/0190a1b2-c3d4-7e5f-8a9b-000000000002.png"
    )]
    pub header_media_url: Option<String>,
    /// The message, at most 1024 characters, with `{{1}}`, `{{2}}`, ... (or `{{first_name}}`, in a template of named
    /// placeholders) where the values of a contact go; null while none is written.
    #[schemars(example = "Oi {{1}}, use o cupom {{2}} esta semana.")]
    pub body_text: Option<String>,
    /// What stands below the body, at most 60 characters, without placeholders; null for nothing.
    #[schemars(example = "Responda SAIR para não receber mais")]
    pub footer_text: Option<String>,
    /// At most 10 buttons, in WhatsApp's own form.
    #[schemars(example = serde_json::json!([{ "type": "URL", "text": "Comprar", "url": "https://loja.example/{{1}}", "example": ["bolo"] }]))]
    pub buttons: Vec<Value>,
    /// One example of each placeholder of the texts (`example_values` of the input): in the order of their numbers, or of
    /// the first appearance of their names, the header's first.
    #[schemars(example = ["Ana", "VOLTA10"])]
    pub variables: Vec<String>,
    /// 2 to 10 cards of a carousel, in WhatsApp's own form; empty for a standard template.
    #[schemars(example = serde_json::json!([]))]
    pub carousel_cards: Vec<Value>,
    /// The folder that it lies in; null for none.
    pub folder_id: Option<FolderId>,
    /// The WhatsApp number whose business account it was submitted to; null before.
    pub profile_id: Option<ProfileId>,
    /// WhatsApp's id of the template; null before it was submitted.
    #[schemars(example = "1795233629837000")]
    pub meta_template_id: Option<String>,
    /// WhatsApp's review of it.
    pub meta_status: MetaStatus,
    /// Why WhatsApp refused it; null when it did not.
    #[schemars(example = serde_json::Value::Null)]
    pub rejection_reason: Option<String>,
    /// How WhatsApp rates it by what people make of it: `GREEN`, `YELLOW`, `RED` or `UNKNOWN`; null before it said.
    #[schemars(example = &"GREEN")]
    pub quality_score: Option<String>,
    /// The parts of a synchronised template that this server cannot fill and did not store, in the words of the published
    /// `reasons`.
    #[serde(skip)]
    pub unsupported: Vec<String>,
    /// When the template was created.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
    /// When the template was last changed.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub updated_at: OffsetDateTime,
    /// Raised by every change; internal.
    #[serde(skip)]
    pub version: i64,
}

/// What a caller wrote, unchecked but for types. An absent field keeps its value on update; an inner none clears.
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
    pub buttons: Option<Option<Vec<Value>>>,
    pub example_values: Option<Option<Vec<String>>>,
    pub carousel_cards: Option<Option<Vec<Value>>>,
    pub folder_id: Option<Option<FolderId>>,
}

string_enum! {
    /// What a list of templates is ordered by.
    TemplateSort {
        /// When it was made.
        CreatedAt = "created_at",
        /// When it last changed.
        UpdatedAt = "updated_at",
        /// Its name.
        Name = "name",
    }
}

/// Which templates a list holds, and in which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateFilter {
    /// Part of the name or body, without regard to case.
    pub search: Option<String>,
    /// Of this category.
    pub category: Option<Category>,
    /// With this review.
    pub meta_status: Option<MetaStatus>,
    /// In this folder.
    pub folder_id: Option<FolderId>,
    /// Ordered by this, then by id.
    pub sort: TemplateSort,
    /// Largest first.
    pub descending: bool,
}

/// Why a template operation did not happen.
#[derive(Debug, Error)]
pub enum TemplateError {
    /// No such template in the account.
    #[error("not found")]
    NotFound,
    /// The input is wrong, or the template's state does not allow it.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// WhatsApp rejected the call or could not be reached.
    #[error("the call to WhatsApp failed")]
    Gateway(#[source] GatewayError),
    /// The files of the headers could not be read.
    #[error(transparent)]
    Media(#[from] MediaStoreError),
    /// It was changed while the platform took its former content.
    #[error("The template was changed while it was submitted; submit it again")]
    ChangedDuringSubmission,
    /// Concurrent changes of the template won every attempt.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for TemplateError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
