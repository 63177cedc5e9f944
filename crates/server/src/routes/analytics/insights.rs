//! Routes of the dashboard and of reports on messages, campaigns and RFM segments.

use actix_web::HttpResponse;
use actix_web::web::Data;
use recado_domain::analytics::{Period, RfmError};
use schemars::JsonSchema;
use serde::Serialize;

use super::report_period;
use crate::error::ApiError;
use crate::web::extractors::{Authenticated, TenantContext};
use crate::web::query::Params;
use crate::web::responses;
use crate::wiring::Services;

/// `GET /api/analytics`
pub(crate) async fn dashboard(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.insights.dashboard(&tenant).await?))
}

/// `GET /api/analytics/messages`
pub(crate) async fn messages(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let report_period = report_period(params, Period::Week)?;
    Ok(responses::ok(
        services.insights.messages(&tenant, &report_period).await?,
    ))
}

/// `GET /api/analytics/campaigns`
pub(crate) async fn campaigns(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let report_period = report_period(params, Period::Month)?;
    Ok(responses::ok(
        services.insights.campaigns(&tenant, &report_period).await?,
    ))
}

/// `GET /api/analytics/heatmap`
pub(crate) async fn heat_map(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let report_period = report_period(params, Period::Week)?;
    Ok(responses::ok(
        services.insights.heat_map(&tenant, &report_period).await?,
    ))
}

/// `GET /api/analytics/rfm`
pub(crate) async fn rfm(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(services.rfm.report(&tenant).await?))
}

/// The result of a request to recalculate the RFM segments.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RecalculationStarted {
    /// The confirmation that the calculation has started; absent if it was refused.
    #[schemars(example = "The recalculation has started")]
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'static str>,
    /// The reason why it was refused; absent if the calculation has started.
    #[schemars(example = "Requires the role owner or admin")]
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// `POST /api/analytics/rfm/recalculate`: a caller without the required role gets 200 with `error`, as published.
pub(crate) async fn recalculate(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
) -> Result<HttpResponse, ApiError> {
    match services.rfm.recalculate(&tenant).await {
        Ok(()) => {
            services.shared.customers.notify_one();
            let message = Some("The recalculation has started");
            Ok(responses::ok(RecalculationStarted { message, error: None }))
        }
        Err(refused @ RfmError::NotPermitted) => {
            let error = Some(refused.to_string());
            Ok(responses::ok(RecalculationStarted { message: None, error }))
        }
        Err(RfmError::Store(error)) => Err(error.into()),
    }
}
