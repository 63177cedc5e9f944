//! What shops and other systems tell: orders, carts, ad spend, events.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::ingestion::{AdSpendInput, CartInput, EventInput, OrderInput};
use serde::Deserialize;

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::reply;
use crate::web::shape::{Caller, Proved};
use crate::wiring::Services;

/// Body of `POST /api/orders`.
#[derive(Deserialize, Validate)]
pub(super) struct OrdersBody {
    #[garde(required)]
    orders: Option<Vec<OrderInput>>,
}

/// Body of `POST /api/carts`.
#[derive(Deserialize, Validate)]
pub(super) struct CartsBody {
    #[garde(required)]
    carts: Option<Vec<CartInput>>,
}

/// Body of `POST /api/ad-spend`.
#[derive(Deserialize, Validate)]
pub(super) struct AdSpendBody {
    #[garde(required)]
    entries: Option<Vec<AdSpendInput>>,
}

/// Body of `POST /api/events`.
#[derive(Deserialize, Validate)]
pub(super) struct EventsBody {
    #[garde(required)]
    events: Option<Vec<EventInput>>,
}

/// `POST /api/orders`
pub(super) async fn orders(
    services: Data<Services>,
    Proved(tenant): Caller,
    Json(body): Json<OrdersBody>,
) -> Result<HttpResponse, ApiError> {
    let orders = body.orders.unwrap_or_default();
    Ok(reply::ok(services.ingestion.orders(tenant.account_id, orders).await?))
}

/// `POST /api/carts`
pub(super) async fn carts(
    services: Data<Services>,
    Proved(tenant): Caller,
    Json(body): Json<CartsBody>,
) -> Result<HttpResponse, ApiError> {
    let carts = body.carts.unwrap_or_default();
    Ok(reply::ok(services.ingestion.carts(tenant.account_id, carts).await?))
}

/// `POST /api/ad-spend`
pub(super) async fn ad_spend(
    services: Data<Services>,
    Proved(tenant): Caller,
    Json(body): Json<AdSpendBody>,
) -> Result<HttpResponse, ApiError> {
    let entries = body.entries.unwrap_or_default();
    Ok(reply::ok(
        services.ingestion.ad_spend(tenant.account_id, entries).await?,
    ))
}

/// `POST /api/events`
pub(super) async fn events(
    services: Data<Services>,
    Proved(tenant): Caller,
    Json(body): Json<EventsBody>,
) -> Result<HttpResponse, ApiError> {
    let events = body.events.unwrap_or_default();
    Ok(reply::ok(services.ingestion.events(tenant.account_id, events).await?))
}
