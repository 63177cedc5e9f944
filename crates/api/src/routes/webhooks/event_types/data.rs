//! The `data` of webhook events, by type. The domain builds it; tests compare it with these types.

#![expect(dead_code, reason = "only the schemas are used")]

use recado_domain::billing::{Cycle, SubscriptionStatus};
use recado_domain::campaigns::{CampaignStatus, Trigger};
use recado_domain::conversations::MessageContext;
use recado_domain::ingestion::OrderStatus;
use recado_domain::media::MessageFile;
use recado_domain::messaging::{AddressKind, Category, MetaStatus, SendStatus};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{
    Amount, AutomationId, CampaignId, ContactId, ConversationId, LinkId, MessageId, MetricEventId, OrderId, ProfileId,
    SubscriptionId, TemplateId, WebhookId,
};
use schemars::JsonSchema;
use serde_json::Value;
use uuid::Uuid;

use crate::routes::contacts::ReferralResponse;

/// `data` of `contact.created`, `contact.updated` and `contact.deleted`. `GET /api/contacts/{id}` also returns
/// attributes and tags.
#[derive(JsonSchema)]
pub(super) struct ContactEventData {
    /// The contact's id.
    id: ContactId,
    /// The contact's name.
    #[schemars(example = &"Bia")]
    name: String,
    /// The phone number in E.164 format; null if it is unknown.
    #[schemars(example = "+5511961234567")]
    phone: Option<String>,
    /// The e-mail address; null if it is unknown.
    #[schemars(example = Value::Null)]
    email: Option<String>,
    /// WhatsApp's identifier of a contact whose phone number WhatsApp hides; null if there is none.
    #[schemars(example = Value::Null)]
    wa_user_id: Option<String>,
    /// When the contact opted out; null if the contact did not.
    #[schemars(example = Value::Null)]
    opted_out_at: Option<Timestamp>,
    /// When the contact was last changed.
    updated_at: Timestamp,
}

/// `data` of `contact.erased`.
#[derive(JsonSchema)]
pub(super) struct ErasedContactEventData {
    /// The contact's id.
    id: ContactId,
    /// When the erasure was requested.
    erased_at: Timestamp,
}

/// `data` of `message.received`.
#[derive(JsonSchema)]
pub(super) struct ReceivedMessageEventData {
    /// The message's id.
    id: MessageId,
    /// The conversation of the message.
    conversation_id: ConversationId,
    /// The contact who wrote the message.
    contact_id: ContactId,
    /// The WhatsApp number that received the message; null if it is no longer connected.
    profile_id: Option<ProfileId>,
    /// WhatsApp's type of the message, for example `text`, `image` or `button`.
    #[schemars(rename = "type", example = &"text")]
    kind: String,
    /// The readable text of the message: its text, a caption or a button's label. Null if it has none.
    #[schemars(example = "Oi! Ainda tem o bolo de cenoura?")]
    text: Option<String>,
    /// WhatsApp's id of the message.
    #[schemars(example = "wamid.HBgNNTUxMTk2MTIzNDU2NxUCABIYFDNBNjY0")]
    wa_message_id: String,
    /// The ad or post that led to the message; null for every other message.
    referral: Option<ReferralResponse>,
    /// The message's file, which is not fetched yet; null if the message has none.
    media: Option<Vec<MessageFile>>,
    /// The text below a file; null if there is none.
    #[schemars(example = "O de ontem")]
    caption: Option<String>,
    /// The message that this one quotes; null if it quotes none.
    context: Option<MessageContext>,
    /// When the contact wrote the message, by WhatsApp's clock.
    created_at: Timestamp,
}

/// `data` of `message.media_ready`.
#[derive(JsonSchema)]
pub(super) struct MediaReadyEventData {
    /// The message of the file.
    message_id: MessageId,
    /// The conversation of the message.
    conversation_id: ConversationId,
    /// The contact of the conversation.
    contact_id: ContactId,
    /// The file. `GET /api/media/{id}` returns its bytes.
    media: MessageFile,
}

/// `data` of `message.sent`, `message.delivered`, `message.read` and `message.failed`. The message is of a campaign, a
/// reply, or of `POST /api/messages`.
#[derive(JsonSchema)]
pub(super) struct MessageStatusEventData {
    /// The id of the campaign's send, of the reply, or of the message of `POST /api/messages`.
    id: Uuid,
    /// The campaign; null for every other message.
    #[schemars(example = Value::Null)]
    campaign_id: Option<CampaignId>,
    /// The conversation that shows the message; null for a campaign's message.
    conversation_id: Option<ConversationId>,
    /// The recipient.
    contact_id: ContactId,
    /// WhatsApp's id of the message; null if WhatsApp has not accepted it.
    #[schemars(example = "wamid.HBgNNTUxMTk2MTIzNDU2NxUCABIYFDNBNjY0")]
    wa_message_id: Option<String>,
    /// The status that the message has now.
    status: SendStatus,
    /// WhatsApp's error code; null without one.
    #[schemars(example = Value::Null)]
    error_code: Option<i64>,
    /// Why the message failed; null if it did not.
    #[schemars(example = Value::Null)]
    error_message: Option<String>,
    /// The kind of address that the message left to; null if it has not left.
    address: Option<AddressKind>,
    /// The caller's own key of a message of `POST /api/messages`; null if it has none. Absent for other messages.
    #[schemars(skip_serializing_if = "Option::is_none", example = &"order-1042-shipped")]
    client_reference: Option<String>,
}

/// `data` of `message.cancelled`.
#[derive(JsonSchema)]
pub(super) struct CancelledMessageEventData {
    /// The message's id.
    id: MessageId,
    /// The contact that the message was for.
    contact_id: ContactId,
    /// The caller's own key of the message; null if it has none.
    #[schemars(example = &"order-1042-shipped")]
    client_reference: Option<String>,
}

/// `data` of `campaign.started`.
#[derive(JsonSchema)]
pub(super) struct CampaignStartedEventData {
    /// The campaign's id.
    id: CampaignId,
    /// The campaign's name.
    #[schemars(example = "Volta às aulas")]
    name: String,
    /// The template of the campaign.
    template_id: Option<TemplateId>,
    /// What started the run.
    trigger: Trigger,
    /// Whether the run is simulated: no WhatsApp number is connected, so no message is sent.
    simulated: bool,
    /// The number of contacts of the audience, or of the sends that are retried.
    #[schemars(example = 1840)]
    recipients: i64,
}

/// `data` of `campaign.finished`.
#[derive(JsonSchema)]
pub(super) struct CampaignFinishedEventData {
    /// The campaign's id.
    id: CampaignId,
    /// The campaign's name.
    #[schemars(example = "Volta às aulas")]
    name: String,
    /// The status of the campaign after the run.
    status: CampaignStatus,
    /// Whether the run was simulated: no WhatsApp number is connected, so no message was sent.
    simulated: bool,
    /// The number of contacts in the run.
    #[schemars(example = 1840)]
    total: i64,
    /// The number of messages that WhatsApp accepted.
    #[schemars(example = 1832)]
    sent: i64,
    /// The number of messages that WhatsApp did not accept.
    #[schemars(example = 8)]
    failed: i64,
    /// Always null: a run that WhatsApp refuses pauses instead.
    #[schemars(example = Value::Null)]
    ended_early: Option<String>,
}

/// `data` of `campaign.cancelled`.
#[derive(JsonSchema)]
pub(super) struct CampaignCancelledEventData {
    /// The campaign's id.
    id: CampaignId,
    /// The campaign's name.
    #[schemars(example = "Volta às aulas")]
    name: String,
    /// The status before.
    previous_status: CampaignStatus,
}

/// `data` of `template.status_changed`.
#[derive(JsonSchema)]
pub(super) struct TemplateStatusEventData {
    /// The template's id.
    id: TemplateId,
    /// The template's name.
    #[schemars(example = &"volta_as_aulas")]
    name: String,
    /// The template's language.
    #[schemars(example = &"pt_BR")]
    language: String,
    /// The status now.
    status: MetaStatus,
    /// The status before.
    previous_status: MetaStatus,
    /// The category now.
    category: Category,
    /// The category before.
    previous_category: Category,
    /// WhatsApp's reason of a rejection; null without one.
    #[schemars(example = &"INVALID_FORMAT")]
    rejection_reason: Option<String>,
}

/// `data` of `template.category_changing`.
#[derive(JsonSchema)]
pub(super) struct TemplateCategoryEventData {
    /// The template's id.
    id: TemplateId,
    /// The template's name.
    #[schemars(example = &"volta_as_aulas")]
    name: String,
    /// The template's language.
    #[schemars(example = &"pt_BR")]
    language: String,
    /// The category now.
    from: Category,
    /// The category that WhatsApp announced.
    to: Category,
    /// When the category changes.
    at: Timestamp,
    /// The campaigns with the template that are scheduled or sending.
    campaigns: Vec<CampaignId>,
}

/// `data` of `number.changed`.
#[derive(JsonSchema)]
pub(super) struct NumberEventData {
    /// The connected number.
    profile_id: ProfileId,
    /// WhatsApp's id of the number.
    #[schemars(example = "106540352242922")]
    phone_number_id: String,
    /// The phone number as WhatsApp shows it; null if it is not read yet.
    #[schemars(example = "+1 631-555-5555")]
    display_phone_number: Option<String>,
    /// What changed.
    change: NumberChange,
    /// The value before; null for an event of the business account.
    #[schemars(example = &"green")]
    previous: Option<NumberValue>,
    /// The value now; for an event of the business account, WhatsApp's word for it.
    #[schemars(example = &"yellow")]
    current: Option<NumberValue>,
    /// The reason that WhatsApp reports, or what a failed check found; null without one.
    #[schemars(example = Value::Null)]
    reason: Option<String>,
}

/// What changed of a number.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum NumberChange {
    /// The state of its verification.
    Verification,
    /// Its quality rating.
    Quality,
    /// Its throughput.
    Throughput,
    /// How many people it may write to in a day.
    MessagingLimit,
    /// WhatsApp's status of the number.
    Status,
    /// Its name, or WhatsApp's review of the name.
    Name,
    /// WhatsApp reported an event of its business account.
    Account,
}

/// A value of a number: an integer for `messaging_limit`, else a string.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum NumberValue {
    Text(String),
    Limit(i64),
}

/// `data` of `subscription.changed`.
#[derive(JsonSchema)]
pub(super) struct SubscriptionEventData {
    /// The subscription's id.
    id: SubscriptionId,
    /// The plan.
    #[schemars(example = &"growth")]
    plan: String,
    /// How often the plan is paid.
    cycle: Cycle,
    /// The status now.
    status: SubscriptionStatus,
    /// The status before; null for a new subscription.
    previous_status: Option<SubscriptionStatus>,
    /// The price of a cycle in cents.
    #[schemars(example = 9900)]
    value: i64,
    /// The end of the paid period; null before the first payment.
    current_period_end: Option<Timestamp>,
}

/// `data` of `cost.threshold`.
#[derive(JsonSchema)]
pub(super) struct CostThresholdEventData {
    /// The amount of the setting `cost_alerts`, in units of `currency`.
    #[schemars(example = 100)]
    threshold: Amount,
    /// The currency of the three amounts.
    #[schemars(example = &"USD")]
    currency: String,
    /// The month in the account's time zone.
    #[schemars(example = &"2026-11", regex(pattern = r"^[0-9]{4}-[0-9]{2}$"))]
    month: String,
    /// What the month's messages cost now, in units of `currency`.
    #[schemars(example = 100.0375)]
    amount: Amount,
    /// The sum before the status updates that passed the threshold.
    #[schemars(example = 99.975)]
    previous: Amount,
}

/// `data` of `order.recorded`: the order as it is now.
#[derive(JsonSchema)]
pub(super) struct OrderEventData {
    /// The order's id.
    id: OrderId,
    /// The shop's id of the order.
    #[schemars(example = "1001")]
    external_id: String,
    /// The shop system of the order.
    #[schemars(example = &"loja")]
    platform: String,
    /// The status of the order.
    status: OrderStatus,
    /// The total in currency units.
    #[schemars(example = 149.9)]
    total: Amount,
    /// The customer; null if no contact is known.
    contact_id: Option<ContactId>,
    /// The campaign that the order is attributed to; null without one.
    campaign_id: Option<CampaignId>,
    /// The automation that the order is attributed to; null without one.
    automation_id: Option<AutomationId>,
    /// The link that the order is attributed to; null without one.
    link_id: Option<LinkId>,
    /// When the order was placed.
    placed_at: Timestamp,
    /// When the order was paid; null if it is not.
    paid_at: Option<Timestamp>,
}

/// `data` of `metric.recorded`.
#[derive(JsonSchema)]
pub(super) struct MetricEventData {
    /// The metric event's id.
    id: MetricEventId,
    /// The name of the metric.
    #[schemars(example = &"visit")]
    metric_name: String,
    /// The contact; null if no contact is known.
    contact_id: Option<ContactId>,
    /// The value; null without one.
    #[schemars(example = 12.5)]
    value: Option<Amount>,
    /// The currency of the value; null without one.
    #[schemars(example = &"BRL")]
    currency: Option<String>,
    /// The system that reported the event.
    #[schemars(example = &"site")]
    source: String,
    /// When the event happened.
    occurred_at: Timestamp,
}

/// `data` of `test.ping`.
#[derive(JsonSchema)]
pub(super) struct TestPingEventData {
    /// The tested endpoint.
    webhook_id: WebhookId,
    /// The endpoint's name.
    #[schemars(example = &"CRM")]
    name: String,
}
