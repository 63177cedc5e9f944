//! Throughput and refusals when far more clients connect than saturate the server, and tail latency at 70 % load.

use anyhow::Result;

use super::Options;
use super::fixture::{self, Fixture, Launch, port};
use super::load_clients::{LoadClients, Responses};
use super::read::start_bare;
use super::results::{BenchResult, median_and_spread};

/// Numbers of clients that are tried to find saturation.
const CLIENTS: [u32; 4] = [8, 16, 32, 64];

/// Share of the highest rate from which on the server counts as saturated.
const SATURATED: f64 = 0.95;

/// Factor by which the clients of the overload exceed those that saturate the server.
const OVERLOAD: u32 = 8;

/// Load of the latency measurement as a share of the highest rate.
const STEADY: f64 = 0.70;

/// As many clients as the server has connections to the database.
const FEW: u32 = 8;

/// Maximum latency of a refusal in milliseconds.
const REFUSED_WITHIN: f64 = 250.0;

pub(super) fn run(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    let mut results = overload(fixture, options)?;
    results.extend(steady(fixture, options)?);
    Ok(results)
}

fn overload(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    let server = fixture.serve()?;
    let load_clients = LoadClients::new(port(&server.base)?, &fixture.requests()?);
    load_clients.call(32, None, 1)?;
    let mut rates = Vec::new();
    for clients in CLIENTS {
        let rate = load_clients.call(clients, None, options.seconds)?.rate();
        println!("{clients} clients: {rate:.0}/s");
        rates.push((clients, rate));
    }
    let peak_rate = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let enough = rates.iter().find(|(_, rate)| *rate >= SATURATED * peak_rate);
    let saturating = enough.map_or(32, |(clients, _)| *clients);
    let (mut shares, mut overloads) = (Vec::new(), Vec::new());
    for number in 1..=options.pairs {
        let peak = load_clients.call(saturating, None, options.seconds)?;
        let over = load_clients.call(saturating * OVERLOAD, None, options.seconds)?;
        println!(
            "{number}/{}: {saturating} clients {:.0}/s; {} clients {:.0}/s, {} refused, {} failed",
            options.pairs,
            peak.rate(),
            saturating * OVERLOAD,
            over.rate(),
            over.refused().count(),
            over.failed
        );
        shares.push(over.rate() / peak.rate());
        overloads.push(over);
    }
    Ok(overload_results(&shares, &overloads))
}

fn overload_results(shares: &[f64], overloads: &[Responses]) -> Vec<BenchResult> {
    let (share, spread) = median_and_spread(shares);
    // 0 if no request was refused.
    let refusal_p99 = |responses: &Responses| match responses.refused().count() {
        0 => 0.0,
        _ => responses.refused().at(99),
    };
    let slowest = overloads.iter().map(refusal_p99).fold(0.0, f64::max);
    let served = overloads.iter().map(|responses| responses.served().at(99));
    let failed: u32 = overloads.iter().map(|responses| responses.failed).sum();
    vec![
        BenchResult::more(
            "overload: throughput at 8 times saturation / at saturation",
            share,
            "",
            2,
        )
        .spread(spread)
        .floor(0.80)
        .target(0.95),
        BenchResult::less("overload: p99 of refusals at 8 times saturation", slowest, " ms", 0)
            .floor(REFUSED_WITHIN)
            .target(REFUSED_WITHIN),
        BenchResult::less(
            "overload: other responses at 8 times saturation",
            f64::from(failed),
            "",
            0,
        )
        .floor(0.0)
        .target(0.0),
        BenchResult::less(
            "overload: p99 of served requests at 8 times saturation",
            served.fold(0.0, f64::max),
            " ms",
            0,
        ),
    ]
}

fn steady(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    fixture::build_bare()?;
    let server = fixture.launch(&Launch {
        command_line: &["serve"],
        more: vec![("DATABASE_POOL_SIZE", "8".to_owned())],
        ..fixture.routes()
    })?;
    let (_bare, bare_url) = start_bare(fixture, &fixture.read(&server, 1)?)?;
    let requests = fixture.requests()?;
    let (load_clients, bare) = (
        LoadClients::new(port(&server.base)?, &requests),
        LoadClients::new(port(&bare_url)?, &requests),
    );
    load_clients.call(32, None, 1)?;
    let (mut from_send, mut scheduled, mut machine, mut few) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for number in 1..=options.pairs {
        let peak_rate = load_clients.call(32, None, options.seconds)?.rate();
        let responses = load_clients.call(32, Some(STEADY * peak_rate), options.seconds)?;
        let alone = bare.call(32, Some(STEADY * peak_rate), options.seconds)?;
        let [served, since_schedule, alone] = [responses.served(), responses.since_schedule(), alone.served()];
        println!(
            "{number}/{}: highest rate {peak_rate:.0}/s; at 70 % of it p50 {:.2} ms, p99 {:.2} ms \
             (from the scheduled start {:.2} and {:.2} ms); bare handler {:.2} and {:.2} ms",
            options.pairs,
            served.at(50),
            served.at(99),
            since_schedule.at(50),
            since_schedule.at(99),
            alone.at(50),
            alone.at(99)
        );
        for (ratios, times) in [
            (&mut from_send, &served),
            (&mut scheduled, &since_schedule),
            (&mut machine, &alone),
        ] {
            ratios.push(times.at(99) / times.at(50));
        }
        let peak_rate = load_clients.call(FEW, None, options.seconds)?.rate();
        let served = load_clients
            .call(FEW, Some(STEADY * peak_rate), options.seconds)?
            .served();
        println!(
            "  {FEW} clients: {peak_rate:.0}/s; at 70 % of it {:.2} and {:.2} ms",
            served.at(50),
            served.at(99)
        );
        few.push(served.at(99) / served.at(50));
    }
    // The spread of a tail is always wide, so it does not make the result inconclusive.
    let result =
        |name: &str, ratios: &[f64]| BenchResult::less(format!("overload: {name}"), median_and_spread(ratios).0, "", 1);
    Ok(vec![
        result("p99 / p50 at 70 % load", &from_send).floor(10.0).target(5.0),
        result("p99 / p50 from the scheduled start at 70 % load", &scheduled),
        result("p99 / p50 of a bare handler at the same rate", &machine),
        result(&format!("p99 / p50 of {FEW} clients at 70 % load"), &few),
    ])
}
