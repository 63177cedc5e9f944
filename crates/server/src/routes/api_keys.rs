//! API keys.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::api_keys::NewApiKey;
use recado_domain::shared::{ApiKeyId, timestamp};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::reply;
use crate::web::shape::{Caller, Id, Proved};
use crate::wiring::Services;

/// Body of `POST /api/api-keys`.
#[derive(Deserialize, Validate)]
pub(super) struct NewKey {
    #[garde(required)]
    name: Option<String>,
}

/// The one answer that holds a key whole.
#[derive(Serialize)]
struct MadeKey<'a> {
    id: ApiKeyId,
    name: &'a str,
    key_prefix: &'a str,
    key_hint: &'a str,
    full_key: &'a str,
    #[serde(with = "timestamp")]
    created_at: OffsetDateTime,
}

impl<'a> From<&'a NewApiKey> for MadeKey<'a> {
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
pub(super) async fn list(services: Data<Services>, Proved(tenant): Caller) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.api_keys.list(&tenant).await?))
}

/// `POST /api/api-keys`
pub(super) async fn create(
    services: Data<Services>,
    Proved(tenant): Caller,
    Json(input): Json<NewKey>,
) -> Result<HttpResponse, ApiError> {
    let made = services
        .api_keys
        .create(&tenant, &input.name.unwrap_or_default())
        .await?;
    Ok(reply::created(MadeKey::from(&made)))
}

/// `DELETE /api/api-keys/<id>`
pub(super) async fn delete(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<ApiKeyId>,
) -> Result<HttpResponse, ApiError> {
    services.api_keys.delete(&tenant, id).await?;
    Ok(reply::gone())
}
