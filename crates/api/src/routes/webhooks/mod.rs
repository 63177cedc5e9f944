//! Routes of webhooks: endpoints, secrets, logs, event types, the event feed and redelivery.

pub(crate) mod event_types;
mod events;

use std::borrow::Cow;
use std::fmt;

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{WebhookEventId, WebhookId, timestamp};
use recado_domain::webhooks::{Direction, DisabledReason, NewWebhook, Webhook, WebhookInput, Webhooks};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::ExposeSecret as _;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::json;
use time::OffsetDateTime;

use crate::error::{ApiError, ErrorCode};
use crate::web::body::{Json, JsonChange, PatchFields};
use crate::web::extractors::{Authenticated, Id, TenantContext, nullable};
use crate::web::operation::{
    Body, OpenApiTag, Operation, created, data, data_with, no_content, numbered_page, path_id,
};
use crate::web::parameters::LIMIT;
use crate::web::query::Params;
use crate::web::responses::{self, LimitedPage, response_type};
use crate::web::route::{Endpoint, endpoint};
use crate::worker_handles::WorkerSignals;
pub(super) use event_types::EVENT_TYPES;
pub(super) use events::{EVENTS, LOGS, RECEIVE, REDELIVER};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Webhooks",
    description: "Outbound endpoints that receive events, inbound endpoints that other systems call, and their logs.",
};

const ID: &str = "The endpoint's id.";

const ADDRESS: &str = "The URL is not a public address, an event type is unknown, or the account has reached its \
                       limit of webhooks.";

const INACTIVE: &str = "The endpoint is inbound or not active.";

/// The fields of a webhook endpoint.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
struct WebhookBody {
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
struct Kinds(Vec<String>);

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
struct RecoverBody {
    /// Redelivers events since this time. It must not be in the future. Events older than 30 days are not available.
    #[schemars(required, with = "Timestamp")]
    #[serde(default, with = "timestamp::option")]
    since: Option<OffsetDateTime>,
}

/// An endpoint with its secrets, which no other response contains.
#[derive(Serialize, JsonSchema)]
struct WebhookWithSecret {
    /// The endpoint.
    #[serde(flatten)]
    webhook: WebhookResponse,
    /// The endpoint's secret: 32 bytes in hexadecimal.
    #[schemars(example = "8f0c2d4e6a8b0c1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f60718293a4b5c6d79f3a")]
    secret: String,
    /// The same secret in the format of Standard Webhooks libraries: `whsec_` and base64.
    #[schemars(example = "whsec_jwwtTmqLDB0uP0pbbH2OnwobLD1OX2BxgpOktcbXnzo=")]
    signing_secret: String,
}

/// A queued delivery.
#[derive(Serialize, JsonSchema)]
struct DeliveryQueued {
    /// The `webhook-id` of the delivery.
    message_id: WebhookEventId,
}

/// The queued deliveries of a recovery.
#[derive(Serialize, JsonSchema)]
struct RecoveryQueued {
    /// The number of queued deliveries.
    #[schemars(example = 12)]
    queued: i64,
}

impl From<NewWebhook> for WebhookWithSecret {
    fn from(created: NewWebhook) -> Self {
        Self {
            secret: created.secret.expose_secret().to_owned(),
            signing_secret: created.signing_secret.expose_secret().to_owned(),
            webhook: created.webhook.into(),
        }
    }
}

response_type! {
    /// A webhook endpoint.
    #[schemars(rename = "Webhook")]
    struct WebhookResponse from webhook: Webhook {
        /// The endpoint's id.
        id: WebhookId,
        /// The endpoint's name, chosen by the account: 1 to 100 characters.
        #[schemars(example = &"CRM")]
        name: String,
        /// The URL that deliveries call. An inbound endpoint receives no deliveries, and its URL may be null.
        #[schemars(example = "https://crm.example/recado")]
        url: Option<String>,
        /// The event types that are delivered to the endpoint, or `*` for all.
        #[schemars(example = ["message.received", "campaign.finished"])]
        events: Vec<String>,
        /// Whether Recado calls the endpoint or the account calls Recado.
        direction: Direction,
        /// Whether the endpoint is active.
        #[schemars(example = true)]
        is_active: bool,
        /// The last four characters of the endpoint's secret.
        #[schemars(example = "9f3a")]
        secret_hint: String,
        /// When Recado disabled the endpoint because of failed deliveries; null if it did not.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        disabled_at: Option<OffsetDateTime>,
        /// Why Recado disabled the endpoint; null if it did not.
        disabled_reason: Option<DisabledReason>,
        /// When the endpoint was created.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
        /// When the endpoint was last changed.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        updated_at: OffsetDateTime,
    }
}

/// `GET /api/webhooks`
async fn list(
    webhooks: Data<Webhooks>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let page = params.page();
    params.check()?;
    let page = webhooks.page(&tenant, page).await?;
    Ok(responses::wrapped_page(page.map(WebhookResponse::from)))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new("List webhooks", "Returns endpoints with numbered pages, newest first.")
        .takes_all(numbered_page(&LIMIT))
        .responds(data::<LimitedPage<WebhookResponse>>("A page of endpoints."))
});

/// `POST /api/webhooks`
async fn create(
    webhooks: Data<Webhooks>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<WebhookBody>,
) -> Result<HttpResponse, ApiError> {
    let created = webhooks.create(&tenant, body.into()).await?;
    Ok(responses::created(WebhookWithSecret::from(created)))
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    let description = "Creates an endpoint. An outbound endpoint receives events as JSON, signed according to Standard \
                Webhooks. Delivery is at least once; failed deliveries are retried for a day. An inbound endpoint is \
                called at `/api/hooks/<its id>` with the same kind of signature.";
    Operation::new("Create a webhook", description)
        .body(Body::json_with::<WebhookBody>(&["name"]))
        .responds(created::<WebhookWithSecret>(
            "The endpoint with its secrets, which are never shown again.",
        ))
        .refuses(ErrorCode::Invalid, ADDRESS)
});

/// `GET /api/webhooks/<id>`
async fn get(
    webhooks: Data<Webhooks>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<WebhookId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(WebhookResponse::from(webhooks.get(&tenant, id).await?)))
}

pub(super) const GET: Endpoint = endpoint!(get, {
    Operation::new("Get a webhook", "Returns one endpoint.")
        .takes(path_id(ID))
        .responds(data::<WebhookResponse>("The endpoint."))
});

/// `PUT /api/webhooks/<id>`
async fn update(
    webhooks: Data<Webhooks>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<WebhookId>,
    JsonChange(body): JsonChange<WebhookBody>,
) -> Result<HttpResponse, ApiError> {
    let webhook = webhooks.update(&tenant, id, body.into()).await?;
    Ok(responses::ok(WebhookResponse::from(webhook)))
}

pub(super) const UPDATE: Endpoint = endpoint!(update, {
    let description = "Updates an endpoint: absent fields do not change. Activating it again clears `disabled_at`.";
    Operation::new("Update a webhook", description)
        .takes(path_id(ID))
        .body(Body::change::<WebhookBody>().example(json!({ "events": ["*"], "is_active": true })))
        .responds(data::<WebhookResponse>("The updated endpoint.").example(json!({ "events": ["*"] })))
        .refuses(ErrorCode::Invalid, ADDRESS)
        .refuses(
            ErrorCode::Conflict,
            "Another request is changing the endpoint. Try again.",
        )
});

/// `DELETE /api/webhooks/<id>`
async fn delete(
    webhooks: Data<Webhooks>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<WebhookId>,
) -> Result<HttpResponse, ApiError> {
    webhooks.delete(&tenant, id).await?;
    Ok(responses::no_content())
}

pub(super) const DELETE: Endpoint = endpoint!(delete, {
    let description = "Deletes an endpoint and abandons its pending deliveries.";
    Operation::new("Delete a webhook", description)
        .takes(path_id(ID))
        .responds(no_content("The endpoint is deleted."))
});

/// `POST /api/webhooks/<id>/rotate-secret`
async fn rotate_secret(
    webhooks: Data<Webhooks>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<WebhookId>,
) -> Result<HttpResponse, ApiError> {
    let created = webhooks.rotate_secret(&tenant, id).await?;
    Ok(responses::ok(WebhookWithSecret::from(created)))
}

pub(super) const ROTATE_SECRET: Endpoint = endpoint!(rotate_secret, {
    let description = "Creates new secrets. The old secrets stay valid for 24 hours.";
    Operation::new("Rotate a webhook's secret", description)
        .takes(path_id(ID))
        .responds(data::<WebhookWithSecret>(
            "The endpoint with its new secrets, which are never shown again.",
        ))
        .refuses(
            ErrorCode::Conflict,
            "Another request is changing the endpoint. Try again.",
        )
});

/// `POST /api/webhooks/<id>/test`
async fn test(
    signals: Data<WorkerSignals>,
    webhooks: Data<Webhooks>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<WebhookId>,
) -> Result<HttpResponse, ApiError> {
    let event = webhooks.test(&tenant, id).await?;
    signals.wake_deliverer();
    Ok(responses::accepted(DeliveryQueued { message_id: event }))
}

pub(super) const TEST: Endpoint = endpoint!(test, {
    let description = "Delivers a `test.ping` event to an endpoint, regardless of its subscriptions.";
    Operation::new("Test a webhook", description)
        .takes(path_id(ID))
        .responds(data_with::<DeliveryQueued>(
            202,
            "The delivery is queued. The webhook's log shows its result.",
        ))
        .refuses(ErrorCode::Precondition, INACTIVE)
});

/// `POST /api/webhooks/<id>/recover`
async fn recover(
    signals: Data<WorkerSignals>,
    webhooks: Data<Webhooks>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<WebhookId>,
    Json(body): Json<RecoverBody>,
) -> Result<HttpResponse, ApiError> {
    let queued = webhooks.recover(&tenant, id, body.since).await?;
    signals.wake_deliverer();
    Ok(responses::accepted(RecoveryQueued { queued }))
}

pub(super) const RECOVER: Endpoint = endpoint!(recover, {
    let description = "Redelivers every event since the given time that the endpoint did not receive.";
    Operation::new("Recover failed deliveries", description)
        .takes(path_id(ID))
        .body(Body::json::<RecoverBody>())
        .responds(data_with::<RecoveryQueued>(202, "The deliveries are queued."))
        .refuses(ErrorCode::Precondition, INACTIVE)
});
