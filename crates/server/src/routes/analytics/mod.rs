//! Routes of reports on revenue, shops, automations and metrics.

pub(crate) mod exports;
pub(crate) mod insights;

use actix_web::HttpResponse;
use actix_web::web::Data;
use recado_domain::analytics::{Period, ReportPeriod, Zone};

use crate::error::ApiError;
use crate::web::extractors::{Authenticated, PathName, TenantContext};
use crate::web::parameters::{IntegerParam, LIMIT};
use crate::web::query::Params;
use crate::web::responses;
use crate::wiring::Services;

pub(crate) const TOP_CONTACTS: IntegerParam = IntegerParam::limit(10, 50);

/// Parses `period` and `tz`.
pub(super) fn report_period(mut params: Params, default: Period) -> Result<ReportPeriod, ApiError> {
    let period = params.parsed("period", "7d, 30d or 90d");
    let zone = params.parsed("tz", "the name of a time zone, such as America/Sao_Paulo");
    params.check()?;
    Ok(ReportPeriod {
        period: period.unwrap_or(default),
        zone: zone.unwrap_or(Zone::UTC),
    })
}

/// `GET /api/analytics/revenue`
pub(super) async fn revenue(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let report_period = report_period(params, Period::Month)?;
    Ok(responses::ok(
        services.analytics.revenue(&tenant, &report_period).await?,
    ))
}

/// `GET /api/analytics/ecommerce`
pub(super) async fn ecommerce(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let report_period = report_period(params, Period::Month)?;
    Ok(responses::ok(
        services.analytics.ecommerce(&tenant, &report_period).await?,
    ))
}

/// `GET /api/analytics/automations`
pub(super) async fn automations(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let report_period = report_period(params, Period::Week)?;
    Ok(responses::ok(
        services.analytics.automations(&tenant, &report_period).await?,
    ))
}

/// `GET /api/analytics/metrics`
pub(super) async fn metrics(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let source = params.text("source");
    params.check()?;
    Ok(responses::ok(
        services.analytics.metrics(&tenant, source.as_deref()).await?,
    ))
}

/// `GET /api/analytics/metrics/<name>`
pub(super) async fn metric(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    PathName(name): PathName,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let report_period = report_period(params, Period::Month)?;
    Ok(responses::ok(
        services.analytics.metric(&tenant, &name, &report_period).await?,
    ))
}

/// `GET /api/analytics/metrics/<name>/top-contacts`
pub(super) async fn top_contacts(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    PathName(name): PathName,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let limit = params.integer(&TOP_CONTACTS);
    params.check()?;
    Ok(responses::ok(
        services.analytics.top_contacts(&tenant, &name, limit).await?,
    ))
}

/// `GET /api/analytics/metrics/<name>/activity`
pub(super) async fn activity(
    services: Data<Services>,
    Authenticated(tenant): TenantContext,
    PathName(name): PathName,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let (limit, cursor) = (params.integer(&LIMIT), params.id("cursor"));
    params.check()?;
    let activity = services.analytics.activity(&tenant, &name, cursor, limit).await?;
    Ok(responses::ok(activity))
}
