//! Message templates.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::shared::{FolderId, ProfileId, TemplateId};
use recado_domain::templates::{
    Category, HeaderType, MetaStatus, ParameterFormat, Template, TemplateFilter, TemplateInput, TemplateSort,
    TemplateType,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ApiError;
use crate::web::body::{Json, JsonChange, MaybeJson, PatchFields};
use crate::web::extractors::{Authenticated, Id, TenantContext, nullable};
use crate::web::query::Params;
use crate::web::responses;
use crate::wiring::Services;

/// A template, as it is written.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
pub(crate) struct TemplateBody {
    /// Its name: 1 to 512 lowercase letters, digits and underscores, unique in the account together with `language`.
    #[schemars(regex(pattern = r"^[a-z0-9_]{1,512}$"), example = &"volta_as_aulas")]
    name: Option<String>,
    /// What it is for.
    #[schemars(with = "Option<Category>")]
    category: Option<String>,
    /// The language of its texts: two or three lowercase letters, maybe followed by `_` and two capital letters.
    #[schemars(example = &"pt_BR")]
    language: Option<String>,
    /// One message, or one with a row of cards.
    #[schemars(with = "Option<TemplateType>")]
    template_type: Option<String>,
    /// How the placeholders of header and body are written: `positional` (`{{1}}`, `{{2}}`, ...) where it is absent, or
    /// `named` (`{{first_name}}`).
    #[schemars(with = "Option<ParameterFormat>")]
    parameter_format: Option<String>,
    /// What stands above the body; `none` where it is absent.
    #[schemars(with = "Option<HeaderType>")]
    #[serde(default, deserialize_with = "nullable")]
    header_type: Option<Option<String>>,
    /// The text of a header of type `text`: at most 60 characters, with at most one placeholder.
    #[schemars(length(max = 60), example = "Volta às aulas")]
    #[serde(default, deserialize_with = "nullable")]
    header_text: Option<Option<String>>,
    /// The address of the file of a header of type `image`, `video` or `document`: an answer of the upload.
    #[schemars(
        example = "https://api.recado.example/media/0190a1b2-c3d4-7e5f-8a9b-000000000001/0190a1b2-c3d4-7e5f-8a9b-000000000002.png"
    )]
    #[serde(default, deserialize_with = "nullable")]
    header_media_url: Option<Option<String>>,
    /// The message: at most 1024 characters, with `{{1}}`, `{{2}}`, ... where the values of a contact go; in a template
    /// of named placeholders with `{{first_name}}` and the like: lowercase letters, digits and underscores, at most 64.
    #[schemars(length(max = 1024), example = "Oi {{1}}, use o cupom {{2}} esta semana.")]
    #[serde(default, deserialize_with = "nullable")]
    body_text: Option<Option<String>>,
    /// What stands below the body: at most 60 characters, without placeholders.
    #[schemars(length(max = 60), example = "Responda SAIR para não receber mais")]
    #[serde(default, deserialize_with = "nullable")]
    footer_text: Option<Option<String>>,
    /// At most 10 buttons, in WhatsApp's own form: objects with `type` (`QUICK_REPLY`, `URL`, `PHONE_NUMBER`,
    /// `COPY_CODE`), `text` and what the type takes; at most 65,536 bytes in all.
    #[schemars(length(max = 10), example = serde_json::json!([{ "type": "QUICK_REPLY", "text": "Quero" }]))]
    #[serde(default, deserialize_with = "nullable")]
    buttons: Option<Option<Vec<Value>>>,
    /// One example of each placeholder of the texts, in the order of their numbers, or of the first appearance of their
    /// names, the header's first; answered as `variables`.
    #[schemars(example = ["Ana", "VOLTA10"])]
    #[serde(default, deserialize_with = "nullable")]
    example_values: Option<Option<Vec<String>>>,
    /// The cards of a carousel, 2 to 10, in WhatsApp's own form; at most 65,536 bytes in all.
    #[schemars(length(max = 10), example = serde_json::json!([]))]
    #[serde(default, deserialize_with = "nullable")]
    carousel_cards: Option<Option<Vec<Value>>>,
    /// The folder that it lies in.
    #[serde(default, deserialize_with = "nullable")]
    folder_id: Option<Option<FolderId>>,
}

impl PatchFields for TemplateBody {
    const NEVER_NULL: &'static [&'static str] = &["name", "category", "language", "template_type", "parameter_format"];
}

/// A message template: the only form in which a business may begin a conversation on WhatsApp.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Template")]
pub(crate) struct TemplateResponse {
    #[serde(flatten)]
    template: Template,
    /// Whether this server can make messages of it, once it is approved.
    sendable: bool,
    /// Why it cannot; empty when it can: `unsupported_component:<type>`, `unsupported_header:<format>`,
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

/// Which number is meant.
#[derive(Default, Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
pub(crate) struct SubmitBody {
    /// The WhatsApp number whose business account is meant; absent: the one that was connected first.
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

/// `GET /api/templates`: in cursor mode where `cursor` is present, else by page.
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
        category: params.parsed::<Category>("category", "MARKETING, UTILITY or AUTHENTICATION"),
        meta_status: params.parsed::<MetaStatus>("meta_status", "a review status, such as approved"),
        folder_id: params.id("folder_id"),
        sort: params
            .parsed("sort", "created_at, updated_at or name")
            .unwrap_or(TemplateSort::CreatedAt),
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
