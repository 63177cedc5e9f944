//! Routes of webhooks: endpoints, secrets, logs, the event feed and redelivery.

use std::borrow::Cow;
use std::fmt;

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use garde::Validate;
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{WebhookEventId, WebhookId, WebhookKind, WebhookLogId, timestamp};
use recado_domain::webhooks::{
    Direction, FeedQuery, InboundCall, LogQuery, LogStatus, NewWebhook, Webhook, WebhookInput,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::ExposeSecret as _;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::ApiError;
use crate::web::body::{Json, JsonChange, PatchFields};
use crate::web::extractors::{Authenticated, Id, TenantContext, nullable};
use crate::web::parameters::{EnumParam, IntegerParam};
use crate::web::query::Params;
use crate::web::responses;
use crate::wiring::Services;

pub(crate) const DIRECTION: EnumParam<Direction> = EnumParam {
    name: "direction",
    description: "Only logs of this direction.",
    accepted: "inbound or outbound",
    example: Some(Direction::Outbound),
};

pub(crate) const LOG_STATUS: EnumParam<LogStatus> = EnumParam {
    name: "status",
    description: "`success`: response status 200 to 299; `failed`: status 400 or above, or no response.",
    accepted: "success or failed",
    example: Some(LogStatus::Failed),
};

pub(crate) const EVENT_TYPE: EnumParam<WebhookKind> = EnumParam {
    name: "type",
    description: "Only events of this type.",
    accepted: "an event type",
    example: Some(WebhookKind::MessageReceived),
};

/// Default and maximum number of log entries.
pub(crate) const LOG_LIMIT: IntegerParam = IntegerParam::limit(50, 100);

/// The fields of a webhook endpoint.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
pub(crate) struct WebhookBody {
    /// The endpoint's name: 1 to 100 characters.
    #[schemars(length(min = 1, max = 100), example = &"CRM")]
    name: Option<String>,
    /// The endpoint's `https` URL: at most 2048 characters, reachable from the internet. Required for an outbound
    /// endpoint. An inbound endpoint can have a URL, but nothing is delivered to it.
    #[schemars(length(max = 2048), example = "https://crm.example/recado")]
    #[serde(default, deserialize_with = "nullable")]
    url: Option<Option<String>>,
    /// The event types that are delivered to the endpoint: 1 to 50 types, or `*` for all. Required for an outbound
    /// endpoint; an inbound endpoint has `*` if absent.
    #[schemars(example = ["message.received", "campaign.finished"])]
    events: Option<Kinds>,
    /// `outbound` (Recado calls the URL) or `inbound` (other systems call Recado); `outbound` if absent. It cannot be
    /// changed later.
    #[schemars(with = "Option<Direction>")]
    direction: Option<String>,
    /// Whether the endpoint is active; true if absent.
    #[schemars(example = true)]
    is_active: Option<bool>,
}

impl PatchFields for WebhookBody {
    const NEVER_NULL: &'static [&'static str] = &["name", "events", "direction", "is_active"];
}

impl From<WebhookBody> for WebhookInput {
    fn from(body: WebhookBody) -> Self {
        Self {
            name: body.name,
            url: body.url,
            events: body.events.map(|Kinds(events)| events),
            direction: body.direction,
            is_active: body.is_active,
        }
    }
}

/// A list of event types, a single event type, or `*`.
pub(crate) struct Kinds(Vec<String>);

impl<'de> Deserialize<'de> for Kinds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListOrAll)
    }
}

struct ListOrAll;

impl<'de> Visitor<'de> for ListOrAll {
    type Value = Kinds;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of event types, or \"*\"")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Kinds, E> {
        match text {
            "*" => Ok(Kinds(vec![text.to_owned()])),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Kinds, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(items)).map(Kinds)
    }
}

impl JsonSchema for Kinds {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "WebhookKinds".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["array", "string"], "items": { "type": "string" }, "minItems": 1, "maxItems": 50,
            "pattern": r"^\*$",
        })
    }
}

/// The start of a recovery.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
pub(crate) struct RecoverBody {
    /// Redelivers events since this time. It must not be in the future. Events older than 30 days are not available.
    #[schemars(required, with = "Timestamp")]
    #[serde(default, with = "timestamp::option")]
    since: Option<OffsetDateTime>,
}

/// An endpoint with its secrets, which no other response contains.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WebhookWithSecret {
    /// The endpoint.
    #[serde(flatten)]
    webhook: Webhook,
    /// The endpoint's secret: 32 bytes in hexadecimal.
    #[schemars(example = "8f0c2d4e6a8b0c1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f60718293a4b5c6d79f3a")]
    secret: String,
    /// The same secret in the format of Standard Webhooks libraries: `whsec_` and base64.
    #[schemars(example = "whsec_jwwtTmqLDB0uP0pbbH2OnwobLD1OX2BxgpOktcbXnzo=")]
    signing_secret: String,
}

/// A queued delivery.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeliveryQueued {
    /// The `webhook-id` of the delivery.
    message_id: WebhookEventId,
}

/// The queued deliveries of a recovery.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RecoveryQueued {
    /// The number of queued deliveries.
    #[schemars(example = 12)]
    queued: i64,
}

/// The receipt of an inbound call.
#[derive(Serialize, JsonSchema)]
pub(crate) struct InboundReceipt {
    /// Always true.
    #[schemars(example = true)]
    received: bool,
}

impl From<NewWebhook> for WebhookWithSecret {
    fn from(created: NewWebhook) -> Self {
        Self {
            secret: created.secret.expose_secret().to_owned(),
            signing_secret: created.signing_secret.expose_secret().to_owned(),
            webhook: created.webhook,
        }
    }
}

/// `GET /api/webhooks`
pub(super) async fn list(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let page = params.page();
    params.check()?;
    Ok(responses::wrapped_page(services.webhooks.page(&tenant, page).await?))
}

/// `POST /api/webhooks`
pub(super) async fn create(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<WebhookBody>,
) -> Result<HttpResponse, ApiError> {
    let created = services.webhooks.create(&tenant, body.into()).await?;
    Ok(responses::created(WebhookWithSecret::from(created)))
}

/// `GET /api/webhooks/<id>`
pub(super) async fn get(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<WebhookId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.webhooks.get(&tenant, id).await?))
}

/// `PUT /api/webhooks/<id>`
pub(super) async fn update(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<WebhookId>,
    JsonChange(body): JsonChange<WebhookBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.webhooks.update(&tenant, id, body.into()).await?))
}

/// `DELETE /api/webhooks/<id>`
pub(super) async fn delete(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<WebhookId>,
) -> Result<HttpResponse, ApiError> {
    services.webhooks.delete(&tenant, id).await?;
    Ok(responses::no_content())
}

/// `POST /api/webhooks/<id>/rotate-secret`
pub(super) async fn rotate_secret(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<WebhookId>,
) -> Result<HttpResponse, ApiError> {
    let created = services.webhooks.rotate_secret(&tenant, id).await?;
    Ok(responses::ok(WebhookWithSecret::from(created)))
}

/// `POST /api/webhooks/<id>/test`
pub(super) async fn test(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<WebhookId>,
) -> Result<HttpResponse, ApiError> {
    let event = services.webhooks.test(&tenant, id).await?;
    services.shared.relays.wake_deliverer();
    Ok(responses::accepted(DeliveryQueued { message_id: event }))
}

/// `POST /api/webhooks/<id>/recover`
pub(super) async fn recover(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<WebhookId>,
    Json(body): Json<RecoverBody>,
) -> Result<HttpResponse, ApiError> {
    let queued = services.webhooks.recover(&tenant, id, body.since).await?;
    services.shared.relays.wake_deliverer();
    Ok(responses::accepted(RecoveryQueued { queued }))
}

/// `GET /api/webhooks/logs`
pub(super) async fn logs(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let query = LogQuery {
        direction: params.one_of(&DIRECTION),
        status: params.one_of(&LOG_STATUS),
        endpoint_id: params.id("endpoint_id"),
        event_type: params.text("event_type"),
        limit: params.page_of(&LOG_LIMIT).limit(),
    };
    params.check()?;
    Ok(responses::ok(services.webhooks.logs(&tenant, &query).await?))
}

/// `POST /api/webhooks/logs/<id>/redeliver`
pub(super) async fn redeliver(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<WebhookLogId>,
) -> Result<HttpResponse, ApiError> {
    let event = services.webhooks.redeliver(&tenant, id).await?;
    services.shared.relays.wake_deliverer();
    Ok(responses::accepted(DeliveryQueued { message_id: event }))
}

/// `GET /api/webhooks/events`
pub(super) async fn events(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let page = params.cursor_query::<Uuid>();
    let kind = params.one_of(&EVENT_TYPE);
    let query = FeedQuery {
        after: page.cursor.map(Into::into),
        kind: kind.map(|kind| kind.as_str().to_owned()),
        limit: page.limit,
    };
    params.check()?;
    Ok(responses::ok(services.webhooks.feed(&tenant, &query).await?))
}

/// `POST /api/hooks/<id>`: called by another system, authenticated by a signature with the endpoint's secret.
pub(super) async fn receive(
    services: Data<Services>,
    Id(id): Id<WebhookId>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let headers = ["webhook-id", "webhook-timestamp", "webhook-signature"].map(header);
    let endpoint = services.inbound.open(id, headers).await?;
    let memory = &services.shared.callback_memory;
    let body = memory.read(&request, payload.into_inner()).await?;
    let call = InboundCall { headers, body: &body };
    services.inbound.receive(endpoint, call).await?;
    Ok(responses::ok(InboundReceipt { received: true }))
}
