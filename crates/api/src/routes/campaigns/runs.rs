//! Routes that start, stop and test the runs of a campaign.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::campaigns::{
    CampaignStatus, Campaigns, Preview, RetriedCampaign, RetryReport, RetryRequest, RunReport, ScheduleInput,
    TestSendInput, TestSendReport, TestSends,
};
use recado_domain::settings::LatePolicy;
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{CampaignId, ContactId, timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{CampaignResponse, ID, campaign, draft, with_status};
use crate::error::{ApiError, ErrorCode};
use crate::web::body::{Json, MaybeJson};
use crate::web::extractors::{Authenticated, Id, TenantContext, nullable};
use crate::web::operation::{Body, Operation, data, path_id};
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};
use crate::worker_handles::RunSubmitter;

const RUN_REFUSALS: &str = "The campaign is neither `draft` nor `scheduled`; it has no template, or the template is \
                            not approved or not `sendable`; its segment was deleted; the audience is empty; a \
                            placeholder has no value for a contact, or the template needs a `header_location` or an \
                            `offer_expires_at` (`placeholder_empty`); the account has no active plan; the month's \
                            message quota is exceeded; or the campaign has a budget, and a recipient's market has no \
                            rate in its currency (`no_rate`, with `details.markets`).";

response_type! {
    /// A campaign whose failed sends are retried.
    #[schemars(rename = "RetriedCampaign")]
    struct RetriedCampaignResponse from retried: RetriedCampaign {
        #[serde(flatten)]
        campaign: CampaignResponse,
        /// The failed sends that the retry sends again, and those that it leaves out. For a scheduled retry: the
        /// expected report at its time, from the current state.
        retry: RetryReport,
    }
}

/// `POST /api/campaigns/<id>/execute`: responds when the run has ended. A closed connection does not stop the run.
async fn execute(
    run_submitter: Data<RunSubmitter>,
    campaigns: Data<Campaigns>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    let worker = run_submitter.worker();
    let run = campaigns.start(&tenant, id, worker).await?;
    Ok(responses::ok(run_submitter.run_to_end(run, worker).await?))
}

pub(crate) const EXECUTE: Endpoint = endpoint!(execute, {
    let description = "Runs the campaign and responds when the run has ended. Closing the connection does not stop \
                the run. Without a connected WhatsApp number the run is simulated: WhatsApp is not called, and the \
                run ends as `sent`. A run that is cancelled in the meantime ends as `cancelled`. If the run is \
                paused, the response has status `sending` and `paused`. If the account's settings hold all its \
                remaining messages, the response has status `sending`, their number as `waiting` and the time at \
                which the run goes on by itself as `waiting_until`.";
    Operation::new("Execute a campaign and wait for its end", description)
        .takes(path_id(ID))
        .responds(
            data::<RunReport>("The result of the run.")
                .example(json!({ "status": "partial", "total": 1840, "sent": 1832, "failed": 8, "paused": false })),
        )
        .refuses(ErrorCode::Precondition, RUN_REFUSALS)
});

/// `POST /api/campaigns/<id>/send`: queues the run and responds immediately.
async fn send(
    campaigns: Data<Campaigns>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    let campaign = campaigns.enqueue_start(&tenant, id).await?;
    Ok(responses::ok(CampaignResponse::from(campaign)))
}

pub(crate) const SEND: Endpoint = endpoint!(send, {
    let description = "Queues the campaign's run and responds immediately. A worker then checks the same preconditions \
                as `execute`. If one fails, the campaign becomes a draft again and a notification gives the reason.";
    Operation::new("Send a campaign", description)
        .takes(path_id(ID))
        .responds(campaign("The campaign, with status `sending`.").example(sending()))
        .refuses(
            ErrorCode::Precondition,
            "The campaign is neither `draft` nor `scheduled`, its template is not `sendable`, or a recipient's market \
             has no rate in the currency of the budget (`no_rate`).",
        )
});

/// The start time of a campaign.
#[derive(Default, Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
struct ScheduleBody {
    /// A time in the future. If absent or null, the campaign's stored `scheduled_at` is used.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(default, deserialize_with = "timestamp::option::deserialize")]
    scheduled_at: Option<OffsetDateTime>,
    /// What happens if the start comes later than `within` seconds after its time: `skip` makes the campaign a draft
    /// again, `send` sends it. If null or absent, the account's `late_policy` applies.
    #[serde(default, deserialize_with = "nullable")]
    late_policy: Option<Option<LatePolicy>>,
}

impl From<ScheduleBody> for ScheduleInput {
    fn from(body: ScheduleBody) -> Self {
        Self {
            scheduled_at: body.scheduled_at,
            late_policy: body.late_policy,
        }
    }
}

/// `POST /api/campaigns/<id>/schedule`
async fn schedule(
    campaigns: Data<Campaigns>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
    MaybeJson(input): MaybeJson<ScheduleBody>,
) -> Result<HttpResponse, ApiError> {
    let campaign = campaigns.schedule(&tenant, id, input.into()).await?;
    Ok(responses::ok(CampaignResponse::from(campaign)))
}

pub(crate) const SCHEDULE: Endpoint = endpoint!(schedule, {
    let description = "Schedules the campaign to start, as with `send`, at the time in the body or at its stored \
                time. A scheduled campaign can be rescheduled. A start that is late, because no server was running or the \
                account was suspended, follows `late_policy`.";
    Operation::new("Schedule a campaign", description)
        .takes(path_id(ID))
        .body(Body::json::<ScheduleBody>().optional())
        .responds(campaign("The campaign, scheduled.").example(with_status("scheduled")))
        .refuses(
            ErrorCode::Precondition,
            "The campaign is neither `draft` nor `scheduled`, its template is not `sendable`, or its time is missing \
             or in the past.",
        )
});

/// `POST /api/campaigns/<id>/unschedule`
async fn unschedule(
    campaigns: Data<Campaigns>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    let campaign = campaigns.unschedule(&tenant, id).await?;
    Ok(responses::ok(CampaignResponse::from(campaign)))
}

pub(crate) const UNSCHEDULE: Endpoint = endpoint!(unschedule, {
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
});

/// `POST /api/campaigns/<id>/pause`
async fn pause(
    campaigns: Data<Campaigns>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    let campaign = campaigns.pause(&tenant, id).await?;
    Ok(responses::ok(CampaignResponse::from(campaign)))
}

pub(crate) const PAUSE: Endpoint = endpoint!(pause, {
    let description =
        "Pauses the run of a campaign. The status stays `sending`; `paused_at` and `pause_reason` are set.";
    Operation::new("Pause a campaign", description)
        .takes(path_id(ID))
        .responds(
            campaign("The paused campaign.")
                .example(json!({ "status": "sending", "completed_at": null, "retry_scheduled_at": null })),
        )
        .refuses(ErrorCode::Precondition, "The campaign does not have status `sending`.")
});

/// `POST /api/campaigns/<id>/resume`
async fn resume(
    campaigns: Data<Campaigns>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    let campaign = campaigns.resume(&tenant, id).await?;
    Ok(responses::ok(CampaignResponse::from(campaign)))
}

pub(crate) const RESUME: Endpoint = endpoint!(resume, {
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
            "The campaign does not have status `sending`, a precondition of a run failed, its messages have cost and \
             reserved more than the budget (`budget`), or the market of a remaining recipient has no rate in the currency \
             of the budget (`no_rate`, with `details.markets`).",
        )
});

/// The failed sends to retry, and the time of the retry.
#[derive(Default, Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
struct RetryBody {
    /// Retries only sends that failed with one of these error codes; 0 selects failures without a code. If absent or
    /// null, sends with every code are retried.
    #[schemars(length(min = 1, max = 50), example = [131_026])]
    codes: Option<Vec<i64>>,
    /// The start time of the retry, at most 30 days ahead. The sends are selected at that time. If absent, null or in
    /// the past, the retry starts now.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(default, deserialize_with = "timestamp::option::deserialize")]
    not_before: Option<OffsetDateTime>,
    /// Whether sends selected by `codes` are retried before their `retry_after`.
    #[schemars(example = false)]
    force: Option<bool>,
}

impl From<RetryBody> for RetryRequest {
    fn from(body: RetryBody) -> Self {
        Self {
            codes: body.codes,
            not_before: body.not_before,
            force: body.force.unwrap_or(false),
        }
    }
}

/// `POST /api/campaigns/<id>/retry-failed`
async fn retry_failed(
    campaigns: Data<Campaigns>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
    MaybeJson(input): MaybeJson<RetryBody>,
) -> Result<HttpResponse, ApiError> {
    let retried = campaigns.retry_failed(&tenant, id, input.into()).await?;
    Ok(responses::ok(RetriedCampaignResponse::from(retried)))
}

pub(crate) const RETRY_FAILED: Endpoint = endpoint!(retry_failed, {
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
            data::<RetriedCampaignResponse>(
                "The campaign, with status `sending` or with the time of its scheduled retry.",
            )
            .example(
                json!({ "status": "sending", "completed_at": null, "paused_at": null, "pause_reason": null,
                    "retry_scheduled_at": null }),
            ),
        )
        .refuses(
            ErrorCode::Precondition,
            "The campaign is neither completed nor partial; its sends are archived (reason `archived`); none of its \
             failed sends can be retried (reason `nothing_to_retry`, with `left_out`); another request is changing it; a \
             precondition of a run failed; or it has a budget, and a recipient's market has no rate in its currency \
             (`no_rate`, with `details.markets`).",
        )
        .refuses(
            ErrorCode::Invalid,
            "`codes` is empty or has more than 50 items, or `not_before` is more than 30 days ahead.",
        )
});

/// The status of a cancelled campaign.
#[derive(Serialize, JsonSchema)]
struct Cancelled {
    /// Always `cancelled`.
    #[schemars(example = &"cancelled")]
    status: CampaignStatus,
}

/// `POST /api/campaigns/<id>/cancel`
async fn cancel(
    campaigns: Data<Campaigns>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    let status = campaigns.cancel(&tenant, id).await?;
    Ok(responses::ok(Cancelled { status }))
}

pub(crate) const CANCEL: Endpoint = endpoint!(cancel, {
    let description = "Permanently stops a campaign. No further send is started; unsent sends stay `pending`.";
    Operation::new("Cancel a campaign", description)
        .takes(path_id(ID))
        .responds(data::<Cancelled>("The campaign is cancelled."))
        .refuses(
            ErrorCode::Precondition,
            "The campaign is neither `sending` nor `scheduled`.",
        )
});

/// `POST /api/campaigns/<id>/preview`: recipients, sample messages and failed preconditions of a run.
async fn preview(
    campaigns: Data<Campaigns>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(campaigns.preview(&tenant, id).await?))
}

pub(crate) const PREVIEW: Endpoint = endpoint!(preview, {
    let description = "Returns the recipients of a run, the message texts of the first three contacts, and every \
                failed precondition. For an ended run it also returns what a retry would send and skip. Nothing is \
                sent or changed.";
    Operation::new("Preview a campaign", description)
        .takes(path_id(ID))
        .responds(data::<Preview>("The preview of a run."))
});

/// The recipient of a test send: exactly one of the fields.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
struct TestSendBody {
    /// The phone number in E.164 or Brazilian national format.
    #[schemars(example = &"+5511961234567")]
    phone: Option<String>,
    /// The id of a contact.
    contact_id: Option<ContactId>,
    /// WhatsApp's user id of a person who hides the phone number.
    #[schemars(example = &"BR.1234567890")]
    wa_user_id: Option<String>,
}

/// `POST /api/campaigns/<id>/test`: one message to one person, not counted in the statistics.
async fn test(
    test_sends: Data<TestSends>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
    Json(input): Json<TestSendBody>,
) -> Result<HttpResponse, ApiError> {
    let to = TestSendInput {
        phone: input.phone,
        contact_id: input.contact_id,
        wa_user_id: input.wa_user_id,
    };
    Ok(responses::ok(test_sends.send(&tenant, id, to).await?))
}

pub(crate) const TEST: Endpoint = endpoint!(test, {
    let description = "Sends the campaign's message once to one person. The test send counts towards the month's \
                quota, not towards the campaign's statistics.";
    Operation::new("Send a test message", description)
        .takes(path_id(ID))
        .body(Body::json::<TestSendBody>())
        .responds(data::<TestSendReport>("The message was sent."))
        .refuses(
            ErrorCode::Precondition,
            "The campaign has no approved and `sendable` template; a placeholder has no value; the contact has opted \
             out, or has no address for this template; the account has no active plan; the month's message quota is used up; or the \
             WhatsApp number or a file of the template cannot be used.",
        )
        .refuses(
            ErrorCode::Whatsapp,
            "If the outcome of the call is unknown, `message` says so; the message is not sent again.",
        )
        .refuses(ErrorCode::Storage, "")
});

fn sending() -> Value {
    json!({ "status": "sending", "completed_at": null, "paused_at": null, "pause_reason": null,
            "retry_scheduled_at": null })
}
