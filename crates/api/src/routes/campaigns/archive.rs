//! The route of a campaign's archive.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use recado_domain::retention::Archives;
use recado_domain::shared::CampaignId;
use serde_json::json;

use super::ID;
use crate::error::{ApiError, ErrorCode};
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::operation::{Operation, ResponseDoc, custom_with, empty, path_id, text};
use crate::web::private_file::{PrivateFile, respond};
use crate::web::route::{Endpoint, endpoint};

const GZIP: &str = "application/gzip";

/// `GET /api/campaigns/<id>/archive`
async fn archive(
    archives: Data<Archives>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let open = archives.open(&tenant, id).await?;
    let file = PrivateFile {
        sha256: hex::encode(open.stored.sha256),
        size: open.stored.size,
        content_type: GZIP,
    };
    respond(&request, &file, async |range| Ok(open.read(range).await?)).await
}

pub(crate) const ARCHIVE: Endpoint = endpoint!(archive, {
    let description = "Returns the sends of an archived campaign as gzip of JSON lines, one a send in the order of \
                their ids: `id`, `contact_id`, `status`, `address_kind`, `sent_at`, `delivered_at`, `read_at`, \
                `failed_at`, `error_code`, `wa_message_id`, `category`, `pricing_type`, `amount`, `currency`. Unknown \
                values are null. A single `Range` of bytes returns that part; several ranges return the whole file. \
                `If-None-Match` and `If-Range` compare the `ETag`.";
    Operation::new("Get a campaign's archive", description)
        .takes(path_id(ID))
        .takes(text("Range", "One range of bytes.").in_header().example("bytes=0-1023"))
        .takes(
            text("If-Range", "The `ETag` for which `Range` is meant.")
                .in_header()
                .example("\"9f86d0\""),
        )
        .takes(
            text("If-None-Match", "Entity tags that the client has.")
                .in_header()
                .example("\"9f86d0\""),
        )
        .responds(bytes(200, "The archive."))
        .responds(bytes(206, "The requested part of the archive."))
        .responds(empty(304, "The client has the archive."))
        .responds(empty(
            416,
            "The range is outside the file; `Content-Range` has its size.",
        ))
        .refuses(ErrorCode::NotFound, "The campaign is not archived.")
        .refuses(ErrorCode::Storage, "")
});

fn bytes(status: u16, description: &'static str) -> ResponseDoc {
    let schema = json!({ "type": "string", "contentMediaType": "application/octet-stream" });
    custom_with(status, GZIP, description, schema).example(json!("(bytes)"))
}
