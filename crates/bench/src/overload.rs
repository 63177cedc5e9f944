//! Throughput and refusals when far more clients connect than saturate the server (closed loop), and tail latency at
//! 70 % load (open loop).

use anyhow::Result;

use super::Options;
use super::fixture::{Fixture, Launch, port};
use super::load_clients::{LoadClients, Responses};
use super::read::start_bare;
use super::results::{BenchResult, median_and_spread};
use super::times::Latencies;

/// Numbers of clients that are tried to find saturation.
const CLIENTS: [usize; 4] = [8, 16, 32, 64];

/// Share of the highest rate from which on the server counts as saturated.
const SATURATED: f64 = 0.95;

/// Factor by which the clients of the overload exceed those that saturate the server.
const OVERLOAD: usize = 8;

/// Load of the latency measurement as a share of the highest rate.
const STEADY: f64 = 0.70;

/// The most requests in flight at a time, and as many clients as the server has connections to the database.
const MANY: usize = 32;
const FEW: usize = 8;

/// Target of p99 / p50 at `STEADY` load.
const TAIL: f64 = 5.0;

/// A bare handler whose p99 exceeds this share of the p99 that the target allows: the machine itself causes too much of
/// the tail for a verdict.
const MACHINE_SHARE: f64 = 0.5;

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
    load_clients.saturate(MANY, 1)?;
    let mut rates = Vec::new();
    for clients in CLIENTS {
        let rate = load_clients.saturate(clients, options.seconds)?.rate();
        println!("{clients} clients: {rate:.0}/s");
        rates.push((clients, rate));
    }
    let peak_rate = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let enough = rates.iter().find(|(_, rate)| *rate >= SATURATED * peak_rate);
    let saturating = enough.map_or(MANY, |(clients, _)| *clients);
    let (mut shares, mut overloads) = (Vec::new(), Vec::new());
    for number in 1..=options.pairs {
        let peak = load_clients.saturate(saturating, options.seconds)?;
        let over = load_clients.saturate(saturating * OVERLOAD, options.seconds)?;
        println!(
            "{number}/{}: {saturating} clients {:.0}/s; {} clients {:.0}/s, {} refused, {} failed",
            options.pairs,
            peak.rate(),
            saturating * OVERLOAD,
            over.rate(),
            over.refused.count(),
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
    let refusal_p99 = |responses: &Responses| match responses.refused.count() {
        0 => 0.0,
        _ => responses.refused.p99(),
    };
    let slowest = overloads.iter().map(refusal_p99).fold(0.0, f64::max);
    let served = overloads.iter().map(|responses| responses.served.p99());
    let failed: u32 = overloads.iter().map(|responses| responses.failed).sum();
    vec![
        BenchResult::more(
            "overload: throughput at 8 times saturation / at saturation",
            share,
            "",
            2,
        )
        .spread(spread)
        .target(0.95),
        BenchResult::less("overload: p99 of refusals at 8 times saturation", slowest, " ms", 0).target(REFUSED_WITHIN),
        BenchResult::less(
            "overload: other responses at 8 times saturation",
            f64::from(failed),
            "",
            0,
        )
        .target(0.0),
        BenchResult::less(
            "overload: p99 of served requests at 8 times saturation",
            served.fold(0.0, f64::max),
            " ms",
            0,
        ),
    ]
}

/// A load at `STEADY` of the highest rate of as many clients.
struct Steady {
    peak_rate: f64,
    responses: Responses,
}

impl Steady {
    fn measure(load: &LoadClients, clients: usize, seconds: u32) -> Result<Self> {
        let peak_rate = load.saturate(clients, seconds)?.rate();
        let responses = load.at_rate(clients, STEADY * peak_rate, seconds)?;
        println!(
            "{clients} clients: highest rate {peak_rate:.0}/s; at 70 % of it p50 {:.2} ms, p99 {:.2} ms, \
             p99 of the service time {:.2} ms; {} refused, {} failed",
            responses.since_due.p50(),
            responses.since_due.p99(),
            responses.served.p99(),
            responses.refused.count(),
            responses.failed
        );
        Ok(Self { peak_rate, responses })
    }
}

/// What one round of `steady` compares.
struct SteadyRound {
    server: Responses,
    /// A bare handler at the same rate.
    bare: Responses,
    /// `FEW` clients.
    few: Responses,
}

fn steady(fixture: &Fixture, options: Options) -> Result<Vec<BenchResult>> {
    fixture.build_bare()?;
    let server = fixture.launch(&Launch {
        command_line: &["serve"],
        more: vec![("DATABASE_POOL_SIZE", "8".to_owned())],
        ..fixture.routes()
    })?;
    let (_bare, bare_url) = start_bare(fixture, &fixture.read(&server, 1)?)?;
    let requests = fixture.requests()?;
    let (load, bare) = (
        LoadClients::new(port(&server.base)?, &requests),
        LoadClients::new(port(&bare_url)?, &requests),
    );
    load.saturate(MANY, 1)?;
    bare.saturate(MANY, 1)?;
    let mut rounds = Vec::new();
    for number in 1..=options.pairs {
        println!("{number}/{}", options.pairs);
        let many = Steady::measure(&load, MANY, options.seconds)?;
        let bare = bare.at_rate(MANY, STEADY * many.peak_rate, options.seconds)?;
        println!(
            "the bare handler at the same rate: p50 {:.2} ms, p99 {:.2} ms",
            bare.since_due.p50(),
            bare.since_due.p99()
        );
        rounds.push(SteadyRound {
            server: many.responses,
            bare,
            few: Steady::measure(&load, FEW, options.seconds)?.responses,
        });
    }
    Ok(steady_results(&rounds))
}

fn steady_results(rounds: &[SteadyRound]) -> Vec<BenchResult> {
    let median = |of: &dyn Fn(&SteadyRound) -> f64| median_and_spread(&rounds.iter().map(of).collect::<Vec<_>>()).0;
    // The spread of a tail is always wide, so it does not decide whether there is a verdict.
    let ratio = |name: &str, of: &dyn Fn(&SteadyRound) -> f64| {
        BenchResult::less(format!("overload: {name}"), median(of), "", 1)
    };
    let tail = |latencies: &Latencies| latencies.p99() / latencies.p50();
    let mut checked = ratio("p99 / p50 at 70 % load", &|round| tail(&round.server.since_due)).target(TAIL);
    let by_machine = median(&|round| round.bare.since_due.p99() / (TAIL * round.server.since_due.p50()));
    if by_machine > MACHINE_SHARE {
        checked = checked.inconclusive(format!(
            "the p99 of a bare handler is {by_machine:.1} times the p99 that the target allows"
        ));
    }
    vec![
        checked,
        ratio("p99.9 / p50 at 70 % load", &|round| {
            round.server.since_due.p99_9() / round.server.since_due.p50()
        }),
        ratio("p99 / p50 of the service time at 70 % load", &|round| {
            tail(&round.server.served)
        }),
        ratio("p99 / p50 of a bare handler at the same rate", &|round| {
            tail(&round.bare.since_due)
        }),
        ratio(&format!("p99 / p50 of {FEW} clients at 70 % load"), &|round| {
            tail(&round.few.since_due)
        }),
    ]
}
