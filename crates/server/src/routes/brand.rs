//! Routes of the brand context.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::brand::BrandInput;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, TenantContext, nullable};
use crate::web::responses;
use crate::wiring::Services;

/// The description of the account's business: at most 5,000 characters for each field. Null clears a field; an absent
/// field is not changed.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
pub(crate) struct BrandBody {
    /// The name of the business.
    #[schemars(length(max = 5000), example = &"Loja da Ana")]
    #[serde(default, deserialize_with = "nullable")]
    company_name: Option<Option<String>>,
    /// A description of the business.
    #[schemars(length(max = 5000), example = &"A family shop for running shoes.")]
    #[serde(default, deserialize_with = "nullable")]
    description: Option<Option<String>>,
    /// The products or services that the business offers.
    #[schemars(length(max = 5000), example = &"Running shoes, socks, gait analysis.")]
    #[serde(default, deserialize_with = "nullable")]
    products_services: Option<Option<String>>,
    /// The tone in which the business speaks to its customers.
    #[schemars(length(max = 5000), example = &"Warm and direct, without jargon.")]
    #[serde(default, deserialize_with = "nullable")]
    tone_of_voice: Option<Option<String>>,
    /// The target audience of the business.
    #[schemars(length(max = 5000), example = &"Amateur runners of 25 to 45 years.")]
    #[serde(default, deserialize_with = "nullable")]
    target_audience: Option<Option<String>>,
    /// The values of the brand.
    #[schemars(length(max = 5000), example = &"Honest advice, fair prices.")]
    #[serde(default, deserialize_with = "nullable")]
    brand_values: Option<Option<String>>,
    /// The URL of the business's website, http or https.
    #[schemars(length(max = 5000), example = &"https://example.com/")]
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

/// A website to extract the brand context from.
#[derive(Deserialize, JsonSchema, Validate)]
pub(crate) struct Website {
    /// The URL, http or https. The host must be on the public internet.
    #[schemars(example = &"https://example.com/")]
    #[garde(required)]
    url: Option<String>,
}

/// `GET /api/brand-context`
pub(super) async fn get(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.brand.get(&tenant).await?))
}

/// `PUT /api/brand-context`
pub(super) async fn update(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<BrandBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.brand.update(&tenant, &body.into()).await?))
}

/// `POST /api/brand-context/scrape`
pub(super) async fn scrape(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<Website>,
) -> Result<HttpResponse, ApiError> {
    let url = body.url.unwrap_or_default();
    Ok(responses::ok(services.brand.scrape(&tenant, &url).await?))
}
