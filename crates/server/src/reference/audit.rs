//! What the reference says of the audit log.

use serde_json::json;

use super::OpenApiTag;
use super::operation::{Operation, data, page_of, text};
use crate::routes::audit::Logs;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Audit log",
    description: "Who did what in the account, and when.",
};

pub(crate) fn list() -> Operation {
    let description = "Entries by numbered pages, newest first. Whatever was answered before this request is in them.";
    Operation::new("List audit entries", description)
        .takes(text("entityType", "Only entries about this kind of thing.").example("campaign"))
        .takes(
            text(
                "action",
                "Only entries of this action: `create`, `update`, `delete` and others.",
            )
            .example("update"),
        )
        .takes_all(page_of((50, 100)))
        .answers(data::<Logs>("A page of entries.").example(json!({ "total": 1, "page": 1 })))
}
