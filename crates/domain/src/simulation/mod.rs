//! Deterministic simulation of the workers: two servers with dispatchers, messengers, outbox relays, webhook deliverers
//! and billing workers, over the in-memory stores. The model tests of `crates/postgres` compare those of runs, webhooks
//! and billing with PostgreSQL. Members start, pause, resume, cancel and retry campaigns that share numbers, make and
//! cancel direct messages of the same numbers, change webhook endpoints, and subscribe to plans. Other systems fail,
//! tasks are killed, stalled beyond their leases and stopped. A seed decides on every step, and on the task that
//! continues at every await.
//!
//! To repeat a seed: `RECADO_SEED=123 RECADO_RUNS=1 cargo test -p recado-domain simulation::`. For more seeds:
//! `RECADO_RUNS=10000`. A seed that fails belongs in `regression_seeds.txt` once its cause is found.

mod billing_stores;
mod bugs;
mod disturbances;
mod endpoint_steps;
mod executor;
mod files;
mod ledger;
mod message_ledger;
mod message_steps;
mod message_stores;
mod payments;
mod quiescence;
pub(crate) mod rng;
mod run_stores;
mod steps;
mod stores;
mod webhook_stores;
mod whatsapp;
mod workers;

use bugs::SimulationBug;
use steps::{Simulation, has_messages};

/// The number of simulations, unless `RECADO_RUNS` is set.
const SEEDS: u64 = 100;

/// The most simulations to find a planted bug.
const MAX_SEEDS_PER_BUG: usize = 150;

/// The value of `RECADO_SEED` or `RECADO_RUNS`.
fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn check_seed(seed: u64) {
    if let Err(violation) = Simulation::new(seed, None).run() {
        panic!("RECADO_SEED={seed} RECADO_RUNS=1: {violation}");
    }
}

/// Seeds that once failed.
#[test]
fn simulation_of_regression_seeds_keeps_the_invariants() {
    let lines = include_str!("regression_seeds.txt").lines();
    let seeds = lines.filter_map(|line| line.split('#').next().map(str::trim));
    seeds
        .filter(|seed| !seed.is_empty())
        .for_each(|seed| check_seed(seed.parse().unwrap()));
}

#[test]
fn simulation_of_every_seed_keeps_the_invariants() {
    let first = env_number("RECADO_SEED").unwrap_or(0);
    (first..first + env_number("RECADO_RUNS").unwrap_or(SEEDS)).for_each(check_seed);
}

#[test]
fn simulation_finds_every_planted_bug() {
    for bug in SimulationBug::ALL {
        let seeds = (0..).filter(|seed| has_messages(*seed) == bug.is_of_messages());
        let mut seeds = seeds.take(MAX_SEEDS_PER_BUG);
        let found = seeds.find(|seed| Simulation::new(*seed, Some(bug)).run().is_err());
        assert!(
            found.is_some(),
            "{bug:?} is not found by {MAX_SEEDS_PER_BUG} simulations"
        );
    }
}

#[test]
fn simulation_of_a_seed_repeats_itself() {
    let resumptions = |seed| {
        let mut simulation = Simulation::new(seed, None);
        let outcome = simulation.run();
        (outcome, simulation.resumptions())
    };
    for seed in 0..5 {
        assert_eq!(resumptions(seed), resumptions(seed), "seed {seed}");
    }
}
