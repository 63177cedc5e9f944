//! Routes of the settings of an account.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::settings::{
    AccountSettings, CostAlert, LatePolicy, MarketingCap, QuietHours, Settings, SettingsInput,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, TenantContext, nullable};
use crate::web::operation::{Body, OpenApiTag, Operation, data};
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Settings",
    description: "What an account sets for all its messages: its time zone, when and how often contacts are written to, \
                  its opt-out words, and the costs that it is warned about.",
};

/// The settings of an account. An absent field is not changed; null restores the default of a field.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
struct SettingsBody {
    /// The account's time zone, by its IANA name. Default: `UTC`.
    #[schemars(example = &"America/Sao_Paulo")]
    #[serde(default, deserialize_with = "nullable")]
    timezone: Option<Option<String>>,
    /// The hours in which no message of the categories starts. Default: null, none.
    #[serde(default, deserialize_with = "nullable")]
    quiet_hours: Option<Option<QuietHours>>,
    /// The most marketing messages to one contact. Default: null, no limit.
    #[serde(default, deserialize_with = "nullable")]
    max_marketing_per_contact: Option<Option<MarketingCap>>,
    /// How many hours after it was due a message is held at most. Default: 48.
    #[schemars(range(min = 1, max = 168), example = 24)]
    #[serde(default, deserialize_with = "nullable")]
    hold_at_most_hours: Option<Option<i64>>,
    /// Words that opt a contact out if its whole message is one of them, in any case, beside `SAIR`, `PARAR` and `STOP`.
    /// Default: none.
    #[schemars(length(max = 50), inner(length(min = 1, max = 40)), example = ["cancelar", "não quero"])]
    #[serde(default, deserialize_with = "nullable")]
    opt_out_words: Option<Option<Vec<String>>>,
    /// The reply to a contact that opts out by a word, inside the customer service window. Default: null, no reply.
    #[schemars(length(min = 1, max = 1024), example = &"Pronto! Você não receberá mais mensagens.")]
    #[serde(default, deserialize_with = "nullable")]
    opt_out_reply: Option<Option<String>>,
    /// What happens to scheduled campaigns that start late, if their schedule does not say it. Default: null, they are
    /// sent.
    #[serde(default, deserialize_with = "nullable")]
    late_policy: Option<Option<LatePolicy>>,
    /// The amounts of message costs in a calendar month that the account is warned about. Default: none.
    #[schemars(length(max = 20))]
    #[serde(default, deserialize_with = "nullable")]
    cost_alerts: Option<Option<Vec<CostAlert>>>,
}

impl From<SettingsBody> for SettingsInput {
    fn from(body: SettingsBody) -> Self {
        Self {
            timezone: body.timezone,
            quiet_hours: body.quiet_hours,
            max_marketing_per_contact: body.max_marketing_per_contact,
            hold_at_most_hours: body.hold_at_most_hours,
            opt_out_words: body.opt_out_words,
            opt_out_reply: body.opt_out_reply,
            late_policy: body.late_policy,
            cost_alerts: body.cost_alerts,
        }
    }
}

response_type! {
    /// The settings of an account. A field that was never set has its default.
    #[schemars(rename = "AccountSettings")]
    struct SettingsResponse from settings: AccountSettings {
        /// The account's time zone, by its IANA name.
        #[schemars(example = &"America/Sao_Paulo")]
        timezone: String = settings.timezone.to_string(),
        /// The hours in which no message of the categories starts. Null: none.
        quiet_hours: Option<QuietHours>,
        /// The most marketing messages to one contact. Null: no limit.
        max_marketing_per_contact: Option<MarketingCap>,
        /// How many hours after it was due a message is held at most.
        #[schemars(example = 48)]
        hold_at_most_hours: u16,
        /// Words that opt a contact out, beside `SAIR`, `PARAR` and `STOP`.
        #[schemars(example = ["cancelar", "não quero"])]
        opt_out_words: Vec<String>,
        /// The reply to a contact that opts out by a word. Null: none.
        #[schemars(example = &"Pronto! Você não receberá mais mensagens.")]
        opt_out_reply: Option<String>,
        /// What happens to scheduled campaigns that start late, if their schedule does not say it. Null: they are sent.
        late_policy: Option<LatePolicy>,
        /// The amounts of message costs in a calendar month that the account is warned about.
        cost_alerts: Vec<CostAlert>,
    }
}

/// `GET /api/settings`
async fn get(settings: Data<Settings>, Authenticated(tenant): TenantContext) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(SettingsResponse::from(settings.get(&tenant).await?)))
}

pub(super) const GET: Endpoint = endpoint!(get, {
    Operation::new(
        "Get the settings",
        "Returns the account's settings, with the default of every field that was never set.",
    )
    .responds(data::<SettingsResponse>("All settings."))
});

/// `PUT /api/settings`
async fn update(
    settings: Data<Settings>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<SettingsBody>,
) -> Result<HttpResponse, ApiError> {
    let settings = settings.update(&tenant, body.into()).await?;
    Ok(responses::ok(SettingsResponse::from(settings)))
}

pub(super) const UPDATE: Endpoint = endpoint!(update, {
    let description = "Updates the given fields: absent fields do not change, and null restores the default of a field. \
                `quiet_hours`, `opt_out_words` and `cost_alerts` are replaced as a whole. Opt-out words act from the next \
                message on, never backward.";
    let example = json!({
        "timezone": "America/Sao_Paulo",
        "quiet_hours": { "from": "21:00", "to": "08:00", "zone": "contact" },
        "max_marketing_per_contact": { "n": 4, "days": 7 },
        "opt_out_words": ["cancelar"],
        "opt_out_reply": "Pronto! Você não receberá mais mensagens.",
        "late_policy": { "within": 3600, "else": "skip" },
        "cost_alerts": [{ "amount": 100, "currency": "USD" }],
        "hold_at_most_hours": null,
    });
    Operation::new("Update the settings", description)
        .body(Body::json::<SettingsBody>().example(example))
        .responds(data::<SettingsResponse>("All settings after the update."))
});
