//! Routes of ingestion: orders, carts, ad spend and metric events.

use actix_web::HttpResponse;
use actix_web::web::Data;
use garde::Validate;
use recado_domain::ingestion::{AdSpendInput, CartInput, EventInput, OrderInput};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;
use crate::web::body::Json;
use crate::web::extractors::{Authenticated, TenantContext};
use crate::web::responses;
use crate::wiring::Services;

/// A batch of orders.
#[derive(Deserialize, Validate, JsonSchema)]
pub(crate) struct OrdersBody {
    /// 1 to 1000 orders. One invalid order rejects the whole batch.
    #[schemars(required, length(min = 1, max = 1000))]
    #[garde(required)]
    orders: Option<Vec<OrderInput>>,
}

/// A batch of carts.
#[derive(Deserialize, Validate, JsonSchema)]
pub(crate) struct CartsBody {
    /// 1 to 1000 carts. One invalid cart rejects the whole batch.
    #[schemars(required, length(min = 1, max = 1000))]
    #[garde(required)]
    carts: Option<Vec<CartInput>>,
}

/// A batch of ad spend entries.
#[derive(Deserialize, Validate, JsonSchema)]
pub(crate) struct AdSpendBody {
    /// 1 to 1000 entries. One invalid entry rejects the whole batch.
    #[schemars(required, length(min = 1, max = 1000))]
    #[garde(required)]
    entries: Option<Vec<AdSpendInput>>,
}

/// A batch of metric events.
#[derive(Deserialize, Validate, JsonSchema)]
pub(crate) struct EventsBody {
    /// 1 to 1000 events. One invalid event rejects the whole batch.
    #[schemars(required, length(min = 1, max = 1000))]
    #[garde(required)]
    events: Option<Vec<EventInput>>,
}

/// `POST /api/orders`
pub(super) async fn orders(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<OrdersBody>,
) -> Result<HttpResponse, ApiError> {
    let orders = body.orders.unwrap_or_default();
    Ok(responses::ok(
        services.ingestion.orders(tenant.account_id, orders).await?,
    ))
}

/// `POST /api/carts`
pub(super) async fn carts(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<CartsBody>,
) -> Result<HttpResponse, ApiError> {
    let carts = body.carts.unwrap_or_default();
    Ok(responses::ok(services.ingestion.carts(tenant.account_id, carts).await?))
}

/// `POST /api/ad-spend`
pub(super) async fn ad_spend(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<AdSpendBody>,
) -> Result<HttpResponse, ApiError> {
    let entries = body.entries.unwrap_or_default();
    Ok(responses::ok(
        services.ingestion.ad_spend(tenant.account_id, entries).await?,
    ))
}

/// `POST /api/events`
pub(super) async fn events(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    Json(body): Json<EventsBody>,
) -> Result<HttpResponse, ApiError> {
    let events = body.events.unwrap_or_default();
    Ok(responses::ok(
        services.ingestion.events(tenant.account_id, events).await?,
    ))
}
