//! Message templates.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::messaging::{Category, HeaderType, ParameterFormat};
use recado_domain::shared::{FolderId, ProfileId, TemplateId};
use recado_domain::templates::{MetaStatus, Template, TemplateFilter, TemplateInput, TemplateSort, TemplateType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ApiError;
use crate::web::body::{Json, JsonChange, MaybeJson, PatchFields};
use crate::web::extractors::{Authenticated, Id, TenantContext, nullable};
use crate::web::parameters::{EnumParam, SortParam};
use crate::web::query::Params;
use crate::web::responses;
use crate::wiring::Services;

pub(crate) const CATEGORY: EnumParam<Category> = EnumParam {
    name: "category",
    description: "Only templates of this category.",
    accepted: "MARKETING, UTILITY or AUTHENTICATION",
    example: Some(Category::Marketing),
};

pub(crate) const META_STATUS: EnumParam<MetaStatus> = EnumParam {
    name: "meta_status",
    description: "Only templates with this review status.",
    accepted: "a review status, such as approved",
    example: Some(MetaStatus::Approved),
};

pub(crate) const SORT: SortParam<TemplateSort> = SortParam {
    description: "Sort key.",
    accepted: "created_at, updated_at or name",
    default: TemplateSort::CreatedAt,
};

/// The fields of a template.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
pub(crate) struct TemplateBody {
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
    /// The type of the header; `none` if absent.
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
    buttons: Option<Option<Vec<Value>>>,
    /// One example value for each placeholder, ordered by number, or by first appearance of the name, header first.
    /// Responses return the examples as `variables`.
    #[schemars(example = ["Ana", "VOLTA10"])]
    #[serde(default, deserialize_with = "nullable")]
    example_values: Option<Option<Vec<String>>>,
    /// The 2 to 10 cards of a carousel in WhatsApp's format. At most 65,536 bytes in total.
    #[schemars(length(max = 10), example = serde_json::json!([]))]
    #[serde(default, deserialize_with = "nullable")]
    carousel_cards: Option<Option<Vec<Value>>>,
    /// The id of the template's folder.
    #[serde(default, deserialize_with = "nullable")]
    folder_id: Option<Option<FolderId>>,
}

impl PatchFields for TemplateBody {
    const NEVER_NULL: &'static [&'static str] = &["name", "category", "language", "template_type", "parameter_format"];
}

/// A message template. On WhatsApp, only a template may open a conversation.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Template")]
pub(crate) struct TemplateResponse {
    #[serde(flatten)]
    template: Template,
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
            template,
            sendable: reasons.is_empty(),
            reasons,
        }
    }
}

/// The WhatsApp number to use.
#[derive(Default, Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
pub(crate) struct SubmitBody {
    /// The id of the number whose WhatsApp business account is used. If absent, the number that was connected first.
    profile_id: Option<ProfileId>,
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
            example_values: body.example_values,
            carousel_cards: body.carousel_cards,
            folder_id: body.folder_id,
        }
    }
}

/// `GET /api/templates`: keyset pagination if `cursor` is present, otherwise numbered pages.
pub(super) async fn list(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let filter = filter(&mut params);
    let (page, cursor_query) = (params.page(), params.has_cursor().then(|| params.cursor_query()));
    params.check()?;
    Ok(match cursor_query {
        Some(cursor_query) => {
            let page = services.templates.cursor_page(&tenant, &filter, &cursor_query).await?;
            responses::ok(page.map(TemplateResponse::from))
        }
        None => {
            let page = services.templates.page(&tenant, &filter, page).await?;
            responses::wrapped_page(page.map(TemplateResponse::from))
        }
    })
}

fn filter(params: &mut Params) -> TemplateFilter {
    TemplateFilter {
        search: params.text("search"),
        category: params.one_of(&CATEGORY),
        meta_status: params.one_of(&META_STATUS),
        folder_id: params.id("folder_id"),
        sort: params.sort(&SORT),
        descending: params.descending(),
    }
}

/// `POST /api/templates`
pub(super) async fn create(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<TemplateBody>,
) -> Result<HttpResponse, ApiError> {
    let template = services.templates.create(&tenant, input.into()).await?;
    Ok(responses::created(TemplateResponse::from(template)))
}

/// `GET /api/templates/<id>`
pub(super) async fn get(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<TemplateId>,
) -> Result<HttpResponse, ApiError> {
    let template = services.templates.get(&tenant, id).await?;
    Ok(responses::ok(TemplateResponse::from(template)))
}

/// `PUT /api/templates/<id>`
pub(super) async fn update(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<TemplateId>,
    JsonChange(input): JsonChange<TemplateBody>,
) -> Result<HttpResponse, ApiError> {
    let template = services.templates.update(&tenant, id, input.into()).await?;
    Ok(responses::ok(TemplateResponse::from(template)))
}

/// `DELETE /api/templates/<id>`
pub(super) async fn delete(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<TemplateId>,
) -> Result<HttpResponse, ApiError> {
    services.templates.delete(&tenant, id).await?;
    Ok(responses::no_content())
}

/// `POST /api/templates/<id>/submit`
pub(super) async fn submit(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<TemplateId>,
    MaybeJson(input): MaybeJson<SubmitBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(
        services.templates.submit(&tenant, id, input.profile_id).await?,
    ))
}

/// `POST /api/templates/sync`
pub(super) async fn sync(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    MaybeJson(input): MaybeJson<SubmitBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.templates.sync(&tenant, input.profile_id).await?))
}
