//! Campaigns, invites and members, subscriptions, templates and support mode against a model, over HTTP: the server and a
//! few pages of plain Rust are taken through the same random steps, and every answer has to be the model's.
//!
//! The model is written from the published interface and the decisions. A history has people and accounts of its own, so
//! that many are played at once on one server. Steps are drawn one after the other from the history's own rng; a failure
//! is shortened, and says the seed.
//!
//! `RECADO_SEED=7 RECADO_RUNS=40 cargo test -p recado-server --test it model` plays the same again; more of either tries
//! more.

mod campaigns;
mod exchange;
mod fixture;
mod state;
mod steps;
mod subscriptions;
mod support;
mod team;
mod templates;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use self::fixture::Fixture;
use self::state::{Bug, ModelState};
use self::steps::{CAMPAIGNS, SUBSCRIPTIONS, SUPPORT, Scenario, Step, TEAM, TEMPLATES};
use crate::harness::rng::{TestRng, runs, seed};

/// How many histories are tried, unless somebody wants more.
const HISTORIES: u64 = 40;

/// How long a history is.
const STEPS: usize = 50;

/// How many are played at once.
const PLAYERS: u64 = 4;

/// How many it may take to find a bug.
const ENOUGH: u64 = 200;

/// How many shorter histories are tried, to find the shortest that fails.
const SHORTER: usize = 300;

/// A history that went wrong: its steps, the last of them wrong, and what was asked and answered.
struct Failure {
    steps: Vec<Step>,
    told: String,
}

/// What is played.
#[derive(Clone, Copy)]
struct Play<'a> {
    fixture: Fixture<'a>,
    seed: u64,
    /// A mistake of the model, and the machines that it is in: most steps are of these.
    bug: Option<(Bug, [u64; 2])>,
}

impl Play<'_> {
    /// One history: of these steps, or of such as its rng say.
    fn history(self, number: u64, given: Option<&[Step]>) -> Result<(), Failure> {
        let mut rng = TestRng::of(self.seed, number);
        let mut scenario = Scenario::of(&mut rng);
        if let Some((_, machines)) = self.bug {
            scenario.machines = machines;
        }
        let mut state = ModelState::new(self.bug.map(|(bug, _)| bug), scenario);
        let mut actors = self.fixture.actors(&state, scenario.remembers);
        let (mut steps, mut told) = (Vec::new(), Vec::new());
        for step in scenario.beginning() {
            actors.perform(&step.exchange(&mut state)).1.unwrap();
        }
        for at in 0..given.map_or(STEPS, <[Step]>::len) {
            let step = given.map_or_else(|| Step::next(scenario, &state, &mut rng), |given| given[at].clone());
            let exchange = step.exchange(&mut state);
            // An answer that the reference does not know panics.
            let performed = catch_unwind(AssertUnwindSafe(|| actors.perform(&exchange)));
            let (line, judged) = performed.unwrap_or_else(|_| (format!("{:?}", exchange.ask), Err("a panic".into())));
            told.push(format!("  {step:?}\n      {line}"));
            steps.push(step);
            if let Err(wrong) = judged {
                let told = format!("{wrong}\n{scenario:?}\n{}", told.join("\n"));
                return Err(Failure { steps, told });
            }
        }
        Ok(())
    }

    /// The shortest history that goes wrong, as far as leaving out steps finds it.
    fn shortened(self, number: u64, mut failure: Failure) -> Failure {
        let (mut tries, mut size) = (0, failure.steps.len() / 2);
        while size > 0 {
            let mut from = 0;
            while from + size < failure.steps.len() && tries < SHORTER {
                tries += 1;
                let mut steps = failure.steps.clone();
                steps.drain(from..from + size);
                match self.history(number, Some(&steps)) {
                    Err(shorter) => failure = shorter,
                    Ok(()) => from += size,
                }
            }
            size /= 2;
        }
        failure
    }

    /// So many histories, several at once; the first one that goes wrong.
    fn histories(self, count: u64) -> Result<(), (u64, Failure)> {
        let (next, first) = (AtomicU64::new(0), Mutex::new(None));
        let player = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                if let Err(failure) = self.history(number, None) {
                    next.store(count, Ordering::Relaxed);
                    *first.lock().unwrap() = Some((number, failure));
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..PLAYERS {
                scope.spawn(player);
            }
        });
        first.into_inner().unwrap().map_or(Ok(()), Err)
    }
}

#[test]
fn the_server_answers_as_the_model_does() {
    let server = fixture::server();
    let (seed, count) = (seed(1), runs(HISTORIES));
    let play = Play {
        fixture: Fixture::of(&server),
        seed,
        bug: None,
    };
    if let Err((number, failure)) = play.histories(count) {
        let failure = play.shortened(number, failure);
        let again =
            format!("RECADO_SEED={seed} RECADO_RUNS={count} cargo test -p recado-server --test it model::the_server");
        panic!("history {number}: {}\nagain: {again}", failure.told);
    }
}

/// A model that is wrong in one place is contradicted: what nobody would see here is not looked at.
#[test]
fn a_model_with_a_mistake_is_contradicted() {
    let server = fixture::server();
    for (bug, machines) in [
        (Bug::LastOwnerMayGo, [TEAM; 2]),
        (Bug::FormerInviteStays, [TEAM; 2]),
        (Bug::OverdueInviteIsTaken, [TEAM; 2]),
        (Bug::ViewerWrites, [TEMPLATES, CAMPAIGNS]),
        (Bug::EditKeepsTheVerdict, [TEMPLATES; 2]),
        (Bug::StopLeavesTheMembership, [SUPPORT; 2]),
        (Bug::SupportStopsAtSuspension, [SUPPORT; 2]),
        (Bug::SecondSubscription, [SUBSCRIPTIONS; 2]),
        (Bug::EventsCountTwice, [SUBSCRIPTIONS; 2]),
        (Bug::DowngradeIgnoresTheTeam, [SUBSCRIPTIONS; 2]),
        (Bug::SendingMayBeDeleted, [CAMPAIGNS; 2]),
        (Bug::PlanIsNotLookedAt, [SUBSCRIPTIONS, CAMPAIGNS]),
    ] {
        let play = Play {
            fixture: Fixture::of(&server),
            seed: 1,
            bug: Some((bug, machines)),
        };
        let found = play.histories(ENOUGH);
        assert!(found.is_err(), "{bug:?}: not found by {ENOUGH} histories");
    }
}
