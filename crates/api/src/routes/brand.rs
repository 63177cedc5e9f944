//! Routes of the brand context.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::brand::{Brand, BrandContext, BrandInput};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use crate::error::{ApiError, ErrorCode};
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, TenantContext, nullable};
use crate::web::operation::{Body, OpenApiTag, Operation, data};
use crate::web::responses::{self, response_type};
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

response_type! {
    /// The description of an account's business.
    #[schemars(rename = "BrandContext")]
    struct BrandContextResponse from brand: BrandContext {
        /// The name of the business.
        #[schemars(example = &"Loja da Ana")]
        company_name: Option<String> = brand.facts.company_name,
        /// A description of the business.
        #[schemars(example = &"A family shop for running shoes.")]
        description: Option<String> = brand.facts.description,
        /// The products and services that it offers.
        #[schemars(example = &"Running shoes, socks, gait analysis.")]
        products_services: Option<String> = brand.facts.products_services,
        /// The tone in which it writes to its customers.
        #[schemars(example = &"Warm and direct, without jargon.")]
        tone_of_voice: Option<String> = brand.facts.tone_of_voice,
        /// The people whom it addresses.
        #[schemars(example = &"Amateur runners of 25 to 45 years.")]
        target_audience: Option<String> = brand.facts.target_audience,
        /// The values that it stands for.
        #[schemars(example = &"Honest advice, fair prices.")]
        brand_values: Option<String> = brand.facts.brand_values,
        /// The http or https URL of the website. Null if none is set.
        #[schemars(example = &"https://example.com/")]
        website_url: Option<String>,
        /// The source of the last extraction: URL and title of the page, size and hash of its text, the AI model and
        /// its usage. Null before the first extraction.
        #[schemars(with = "Option<Map<String, Value>>", example = json!({ "url": "https://example.com/", "title": "Loja da Ana", "text_chars": 5120, "model": "example-model" }))]
        raw_scrape_data: Option<Value>,
        /// When the website was last read. Null before the first time.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        last_scraped_at: Option<OffsetDateTime>,
        /// When the brand context was created.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
        /// When the brand context was last changed.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        updated_at: OffsetDateTime,
    }
}

/// `GET /api/brand-context`
async fn get(brand: Data<Brand>, Authenticated(tenant): TenantContext) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(brand.get(&tenant).await?.map(BrandContextResponse::from)))
}

pub(super) const GET: Endpoint = endpoint!(get, {
    Operation::new(
        "Get the brand context",
        "Returns the description of the account's business, or null if none is stored.",
    )
    .responds(data::<Option<BrandContextResponse>>("The brand context, or null."))
});

/// `PUT /api/brand-context`
async fn update(
    brand: Data<Brand>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<BrandBody>,
) -> Result<HttpResponse, ApiError> {
    let brand = brand.update(&tenant, &body.into()).await?;
    Ok(responses::ok(BrandContextResponse::from(brand)))
}

pub(super) const UPDATE: Endpoint = endpoint!(update, {
    let description = "Updates the given fields, and creates the brand context if none is stored. Absent fields do \
                not change; null clears a field.";
    let example = json!({ "tone_of_voice": "Warm and direct, without jargon.", "brand_values": null });
    Operation::new("Update the brand context", description)
        .body(Body::json::<BrandBody>().example(example))
        .responds(data::<BrandContextResponse>("The updated brand context."))
});

/// `POST /api/brand-context/scrape`
async fn scrape(
    brand: Data<Brand>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<Website>,
) -> Result<HttpResponse, ApiError> {
    let url = body.url.unwrap_or_default();
    let brand = brand.scrape(&tenant, &url).await?;
    Ok(responses::ok(BrandContextResponse::from(brand)))
}

pub(super) const SCRAPE: Endpoint = endpoint!(scrape, {
    let description = "Fetches a page of the account's website and extracts the brand context with an AI model. All \
                fields are replaced: a fact that the page does not contain becomes null, and `website_url` becomes the \
                given address. The call takes some seconds. It follows at most three redirects and never connects to \
                private networks.";
    Operation::new("Extract the brand context from a website", description)
        .body(Body::json::<Website>())
        .responds(data::<BrandContextResponse>("The extracted brand context."))
        .refuses(
            ErrorCode::Invalid,
            "The address is not http or https, or its host does not resolve or is private. Or the page does not \
             respond within 10 seconds, returns an error, is larger than 1 MiB, or is neither HTML nor plain text.",
        )
        .refuses(ErrorCode::Extraction, "Nothing is stored.")
});

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use recado_domain::brand::{BrandFacts, FACTS};

    use super::*;

    #[test]
    fn brand_context_publishes_facts_as_flat_fields() {
        let published = json!(BrandContextResponse::from(BrandContext {
            facts: BrandFacts::new(|name| Some(name.to_owned())),
            website_url: None,
            raw_scrape_data: None,
            last_scraped_at: None,
            created_at: OffsetDateTime::UNIX_EPOCH,
            updated_at: OffsetDateTime::UNIX_EPOCH,
        }));
        for name in FACTS {
            assert_eq!(published[name], name);
        }
        let names: BTreeSet<&str> = published.as_object().unwrap().keys().map(String::as_str).collect();
        let others = [
            "website_url",
            "raw_scrape_data",
            "last_scraped_at",
            "created_at",
            "updated_at",
        ];
        assert_eq!(names, FACTS.into_iter().chain(others).collect());
    }
}
