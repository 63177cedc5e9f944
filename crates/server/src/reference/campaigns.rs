//! What the reference says of campaigns.

use recado_domain::campaigns::{
    Campaign, CampaignSend, CampaignSort, Preview, RetriedCampaign, RunReport, SendCounts, TestSendReport,
};
use recado_domain::shared::Page;
use serde_json::{Value, json};

use super::operation::{
    Answer, Body, Operation, created, data, id, id_of, no_content, order, page_of, string_enum, whole_body,
};
use super::{ErrorCode, OpenApiTag};
use crate::routes::campaigns::{CampaignBody, Cancelled, RetryBody, ScheduleBody, TestSendBody};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Campaigns",
    description: "One template message to many contacts: written, scheduled, sent, watched.",
};

const ID: &str = "The campaign's id.";

const REFERENCES: &str = "A template, segment, tag or folder that does not exist is named, too.";

const RUN_REFUSALS: &str = "The campaign is not draft or scheduled; it has no template, or one that is not approved or not \
                            `sendable`; its \
                            segment was deleted; no contact is found; a placeholder stays empty for a contact; the \
                            account has no active plan; or this month's messages do not suffice.";

pub(crate) fn list() -> Operation {
    let sort = "What the list is ordered by; campaigns without a value come last.";
    Operation::new("List campaigns", "Campaigns by numbered pages.")
        .takes_all(page_of((20, 100)))
        .takes(
            string_enum::<CampaignSort>("sort", sort)
                .default("created_at")
                .example("created_at"),
        )
        .takes(order())
        .takes(id("folder_id", "Only campaigns in this folder."))
        .answers(whole_body::<Page<Campaign>>("A page of campaigns.").example(json!({
            "data": [draft()], "total": 1, "page": 1, "totalPages": 1,
        })))
}

pub(crate) fn create() -> Operation {
    Operation::new(
        "Create a campaign",
        "Creates a draft; nothing is sent, and nothing is scheduled.",
    )
    .body(Body::json_with::<CampaignBody>(&["name"]))
    .answers(created::<Campaign>("The draft.").example(draft()))
    .refuses(ErrorCode::Invalid, REFERENCES)
}

pub(crate) fn get() -> Operation {
    Operation::new("Get a campaign", "One campaign.")
        .takes(id_of(ID))
        .answers(campaign("The campaign.").example(draft()))
}

pub(crate) fn update() -> Operation {
    let description = "Changes a draft or scheduled campaign: absent fields are kept, null clears.";
    Operation::new("Change a campaign", description)
        .takes(id_of(ID))
        .body(Body::change::<CampaignBody>().example(json!({ "name": "Volta às aulas 2026", "folder_id": null })))
        .answers(campaign("The campaign as it is now.").example(draft()))
        .refuses(ErrorCode::Invalid, REFERENCES)
        .refuses(ErrorCode::Precondition, "The campaign is neither draft nor scheduled.")
        .refuses(
            ErrorCode::Invalid,
            "The campaign is scheduled, and its new time is missing or past.",
        )
}

pub(crate) fn delete() -> Operation {
    Operation::new("Delete a campaign", "Deletes a campaign that is not being sent.")
        .takes(id_of(ID))
        .answers(no_content("The campaign is deleted."))
        .refuses(ErrorCode::Precondition, "The campaign is being sent.")
}

pub(crate) fn execute() -> Operation {
    let description = "Sends the campaign, and answers when its run is over. Whoever hangs up does not stop it. \
                Without a connected WhatsApp number the run is simulated: nobody is called, and it ends as `sent`. A \
                run that was cancelled meanwhile ends as `cancelled`; one that was paused is answered with status \
                `sending` and `paused`.";
    Operation::new("Send a campaign and wait", description)
        .takes(id_of(ID))
        .answers(
            data::<RunReport>("How the run went.")
                .example(json!({ "status": "partial", "total": 1840, "sent": 1832, "failed": 8, "paused": false })),
        )
        .refuses(ErrorCode::Precondition, RUN_REFUSALS)
}

pub(crate) fn send() -> Operation {
    let description = "Starts the campaign and answers at once; a worker does the rest under the same conditions as \
                `execute`. Where one does not hold, the campaign becomes a draft again, and a notification says why.";
    Operation::new("Send a campaign", description)
        .takes(id_of(ID))
        .answers(campaign("The campaign, being sent.").example(sending()))
        .refuses(
            ErrorCode::Precondition,
            "The campaign is neither draft nor scheduled, or its template is not `sendable`.",
        )
}

pub(crate) fn schedule() -> Operation {
    let description = "Lets the campaign start by itself, as `send` does, at its time: the one of the body, or the one \
                that it has. A scheduled campaign can be scheduled anew.";
    Operation::new("Schedule a campaign", description)
        .takes(id_of(ID))
        .body(Body::json::<ScheduleBody>().optional())
        .answers(campaign("The campaign, scheduled.").example(with_status("scheduled")))
        .refuses(
            ErrorCode::Precondition,
            "The campaign is neither draft nor scheduled, its template is not `sendable`, or its time is missing or past.",
        )
}

pub(crate) fn unschedule() -> Operation {
    Operation::new(
        "Unschedule a campaign",
        "Makes a scheduled campaign a draft again; its time is kept. Of a completed or partial campaign it gives the \
         scheduled retry up; the status stays.",
    )
    .takes(id_of(ID))
    .answers(campaign("The campaign, a draft; or without its scheduled retry.").example(draft()))
    .refuses(
        ErrorCode::Precondition,
        "Neither the campaign nor a retry of it is scheduled.",
    )
}

pub(crate) fn pause() -> Operation {
    let description = "Pauses the run of a campaign: its status stays `sending`, with `paused_at` and `pause_reason`.";
    Operation::new("Pause a campaign", description)
        .takes(id_of(ID))
        .answers(
            campaign("The campaign, paused.")
                .example(json!({ "status": "sending", "completed_at": null, "retry_scheduled_at": null })),
        )
        .refuses(ErrorCode::Precondition, "The campaign is not being sent.")
}

pub(crate) fn resume() -> Operation {
    let description = "Lets a paused run go on, under the same conditions as `execute`: an active plan, a template \
                that WhatsApp has not stopped, the WhatsApp number of the run, placeholders that can be filled, and a \
                month's quota that includes what the run reserved. The run sends the content that its template had \
                when it started, even if the template was edited or deleted since. Resuming a run that is not paused \
                changes nothing.";
    Operation::new("Resume a campaign", description)
        .takes(id_of(ID))
        .answers(campaign("The campaign, being sent.").example(sending()))
        .refuses(
            ErrorCode::Precondition,
            "The campaign is not being sent, or a condition of a run does not hold.",
        )
}

pub(crate) fn retry_failed() -> Operation {
    let description = "Tries failed sends of an ended run again, now or at `not_before`, with the content that the \
                template had when the run first started; the month's messages have to suffice. Without a body it takes \
                every failed send but those of class `never`, and those of class `later` before their `retry_after`. \
                With `codes` it takes only sends that failed with one of them; with `force` also those of them whose \
                time has not come. Contacts that opted out, were deleted or have no phone number are left out. \
                `left_out` counts by reason and error code what is not tried again. A scheduled retry leaves the \
                status as it is, replaces an earlier one, and is given up by `unschedule`; if it finds nothing to try, \
                a warning notification says so.";
    Operation::new("Retry failed sends", description)
        .takes(id_of(ID))
        .body(Body::json::<RetryBody>().optional())
        .answers(
            data::<RetriedCampaign>("The campaign, being sent again, or with the time of its scheduled retry.")
                .example(json!({ "status": "sending", "completed_at": null, "paused_at": null, "pause_reason": null,
                    "retry_scheduled_at": null })),
        )
        .refuses(
            ErrorCode::Precondition,
            "The campaign is neither completed nor partial, none of its failed sends can be tried again (reason \
             `nothing_to_retry`, with `left_out`), it is changed at the same time, or a condition of a run does not hold.",
        )
        .refuses(ErrorCode::Invalid, "`codes` has none or more than 50 items, or `not_before` is more than 30 days ahead.")
}

pub(crate) fn cancel() -> Operation {
    let description = "Stops a campaign for good. No send is started any more; what was not sent stays `pending`.";
    Operation::new("Cancel a campaign", description)
        .takes(id_of(ID))
        .answers(data::<Cancelled>("The campaign is cancelled."))
        .refuses(
            ErrorCode::Precondition,
            "The campaign is neither being sent nor scheduled.",
        )
}

pub(crate) fn preview() -> Operation {
    let description = "Tells whom a run would go to, what the first three contacts would read, and everything that \
                would refuse it; of an ended run also what a retry would take and leave out. Nothing is sent or \
                changed.";
    Operation::new("Preview a campaign", description)
        .takes(id_of(ID))
        .answers(data::<Preview>("What a run would be."))
}

pub(crate) fn test() -> Operation {
    let description = "Sends the campaign's message once, to one phone, outside of its statistics. It takes one of the \
                month's messages.";
    Operation::new("Test a campaign", description)
        .takes(id_of(ID))
        .body(Body::json::<TestSendBody>())
        .answers(data::<TestSendReport>("The message was sent."))
        .refuses(
            ErrorCode::Precondition,
            "The campaign has no approved and `sendable` template, a placeholder stays empty, the contact with this phone has opted \
             out, the account has no active plan, this month's messages are used up, or the number or a file of the \
             template cannot be used.",
        )
        .refuses(
            ErrorCode::Whatsapp,
            "Where nobody knows whether the message left, the message says so; it is not sent again.",
        )
        .refuses(ErrorCode::Storage, "")
}

pub(crate) fn stats() -> Operation {
    let description =
        "Counts the sends of a campaign by what became of them: each is counted once, under its present status.";
    Operation::new("Count a campaign's sends", description)
        .takes(id_of(ID))
        .answers(data::<SendCounts>("The numbers."))
}

pub(crate) fn sends() -> Operation {
    let description = "The sends of a campaign, the latest sent first, those that were not sent last. Sends whose \
                contact was deleted are left out.";
    Operation::new("List a campaign's sends", description)
        .takes(id_of(ID))
        .takes_all(page_of((20, 100)))
        .answers(whole_body::<Page<CampaignSend>>("A page of sends.").example(json!({
            "data": [delivered()], "total": 1840, "page": 1, "totalPages": 92,
        })))
}

fn campaign(description: &'static str) -> Answer {
    data::<Campaign>(description)
}

/// What sets a campaign that was not run yet apart.
fn with_status(status: &str) -> Value {
    json!({
        "status": status, "total_recipients": 0, "simulated": false,
        "executed_at": null, "completed_at": null, "paused_at": null, "pause_reason": null,
        "retry_scheduled_at": null,
    })
}

fn draft() -> Value {
    with_status("draft")
}

fn sending() -> Value {
    json!({ "status": "sending", "completed_at": null, "paused_at": null, "pause_reason": null,
            "retry_scheduled_at": null })
}

/// A message that arrived.
fn delivered() -> Value {
    json!({ "status": "delivered", "error_code": null, "error_message": null, "failure_class": null, "retry_after": null })
}
