//! OpenAPI documentation of campaigns.

use recado_domain::campaigns::{
    Campaign, CampaignSend, Preview, RetriedCampaign, RunReport, SendCounts, TestSendReport,
};
use recado_domain::shared::Page;
use serde_json::{Value, json};

use super::operation::{
    Body, Operation, ResponseDoc, created, data, id, no_content, numbered_page, order, path_id, whole_body,
};
use super::{ErrorCode, OpenApiTag};
use crate::routes::campaigns::{CampaignBody, Cancelled, RetryBody, SORT, ScheduleBody, TestSendBody};
use crate::web::parameters::LIMIT;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Campaigns",
    description: "Send a template message to many contacts: create, schedule, run and monitor campaigns.",
};

const ID: &str = "The campaign's id.";

const REFERENCES: &str = "A referenced template, segment, tag or folder does not exist.";

const RUN_REFUSALS: &str = "The campaign is neither `draft` nor `scheduled`; it has no template, or the template is \
                            not approved or not `sendable`; its segment was deleted; the audience is empty; a \
                            placeholder has no value for a contact; the account has no active plan; or the month's \
                            message quota is exceeded.";

pub(crate) fn list() -> Operation {
    Operation::new("List campaigns", "Returns campaigns with numbered pages.")
        .takes_all(numbered_page(&LIMIT))
        .takes(&SORT)
        .takes(order())
        .takes(id("folder_id", "Only campaigns in this folder."))
        .responds(whole_body::<Page<Campaign>>("A page of campaigns.").example(json!({
            "data": [draft()], "total": 1, "page": 1, "totalPages": 1,
        })))
}

pub(crate) fn create() -> Operation {
    Operation::new("Create a campaign", "Creates a draft. Nothing is sent or scheduled.")
        .body(Body::json_with::<CampaignBody>(&["name"]))
        .responds(created::<Campaign>("The draft.").example(draft()))
        .refuses(ErrorCode::Invalid, REFERENCES)
}

pub(crate) fn get() -> Operation {
    Operation::new("Get a campaign", "Returns one campaign.")
        .takes(path_id(ID))
        .responds(campaign("The campaign.").example(draft()))
}

pub(crate) fn update() -> Operation {
    let description = "Updates a draft or scheduled campaign: absent fields are kept; null clears a field.";
    Operation::new("Update a campaign", description)
        .takes(path_id(ID))
        .body(Body::change::<CampaignBody>().example(json!({ "name": "Volta às aulas 2026", "folder_id": null })))
        .responds(campaign("The updated campaign.").example(draft()))
        .refuses(ErrorCode::Invalid, REFERENCES)
        .refuses(
            ErrorCode::Precondition,
            "The campaign is neither `draft` nor `scheduled`.",
        )
        .refuses(
            ErrorCode::Invalid,
            "The campaign is scheduled, and its new time is missing or in the past.",
        )
}

pub(crate) fn delete() -> Operation {
    Operation::new(
        "Delete a campaign",
        "Deletes a campaign. A campaign with status `sending` cannot be deleted.",
    )
    .takes(path_id(ID))
    .responds(no_content("The campaign is deleted."))
    .refuses(ErrorCode::Precondition, "The campaign has status `sending`.")
}

pub(crate) fn execute() -> Operation {
    let description = "Runs the campaign and responds when the run has ended. Closing the connection does not stop \
                the run. Without a connected WhatsApp number the run is simulated: WhatsApp is not called, and the \
                run ends as `sent`. A run that is cancelled in the meantime ends as `cancelled`. If the run is \
                paused, the response has status `sending` and `paused`.";
    Operation::new("Execute a campaign and wait for its end", description)
        .takes(path_id(ID))
        .responds(
            data::<RunReport>("The result of the run.")
                .example(json!({ "status": "partial", "total": 1840, "sent": 1832, "failed": 8, "paused": false })),
        )
        .refuses(ErrorCode::Precondition, RUN_REFUSALS)
}

pub(crate) fn send() -> Operation {
    let description = "Queues the campaign's run and responds immediately. A worker then checks the same preconditions \
                as `execute`. If one fails, the campaign becomes a draft again and a notification gives the reason.";
    Operation::new("Send a campaign", description)
        .takes(path_id(ID))
        .responds(campaign("The campaign, with status `sending`.").example(sending()))
        .refuses(
            ErrorCode::Precondition,
            "The campaign is neither `draft` nor `scheduled`, or its template is not `sendable`.",
        )
}

pub(crate) fn schedule() -> Operation {
    let description = "Schedules the campaign to start, as with `send`, at the time in the body or at its stored \
                time. A scheduled campaign can be rescheduled.";
    Operation::new("Schedule a campaign", description)
        .takes(path_id(ID))
        .body(Body::json::<ScheduleBody>().optional())
        .responds(campaign("The campaign, scheduled.").example(with_status("scheduled")))
        .refuses(
            ErrorCode::Precondition,
            "The campaign is neither `draft` nor `scheduled`, its template is not `sendable`, or its time is missing \
             or in the past.",
        )
}

pub(crate) fn unschedule() -> Operation {
    Operation::new(
        "Unschedule a campaign",
        "Makes a scheduled campaign a draft again and keeps its time. For a completed or partial campaign it cancels \
         the scheduled retry and leaves the status.",
    )
    .takes(path_id(ID))
    .responds(campaign("The draft, or the campaign without its scheduled retry.").example(draft()))
    .refuses(
        ErrorCode::Precondition,
        "Neither the campaign nor a retry of it is scheduled.",
    )
}

pub(crate) fn pause() -> Operation {
    let description =
        "Pauses the run of a campaign. The status stays `sending`; `paused_at` and `pause_reason` are set.";
    Operation::new("Pause a campaign", description)
        .takes(path_id(ID))
        .responds(
            campaign("The paused campaign.")
                .example(json!({ "status": "sending", "completed_at": null, "retry_scheduled_at": null })),
        )
        .refuses(ErrorCode::Precondition, "The campaign does not have status `sending`.")
}

pub(crate) fn resume() -> Operation {
    let description = "Resumes a paused run under the preconditions of `execute`: an active plan, a template that \
                WhatsApp has not paused or disabled, the WhatsApp number of the run, a value for every placeholder, \
                and a quota that includes the run's reservation. The run sends the content that its template had when \
                it started, even if the template was edited or deleted since. Resuming a run that is not paused \
                changes nothing.";
    Operation::new("Resume a campaign", description)
        .takes(path_id(ID))
        .responds(campaign("The campaign, with status `sending`.").example(sending()))
        .refuses(
            ErrorCode::Precondition,
            "The campaign does not have status `sending`, or a precondition of a run failed.",
        )
}

pub(crate) fn retry_failed() -> Operation {
    let description = "Retries failed sends of an ended run, now or at `not_before`. The retry sends the content that \
                the template had when the run first started, and counts towards the month's quota. Without a body it \
                retries every failed send except class `never` and class `later` before its `retry_after`. With \
                `codes` it retries only sends that failed with one of these codes; with `force` also those before \
                their `retry_after`. Contacts that opted out, were deleted or have no phone number are skipped. \
                `left_out` counts skipped sends by reason and error code. A scheduled retry leaves the status, \
                replaces an earlier scheduled retry, and is cancelled by `unschedule`. If it finds nothing to retry, \
                it creates a warning notification.";
    Operation::new("Retry failed sends", description)
        .takes(path_id(ID))
        .body(Body::json::<RetryBody>().optional())
        .responds(
            data::<RetriedCampaign>("The campaign, with status `sending` or with the time of its scheduled retry.")
                .example(
                    json!({ "status": "sending", "completed_at": null, "paused_at": null, "pause_reason": null,
                    "retry_scheduled_at": null }),
                ),
        )
        .refuses(
            ErrorCode::Precondition,
            "The campaign is neither completed nor partial; none of its failed sends can be retried (reason \
             `nothing_to_retry`, with `left_out`); another request is changing it; or a precondition of a run failed.",
        )
        .refuses(
            ErrorCode::Invalid,
            "`codes` is empty or has more than 50 items, or `not_before` is more than 30 days ahead.",
        )
}

pub(crate) fn cancel() -> Operation {
    let description = "Permanently stops a campaign. No further send is started; unsent sends stay `pending`.";
    Operation::new("Cancel a campaign", description)
        .takes(path_id(ID))
        .responds(data::<Cancelled>("The campaign is cancelled."))
        .refuses(
            ErrorCode::Precondition,
            "The campaign is neither `sending` nor `scheduled`.",
        )
}

pub(crate) fn preview() -> Operation {
    let description = "Returns the recipients of a run, the message texts of the first three contacts, and every \
                failed precondition. For an ended run it also returns what a retry would send and skip. Nothing is \
                sent or changed.";
    Operation::new("Preview a campaign", description)
        .takes(path_id(ID))
        .responds(data::<Preview>("The preview of a run."))
}

pub(crate) fn test() -> Operation {
    let description = "Sends the campaign's message once to one phone number. The test send counts towards the month's \
                quota, not towards the campaign's statistics.";
    Operation::new("Send a test message", description)
        .takes(path_id(ID))
        .body(Body::json::<TestSendBody>())
        .responds(data::<TestSendReport>("The message was sent."))
        .refuses(
            ErrorCode::Precondition,
            "The campaign has no approved and `sendable` template; a placeholder has no value; the contact with this \
             phone number has opted out; the account has no active plan; the month's message quota is used up; or the \
             WhatsApp number or a file of the template cannot be used.",
        )
        .refuses(
            ErrorCode::Whatsapp,
            "If the outcome of the call is unknown, `message` says so; the message is not sent again.",
        )
        .refuses(ErrorCode::Storage, "")
}

pub(crate) fn stats() -> Operation {
    let description = "Counts the sends of a campaign by status. Each send is counted once, under its current status.";
    Operation::new("Count a campaign's sends", description)
        .takes(path_id(ID))
        .responds(data::<SendCounts>("The counts."))
}

pub(crate) fn sends() -> Operation {
    let description = "Returns the sends of a campaign, latest sent first and unsent last. Sends whose contact was \
                deleted are omitted.";
    Operation::new("List a campaign's sends", description)
        .takes(path_id(ID))
        .takes_all(numbered_page(&LIMIT))
        .responds(whole_body::<Page<CampaignSend>>("A page of sends.").example(json!({
            "data": [delivered()], "total": 1840, "page": 1, "totalPages": 92,
        })))
}

fn campaign(description: &'static str) -> ResponseDoc {
    data::<Campaign>(description)
}

/// Example fields of a campaign that has not run yet.
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

/// Example of a delivered send.
fn delivered() -> Value {
    json!({
        "status": "delivered", "error_code": null, "error_message": null, "failure_class": null, "retry_after": null,
    })
}
