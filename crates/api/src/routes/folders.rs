//! Routes of folders for campaigns and templates.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::folders::{Folder, FolderKind, FolderQuery, Folders};
use recado_domain::shared::{CursorPage, FolderId};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::operation::{Body, OpenApiTag, Operation, created, cursor_page, data, no_content, path_id};
use crate::web::parameters::EnumParam;
use crate::web::query::Params;
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Folders",
    description: "Folders for campaigns and for templates.",
};

pub(crate) const KIND: EnumParam<FolderKind> = EnumParam {
    name: "kind",
    description: "Only folders of this kind.",
    accepted: "campaign or template",
    example: None,
};

/// A new folder.
#[derive(Deserialize, JsonSchema, Validate)]
struct NewFolder {
    /// The folder's name: 1 to 100 characters after HTML tags and control characters are removed.
    #[schemars(length(min = 1, max = 100), example = &"Black Friday")]
    #[garde(required)]
    name: Option<String>,
    /// Whether the folder holds campaigns or templates.
    #[schemars(with = "FolderKind")]
    #[garde(required)]
    kind: Option<String>,
}

response_type! {
    /// A folder of campaigns or of templates.
    #[schemars(rename = "Folder")]
    struct FolderResponse from folder: Folder {
        /// The folder's id.
        id: FolderId,
        /// The name: 1 to 100 characters.
        #[schemars(example = &"Black Friday")]
        name: String,
        /// The kind of item that the folder contains. It cannot be changed.
        kind: FolderKind,
    }
}

/// `GET /api/folders`
async fn list(
    folders: Data<Folders>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let query = FolderQuery {
        kind: params.one_of(&KIND),
        page: params.cursor_query(),
    };
    params.check()?;
    Ok(responses::ok(
        folders.list(&tenant, &query).await?.map(FolderResponse::from),
    ))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new("List folders", "Returns folders, newest first.")
        .takes(&KIND)
        .takes_all(cursor_page())
        .responds(data::<CursorPage<FolderResponse>>(
            "A page of folders and its `nextCursor`.",
        ))
});

/// `POST /api/folders`
async fn create(
    folders: Data<Folders>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<NewFolder>,
) -> Result<HttpResponse, ApiError> {
    let (name, kind) = (input.name.unwrap_or_default(), input.kind.unwrap_or_default());
    let folder = folders.create(&tenant, &name, &kind).await?;
    Ok(responses::created(FolderResponse::from(folder)))
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    Operation::new("Create a folder", "Creates a folder for campaigns or for templates.")
        .body(Body::json::<NewFolder>())
        .responds(created::<FolderResponse>("The new folder."))
});

/// `DELETE /api/folders/<id>`
async fn delete(
    folders: Data<Folders>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<FolderId>,
) -> Result<HttpResponse, ApiError> {
    folders.delete(&tenant, id).await?;
    Ok(responses::no_content())
}

pub(super) const DELETE: Endpoint = endpoint!(delete, {
    Operation::new(
        "Delete a folder",
        "Deletes a folder. Its campaigns or templates stay and have no folder.",
    )
    .takes(path_id("The folder's id."))
    .responds(no_content("The folder is deleted."))
});
