//! Bench `send-rate`: whether one server, and two servers together, respect the send rate of a phone number. By the
//! ledger of the simulator, no second may have more messages than the rate allows, and the mean must come near the
//! rate.

use anyhow::{Result, bail};
use recado_testkit::scratch::SERVER_LOG;
use serde_json::json;

use super::Options;
use super::data::accounts;
use super::fixture::Fixture;
use super::results::BenchResult;
use super::sending::{Sender, WhatsappSimulator, create_contacts};

const NUMBER: &str = "106540352242924";

/// Duration of a campaign at its send rate. Two concurrent ones must end before their requests time out.
const SECONDS: u32 = 4;

pub(super) fn run(fixture: &Fixture, _: Options) -> Result<Vec<BenchResult>> {
    // Two accounts share the number: within one account, a contact gets no second message for a while.
    let names: Vec<String> = accounts().into_iter().skip(5).take(2).collect();
    let simulator = WhatsappSimulator::start(fixture)?;
    let servers = [
        simulator.serve(fixture, SERVER_LOG)?,
        simulator.serve(fixture, "second.log")?,
    ];
    let senders: Vec<Sender> = servers
        .iter()
        .zip(&names)
        .map(|(server, account)| Sender::new(fixture, server, account))
        .collect::<Result<_>>()?;
    let mut results = Vec::new();
    for rate in [80, 1000] {
        let mut numbers = Vec::new();
        for sender in &senders {
            create_contacts(fixture, &sender.account, rate * SECONDS)?;
            numbers.push(sender.connect_number(NUMBER, Some(rate))?);
        }
        for servers in [1, 2] {
            let senders = senders.get(..servers).unwrap_or_default();
            simulator.reset()?;
            run_campaigns(senders)?;
            let mut times: Vec<u64> = simulator.sends()?.into_iter().map(|(_, time)| time).collect();
            times.sort_unstable();
            let (busiest, mean) = (busiest_second(&times), mean_rate(&times));
            let name = |metric: &str| format!("send-rate: {metric} / limit at {rate}/s with {servers} server(s)");
            results.push(BenchResult::less(name("busiest second"), busiest / f64::from(rate), "", 2).target(1.0));
            results.push(BenchResult::more(name("mean"), mean / f64::from(rate), "", 3).target(0.99));
        }
        for (sender, number) in senders.iter().zip(&numbers) {
            sender.disconnect_number(number)?;
        }
    }
    Ok(results)
}

/// Runs a campaign on each server concurrently, all from the same number.
fn run_campaigns(senders: &[Sender]) -> Result<()> {
    std::thread::scope(|scope| {
        let runs: Vec<_> = senders
            .iter()
            .map(|sender| {
                scope.spawn(|| {
                    let id = sender.campaign()?;
                    // This route runs the campaign in the server that receives the request.
                    let path = format!("/api/campaigns/{id}/execute");
                    sender.post(200, &path, &json!({})).map(drop)
                })
            })
            .collect();
        runs.into_iter().try_for_each(|run| match run.join() {
            Ok(done) => done,
            Err(_) => bail!("a sender panicked"),
        })
    })
}

/// The maximum number of messages within any 1,000 ms (sliding window). `times` must be sorted.
fn busiest_second(times: &[u64]) -> f64 {
    let mut most = 0;
    let mut first = 0;
    for (last, time) in times.iter().enumerate() {
        while times.get(first).is_some_and(|from| from + 1000 <= *time) {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    f64::from(u32::try_from(most).unwrap_or(u32::MAX))
}

/// Messages per second from the first to the last. `times` must be sorted.
fn mean_rate(times: &[u64]) -> f64 {
    match (times.first(), times.last()) {
        (Some(first), Some(last)) if last > first => {
            let gaps = u32::try_from(times.len() - 1).unwrap_or(u32::MAX);
            let elapsed = u32::try_from(last - first).unwrap_or(u32::MAX);
            f64::from(gaps) * 1000.0 / f64::from(elapsed)
        }
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busiest_second_is_a_sliding_window() {
        assert_eq!(busiest_second(&[0, 999, 1000, 1500, 1999, 5000]), 3.0);
        assert_eq!(busiest_second(&[]), 0.0);
        assert_eq!(mean_rate(&[0, 500, 1000]), 2.0);
        assert_eq!(mean_rate(&[7]), 0.0);
    }
}
