//! Simulation of one run at the level of whole steps, with workers that share an id: workers die, take over from each other and meet faults, members cancel and resume, and
//! status updates arrive, in an order that a seed decides. Every step checks the invariants against the calls that
//! the fake WhatsApp recorded.
//!
//! To repeat a failing seed: `RECADO_SEED=123 RECADO_RUNS=1 cargo test -p recado-domain simulation`. For more seeds:
//! `RECADO_RUNS=10000`.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use uuid::Uuid;

use super::crashes::{fixture, may_have_arrived, run_to_the_end};
use super::faults::Fault;
use super::fixture::{FIRST, Fixture, RUN, phone};
use crate::campaigns::CampaignStatus;
use crate::campaigns::in_memory::PlantedBug;
use crate::messaging::SendStatus;
use crate::simulation::rng::TestRng;

/// The number of simulations, unless `RECADO_RUNS` is set.
const SEEDS: u64 = 1500;

/// The most simulations to find a planted bug.
const MAX_SEEDS_PER_BUG: u64 = 1000;

struct Simulation {
    fixture: Fixture,
    rng: TestRng,
    /// The number of calls before the cancel.
    calls_at_cancel: Arc<Mutex<Option<usize>>>,
}

impl Simulation {
    fn new(seed: u64, bug: Option<PlantedBug>) -> Self {
        let fixture = fixture(seed);
        fixture.runs.tables().bug = bug;
        Self {
            fixture,
            rng: TestRng(seed ^ 0x5eed),
            calls_at_cancel: Arc::default(),
        }
    }

    /// Does a few random steps, executes the run to its end, and checks the invariants.
    fn simulate(mut self) -> Result<(), String> {
        for _ in 0..self.rng.below(8) {
            self.step();
            self.check()?;
        }
        self.fixture.injector.disarm();
        self.fixture.restart();
        run_to_the_end(&self.fixture);
        self.check()?;
        self.fixture.runs.fail_unknown();
        self.check()?;
        let state = self.fixture.runs.tables();
        if let Some(row) = state.rows().find(|row| row.is_open()) {
            return Err(format!("{row:?} is unknown after the end"));
        }
        match state.usage() {
            (_, 0) => Ok(()),
            (_, reserved) => Err(format!("{reserved} reservations are left after the end")),
        }
    }

    fn step(&mut self) {
        match self.rng.below(10) {
            0..4 => self.work(),
            4 => self.take_over_during_call(),
            5 => self.fixture.runs.expire(),
            6 => self.cancel(),
            7 => self.fixture.runs.resume(),
            8 => self.fixture.stop_after(Some(self.rng.below(6))),
            _ => self.status_update(),
        }
    }

    /// A worker executes the run, in most cases with a fault.
    fn work(&mut self) {
        if self.rng.below(4) > 0 {
            let fault = Fault::ALL[self.rng.below(4)];
            self.fixture.injector.inject_after(self.rng.below(25), fault);
        }
        let worker = self.worker();
        let dispatcher = self.fixture.dispatcher(worker);
        let run = dispatcher.take().now_or_never();
        // A worker that lost its lease without noticing may continue, too.
        if matches!(run, Some(Ok(Some(_)))) || self.rng.below(3) == 0 {
            let end = dispatcher.run(RUN).now_or_never();
            self.fixture.injector.disarm();
            if matches!(end, Some(Err(_))) {
                let _ = dispatcher.abandon(RUN).now_or_never();
            }
        }
        self.fixture.injector.disarm();
        self.fixture.restart();
    }

    /// During a call, the lease expires and another worker executes the run, perhaps until a fault.
    fn take_over_during_call(&mut self) {
        let (fixture, second_worker) = (self.fixture.clone(), self.worker());
        let call = self.calls() + self.rng.below(6);
        let fault = (self.rng.below(3) > 0).then(|| (self.rng.below(25), Fault::ALL[self.rng.below(4)]));
        self.fixture.during_call(call, move || {
            fixture.runs.expire();
            let second = fixture.dispatcher(second_worker);
            if let Some(Ok(Some(run))) = second.take().now_or_never() {
                if let Some((step, fault)) = fault {
                    fixture.injector.inject_after(step, fault);
                }
                let _ = second.run(run).now_or_never();
                fixture.injector.disarm();
            }
        });
    }

    /// Cancels the campaign now, during a call, or not at all.
    fn cancel(&mut self) {
        let (fixture, calls_at_cancel) = (self.fixture.clone(), self.calls_at_cancel.clone());
        let cancel = move || {
            if fixture.runs.tables().campaign().status == CampaignStatus::Sending {
                fixture.runs.cancel();
                *calls_at_cancel.lock().unwrap() = Some(fixture.called_phones().len());
            }
        };
        match self.rng.below(9) {
            0 => cancel(),
            1..4 => self.fixture.during_call(self.calls() + self.rng.below(6), cancel),
            _ => {}
        }
    }

    /// Applies a status update for a message that WhatsApp may have.
    fn status_update(&mut self) {
        let at = self.rng.below(self.fixture.runs.tables().rows().count());
        let may_have_message = self
            .fixture
            .outcomes_by_phone()
            .get(&phone(at))
            .is_some_and(|outcomes| outcomes.iter().any(may_have_arrived));
        if may_have_message {
            let statuses = [
                SendStatus::Sent,
                SendStatus::Delivered,
                SendStatus::Read,
                SendStatus::Failed,
            ];
            let status = statuses[self.rng.below(4)];
            let mut state = self.fixture.runs.tables();
            let (send, message) = (state.row(at).id, format!("wamid.{}", phone(at)));
            assert!(state.apply_status(RUN.account_id, Some(send), &message, status, None));
        }
    }

    fn worker(&mut self) -> Uuid {
        // Few ids, so that workers often share one.
        match self.rng.below(3) {
            0 => FIRST,
            number => Uuid::from_u128(80 + u128::try_from(number).unwrap()),
        }
    }

    fn calls(&self) -> usize {
        self.fixture.called_phones().len()
    }

    fn check(&self) -> Result<(), String> {
        for (to, outcomes) in self.fixture.outcomes_by_phone() {
            let received = outcomes.iter().filter(|outcome| may_have_arrived(outcome)).count();
            if received > 1 {
                return Err(format!(
                    "{to} may have received the message {received} times: {outcomes:?}"
                ));
            }
        }
        // A cancel during a call does not stop the other calls of the same burst.
        let max_calls = self
            .calls_at_cancel
            .lock()
            .unwrap()
            .map(|before| before + self.fixture.burst_size() - 1);
        if max_calls.is_some_and(|max| self.calls() > max) {
            return Err(format!(
                "{} calls, but the cancel allows at most {max_calls:?}",
                self.calls()
            ));
        }
        self.fixture.runs.tables().check_sums()
    }
}

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn simulation_of_every_seed_keeps_the_invariants() {
    let first = env_number("RECADO_SEED").unwrap_or(0);
    for seed in first..first + env_number("RECADO_RUNS").unwrap_or(SEEDS) {
        if let Err(violation) = Simulation::new(seed, None).simulate() {
            panic!("RECADO_SEED={seed} RECADO_RUNS=1: {violation}");
        }
    }
}

#[test]
fn simulation_finds_every_planted_bug() {
    for bug in [
        PlantedBug::ResendsUnknown,
        PlantedBug::IgnoresStatus,
        PlantedBug::IgnoresHolder,
        PlantedBug::ReleasesTwice,
    ] {
        let found = (0..MAX_SEEDS_PER_BUG).find(|&seed| Simulation::new(seed, Some(bug)).simulate().is_err());
        assert!(
            found.is_some(),
            "{bug:?} is not found by {MAX_SEEDS_PER_BUG} simulations"
        );
    }
}
