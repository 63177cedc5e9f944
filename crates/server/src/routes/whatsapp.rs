//! Routes of WhatsApp numbers, and WhatsApp's callback.

use actix_web::http::header::ContentType;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use garde::Validate;
use recado_domain::callbacks::Callbacks;
use recado_domain::limits::{Limit, RateLimiter};
use recado_domain::shared::{CursorPage, ProfileId, Tenant};
use recado_domain::whatsapp::verification::{NumberHealth, Verifications};
use recado_domain::whatsapp::{Profile, ProfileInput, Profiles};
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;

use crate::error::{ApiError, ErrorCode, RefusalReason};
use crate::web::body::{Json, JsonChange, MaybeJson, PatchFields};
use crate::web::callback::CallbackMemory;
use crate::web::callback_secrets::WhatsappCallbackSecrets;
use crate::web::extractors::{Authenticated, Id, TenantContext, nullable};
use crate::web::operation::{
    Body, OpenApiTag, Operation, created, cursor_page, custom, data, empty, no_content, path_id, text,
};
use crate::web::parameters::{BoolParam, TextParam};
use crate::web::query::{CursorParams, Params};
use crate::web::responses;
use crate::web::route::{Endpoint, endpoint};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "WhatsApp",
    description: "WhatsApp numbers of an account, and the callback of WhatsApp.",
};

const ID: &str = "The profile's id.";

const TAKEN: &str = "The number is already connected.";

const VERIFY_NUMBER: BoolParam = BoolParam {
    name: "verify",
    description: "`false`: responds without asking WhatsApp; the number is checked later.",
    default: true,
};

/// The fields of a WhatsApp number.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
struct ProfileBody {
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
async fn list(
    profiles: Data<Profiles>,
    Authenticated(tenant): TenantContext,
    CursorParams(query): CursorParams,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(profiles.list(&tenant, &query).await?))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new(
        "List WhatsApp numbers",
        "Returns the connected numbers without their access tokens, newest first.",
    )
    .takes_all(cursor_page())
    .responds(data::<CursorPage<Profile>>("A page of numbers and its `nextCursor`."))
});

/// `GET /api/whatsapp/profiles/<id>`
async fn get(
    profiles: Data<Profiles>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ProfileId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(profiles.get(&tenant, id).await?))
}

pub(super) const GET: Endpoint = endpoint!(get, {
    Operation::new(
        "Get a WhatsApp number",
        "Returns one connected number without its access token.",
    )
    .takes(path_id(ID))
    .responds(data::<Profile>("The number."))
});

/// `POST /api/whatsapp/profiles`: stores the number, then checks it.
async fn create(
    profiles: Data<Profiles>,
    verifications: Data<Verifications>,
    rate_limiter: Data<dyn RateLimiter>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
    Json(input): Json<ProfileBody>,
) -> Result<HttpResponse, ApiError> {
    let verifies = params.boolean(&VERIFY_NUMBER);
    params.check()?;
    let input = ProfileInput::from(input);
    let pin = input.pin.clone();
    let profile = profiles.create(&tenant, input).await?;
    let profile = match verifies {
        true => check_entered(&verifications, rate_limiter.as_ref(), &tenant, profile, pin).await,
        false => profile,
    };
    Ok(responses::created(profile))
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    let description = "Connects a number, and asks WhatsApp with its token whether the number is the account's: for at \
                most 8 seconds, and at most 30 times a minute for each account. Read `verification` of the response: a \
                wrong token is no error. If WhatsApp does not answer, the number is `pending` and is checked again. The \
                verified number that was connected first is the account's default.";
    Operation::new("Connect a WhatsApp number", description)
        .takes(&VERIFY_NUMBER)
        .body(Body::json_with::<ProfileBody>(&[
            "name",
            "phone_number_id",
            "waba_id",
            "access_token",
        ]))
        .responds(created::<Profile>("The connected number."))
        .refuses(ErrorCode::Invalid, TAKEN)
});

/// `PUT /api/whatsapp/profiles/<id>`: stores the changes, then checks the number if they concern its verification.
async fn update(
    profiles: Data<Profiles>,
    verifications: Data<Verifications>,
    rate_limiter: Data<dyn RateLimiter>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ProfileId>,
    mut params: Params,
    JsonChange(input): JsonChange<ProfileBody>,
) -> Result<HttpResponse, ApiError> {
    let verifies = params.boolean(&VERIFY_NUMBER);
    params.check()?;
    let input = ProfileInput::from(input);
    let (pin, verifies) = (input.pin.clone(), verifies && input.has_credentials());
    let profile = profiles.update(&tenant, id, input).await?;
    let profile = match verifies {
        true => check_entered(&verifications, rate_limiter.as_ref(), &tenant, profile, pin).await,
        false => profile,
    };
    Ok(responses::ok(profile))
}

pub(super) const UPDATE: Endpoint = endpoint!(update, {
    let description = "Updates a connected number: absent fields are kept; null clears `messages_per_second`. With \
                `phone_number_id`, `waba_id`, `access_token` or `pin` the number becomes `pending`, and WhatsApp is \
                asked as when a number is connected.";
    Operation::new("Update a WhatsApp number", description)
        .takes(path_id(ID))
        .takes(&VERIFY_NUMBER)
        .body(Body::change::<ProfileBody>().example(json!({ "name": "Loja Centro", "messages_per_second": null })))
        .responds(
            data::<Profile>("The updated number.")
                .example(json!({ "name": "Loja Centro", "messages_per_second": null })),
        )
        .refuses(ErrorCode::Invalid, "The number is already connected.")
        .refuses(
            ErrorCode::Conflict,
            "Other requests are changing the number. Try again.",
        )
});

/// Checks a stored number. Without an answer, or beyond the account's limit, it is returned as it was stored: a worker
/// checks it later.
async fn check_entered(
    verifications: &Verifications,
    rate_limiter: &dyn RateLimiter,
    tenant: &Tenant,
    stored: Profile,
    pin: Option<SecretString>,
) -> Profile {
    let key = format!("profile-check:{}", tenant.account_id);
    let decision = rate_limiter.hit(&key, Limit::PROFILE_CHECK).await;
    if decision.is_ok_and(|decision| !decision.allowed) {
        return stored;
    }
    let checked = verifications.check_entered(tenant.account_id, stored.id, pin.as_ref());
    checked.await.unwrap_or_else(|error| {
        tracing::warn!(profile = %stored.id, cause = %error, "a number was not checked, a worker will check it");
        stored
    })
}

/// The data of a verification on request.
#[derive(Default, Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
struct VerifyBody {
    /// The six digits that register the number at WhatsApp if it is not registered. They are used once and not stored.
    #[schemars(length(equal = 6), regex(pattern = "^[0-9]{6}$"), extend("writeOnly" = true), example = &"123456")]
    pin: Option<String>,
}

/// `POST /api/whatsapp/profiles/<id>/verify`
async fn verify(
    verifications: Data<Verifications>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ProfileId>,
    MaybeJson(input): MaybeJson<VerifyBody>,
) -> Result<HttpResponse, ApiError> {
    let pin = input.pin.map(SecretString::from);
    let profile = verifications.verify(&tenant, id, pin.as_ref()).await?;
    Ok(responses::ok(profile))
}

pub(super) const VERIFY: Endpoint = endpoint!(verify, {
    let description = "Asks WhatsApp all checks of a number now. A PIN registers the number if it is not registered.";
    Operation::new("Verify a WhatsApp number", description)
        .takes(path_id(ID))
        .body(Body::json::<VerifyBody>().optional())
        .responds(data::<Profile>("The number with its checks."))
        .refuses(
            ErrorCode::Whatsapp,
            "WhatsApp could not be asked; nothing changed. `details.checks` lists the checks.",
        )
        .refuses(
            ErrorCode::Conflict,
            "Other requests are changing the number. Try again.",
        )
});

/// `GET /api/whatsapp/profiles/<id>/health`
async fn health(
    verifications: Data<Verifications>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ProfileId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(verifications.health(&tenant, id).await?))
}

pub(super) const HEALTH: Endpoint = endpoint!(health, {
    let description = "Returns whether WhatsApp lets a number send, and what it did last. WhatsApp is asked at most once \
                a minute for each number. If it cannot be asked, the last answer is returned with `stale`.";
    Operation::new("Get the health of a WhatsApp number", description)
        .takes(path_id(ID))
        .responds(data::<NumberHealth>("The health of the number."))
});

/// `DELETE /api/whatsapp/profiles/<id>`
async fn delete(
    profiles: Data<Profiles>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ProfileId>,
) -> Result<HttpResponse, ApiError> {
    profiles.delete(&tenant, id).await?;
    Ok(responses::no_content())
}

pub(super) const DELETE: Endpoint = endpoint!(delete, {
    let description = "Disconnects a number and deletes its access token. Campaign runs that send from it pause.";
    Operation::new("Disconnect a WhatsApp number", description)
        .takes(path_id(ID))
        .responds(no_content("The number is disconnected."))
});

const VERIFY_TOKEN: TextParam = TextParam::new(
    "hub.verify_token",
    "The verify token that is configured at WhatsApp and on this server.",
    "verify-me",
);

const MODE: TextParam = TextParam::new("hub.mode", "Always `subscribe`.", "subscribe");

const CHALLENGE: TextParam = TextParam::new("hub.challenge", "The text to return.", "1158201444");

/// `GET /api/whatsapp/webhook`: WhatsApp verifies the callback URL with a challenge.
async fn handshake(secrets: Data<WhatsappCallbackSecrets>, params: Params) -> Result<HttpResponse, ApiError> {
    let matches = secrets.is_verify_token(params.value(VERIFY_TOKEN.name).unwrap_or_default());
    let subscribes = params.value(MODE.name) == Some("subscribe");
    match params.text(&CHALLENGE) {
        Some(challenge) if matches && subscribes => Ok(HttpResponse::Ok()
            .insert_header(ContentType::plaintext())
            .body(challenge)),
        _ => Err(ApiError::denied(
            RefusalReason::CallbackToken,
            "The verify token is not valid",
        )),
    }
}

pub(super) const HANDSHAKE: Endpoint = endpoint!(handshake, {
    let description = "Called by WhatsApp to verify the callback URL. Returns the challenge if the token matches \
                `WHATSAPP_VERIFY_TOKEN`.";
    Operation::new("Verify the callback URL", description)
        .takes(&MODE)
        .takes(&VERIFY_TOKEN)
        .takes(&CHALLENGE)
        .responds(custom("text/plain", "The challenge.", json!({ "type": "string" })).example(json!("1158201444")))
        .refuses(
            ErrorCode::Forbidden,
            "The token is wrong or not configured, or a parameter is missing.",
        )
});

/// `POST /api/whatsapp/webhook`: stores the callback before the response and applies it immediately if possible.
async fn callback(
    secrets: Data<WhatsappCallbackSecrets>,
    callback_memory: Data<CallbackMemory>,
    callbacks: Data<Callbacks>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let signature = secrets.signature_of(&request)?;
    let body = callback_memory.read(&request, payload.into_inner()).await?;
    secrets.verify(&body, &signature)?;
    let callback = callbacks.receive(&body).await?;
    if let Err(error) = callbacks.process(&callback).await {
        // The callback is stored: a worker retries it when the lease expires.
        tracing::warn!(cause = %error, "callback not applied, a worker will retry it");
    }
    Ok(HttpResponse::Ok().finish())
}

pub(super) const CALLBACK: Endpoint = endpoint!(callback, {
    let description = "Called by WhatsApp with message statuses, messages of contacts, and news of templates, numbers \
                and business accounts. It is genuine if any of the app secrets signed it. The \
                callback is stored before the response and applied once, even if WhatsApp repeats it.";
    let body = json!({ "type": "object", "additionalProperties": true });
    let example = json!({ "object": "whatsapp_business_account", "entry": [] });
    let signature = "`sha256=` and the HMAC-SHA256 of the body with the app's secret, in hexadecimal.";
    let example_signature = "sha256=b7f44c1d0c5b1fbd1ae1e4b0b0b8f3f8f0a8e4b3d2c1b0a99887766554433221";
    Operation::new("Receive a WhatsApp callback", description)
        .takes(
            text("X-Hub-Signature-256", signature)
                .in_header()
                .example(example_signature),
        )
        .body(
            Body::custom("application/json", body)
                .example(example)
                .described("A payload of the WhatsApp Cloud API, at most 4 MiB."),
        )
        .responds(empty(200, "The callback is stored."))
        .never(ErrorCode::MediaType)
        .never(ErrorCode::Invalid)
        .refuses(
            ErrorCode::Auth,
            "The signature is missing or wrong, or the app secret is not configured.",
        )
});
