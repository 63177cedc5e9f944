//! Segments and their members.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::segments::{AudienceFilters, SegmentInput};
use recado_domain::shared::{ContactId, SegmentId};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;
use crate::web::body::{Json, JsonChange, PatchFields};
use crate::web::extractors::{Authenticated, Id, TenantContext, nullable};
use crate::web::query::CursorParams;
use crate::web::responses;
use crate::wiring::Services;

/// The fields of a segment.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
pub(crate) struct SegmentBody {
    /// The segment's name: 1 to 100 characters after HTML tags and control characters are removed.
    #[schemars(length(min = 1, max = 100), example = &"Campinas, com e-mail")]
    name: Option<String>,
    /// A description of the segment: at most 1,000 characters.
    #[schemars(length(max = 1000), example = &"For the opening of the new shop")]
    #[serde(default, deserialize_with = "nullable")]
    description: Option<Option<String>>,
    /// Every contact that matches these filters belongs to the segment in addition to its members. Null: members only.
    #[serde(default, deserialize_with = "nullable")]
    filters: Option<Option<AudienceFilters>>,
}

impl PatchFields for SegmentBody {
    const NEVER_NULL: &'static [&'static str] = &["name"];
}

/// Members of a segment.
#[derive(Deserialize, JsonSchema, Validate)]
pub(crate) struct MembersBody {
    /// The ids of the contacts: at most 1,000.
    #[schemars(length(max = 1000))]
    #[garde(required)]
    contact_ids: Option<Vec<ContactId>>,
}

impl From<SegmentBody> for SegmentInput {
    fn from(body: SegmentBody) -> Self {
        Self {
            name: body.name,
            description: body.description,
            filters: body.filters,
        }
    }
}

/// `GET /api/segments`
pub(super) async fn list(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    CursorParams(query): CursorParams,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.segments.list(&tenant, &query).await?))
}

/// `POST /api/segments`
pub(super) async fn create(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<SegmentBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::created(
        services.segments.create(&tenant, input.into()).await?,
    ))
}

/// `GET /api/segments/<id>`
pub(super) async fn get(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<SegmentId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.segments.get(&tenant, id).await?))
}

/// `PUT /api/segments/<id>`
pub(super) async fn update(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<SegmentId>,
    JsonChange(input): JsonChange<SegmentBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(
        services.segments.update(&tenant, id, input.into()).await?,
    ))
}

/// `DELETE /api/segments/<id>`
pub(super) async fn delete(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<SegmentId>,
) -> Result<HttpResponse, ApiError> {
    services.segments.delete(&tenant, id).await?;
    Ok(responses::no_content())
}

/// `POST /api/segments/<id>/members`
pub(super) async fn add_members(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<SegmentId>,
    Json(input): Json<MembersBody>,
) -> Result<HttpResponse, ApiError> {
    let contacts = input.contact_ids.unwrap_or_default();
    Ok(responses::ok(
        services.segments.add_members(&tenant, id, &contacts).await?,
    ))
}

/// `DELETE /api/segments/<id>/members`
pub(super) async fn remove_members(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<SegmentId>,
    Json(input): Json<MembersBody>,
) -> Result<HttpResponse, ApiError> {
    let contacts = input.contact_ids.unwrap_or_default();
    services.segments.remove_members(&tenant, id, &contacts).await?;
    Ok(responses::no_content())
}
