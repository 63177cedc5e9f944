//! What the account's business is.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::brand::BrandInput;
use serde::Deserialize;

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::reply;
use crate::web::shape::{Caller, Proved, nullable};
use crate::wiring::Services;

/// Body of `PUT /api/brand-context`: null clears, absent keeps.
#[derive(Deserialize, Validate)]
#[garde(allow_unvalidated)]
pub(super) struct BrandBody {
    #[serde(default, deserialize_with = "nullable")]
    company_name: Option<Option<String>>,
    #[serde(default, deserialize_with = "nullable")]
    description: Option<Option<String>>,
    #[serde(default, deserialize_with = "nullable")]
    products_services: Option<Option<String>>,
    #[serde(default, deserialize_with = "nullable")]
    tone_of_voice: Option<Option<String>>,
    #[serde(default, deserialize_with = "nullable")]
    target_audience: Option<Option<String>>,
    #[serde(default, deserialize_with = "nullable")]
    brand_values: Option<Option<String>>,
    #[serde(default, deserialize_with = "nullable")]
    website_url: Option<Option<String>>,
}

impl From<BrandBody> for BrandInput {
    fn from(body: BrandBody) -> Self {
        Self {
            company_name: body.company_name,
            description: body.description,
            products_services: body.products_services,
            tone_of_voice: body.tone_of_voice,
            target_audience: body.target_audience,
            brand_values: body.brand_values,
            website_url: body.website_url,
        }
    }
}

/// Body of `POST /api/brand-context/scrape`.
#[derive(Deserialize, Validate)]
pub(super) struct Website {
    #[garde(required)]
    url: Option<String>,
}

/// `GET /api/brand-context`
pub(super) async fn get(services: Data<Services>, Proved(tenant): Caller) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.brand.get(&tenant).await?))
}

/// `PUT /api/brand-context`
pub(super) async fn update(
    services: Data<Services>,
    Proved(tenant): Caller,
    Json(body): Json<BrandBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.brand.update(&tenant, &body.into()).await?))
}

/// `POST /api/brand-context/scrape`
pub(super) async fn scrape(
    services: Data<Services>,
    Proved(tenant): Caller,
    Json(body): Json<Website>,
) -> Result<HttpResponse, ApiError> {
    let url = body.url.unwrap_or_default();
    Ok(reply::ok(services.brand.scrape(&tenant, &url).await?))
}
