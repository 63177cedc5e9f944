//! The published event types: when each happens, and the schema and an example of its `data`.

mod data;

use std::sync::LazyLock;

use actix_web::HttpResponse;
use recado_domain::shared::WebhookKind;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use self::data::{
    CampaignCancelledEventData, CampaignFinishedEventData, CampaignStartedEventData, CancelledMessageEventData,
    ContactEventData, CostThresholdEventData, ErasedContactEventData, MediaReadyEventData, MessageStatusEventData,
    MetricEventData, NumberEventData, OrderEventData, ReceivedMessageEventData, SubscriptionEventData,
    TemplateCategoryEventData, TemplateStatusEventData, TestPingEventData,
};
use crate::error::ErrorCode;
use crate::web::operation::{Operation, SchemaOf, data, schema_of};
use crate::web::responses;
use crate::web::route::{Endpoint, endpoint};
use crate::web::schemas::schema_and_example;

/// A type of webhook events.
#[derive(Serialize, JsonSchema)]
pub struct EventType {
    /// The `type` of the events. Later versions may add types.
    #[serde(rename = "type")]
    #[schemars(example = "contact.created")]
    pub kind: &'static str,
    /// When an event of this type happens.
    #[schemars(example = "A contact was created.")]
    pub description: &'static str,
    /// The JSON Schema (2020-12) of the events' `data`. Every event fits it. Later versions may add fields to `data`.
    #[schemars(with = "Map<String, Value>")]
    pub schema: Value,
    /// An example of `data`.
    #[schemars(with = "Map<String, Value>")]
    pub example: Value,
    /// The version of Recado that added the type.
    #[schemars(example = "0.1.0")]
    pub added: &'static str,
    /// The type that `schema` describes.
    #[serde(skip)]
    pub(crate) data: SchemaOf,
}

/// The documentation of an event type.
struct Documentation {
    kind: WebhookKind,
    added: &'static str,
    description: &'static str,
    data: SchemaOf,
    /// A patch of the example that the fields' examples generate.
    patch: fn() -> Value,
}

/// `T` describes `data`. `added` is the version whose section of the changelog has the type.
const fn event_type<T: JsonSchema>(kind: WebhookKind, added: &'static str, description: &'static str) -> Documentation {
    Documentation {
        kind,
        added,
        description,
        data: schema_of::<T>,
        patch: || json!({}),
    }
}

impl Documentation {
    const fn example(mut self, patch: fn() -> Value) -> Self {
        self.patch = patch;
        self
    }
}

/// Every kind, sorted by name. A kind without its row does not compile.
static DOCUMENTATION: [Documentation; WebhookKind::ALL.len()] = [
    event_type::<CampaignCancelledEventData>(WebhookKind::CampaignCancelled, "0.1.0", "A campaign was cancelled.")
        .example(|| json!({ "previous_status": "sending" })),
    event_type::<CampaignFinishedEventData>(WebhookKind::CampaignFinished, "0.1.0", "A run of a campaign ended.")
        .example(|| json!({ "status": "partial" })),
    event_type::<CampaignStartedEventData>(WebhookKind::CampaignStarted, "0.1.0", "A run of a campaign began.")
        .example(|| json!({ "trigger": "send" })),
    event_type::<ContactEventData>(
        WebhookKind::ContactCreated,
        "0.1.0",
        "A contact was created through the API, by an import, or by a message from a new sender.",
    ),
    event_type::<ContactEventData>(
        WebhookKind::ContactDeleted,
        "0.1.0",
        "A contact was deleted through the API.",
    ),
    event_type::<ErasedContactEventData>(
        WebhookKind::ContactErased,
        "0.1.0",
        "A contact was erased. No later event has data of the person; remove your copies, too.",
    ),
    event_type::<ContactEventData>(
        WebhookKind::ContactUpdated,
        "0.1.0",
        "A contact was changed. An opt-out is a change.",
    ),
    event_type::<CostThresholdEventData>(
        WebhookKind::CostThreshold,
        "0.1.0",
        "The messages of a month passed an amount of the setting `cost_alerts`.",
    ),
    event_type::<CancelledMessageEventData>(
        WebhookKind::MessageCancelled,
        "0.1.0",
        "A message of `POST /api/messages` was cancelled before it left.",
    ),
    event_type::<MessageStatusEventData>(
        WebhookKind::MessageDelivered,
        "0.1.0",
        "A message of the account reached the contact's device.",
    )
    .example(|| json!({ "status": "delivered" })),
    event_type::<MessageStatusEventData>(
        WebhookKind::MessageFailed,
        "0.1.0",
        "A message of the account will not be delivered.",
    )
    .example(|| json!({ "status": "failed", "error_code": 131_026, "error_message": "Message undeliverable" })),
    event_type::<MediaReadyEventData>(
        WebhookKind::MessageMediaReady,
        "0.1.0",
        "The file of a message was fetched from WhatsApp and stored.",
    )
    .example(|| json!({ "media": { "file_name": null, "state": "ready", "reason": null, "expires_at": null } })),
    event_type::<MessageStatusEventData>(
        WebhookKind::MessageRead,
        "0.1.0",
        "The contact read a message of the account. It may have had no `message.delivered` before.",
    )
    .example(|| json!({ "status": "read" })),
    event_type::<ReceivedMessageEventData>(WebhookKind::MessageReceived, "0.1.0", "An inbound message was stored.")
        .example(|| json!({ "media": null, "caption": null, "context": null })),
    event_type::<MessageStatusEventData>(
        WebhookKind::MessageSent,
        "0.1.0",
        "WhatsApp accepted a message of a campaign, of a reply or of `POST /api/messages`.",
    )
    .example(|| json!({ "status": "sent" })),
    event_type::<MetricEventData>(WebhookKind::MetricRecorded, "0.1.0", "A metric event was recorded."),
    event_type::<NumberEventData>(
        WebhookKind::NumberChanged,
        "0.1.0",
        "The verification or a value of a WhatsApp number changed, or WhatsApp reported an event of its business \
         account.",
    )
    .example(|| json!({ "change": "quality" })),
    event_type::<OrderEventData>(
        WebhookKind::OrderRecorded,
        "0.1.0",
        "An order was recorded, or changed by a later report.",
    )
    .example(|| json!({ "status": "paid", "automation_id": null, "link_id": null })),
    event_type::<SubscriptionEventData>(
        WebhookKind::SubscriptionChanged,
        "0.1.0",
        "The account's plan, cycle, status, price or period changed.",
    )
    .example(|| json!({ "status": "active", "previous_status": "pending" })),
    event_type::<TemplateCategoryEventData>(
        WebhookKind::TemplateCategoryChanging,
        "0.1.0",
        "WhatsApp announced that the category of a template will change.",
    )
    .example(|| json!({ "from": "UTILITY", "to": "MARKETING" })),
    event_type::<TemplateStatusEventData>(
        WebhookKind::TemplateStatusChanged,
        "0.1.0",
        "The status of a template changed, or WhatsApp changed its category.",
    )
    .example(|| json!({ "status": "rejected", "previous_status": "pending" })),
    event_type::<TestPingEventData>(
        WebhookKind::TestPing,
        "0.1.0",
        "A caller requested a test of an endpoint.",
    ),
];

impl From<&Documentation> for EventType {
    fn from(documentation: &Documentation) -> Self {
        let (schema, example) = schema_and_example(documentation.data, &(documentation.patch)());
        Self {
            kind: documentation.kind.as_str(),
            description: documentation.description,
            schema,
            example,
            added: documentation.added,
            data: documentation.data,
        }
    }
}

/// Every event type, sorted by name. The schemas are computed once for each process.
pub fn published() -> &'static [EventType] {
    static EVENT_TYPES: LazyLock<Vec<EventType>> =
        LazyLock::new(|| DOCUMENTATION.iter().map(EventType::from).collect());
    &EVENT_TYPES
}

/// `GET /api/webhooks/event-types`
async fn event_types() -> HttpResponse {
    responses::ok(published())
}

pub(in crate::routes) const EVENT_TYPES: Endpoint = endpoint!(event_types, {
    let description = "Returns every type of webhook events, sorted by name, with the schema and an example of `data`.";
    Operation::new("List event types", description)
        .responds(data::<Vec<EventType>>("The event types.").example(json!([published().first()])))
        .never(ErrorCode::Unavailable)
});

#[cfg(test)]
mod tests;
