//! The registry of typed ids: a contact's id cannot be passed where a campaign's is wanted.

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
    /// A key that a program presents instead of a session.
    ApiKeyId,
    /// An entry of the audit log.
    AuditLogId,
    /// What an account does by itself for its contacts.
    AutomationId,
    /// A callback of the messaging platform, as it was received.
    CallbackId,
    /// A campaign.
    CampaignId,
    /// A person who receives messages.
    ContactId,
    /// A cart of a shop.
    CartId,
    /// What is said with one contact.
    ConversationId,
    /// One time that an automation ran.
    ExecutionId,
    /// A folder of campaigns or templates.
    FolderId,
    /// An event of the payment gateway, as it was received.
    GatewayEventId,
    /// An invitation into an account.
    InviteId,
    /// A short link.
    LinkId,
    /// A mail of the system's own, on its way out.
    MailId,
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
    /// A segment of contacts.
    SegmentId,
    /// One campaign message to one contact; derived from both, so that a repeated freeze makes the same ids.
    SendId,
    /// A subscription to a plan.
    SubscriptionId,
    /// A label on contacts.
    TagId,
    /// A message template.
    TemplateId,
    /// A person who signs in.
    UserId,
    /// What happened, as webhook endpoints know it.
    WebhookEventId,
    /// An endpoint that an account is told things at, or that it is called at.
    WebhookId,
    /// One attempt to deliver, or one call that was received.
    WebhookLogId,
}
