//! What the reference says of conversations.

use recado_domain::conversations::{Conversation, ConversationStatus, Message};
use recado_domain::shared::CursorPage;
use serde_json::json;

use super::operation::{Body, Operation, created, data, id_of, limit_of, string_enum, text};
use super::{ErrorCode, OpenApiTag};
use crate::routes::conversations::{ConversationBody, ReplyBody};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Conversations",
    description: "What contacts write, and what is answered to them.",
};

const ID: &str = "The conversation's id.";

const CURSOR: &str = "The `nextCursor` of the answer before; absent for the first items.";

pub(crate) fn list() -> Operation {
    let description = "Conversations, the one with the latest message first.";
    Operation::new("List conversations", description)
        .takes(string_enum::<ConversationStatus>("status", "Only conversations in this status.").example("open"))
        .takes(text("cursor", CURSOR).example(""))
        .takes(limit_of((20, 100)))
        .answers(data::<CursorPage<Conversation>>(
            "Conversations, and where the next ones begin.",
        ))
}

pub(crate) fn update() -> Operation {
    let description = "Opens or closes a conversation. A message, from either side, opens it again.";
    Operation::new("Open or close a conversation", description)
        .takes(id_of(ID))
        .body(Body::json::<ConversationBody>().example(json!({ "status": "closed" })))
        .answers(data::<Conversation>("The conversation as it is now.").example(json!({ "status": "closed" })))
}

pub(crate) fn messages() -> Operation {
    Operation::new(
        "List a conversation's messages",
        "The messages of a conversation, the latest first.",
    )
    .takes(id_of(ID))
    .takes(text("cursor", CURSOR).example(""))
    .takes(limit_of((20, 100)))
    .answers(data::<CursorPage<Message>>(
        "Messages, and where the earlier ones begin.",
    ))
}

pub(crate) fn reply() -> Operation {
    let description = "Answers a contact with a text, from the number that the contact wrote to. WhatsApp lets a \
                business write freely for 24 hours after the contact's last message; later, only campaigns reach the \
                contact. A reply that was taken is one of the month's messages, and none is refused for the plan's \
                limit.";
    Operation::new("Reply in a conversation", description)
        .takes(id_of(ID))
        .body(Body::json::<ReplyBody>())
        .answers(
            created::<Message>("The message: `sent`, or `pending` where nobody knows yet whether WhatsApp took it.")
                .example(json!({ "direction": "outbound", "text": "Temos, sim! Quer que eu separe um?", "status": "sent" })),
        )
        .refuses(
            ErrorCode::Precondition,
            "The 24 hours after the contact's last message are over; no WhatsApp number is connected; or the contact has \
             neither a phone number nor a WhatsApp user id.",
        )
        .refuses(ErrorCode::Whatsapp, "")
}
