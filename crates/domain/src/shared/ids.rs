//! Typed ids: the compiler rejects a contact's id where a campaign's id is required.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl From<$name> for Uuid {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                Uuid::json_schema(generator)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    )+};
}

ids! {
    /// A tenant.
    AccountId,
    /// An API key.
    ApiKeyId,
    /// An entry of the audit log.
    AuditLogId,
    /// An automation.
    AutomationId,
    /// A stored callback of WhatsApp.
    CallbackId,
    /// A campaign.
    CampaignId,
    /// A contact.
    ContactId,
    /// A cart of a shop.
    CartId,
    /// A conversation with one contact.
    ConversationId,
    /// An erasure of a contact.
    ErasureId,
    /// One execution of an automation.
    ExecutionId,
    /// An export of a contact.
    ExportId,
    /// A folder of campaigns or templates.
    FolderId,
    /// A stored event of the payment gateway.
    GatewayEventId,
    /// An invitation into an account.
    InviteId,
    /// A short link.
    LinkId,
    /// A queued mail.
    MailId,
    /// A file of a message.
    MediaId,
    /// A message of a conversation.
    MessageId,
    /// An event of a metric.
    MetricEventId,
    /// A notification inside the product.
    NotificationId,
    /// An order of a shop.
    OrderId,
    /// A payment of a subscription.
    PaymentId,
    /// A connected WhatsApp number.
    ProfileId,
    /// A rate card of the platform.
    RateCardId,
    /// A segment of contacts.
    SegmentId,
    /// One campaign message to one contact. Derived from both, so that a repeated creation yields the same id.
    SendId,
    /// A subscription to a plan.
    SubscriptionId,
    /// A label on contacts.
    TagId,
    /// A message template.
    TemplateId,
    /// A person who signs in.
    UserId,
    /// A webhook event.
    WebhookEventId,
    /// A webhook endpoint, outbound or inbound.
    WebhookId,
    /// One attempt of a delivery, or one received call.
    WebhookLogId,
}
