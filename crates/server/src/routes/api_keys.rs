//! API keys.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::api_keys::NewApiKey;
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{ApiKeyId, timestamp};
use schemars::JsonSchema;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::responses;
use crate::wiring::Services;

/// A new API key.
#[derive(Deserialize, JsonSchema, Validate)]
pub(crate) struct NewKey {
    /// The key's name: 1 to 100 characters.
    #[schemars(length(min = 1, max = 100), example = &"Shop integration")]
    #[garde(required)]
    name: Option<String>,
}

/// A new API key, including the complete key.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CreatedApiKey<'a> {
    /// The key's id.
    id: ApiKeyId,
    /// The key's name.
    #[schemars(example = &"Shop integration")]
    name: &'a str,
    /// The first 12 characters of the key, which are the same for every key.
    #[schemars(example = &"svc_live_sk_")]
    key_prefix: &'a str,
    /// The last four characters of the key, which distinguish keys.
    #[schemars(example = &"x9Qa")]
    key_hint: &'a str,
    /// The complete key. Store it now: no later response contains it.
    #[schemars(example = &"svc_live_sk_h2Vd0m3yTq8sLw5bKcR7nZpXfEjUx9Qa")]
    full_key: &'a str,
    /// The time at which the key was created.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    created_at: OffsetDateTime,
}

impl<'a> From<&'a NewApiKey> for CreatedApiKey<'a> {
    fn from(NewApiKey { key, full_key }: &'a NewApiKey) -> Self {
        Self {
            id: key.id,
            name: &key.name,
            key_prefix: &key.key_prefix,
            key_hint: &key.key_hint,
            full_key: full_key.expose_secret(),
            created_at: key.created_at,
        }
    }
}

/// `GET /api/api-keys`
pub(super) async fn list(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.api_keys.list(&tenant).await?))
}

/// `POST /api/api-keys`
pub(super) async fn create(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<NewKey>,
) -> Result<HttpResponse, ApiError> {
    let created = services
        .api_keys
        .create(&tenant, &input.name.unwrap_or_default())
        .await?;
    Ok(responses::created(CreatedApiKey::from(&created)))
}

/// `DELETE /api/api-keys/<id>`
pub(super) async fn delete(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ApiKeyId>,
) -> Result<HttpResponse, ApiError> {
    services.api_keys.delete(&tenant, id).await?;
    Ok(responses::no_content())
}
