//! Routes of ingestion: orders, carts, ad spend and metric events.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::ingestion::{AdSpendInput, CartInput, EventInput, Ingestion, IngestionResult, OrderInput};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{ApiError, ErrorCode};
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, TenantContext};
use crate::web::operation::{Body, OpenApiTag, Operation, data};
use crate::web::responses;
use crate::web::route::{Endpoint, endpoint};

pub(super) const TAG: OpenApiTag = OpenApiTag {
    name: "Ingestion",
    description: "Report orders, carts, ad spend and metric events from shops and other systems.",
};

const REFUSED: &str = "One invalid item rejects the whole request. Each invalid item is named by its index, such as \
                       `orders[3].total`. A reference to a missing campaign, automation or contact is invalid, too.";

const EXAMPLE_TIME: &str = "2026-02-01T09:30:00.000Z";

/// A batch of orders.
#[derive(Deserialize, Validate, JsonSchema)]
struct OrdersBody {
    /// 1 to 1000 orders. One invalid order rejects the whole batch.
    #[schemars(required, length(min = 1, max = 1000))]
    #[garde(required)]
    orders: Option<Vec<OrderInput>>,
}

/// A batch of carts.
#[derive(Deserialize, Validate, JsonSchema)]
struct CartsBody {
    /// 1 to 1000 carts. One invalid cart rejects the whole batch.
    #[schemars(required, length(min = 1, max = 1000))]
    #[garde(required)]
    carts: Option<Vec<CartInput>>,
}

/// A batch of ad spend entries.
#[derive(Deserialize, Validate, JsonSchema)]
struct AdSpendBody {
    /// 1 to 1000 entries. One invalid entry rejects the whole batch.
    #[schemars(required, length(min = 1, max = 1000))]
    #[garde(required)]
    entries: Option<Vec<AdSpendInput>>,
}

/// A batch of metric events.
#[derive(Deserialize, Validate, JsonSchema)]
struct EventsBody {
    /// 1 to 1000 events. One invalid event rejects the whole batch.
    #[schemars(required, length(min = 1, max = 1000))]
    #[garde(required)]
    events: Option<Vec<EventInput>>,
}

/// `POST /api/orders`
async fn orders(
    ingestion: Data<Ingestion>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<OrdersBody>,
) -> Result<HttpResponse, ApiError> {
    let orders = body.orders.unwrap_or_default();
    Ok(responses::ok(ingestion.orders(tenant.account_id, orders).await?))
}

pub(super) const ORDERS: Endpoint = endpoint!(orders, {
    let description = "Creates or updates orders by `platform` and `external_id`. Omitted fields keep their value. A \
                named campaign, automation or link replaces the attribution.";
    Operation::new("Upsert orders", description)
        .body(Body::json::<OrdersBody>().example(json!({ "orders": [order()] })))
        .responds(data::<IngestionResult>(
            "The number of items that were created or changed.",
        ))
        .refuses(ErrorCode::Invalid, REFUSED)
});

/// `POST /api/carts`
async fn carts(
    ingestion: Data<Ingestion>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<CartsBody>,
) -> Result<HttpResponse, ApiError> {
    let carts = body.carts.unwrap_or_default();
    Ok(responses::ok(ingestion.carts(tenant.account_id, carts).await?))
}

pub(super) const CARTS: Endpoint = endpoint!(carts, {
    let description = "Creates or updates carts by `platform` and `external_id`.";
    let cart = json!({
        "external_id": "c-77", "platform": "loja", "contact_phone": "+5511961234567", "total": 89.9,
        "status": "abandoned", "created_at": EXAMPLE_TIME,
    });
    Operation::new("Upsert carts", description)
        .body(Body::json::<CartsBody>().example(json!({ "carts": [cart] })))
        .responds(data::<IngestionResult>(
            "The number of items that were created or changed.",
        ))
        .refuses(ErrorCode::Invalid, REFUSED)
});

/// `POST /api/ad-spend`
async fn ad_spend(
    ingestion: Data<Ingestion>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<AdSpendBody>,
) -> Result<HttpResponse, ApiError> {
    let entries = body.entries.unwrap_or_default();
    Ok(responses::ok(ingestion.ad_spend(tenant.account_id, entries).await?))
}

pub(super) const AD_SPEND: Endpoint = endpoint!(ad_spend, {
    let description = "Creates or replaces ad spend entries by `date` and `source`.";
    let entry = json!({ "date": "2026-02-01", "source": "instagram", "amount": 120.5 });
    Operation::new("Upsert ad spend", description)
        .body(Body::json::<AdSpendBody>().example(json!({ "entries": [entry] })))
        .responds(data::<IngestionResult>(
            "The number of items that were created or changed.",
        ))
        .refuses(ErrorCode::Invalid, REFUSED)
});

/// `POST /api/events`
async fn events(
    ingestion: Data<Ingestion>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<EventsBody>,
) -> Result<HttpResponse, ApiError> {
    let events = body.events.unwrap_or_default();
    Ok(responses::ok(ingestion.events(tenant.account_id, events).await?))
}

pub(super) const EVENTS: Endpoint = endpoint!(events, {
    let description = "Records metric events. Events are immutable: an item whose `id` was recorded before is ignored.";
    let event = json!({
        "metric_name": "page_view", "contact_phone": "+5511961234567", "value": 1.5, "currency": "BRL",
        "source": "site", "properties": { "path": "/bolos" }, "occurred_at": EXAMPLE_TIME,
    });
    Operation::new("Record metric events", description)
        .body(Body::json::<EventsBody>().example(json!({ "events": [event] })))
        .responds(data::<IngestionResult>("The number of newly recorded events."))
        .refuses(ErrorCode::Invalid, REFUSED)
});

fn order() -> Value {
    json!({
        "external_id": "1001", "platform": "loja", "contact_phone": "+5511961234567", "status": "paid",
        "total": 149.9, "gateway_fee": 4.9, "placed_at": EXAMPLE_TIME, "paid_at": EXAMPLE_TIME,
        "link_code": "Ab3dE9x_2",
        "items": [{ "product_id": "7", "name": "Bolo de cenoura", "quantity": 1, "price": 149.9, "cost": 60 }],
    })
}
