//! `recado tail`: follows the run of a campaign.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use uuid::Uuid;

use crate::api::{Api, not_recado};
use crate::{CommandFailure, Connection, field, print_line, printable};

/// The counters of a campaign, in the order in which a message passes them.
const COUNTERS: [&str; 6] = ["total", "pending", "sent", "delivered", "read", "failed"];

#[derive(Args, Debug)]
pub struct TailOptions {
    #[command(flatten)]
    connection: Connection,
    /// Id of the campaign.
    campaign: Uuid,
    /// Seconds between two reads.
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
}

pub(crate) async fn run(options: &TailOptions) -> Result<(), CommandFailure> {
    let api = Api::new(&options.connection)?;
    let id = options.campaign.to_string();
    let (mut printed, mut was_sending) = (String::new(), false);
    loop {
        // The status is read first: when it says that the run is over, the counters include every send of the run.
        let campaign = api.get(&["campaigns", &id], &[]).await?;
        let stats = api.get(&["campaigns", &id, "stats"], &[]).await?;
        let line = line(&campaign, &stats);
        if line != printed {
            print_line(&printable(&line))?;
            printed = line;
        }
        if let Some(result) = outcome(&campaign, was_sending) {
            return result;
        }
        was_sending |= *field(&campaign, "status") == "sending";
        tokio::time::sleep(Duration::from_secs(options.interval)).await;
    }
}

/// `sending total 226 pending 100 ...`, with the reason of a pause and the time that a waiting run waits for.
fn line(campaign: &Value, stats: &Value) -> String {
    // A paused run has the status `sending`.
    let status = match field(campaign, "paused_at") {
        Value::Null => field(campaign, "status").as_str().unwrap_or_default(),
        _ => "paused",
    };
    let mut words = vec![status.to_owned()];
    for name in COUNTERS {
        words.push(format!("{name} {}", field(stats, name)));
    }
    for (word, value) in [
        ("reason", field(campaign, "pause_reason")),
        ("held", field(stats, "held")),
        ("until", field(stats, "waiting_until")),
    ] {
        match value {
            Value::Null => {}
            Value::String(text) => words.push(format!("{word} {text}")),
            other => words.push(format!("{word} {other}")),
        }
    }
    words.join("  ")
}

/// None: the run is not over. `was_sending`: an earlier read found the run in progress.
fn outcome(campaign: &Value, was_sending: bool) -> Option<Result<(), CommandFailure>> {
    match field(campaign, "status").as_str().unwrap_or_default() {
        // The run of an account without numbers is simulated and ends as `sent`.
        "completed" | "sent" => Some(Ok(())),
        "partial" => Some(Err(CommandFailure::Partial("some recipients were not reached".into()))),
        "cancelled" => Some(Err(CommandFailure::Refused("the campaign was cancelled".into()))),
        "draft" | "scheduled" if was_sending => Some(Err(CommandFailure::Refused(
            "the run did not start, and the campaign is a draft again; GET /api/notifications has the reason".into(),
        ))),
        "draft" | "scheduled" | "sending" => None,
        _ => Some(Err(not_recado())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn run_is_over_when_its_campaign_left_sending() {
        let of = |status: &str, was_sending| outcome(&json!({ "status": status }), was_sending);
        for (status, was_sending) in [
            ("draft", false),
            ("scheduled", false),
            ("sending", false),
            ("sending", true),
        ] {
            assert!(of(status, was_sending).is_none(), "{status}");
        }
        assert!(matches!(of("completed", true), Some(Ok(()))) && matches!(of("sent", false), Some(Ok(()))));
        assert!(matches!(of("partial", true), Some(Err(CommandFailure::Partial(_)))));
        for (status, was_sending) in [("draft", true), ("cancelled", true), ("dancing", false)] {
            assert!(
                matches!(of(status, was_sending), Some(Err(CommandFailure::Refused(_)))),
                "{status}"
            );
        }
    }

    #[test]
    fn line_has_status_counters_and_the_reason_of_a_pause() {
        let mut stats = json!({ "total": 5, "pending": 2, "sent": 1, "delivered": 1, "read": 0, "failed": 1 });
        let campaign = json!({ "status": "sending", "paused_at": "2026-12-24T18:00:00Z", "pause_reason": "budget" });
        let counters = "total 5  pending 2  sent 1  delivered 1  read 0  failed 1";
        assert_eq!(line(&campaign, &stats), format!("paused  {counters}  reason budget"));
        stats["held"] = json!(2);
        stats["waiting_until"] = json!("2026-12-24T18:00:00Z");
        let campaign = json!({ "status": "sending", "paused_at": null, "pause_reason": null });
        assert_eq!(
            line(&campaign, &stats),
            format!("sending  {counters}  held 2  until 2026-12-24T18:00:00Z")
        );
    }
}
