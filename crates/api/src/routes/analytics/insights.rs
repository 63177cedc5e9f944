//! Routes of the dashboard and of reports on messages, campaigns and RFM segments.

use actix_web::HttpResponse;
use actix_web::web::Data;
use recado_domain::analytics::{
    CampaignsReport, Dashboard, HeatCell, Insights, MessagesReport, Period, Rfm, RfmError, RfmReport,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

pub(crate) use super::TAG;
use super::{PERIOD, period_parameters, report_period};
use crate::error::ApiError;
use crate::web::extractors::{Authenticated, TenantContext};
use crate::web::operation::{Operation, data, one_of};
use crate::web::query::Params;
use crate::web::responses;
use crate::web::route::{Endpoint, endpoint};
use crate::worker_handles::WorkerSignals;

/// `GET /api/analytics`
async fn dashboard(insights: Data<Insights>, Authenticated(tenant): TenantContext) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(insights.dashboard(&tenant).await?))
}

pub(crate) const DASHBOARD: Endpoint = endpoint!(dashboard, {
    Operation::new("Get the dashboard", "Returns the account's key totals.").responds(data::<Dashboard>("The totals."))
});

/// `GET /api/analytics/messages`
async fn messages(
    insights: Data<Insights>,
    Authenticated(tenant): TenantContext,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let report_period = report_period(params, Period::Week)?;
    Ok(responses::ok(insights.messages(&tenant, &report_period).await?))
}

pub(crate) const MESSAGES: Endpoint = endpoint!(messages, {
    let description = "Counts messages by status for each day of creation. Counts are cumulative: a read message also \
                counts as delivered and sent.";
    Operation::new("Report messages", description)
        .takes_all(period_parameters(Period::Week))
        .responds(data::<MessagesReport>("The report."))
});

/// `GET /api/analytics/campaigns`
async fn campaigns(
    insights: Data<Insights>,
    Authenticated(tenant): TenantContext,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let report_period = report_period(params, Period::Month)?;
    Ok(responses::ok(insights.campaigns(&tenant, &report_period).await?))
}

pub(crate) const CAMPAIGNS: Endpoint = endpoint!(campaigns, {
    let [_, zone] = period_parameters(Period::Month);
    let period = one_of(PERIOD.name, PERIOD.description, &["30d", "90d"]);
    Operation::new(
        "Report campaigns",
        "Returns the results of the most recently executed campaigns.",
    )
    .takes(period.default("30d").example("30d"))
    .takes(zone)
    .responds(data::<CampaignsReport>("The report."))
});

/// `GET /api/analytics/heatmap`
async fn heat_map(
    insights: Data<Insights>,
    Authenticated(tenant): TenantContext,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let report_period = report_period(params, Period::Week)?;
    Ok(responses::ok(insights.heat_map(&tenant, &report_period).await?))
}

pub(crate) const HEAT_MAP: Endpoint = endpoint!(heat_map, {
    let description = "Counts inbound messages by day of the week and hour, sorted by both. Hours without messages are \
                omitted. Deviation from the published interface: all messages are counted, without its bounds of \
                1,000 conversations and 10,000 messages.";
    Operation::new("Get the heat map of inbound messages", description)
        .takes_all(period_parameters(Period::Week))
        .responds(data::<Vec<HeatCell>>("The hours."))
});

/// `GET /api/analytics/rfm`
async fn rfm(rfm: Data<Rfm>, Authenticated(tenant): TenantContext) -> Result<HttpResponse, ApiError> {
    Ok(responses::ok(rfm.report(&tenant).await?))
}

pub(crate) const RFM: Endpoint = endpoint!(rfm, {
    let description = "Groups customers into RFM segments by recency, frequency and monetary value of their orders. \
                Requires at least 20 paid orders.";
    Operation::new("Report RFM segments", description).responds(data::<RfmReport>("The report."))
});

/// The result of a request to recalculate the RFM segments.
#[derive(Serialize, JsonSchema)]
struct RecalculationStarted {
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
async fn recalculate(
    signals: Data<WorkerSignals>,
    rfm: Data<Rfm>,
    Authenticated(tenant): TenantContext,
) -> Result<HttpResponse, ApiError> {
    match rfm.recalculate(&tenant).await {
        Ok(()) => {
            signals.wake_rfm();
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

pub(crate) const RECALCULATE: Endpoint = endpoint!(recalculate, {
    let description = "Recalculates the RFM segments in the background. An account has at most one calculation at a \
                time. Requires the role `owner` or `admin`: any other role gets 200 with `error`.";
    Operation::new("Recalculate RFM segments", description).responds(
        data::<RecalculationStarted>("The calculation has started, or `error` gives the reason why not.")
            .example(json!({ "message": "The recalculation has started" })),
    )
});
