//! Routes of campaigns.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::campaigns::{
    CampaignInput, CampaignQuery, CampaignSort, CampaignStatus, RetryRequest, SegmentConfig, Variables,
};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{CampaignId, FolderId, SegmentId, TemplateId, timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use time::OffsetDateTime;

use crate::error::ApiError;
use crate::web::body::{Json, JsonChange, MaybeJson, PatchFields};
use crate::web::extractors::{Authenticated, Id, TenantContext, nullable};
use crate::web::parameters::SortParam;
use crate::web::query::Params;
use crate::web::responses;
use crate::wiring::Services;

pub(crate) const SORT: SortParam<CampaignSort> = SortParam {
    description: "Sort key; campaigns without a value come last.",
    accepted: "created_at, updated_at, name, scheduled_at or status",
    default: CampaignSort::CreatedAt,
};

/// The fields of a campaign. Its audience is the union of its segment, tags and RFM segments, or all contacts if none
/// is given. Contacts without a phone number and contacts that have opted out are excluded.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
pub(crate) struct CampaignBody {
    /// The campaign's name: 1 to 200 characters after HTML tags, control characters and extra white space are removed.
    #[schemars(length(min = 1, max = 200), example = &"Volta às aulas")]
    name: Option<String>,
    /// The id of the template to send.
    #[serde(default, deserialize_with = "nullable")]
    template_id: Option<Option<TemplateId>>,
    /// The id of the segment whose contacts receive the campaign.
    #[serde(default, deserialize_with = "nullable")]
    segment_id: Option<Option<SegmentId>>,
    /// Tags whose contacts receive the campaign, and filters that restrict the whole audience.
    #[serde(default, deserialize_with = "nullable")]
    segment_config: Option<Option<SegmentConfig>>,
    /// The names of the RFM segments whose contacts receive the campaign.
    #[schemars(length(max = 20), inner(length(min = 1, max = 50)), example = ["champions", "loyal"])]
    #[serde(default, deserialize_with = "nullable")]
    rfm_segments: Option<Option<Vec<String>>>,
    /// The time at which the campaign starts after it is scheduled. Storing a time does not schedule the campaign.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(default, deserialize_with = "deserialize_time")]
    scheduled_at: Option<Option<OffsetDateTime>>,
    /// The value of each template placeholder: a text or a contact field.
    #[serde(default, deserialize_with = "nullable")]
    variables: Option<Option<Variables>>,
    /// The id of the campaign's folder.
    #[serde(default, deserialize_with = "nullable")]
    folder_id: Option<Option<FolderId>>,
}

impl PatchFields for CampaignBody {
    const NEVER_NULL: &'static [&'static str] = &["name"];
}

fn deserialize_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<OffsetDateTime>>, D::Error> {
    timestamp::option::deserialize(deserializer).map(Some)
}

impl From<CampaignBody> for CampaignInput {
    fn from(body: CampaignBody) -> Self {
        Self {
            name: body.name,
            template_id: body.template_id,
            segment_id: body.segment_id,
            segment_config: body.segment_config,
            rfm_segments: body.rfm_segments,
            scheduled_at: body.scheduled_at,
            variables: body.variables,
            folder_id: body.folder_id,
        }
    }
}

/// `GET /api/campaigns`
pub(super) async fn list(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let query = CampaignQuery {
        page: params.page(),
        sort: params.sort(&SORT),
        descending: params.descending(),
        folder_id: params.id("folder_id"),
    };
    params.check()?;
    Ok(responses::page(&services.campaigns.list(&tenant, &query).await?))
}

/// `POST /api/campaigns`
pub(super) async fn create(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<CampaignBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::created(
        services.campaigns.create(&tenant, input.into()).await?,
    ))
}

/// `GET /api/campaigns/<id>`
pub(super) async fn get(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.campaigns.get(&tenant, id).await?))
}

/// `PUT /api/campaigns/<id>`
pub(super) async fn update(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
    JsonChange(input): JsonChange<CampaignBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(
        services.campaigns.update(&tenant, id, input.into()).await?,
    ))
}

/// `DELETE /api/campaigns/<id>`
pub(super) async fn delete(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    services.campaigns.delete(&tenant, id).await?;
    Ok(responses::no_content())
}

/// `POST /api/campaigns/<id>/execute`: responds when the run has ended. A closed connection does not stop the run.
pub(super) async fn execute(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    let run_submitter = &services.shared.run_submitter;
    let worker = run_submitter.worker();
    let run = services.campaigns.start(&tenant, id, worker).await?;
    Ok(responses::ok(run_submitter.run_to_end(run, worker).await?))
}

/// `POST /api/campaigns/<id>/send`: queues the run and responds immediately.
pub(super) async fn send(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.campaigns.enqueue_start(&tenant, id).await?))
}

/// The start time of a campaign.
#[derive(Default, Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
pub(crate) struct ScheduleBody {
    /// A time in the future. If absent or null, the campaign's stored `scheduled_at` is used.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(default, deserialize_with = "timestamp::option::deserialize")]
    scheduled_at: Option<OffsetDateTime>,
}

/// `POST /api/campaigns/<id>/schedule`
pub(super) async fn schedule(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
    MaybeJson(input): MaybeJson<ScheduleBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(
        services.campaigns.schedule(&tenant, id, input.scheduled_at).await?,
    ))
}

/// `POST /api/campaigns/<id>/unschedule`
pub(super) async fn unschedule(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.campaigns.unschedule(&tenant, id).await?))
}

/// `POST /api/campaigns/<id>/pause`
pub(super) async fn pause(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.campaigns.pause(&tenant, id).await?))
}

/// `POST /api/campaigns/<id>/resume`
pub(super) async fn resume(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.campaigns.resume(&tenant, id).await?))
}

/// The failed sends to retry, and the time of the retry.
#[derive(Default, Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
pub(crate) struct RetryBody {
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
pub(super) async fn retry_failed(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
    MaybeJson(input): MaybeJson<RetryBody>,
) -> Result<HttpResponse, ApiError> {
    let retried = services.campaigns.retry_failed(&tenant, id, input.into()).await?;
    Ok(responses::ok(retried))
}

/// The status of a cancelled campaign.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Cancelled {
    /// Always `cancelled`.
    #[schemars(example = &"cancelled")]
    status: CampaignStatus,
}

/// `POST /api/campaigns/<id>/cancel`
pub(super) async fn cancel(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    let status = services.campaigns.cancel(&tenant, id).await?;
    Ok(responses::ok(Cancelled { status }))
}

/// `POST /api/campaigns/<id>/preview`: recipients, sample messages and failed preconditions of a run.
pub(super) async fn preview(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.campaigns.preview(&tenant, id).await?))
}

/// The recipient of a test send.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
pub(crate) struct TestSendBody {
    /// The phone number in E.164 or Brazilian national format.
    #[schemars(required, example = &"+5511961234567")]
    phone: Option<String>,
}

/// `POST /api/campaigns/<id>/test`: one message to one phone number, not counted in the statistics.
pub(super) async fn test(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
    Json(input): Json<TestSendBody>,
) -> Result<HttpResponse, ApiError> {
    let phone = input.phone.unwrap_or_default();
    Ok(responses::ok(services.test_sends.send(&tenant, id, &phone).await?))
}

/// `GET /api/campaigns/<id>/stats`
pub(super) async fn stats(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.campaigns.stats(&tenant, id).await?))
}

/// `GET /api/campaigns/<id>/sends`
pub(super) async fn sends(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let page = params.page();
    params.check()?;
    Ok(responses::page(&services.campaigns.sends(&tenant, id, page).await?))
}
