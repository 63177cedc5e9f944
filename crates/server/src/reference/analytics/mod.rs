//! What the reference says of reports on revenue, shops, automations and metrics; beside it that of `insights` and of
//! `exports`.

pub(crate) mod exports;
pub(crate) mod insights;

use recado_domain::analytics::{
    Activity, AutomationsReport, EcommerceReport, MetricReport, MetricsReport, Period, RevenueReport, TopContacts,
};

use super::OpenApiTag;
use super::operation::{Operation, Parameter, data, id, limit_of, string_enum, text};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Analytics",
    description: "How an account does: messages, campaigns, revenue, shops, automations, metrics and customers.",
};

/// `period` and `tz`.
pub(super) fn span(default: Period) -> [Parameter; 2] {
    let zone = "The time zone whose days are meant, by its IANA name.";
    [
        string_enum::<Period>("period", "How many days: today, and those before it.")
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
    let description = "What paid orders brought in, what they cost, and what they are owed to. An order is owed to the \
                campaign, automation or link that it names, else to the last campaign message that its contact \
                received within 7 days before it.";
    Operation::new("Report revenue", description)
        .takes_all(span(Period::Month))
        .answers(data::<RevenueReport>("The report."))
}

pub(crate) fn ecommerce() -> Operation {
    Operation::new("Report shops", "What shops sold, and what became of carts.")
        .takes_all(span(Period::Month))
        .answers(data::<EcommerceReport>("The report."))
}

pub(crate) fn automations() -> Operation {
    Operation::new("Report automations", "What automations did.")
        .takes_all(span(Period::Week))
        .answers(data::<AutomationsReport>("The report."))
}

pub(crate) fn metrics() -> Operation {
    let source = "Only metrics of which this system told an event.";
    Operation::new("List metrics", "Every metric of the account with its totals.")
        .takes(text("source", source).example("site"))
        .answers(data::<MetricsReport>("The metrics."))
}

pub(crate) fn metric() -> Operation {
    Operation::new("Report a metric", "One metric over a period.")
        .takes(name())
        .takes_all(span(Period::Month))
        .answers(data::<MetricReport>("The report."))
}

pub(crate) fn top_contacts() -> Operation {
    let description = "The contacts whose events of a metric have the largest value.";
    Operation::new("List a metric's top contacts", description)
        .takes(name())
        .takes(limit_of((10, 50)))
        .answers(data::<TopContacts>("The contacts."))
}

pub(crate) fn activity() -> Operation {
    let cursor = "The `nextCursor` of the answer before; absent for the latest events.";
    Operation::new("List a metric's events", "The events of a metric, the latest first.")
        .takes(name())
        .takes(limit_of((20, 100)))
        .takes(id("cursor", cursor))
        .answers(data::<Activity>("Events, and where the earlier ones begin."))
}
