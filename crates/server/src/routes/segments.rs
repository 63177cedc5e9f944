//! Segments and their members.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::segments::{AudienceFilters, SegmentInput};
use recado_domain::shared::{ContactId, SegmentId};
use serde::Deserialize;

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::query::IdSlice;
use crate::web::reply;
use crate::web::shape::{Caller, Id, Proved, nullable};
use crate::wiring::Services;

/// Body of `POST /api/segments` and `PUT /api/segments/<id>`.
#[derive(Deserialize, Validate)]
#[garde(allow_unvalidated)]
pub(super) struct SegmentBody {
    name: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    description: Option<Option<String>>,
    #[serde(default, deserialize_with = "nullable")]
    filters: Option<Option<AudienceFilters>>,
}

/// Body of `POST /api/segments/<id>/members` and `DELETE /api/segments/<id>/members`.
#[derive(Deserialize, Validate)]
pub(super) struct MembersBody {
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
    Proved(tenant): Caller,
    IdSlice(query): IdSlice,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.segments.list(&tenant, &query).await?))
}

/// `POST /api/segments`
pub(super) async fn create(
    services: Data<Services>,
    Proved(tenant): Caller,
    Json(input): Json<SegmentBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::created(services.segments.create(&tenant, input.into()).await?))
}

/// `GET /api/segments/<id>`
pub(super) async fn get(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<SegmentId>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.segments.get(&tenant, id).await?))
}

/// `PUT /api/segments/<id>`
pub(super) async fn update(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<SegmentId>,
    Json(input): Json<SegmentBody>,
) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.segments.update(&tenant, id, input.into()).await?))
}

/// `DELETE /api/segments/<id>`
pub(super) async fn delete(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<SegmentId>,
) -> Result<HttpResponse, ApiError> {
    services.segments.delete(&tenant, id).await?;
    Ok(reply::gone())
}

/// `POST /api/segments/<id>/members`
pub(super) async fn add_members(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<SegmentId>,
    Json(input): Json<MembersBody>,
) -> Result<HttpResponse, ApiError> {
    let contacts = input.contact_ids.unwrap_or_default();
    Ok(reply::ok(services.segments.add_members(&tenant, id, &contacts).await?))
}

/// `DELETE /api/segments/<id>/members`
pub(super) async fn remove_members(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<SegmentId>,
    Json(input): Json<MembersBody>,
) -> Result<HttpResponse, ApiError> {
    let contacts = input.contact_ids.unwrap_or_default();
    Ok(reply::ok(
        services.segments.remove_members(&tenant, id, &contacts).await?,
    ))
}
