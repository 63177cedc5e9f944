//! Routes of rate cards, which platform administrators upload.

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use recado_domain::costs::{RateCard, RateCards};
use recado_domain::shared::schema::{Day, Timestamp};
use recado_domain::shared::{CursorPage, RateCardId, timestamp};
use serde_json::json;
use time::OffsetDateTime;

use super::administration::AdminRequest;
pub(super) use super::administration::TAG;
use crate::error::{ApiError, ErrorCode};
use crate::web::body;
use crate::web::extractors::Id;
use crate::web::operation::{Body, Operation, Parameter, created, cursor_page, custom, data, no_content, path_id};
use crate::web::parameters::TextParam;
use crate::web::query::{CursorParams, Params};
use crate::web::responses::{self, response_type};
use crate::web::route::{Endpoint, endpoint};

const ID: &str = "The rate card's id.";

const CSV: &str = "text/csv";

/// The largest file in bytes.
const FILE_BYTES: usize = 5 * 1024 * 1024;

const NAME: TextParam = TextParam::new("name", "The card's name: 1 to 100 characters.", "Meta 2026 Q4");

const EXAMPLE: &str = "market,currency,category,rate,effective_from,countries,zone,free_per_number_month\n\
    BR,USD,marketing,0.0625,2026-10-01,,America/Sao_Paulo,\n\
    Rest of Europe,USD,service,0.01,2026-10-01,AL;MD,,1000\n";

response_type! {
    /// A rate card: the prices of messages by market, category and date.
    #[schemars(rename = "RateCard")]
    struct RateCardResponse from card: RateCard {
        /// The card's id.
        id: RateCardId,
        /// The card's name.
        #[schemars(example = &"Meta 2026 Q4")]
        name: String,
        /// The number of rates.
        #[schemars(example = 240)]
        rows: i64,
        /// The currencies of the rates as ISO 4217 codes, sorted.
        #[schemars(example = ["USD"])]
        currencies: Vec<String>,
        /// The earliest date on which a rate of the card begins.
        #[schemars(with = "Day")]
        effective_from: String = card.effective_from.to_string(),
        /// When the card was uploaded.
        #[schemars(with = "Timestamp")]
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
    }
}

/// `POST /api/admin/rate-cards`
async fn create(
    rate_cards: Data<RateCards>,
    AdminRequest { admin, .. }: AdminRequest,
    params: Params,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let name = params.text(&NAME);
    params.check()?;
    body::check_media_type(&request, CSV)?;
    let file = body::read(&request, payload.into_inner(), FILE_BYTES).await?;
    let card = rate_cards.create(&admin, name.as_deref(), &file).await?;
    Ok(responses::created(RateCardResponse::from(card)))
}

pub(super) const CREATE: Endpoint = endpoint!(create, {
    let description = "Stores the rates of a CSV file of up to 5 MiB. A message gets its price from the newest card with \
                a rate for its market, category and time, unless WhatsApp reports the amount. A new card changes no \
                price that is stored already. One invalid line refuses the file: `details.errors` then has the first \
                100 as `line` and `message`.";
    Operation::new("Upload a rate card", description)
        .takes(Parameter::from(&NAME).required())
        .body(
            Body::custom(CSV, json!({ "type": "string" })).example(json!(EXAMPLE)).described(
                "CSV with a header line: `market`, `currency`, `category`, `rate` (from 0 to 1,000 with at most 6 \
                 decimals) and `effective_from` (a date); optionally `countries` (ISO codes, separated by `;`; a market \
                 without any is its own code), `zone` (the time zone in which the date begins; default UTC) and \
                 `free_per_number_month`. Other columns are ignored.",
            ),
        )
        .responds(created::<RateCardResponse>("The rate card."))
        .refuses(ErrorCode::Invalid, "The name is missing, or lines of the file are invalid.")
});

/// `GET /api/admin/rate-cards`
async fn list(rate_cards: Data<RateCards>, CursorParams(page): CursorParams) -> Result<HttpResponse, ApiError> {
    let page: CursorPage<RateCard> = rate_cards.list(&page).await?;
    Ok(responses::ok(page.map(RateCardResponse::from)))
}

pub(super) const LIST: Endpoint = endpoint!(list, {
    Operation::new("List rate cards", "Returns all rate cards, newest first.")
        .takes_all(cursor_page())
        .responds(data::<CursorPage<RateCardResponse>>(
            "A page of rate cards and its `nextCursor`.",
        ))
});

/// `GET /api/admin/rate-cards/<id>`
async fn get(
    rate_cards: Data<RateCards>,
    Id(id): Id<RateCardId>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    if !accepts_csv(&request) {
        return Ok(responses::ok(RateCardResponse::from(rate_cards.get(id).await?)));
    }
    let csv = rate_cards.csv(id).await?;
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/csv; charset=utf-8"))
        .body(csv))
}

pub(super) const GET: Endpoint = endpoint!(get, {
    let description = "Returns one rate card; with `Accept: text/csv` its rates as CSV.";
    Operation::new("Get a rate card", description)
        .takes(path_id(ID))
        .responds(
            data::<RateCardResponse>("The rate card.")
                .or(custom(CSV, "The rates.", json!({ "type": "string" })).example(json!(EXAMPLE))),
        )
});

/// Whether the client names the media type. Any other value of `Accept` gets JSON.
fn accepts_csv(request: &HttpRequest) -> bool {
    let values = request.headers().get_all(header::ACCEPT);
    let types = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    types
        .map(|accepted| accepted.split(';').next().unwrap_or_default().trim())
        .any(|media_type| media_type.eq_ignore_ascii_case(CSV))
}

/// `DELETE /api/admin/rate-cards/<id>`
async fn delete(
    rate_cards: Data<RateCards>,
    AdminRequest { admin, .. }: AdminRequest,
    Id(id): Id<RateCardId>,
) -> Result<HttpResponse, ApiError> {
    rate_cards.delete(&admin, id).await?;
    Ok(responses::no_content())
}

pub(super) const DELETE: Endpoint = endpoint!(delete, {
    Operation::new(
        "Delete a rate card",
        "Deletes a rate card from which no price was taken.",
    )
    .takes(path_id(ID))
    .responds(no_content("The rate card is deleted."))
    .refuses(ErrorCode::Precondition, "Prices were taken from the card (`in_use`).")
});
