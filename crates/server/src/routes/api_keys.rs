//! API keys.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use garde::Validate;
use recado_domain::api_keys::{ApiKey, ApiKeyInput, NewApiKey};
use recado_domain::shared::ApiKeyId;
use recado_domain::shared::schema::Timestamp;
use schemars::JsonSchema;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Deserializer, Serialize};
use time::OffsetDateTime;

use crate::error::ApiError;
use crate::web::body::{Json, JsonChange, MaybeJson, PatchFields};
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::{idempotency, responses};
use crate::wiring::Services;

/// The fields of an API key that a caller sets.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
pub(crate) struct NewKey {
    /// The key's name: 1 to 100 characters.
    #[schemars(length(min = 1, max = 100), example = &"Shop integration")]
    name: Option<String>,
    /// What of a member's rights the key has: `*` (all, the default), `<area>:<verb>` (`x-scope` of an operation), or
    /// `trigger:<template id>`. Scopes never add a right.
    #[schemars(length(min = 1, max = 50), example = ["contacts:read", "ingest:write"])]
    scopes: Option<Vec<String>>,
    /// When the key ends: 1 minute to 10 years ahead, and no later than the server permits. Null, or absent for a new
    /// key: it does not end, or at the latest time that the server permits.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(default, deserialize_with = "deserialize_time")]
    expires_at: Option<Option<OffsetDateTime>>,
    /// The IPv4 and IPv6 networks in which the client address must lie, in CIDR notation; empty (the default) for all.
    #[schemars(length(max = 50), example = ["203.0.113.0/24"])]
    allowed_cidrs: Option<Vec<String>>,
}

impl PatchFields for NewKey {
    const NEVER_NULL: &'static [&'static str] = &["name", "scopes", "allowed_cidrs"];
}

fn deserialize_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<OffsetDateTime>>, D::Error> {
    recado_domain::shared::timestamp::option::deserialize(deserializer).map(Some)
}

impl From<NewKey> for ApiKeyInput {
    fn from(body: NewKey) -> Self {
        Self {
            name: body.name,
            scopes: body.scopes,
            expires_at: body.expires_at,
            allowed_cidrs: body.allowed_cidrs,
        }
    }
}

/// The options of a rotation.
#[derive(Default, Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
pub(crate) struct RotateBody {
    /// How many hours the current secret still works: 0 to 168.
    #[schemars(range(min = 0, max = 168), extend("default" = 24), example = 48)]
    grace_hours: Option<i64>,
}

/// An API key with its complete secret, which no later response contains.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CreatedApiKey {
    /// The key.
    #[serde(flatten)]
    key: ApiKey,
    /// The complete key. Store it now: no later response contains it.
    #[schemars(example = &"svc_live_sk_h2Vd0m3yTq8sLw5bKcR7nZpXfEjUx9Qa")]
    full_key: String,
}

impl From<NewApiKey> for CreatedApiKey {
    fn from(NewApiKey { key, full_key }: NewApiKey) -> Self {
        Self {
            key,
            full_key: full_key.expose_secret().to_owned(),
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
    let created = services.api_keys.create(&tenant, input.into()).await?;
    Ok(responses::created(CreatedApiKey::from(created)))
}

/// `PUT /api/api-keys/<id>`
pub(super) async fn update(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ApiKeyId>,
    JsonChange(input): JsonChange<NewKey>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(
        services.api_keys.update(&tenant, id, input.into()).await?,
    ))
}

/// `POST /api/api-keys/<id>/rotate`
pub(super) async fn rotate(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ApiKeyId>,
    MaybeJson(body): MaybeJson<RotateBody>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let repeated = idempotency::key_hash(&request);
    let rotated = services
        .api_keys
        .rotate(&tenant, id, body.grace_hours, repeated)
        .await?;
    Ok(responses::ok(CreatedApiKey::from(rotated)))
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
