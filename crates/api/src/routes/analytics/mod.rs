//! Routes of reports on revenue, shops, automations and metrics.

pub(crate) mod costs;
pub(crate) mod exports;
pub(crate) mod insights;

use actix_web::HttpResponse;
use actix_web::web::Data;
use recado_domain::analytics::{
    Activity, Analytics, AutomationsReport, EcommerceReport, MetricReport, MetricsReport, Period, ReportPeriod,
    RevenueReport, TopContacts, Zone,
};

use crate::error::ApiError;
use crate::web::extractors::{Authenticated, PathName, TenantContext};
use crate::web::operation::{OpenApiTag, Operation, Parameter, data, text};
use crate::web::parameters::{CursorParam, EnumParam, IntegerParam, LIMIT, TextParam};
use crate::web::query::Params;
use crate::web::responses;
use crate::web::route::{Endpoint, endpoint};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Analytics",
    description: "Reports on messages, campaigns, revenue, shops, automations, metrics and customers.",
};

const TOP_CONTACTS_LIMIT: IntegerParam = IntegerParam::limit(10, 50);

pub(super) const PERIOD: EnumParam<Period> = EnumParam {
    name: "period",
    description: "Length of the report in days, ending today.",
    accepted: "7d, 30d or 90d",
    example: None,
};

const ZONE: TextParam = TextParam::new(
    "tz",
    "IANA name of the time zone that defines calendar days.",
    "America/Sao_Paulo",
);

const SOURCE: TextParam = TextParam::new("source", "Only metrics with an event from this source.", "site");

const CURSOR: CursorParam = CursorParam {
    description: "The `nextCursor` of the previous page. Omit it for the latest events.",
    example: None,
};

/// Parses `period` and `tz`.
pub(super) fn report_period(mut params: Params, default: Period) -> Result<ReportPeriod, ApiError> {
    let period = params.one_of(&PERIOD);
    let zone = params.parsed(ZONE.name, "the name of a time zone, such as America/Sao_Paulo");
    params.check()?;
    Ok(ReportPeriod {
        period: period.unwrap_or(default),
        zone: zone.unwrap_or(Zone::UTC),
    })
}

/// `GET /api/analytics/revenue`
async fn revenue(
    analytics: Data<Analytics>,
    Authenticated(tenant): TenantContext,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let report_period = report_period(params, Period::Month)?;
    Ok(responses::ok(analytics.revenue(&tenant, &report_period).await?))
}

pub(super) const REVENUE: Endpoint = endpoint!(revenue, {
    let description = "Returns revenue, costs and attribution of paid orders. An order is attributed to the campaign, \
                automation or link that it names. Otherwise it is attributed to the last campaign message that its \
                contact received within the 7 days before it.";
    Operation::new("Report revenue", description)
        .takes_all(period_parameters(Period::Month))
        .responds(data::<RevenueReport>("The report."))
});

/// `GET /api/analytics/ecommerce`
async fn ecommerce(
    analytics: Data<Analytics>,
    Authenticated(tenant): TenantContext,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let report_period = report_period(params, Period::Month)?;
    Ok(responses::ok(analytics.ecommerce(&tenant, &report_period).await?))
}

pub(super) const ECOMMERCE: Endpoint = endpoint!(ecommerce, {
    Operation::new(
        "Report e-commerce",
        "Returns orders, products and carts of the account's shops.",
    )
    .takes_all(period_parameters(Period::Month))
    .responds(data::<EcommerceReport>("The report."))
});

/// `GET /api/analytics/automations`
async fn automations(
    analytics: Data<Analytics>,
    Authenticated(tenant): TenantContext,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let report_period = report_period(params, Period::Week)?;
    Ok(responses::ok(analytics.automations(&tenant, &report_period).await?))
}

pub(super) const AUTOMATIONS: Endpoint = endpoint!(automations, {
    Operation::new(
        "Report automations",
        "Returns the executions of the account's automations.",
    )
    .takes_all(period_parameters(Period::Week))
    .responds(data::<AutomationsReport>("The report."))
});

/// `GET /api/analytics/metrics`
async fn metrics(
    analytics: Data<Analytics>,
    Authenticated(tenant): TenantContext,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let source = params.text(&SOURCE);
    params.check()?;
    Ok(responses::ok(analytics.metrics(&tenant, source.as_deref()).await?))
}

pub(super) const METRICS: Endpoint = endpoint!(metrics, {
    Operation::new("List metrics", "Returns every metric of the account with its totals.")
        .takes(&SOURCE)
        .responds(data::<MetricsReport>("The metrics."))
});

/// `GET /api/analytics/metrics/<name>`
async fn metric(
    analytics: Data<Analytics>,
    Authenticated(tenant): TenantContext,
    PathName(name): PathName,
    params: Params,
) -> Result<HttpResponse, ApiError> {
    let report_period = report_period(params, Period::Month)?;
    Ok(responses::ok(analytics.metric(&tenant, &name, &report_period).await?))
}

pub(super) const METRIC: Endpoint = endpoint!(metric, {
    Operation::new("Report a metric", "Returns one metric over a period.")
        .takes(name())
        .takes_all(period_parameters(Period::Month))
        .responds(data::<MetricReport>("The report."))
});

/// `GET /api/analytics/metrics/<name>/top-contacts`
async fn top_contacts(
    analytics: Data<Analytics>,
    Authenticated(tenant): TenantContext,
    PathName(name): PathName,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let limit = params.integer(&TOP_CONTACTS_LIMIT);
    params.check()?;
    Ok(responses::ok(analytics.top_contacts(&tenant, &name, limit).await?))
}

pub(super) const TOP_CONTACTS: Endpoint = endpoint!(top_contacts, {
    let description = "Returns the contacts with the largest total value of a metric, largest first.";
    Operation::new("List a metric's top contacts", description)
        .takes(name())
        .takes(&TOP_CONTACTS_LIMIT)
        .responds(data::<TopContacts>("The contacts."))
});

/// `GET /api/analytics/metrics/<name>/activity`
async fn activity(
    analytics: Data<Analytics>,
    Authenticated(tenant): TenantContext,
    PathName(name): PathName,
    mut params: Params,
) -> Result<HttpResponse, ApiError> {
    let (limit, cursor) = (params.integer(&LIMIT), params.id_cursor());
    params.check()?;
    let activity = analytics.activity(&tenant, &name, cursor, limit).await?;
    Ok(responses::ok(activity))
}

pub(super) const ACTIVITY: Endpoint = endpoint!(activity, {
    Operation::new(
        "List a metric's events",
        "Returns the events of a metric, latest first.",
    )
    .takes(name())
    .takes(&LIMIT)
    .takes(&CURSOR)
    .responds(data::<Activity>("A page of events and its `nextCursor`."))
});

/// The parameters `period` and `tz`.
pub(super) fn period_parameters(default: Period) -> [Parameter; 2] {
    [
        Parameter::from(&PERIOD)
            .default(default.as_str())
            .example(default.as_str()),
        Parameter::from(&ZONE).default("UTC"),
    ]
}

fn name() -> Parameter {
    text("name", "The metric's `metric_name`, percent-encoded.")
        .in_path()
        .example("page_view")
}
