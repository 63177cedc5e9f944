//! Campaigns.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::campaigns::{CampaignInput, CampaignQuery, CampaignSort, SegmentConfig, Variables};
use recado_domain::shared::{CampaignId, FolderId, SegmentId, TemplateId, timestamp};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use time::OffsetDateTime;

use crate::error::ApiError;
use crate::web::body::{Json, MaybeJson};
use crate::web::query::Params;
use crate::web::reply;
use crate::web::shape::{Caller, Id, Proved, nullable};
use crate::wiring::Services;

/// Body of `POST /api/campaigns` and `PUT /api/campaigns/<id>`.
#[derive(Deserialize, Validate)]
#[garde(allow_unvalidated)]
pub(super) struct CampaignBody {
    name: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    template_id: Option<Option<TemplateId>>,
    #[serde(default, deserialize_with = "nullable")]
    segment_id: Option<Option<SegmentId>>,
    #[serde(default, deserialize_with = "nullable")]
    segment_config: Option<Option<SegmentConfig>>,
    #[serde(default, deserialize_with = "nullable")]
    rfm_segments: Option<Option<Vec<String>>>,
    #[serde(default, deserialize_with = "moment")]
    scheduled_at: Option<Option<OffsetDateTime>>,
    #[serde(default, deserialize_with = "nullable")]
    variables: Option<Option<Variables>>,
    #[serde(default, deserialize_with = "nullable")]
    folder_id: Option<Option<FolderId>>,
}

fn moment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<OffsetDateTime>>, D::Error> {
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
    Proved(tenant): Caller,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let query = CampaignQuery {
        page: params.page(),
        sort: params
            .parsed("sort", "created_at, updated_at, name, scheduled_at or status")
            .unwrap_or(CampaignSort::CreatedAt),
        descending: params.descending(),
        folder_id: params.id("folder_id"),
    };
    params.check()?;
    Ok(reply::page(&services.campaigns.list(&tenant, &query).await?))
}

/// `POST /api/campaigns`
pub(super) async fn create(
    services: Data<Services>,
    Proved(tenant): Caller,
    Json(input): Json<CampaignBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::created(services.campaigns.create(&tenant, input.into()).await?))
}

/// `GET /api/campaigns/<id>`
pub(super) async fn get(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.campaigns.get(&tenant, id).await?))
}

/// `PUT /api/campaigns/<id>`
pub(super) async fn update(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<CampaignId>,
    Json(input): Json<CampaignBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.campaigns.update(&tenant, id, input.into()).await?))
}

/// `DELETE /api/campaigns/<id>`
pub(super) async fn delete(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    services.campaigns.delete(&tenant, id).await?;
    Ok(reply::gone())
}

/// `POST /api/campaigns/<id>/execute`: answers when the run is over. Whoever hangs up does not stop it.
pub(super) async fn execute(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    let desk = &services.shared.desk;
    let run = services.campaigns.start(&tenant, id, desk.worker()).await?;
    Ok(reply::ok(desk.carry_out(run).await?))
}

/// `POST /api/campaigns/<id>/send`: answers at once; a worker does the rest.
pub(super) async fn send(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.campaigns.announce(&tenant, id).await?))
}

/// Body of `POST /api/campaigns/<id>/schedule`.
#[derive(Default, Deserialize, Validate)]
#[garde(allow_unvalidated)]
pub(super) struct ScheduleBody {
    #[serde(default, deserialize_with = "timestamp::option::deserialize")]
    scheduled_at: Option<OffsetDateTime>,
}

/// `POST /api/campaigns/<id>/schedule`
pub(super) async fn schedule(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<CampaignId>,
    MaybeJson(input): MaybeJson<ScheduleBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(
        services.campaigns.schedule(&tenant, id, input.scheduled_at).await?,
    ))
}

/// `POST /api/campaigns/<id>/unschedule`
pub(super) async fn unschedule(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.campaigns.unschedule(&tenant, id).await?))
}

/// `POST /api/campaigns/<id>/pause`
pub(super) async fn pause(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.campaigns.pause(&tenant, id).await?))
}

/// `POST /api/campaigns/<id>/resume`
pub(super) async fn resume(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.campaigns.resume(&tenant, id).await?))
}

/// `POST /api/campaigns/<id>/retry-failed`
pub(super) async fn retry_failed(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.campaigns.retry_failed(&tenant, id).await?))
}

/// `POST /api/campaigns/<id>/cancel`
pub(super) async fn cancel(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    let status = services.campaigns.cancel(&tenant, id).await?;
    Ok(reply::ok(json!({ "status": status })))
}

/// `POST /api/campaigns/<id>/preview`: who a run would go to, what they would read, what speaks against it.
pub(super) async fn preview(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.campaigns.preview(&tenant, id).await?))
}

/// Body of `POST /api/campaigns/<id>/test`.
#[derive(Deserialize, Validate)]
#[garde(allow_unvalidated)]
pub(super) struct TrialBody {
    phone: Option<String>,
}

/// `POST /api/campaigns/<id>/test`: one message to one phone, outside the statistics.
pub(super) async fn test(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<CampaignId>,
    Json(input): Json<TrialBody>,
) -> Result<HttpResponse, ApiError> {
    let phone = input.phone.unwrap_or_default();
    Ok(reply::ok(services.trials.send(&tenant, id, &phone).await?))
}

/// `GET /api/campaigns/<id>/stats`
pub(super) async fn stats(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<CampaignId>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.campaigns.stats(&tenant, id).await?))
}

/// `GET /api/campaigns/<id>/sends`
pub(super) async fn sends(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<CampaignId>,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let page = params.page();
    params.check()?;
    Ok(reply::page(&services.campaigns.sends(&tenant, id, page).await?))
}
