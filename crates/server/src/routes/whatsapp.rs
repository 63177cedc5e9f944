//! Routes of WhatsApp numbers, and WhatsApp's callback.

use actix_web::http::header::ContentType;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use garde::Validate;
use recado_domain::limits::Limit;
use recado_domain::shared::{ProfileId, Tenant};
use recado_domain::whatsapp::{Profile, ProfileInput};
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::crypto::{are_equal, hmac_key, is_signed};
use crate::error::{ApiError, RefusalReason};
use crate::web::body::{Json, JsonChange, MaybeJson, PatchFields};
use crate::web::extractors::{Authenticated, Id, TenantContext, nullable};
use crate::web::parameters::BoolParam;
use crate::web::query::{CursorParams, Params};
use crate::web::responses;
use crate::wiring::Services;

pub(crate) const VERIFY: BoolParam = BoolParam {
    name: "verify",
    description: "`false`: responds without asking WhatsApp; the number is checked later.",
    default: true,
};

/// The fields of a WhatsApp number.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
pub(crate) struct ProfileBody {
    /// The account's name for the number: 1 to 100 characters.
    #[schemars(length(min = 1, max = 100), example = "Loja Exemplo")]
    name: Option<String>,
    /// WhatsApp's id of the phone number: letters, digits, `_` and `-`.
    #[schemars(length(min = 1, max = 64), example = "106540352242922")]
    phone_number_id: Option<String>,
    /// WhatsApp's id of the WhatsApp business account: letters, digits, `_` and `-`.
    #[schemars(length(min = 1, max = 64), example = "102290129340398")]
    waba_id: Option<String>,
    /// The access token for calls to WhatsApp: visible ASCII characters. It is stored encrypted and never returned.
    #[schemars(length(min = 1, max = 4096), extend("writeOnly" = true), example = &"EAAGm0PX4ZCpsBAKexample")]
    access_token: Option<String>,
    /// The number of messages per second that campaigns send from this number. Null selects the server's default.
    #[schemars(range(min = 1, max = 1000), example = 20)]
    #[serde(default, deserialize_with = "nullable")]
    messages_per_second: Option<Option<i32>>,
    /// The six digits that register the number at WhatsApp if it is not registered. They are used once and not stored.
    #[schemars(length(equal = 6), regex(pattern = "^[0-9]{6}$"), extend("writeOnly" = true), example = &"123456")]
    pin: Option<String>,
}

impl PatchFields for ProfileBody {
    const NEVER_NULL: &'static [&'static str] = &["name", "phone_number_id", "waba_id", "access_token", "pin"];
}

impl From<ProfileBody> for ProfileInput {
    fn from(body: ProfileBody) -> Self {
        Self {
            name: body.name,
            phone_number_id: body.phone_number_id,
            waba_id: body.waba_id,
            access_token: body.access_token.map(SecretString::from),
            messages_per_second: body.messages_per_second,
            pin: body.pin.map(SecretString::from),
        }
    }
}

/// `GET /api/whatsapp/profiles`
pub(super) async fn list(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    CursorParams(query): CursorParams,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.profiles.list(&tenant, &query).await?))
}

/// `GET /api/whatsapp/profiles/<id>`
pub(super) async fn get(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ProfileId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.profiles.get(&tenant, id).await?))
}

/// `POST /api/whatsapp/profiles`: stores the number, then checks it.
pub(super) async fn create(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
    Json(input): Json<ProfileBody>,
) -> Result<HttpResponse, ApiError> {
    let verifies = params.boolean(&VERIFY);
    params.check()?;
    let input = ProfileInput::from(input);
    let pin = input.pin.clone();
    let profile = services.profiles.create(&tenant, input).await?;
    let profile = match verifies {
        true => check_entered(&services, &tenant, profile, pin).await,
        false => profile,
    };
    Ok(responses::created(profile))
}

/// `PUT /api/whatsapp/profiles/<id>`: stores the changes, then checks the number if they concern its verification.
pub(super) async fn update(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ProfileId>,
    mut params: Params,
    JsonChange(input): JsonChange<ProfileBody>,
) -> Result<HttpResponse, ApiError> {
    let verifies = params.boolean(&VERIFY);
    params.check()?;
    let input = ProfileInput::from(input);
    let (pin, verifies) = (input.pin.clone(), verifies && input.has_credentials());
    let profile = services.profiles.update(&tenant, id, input).await?;
    let profile = match verifies {
        true => check_entered(&services, &tenant, profile, pin).await,
        false => profile,
    };
    Ok(responses::ok(profile))
}

/// Checks a stored number. Without an answer, or beyond the account's limit, it is returned as it was stored: a worker
/// checks it later.
async fn check_entered(services: &Services, tenant: &Tenant, stored: Profile, pin: Option<SecretString>) -> Profile {
    let key = format!("profile-check:{}", tenant.account_id);
    let decision = services.rate_limiter.hit(&key, Limit::PROFILE_CHECK).await;
    if decision.is_ok_and(|decision| !decision.allowed) {
        return stored;
    }
    let verifications = &services.verifications;
    let checked = verifications.check_entered(tenant.account_id, stored.id, pin.as_ref());
    checked.await.unwrap_or_else(|error| {
        tracing::warn!(profile = %stored.id, cause = %error, "a number was not checked, a worker will check it");
        stored
    })
}

/// The data of a verification on request.
#[derive(Default, Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
pub(crate) struct VerifyBody {
    /// The six digits that register the number at WhatsApp if it is not registered. They are used once and not stored.
    #[schemars(length(equal = 6), regex(pattern = "^[0-9]{6}$"), extend("writeOnly" = true), example = &"123456")]
    pin: Option<String>,
}

/// `POST /api/whatsapp/profiles/<id>/verify`
pub(super) async fn verify(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ProfileId>,
    MaybeJson(input): MaybeJson<VerifyBody>,
) -> Result<HttpResponse, ApiError> {
    let pin = input.pin.map(SecretString::from);
    let profile = services.verifications.verify(&tenant, id, pin.as_ref()).await?;
    Ok(responses::ok(profile))
}

/// `GET /api/whatsapp/profiles/<id>/health`
pub(super) async fn health(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ProfileId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.verifications.health(&tenant, id).await?))
}

/// `DELETE /api/whatsapp/profiles/<id>`
pub(super) async fn delete(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ProfileId>,
) -> Result<HttpResponse, ApiError> {
    services.profiles.delete(&tenant, id).await?;
    Ok(responses::no_content())
}

/// `GET /api/whatsapp/webhook`: WhatsApp verifies the callback URL with a challenge.
pub(super) async fn handshake(services: Data<Services>, params: Params) -> Result<HttpResponse, ApiError> {
    let token = params.text("hub.verify_token").unwrap_or_default();
    let expected = services.shared.config.whatsapp_verify_token.as_ref();
    let matches = expected.is_some_and(|expected| are_equal(expected.expose_secret().as_bytes(), token.as_bytes()));
    let subscribes = params.text("hub.mode").as_deref() == Some("subscribe");
    match params.text("hub.challenge") {
        Some(challenge) if matches && subscribes => Ok(HttpResponse::Ok()
            .insert_header(ContentType::plaintext())
            .body(challenge)),
        _ => Err(ApiError::denied(
            RefusalReason::CallbackToken,
            "The verify token is not valid",
        )),
    }
}

/// `POST /api/whatsapp/webhook`: stores the callback before the response and applies it immediately if possible.
pub(super) async fn callback(
    services: Data<Services>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let signature = signature(&request).ok_or_else(unsigned)?;
    let secrets = &services.shared.config.whatsapp_app_secrets;
    if secrets.is_empty() {
        return Err(unsigned());
    }
    let memory = &services.shared.callback_memory;
    let body = memory.read(&request, payload.into_inner()).await?;
    // Every secret is tried, so that the time does not tell which one fits.
    let keys = secrets.iter().map(|secret| hmac_key(secret.expose_secret().as_bytes()));
    let fits = keys.filter(|key| is_signed(key, &body, &signature));
    if fits.count() == 0 {
        return Err(unsigned());
    }
    let callback = services.callbacks.receive(&body).await?;
    if let Err(error) = services.callbacks.process(&callback).await {
        // The callback is stored: a worker retries it when the lease expires.
        tracing::warn!(cause = %error, "callback not applied, a worker will retry it");
    }
    Ok(HttpResponse::Ok().finish())
}

fn unsigned() -> ApiError {
    ApiError::auth(RefusalReason::CallbackSignature, "The signature is missing or wrong")
}

/// Parses `X-Hub-Signature-256: sha256=<hex HMAC-SHA256 of the raw body>`; `None` if the header is malformed.
fn signature(request: &HttpRequest) -> Option<[u8; 32]> {
    let header = request.headers().get("x-hub-signature-256")?.to_str().ok()?;
    hex::decode(header.strip_prefix("sha256=")?).ok()?.try_into().ok()
}
