//! Routes of tags.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::shared::TagId;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::query::CursorParams;
use crate::web::responses;
use crate::wiring::Services;

/// A new tag.
#[derive(Deserialize, JsonSchema, Validate)]
pub(crate) struct NewTag {
    /// The tag's name, unique in the account: 1 to 100 characters.
    #[schemars(length(min = 1, max = 100), example = &"vip")]
    #[garde(required)]
    name: Option<String>,
    /// The tag's color in the user interface: any text of at most 32 characters.
    #[schemars(length(max = 32), example = &"#22c55e")]
    #[garde(skip)]
    color: Option<String>,
}

/// `GET /api/tags`
pub(super) async fn list(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    CursorParams(query): CursorParams,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.tags.list(&tenant, &query).await?))
}

/// `POST /api/tags`
pub(super) async fn create(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<NewTag>,
) -> Result<HttpResponse, ApiError> {
    let name = input.name.unwrap_or_default();
    Ok(responses::created(
        services.tags.create(&tenant, &name, input.color).await?,
    ))
}

/// `DELETE /api/tags/<id>`
pub(super) async fn delete(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<TagId>,
) -> Result<HttpResponse, ApiError> {
    services.tags.delete(&tenant, id).await?;
    Ok(responses::no_content())
}
