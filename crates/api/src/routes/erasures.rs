//! Routes of the erasures of contacts.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::erasures::{Erasure, ErasureState, Erasures, RemovedCounts};
use recado_domain::shared::schema::Timestamp;
use recado_domain::shared::{ContactId, CursorPage, ErasureId, timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use time::OffsetDateTime;

pub(super) use super::retention::TAG;
use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, Id, TenantContext};
use crate::web::operation::{Body, Operation, cursor_page, data, data_with, path_id};
use crate::web::query::CursorParams;
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};

/// Why the contact is erased.
#[derive(Deserialize, JsonSchema, Validate)]
#[garde(allow_unvalidated)]
struct ErasureBody {
    /// A note for the account's records, of at most 200 characters. It is removed with the rest if it has the person's
    /// number, e-mail address or WhatsApp id.
    #[schemars(length(max = 200), example = &"Request of the person, ticket 4711")]
    #[serde(default)]
    reason: Option<String>,
}

response_type! {
    /// The receipt of an erasure.
    #[schemars(rename = "Erasure")]
    struct ErasureResponse from erasure: Erasure {
        /// The receipt's id.
        id: ErasureId,
        /// The id of the erased contact, which no list has any more.
        contact_id: ContactId,
        /// `running` until every copy is removed, at most 24 hours; then `done`.
        state: ErasureState,
        /// When the erasure was requested.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        requested_at: OffsetDateTime,
        /// When everything was removed; null until then.
        #[schemars(with = "Option<Timestamp>")]
        #[serde(with = "timestamp::option")]
        finished_at: Option<OffsetDateTime>,
        /// How many rows and files were emptied or removed so far, by kind.
        #[schemars(example = json!({ "contacts": 1, "tags": 2, "messages": 14 }))]
        removed: RemovedCounts,
    }
}

/// `POST /api/contacts/<id>/erase`
async fn create(
    erasures: Data<Erasures>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ContactId>,
    Json(input): Json<ErasureBody>,
) -> Result<HttpResponse, ApiError> {
    let receipt = erasures.request(&tenant, id, input.reason.as_deref()).await?;
    Ok(responses::accepted(ErasureResponse::from(receipt)))
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    let description = "Erases a contact, also a deleted one. The contact is in no list from the response on, and no \
                send to it begins. A worker then empties its messages, files, metrics and orders, and removes copies \
                from events, logs, deliveries, stored responses and exports. Rows and sums stay without personal data. A \
                repeated request returns the first receipt. An opt-out of the person outlives the erasure as a keyed \
                hash.";
    Operation::new("Erase a contact", description)
        .takes(path_id("The contact's id."))
        .body(Body::json::<ErasureBody>().optional())
        .responds(data_with::<ErasureResponse>(202, "The receipt."))
});

/// `GET /api/erasures`
async fn list(
    erasures: Data<Erasures>,
    Authenticated(tenant): TenantContext,
    CursorParams(page): CursorParams,
) -> Result<HttpResponse, ApiError> {
    let receipts = erasures.list(&tenant, &page).await?;
    Ok(responses::ok(receipts.map(ErasureResponse::from)))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new("List erasures", "Returns the receipts of erasures, newest first.")
        .takes_all(cursor_page())
        .responds(data::<CursorPage<ErasureResponse>>(
            "A page of receipts and its `nextCursor`.",
        ))
});

/// `GET /api/erasures/<id>`
async fn get(
    erasures: Data<Erasures>,
    Authenticated(tenant): TenantContext,
    Id(id): Id<ErasureId>,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(ErasureResponse::from(erasures.get(&tenant, id).await?)))
}

pub(super) const GET: Endpoint = endpoint!(get, {
    Operation::new("Get an erasure", "Returns the receipt of an erasure.")
        .takes(path_id("The receipt's id."))
        .responds(data::<ErasureResponse>("The receipt."))
});
