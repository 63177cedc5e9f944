//! What is left of the server when far more callers come than it can serve, and how even its answers are when they do not.

use super::Options;
use super::fixture::{self, Fixture, Launch, port};
use super::load_clients::{Answers, LoadClients};
use super::read::start_bare;
use super::results::{BenchResult, median_and_spread};
use crate::error::Result;

/// How many callers are tried in search of the most that are served.
const CALLERS: [u32; 4] = [8, 16, 32, 64];

/// Who comes with fewer callers than this share of the most has not reached it.
const SATURATED: f64 = 0.95;

/// Times as many callers as saturate.
const OVERLOAD: u32 = 8;

/// The part of what is served at most that a server is held at.
const STEADY: f64 = 0.70;

/// As many callers as there are connections to the database.
const FEW: u32 = 8;

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
    for callers in CALLERS {
        let rate = load_clients.call(callers, None, options.seconds)?.rate();
        println!("{callers} callers: {rate:.0}/s");
        rates.push((callers, rate));
    }
    let most = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let enough = rates.iter().find(|(_, rate)| *rate >= SATURATED * most);
    let saturating = enough.map_or(32, |(callers, _)| *callers);
    let (mut shares, mut crowded) = (Vec::new(), Vec::new());
    for number in 1..=options.pairs {
        let peak = load_clients.call(saturating, None, options.seconds)?;
        let over = load_clients.call(saturating * OVERLOAD, None, options.seconds)?;
        println!(
            "{number}/{}: {saturating} callers {:.0}/s; {} callers {:.0}/s, {} refused, {} broken",
            options.pairs,
            peak.rate(),
            saturating * OVERLOAD,
            over.rate(),
            over.refused().count(),
            over.broken
        );
        shares.push(over.rate() / peak.rate());
        crowded.push(over);
    }
    Ok(overloaded(&shares, &crowded))
}

fn overloaded(shares: &[f64], crowded: &[Answers]) -> Vec<BenchResult> {
    let (share, spread) = median_and_spread(shares);
    // Where nobody was refused, the slowest success is what a caller waited for.
    let waited = |answers: &Answers| match answers.refused().count() {
        0 => 0.0,
        _ => answers.refused().at(99),
    };
    let slowest = crowded.iter().map(waited).fold(0.0, f64::max);
    let served = crowded.iter().map(|answers| answers.served().at(99));
    let broken: u32 = crowded.iter().map(|answers| answers.broken).sum();
    vec![
        BenchResult::more("overload: served at 8 times saturation, to the most", share, "", 2)
            .spread(spread)
            .floor(0.80)
            .target(0.95),
        BenchResult::less("overload: slowest 1 % of refusals", slowest, " ms", 0)
            .floor(REFUSED_WITHIN)
            .target(REFUSED_WITHIN),
        BenchResult::less("overload: answers that are neither", f64::from(broken), "", 0)
            .floor(0.0)
            .target(0.0),
        BenchResult::less(
            "overload: slowest 1 % of those served",
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
    let (mut asked, mut due, mut machine, mut few) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for number in 1..=options.pairs {
        let most = load_clients.call(32, None, options.seconds)?.rate();
        let answers = load_clients.call(32, Some(STEADY * most), options.seconds)?;
        let alone = bare.call(32, Some(STEADY * most), options.seconds)?;
        let [served, waited, alone] = [answers.served(), answers.waited(), alone.served()];
        println!(
            "{number}/{}: {most:.0}/s at most; at 70 % of it half are answered within {:.2} ms, 99 % within {:.2} ms \
             ({:.2} and {:.2} ms from when they were due); a bare handler {:.2} and {:.2} ms",
            options.pairs,
            served.at(50),
            served.at(99),
            waited.at(50),
            waited.at(99),
            alone.at(50),
            alone.at(99)
        );
        for (ratios, times) in [(&mut asked, &served), (&mut due, &waited), (&mut machine, &alone)] {
            ratios.push(times.at(99) / times.at(50));
        }
        let most = load_clients.call(FEW, None, options.seconds)?.rate();
        let served = load_clients.call(FEW, Some(STEADY * most), options.seconds)?.served();
        println!(
            "  {FEW} callers: {most:.0}/s; at 70 % of it {:.2} and {:.2} ms",
            served.at(50),
            served.at(99)
        );
        few.push(served.at(99) / served.at(50));
    }
    // The spread of a tail is wide by its nature: it is told, and does not take the target_result away.
    let result =
        |name: &str, ratios: &[f64]| BenchResult::less(format!("overload: {name}"), median_and_spread(ratios).0, "", 1);
    let name = "slowest 1 % at 70 % of the most, in times of the median";
    Ok(vec![
        result(name, &asked).floor(10.0).target(5.0),
        result(&format!("{name}, from when they were due"), &due),
        result("the same of a bare handler, as many a second", &machine),
        result(&format!("the same of {FEW} callers, at 70 % of their most"), &few),
    ])
}
