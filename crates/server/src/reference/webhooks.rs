//! OpenAPI documentation of webhooks.

use recado_domain::shared::CursorPage;
use recado_domain::webhooks::{Webhook, WebhookEvent, WebhookLog};
use serde_json::{Value, json};

use super::operation::{
    Body, Operation, Parameter, created, data, data_with, id, no_content, numbered_page, path_id, text,
};
use super::{ErrorCode, OpenApiTag};
use crate::routes::webhooks::{
    DIRECTION, DeliveryQueued, EVENT_TYPE, InboundReceipt, LOG_LIMIT, LOG_STATUS, RecoverBody, RecoveryQueued,
    WebhookBody, WebhookWithSecret,
};
use crate::web::parameters::LIMIT;
use crate::web::responses::LimitedPage;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Webhooks",
    description: "Outbound endpoints that receive events, inbound endpoints that other systems call, and their logs.",
};

const ID: &str = "The endpoint's id.";

const ADDRESS: &str = "The URL is not a public address, an event type is unknown, or the account has reached its \
                       limit of webhooks.";

const INACTIVE: &str = "The endpoint is inbound or not active.";

pub(crate) fn list() -> Operation {
    Operation::new("List webhooks", "Returns endpoints with numbered pages, newest first.")
        .takes_all(numbered_page(&LIMIT))
        .responds(data::<LimitedPage<Webhook>>("A page of endpoints."))
}

pub(crate) fn create() -> Operation {
    let description = "Creates an endpoint. An outbound endpoint receives events as JSON, signed according to Standard \
                Webhooks. Delivery is at least once; failed deliveries are retried for a day. An inbound endpoint is \
                called at `/api/hooks/<its id>` with the same kind of signature.";
    Operation::new("Create a webhook", description)
        .body(Body::json_with::<WebhookBody>(&["name"]))
        .responds(created::<WebhookWithSecret>(
            "The endpoint with its secrets, which are never shown again.",
        ))
        .refuses(ErrorCode::Invalid, ADDRESS)
}

pub(crate) fn get() -> Operation {
    Operation::new("Get a webhook", "Returns one endpoint.")
        .takes(path_id(ID))
        .responds(data::<Webhook>("The endpoint."))
}

pub(crate) fn update() -> Operation {
    let description = "Updates an endpoint: absent fields are kept. Activating it again clears `disabled_at`.";
    Operation::new("Update a webhook", description)
        .takes(path_id(ID))
        .body(Body::change::<WebhookBody>().example(json!({ "events": ["*"], "is_active": true })))
        .responds(data::<Webhook>("The updated endpoint.").example(json!({ "events": ["*"] })))
        .refuses(ErrorCode::Invalid, ADDRESS)
        .refuses(
            ErrorCode::Conflict,
            "Another request is changing the endpoint. Try again.",
        )
}

pub(crate) fn delete() -> Operation {
    let description = "Deletes an endpoint and abandons its pending deliveries.";
    Operation::new("Delete a webhook", description)
        .takes(path_id(ID))
        .responds(no_content("The endpoint is deleted."))
}

pub(crate) fn rotate_secret() -> Operation {
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
}

pub(crate) fn test() -> Operation {
    let description = "Delivers a `test.ping` event to an endpoint, regardless of its subscriptions.";
    Operation::new("Test a webhook", description)
        .takes(path_id(ID))
        .responds(data_with::<DeliveryQueued>(
            202,
            "The delivery is queued. The webhook's log shows its result.",
        ))
        .refuses(ErrorCode::Precondition, INACTIVE)
}

pub(crate) fn recover() -> Operation {
    let description = "Redelivers every event since the given time that the endpoint did not receive.";
    Operation::new("Recover failed deliveries", description)
        .takes(path_id(ID))
        .body(Body::json::<RecoverBody>())
        .responds(data_with::<RecoveryQueued>(202, "The deliveries are queued."))
        .refuses(ErrorCode::Precondition, INACTIVE)
}

pub(crate) fn logs() -> Operation {
    Operation::new(
        "List webhook logs",
        "Returns attempts of outbound and calls of inbound endpoints, latest first.",
    )
    .takes(&DIRECTION)
    .takes(&LOG_STATUS)
    .takes(id("endpoint_id", "Only logs of this endpoint."))
    .takes(text("event_type", "Only logs of this event type.").example("message.received"))
    .takes(&LOG_LIMIT)
    .responds(data::<Vec<WebhookLog>>("The logs.").example(json!([log()])))
}

pub(crate) fn redeliver() -> Operation {
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
}

pub(crate) fn events() -> Operation {
    let description = "Returns the account's webhook events of the last 30 days, oldest first, regardless of \
                deliveries. A client uses it to catch up after an outage.";
    let cursor =
        "The `nextCursor` of the previous page, or the id of the last processed event. Omit it for the oldest.";
    Operation::new("List webhook events", description)
        .takes(id("cursor", cursor))
        .takes(&EVENT_TYPE)
        .takes(&LIMIT)
        .responds(data::<CursorPage<WebhookEvent>>(
            "A page of events and its `nextCursor`.",
        ))
}

pub(crate) fn receive() -> Operation {
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
}

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
