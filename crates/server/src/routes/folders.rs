//! Routes of folders for campaigns and templates.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::folders::{FolderKind, FolderQuery};
use recado_domain::shared::FolderId;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::parameters::EnumParam;
use crate::web::query::Params;
use crate::web::responses;
use crate::wiring::Services;

pub(crate) const KIND: EnumParam<FolderKind> = EnumParam {
    name: "kind",
    description: "Only folders of this kind.",
    accepted: "campaign or template",
    example: None,
};

/// A new folder.
#[derive(Deserialize, JsonSchema, Validate)]
pub(crate) struct NewFolder {
    /// The folder's name: 1 to 100 characters after HTML tags and control characters are removed.
    #[schemars(length(min = 1, max = 100), example = &"Black Friday")]
    #[garde(required)]
    name: Option<String>,
    /// Whether the folder holds campaigns or templates.
    #[schemars(with = "FolderKind")]
    #[garde(required)]
    kind: Option<String>,
}

/// `GET /api/folders`
pub(super) async fn list(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let query = FolderQuery {
        kind: params.one_of(&KIND),
        page: params.cursor_query(),
    };
    params.check()?;
    Ok(responses::ok(services.folders.list(&tenant, &query).await?))
}

/// `POST /api/folders`
pub(super) async fn create(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(input): Json<NewFolder>,
) -> Result<HttpResponse, ApiError> {
    let (name, kind) = (input.name.unwrap_or_default(), input.kind.unwrap_or_default());
    Ok(responses::created(
        services.folders.create(&tenant, &name, &kind).await?,
    ))
}

/// `DELETE /api/folders/<id>`
pub(super) async fn delete(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<FolderId>,
) -> Result<HttpResponse, ApiError> {
    services.folders.delete(&tenant, id).await?;
    Ok(responses::no_content())
}
