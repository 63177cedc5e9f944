//! What shops and other systems tell: orders, carts, ad spend, events.

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

/// Orders.
#[derive(Deserialize, Validate, JsonSchema)]
pub(crate) struct OrdersBody {
    /// 1 to 1000 orders; one that is wrong refuses all.
    #[schemars(required, length(min = 1, max = 1000))]
    #[garde(required)]
    orders: Option<Vec<OrderInput>>,
}

/// Carts.
#[derive(Deserialize, Validate, JsonSchema)]
pub(crate) struct CartsBody {
    /// 1 to 1000 carts; one that is wrong refuses all.
    #[schemars(required, length(min = 1, max = 1000))]
    #[garde(required)]
    carts: Option<Vec<CartInput>>,
}

/// What was spent on ads.
#[derive(Deserialize, Validate, JsonSchema)]
pub(crate) struct AdSpendBody {
    /// 1 to 1000 entries; one that is wrong refuses all.
    #[schemars(required, length(min = 1, max = 1000))]
    #[garde(required)]
    entries: Option<Vec<AdSpendInput>>,
}

/// Events of metrics.
#[derive(Deserialize, Validate, JsonSchema)]
pub(crate) struct EventsBody {
    /// 1 to 1000 events; one that is wrong refuses all.
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
