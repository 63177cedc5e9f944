//! Routes of the exports of contacts.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use recado_domain::contact_exports::{ContactExport, ContactExports, ExportState};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{ContactId, ExportId, timestamp};
use time::OffsetDateTime;

pub(super) use super::retention::TAG;
use crate::error::ApiError;
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::operation::{Operation, data, data_with, path_id};
use crate::web::private_file::{PrivateFile, gzip_bytes, respond, returns_private_file};
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};

const ID: &str = "The export's id.";

response_type! {
    /// The receipt of an export.
    #[schemars(rename = "ContactExport")]
    struct ExportResponse from export: ContactExport {
        /// The export's id.
        id: ExportId,
        /// The contact's id.
        contact_id: ContactId,
        /// Whether the file can be read.
        state: ExportState,
        /// When the export was requested.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        requested_at: OffsetDateTime,
        /// Until when receipt and file are available.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        expires_at: OffsetDateTime,
    }
}

/// `POST /api/contacts/<id>/export`
async fn create(
    exports: Data<ContactExports>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ContactId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::accepted(ExportResponse::from(
        exports.create(&tenant, id).await?,
    )))
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    let description = "Requests a file with all that the account holds of a contact, also of a deleted one. A worker \
                writes it within seconds; `GET /api/exports/{id}` says when it is done.";
    Operation::new("Export a contact", description)
        .takes(path_id("The contact's id."))
        .responds(data_with::<ExportResponse>(202, "The receipt."))
});

/// `GET /api/exports/<id>`
async fn get(
    exports: Data<ContactExports>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ExportId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(ExportResponse::from(exports.get(&tenant, id).await?)))
}

pub(super) const GET: Endpoint = endpoint!(get, {
    Operation::new("Get an export", "Returns the receipt of an export, for 7 days.")
        .takes(path_id(ID))
        .responds(data::<ExportResponse>("The receipt."))
});

/// `GET /api/exports/<id>/file`
async fn file(
    exports: Data<ContactExports>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ExportId>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let open = exports.open(&tenant, id).await?;
    let file = PrivateFile::gzip(open.stored.size, open.stored.sha256);
    respond(&request, &file, async |range| Ok(open.read(range).await?)).await
}

pub(super) const FILE: Endpoint = endpoint!(file, {
    let description = "Returns the file of an export that is `done`, for 7 days: gzip of JSON lines, one a row, with its \
                `type` (`contact`, `identity`, `tag`, `segment`, `rfm_score`, `conversation`, `message`, \
                `message_file`, `direct_message`, `campaign_send`, `order`, `cart`, `metric_event`, `metric_totals` or `link`) and its \
                `data`. Files of messages are there by id, for `GET /api/media/{id}`.";
    let operation = Operation::new("Get the file of an export", description).takes(path_id(ID));
    returns_private_file(operation, gzip_bytes)
});
