//! OpenAPI documentation of conversations.

use recado_domain::conversations::{Conversation, Message};
use recado_domain::shared::CursorPage;
use serde_json::json;

use super::operation::{Body, Operation, created, data, path_id, text};
use super::{ErrorCode, OpenApiTag};
use crate::routes::conversations::{ConversationBody, ReplyBody, STATUS};
use crate::web::parameters::LIMIT;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Conversations",
    description: "Messages from contacts, and replies to them.",
};

const ID: &str = "The conversation's id.";

const CURSOR: &str = "The `nextCursor` of the previous page. Omit it for the first page.";

pub(crate) fn list() -> Operation {
    let description = "Returns conversations, latest message first.";
    Operation::new("List conversations", description)
        .takes(&STATUS)
        .takes(text("cursor", CURSOR).example(""))
        .takes(&LIMIT)
        .responds(data::<CursorPage<Conversation>>(
            "A page of conversations and its `nextCursor`.",
        ))
}

pub(crate) fn update() -> Operation {
    let description = "Opens or closes a conversation. A message in either direction reopens it.";
    Operation::new("Open or close a conversation", description)
        .takes(path_id(ID))
        .body(Body::json::<ConversationBody>().example(json!({ "status": "closed" })))
        .responds(data::<Conversation>("The updated conversation.").example(json!({ "status": "closed" })))
}

pub(crate) fn messages() -> Operation {
    Operation::new(
        "List a conversation's messages",
        "Returns the messages of a conversation, latest first.",
    )
    .takes(path_id(ID))
    .takes(text("cursor", CURSOR).example(""))
    .takes(&LIMIT)
    .responds(data::<CursorPage<Message>>("A page of messages and its `nextCursor`."))
}

pub(crate) fn reply() -> Operation {
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
}
