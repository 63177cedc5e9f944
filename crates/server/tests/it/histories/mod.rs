//! Concurrent histories: clients call two servers in parallel while the servers are killed and the connections to the
//! database are cut. Every call is recorded with the times of call and response, and then checked.
//!
//! A history is one such test. A key is the part of an account that a model describes: its contacts, one campaign, or
//! its subscription. Only operations of the same key are ordered.
//!
//! - Contacts, campaigns and subscriptions are linearizable by key (`checker`).
//! - WhatsApp received each send at most once, and the stored sends and counters agree with it (`sends`).
//!
//! The timing of a history differs at each run; the calls of its clients depend on the seed.
//! `RECADO_SEED=7 RECADO_RUNS=20 cargo test -p recado-server --test it histories` tries other ones.

mod campaigns;
mod checker;
mod contacts;
mod model_tests;
mod planted_bugs;
mod proxy;
mod run;
mod sends;
mod subscriptions;
mod transport;

use self::run::{AREAS, Plan, Servers};
use crate::harness::rng::{runs, seed};

/// Histories per run, unless `RECADO_RUNS` is set.
const HISTORIES: u64 = 3;

/// Kills and cut connections of a history.
const FAULTS: usize = 3;

/// Seed and number of histories that once failed. They run first.
const REGRESSIONS: &[(u64, u64)] = &[];

#[test]
fn concurrent_histories_are_linearizable() {
    let servers = Servers::start();
    let (seed, count) = (seed(1), runs(HISTORIES));
    let histories = REGRESSIONS
        .iter()
        .copied()
        .chain((0..count).map(|number| (seed, number)));
    for (seed, number) in histories {
        println!("history {number} of seed {seed}");
        let plan = Plan {
            seed,
            number,
            faults: FAULTS,
            areas: &AREAS,
            proxy: None,
        };
        servers.run(plan).unwrap_or_else(|report| {
            let command =
                format!("RECADO_SEED={seed} RECADO_RUNS={count} cargo test -p recado-server --test it histories");
            panic!("history {number} of seed {seed}: {report}\ntry it again with: {command}")
        });
    }
}
