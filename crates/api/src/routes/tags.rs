//! Routes of tags.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::contacts::{Tag, Tags};
use recado_domain::shared::{CursorPage, TagId};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::{ApiError, ErrorCode};
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::operation::{Body, OpenApiTag, Operation, created, cursor_page, data, no_content, path_id};
use crate::web::query::CursorParams;
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Tags",
    description: "Labels on contacts.",
};

/// A new tag.
#[derive(Deserialize, JsonSchema, Validate)]
struct NewTag {
    /// The tag's name, unique in the account: 1 to 100 characters.
    #[schemars(length(min = 1, max = 100), example = &"vip")]
    #[garde(required)]
    name: Option<String>,
    /// The tag's color in the user interface: any text of at most 32 characters.
    #[schemars(length(max = 32), example = &"#22c55e")]
    #[garde(skip)]
    color: Option<String>,
}

response_type! {
    /// A label on contacts.
    #[schemars(rename = "Tag")]
    pub(super) struct TagResponse from tag: Tag {
        /// The tag's id.
        id: TagId,
        /// The tag's name, unique in the account: 1 to 100 characters.
        #[schemars(example = &"vip")]
        name: String,
        /// The tag's display colour: at most 32 characters of your choice; null for none.
        #[schemars(example = &"#22c55e")]
        color: Option<String>,
    }
}

/// `GET /api/tags`
async fn list(
    tags: Data<Tags>,
    Authenticated(tenant): TenantContext,
    CursorParams(query): CursorParams,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(tags.list(&tenant, &query).await?.map(TagResponse::from)))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new("List tags", "Returns tags, newest first.")
        .takes_all(cursor_page())
        .responds(data::<CursorPage<TagResponse>>("A page of tags and its `nextCursor`."))
});

/// `POST /api/tags`
async fn create(
    tags: Data<Tags>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<NewTag>,
) -> Result<HttpResponse, ApiError> {
    let name = input.name.unwrap_or_default();
    let tag = tags.create(&tenant, &name, input.color).await?;
    Ok(responses::created(TagResponse::from(tag)))
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    Operation::new("Create a tag", "Creates a tag with a unique name.")
        .body(Body::json::<NewTag>())
        .responds(created::<TagResponse>("The new tag."))
        .refuses(ErrorCode::Invalid, "Another tag has this name.")
});

/// `DELETE /api/tags/<id>`
async fn delete(
    tags: Data<Tags>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<TagId>,
) -> Result<HttpResponse, ApiError> {
    tags.delete(&tenant, id).await?;
    Ok(responses::no_content())
}

pub(super) const DELETE: Endpoint = endpoint!(delete, {
    Operation::new("Delete a tag", "Deletes a tag and removes it from every contact.")
        .takes(path_id("The tag's id."))
        .responds(no_content("The tag is deleted."))
});
