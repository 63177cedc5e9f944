//! Folders of campaigns and of templates.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::folders::{FolderKind, FolderQuery};
use recado_domain::shared::FolderId;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::query::Params;
use crate::web::reply;
use crate::web::shape::{Caller, Id, Proved};
use crate::wiring::Services;

/// A folder to be made.
#[derive(Deserialize, JsonSchema, Validate)]
pub(crate) struct NewFolder {
    /// Its name: 1 to 100 characters, after HTML tags and control characters are taken out.
    #[schemars(length(min = 1, max = 100), example = &"Black Friday")]
    #[garde(required)]
    name: Option<String>,
    /// What it is to hold.
    #[schemars(with = "FolderKind")]
    #[garde(required)]
    kind: Option<String>,
}

/// `GET /api/folders`
pub(super) async fn list(
    services: Data<Services>,
    Proved(tenant): Caller,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let query = FolderQuery {
        kind: params.parsed("kind", "campaign or template"),
        slice: params.slice(),
    };
    params.check()?;
    Ok(reply::ok(services.folders.list(&tenant, &query).await?))
}

/// `POST /api/folders`
pub(super) async fn create(
    services: Data<Services>,
    Proved(tenant): Caller,
    Json(input): Json<NewFolder>,
) -> Result<HttpResponse, ApiError> {
    let (name, kind) = (input.name.unwrap_or_default(), input.kind.unwrap_or_default());
    Ok(reply::created(services.folders.create(&tenant, &name, &kind).await?))
}

/// `DELETE /api/folders/<id>`
pub(super) async fn delete(
    services: Data<Services>,
    Proved(tenant): Caller,
    Id(id): Id<FolderId>,
) -> Result<HttpResponse, ApiError> {
    services.folders.delete(&tenant, id).await?;
    Ok(reply::gone())
}
