//! What the account's business is.

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

/// What is known of the account's business: at most 5,000 characters each; null clears, absent keeps.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
pub(crate) struct BrandBody {
    /// The name of the business.
    #[schemars(length(max = 5000), example = &"Loja da Ana")]
    #[serde(default, deserialize_with = "nullable")]
    company_name: Option<Option<String>>,
    /// What the business is.
    #[schemars(length(max = 5000), example = &"A family shop for running shoes.")]
    #[serde(default, deserialize_with = "nullable")]
    description: Option<Option<String>>,
    /// What it offers.
    #[schemars(length(max = 5000), example = &"Running shoes, socks, gait analysis.")]
    #[serde(default, deserialize_with = "nullable")]
    products_services: Option<Option<String>>,
    /// How it speaks to its customers.
    #[schemars(length(max = 5000), example = &"Warm and direct, without jargon.")]
    #[serde(default, deserialize_with = "nullable")]
    tone_of_voice: Option<Option<String>>,
    /// Whom it speaks to.
    #[schemars(length(max = 5000), example = &"Amateur runners of 25 to 45 years.")]
    #[serde(default, deserialize_with = "nullable")]
    target_audience: Option<Option<String>>,
    /// What it stands for.
    #[schemars(length(max = 5000), example = &"Honest advice, fair prices.")]
    #[serde(default, deserialize_with = "nullable")]
    brand_values: Option<Option<String>>,
    /// The address of its website, http or https.
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

/// A website to be read.
#[derive(Deserialize, JsonSchema, Validate)]
pub(crate) struct Website {
    /// Its address, http or https. It has to be on the public Internet.
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
