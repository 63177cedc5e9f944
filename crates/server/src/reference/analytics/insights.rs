//! OpenAPI documentation of reports on messages, campaigns and customers.

use recado_domain::analytics::{CampaignsReport, Dashboard, HeatCell, MessagesReport, Period, RfmReport};
use serde_json::json;

pub(crate) use super::TAG;
use super::period_parameters;
use crate::reference::operation::{Operation, data, one_of};
use crate::routes::analytics::insights::RecalculationStarted;

pub(crate) fn dashboard() -> Operation {
    Operation::new("Get the dashboard", "Returns the account's key totals.").responds(data::<Dashboard>("The totals."))
}

pub(crate) fn messages() -> Operation {
    let description = "Counts messages by status for each day of creation. Counts are cumulative: a read message also \
                counts as delivered and sent.";
    Operation::new("Report messages", description)
        .takes_all(period_parameters(Period::Week))
        .responds(data::<MessagesReport>("The report."))
}

pub(crate) fn campaigns() -> Operation {
    let [_, zone] = period_parameters(Period::Month);
    let period = one_of("period", "Length of the report in days, ending today.", &["30d", "90d"]);
    Operation::new(
        "Report campaigns",
        "Returns the results of the most recently executed campaigns.",
    )
    .takes(period.default("30d").example("30d"))
    .takes(zone)
    .responds(data::<CampaignsReport>("The report."))
}

pub(crate) fn heat_map() -> Operation {
    let description = "Counts inbound messages by day of the week and hour, sorted by both. Hours without messages are \
                omitted. Deviation from the published interface: all messages are counted, without its bounds of \
                1,000 conversations and 10,000 messages.";
    Operation::new("Get the heat map of inbound messages", description)
        .takes_all(period_parameters(Period::Week))
        .responds(data::<Vec<HeatCell>>("The hours."))
}

pub(crate) fn rfm() -> Operation {
    let description = "Groups customers into RFM segments by recency, frequency and monetary value of their orders. \
                Requires at least 20 paid orders.";
    Operation::new("Report RFM segments", description).responds(data::<RfmReport>("The report."))
}

pub(crate) fn recalculate() -> Operation {
    let description = "Recalculates the RFM segments in the background. An account has at most one calculation at a \
                time. Requires the role `owner` or `admin`: any other role gets 200 with `error`.";
    Operation::new("Recalculate RFM segments", description).responds(
        data::<RecalculationStarted>("The calculation has started, or `error` gives the reason why not.")
            .example(json!({ "message": "The recalculation has started" })),
    )
}
