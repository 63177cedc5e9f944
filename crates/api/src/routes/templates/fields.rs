//! The fields of a template in requests and responses.

use garde::Validate;
use recado_domain::messaging::{
    Button, CarouselCard, Category, HeaderType, LimitedTimeOffer, MetaStatus, ParameterFormat,
};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{AccountId, FolderId, ProfileId, TemplateId, timestamp};
use recado_domain::templates::{CategoryChange, Template, TemplateInput, TemplateType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use crate::web::body::PatchFields;
use crate::web::extractors::nullable;
use crate::web::responses::response_type;

/// The fields of a template.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
pub(super) struct TemplateBody {
    /// The template's name: 1 to 512 lowercase letters, digits and underscores, unique in the account for each
    /// `language`.
    #[schemars(regex(pattern = r"^[a-z0-9_]{1,512}$"), example = &"volta_as_aulas")]
    name: Option<String>,
    /// WhatsApp's category of the template.
    #[schemars(with = "Option<Category>")]
    category: Option<String>,
    /// The language code: two or three lowercase letters, optionally followed by `_` and two capital letters.
    #[schemars(example = &"pt_BR")]
    language: Option<String>,
    /// A single message, or a message with a carousel of cards.
    #[schemars(with = "Option<TemplateType>")]
    template_type: Option<String>,
    /// The format of placeholders in header and body: `positional` (`{{1}}`, `{{2}}`, ...; the default) or `named`
    /// (`{{first_name}}`).
    #[schemars(with = "Option<ParameterFormat>")]
    parameter_format: Option<String>,
    /// The type of the header; `none` if absent. `location` only in category UTILITY or MARKETING: each campaign then
    /// names the location as `header_location`.
    #[schemars(with = "Option<HeaderType>")]
    #[serde(default, deserialize_with = "nullable")]
    header_type: Option<Option<String>>,
    /// The text of a header of type `text`: at most 60 characters, with at most one placeholder.
    #[schemars(length(max = 60), example = "Volta às aulas")]
    #[serde(default, deserialize_with = "nullable")]
    header_text: Option<Option<String>>,
    /// The URL of the file of a header of type `image`, `video` or `document`, as returned by an upload.
    #[schemars(
        example = "https://api.recado.example/media/0190a1b2-c3d4-7e5f-8a9b-000000000001/0190a1b2-c3d4-7e5f-8a9b-000000000002.png"
    )]
    #[serde(default, deserialize_with = "nullable")]
    header_media_url: Option<Option<String>>,
    /// The text of the message: at most 1024 characters, with placeholders `{{1}}`, `{{2}}`, ... for the values of a
    /// contact. A named placeholder has at most 64 lowercase letters, digits and underscores.
    #[schemars(length(max = 1024), example = "Oi {{1}}, use o cupom {{2}} esta semana.")]
    #[serde(default, deserialize_with = "nullable")]
    body_text: Option<Option<String>>,
    /// The footer below the body: at most 60 characters, without placeholders.
    #[schemars(length(max = 60), example = "Responda SAIR para não receber mais")]
    #[serde(default, deserialize_with = "nullable")]
    footer_text: Option<Option<String>>,
    /// At most 10 buttons in WhatsApp's format: objects with `type` (`QUICK_REPLY`, `URL`, `PHONE_NUMBER`,
    /// `COPY_CODE`), `text` and the fields of the type. At most 65,536 bytes in total.
    #[schemars(length(max = 10), example = serde_json::json!([{ "type": "QUICK_REPLY", "text": "Quero" }]))]
    #[serde(default, deserialize_with = "nullable")]
    #[schemars(with = "Option<Vec<Value>>")]
    buttons: Option<Option<Vec<Button>>>,
    /// The offer above the body, only in category MARKETING: without a footer, with a body of at most 600 characters, a
    /// header of type `none`, `image` or `video`, and at least one URL button. An offer with `has_expiration` needs a
    /// `COPY_CODE` button with a code of at most 15 characters as its first button.
    #[serde(default, deserialize_with = "nullable")]
    limited_time_offer: Option<Option<LimitedTimeOffer>>,
    /// How long WhatsApp tries to deliver a message, in seconds: 30 to 900 in category AUTHENTICATION, 30 to 43,200 in
    /// UTILITY, 43,200 to 2,592,000 in MARKETING. Null: WhatsApp's default.
    #[schemars(range(min = 30, max = 2_592_000), example = 86_400)]
    #[serde(default, deserialize_with = "nullable")]
    message_send_ttl_seconds: Option<Option<i64>>,
    /// One example value for each placeholder, ordered by number, or by first appearance of the name, header first.
    /// Responses return the examples as `variables`.
    #[schemars(example = ["Ana", "VOLTA10"])]
    #[serde(default, deserialize_with = "nullable")]
    example_values: Option<Option<Vec<String>>>,
    /// The 2 to 10 cards of a carousel in WhatsApp's format. At most 65,536 bytes in total.
    #[schemars(length(max = 10), example = serde_json::json!([]))]
    #[serde(default, deserialize_with = "nullable")]
    #[schemars(with = "Option<Vec<Value>>")]
    carousel_cards: Option<Option<Vec<CarouselCard>>>,
    /// The id of the template's folder.
    #[serde(default, deserialize_with = "nullable")]
    folder_id: Option<Option<FolderId>>,
}

impl PatchFields for TemplateBody {
    const NEVER_NULL: &'static [&'static str] = &["name", "category", "language", "template_type", "parameter_format"];
}

impl From<TemplateBody> for TemplateInput {
    fn from(body: TemplateBody) -> Self {
        Self {
            name: body.name,
            category: body.category,
            language: body.language,
            template_type: body.template_type,
            parameter_format: body.parameter_format,
            header_type: body.header_type,
            header_text: body.header_text,
            header_media_url: body.header_media_url,
            body_text: body.body_text,
            footer_text: body.footer_text,
            buttons: body.buttons,
            limited_time_offer: body.limited_time_offer,
            message_send_ttl_seconds: body.message_send_ttl_seconds,
            example_values: body.example_values,
            carousel_cards: body.carousel_cards,
            folder_id: body.folder_id,
        }
    }
}

/// A message template. On WhatsApp, only a template may open a conversation.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Template")]
pub(super) struct TemplateResponse {
    #[serde(flatten)]
    template: TemplateFields,
    /// Whether this server can send messages from the template after WhatsApp has approved it.
    sendable: bool,
    /// The reasons why the template is not `sendable`: `unsupported_component:<type>`, `unsupported_header:<format>`,
    /// `unsupported_button:<type>`, `unsupported_parameter_format`, `carousel_shape` or `missing_media`.
    #[schemars(example = serde_json::json!([]))]
    reasons: Vec<String>,
}

impl From<Template> for TemplateResponse {
    fn from(template: Template) -> Self {
        let reasons = template.unsendable_reasons();
        Self {
            template: template.into(),
            sendable: reasons.is_empty(),
            reasons,
        }
    }
}

response_type! {
    /// A change of category that WhatsApp has scheduled.
    #[schemars(rename = "CategoryChange")]
    struct CategoryChangeResponse from change: CategoryChange {
        /// The category that the template will have.
        to: Category,
        /// When WhatsApp will change it.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        at: OffsetDateTime,
    }
}

response_type! {
    /// A message template, the only kind of message that may open a conversation on WhatsApp.
    struct TemplateFields from template: Template {
        /// The template's id.
        id: TemplateId,
        /// The account that it belongs to.
        account_id: AccountId,
        /// The name: 1 to 512 lowercase letters, digits and underscores, unique in the account together with
        /// `language`.
        #[schemars(example = &"volta_as_aulas")]
        name: String,
        /// The purpose of the template. WhatsApp prices and limits messages by it.
        category: Category,
        /// The change of `category` that WhatsApp has scheduled. Null if none is scheduled.
        category_change: Option<CategoryChangeResponse> = template.category_change.map(CategoryChangeResponse::from),
        /// The category that WhatsApp considers right. Null if it has not named another one than `category`.
        correct_category: Option<Category>,
        /// The language of its texts, for example `pt_BR` or `pt`.
        #[schemars(example = &"pt_BR")]
        language: String,
        /// The form of the template: one message, or a message with a row of cards.
        template_type: TemplateType,
        /// The syntax of the placeholders of header and body.
        parameter_format: ParameterFormat,
        /// The type of the header above the body.
        header_type: HeaderType,
        /// The header's text of at most 60 characters, with at most one placeholder. Null if the header is not a text.
        #[schemars(example = "Volta às aulas")]
        header_text: Option<String>,
        /// The URL of the header's image, video or document. Null if the header is not a file.
        #[schemars(
            example = "https://api.recado.example/media/0190a1b2-c3d4-7e5f-8a9b-000000000001/0190a1b2-c3d4-7e5f-8a9b-000000000002.png"
        )]
        header_media_url: Option<String>,
        /// The message of at most 1024 characters. `{{1}}`, `{{2}}`, ... (or `{{first_name}}` if `parameter_format` is
        /// `named`) are replaced by a contact's values. Null while the draft has no body.
        #[schemars(example = "Oi {{1}}, use o cupom {{2}} esta semana.")]
        body_text: Option<String>,
        /// The text below the body, at most 60 characters, without placeholders. Null if there is none.
        #[schemars(example = "Responda SAIR para não receber mais")]
        footer_text: Option<String>,
        /// At most 10 buttons, in WhatsApp's format.
        #[schemars(example = json!([{ "type": "URL", "text": "Comprar", "url": "https://loja.example/{{1}}", "example": ["bolo"] }]))]
        #[schemars(with = "Vec<Map<String, Value>>")]
        buttons: Vec<Button>,
        /// The offer above the body. Null if there is none.
        limited_time_offer: Option<LimitedTimeOffer>,
        /// How long WhatsApp tries to deliver a message, in seconds. Null: WhatsApp's default.
        #[schemars(example = 86_400)]
        message_send_ttl_seconds: Option<i64>,
        /// One example per placeholder (`example_values` of the input): in the order of their numbers, or of the first
        /// appearance of their names. The header comes first.
        #[schemars(example = ["Ana", "VOLTA10"])]
        variables: Vec<String>,
        /// The 2 to 10 cards of a carousel, in WhatsApp's format. Empty for a standard template.
        #[schemars(example = json!([]))]
        #[schemars(with = "Vec<Map<String, Value>>")]
        carousel_cards: Vec<CarouselCard>,
        /// The folder of the template. Null if it is in no folder.
        folder_id: Option<FolderId>,
        /// The WhatsApp number to whose business account the template was submitted. Null before the first submission.
        profile_id: Option<ProfileId>,
        /// WhatsApp's id of the template. Null before the first submission.
        #[schemars(example = "1795233629837000")]
        meta_template_id: Option<String>,
        /// The status of WhatsApp's review.
        meta_status: MetaStatus,
        /// WhatsApp's reason for rejecting the template. Null if it is not rejected.
        #[schemars(example = Value::Null)]
        rejection_reason: Option<String>,
        /// What WhatsApp recommends to change in a rejected template. Null if it is not rejected, or WhatsApp
        /// recommends nothing.
        #[schemars(example = Value::Null)]
        rejection_recommendation: Option<String>,
        /// WhatsApp's quality rating; the same as `quality_score`.
        #[schemars(example = &"GREEN")]
        quality: Option<String> = template.quality_score.clone(),
        /// WhatsApp's quality rating, based on how recipients react: `GREEN`, `YELLOW`, `RED` or `UNKNOWN`. Null before
        /// WhatsApp reports one.
        #[schemars(example = &"GREEN")]
        quality_score: Option<String>,
        /// When the template was created.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
        /// When the template was last changed.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        updated_at: OffsetDateTime,
    }
}
