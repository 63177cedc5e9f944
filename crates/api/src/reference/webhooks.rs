//! The `webhooks` of the document: the request that delivers an event, for each event type.

use recado_domain::webhooks::WebhookEvent;
use serde_json::{Map, Value, json};

use super::descriptions::EVENT_ID;
use super::schemas::Schemas;
use super::{EventType, event_types};
use crate::web::operation::schema_of;

const SIGNATURE_HEADERS: [&str; 3] = ["WebhookId", "WebhookTimestamp", "WebhookSignature"];

/// One entry for each event type, under its name.
pub(super) fn webhooks(schemas: &mut Schemas) -> Map<String, Value> {
    event_types()
        .iter()
        .map(|event_type| {
            (
                event_type.kind.to_owned(),
                json!({ "post": delivery(event_type, schemas) }),
            )
        })
        .collect()
}

fn delivery(event_type: &EventType, schemas: &mut Schemas) -> Value {
    let event = schemas.response_schema(schema_of::<WebhookEvent>);
    let data = schemas.response_schema(event_type.data);
    let reference = |name: &&str| json!({ "$ref": format!("#/components/parameters/{name}") });
    json!({
        // A tag of its own: generators write one class for each tag, and would mix these with the operations.
        "operationId": format!("receive_{}", event_type.kind.replace('.', "_")),
        "tags": ["Deliveries"],
        "summary": format!("Receive `{}`", event_type.kind),
        "description": event_type.description,
        "security": [],
        "parameters": SIGNATURE_HEADERS.iter().map(reference).collect::<Value>(),
        "requestBody": {
            "required": true,
            "content": { "application/json": {
                "schema": { "allOf": [event, {
                    "type": "object",
                    "properties": { "type": { "const": event_type.kind }, "data": data },
                }] },
                "example": example(event_type),
            } },
        },
        "responses": {
            "2XX": { "description": "The event is received, within 15 seconds." },
            "410": { "description": "The endpoint is gone. It is disabled at once." },
            "default": { "description": "The delivery failed and is repeated, for a day at most." },
        },
    })
}

fn example(event_type: &EventType) -> Value {
    json!({
        "id": EVENT_ID, "type": event_type.kind, "timestamp": "2026-02-01T09:30:00.000Z",
        "account_id": "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b", "data": event_type.example,
    })
}
