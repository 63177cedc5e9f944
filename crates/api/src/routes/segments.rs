//! Segments and their members.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::segments::{AudienceFilters, Segment, SegmentInput, SegmentPreview, Segments};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{ContactId, CursorPage, SegmentId, timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use time::OffsetDateTime;

use super::contacts::ContactResponse;
use crate::error::{ApiError, ErrorCode};
use crate::web::body::{Json, JsonChange, PatchFields};
use crate::web::extractors::{Authenticated, Id, TenantContext, nullable};
use crate::web::operation::{Body, OpenApiTag, Operation, created, cursor_page, data, no_content, path_id};
use crate::web::query::CursorParams;
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Segments",
    description: "Named sets of contacts: members plus every contact that matches the filters.",
};

const ID: &str = "The segment's id.";

/// The fields of a segment.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
struct SegmentBody {
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
struct MembersBody {
    /// The ids of the contacts: at most 1,000.
    #[schemars(length(max = 1000))]
    #[garde(required)]
    contact_ids: Option<Vec<ContactId>>,
}

/// The filters and members of a segment that is not stored.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
struct PreviewBody {
    /// Every contact that matches these filters is counted. Without a condition: the contacts of `contact_ids` alone.
    #[schemars(required, example = json!({ "all": [{ "has_phone": true }], "not": { "last_inbound": { "within_days": 30 } } }))]
    #[garde(required)]
    filters: Option<AudienceFilters>,
    /// The ids of contacts that are counted in addition: at most 1,000.
    #[schemars(length(max = 1000))]
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

response_type! {
    /// A named set of contacts.
    #[schemars(rename = "Segment")]
    struct SegmentResponse from segment: Segment {
        /// The segment's id.
        id: SegmentId,
        /// The name: 1 to 100 characters.
        #[schemars(example = &"Campinas, com e-mail")]
        name: String,
        /// A description for people: at most 1,000 characters. Null if there is none.
        #[schemars(example = &"For the opening of the new shop")]
        description: Option<String>,
        /// Contacts that match these filters belong to the segment in addition to its members. Without filters, only
        /// the members belong to it.
        filters: AudienceFilters,
        /// The number of contacts: members plus contacts that match the filters, each counted once. In an account of
        /// more than 100,000 contacts it may be up to 60 seconds old.
        #[schemars(example = 312)]
        members: i64,
        /// When the contacts were counted.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        members_as_of: OffsetDateTime,
        /// When the segment was created.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
        /// When the name, description or filters were last changed.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        updated_at: OffsetDateTime,
    }
}

response_type! {
    /// The contacts of a segment that is not stored.
    #[schemars(rename = "SegmentPreview")]
    struct PreviewResponse from preview: SegmentPreview {
        /// The number of contacts.
        #[schemars(example = 312)]
        count: i64,
        /// When the contacts were counted. Days are counted back from this time.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        as_of: OffsetDateTime,
        /// How many of the contacts have a phone number and did not opt out.
        #[schemars(example = 298)]
        reachable: i64,
        /// The newest of the contacts, at most 10.
        sample: Vec<ContactResponse> = preview.sample.into_iter().map(ContactResponse::from).collect(),
    }
}

/// `GET /api/segments`
async fn list(
    segments: Data<Segments>,
    Authenticated(tenant): TenantContext,
    CursorParams(query): CursorParams,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(
        segments.list(&tenant, &query).await?.map(SegmentResponse::from),
    ))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new(
        "List segments",
        "Returns segments with their number of contacts, newest first.",
    )
    .takes_all(cursor_page())
    .responds(data::<CursorPage<SegmentResponse>>(
        "A page of segments and its `nextCursor`.",
    ))
});

/// `POST /api/segments`
async fn create(
    segments: Data<Segments>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<SegmentBody>,
) -> Result<HttpResponse, ApiError> {
    let segment = segments.create(&tenant, input.into()).await?;
    Ok(responses::created(SegmentResponse::from(segment)))
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    Operation::new(
        "Create a segment",
        "Creates a segment without members. Its filters apply immediately.",
    )
    .body(Body::json_with::<SegmentBody>(&["name"]))
    .responds(created::<SegmentResponse>("The new segment."))
});

/// `POST /api/segments/preview`
async fn preview(
    segments: Data<Segments>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<PreviewBody>,
) -> Result<HttpResponse, ApiError> {
    let (filters, members) = (input.filters.unwrap_or_default(), input.contact_ids.unwrap_or_default());
    let preview = segments.preview(&tenant, filters, &members).await?;
    Ok(responses::ok(PreviewResponse::from(preview)))
}

pub(super) const PREVIEW: Endpoint = endpoint!(preview, {
    Operation::new(
        "Preview a segment",
        "Counts the contacts of a segment with these filters and members now, and shows some of them. Stores nothing.",
    )
    .body(Body::json::<PreviewBody>())
    .responds(data::<PreviewResponse>("The contacts."))
    .refuses(
        ErrorCode::Invalid,
        "A filter is invalid, or a tag, campaign, product or contact does not exist; it is named by its path, such as \
         `filters.all[1].campaign.was`.",
    )
    .refuses(ErrorCode::Unavailable, "Counting takes longer than 10 seconds.")
});

/// `GET /api/segments/<id>`
async fn get(
    segments: Data<Segments>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<SegmentId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(SegmentResponse::from(segments.get(&tenant, id).await?)))
}

pub(super) const GET: Endpoint = endpoint!(get, {
    Operation::new("Get a segment", "Returns one segment with its number of contacts.")
        .takes(path_id(ID))
        .responds(data::<SegmentResponse>("The segment."))
});

/// `PUT /api/segments/<id>`
async fn update(
    segments: Data<Segments>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<SegmentId>,
    JsonChange(input): JsonChange<SegmentBody>,
) -> Result<HttpResponse, ApiError> {
    let segment = segments.update(&tenant, id, input.into()).await?;
    Ok(responses::ok(SegmentResponse::from(segment)))
}

pub(super) const UPDATE: Endpoint = endpoint!(update, {
    let description =
        "Updates a segment: absent fields do not change; null clears a field. `filters` replaces all filters.";
    Operation::new("Update a segment", description)
        .takes(path_id(ID))
        .body(Body::change::<SegmentBody>().example(json!({ "name": "Campinas", "filters": null })))
        .responds(data::<SegmentResponse>("The updated segment."))
});

/// `DELETE /api/segments/<id>`
async fn delete(
    segments: Data<Segments>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<SegmentId>,
) -> Result<HttpResponse, ApiError> {
    segments.delete(&tenant, id).await?;
    Ok(responses::no_content())
}

pub(super) const DELETE: Endpoint = endpoint!(delete, {
    let description =
        "Deletes a segment, not its contacts. A campaign that uses it cannot start until it has another audience.";
    Operation::new("Delete a segment", description)
        .takes(path_id(ID))
        .responds(no_content("The segment is deleted."))
});

/// `POST /api/segments/<id>/members`
async fn add_members(
    segments: Data<Segments>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<SegmentId>,
    Json(input): Json<MembersBody>,
) -> Result<HttpResponse, ApiError> {
    let contacts = input.contact_ids.unwrap_or_default();
    let segment = segments.add_members(&tenant, id, &contacts).await?;
    Ok(responses::ok(SegmentResponse::from(segment)))
}

pub(super) const ADD_MEMBERS: Endpoint = endpoint!(add_members, {
    Operation::new(
        "Add segment members",
        "Adds contacts to the members of a segment. Contacts that already are members stay members.",
    )
    .takes(path_id(ID))
    .body(Body::json::<MembersBody>())
    .responds(data::<SegmentResponse>(
        "The segment with its updated number of contacts.",
    ))
    .refuses(
        ErrorCode::Invalid,
        "A contact does not exist; it is named by its index, such as `contact_ids[3]`.",
    )
});

/// `DELETE /api/segments/<id>/members`
async fn remove_members(
    segments: Data<Segments>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<SegmentId>,
    Json(input): Json<MembersBody>,
) -> Result<HttpResponse, ApiError> {
    let contacts = input.contact_ids.unwrap_or_default();
    segments.remove_members(&tenant, id, &contacts).await?;
    Ok(responses::no_content())
}

pub(super) const REMOVE_MEMBERS: Endpoint = endpoint!(remove_members, {
    let description = "Removes contacts from the members of a segment. Contacts that are not members are ignored. A \
                contact that matches the filters still belongs to the segment.";
    Operation::new("Remove segment members", description)
        .takes(path_id(ID))
        .body(Body::json::<MembersBody>())
        .responds(no_content("The contacts are no longer members."))
});
