//! What is left of the server when far more callers come than it can serve, and how even its answers are when they do not.

use super::Options;
use super::crowd::{Answers, Crowd};
use super::figures::{Figure, median_and_spread};
use super::read::start_bare;
use super::stage::{self, Launch, Stage, port};
use crate::error::Result;

/// How many callers are tried in search of the most that are served.
const CALLERS: [u32; 4] = [8, 16, 32, 64];

/// How often each number of them is tried.
const TRIES: u32 = 3;

/// More callers than there are connections to the database.
const MANY: u32 = 32;

/// Who comes with fewer callers than this share of the most has not reached it.
const SATURATED: f64 = 0.95;

/// Times as many callers as saturate.
const OVERLOAD: u32 = 8;

/// The part of what is served at most that a server is held at.
const STEADY: f64 = 0.70;

const REFUSED_WITHIN: f64 = 250.0;

pub(super) fn run(stage: &Stage, options: Options) -> Result<Vec<Figure>> {
    let mut figures = overload(stage, options)?;
    figures.extend(steady(stage, options)?);
    Ok(figures)
}

fn overload(stage: &Stage, options: Options) -> Result<Vec<Figure>> {
    let server = stage.serve()?;
    let crowd = Crowd::new(port(&server.base)?, &stage.requests()?);
    let saturating = saturating(&crowd, options)?;
    let (mut shares, mut crowded) = (Vec::new(), Vec::new());
    for number in 1..=options.pairs {
        let peak = crowd.call(saturating, None, options.seconds)?;
        let over = crowd.call(saturating * OVERLOAD, None, options.seconds)?;
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

/// The fewest callers that reach the most, or nearly: more of them only wait for each other.
fn saturating(crowd: &Crowd, options: Options) -> Result<u32> {
    crowd.call(MANY, None, 1)?;
    let mut best = CALLERS.map(|callers| (callers, 0.0_f64));
    // In turns, since one try may meet a busy moment.
    for _ in 0..TRIES {
        for (callers, best) in &mut best {
            *best = best.max(crowd.call(*callers, None, options.seconds)?.rate());
        }
    }
    let most = best.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    for (callers, rate) in best {
        println!("{callers} callers: {rate:.0}/s");
    }
    let enough = best.iter().find(|(_, rate)| *rate >= SATURATED * most);
    Ok(enough.map_or(MANY, |(callers, _)| *callers))
}

fn overloaded(shares: &[f64], crowded: &[Answers]) -> Vec<Figure> {
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
        Figure::more("overload: served at 8 times saturation, to the most", share, "", 2)
            .spread(spread)
            .floor(0.80)
            .target(0.95),
        Figure::less("overload: slowest 1 % of refusals", slowest, " ms", 0)
            .floor(REFUSED_WITHIN)
            .target(REFUSED_WITHIN),
        Figure::less("overload: answers that are neither", f64::from(broken), "", 0)
            .floor(0.0)
            .target(0.0),
        Figure::less(
            "overload: slowest 1 % of those served",
            served.fold(0.0, f64::max),
            " ms",
            0,
        ),
    ]
}

fn steady(stage: &Stage, options: Options) -> Result<Vec<Figure>> {
    stage::build_bare()?;
    let server = stage.launch(&Launch {
        command_line: &["serve"],
        more: vec![("DATABASE_POOL_SIZE", "8".to_owned())],
        ..stage.routes()
    })?;
    let (_bare, bare_url) = start_bare(stage, &stage.read(&server, 1)?)?;
    let requests = stage.requests()?;
    let (crowd, bare) = (
        Crowd::new(port(&server.base)?, &requests),
        Crowd::new(port(&bare_url)?, &requests),
    );
    let callers = saturating(&crowd, options)?;
    let (mut asked, mut due, mut machine, mut many) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for number in 1..=options.pairs {
        let most = crowd.call(callers, None, options.seconds)?.rate();
        let answers = crowd.call(callers, Some(STEADY * most), options.seconds)?;
        let alone = bare.call(callers, Some(STEADY * most), options.seconds)?;
        let crowded = crowd.call(MANY, Some(STEADY * most), options.seconds)?;
        println!(
            "{number}/{}: {callers} callers {most:.0}/s at most; at 70 % of it",
            options.pairs
        );
        for (what, ratios, times) in [
            ("answers", &mut asked, answers.served()),
            ("from when they were due", &mut due, answers.waited()),
            ("a bare handler", &mut machine, alone.served()),
            ("more callers", &mut many, crowded.served()),
        ] {
            let (half, slowest) = (times.at(50), times.at(99));
            println!("  {what}: half within {half:.2} ms, 99 % within {slowest:.2} ms");
            ratios.push(slowest / half);
        }
    }
    // The spread of a tail is wide by its nature: it is told, and does not take the verdict away.
    let figure =
        |name: &str, ratios: &[f64]| Figure::less(format!("overload: {name}"), median_and_spread(ratios).0, "", 1);
    let name = "slowest 1 % at 70 % of the most, in times of the median";
    Ok(vec![
        figure(name, &asked).floor(10.0).target(5.0),
        figure(&format!("{name}, from when they were due"), &due),
        figure("the same of a bare handler, as many a second", &machine),
        figure(&format!("the same of {MANY} callers, as many a second"), &many),
    ])
}
