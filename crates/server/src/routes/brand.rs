//! Routes of the brand context.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::brand::{Brand, BrandContext, BrandInput};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::error::{ApiError, ErrorCode};
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, TenantContext, nullable};
use crate::web::operation::{Body, OpenApiTag, Operation, data};
use crate::web::responses;
use crate::web::route::{Endpoint, endpoint};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Brand context",
    description: "A description of the account's business, entered by hand or read from its website.",
};

/// The description of the account's business: at most 5,000 characters for each field. Null clears a field; an absent
/// field is not changed.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
struct BrandBody {
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
struct Website {
    /// The URL, http or https. The host must be on the public internet.
    #[schemars(example = &"https://example.com/")]
    #[garde(required)]
    url: Option<String>,
}

/// `GET /api/brand-context`
async fn get(brand: Data<Brand>, Authenticated(tenant): TenantContext) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(brand.get(&tenant).await?))
}

pub(super) const GET: Endpoint = endpoint!(get, {
    Operation::new(
        "Get the brand context",
        "Returns the description of the account's business, or null if none is stored.",
    )
    .responds(data::<Option<BrandContext>>("The brand context, or null."))
});

/// `PUT /api/brand-context`
async fn update(
    brand: Data<Brand>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<BrandBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(brand.update(&tenant, &body.into()).await?))
}

pub(super) const UPDATE: Endpoint = endpoint!(update, {
    let description = "Updates the given fields, and creates the brand context if none is stored. Absent fields are \
                kept; null clears a field.";
    let example = json!({ "tone_of_voice": "Warm and direct, without jargon.", "brand_values": null });
    Operation::new("Update the brand context", description)
        .body(Body::json::<BrandBody>().example(example))
        .responds(data::<BrandContext>("The updated brand context."))
});

/// `POST /api/brand-context/scrape`
async fn scrape(
    brand: Data<Brand>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<Website>,
) -> Result<HttpResponse, ApiError> {
    let url = body.url.unwrap_or_default();
    Ok(responses::ok(brand.scrape(&tenant, &url).await?))
}

pub(super) const SCRAPE: Endpoint = endpoint!(scrape, {
    let description = "Fetches a page of the account's website and extracts the brand context with an AI model. All \
                fields are replaced: a fact that the page does not contain becomes null, and `website_url` becomes the \
                given address. The call takes some seconds. It follows at most three redirects and never connects to \
                private networks.";
    Operation::new("Extract the brand context from a website", description)
        .body(Body::json::<Website>())
        .responds(data::<BrandContext>("The extracted brand context."))
        .refuses(
            ErrorCode::Invalid,
            "The address is not http or https, or its host does not resolve or is private. Or the page does not \
             respond within 10 seconds, returns an error, is larger than 1 MiB, or is neither HTML nor plain text.",
        )
        .refuses(ErrorCode::Extraction, "Nothing is stored.")
});
