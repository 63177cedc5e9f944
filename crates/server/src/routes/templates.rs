//! Message templates.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::shared::{FolderId, ProfileId, TemplateId};
use recado_domain::templates::{Category, MetaStatus, TemplateFilter, TemplateInput, TemplateSort};
use serde::Deserialize;
use serde_json::Value;

use crate::error::ApiError;
use crate::web::body::{Json, MaybeJson};
use crate::web::query::Params;
use crate::web::reply;
use crate::web::shape::{Caller, Id, Proved, nullable};
use crate::wiring::Services;

/// Body of `POST /api/templates` and `PUT /api/templates/<id>`.
#[derive(Deserialize, Validate)]
#[garde(allow_unvalidated)]
pub(super) struct TemplateBody {
    name: Option<String>,
    category: Option<String>,
    language: Option<String>,
    template_type: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    header_type: Option<Option<String>>,
    #[serde(default, deserialize_with = "nullable")]
    header_text: Option<Option<String>>,
    #[serde(default, deserialize_with = "nullable")]
    header_media_url: Option<Option<String>>,
    #[serde(default, deserialize_with = "nullable")]
    body_text: Option<Option<String>>,
    #[serde(default, deserialize_with = "nullable")]
    footer_text: Option<Option<String>>,
    #[serde(default, deserialize_with = "nullable")]
    buttons: Option<Option<Vec<Value>>>,
    #[serde(default, deserialize_with = "nullable")]
    example_values: Option<Option<Vec<String>>>,
    #[serde(default, deserialize_with = "nullable")]
    carousel_cards: Option<Option<Vec<Value>>>,
    #[serde(default, deserialize_with = "nullable")]
    folder_id: Option<Option<FolderId>>,
}

/// Body of `POST /api/templates/<id>/submit` and `POST /api/templates/sync`.
#[derive(Default, Deserialize, Validate)]
#[garde(allow_unvalidated)]
pub(super) struct SubmitBody {
    profile_id: Option<ProfileId>,
}

impl From<TemplateBody> for TemplateInput {
    fn from(body: TemplateBody) -> Self {
        Self {
            name: body.name,
            category: body.category,
            language: body.language,
            template_type: body.template_type,
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
    Proved(tenant): Caller,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let filter = filter(&mut params);
    let (page, slice) = (params.page(), params.has_cursor().then(|| params.slice()));
    params.check()?;
    Ok(match slice {
        Some(slice) => reply::ok(services.templates.slice(&tenant, &filter, &slice).await?),
        None => reply::wrapped_page(&services.templates.page(&tenant, &filter, page).await?),
    })
}

fn filter(params: &mut Params) -> TemplateFilter {
    TemplateFilter {
        search: params.text("search"),
        category: params.parsed::<Category>("category", "MARKETING, UTILITY or AUTHENTICATION"),
        meta_status: params.parsed::<MetaStatus>("meta_status", "a published meta_status"),
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
    Proved(tenant): Caller,
    Json(input): Json<TemplateBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::created(services.templates.create(&tenant, input.into()).await?))
}

/// `GET /api/templates/<id>`
pub(super) async fn get(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<TemplateId>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.templates.get(&tenant, id).await?))
}

/// `PUT /api/templates/<id>`
pub(super) async fn update(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<TemplateId>,
    Json(input): Json<TemplateBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.templates.update(&tenant, id, input.into()).await?))
}

/// `DELETE /api/templates/<id>`
pub(super) async fn delete(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<TemplateId>,
) -> Result<HttpResponse, ApiError> {
    services.templates.delete(&tenant, id).await?;
    Ok(reply::gone())
}

/// `POST /api/templates/<id>/submit`
pub(super) async fn submit(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<TemplateId>,
    MaybeJson(input): MaybeJson<SubmitBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(
        services.templates.submit(&tenant, id, input.profile_id).await?,
    ))
}

/// `POST /api/templates/sync`
pub(super) async fn sync(
    services: Data<Services>,
    Proved(tenant): Caller,
    MaybeJson(input): MaybeJson<SubmitBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.templates.sync(&tenant, input.profile_id).await?))
}
