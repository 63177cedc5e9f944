//! `recado tail`: follows the run of a campaign.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use uuid::Uuid;

use crate::api::Api;
use crate::{Connection, Failure};

/// The counters of a campaign, in the order in which a message passes them.
const COUNTERS: [&str; 6] = ["total", "pending", "sent", "delivered", "read", "failed"];

#[derive(Args, Debug)]
pub struct Options {
    #[command(flatten)]
    connection: Connection,
    /// Id of the campaign.
    campaign: Uuid,
    /// Seconds between two reads.
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
}

pub(crate) async fn run(options: &Options) -> Result<(), Failure> {
    let api = Api::new(&options.connection)?;
    let id = options.campaign.to_string();
    let mut printed = String::new();
    loop {
        // The status is read first: when it says that the run is over, the counters are those of the whole run.
        let campaign = api.get(&["campaigns", &id], &[]).await?;
        let stats = api.get(&["campaigns", &id, "stats"], &[]).await?;
        let line = line(&campaign, &stats);
        if line != printed {
            println!("{line}");
            printed = line;
        }
        if let Some(result) = outcome(&campaign) {
            return result;
        }
        tokio::time::sleep(Duration::from_secs(options.interval)).await;
    }
}

/// `sending total 226 pending 100 ...`, with the reason of a pause and the time that a waiting run waits for.
fn line(campaign: &Value, stats: &Value) -> String {
    // A paused run has the status `sending`.
    let status = match campaign["paused_at"] {
        Value::Null => campaign["status"].as_str().unwrap_or_default(),
        _ => "paused",
    };
    let mut words = vec![status.to_owned()];
    for name in COUNTERS {
        words.push(format!("{name} {}", stats[name]));
    }
    for (word, value) in [
        ("reason", &campaign["pause_reason"]),
        ("held", &stats["held"]),
        ("until", &stats["waiting_until"]),
    ] {
        match value {
            Value::Null => {}
            Value::String(text) => words.push(format!("{word} {text}")),
            other => words.push(format!("{word} {other}")),
        }
    }
    words.join("  ")
}

/// None: the run is not over.
fn outcome(campaign: &Value) -> Option<Result<(), Failure>> {
    match campaign["status"].as_str().unwrap_or_default() {
        // The run of an account without numbers is simulated and ends as `sent`.
        "completed" | "sent" => Some(Ok(())),
        "partial" => Some(Err(Failure::Partial("some recipients were not reached".into()))),
        "cancelled" => Some(Err(Failure::Refused("the campaign was cancelled".into()))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
