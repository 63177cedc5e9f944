//! Routes of short links and their redirect.

use actix_web::HttpResponse;
use actix_web::http::header;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::shared::CampaignId;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, PathName, TenantContext};
use crate::web::query::CursorParams;
use crate::web::responses;
use crate::wiring::Services;

/// A new link.
#[derive(Deserialize, Validate, JsonSchema)]
pub(crate) struct NewLink {
    /// The target of the link: an `http` or `https` URL of at most 2000 characters.
    #[schemars(
        required,
        length(min = 1, max = 2000),
        example = "https://loja.example/bolos?de=whatsapp"
    )]
    #[garde(required)]
    original_url: Option<String>,
    /// The id of the link's campaign. Orders that are attributed to the link are also attributed to this campaign.
    #[garde(skip)]
    campaign_id: Option<CampaignId>,
}

/// `GET /api/links`
pub(super) async fn list(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    CursorParams(page): CursorParams,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.links.list(&tenant, &page).await?))
}

/// `POST /api/links`
pub(super) async fn create(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<NewLink>,
) -> Result<HttpResponse, ApiError> {
    let url = input.original_url.unwrap_or_default();
    let link = services.links.create(&tenant, &url, input.campaign_id).await?;
    Ok(responses::created(link))
}

/// `GET /r/<code>`: not cacheable, so that every click is counted.
pub(super) async fn follow(services: Data<Services>, PathName(code): PathName) -> Result<HttpResponse, ApiError> {
    let target = services.links.follow(&code).await?;
    Ok(HttpResponse::Found()
        .insert_header((header::LOCATION, target))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .finish())
}
