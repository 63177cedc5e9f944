//! OpenAPI documentation of notifications.

use recado_domain::notifications::Notification;
use recado_domain::shared::CursorPage;
use serde_json::json;

use super::operation::{Operation, cursor_page, custom, data, id, no_content, path_id};
use super::{ErrorCode, OpenApiTag};
use crate::routes::notifications::UNREAD;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Notifications",
    description: "Messages to the members of an account inside the product, as a list and as a stream.",
};

/// Example of a stream.
const EVENTS: &str = "retry: 1000\n: welcome\n\nevent: notification\nid: 0190a1b2-c3d4-7e5f-8a9b-000000000009\ndata: \
                      {\"id\":\"0190a1b2-c3d4-7e5f-8a9b-000000000009\",\"type\":\"warning\",\"title\":\"Campaign \
                      finished: Volta às aulas\",\"message\":\"1832 messages were sent, 8 were not.\",\
                      \"data\":{\"campaign_id\":\"0190a1b2-c3d4-7e5f-8a9b-000000000007\",\"status\":\"partial\",\
                      \"total\":1840,\"sent\":1832,\"failed\":8,\"simulated\":false},\"read_at\":null,\"created_at\":\"2026-02-01T09:30:00.000Z\"}\n\n";

pub(crate) fn list() -> Operation {
    Operation::new(
        "List notifications",
        "Returns the account's notifications, newest first.",
    )
    .takes(&UNREAD)
    .takes_all(cursor_page())
    .responds(data::<CursorPage<Notification>>(
        "A page of notifications and its `nextCursor`.",
    ))
}

pub(crate) fn stream() -> Operation {
    let description = "Streams new notifications of the account as server-sent events: `event: notification`, the \
                notification's id in `id` and the notification as JSON in `data`. A comment is sent every 15 seconds. \
                The stream stays open until the caller loses access or the server stops.";
    let last_id = "The id of the last received notification. Later notifications are sent first. An unknown id is \
                   ignored.";
    Operation::new("Stream notifications", description)
        .takes(id("Last-Event-ID", last_id).in_header())
        .responds(
            custom("text/event-stream", "The stream.", json!({ "type": "string" }))
                .example(json!(EVENTS))
                .header(
                    "X-Accel-Buffering",
                    "`no`: a proxy must not buffer the stream.",
                    json!({ "type": "string", "const": "no" }),
                ),
        )
        .refuses(
            ErrorCode::TooManyAtOnce,
            "An account can have at most 20 open streams on one server, and a person or an API key at most 5.",
        )
        .refuses(ErrorCode::Unavailable, "The server has too many open streams.")
}

pub(crate) fn read_all() -> Operation {
    let description = "Marks every notification of the account as read, for all members.";
    Operation::new("Mark all notifications as read", description).responds(no_content("All notifications are read."))
}

pub(crate) fn read() -> Operation {
    let description = "Marks a notification as read, for all members. A read notification is not changed.";
    Operation::new("Mark a notification as read", description)
        .takes(path_id("The notification's id."))
        .responds(no_content("The notification is read."))
}
