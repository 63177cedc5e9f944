//! API keys.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use garde::Validate;
use recado_domain::api_keys::{ApiKey, ApiKeyInput, ApiKeys, NewApiKey};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{ApiKeyId, KeyScopes, UserId, timestamp};
use schemars::JsonSchema;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use time::OffsetDateTime;

use crate::error::{ApiError, ErrorCode};
use crate::web::body::{Json, JsonChange, MaybeJson, PatchFields};
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::operation::{Body, OpenApiTag, Operation, created, data, no_content, path_id};
use crate::web::responses::response_type;
use crate::web::route::{Endpoint, endpoint};
use crate::web::{idempotency, responses};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "API keys",
    description: "Keys that give programs access to the account: the role `member`, or the part of it that the key's \
        `scopes` name. `x-scope` of an operation is the scope that a key needs for it; without that scope the response \
        is 403, and `details.required_scope` names it. A key that has expired, or whose `allowed_cidrs` do not \
        contain the client address, gets the 401 of an unknown key. Changes act on requests that begin a second later.",
};

/// The fields of an API key that a caller sets.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
struct NewKey {
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
struct RotateBody {
    /// How many hours the current secret still works: 0 to 168.
    #[schemars(range(min = 0, max = 168), extend("default" = 24), example = 48)]
    grace_hours: Option<i64>,
}

/// An API key with its complete secret, which no later response contains.
#[derive(Serialize, JsonSchema)]
struct CreatedApiKey {
    /// The key.
    #[serde(flatten)]
    key: ApiKeyResponse,
    /// The complete key. Store it now: no later response contains it.
    #[schemars(example = &"svc_live_sk_h2Vd0m3yTq8sLw5bKcR7nZpXfEjUx9Qa")]
    full_key: String,
}

impl From<NewApiKey> for CreatedApiKey {
    fn from(NewApiKey { key, full_key }: NewApiKey) -> Self {
        Self {
            key: key.into(),
            full_key: full_key.expose_secret().to_owned(),
        }
    }
}

response_type! {
    /// An API key. The key itself is not stored, so it cannot be read again.
    #[schemars(rename = "ApiKey")]
    struct ApiKeyResponse from api_key: ApiKey {
        /// Id of the key.
        id: ApiKeyId,
        /// Name that the creator gave the key, 1 to 100 characters.
        #[schemars(example = &"Shop integration")]
        name: String,
        /// First 12 characters of the key; the same for every key.
        #[schemars(example = &"svc_live_sk_")]
        key_prefix: String,
        /// Last four characters of the key, to distinguish keys.
        #[schemars(example = &"x9Qa")]
        key_hint: String,
        /// The part of a member's rights that the key has: `*` (all), `<area>:<verb>`, or `trigger:<template id>`.
        #[schemars(with = "Vec<String>", length(min = 1, max = 50), example = ["contacts:read", "ingest:write"])]
        scopes: KeyScopes,
        /// When the key ends; null if it does not.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        expires_at: Option<OffsetDateTime>,
        /// Networks from which the key may be used; empty for all.
        #[schemars(length(max = 50), example = ["203.0.113.0/24"])]
        allowed_cidrs: Vec<String> = api_key.allowed_cidrs.iter().map(ToString::to_string).collect(),
        /// Id of the user who created the key.
        created_by: UserId,
        /// When the key was last used, accurate to the minute; null if never.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        last_used_at: Option<OffsetDateTime>,
        /// Client address of that use; null if unknown, and for callers who are neither owner nor admin.
        #[schemars(example = &"203.0.113.7")]
        last_used_ip: Option<String>,
        /// When the key last got a new secret; null if never.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        rotated_at: Option<OffsetDateTime>,
        /// Until when the secret before the last rotation works; null if the key was never rotated.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        previous_valid_until: Option<OffsetDateTime>,
        /// When the key was created.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
    }
}

/// `GET /api/api-keys`
async fn list(api_keys: Data<ApiKeys>, Authenticated(tenant): TenantContext) -> Result<HttpResponse, ApiError> {
    let keys = api_keys.list(&tenant).await?.into_iter();
    Ok(responses::ok(keys.map(ApiKeyResponse::from).collect::<Vec<_>>()))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new(
        "List API keys",
        "Returns the account's keys without their secret part, newest first.",
    )
    .responds(data::<Vec<ApiKeyResponse>>("The keys."))
});

/// `POST /api/api-keys`
async fn create(
    api_keys: Data<ApiKeys>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<NewKey>,
) -> Result<HttpResponse, ApiError> {
    let created = api_keys.create(&tenant, input.into()).await?;
    Ok(responses::created(CreatedApiKey::from(created)))
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    Operation::new(
        "Create an API key",
        "Creates a key. Only this response contains the complete key; it is not stored. A key without `scopes`, \
         `expires_at` and `allowed_cidrs` has every right of a member, from everywhere, without an end. A notification \
         names who created it.",
    )
    .body(Body::json_with::<NewKey>(&["name"]))
    .responds(created::<CreatedApiKey>("The new key, with the complete key."))
    .refuses(ErrorCode::Invalid, "The account has reached its limit of API keys.")
    .refuses(
        ErrorCode::Invalid,
        "A scope names a template that the account does not have.",
    )
});

/// `PUT /api/api-keys/<id>`
async fn update(
    api_keys: Data<ApiKeys>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ApiKeyId>,
    JsonChange(input): JsonChange<NewKey>,
) -> Result<HttpResponse, ApiError> {
    let key = api_keys.update(&tenant, id, input.into()).await?;
    Ok(responses::ok(ApiKeyResponse::from(key)))
}

pub(super) const UPDATE: Endpoint = endpoint!(update, {
    Operation::new(
        "Update an API key",
        "Changes name, scopes, expiry or networks of a key. Absent fields keep their value, and the secret stays the \
         same. An `expires_at` in the future makes an expired key work again.",
    )
    .takes(path_id("The key's id."))
    .body(Body::change::<NewKey>().example(json!({ "scopes": ["contacts:read"], "allowed_cidrs": ["203.0.113.0/24"] })))
    .responds(data::<ApiKeyResponse>("The changed key."))
    .refuses(ErrorCode::Conflict, "Other requests keep changing the key.")
    .refuses(
        ErrorCode::Invalid,
        "A scope names a template that the account does not have.",
    )
});

/// `POST /api/api-keys/<id>/rotate`
async fn rotate(
    api_keys: Data<ApiKeys>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ApiKeyId>,
    MaybeJson(body): MaybeJson<RotateBody>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let repeated = idempotency::key_hash(&request);
    let rotated = api_keys.rotate(&tenant, id, body.grace_hours, repeated).await?;
    Ok(responses::ok(CreatedApiKey::from(rotated)))
}

pub(super) const ROTATE: Endpoint = endpoint!(rotate, {
    Operation::new(
        "Rotate an API key",
        "Gives a key a new secret under the same id, name and scopes. Only this response contains the complete key. The \
         current secret works until `previous_valid_until`; an older one ends at once. The same `Idempotency-Key` \
         returns the same `full_key`.",
    )
    .takes(path_id("The key's id."))
    .body(Body::json::<RotateBody>().optional())
    .responds(data::<CreatedApiKey>("The key, with the complete new key."))
    .refuses(ErrorCode::Precondition, "The key has expired (reason `expired`).")
    .refuses(ErrorCode::Conflict, "Other requests keep changing the key.")
});

/// `DELETE /api/api-keys/<id>`
async fn delete(
    api_keys: Data<ApiKeys>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ApiKeyId>,
) -> Result<HttpResponse, ApiError> {
    api_keys.delete(&tenant, id).await?;
    Ok(responses::no_content())
}

pub(super) const DELETE: Endpoint = endpoint!(delete, {
    Operation::new(
        "Delete an API key",
        "Permanently deletes a key. Requests with it are refused immediately.",
    )
    .takes(path_id("The key's id."))
    .responds(no_content("The key is deleted."))
});
