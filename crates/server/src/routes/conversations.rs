//! Routes of conversations: lists, replies and status.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::conversations::{Conversation, ConversationQuery, ConversationStatus, Conversations, Message};
use recado_domain::shared::{ConversationId, CursorPage, FieldErrors, TimeCursor};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::error::{ApiError, ErrorCode};
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::operation::{Body, OpenApiTag, Operation, created, data, path_id};
use crate::web::parameters::{CursorParam, EnumParam, LIMIT};
use crate::web::query::{CursorParams, Params};
use crate::web::responses;
use crate::web::route::{Endpoint, endpoint};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Conversations",
    description: "Messages from contacts, and replies to them.",
};

const ID: &str = "The conversation's id.";

const CURSOR: CursorParam = CursorParam {
    description: "The `nextCursor` of the previous page. Omit it for the first page.",
    example: Some(""),
};

pub(crate) const STATUS: EnumParam<ConversationStatus> = EnumParam {
    name: "status",
    description: "Only conversations in this status.",
    accepted: "open or closed",
    example: Some(ConversationStatus::Open),
};

/// A reply to a contact.
#[derive(Deserialize, Validate, JsonSchema)]
struct ReplyBody {
    /// The text of the reply: 1 to 4096 characters.
    #[schemars(
        required,
        length(min = 1, max = 4096),
        example = "Temos, sim! Quer que eu separe um?"
    )]
    #[garde(required)]
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
    Ok(responses::ok(conversations.list(&tenant, &query).await?))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    let description = "Returns conversations, latest message first.";
    Operation::new("List conversations", description)
        .takes(&STATUS)
        .takes(&CURSOR)
        .takes(&LIMIT)
        .responds(data::<CursorPage<Conversation>>(
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
    Ok(responses::ok(conversations.messages(&tenant, id, &query).await?))
}

pub(super) const MESSAGES: Endpoint = endpoint!(messages, {
    Operation::new(
        "List a conversation's messages",
        "Returns the messages of a conversation, latest first.",
    )
    .takes(path_id(ID))
    .takes(&CURSOR)
    .takes(&LIMIT)
    .responds(data::<CursorPage<Message>>("A page of messages and its `nextCursor`."))
});

/// `POST /api/conversations/<id>/messages`
async fn reply(
    conversations: Data<Conversations>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ConversationId>,
    Json(input): Json<ReplyBody>,
) -> Result<HttpResponse, ApiError> {
    let text = input.text.unwrap_or_default();
    Ok(responses::created(conversations.reply(&tenant, id, text).await?))
}

pub(super) const REPLY: Endpoint = endpoint!(reply, {
    let description = "Sends a text to the contact from the WhatsApp number that the contact wrote to. WhatsApp \
                allows free-form messages for 24 hours after the contact's last message; after that, only campaigns \
                can reach the contact. An accepted reply counts towards the month's quota, but a full quota never \
                blocks a reply.";
    Operation::new("Reply in a conversation", description)
        .takes(path_id(ID))
        .body(Body::json::<ReplyBody>())
        .responds(
            created::<Message>(
                "The message: `sent`, or `pending` while the outcome of the call to WhatsApp is \
                        unknown.",
            )
            .example(
                json!({ "direction": "outbound", "text": "Temos, sim! Quer que eu separe um?", "status": "sent" }),
            ),
        )
        .refuses(
            ErrorCode::Precondition,
            "More than 24 hours have passed since the contact's last message; no WhatsApp number is connected; or the \
             contact has neither a phone number nor a WhatsApp user id.",
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
    Ok(responses::ok(conversations.set_status(&tenant, id, status).await?))
}

pub(super) const UPDATE: Endpoint = endpoint!(update, {
    let description = "Opens or closes a conversation. A message in either direction reopens it.";
    Operation::new("Open or close a conversation", description)
        .takes(path_id(ID))
        .body(Body::json::<ConversationBody>().example(json!({ "status": "closed" })))
        .responds(data::<Conversation>("The updated conversation.").example(json!({ "status": "closed" })))
});
