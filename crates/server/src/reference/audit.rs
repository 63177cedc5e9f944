//! OpenAPI documentation of the audit log.

use serde_json::json;

use super::OpenApiTag;
use super::operation::{Operation, data, numbered_page, text};
use crate::routes::audit::{LIMIT, Logs};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Audit log",
    description: "Records who changed what in the account, and when.",
};

pub(crate) fn list() -> Operation {
    let description = "Returns audit entries with numbered pages, newest first. The list includes every change whose \
                response was sent before this request.";
    Operation::new("List audit entries", description)
        .takes(text("entityType", "Only entries about this type of resource.").example("campaign"))
        .takes(
            text(
                "action",
                "Only entries with this action: `create`, `update`, `delete` or another.",
            )
            .example("update"),
        )
        .takes_all(numbered_page(&LIMIT))
        .responds(data::<Logs>("A page of entries.").example(json!({ "total": 1, "page": 1 })))
}
