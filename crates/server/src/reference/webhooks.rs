//! What the reference says of webhooks.

use recado_domain::shared::{CursorPage, WebhookKind};
use recado_domain::webhooks::{Direction, LogStatus, Webhook, WebhookEvent, WebhookLog};
use serde_json::{Value, json};

use super::operation::{
    Body, Operation, Parameter, created, data, data_with, id, id_of, limit_of, no_content, page_of, string_enum, text,
};
use super::{ErrorCode, OpenApiTag};
use crate::routes::webhooks::{
    DeliveryQueued, InboundReceipt, RecoverBody, RecoveryQueued, WebhookBody, WebhookWithSecret,
};
use crate::web::responses::LimitedPage;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Webhooks",
    description: "Endpoints that are told what happens, what was delivered to them, and endpoints that others call.",
};

const ID: &str = "The endpoint's id.";

const ADDRESS: &str = "An address that is not reached from the internet, a kind of event that is unknown, and an endpoint \
                       more than the account may have are named, too.";

const STILL: &str = "The endpoint is inbound, or switched off.";

pub(crate) fn list() -> Operation {
    Operation::new("List webhooks", "Endpoints by numbered pages, newest first.")
        .takes_all(page_of((20, 100)))
        .answers(data::<LimitedPage<Webhook>>("A page of endpoints."))
}

pub(crate) fn create() -> Operation {
    let description = "Makes an endpoint. An outbound one is told what happens: JSON, signed as the Standard Webhooks \
                specification says, at least once, tried again for a day. An inbound one is called at \
                `/api/hooks/<its id>`, signed the same way.";
    Operation::new("Create a webhook", description)
        .body(Body::json_with::<WebhookBody>(&["name"]))
        .answers(created::<WebhookWithSecret>(
            "The endpoint with its secrets, which are never shown again.",
        ))
        .refuses(ErrorCode::Invalid, ADDRESS)
}

pub(crate) fn get() -> Operation {
    Operation::new("Get a webhook", "One endpoint.")
        .takes(id_of(ID))
        .answers(data::<Webhook>("The endpoint."))
}

pub(crate) fn update() -> Operation {
    let description = "Changes an endpoint: absent fields are kept. Switching it on again clears `disabled_at`.";
    Operation::new("Change a webhook", description)
        .takes(id_of(ID))
        .body(Body::change::<WebhookBody>().example(json!({ "events": ["*"], "is_active": true })))
        .answers(data::<Webhook>("The endpoint as it is now.").example(json!({ "events": ["*"] })))
        .refuses(ErrorCode::Invalid, ADDRESS)
        .refuses(ErrorCode::Conflict, "It is being changed by another request.")
}

pub(crate) fn delete() -> Operation {
    let description = "Deletes an endpoint; what was to be delivered to it is not.";
    Operation::new("Delete a webhook", description)
        .takes(id_of(ID))
        .answers(no_content("The endpoint is deleted."))
}

pub(crate) fn rotate_secret() -> Operation {
    let description = "Makes new secrets. The old ones count beside them for 24 hours.";
    Operation::new("Rotate a webhook's secret", description)
        .takes(id_of(ID))
        .answers(data::<WebhookWithSecret>(
            "The endpoint with its new secrets, which are never shown again.",
        ))
        .refuses(ErrorCode::Conflict, "It is being changed by another request.")
}

pub(crate) fn test() -> Operation {
    let description = "Delivers a `test.ping` to an endpoint, whatever events it wants.";
    Operation::new("Test a webhook", description)
        .takes(id_of(ID))
        .answers(data_with::<DeliveryQueued>(
            202,
            "It will be delivered at once; its log tells how that went.",
        ))
        .refuses(ErrorCode::Precondition, STILL)
}

pub(crate) fn recover() -> Operation {
    let description = "Delivers again what an endpoint did not take since a moment.";
    Operation::new("Recover a webhook", description)
        .takes(id_of(ID))
        .body(Body::json::<RecoverBody>())
        .answers(data_with::<RecoveryQueued>(202, "They will be delivered."))
        .refuses(ErrorCode::Precondition, STILL)
}

pub(crate) fn logs() -> Operation {
    let status = "`success`: answered with 200 to 299; `failed`: with 400 or above, or not at all.";
    Operation::new("List webhook logs", "Attempts and calls, the latest first.")
        .takes(string_enum::<Direction>("direction", "Only of this direction.").example("outbound"))
        .takes(string_enum::<LogStatus>("status", status).example("failed"))
        .takes(id("endpoint_id", "Only of this endpoint."))
        .takes(text("event_type", "Only of this kind of event.").example("message.received"))
        .takes(limit_of((50, 100)))
        .answers(data::<Vec<WebhookLog>>("The logs.").example(json!([log()])))
}

pub(crate) fn redeliver() -> Operation {
    let description = "Delivers the event of a log again, with the same `webhook-id`.";
    Operation::new("Deliver again", description)
        .takes(id_of("The log's id."))
        .answers(data_with::<DeliveryQueued>(202, "It will be delivered at once; a new log tells how that went."))
        .refuses(
            ErrorCode::Precondition,
            "The endpoint is inbound, switched off or deleted; or the event is older than 30 days and not kept any more.",
        )
}

pub(crate) fn events() -> Operation {
    let description = "What happened in the account, oldest first, whatever endpoints took of it: for whoever was \
                away. Events are kept for 30 days.";
    let cursor =
        "The `nextCursor` of the answer before, or the id of the last event that is known; absent for the oldest.";
    Operation::new("List events", description)
        .takes(id("cursor", cursor))
        .takes(string_enum::<WebhookKind>("type", "Only events of this kind.").example("message.received"))
        .takes(limit_of((20, 100)))
        .answers(data::<CursorPage<WebhookEvent>>(
            "Events, and where the later ones begin.",
        ))
}

pub(crate) fn receive() -> Operation {
    let description = "Takes what another system tells an inbound endpoint, signed as the Standard Webhooks \
                specification says. `metric.recorded` and `order.recorded` are recorded like items of the ingestion \
                routes, `contact.upserted` like a new contact, or added to the one with its phone or `wa_user_id`; \
                every other type is only logged. A `webhook-id` that was taken before changes nothing.";
    Operation::new("Call an inbound webhook", description)
        .takes(id_of(ID))
        .takes_all(signature())
        .body(
            Body::written("application/json", call())
                .example(json!({ "type": "metric.recorded", "data": {
                    "metric_name": "page_view", "contact_phone": "+5511961234567", "source": "site", "value": 1.5,
                } }))
                .described("At most 4 MiB."),
        )
        .answers(data::<InboundReceipt>("It is recorded, or was before."))
        .never(ErrorCode::MediaType)
        .refuses(
            ErrorCode::Auth,
            "The signature is missing or wrong, or the timestamp is more than five minutes away.",
        )
}

fn signature() -> [Parameter; 3] {
    let header = |name, description| text(name, description).in_header();
    let signed = "`v1,` and the base64 of HMAC-SHA256 over `{webhook-id}.{webhook-timestamp}.{body}` with the endpoint's \
                  secret; several are separated by spaces.";
    [
        header("webhook-id", "The sender's own id of the call: 1 to 255 characters.").example("msg_77"),
        header("webhook-timestamp", "When it was signed, in seconds since 1970.").example("1769938200"),
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
                "description": "What it tells.",
            },
            "data": { "description": "What there is to it: an object for the types that are recorded." },
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
