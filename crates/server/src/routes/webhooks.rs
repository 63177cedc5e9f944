//! Webhooks: endpoints, their secrets, logs, the feed, and delivering again.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use garde::Validate;
use recado_domain::shared::{WebhookId, WebhookKind, WebhookLogId, timestamp};
use recado_domain::webhooks::{Call, Direction, FeedQuery, LogQuery, LogStatus, NewWebhook, WebhookInput};
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::ApiError;
use crate::web::body::{self, CALLBACK_BYTES, Json};
use crate::web::query::Params;
use crate::web::reply;
use crate::web::shape::{Caller, Id, Proved, nullable};
use crate::wiring::Services;

/// The default and the largest number of logs.
const LOGS: (i64, i64) = (50, 100);

/// Body of `POST /api/webhooks` and `PUT /api/webhooks/<id>`.
#[derive(Deserialize, Validate)]
#[garde(allow_unvalidated)]
pub(super) struct WebhookBody {
    name: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    url: Option<Option<String>>,
    events: Option<Vec<String>>,
    direction: Option<String>,
    is_active: Option<bool>,
}

impl From<WebhookBody> for WebhookInput {
    fn from(body: WebhookBody) -> Self {
        Self {
            name: body.name,
            url: body.url,
            events: body.events,
            direction: body.direction,
            is_active: body.is_active,
        }
    }
}

/// Body of `POST /api/webhooks/<id>/recover`.
#[derive(Deserialize, Validate)]
#[garde(allow_unvalidated)]
pub(super) struct RecoverBody {
    #[serde(default, with = "timestamp::option")]
    since: Option<OffsetDateTime>,
}

/// The endpoint with what is told of it only now.
fn told_once(made: &NewWebhook) -> Value {
    let mut told = json!(made.webhook);
    if let Value::Object(fields) = &mut told {
        fields.insert("secret".to_owned(), json!(made.secret.expose_secret()));
        fields.insert("signing_secret".to_owned(), json!(made.signing_secret.expose_secret()));
    }
    told
}

/// `GET /api/webhooks`
pub(super) async fn list(
    services: Data<Services>,
    Proved(tenant): Caller,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let page = params.page();
    params.check()?;
    Ok(reply::wrapped_page(&services.webhooks.page(&tenant, page).await?))
}

/// `POST /api/webhooks`
pub(super) async fn create(
    services: Data<Services>,
    Proved(tenant): Caller,
    Json(body): Json<WebhookBody>,
) -> Result<HttpResponse, ApiError> {
    let made = services.webhooks.create(&tenant, body.into()).await?;
    Ok(reply::created(told_once(&made)))
}

/// `GET /api/webhooks/<id>`
pub(super) async fn get(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<WebhookId>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.webhooks.get(&tenant, id).await?))
}

/// `PUT /api/webhooks/<id>`
pub(super) async fn update(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<WebhookId>,
    Json(body): Json<WebhookBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.webhooks.update(&tenant, id, body.into()).await?))
}

/// `DELETE /api/webhooks/<id>`
pub(super) async fn delete(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<WebhookId>,
) -> Result<HttpResponse, ApiError> {
    services.webhooks.delete(&tenant, id).await?;
    Ok(reply::gone())
}

/// `POST /api/webhooks/<id>/rotate-secret`
pub(super) async fn rotate_secret(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<WebhookId>,
) -> Result<HttpResponse, ApiError> {
    let made = services.webhooks.rotate_secret(&tenant, id).await?;
    Ok(reply::ok(told_once(&made)))
}

/// `POST /api/webhooks/<id>/test`
pub(super) async fn test(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<WebhookId>,
) -> Result<HttpResponse, ApiError> {
    let event = services.webhooks.test(&tenant, id).await?;
    services.shared.relays.deliver();
    Ok(reply::accepted(json!({ "message_id": event })))
}

/// `POST /api/webhooks/<id>/recover`
pub(super) async fn recover(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<WebhookId>,
    Json(body): Json<RecoverBody>,
) -> Result<HttpResponse, ApiError> {
    let queued = services.webhooks.recover(&tenant, id, body.since).await?;
    services.shared.relays.deliver();
    Ok(reply::accepted(json!({ "queued": queued })))
}

/// `GET /api/webhooks/logs`
pub(super) async fn logs(
    services: Data<Services>,
    Proved(tenant): Caller,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let query = LogQuery {
        direction: params.parsed::<Direction>("direction", "inbound or outbound"),
        status: params.parsed::<LogStatus>("status", "success or failed"),
        endpoint_id: params.id("endpoint_id"),
        event_type: params.text("event_type"),
        limit: params.page_of(LOGS).limit(),
    };
    params.check()?;
    Ok(reply::ok(services.webhooks.logs(&tenant, &query).await?))
}

/// `POST /api/webhooks/logs/<id>/redeliver`
pub(super) async fn redeliver(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<WebhookLogId>,
) -> Result<HttpResponse, ApiError> {
    let event = services.webhooks.redeliver(&tenant, id).await?;
    services.shared.relays.deliver();
    Ok(reply::accepted(json!({ "message_id": event })))
}

/// `GET /api/webhooks/events`
pub(super) async fn events(
    services: Data<Services>,
    Proved(tenant): Caller,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let after = params.parsed::<Uuid>("cursor", "a cursor of an earlier answer");
    let kind = params.parsed::<WebhookKind>("type", "a kind of event");
    let query = FeedQuery {
        after: after.map(Into::into),
        kind: kind.map(|kind| kind.as_str().to_owned()),
        limit: params.slice().limit,
    };
    params.check()?;
    Ok(reply::ok(services.webhooks.feed(&tenant, &query).await?))
}

/// `POST /api/hooks/<id>`: called by who knows the endpoint's secret.
pub(super) async fn receive(
    services: Data<Services>,
    Id(id): Id<WebhookId>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let body = body::read(&request, payload.into_inner(), CALLBACK_BYTES).await?;
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let call = Call {
        headers: ["webhook-id", "webhook-timestamp", "webhook-signature"].map(header),
        body: &body,
    };
    services.inbound.receive(id, call).await?;
    Ok(reply::ok(json!({ "received": true })))
}
