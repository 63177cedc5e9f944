//! Routes of WhatsApp numbers, and WhatsApp's callback.

mod health;

use actix_web::http::header::ContentType;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use garde::Validate;
use recado_domain::callbacks::Callbacks;
use recado_domain::limits::{Limit, RateLimiter};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{CursorPage, ProfileId, Tenant, timestamp};
use recado_domain::whatsapp::verification::{
    Check, CheckName, CheckState, NumberFacts, Verification, VerificationState, Verifications,
};
use recado_domain::whatsapp::{Profile, ProfileInput, Profiles};
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;
use time::OffsetDateTime;

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
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};
pub(super) use health::HEALTH;

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

response_type! {
    /// A connected WhatsApp number. The API never returns its access token.
    #[schemars(rename = "Profile")]
    struct ProfileResponse from profile: Profile {
        /// The profile's id.
        id: ProfileId,
        /// The account's own name for the number: 1 to 100 characters.
        #[schemars(example = "Loja Exemplo")]
        name: String,
        /// WhatsApp's id of the number.
        #[schemars(example = "106540352242922")]
        phone_number_id: String,
        /// WhatsApp's id of the business account.
        #[schemars(example = "102290129340398")]
        waba_id: String,
        /// How many messages per second campaigns send from the number: 1 to 1000. Null: the server's default interval
        /// between two messages applies.
        #[schemars(range(min = 1, max = 1000), example = 20)]
        messages_per_second: Option<i32>,
        /// When the number was connected.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
        /// When the profile was last changed.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        updated_at: OffsetDateTime,
        /// Whether WhatsApp has confirmed the number with the profile's token. Only a verified number sends and
        /// receives.
        verification: VerificationResponse,
        /// What WhatsApp says about the number.
        number: NumberResponse,
    }
}

response_type! {
    /// The verification of a number.
    #[schemars(rename = "Verification")]
    struct VerificationResponse from verification: Verification {
        /// `pending` until WhatsApp was asked, then `verified` or `failed`. Only verified numbers send and receive.
        state: VerificationState,
        /// When the checks were last finished. Null before the first time.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        checked_at: Option<OffsetDateTime>,
        /// When the checks run again. Null if they do not run again by themselves.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        next_check_at: Option<OffsetDateTime>,
        /// The checks in their order. Empty before the first time.
        checks: Vec<CheckResponse> = verification.checks.into_iter().map(CheckResponse::from).collect(),
    }
}

response_type! {
    /// A check of a number.
    #[schemars(rename = "Check")]
    struct CheckResponse from check: Check {
        /// What was checked.
        name: CheckName,
        /// The outcome.
        state: CheckState,
        /// What was found: at most 300 characters. Null if there is nothing to say.
        #[schemars(example = &"WhatsApp refused the token (code 190)")]
        found: Option<String>,
        /// What to do: at most 300 characters. Null if there is nothing to do.
        #[schemars(example = &"Enter a new access token.")]
        remedy: Option<String>,
    }
}

response_type! {
    /// WhatsApp's values of a number. Each is null until it was read. Unknown words of WhatsApp are in lower case.
    #[schemars(rename = "NumberFacts")]
    struct NumberResponse from facts: NumberFacts {
        /// The phone number as WhatsApp shows it.
        #[schemars(example = &"+1 631-555-5555")]
        display_phone_number: Option<String>,
        /// The name that contacts see.
        #[schemars(example = &"Jasper's Market")]
        verified_name: Option<String>,
        /// WhatsApp's review of the name, for example `approved`.
        #[schemars(example = &"approved")]
        name_status: Option<String>,
        /// WhatsApp's status of the number, for example `connected`.
        #[schemars(example = &"connected")]
        status: Option<String>,
        /// `green`, `yellow`, `red` or `unknown`.
        #[schemars(example = &"green")]
        quality_rating: Option<String>,
        /// `standard`, `high` or `not_applicable`.
        #[schemars(example = &"standard")]
        throughput: Option<String>,
        /// How many messages a second WhatsApp accepts from the number.
        #[schemars(example = &80)]
        max_messages_per_second: Option<i32>,
        /// How many people the business may start conversations with in 24 hours; -1 is unlimited.
        #[schemars(example = &2000)]
        messaging_limit: Option<i64>,
        /// Whether the number is also used in the WhatsApp Business app.
        on_business_app: Option<bool>,
        /// WhatsApp's id of the business portfolio.
        #[schemars(example = &"506914307656634")]
        portfolio_id: Option<String>,
    }
}

/// `GET /api/whatsapp/profiles`
async fn list(
    profiles: Data<Profiles>,
    Authenticated(tenant): TenantContext,
    CursorParams(query): CursorParams,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(
        profiles.list(&tenant, &query).await?.map(ProfileResponse::from),
    ))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new(
        "List WhatsApp numbers",
        "Returns the connected numbers without their access tokens, newest first.",
    )
    .takes_all(cursor_page())
    .responds(data::<CursorPage<ProfileResponse>>(
        "A page of numbers and its `nextCursor`.",
    ))
});

/// `GET /api/whatsapp/profiles/<id>`
async fn get(
    profiles: Data<Profiles>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ProfileId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(ProfileResponse::from(profiles.get(&tenant, id).await?)))
}

pub(super) const GET: Endpoint = endpoint!(get, {
    Operation::new(
        "Get a WhatsApp number",
        "Returns one connected number without its access token.",
    )
    .takes(path_id(ID))
    .responds(data::<ProfileResponse>("The number."))
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
    Ok(responses::created(ProfileResponse::from(profile)))
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
        .responds(created::<ProfileResponse>("The connected number."))
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
    Ok(responses::ok(ProfileResponse::from(profile)))
}

pub(super) const UPDATE: Endpoint = endpoint!(update, {
    let description = "Updates a connected number: absent fields do not change; null clears `messages_per_second`. With \
                `phone_number_id`, `waba_id`, `access_token` or `pin` the number becomes `pending`, and WhatsApp is \
                asked as when a number is connected.";
    Operation::new("Update a WhatsApp number", description)
        .takes(path_id(ID))
        .takes(&VERIFY_NUMBER)
        .body(Body::change::<ProfileBody>().example(json!({ "name": "Loja Centro", "messages_per_second": null })))
        .responds(
            data::<ProfileResponse>("The updated number.")
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
    Ok(responses::ok(ProfileResponse::from(profile)))
}

pub(super) const VERIFY: Endpoint = endpoint!(verify, {
    let description = "Asks WhatsApp all checks of a number now. A PIN registers the number if it is not registered.";
    Operation::new("Verify a WhatsApp number", description)
        .takes(path_id(ID))
        .body(Body::json::<VerifyBody>().optional())
        .responds(data::<ProfileResponse>("The number with its checks."))
        .refuses(
            ErrorCode::Whatsapp,
            "WhatsApp could not be asked; nothing changed. `details.checks` lists the checks.",
        )
        .refuses(
            ErrorCode::Conflict,
            "Other requests are changing the number. Try again.",
        )
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
