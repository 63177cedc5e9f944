//! A world by a seed: workers that die, overtake each other and meet faults, people who cancel, pause and let go on, and
//! the platform's news, in an order that the seed decides. What has to be true is looked at after every step, by what the
//! platform was really asked.
//!
//! A wrong seed is tried again by itself: `RECADO_SEED=123 RECADO_RUNS=1 cargo test -p recado-domain simulation`.
//! `RECADO_RUNS=10000` tries more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use uuid::Uuid;

use super::super::{CampaignStatus, SendStatus};
use super::crashes::{TestRng, bring_to_an_end, fixture, may_have_arrived};
use super::faults::Fault;
use super::fixture::{FIRST, Fixture, RUN, phone};
use super::runs::Bug;

/// How many worlds are tried, unless somebody wants more.
const SEEDS: u64 = 1500;

/// How many worlds it may take to find a bug.
const ENOUGH: u64 = 1000;

struct Simulation {
    fixture: Fixture,
    seeded: TestRng,
    /// How many calls there were when the run was cancelled.
    cancelled: Arc<Mutex<Option<usize>>>,
}

impl Simulation {
    fn new(seed: u64, bug: Option<Bug>) -> Self {
        let fixture = fixture(seed);
        fixture.runs.state().bug = bug;
        Self {
            fixture,
            seeded: TestRng(seed ^ 0x5eed),
            cancelled: Arc::default(),
        }
    }

    /// A few steps of everybody, and then the end, whatever it takes.
    fn live(mut self) -> Result<(), String> {
        for _ in 0..self.seeded.below(8) {
            self.step();
            self.check()?;
        }
        self.fixture.fuse.take_out();
        self.fixture.restart();
        bring_to_an_end(&self.fixture);
        self.check()?;
        self.fixture.runs.state().fail_unknown();
        self.check()?;
        let open = |row: &super::rows::Row| row.status == SendStatus::Pending && row.started;
        let state = self.fixture.runs.state();
        if let Some(row) = state.rows.iter().find(|row| open(row)) {
            return Err(format!("{row:?} is open after the end"));
        }
        if state.usage.1 > 0 {
            return Err(format!("{} reservations are left after the end", state.usage.1));
        }
        Ok(())
    }

    fn step(&mut self) {
        match self.seeded.below(10) {
            0..4 => self.work(),
            4 => self.overtake(),
            5 => self.fixture.runs.expire(),
            6 => self.cancel(),
            7 => self.fixture.runs.resume(),
            8 => self.fixture.stop_after(Some(self.seeded.below(6))),
            _ => self.status_update(),
        }
    }

    /// A worker has the run for a while, and most often something goes wrong.
    fn work(&mut self) {
        if self.seeded.below(4) > 0 {
            let fault = Fault::ALL[self.seeded.below(4)];
            self.fixture.fuse.set(self.seeded.below(25), fault);
        }
        let worker = self.worker();
        let dispatcher = self.fixture.dispatcher(worker);
        let run = dispatcher.take().now_or_never();
        // One that held it before may go on, too: it thinks that it still holds the run.
        if matches!(run, Some(Ok(Some(_)))) || self.seeded.below(3) == 0 {
            let end = dispatcher.carry_out(RUN).now_or_never();
            self.fixture.fuse.take_out();
            if matches!(end, Some(Err(_))) {
                let _ = dispatcher.abandon(RUN).now_or_never();
            }
        }
        self.fixture.fuse.take_out();
        self.fixture.restart();
    }

    /// While a call is under way, the lease runs out and another worker has the run, perhaps not to the end.
    fn overtake(&mut self) {
        let (world, other) = (self.fixture.clone(), self.worker());
        let call = self.calls() + self.seeded.below(6);
        let fault = (self.seeded.below(3) > 0).then(|| (self.seeded.below(25), Fault::ALL[self.seeded.below(4)]));
        self.fixture.during_call(call, move || {
            world.runs.expire();
            let second = world.dispatcher(other);
            if let Some(Ok(Some(run))) = second.take().now_or_never() {
                if let Some((step, fault)) = fault {
                    world.fuse.set(step, fault);
                }
                let _ = second.carry_out(run).now_or_never();
                world.fuse.take_out();
            }
        });
    }

    /// Now, or while a call is under way.
    fn cancel(&mut self) {
        let (world, cancelled) = (self.fixture.clone(), self.cancelled.clone());
        let cancel = move || {
            if world.runs.state().campaign().status == CampaignStatus::Sending {
                world.runs.cancel();
                *cancelled.lock().unwrap() = Some(world.called().len());
            }
        };
        match self.seeded.below(9) {
            0 => cancel(),
            1..4 => self.fixture.during_call(self.calls() + self.seeded.below(6), cancel),
            _ => {}
        }
    }

    /// The platform tells of a message that it has.
    fn status_update(&mut self) {
        let at = self.seeded.below(self.fixture.runs.state().rows.len());
        let has = self
            .fixture
            .ledger()
            .get(&phone(at))
            .is_some_and(|outcomes| outcomes.iter().any(may_have_arrived));
        if has {
            let statuses = [
                SendStatus::Sent,
                SendStatus::Delivered,
                SendStatus::Read,
                SendStatus::Failed,
            ];
            self.fixture
                .runs
                .state()
                .apply_status(at, statuses[self.seeded.below(4)]);
        }
    }

    fn worker(&mut self) -> Uuid {
        // Often the same name: tasks of one process share it.
        match self.seeded.below(3) {
            0 => FIRST,
            other => Uuid::from_u128(80 + u128::try_from(other).unwrap()),
        }
    }

    fn calls(&self) -> usize {
        self.fixture.called().len()
    }

    fn check(&self) -> Result<(), String> {
        for (to, outcomes) in self.fixture.ledger() {
            let arrivals = outcomes.iter().filter(|outcome| may_have_arrived(outcome)).count();
            if arrivals > 1 {
                return Err(format!("{to} may have got it {arrivals} times: {outcomes:?}"));
            }
        }
        // Those that were started together with the one under way cannot be held back.
        let last = self
            .cancelled
            .lock()
            .unwrap()
            .map(|before| before + self.fixture.together() - 1);
        if last.is_some_and(|last| self.calls() > last) {
            return Err(format!("{} calls, and the cancel was to leave {last:?}", self.calls()));
        }
        let state = self.fixture.runs.state();
        let mut of: HashMap<SendStatus, i64> = HashMap::new();
        for row in &state.rows {
            *of.entry(row.status).or_default() += 1;
        }
        for &status in SendStatus::ALL {
            if of.get(&status).copied().unwrap_or(0) != state.counts.of(status) {
                return Err(format!("{status}: {of:?} is counted as {:?}", state.counts));
            }
        }
        let kept = state.rows.iter().filter(|row| state.holds_reservation(row)).count();
        let sent = usize::try_from(state.counts.accepted()).unwrap();
        if state.usage != (sent, kept) {
            return Err(format!(
                "the month says {:?}, and it is {:?}",
                state.usage,
                (sent, kept)
            ));
        }
        Ok(())
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_world_ends_well() {
    let first = variable("RECADO_SEED").unwrap_or(0);
    for seed in first..first + variable("RECADO_RUNS").unwrap_or(SEEDS) {
        if let Err(wrong) = Simulation::new(seed, None).live() {
            panic!("RECADO_SEED={seed} RECADO_RUNS=1: {wrong}");
        }
    }
}

#[test]
fn every_planted_bug_is_found() {
    for bug in [
        Bug::ResendsUnknown,
        Bug::IgnoresStatus,
        Bug::IgnoresHolder,
        Bug::ReleasesTwice,
    ] {
        let found = (0..ENOUGH).find(|&seed| Simulation::new(seed, Some(bug)).live().is_err());
        assert!(found.is_some(), "{bug:?} is not found by {ENOUGH} worlds");
    }
}
