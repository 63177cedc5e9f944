//! How an account stands, what became of its messages, and how good its customers are.

use actix_web::HttpResponse;
use actix_web::web::Data;
use recado_domain::analytics::{Period, RfmError};
use serde_json::json;

use super::analytics::span;
use crate::error::ApiError;
use crate::web::query::Params;
use crate::web::reply;
use crate::web::shape::{Caller, Proved};
use crate::wiring::Services;

/// `GET /api/analytics`
pub(super) async fn dashboard(services: Data<Services>, Proved(tenant): Caller) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.insights.dashboard(&tenant).await?))
}

/// `GET /api/analytics/messages`
pub(super) async fn messages(
    services: Data<Services>,
    Proved(tenant): Caller,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let span = span(params, Period::Week)?;
    Ok(reply::ok(services.insights.messages(&tenant, &span).await?))
}

/// `GET /api/analytics/campaigns`
pub(super) async fn campaigns(
    services: Data<Services>,
    Proved(tenant): Caller,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let span = span(params, Period::Month)?;
    Ok(reply::ok(services.insights.campaigns(&tenant, &span).await?))
}

/// `GET /api/analytics/heatmap`
pub(super) async fn heat_map(
    services: Data<Services>,
    Proved(tenant): Caller,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let span = span(params, Period::Week)?;
    Ok(reply::ok(services.insights.heat_map(&tenant, &span).await?))
}

/// `GET /api/analytics/rfm`
pub(super) async fn rfm(services: Data<Services>, Proved(tenant): Caller) -> Result<HttpResponse, ApiError> {
    Ok(reply::ok(services.rfm.report(&tenant).await?))
}

/// `POST /api/analytics/rfm/recalculate`: a wrong role is told so in a 200, as published.
pub(super) async fn recalculate(services: Data<Services>, Proved(tenant): Caller) -> Result<HttpResponse, ApiError> {
    match services.rfm.recalculate(&tenant).await {
        Ok(()) => {
            services.shared.customers.notify_one();
            Ok(reply::ok(json!({ "message": "The recalculation has started" })))
        }
        Err(refused @ RfmError::NotPermitted) => Ok(reply::ok(json!({ "error": refused.to_string() }))),
        Err(RfmError::Store(error)) => Err(error.into()),
    }
}
