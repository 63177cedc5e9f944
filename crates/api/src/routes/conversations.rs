//! Routes of conversations: lists, replies and status.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::conversations::{
    Conversation, ConversationQuery, ConversationStatus, Conversations, Direction, Message, MessageContext,
    MessageOrigin, MessageStatus, ReplyInput,
};
use recado_domain::direct_messages::MessageTemplateInput;
use recado_domain::media::MessageFile;
use recado_domain::messaging::{AddressKind, ContentInput, InteractiveInput, MediaInput, Pricing};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{ContactId, ConversationId, CursorPage, FieldErrors, MessageId, TimeCursor, timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::contacts::ReferralResponse;
use super::direct_messages::body::TemplateBody;
use crate::error::{ApiError, ErrorCode};
use crate::web::body::{Json, MaybeJson};
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::operation::{Body, OpenApiTag, Operation, created, data, path_id};
use crate::web::parameters::{CursorParam, EnumParam, LIMIT};
use crate::web::query::{CursorParams, Params};
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Conversations",
    description: "Messages from contacts, and replies to them.",
};

const ID: &str = "The conversation's id.";

const CURSOR: CursorParam = CursorParam::first_page(Some(""));

pub(crate) const STATUS: EnumParam<ConversationStatus> = EnumParam {
    name: "status",
    description: "Only conversations in this status.",
    accepted: "open or closed",
    example: Some(ConversationStatus::Open),
};

/// A reply to a contact: exactly one of `text`, `media`, `template` and `interactive`.
#[derive(Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
struct ReplyBody {
    /// The text of the reply: 1 to 4096 characters.
    #[schemars(length(min = 1, max = 4096), example = "Temos, sim! Quer que eu separe um?")]
    text: Option<String>,
    /// A file.
    media: Option<MediaInput>,
    /// A template message. It may be sent at any time, and uses one message of the month's quota.
    template: Option<TemplateBody>,
    /// Reply buttons or a list.
    interactive: Option<InteractiveInput>,
    /// The message of the conversation that the reply quotes.
    reply_to: Option<MessageId>,
}

/// A request for a contact's phone number.
#[derive(Default, Deserialize, Validate, JsonSchema)]
#[garde(allow_unvalidated)]
struct PhoneRequestBody {
    /// The text above the button: 1 to 1024 characters. Without it, a text in the language of most of the account's
    /// templates, or in Portuguese.
    #[schemars(
        length(min = 1, max = 1024),
        example = "Qual é o seu número? Ligamos quando o bolo estiver pronto."
    )]
    text: Option<String>,
}

/// The new status of a conversation.
#[derive(Deserialize, Validate, JsonSchema)]
struct ConversationBody {
    /// The new status.
    #[schemars(required, with = "ConversationStatus")]
    #[garde(required)]
    status: Option<String>,
}

response_type! {
    /// The messages that an account and one contact exchange outside campaigns.
    #[schemars(rename = "Conversation")]
    struct ConversationResponse from conversation: Conversation {
        /// The conversation's id.
        id: ConversationId,
        /// The contact of the conversation. A contact has one conversation.
        contact_id: ContactId,
        /// `open` while the conversation needs attention, `closed` when a member has closed it.
        status: ConversationStatus,
        /// When the latest message of either side was written.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        last_message_at: OffsetDateTime,
        /// When the conversation was created.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
    }
}

response_type! {
    /// A message of a conversation.
    #[schemars(rename = "Message")]
    struct MessageResponse from message: Message {
        /// The message's id.
        id: MessageId,
        /// The conversation that it belongs to.
        conversation_id: ConversationId,
        /// Who wrote the message: the contact (`inbound`) or the account (`outbound`).
        direction: Direction,
        /// WhatsApp's type of the message, for example `text`, `image`, `button` or `contacts`; `contact_request` for a
        /// request for the contact's phone number.
        #[schemars(example = &"text")]
        #[serde(rename = "type")]
        kind: String,
        /// The readable text of the message: its text, a caption or a button's label. Null if it has none.
        #[schemars(example = "Oi! Ainda tem o bolo de cenoura?")]
        text: Option<String>,
        /// The delivery status of the message.
        status: MessageStatus,
        /// Where the message was written: by the contact, as a reply here, by an API call, or in the business's own app.
        origin: MessageOrigin,
        /// The files of the message. Null if it has none.
        media: Option<Vec<MessageFile>> = Some(message.media).filter(|media| !media.is_empty()),
        /// The text below a file. Null if there is none.
        #[schemars(example = Value::Null)]
        caption: Option<String>,
        /// What the contact pressed (`id` and `title`), or the data of a flow. Null for every other message.
        #[schemars(with = "Option<Map<String, Value>>", example = Value::Null)]
        interactive: Option<Value>,
        /// The message that this one quotes. Null if it quotes none.
        context: Option<MessageContext>,
        /// When the author revoked the message. Its text and files are gone. Null for every other message.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        deleted_at: Option<OffsetDateTime>,
        /// WhatsApp's id of the message. Null until WhatsApp accepts the message.
        #[schemars(example = "wamid.HBgNNTUxMTk2MTIzNDU2NxUCABIYFDNBNjY0")]
        wa_message_id: Option<String>,
        /// The ad or post that led to the message. Null for every other message.
        referral: Option<ReferralResponse> = message.referral.map(ReferralResponse::from),
        /// The price that WhatsApp reports for the message. Null until a status update contains one, and for inbound
        /// messages.
        pricing: Option<Pricing>,
        /// The kind of address that a message of the account leaves to: `phone` or `user_id`; null for other messages.
        address: Option<AddressKind>,
        /// When the message was written, by the clock of the side that wrote it.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
    }
}

/// `GET /api/conversations`
async fn list(
    conversations: Data<Conversations>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let query = ConversationQuery {
        status: params.one_of(&STATUS),
        page: params.cursor_query(),
    };
    params.check()?;
    let page = conversations.list(&tenant, &query).await?;
    Ok(responses::ok(page.map(ConversationResponse::from)))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    let description = "Returns conversations, latest message first.";
    Operation::new("List conversations", description)
        .takes(&STATUS)
        .takes(&CURSOR)
        .takes(&LIMIT)
        .responds(data::<CursorPage<ConversationResponse>>(
            "A page of conversations and its `nextCursor`.",
        ))
});

/// `GET /api/conversations/<id>/messages`
async fn messages(
    conversations: Data<Conversations>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ConversationId>,
    CursorParams(query): CursorParams<TimeCursor>,
) -> Result<HttpResponse, ApiError> {
    let page = conversations.messages(&tenant, id, &query).await?;
    Ok(responses::ok(page.map(MessageResponse::from)))
}

pub(super) const MESSAGES: Endpoint = endpoint!(messages, {
    Operation::new(
        "List a conversation's messages",
        "Returns the messages of a conversation, latest first.",
    )
    .takes(path_id(ID))
    .takes(&CURSOR)
    .takes(&LIMIT)
    .responds(data::<CursorPage<MessageResponse>>(
        "A page of messages and its `nextCursor`.",
    ))
});

/// `POST /api/conversations/<id>/messages`
async fn reply(
    conversations: Data<Conversations>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ConversationId>,
    Json(input): Json<ReplyBody>,
) -> Result<HttpResponse, ApiError> {
    let message = conversations.reply(&tenant, id, input.into()).await?;
    Ok(responses::created(MessageResponse::from(message)))
}

impl From<ReplyBody> for ReplyInput {
    fn from(body: ReplyBody) -> Self {
        Self {
            content: ContentInput {
                text: body.text,
                media: body.media,
                interactive: body.interactive,
            },
            template: body.template.map(MessageTemplateInput::from),
            reply_to: body.reply_to,
        }
    }
}

pub(super) const REPLY: Endpoint = endpoint!(reply, {
    let description = "Sends a text, a file, reply buttons, a list or a template to the contact from the WhatsApp number that \
                the contact wrote to. WhatsApp allows free-form messages for 24 hours after the contact's last message; \
                after that, only templates reach the contact. An accepted reply counts towards the month's quota, but a \
                full quota blocks template replies only.";
    Operation::new("Reply in a conversation", description)
        .takes(path_id(ID))
        .body(Body::json::<ReplyBody>().example(json!({ "text": "Temos, sim! Quer que eu separe um?" })))
        .responds(
            created::<MessageResponse>(
                "The message: `sent`, or `pending` while the outcome of the call to WhatsApp is \
                        unknown.",
            )
            .example(
                json!({ "direction": "outbound", "text": "Temos, sim! Quer que eu separe um?", "status": "sent" }),
            ),
        )
        .refuses(
            ErrorCode::Precondition,
            "More than 24 hours have passed since the contact's last message (`details.reason` is `outside_window`); no \
             verified WhatsApp number is connected; the contact has neither a phone number nor a WhatsApp user id; or, \
             for a template, a reason of `POST /api/messages`.",
        )
        .refuses(ErrorCode::Whatsapp, "")
        .refuses(ErrorCode::Storage, "")
});

/// `POST /api/conversations/<id>/request-phone`
async fn request_phone(
    conversations: Data<Conversations>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ConversationId>,
    MaybeJson(input): MaybeJson<PhoneRequestBody>,
) -> Result<HttpResponse, ApiError> {
    let message = conversations.request_phone(&tenant, id, input.text).await?;
    Ok(responses::created(MessageResponse::from(message)))
}

pub(super) const REQUEST_PHONE: Endpoint = endpoint!(request_phone, {
    let description = "Asks a contact whose phone number WhatsApp hides for it, with a button that sends the contact's \
                own number. The answer is an inbound message of type `contacts`. If it comes within 7 days, the \
                contact gets the phone number, unless another contact has it. A card that a person shares by hand \
                changes no contact. A contact is asked at most once within 24 hours.";
    Operation::new("Request a contact's phone number", description)
        .takes(path_id(ID))
        .body(Body::json::<PhoneRequestBody>().optional())
        .responds(
            created::<MessageResponse>(
                "The message: `sent`, or `pending` while the outcome of the call to WhatsApp is unknown.",
            )
            .example(
                json!({ "direction": "outbound", "type": "contact_request", "status": "sent",
                "text": "Qual é o seu número? Ligamos quando o bolo estiver pronto." }),
            ),
        )
        .refuses(
            ErrorCode::Precondition,
            "`details.reason` is `outside_window`, `phone_known`, `number_unverified` or `asked_already`; or no \
             WhatsApp number is connected.",
        )
        .refuses(ErrorCode::Whatsapp, "")
});

/// `PUT /api/conversations/<id>`
async fn update(
    conversations: Data<Conversations>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ConversationId>,
    Json(input): Json<ConversationBody>,
) -> Result<HttpResponse, ApiError> {
    let status: Result<ConversationStatus, String> = input.status.unwrap_or_default().parse();
    let status = status.map_err(|error| FieldErrors::one("status", error))?;
    let conversation = conversations.set_status(&tenant, id, status).await?;
    Ok(responses::ok(ConversationResponse::from(conversation)))
}

pub(super) const UPDATE: Endpoint = endpoint!(update, {
    let description = "Opens or closes a conversation. A message in either direction reopens it.";
    Operation::new("Open or close a conversation", description)
        .takes(path_id(ID))
        .body(Body::json::<ConversationBody>().example(json!({ "status": "closed" })))
        .responds(data::<ConversationResponse>("The updated conversation.").example(json!({ "status": "closed" })))
});
