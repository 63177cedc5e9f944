//! What the reference says of automations.

use recado_domain::automations::Automation;
use recado_domain::ingestion::IngestionResult;
use recado_domain::shared::CursorPage;
use serde_json::json;

use super::operation::{Body, Operation, created, cursor_page, data, id_of};
use super::{ErrorCode, OpenApiTag};
use crate::routes::automations::{AutomationBody, ExecutionsBody};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Automations",
    description: "Automations that run in systems of the account, and what they did.",
};

const ID: &str = "The automation's id.";

pub(crate) fn list() -> Operation {
    Operation::new("List automations", "Automations of the account, newest first.")
        .takes_all(cursor_page())
        .answers(data::<CursorPage<Automation>>(
            "Automations, and where the next ones begin.",
        ))
}

pub(crate) fn create() -> Operation {
    Operation::new(
        "Create an automation",
        "Makes an automation known, for its executions to be told. However many there are: the plan's limit is looked \
         at when the account changes to a smaller plan.",
    )
    .body(Body::json_with::<AutomationBody>(&["name", "status"]))
    .answers(created::<Automation>("The automation."))
}

pub(crate) fn update() -> Operation {
    Operation::new("Change an automation", "Changes an automation: absent fields are kept.")
        .takes(id_of(ID))
        .body(Body::change::<AutomationBody>().example(json!({ "status": "paused" })))
        .answers(data::<Automation>("The automation as it is now.").example(json!({ "status": "paused" })))
}

pub(crate) fn record() -> Operation {
    let description = "Takes in executions of an automation: facts, told once. One with a known `id` changes nothing.";
    let execution = json!({
        "status": "completed", "started_at": "2026-02-01T09:30:00.000Z", "finished_at": "2026-02-01T09:30:01.400Z",
    });
    Operation::new("Tell executions", description)
        .takes(id_of(ID))
        .body(Body::json::<ExecutionsBody>().example(json!({ "executions": [execution] })))
        .answers(data::<IngestionResult>("How many were new."))
        .refuses(
            ErrorCode::Invalid,
            "One item that is wrong refuses all; each is named by its place.",
        )
}
