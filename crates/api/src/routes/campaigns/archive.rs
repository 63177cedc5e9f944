//! The route of a campaign's archive.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use recado_domain::retention::Archives;
use recado_domain::shared::CampaignId;

use super::ID;
use crate::error::{ApiError, ErrorCode};
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::operation::{Operation, path_id};
use crate::web::private_file::{PrivateFile, gzip_bytes, respond, returns_private_file};
use crate::web::route::{Endpoint, endpoint};

/// `GET /api/campaigns/<id>/archive`
async fn archive(
    archives: Data<Archives>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<CampaignId>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let open = archives.open(&tenant, id).await?;
    let file = PrivateFile::gzip(open.stored.size, open.stored.sha256);
    respond(&request, &file, async |range| Ok(open.read(range).await?)).await
}

pub(crate) const ARCHIVE: Endpoint = endpoint!(archive, {
    let description = "Returns the sends of an archived campaign as gzip of JSON lines, one a send in the order of \
                their ids: `id`, `contact_id`, `status`, `address_kind`, `sent_at`, `delivered_at`, `read_at`, \
                `failed_at`, `error_code`, `wa_message_id`, `category`, `pricing_type`, `amount`, `currency`. Unknown \
                values are null.";
    let operation = Operation::new("Get a campaign's archive", description)
        .takes(path_id(ID))
        .refuses(ErrorCode::NotFound, "The campaign is not archived.");
    returns_private_file(operation, gzip_bytes)
});
