//! What the reference says of reports on messages, campaigns and customers.

use recado_domain::analytics::{CampaignsReport, Dashboard, HeatCell, MessagesReport, Period, RfmReport};
use serde_json::json;

pub(crate) use super::TAG;
use super::span;
use crate::reference::operation::{Operation, data, one_of};
use crate::routes::analytics::insights::RecalculationStarted;

pub(crate) fn dashboard() -> Operation {
    Operation::new("Get the dashboard", "How the account stands, in a few numbers.")
        .answers(data::<Dashboard>("The numbers."))
}

pub(crate) fn messages() -> Operation {
    let description = "What became of messages, by the day on which they were written. Numbers are cumulative: a \
                message that was read was also delivered and sent.";
    Operation::new("Report messages", description)
        .takes_all(span(Period::Week))
        .answers(data::<MessagesReport>("The report."))
}

pub(crate) fn campaigns() -> Operation {
    let [_, zone] = span(Period::Month);
    let period = one_of("period", "How many days: today, and those before it.", &["30d", "90d"]);
    Operation::new(
        "Report campaigns",
        "The latest campaigns that were executed, and how they did.",
    )
    .takes(period.default("30d").example("30d"))
    .takes(zone)
    .answers(data::<CampaignsReport>("The report."))
}

pub(crate) fn heat_map() -> Operation {
    let description = "When contacts write: messages by day of the week and hour, ordered by both. Hours without any \
                are left out. Deviation from the published interface: it names a bound of 1000 conversations and \
                10,000 messages, and this counts all of them.";
    Operation::new("Get the heat map", description)
        .takes_all(span(Period::Week))
        .answers(data::<Vec<HeatCell>>("The hours."))
}

pub(crate) fn rfm() -> Operation {
    let description = "What kinds of customers there are, by how recently, how often and for how much they bought. It \
                takes 20 paid orders.";
    Operation::new("Report customers", description).answers(data::<RfmReport>("The report."))
}

pub(crate) fn recalculate() -> Operation {
    let description = "Has the kinds of customers calculated again, in the background; one calculation of an account \
                runs at a time. It takes the role `owner` or `admin`: any other role is answered with 200 and `error`.";
    Operation::new("Recalculate customers", description).answers(
        data::<RecalculationStarted>("It has started, or was refused.")
            .example(json!({ "message": "The recalculation has started" })),
    )
}
