//! What the reference says of notifications.

use recado_domain::notifications::Notification;
use recado_domain::shared::CursorPage;
use serde_json::json;

use super::operation::{Operation, cursor_page, data, id, id_of, no_content, one_of, written};
use super::{ErrorCode, OpenApiTag};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Notifications",
    description: "What the people of an account are told inside the product, and the stream of it.",
};

/// What a stream looks like.
const EVENTS: &str = "retry: 1000\n: welcome\n\nevent: notification\nid: 0190a1b2-c3d4-7e5f-8a9b-000000000009\ndata: \
                      {\"id\":\"0190a1b2-c3d4-7e5f-8a9b-000000000009\",\"type\":\"warning\",\"title\":\"Campaign \
                      finished: Volta às aulas\",\"message\":\"1832 messages were sent, 8 were not.\",\
                      \"data\":{\"campaign_id\":\"0190a1b2-c3d4-7e5f-8a9b-000000000007\",\"status\":\"partial\",\
                      \"total\":1840,\"sent\":1832,\"failed\":8,\"simulated\":false},\"read_at\":null,\"created_at\":\"2026-02-01T09:30:00.000Z\"}\n\n";

pub(crate) fn list() -> Operation {
    let unread = "`true`: only those that nobody has read.";
    Operation::new("List notifications", "Notifications of the account, newest first.")
        .takes(
            one_of("unread", unread, &["true", "false"])
                .default("false")
                .example("true"),
        )
        .takes_all(cursor_page())
        .answers(data::<CursorPage<Notification>>(
            "Notifications, and where the next ones begin.",
        ))
}

pub(crate) fn stream() -> Operation {
    let description = "Every notification of the account as it happens, as server-sent events: `event: notification`, \
                its id as `id`, the notification as JSON in `data`. A comment comes every 15 seconds. The answer has \
                no end of its own; it ends when the caller may not listen any more, and when the server stops.";
    let last = "The id of the last notification that was received; what came since is told first. An id \
                that is unknown counts as absent.";
    Operation::new("Stream notifications", description)
        .takes(id("Last-Event-ID", last).in_header())
        .answers(
            written("text/event-stream", "The stream.", json!({ "type": "string" }))
                .example(json!(EVENTS))
                .header(
                    "X-Accel-Buffering",
                    "`no`: a proxy in between must not collect the stream.",
                    json!({ "type": "string", "const": "no" }),
                ),
        )
        .refuses(
            ErrorCode::TooManyAtOnce,
            "On one server an account has at most 10 streams open, and a person 3.",
        )
        .refuses(ErrorCode::Unavailable, "Too many streams are open.")
}

pub(crate) fn read_all() -> Operation {
    let description = "Marks every notification of the account as read, for everybody in it.";
    Operation::new("Mark all notifications as read", description).answers(no_content("All are read."))
}

pub(crate) fn read() -> Operation {
    let description = "Marks a notification as read, for everybody in the account; one that was read stays so.";
    Operation::new("Mark a notification as read", description)
        .takes(id_of("The notification's id."))
        .answers(no_content("It is read."))
}
