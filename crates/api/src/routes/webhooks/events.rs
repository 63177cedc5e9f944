//! The log of deliveries, the feed of events, and calls to inbound endpoints.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{CursorPage, WebhookId, WebhookKind, WebhookLogId, timestamp};
use recado_domain::webhooks::{
    Direction, FeedQuery, InboundCall, InboundWebhooks, LogQuery, LogStatus, WebhookEvent, WebhookLog, Webhooks,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{DeliveryQueued, ID};
use crate::error::{ApiError, ErrorCode};
use crate::web::callback::CallbackMemory;
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::operation::{Body, Operation, Parameter, data, data_with, path_id, text, whole_body};
use crate::web::parameters::{CursorParam, EnumParam, IdParam, IntegerParam, LIMIT, TextParam, TimeParam};
use crate::web::query::Params;
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};
use crate::worker_handles::WorkerSignals;

const DIRECTION: EnumParam<Direction> = EnumParam {
    name: "direction",
    description: "Only logs of this direction.",
    accepted: "inbound or outbound",
    example: Some(Direction::Outbound),
};

const LOG_STATUS: EnumParam<LogStatus> = EnumParam {
    name: "status",
    description: "`success`: response status 200 to 299; `failed`: status 400 or above, or no response.",
    accepted: "success or failed",
    example: Some(LogStatus::Failed),
};

const EVENT_TYPE: EnumParam<WebhookKind> = EnumParam {
    name: "type",
    description: "Only events of this type.",
    accepted: "an event type",
    example: Some(WebhookKind::MessageReceived),
};

/// Default and maximum number of log entries.
const LOG_LIMIT: IntegerParam = IntegerParam::limit(50, 100);

const ENDPOINT: IdParam = IdParam::new("endpoint_id", "Only logs of this endpoint.");

const LOG_EVENT_TYPE: TextParam = TextParam::new("event_type", "Only logs of this event type.", "message.received");

const SINCE: TimeParam = TimeParam::new("since", "Only logs made at this time or later.", "2026-01-01T00:00:00Z");
const UNTIL: TimeParam = TimeParam::new("until", "Only logs made before this time.", "2027-01-01T00:00:00Z");

const LOG_CURSOR: CursorParam = CursorParam::first_page(None);

const CURSOR: CursorParam = CursorParam {
    description: "The `nextCursor` of the previous page, or the id of the last processed event. Omit it for the oldest.",
    example: None,
};

/// The receipt of an inbound call.
#[derive(Serialize, JsonSchema)]
struct InboundReceipt {
    /// Always true.
    #[schemars(example = true)]
    received: bool,
}

response_type! {
    /// One attempt of a delivery, or one call that an inbound endpoint received.
    #[schemars(rename = "WebhookLog")]
    struct WebhookLogResponse from log: WebhookLog {
        /// The log's id.
        id: WebhookLogId,
        /// The endpoint, which may have been deleted since.
        endpoint_id: WebhookId,
        /// Whether Recado made the call or received it.
        direction: Direction,
        /// The type of the event.
        #[schemars(example = "message.received")]
        event_type: String,
        /// The body that was sent or received. For a received body of more than 65,536 bytes, only `omitted_bytes`: its
        /// size in bytes.
        #[schemars(example = json!({"type": "message.received", "data": {"text": "Oi!"}}))]
        payload: Value,
        /// The HTTP status of the response; null if there was none.
        #[schemars(example = 200)]
        response_status: Option<i32>,
        /// The number of the attempt, counted from 1.
        #[schemars(example = 1)]
        attempt: i32,
        /// The duration of the attempt in milliseconds; null for received calls.
        #[schemars(example = 84)]
        duration_ms: Option<i32>,
        /// Why there was no response: `refused`, `resolution`, `connection`, `tls`, `timed_out`, `broken` or
        /// `secret_unreadable`. For a received call: why it was rejected. Null without an error.
        #[schemars(example = &"timed_out")]
        error: Option<String>,
        /// The `webhook-id` of the delivery.
        #[schemars(example = "0190a1b2-c3d4-7e5f-8a9b-000000000007")]
        message_id: String,
        /// When the next attempt follows; null if none does.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        next_attempt_at: Option<OffsetDateTime>,
        /// When the attempt ended or the call was received.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
    }
}

/// `GET /api/webhooks/logs`
async fn logs(
    webhooks: Data<Webhooks>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let query = LogQuery {
        direction: params.one_of(&DIRECTION),
        status: params.one_of(&LOG_STATUS),
        endpoint_id: params.id(&ENDPOINT),
        event_type: params.text(&LOG_EVENT_TYPE),
        cursor: params.id_cursor(),
        since: params.time(&SINCE),
        until: params.time(&UNTIL),
        limit: params.page_of(&LOG_LIMIT).limit(),
    };
    params.check()?;
    let logs = webhooks.logs(&tenant, &query).await?;
    Ok(responses::cursor_page(logs.map(WebhookLogResponse::from)))
}

pub(crate) const LOGS: Endpoint = endpoint!(logs, {
    Operation::new(
        "List webhook logs",
        "Returns attempts of outbound and calls of inbound endpoints, latest first. Paging with `nextCursor` returns \
         each log once while others arrive.",
    )
    .takes(&DIRECTION)
    .takes(&LOG_STATUS)
    .takes(&ENDPOINT)
    .takes(&LOG_EVENT_TYPE)
    .takes(&LOG_CURSOR)
    .takes(&SINCE)
    .takes(&UNTIL)
    .takes(&LOG_LIMIT)
    .responds(whole_body::<CursorPage<WebhookLogResponse>>("A page of logs.").example(json!({ "data": [log()] })))
});

/// `POST /api/webhooks/logs/<id>/redeliver`
async fn redeliver(
    signals: Data<WorkerSignals>,
    webhooks: Data<Webhooks>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<WebhookLogId>,
) -> Result<HttpResponse, ApiError> {
    let event = webhooks.redeliver(&tenant, id).await?;
    signals.wake_deliverer();
    Ok(responses::accepted(DeliveryQueued { message_id: event }))
}

pub(crate) const REDELIVER: Endpoint = endpoint!(redeliver, {
    let description = "Redelivers the event of a log entry with the same `webhook-id`.";
    Operation::new("Redeliver an event", description)
        .takes(path_id("The log entry's id."))
        .responds(data_with::<DeliveryQueued>(
            202,
            "The delivery is queued. A new log entry shows its result.",
        ))
        .refuses(
            ErrorCode::Precondition,
            "The endpoint is inbound, not active or deleted; or the event is older than 30 days and was removed.",
        )
});

/// `GET /api/webhooks/events`
async fn events(
    webhooks: Data<Webhooks>,
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
    Ok(responses::ok(webhooks.feed(&tenant, &query).await?))
}

pub(crate) const EVENTS: Endpoint = endpoint!(events, {
    let description = "Returns the account's webhook events of the last 30 days, oldest first, regardless of \
                deliveries. A client uses it to catch up after an outage.";
    Operation::new("List webhook events", description)
        .takes(&CURSOR)
        .takes(&EVENT_TYPE)
        .takes(&LIMIT)
        .responds(data::<CursorPage<WebhookEvent>>(
            "A page of events and its `nextCursor`.",
        ))
});

/// `POST /api/hooks/<id>`: called by another system, authenticated by a signature with the endpoint's secret.
async fn receive(
    callback_memory: Data<CallbackMemory>,
    inbound: Data<InboundWebhooks>,
    Id(id): Id<WebhookId>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let headers = ["webhook-id", "webhook-timestamp", "webhook-signature"].map(header);
    let endpoint = inbound.open(id, headers).await?;
    let body = callback_memory.read(&request, payload.into_inner()).await?;
    let call = InboundCall { headers, body: &body };
    inbound.receive(endpoint, call).await?;
    Ok(responses::ok(InboundReceipt { received: true }))
}

pub(crate) const RECEIVE: Endpoint = endpoint!(receive, {
    let description = "Receives a call of another system, signed according to Standard Webhooks. `metric.recorded` and \
                `order.recorded` are recorded like items of the ingestion routes. `contact.upserted` creates a contact \
                or updates the contact with the same phone or `wa_user_id`. Every other type is only logged. A \
                `webhook-id` that was accepted before changes nothing.";
    Operation::new("Call an inbound webhook", description)
        .takes(path_id(ID))
        .takes_all(signature())
        .body(
            Body::custom("application/json", call())
                .example(json!({ "type": "metric.recorded", "data": {
                    "metric_name": "page_view", "contact_phone": "+5511961234567", "source": "site", "value": 1.5,
                } }))
                .described("At most 4 MiB."),
        )
        .responds(data::<InboundReceipt>(
            "The call is recorded now or was recorded before.",
        ))
        .never(ErrorCode::MediaType)
        .refuses(
            ErrorCode::Auth,
            "The signature is missing or wrong, or the timestamp differs from now by more than five minutes.",
        )
});

fn signature() -> [Parameter; 3] {
    let header = |name, description| text(name, description).in_header();
    let signed = "`v1,` and the base64 of HMAC-SHA256 over `{webhook-id}.{webhook-timestamp}.{body}` with the \
                  endpoint's secret. Several signatures are separated by spaces.";
    [
        header(
            "webhook-id",
            "The sender's id of the call: 1 to 255 characters. It makes a repeated call idempotent.",
        )
        .example("msg_77"),
        header(
            "webhook-timestamp",
            "The time of the signature, in seconds since 1970-01-01T00:00:00Z.",
        )
        .example("1769938200"),
        header("webhook-signature", signed).example("v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="),
    ]
}

fn call() -> Value {
    json!({
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {
                "type": "string", "minLength": 1, "maxLength": 100, "examples": ["metric.recorded"],
                "description": "The type of the call.",
            },
            "data": { "description": "The payload: an object for the types that are recorded." },
        },
    })
}

fn log() -> Value {
    let id = |end: u8| format!("0190a1b2-c3d4-7e5f-8a9b-0000000000{end:02}");
    json!({
        "id": id(11), "endpoint_id": id(12), "direction": "outbound", "event_type": "message.received",
        "payload": { "id": id(13), "type": "message.received", "data": { "text": "Oi!" } },
        "response_status": 200, "attempt": 1, "duration_ms": 84, "error": null, "message_id": id(13),
        "next_attempt_at": null, "created_at": "2026-02-01T09:30:00.000Z",
    })
}
