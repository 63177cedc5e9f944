//! The bodies of requests and responses.

use garde::Validate;
use recado_domain::campaigns::{FailureClass, Variables};
use recado_domain::direct_messages::{
    Batch, ContentKind, Created, DirectMessage, DirectMessageError, DirectStatus, HoldReason, MessageHeaderInput,
    MessageInput, MessageTemplate, MessageTemplateInput, Outcome, Phase, RecipientInput, RemovedMessage,
};
use recado_domain::messaging::{AddressKind, Category, ContentInput, InteractiveInput, MediaInput, Pricing};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{
    ApiKeyId, ContactId, ConversationId, MediaId, MessageId, ProfileId, TemplateId, UserId, timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use crate::error::ApiError;
use crate::web::responses::response_type;

/// The most items of a batch.
const BATCH: usize = 1000;

/// The person that a message is for: exactly one of `contact_id`, `phone` and `wa_user_id`.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "MessageRecipient")]
pub(super) struct RecipientBody {
    /// A contact of the account.
    contact_id: Option<ContactId>,
    /// A phone number. Without a contact that has it, one is made.
    #[schemars(example = &"+5511961234567")]
    phone: Option<String>,
    /// WhatsApp's user id of a person who hides the phone number. Without a contact that has it, one is made.
    #[schemars(example = &"BR.1A2B3C")]
    wa_user_id: Option<String>,
    /// The name of a contact that is made: 1 to 200 characters.
    #[schemars(length(min = 1, max = 200), example = &"Ana Souza")]
    name: Option<String>,
}

/// The header of a template, for this message only: a file, or a location with all of its fields.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "MessageHeader")]
pub(super) struct HeaderBody {
    /// A file of the account, of the header's type: an upload, or the file of a message. It must be ready.
    #[schemars(example = &"0190a1b2-c3d4-7e5f-8a9b-000000000001")]
    media_id: Option<MediaId>,
    /// An https URL that WhatsApp fetches.
    #[schemars(example = &"https://loja.example/nota-1042.pdf")]
    media_url: Option<String>,
    /// Degrees north of the equator, of a template with a location header.
    #[schemars(range(min = -90, max = 90), example = -23.561_4)]
    latitude: Option<f64>,
    /// Degrees east of Greenwich.
    #[schemars(range(min = -180, max = 180), example = -46.655_9)]
    longitude: Option<f64>,
    /// The name of the location.
    #[schemars(length(min = 1, max = 100), example = &"Loja Paulista")]
    name: Option<String>,
    /// The address of the location.
    #[schemars(length(min = 1, max = 200), example = &"Av. Paulista, 1578, São Paulo")]
    address: Option<String>,
}

/// The template of a message: either its `id`, or its `name` and `language`.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "MessageTemplateInput")]
pub(in crate::routes) struct TemplateBody {
    /// The template's id.
    id: Option<TemplateId>,
    /// The template's name.
    #[schemars(example = &"order_update")]
    name: Option<String>,
    /// The template's language.
    #[schemars(example = &"pt_BR")]
    language: Option<String>,
    /// The value of each placeholder, spelled in full or as in a campaign.
    variables: Option<Variables>,
    /// Replaces the file of the template's header, or is its location.
    header: Option<HeaderBody>,
    /// When the template's limited-time offer ends: at least a minute after the message leaves.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(default, with = "timestamp::option")]
    offer_expires_at: Option<OffsetDateTime>,
}

/// A message to one person.
#[derive(Deserialize, Validate, JsonSchema)]
#[schemars(rename = "NewMessage")]
pub(super) struct MessageBody {
    /// The recipient.
    #[schemars(required)]
    #[garde(skip)]
    to: Option<RecipientBody>,
    /// A template message, which may be sent at any time. Exactly one of `template`,
    /// `text`, `media` and `interactive` is required.
    #[garde(skip)]
    template: Option<TemplateBody>,
    /// A text of 1 to 4096 characters. WhatsApp allows it within 24 hours after the contact's last message.
    #[schemars(length(min = 1, max = 4096), example = &"Seu pedido saiu para entrega.")]
    #[garde(skip)]
    text: Option<String>,
    /// A file, under the rules of `text`.
    #[garde(skip)]
    media: Option<MediaInput>,
    /// Reply buttons or a list, under the rules of `text`.
    #[garde(skip)]
    interactive: Option<InteractiveInput>,
    /// The sending number. Default: the number of the contact's conversation, else the account's default number.
    #[garde(skip)]
    profile_id: Option<ProfileId>,
    /// When the message leaves, at most 30 days ahead. Default: now.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(default, with = "timestamp::option")]
    #[garde(skip)]
    send_at: Option<OffsetDateTime>,
    /// After this time the message is not tried any more: at most 30 days after `send_at`. Default: 24 hours after it.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(default, with = "timestamp::option")]
    #[garde(skip)]
    expires_at: Option<OffsetDateTime>,
    /// Your own key of the message: 1 to 128 visible ASCII characters, unique in the account for ever. The same request
    /// again returns the first message.
    #[schemars(length(min = 1, max = 128), example = &"order-1042-shipped")]
    #[garde(skip)]
    client_reference: Option<String>,
}

impl From<RecipientBody> for RecipientInput {
    fn from(body: RecipientBody) -> Self {
        Self {
            contact_id: body.contact_id,
            phone: body.phone,
            wa_user_id: body.wa_user_id,
            name: body.name,
        }
    }
}

impl From<HeaderBody> for MessageHeaderInput {
    fn from(body: HeaderBody) -> Self {
        Self {
            media_id: body.media_id,
            media_url: body.media_url,
            latitude: body.latitude,
            longitude: body.longitude,
            name: body.name,
            address: body.address,
        }
    }
}

impl From<TemplateBody> for MessageTemplateInput {
    fn from(body: TemplateBody) -> Self {
        Self {
            id: body.id,
            name: body.name,
            language: body.language,
            variables: body.variables,
            header: body.header.map(MessageHeaderInput::from),
            offer_expires_at: body.offer_expires_at,
        }
    }
}

impl From<MessageBody> for MessageInput {
    fn from(body: MessageBody) -> Self {
        Self {
            to: body.to.map(RecipientInput::from),
            template: body.template.map(MessageTemplateInput::from),
            content: ContentInput {
                text: body.text,
                media: body.media,
                interactive: body.interactive,
            },
            profile_id: body.profile_id,
            send_at: body.send_at,
            expires_at: body.expires_at,
            client_reference: body.client_reference,
        }
    }
}

/// Messages that are stored together.
#[derive(Deserialize, Validate, JsonSchema)]
#[schemars(rename = "MessageBatch")]
pub(super) struct BatchBody {
    /// 1 to 1000 messages, each as in `POST /api/messages`. A bad one is refused alone.
    #[schemars(required, with = "Vec<MessageBody>", length(min = 1, max = 1000))]
    #[garde(required, inner(length(min = 1, max = BATCH)))]
    pub(super) messages: Option<Vec<Value>>,
}

/// The recipient of a message.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessageAddress")]
pub(super) struct AddressResponse {
    /// The contact's phone number; null if it has none.
    #[schemars(example = &"+5511961234567")]
    phone: Option<String>,
    /// WhatsApp's user id of the contact; null if it is not known.
    #[schemars(example = &"BR.1A2B3C")]
    wa_user_id: Option<String>,
}

response_type! {
    /// The template of a message.
    #[schemars(rename = "MessageTemplate")]
    pub(super) struct TemplateResponse from template: MessageTemplate {
        /// The template's id.
        id: TemplateId,
        /// The template's name.
        #[schemars(example = &"order_update")]
        name: String,
        /// The template's language.
        #[schemars(example = &"pt_BR")]
        language: String,
        /// The template's category.
        category: Category,
    }
}

response_type! {
    /// What is left of a message that was removed.
    #[schemars(rename = "RemovedMessage")]
    pub(super) struct RemovedMessageResponse from message: RemovedMessage {
        /// The message's id.
        id: MessageId,
        /// The last status.
        status: DirectStatus,
        /// The caller's reference.
        #[schemars(example = &"order-1042-shipped")]
        client_reference: String,
    }
}

/// The message of an earlier equal request.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EarlierMessage")]
#[serde(untagged)]
pub(super) enum EarlierMessageResponse {
    Stored(Box<MessageResponse>),
    Removed(RemovedMessageResponse),
}

response_type! {
    /// A message to one person.
    #[schemars(rename = "DirectMessage")]
    pub(super) struct MessageResponse from message: DirectMessage {
        /// The message's id.
        id: MessageId,
        /// The contact that it is for.
        contact_id: ContactId,
        /// The contact's addresses.
        to: AddressResponse = AddressResponse {
            phone: message.phone.clone(),
            wa_user_id: message.wa_user_id.clone(),
        },
        /// The sending number; null in an account without a number, where messages are simulated.
        profile_id: Option<ProfileId>,
        /// What the message consists of.
        kind: ContentKind,
        /// The template; null for other messages.
        template: Option<TemplateResponse> = message.template.clone().map(TemplateResponse::from),
        /// The status of the message.
        status: DirectStatus,
        /// What a pending message waits for; null for every other message.
        phase: Option<Phase> = message.phase(),
        /// What keeps a held message back; null for every other message.
        hold_reason: Option<HoldReason> = message.hold().map(|(reason, _)| reason),
        /// When a held message is looked at again; null for every other message.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        retry_at: Option<OffsetDateTime> = message.hold().and_then(|(_, at)| at),
        /// When the message leaves at the earliest.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        send_at: OffsetDateTime,
        /// When the message is not tried any more.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        expires_at: OffsetDateTime,
        /// When WhatsApp accepted the message; null before.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        sent_at: Option<OffsetDateTime>,
        /// The caller's own key of the message; null if it has none.
        #[schemars(example = &"order-1042-shipped")]
        client_reference: Option<String>,
        /// WhatsApp's id of the message; null until WhatsApp accepts it.
        #[schemars(example = &"wamid.HBgNNTUxMTk2MTIzNDU2NxUCABEYEjVBQ0Q3")]
        wa_message_id: Option<String>,
        /// WhatsApp's error code; null if the message did not fail with one.
        error_code: Option<i64>,
        /// Why the message failed; null if it did not.
        #[schemars(example = &"Message undeliverable")]
        error_message: Option<String>,
        /// Whether another message could reach the contact: `again` at any time, `later` from `retry_after` on, `never`
        /// not at all. Null for a message that did not fail.
        failure_class: Option<FailureClass>,
        /// When another message could reach the contact, for the class `later`; null for every other message.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        retry_after: Option<OffsetDateTime>,
        /// The price that WhatsApp reports; null until a status update contains one.
        pricing: Option<Pricing>,
        /// The kind of address that the message left to: `phone` or `user_id`; null before it left.
        address: Option<AddressKind>,
        /// The conversation that shows the message; null if the contact had none when it was sent.
        conversation_id: Option<ConversationId>,
        /// The user who made the message; for an API key its creator.
        created_by: UserId,
        /// The API key that made the message; null for a session.
        api_key_id: Option<ApiKeyId>,
        /// When the message was made.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
        /// When the message last changed.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        updated_at: OffsetDateTime,
    }
}

/// How one item of a batch ended.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ItemOutcome {
    /// The message is stored.
    Accepted,
    /// The message of an earlier equal request.
    Duplicate,
    /// Nothing is stored.
    Refused,
}

/// An item of a batch.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessageBatchItem")]
pub(super) struct ItemResponse {
    /// The position in the request, counted from 0.
    index: usize,
    /// How it ended.
    outcome: ItemOutcome,
    /// The message's id; null for a refused item.
    id: Option<MessageId>,
    /// The message's status; null for a refused item.
    status: Option<DirectStatus>,
    /// The error of a refused item, as `POST /api/messages` returns it; null for every other item.
    error: Option<Value>,
}

/// The outcomes of a batch.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessageBatchReport")]
pub(super) struct BatchResponse {
    /// The number of messages that are stored now.
    accepted: usize,
    /// The number of items whose message existed.
    duplicates: usize,
    /// The number of refused items.
    refused: usize,
    /// One outcome for each item, in order.
    results: Vec<ItemResponse>,
}

impl From<Batch> for BatchResponse {
    fn from(Batch(outcomes): Batch) -> Self {
        let results: Vec<_> = outcomes.into_iter().enumerate().map(item_response).collect();
        let count = |counted: fn(&ItemOutcome) -> bool| results.iter().filter(|item| counted(&item.outcome)).count();
        Self {
            accepted: count(|outcome| matches!(outcome, ItemOutcome::Accepted)),
            duplicates: count(|outcome| matches!(outcome, ItemOutcome::Duplicate)),
            refused: count(|outcome| matches!(outcome, ItemOutcome::Refused)),
            results,
        }
    }
}

fn item_response((index, outcome): (usize, Outcome)) -> ItemResponse {
    let item = |outcome, id, status| ItemResponse {
        index,
        outcome,
        id: Some(id),
        status: Some(status),
        error: None,
    };
    match outcome {
        Outcome::Done(created) => match *created {
            Created::New(message) => item(ItemOutcome::Accepted, message.id, message.status),
            Created::Repeated(message) => item(ItemOutcome::Duplicate, message.id, message.status),
            Created::Removed(message) => item(ItemOutcome::Duplicate, message.id, message.status),
        },
        Outcome::Repeats(id) => item(ItemOutcome::Duplicate, id, DirectStatus::Pending),
        Outcome::Refused(error) => ItemResponse {
            index,
            outcome: ItemOutcome::Refused,
            id: None,
            status: None,
            error: Some(ApiError::from(DirectMessageError::from(error)).published()),
        },
    }
}
