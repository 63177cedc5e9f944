//! OpenAPI documentation of automations.

use recado_domain::automations::Automation;
use recado_domain::ingestion::IngestionResult;
use recado_domain::shared::CursorPage;
use serde_json::json;

use super::operation::{Body, Operation, created, cursor_page, data, path_id};
use super::{ErrorCode, OpenApiTag};
use crate::routes::automations::{AutomationBody, ExecutionsBody};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Automations",
    description: "Workflows in the account's own systems, and their reported executions.",
};

const ID: &str = "The automation's id.";

pub(crate) fn list() -> Operation {
    Operation::new("List automations", "Returns the account's automations, newest first.")
        .takes_all(cursor_page())
        .responds(data::<CursorPage<Automation>>(
            "A page of automations and its `nextCursor`.",
        ))
}

pub(crate) fn create() -> Operation {
    Operation::new(
        "Create an automation",
        "Registers an automation so that its executions can be reported. The plan's limit is not checked here, only \
         when the account changes to a smaller plan.",
    )
    .body(Body::json_with::<AutomationBody>(&["name", "status"]))
    .responds(created::<Automation>("The new automation."))
}

pub(crate) fn update() -> Operation {
    Operation::new("Update an automation", "Updates an automation: absent fields are kept.")
        .takes(path_id(ID))
        .body(Body::change::<AutomationBody>().example(json!({ "status": "paused" })))
        .responds(data::<Automation>("The updated automation.").example(json!({ "status": "paused" })))
}

pub(crate) fn record() -> Operation {
    let description = "Records executions of an automation. Executions are immutable: an item whose `id` was recorded \
                before is ignored.";
    let execution = json!({
        "status": "completed", "started_at": "2026-02-01T09:30:00.000Z", "finished_at": "2026-02-01T09:30:01.400Z",
    });
    Operation::new("Record executions", description)
        .takes(path_id(ID))
        .body(Body::json::<ExecutionsBody>().example(json!({ "executions": [execution] })))
        .responds(data::<IngestionResult>("The number of newly recorded executions."))
        .refuses(
            ErrorCode::Invalid,
            "One invalid item rejects the whole request. Each invalid item is named by its index, such as \
             `executions[3].status`.",
        )
}
