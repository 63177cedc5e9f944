//! OpenAPI documentation of reports on revenue, shops, automations and metrics.

pub(crate) mod exports;
pub(crate) mod insights;

use recado_domain::analytics::{
    Activity, AutomationsReport, EcommerceReport, MetricReport, MetricsReport, Period, RevenueReport, TopContacts,
};

use super::OpenApiTag;
use super::operation::{Operation, Parameter, data, id, string_enum, text};
use crate::routes::analytics::TOP_CONTACTS;
use crate::web::parameters::LIMIT;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Analytics",
    description: "Reports on messages, campaigns, revenue, shops, automations, metrics and customers.",
};

/// The parameters `period` and `tz`.
pub(super) fn period_parameters(default: Period) -> [Parameter; 2] {
    let zone = "IANA name of the time zone that defines calendar days.";
    [
        string_enum::<Period>("period", "Length of the report in days, ending today.")
            .default(default.as_str())
            .example(default.as_str()),
        text("tz", zone).default("UTC").example("America/Sao_Paulo"),
    ]
}

fn name() -> Parameter {
    text("name", "The metric's `metric_name`, percent-encoded.")
        .in_path()
        .example("page_view")
}

pub(crate) fn revenue() -> Operation {
    let description = "Returns revenue, costs and attribution of paid orders. An order is attributed to the campaign, \
                automation or link that it names. Otherwise it is attributed to the last campaign message that its \
                contact received within the 7 days before it.";
    Operation::new("Report revenue", description)
        .takes_all(period_parameters(Period::Month))
        .responds(data::<RevenueReport>("The report."))
}

pub(crate) fn ecommerce() -> Operation {
    Operation::new(
        "Report e-commerce",
        "Returns orders, products and carts of the account's shops.",
    )
    .takes_all(period_parameters(Period::Month))
    .responds(data::<EcommerceReport>("The report."))
}

pub(crate) fn automations() -> Operation {
    Operation::new(
        "Report automations",
        "Returns the executions of the account's automations.",
    )
    .takes_all(period_parameters(Period::Week))
    .responds(data::<AutomationsReport>("The report."))
}

pub(crate) fn metrics() -> Operation {
    let source = "Only metrics with an event from this source.";
    Operation::new("List metrics", "Returns every metric of the account with its totals.")
        .takes(text("source", source).example("site"))
        .responds(data::<MetricsReport>("The metrics."))
}

pub(crate) fn metric() -> Operation {
    Operation::new("Report a metric", "Returns one metric over a period.")
        .takes(name())
        .takes_all(period_parameters(Period::Month))
        .responds(data::<MetricReport>("The report."))
}

pub(crate) fn top_contacts() -> Operation {
    let description = "Returns the contacts with the largest total value of a metric, largest first.";
    Operation::new("List a metric's top contacts", description)
        .takes(name())
        .takes(&TOP_CONTACTS)
        .responds(data::<TopContacts>("The contacts."))
}

pub(crate) fn activity() -> Operation {
    let cursor = "The `nextCursor` of the previous page. Omit it for the latest events.";
    Operation::new(
        "List a metric's events",
        "Returns the events of a metric, latest first.",
    )
    .takes(name())
    .takes(&LIMIT)
    .takes(id("cursor", cursor))
    .responds(data::<Activity>("A page of events and its `nextCursor`."))
}
