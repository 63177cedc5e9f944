//! Model-based test over HTTP of campaigns, invites and members, subscriptions, templates and support mode. The server
//! and a model in plain Rust execute the same random steps, and every response must equal the model's.
//!
//! The model is written from the published interface and the decisions. Each history has its own users, accounts and
//! random generator, so that many run concurrently on one server. A failing history is shrunk and printed with its
//! seed.
//!
//! `RECADO_SEED=7 RECADO_RUNS=40 cargo test -p recado-server --test it model` repeats a run. Other values of either
//! variable try other histories.

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

/// Histories per run, unless `RECADO_RUNS` is set.
const HISTORIES: u64 = 40;

/// Steps of a history.
const STEPS: usize = 50;

/// Histories that run concurrently.
const THREADS: u64 = 4;

/// The histories in which the model looks for an effect of a planted bug.
const HISTORIES_PER_BUG: u64 = 200;

/// Upper bound of the histories that are tried to shrink a failure.
const MAX_SHRINK_TRIES: usize = 300;

/// A failed history: its steps, of which the last one failed, and the transcript of requests and responses.
struct Failure {
    steps: Vec<Step>,
    transcript: String,
}

/// Runs histories against a server.
#[derive(Clone, Copy)]
struct HistoryRunner<'a> {
    fixture: Fixture<'a>,
    seed: u64,
    /// A planted bug of the model, and the areas from which most steps are drawn to find it.
    bug: Option<(Bug, [u64; 2])>,
}

impl HistoryRunner<'_> {
    /// The random settings of a history, and the generator of its steps.
    fn scenario(self, number: u64) -> (Scenario, TestRng) {
        let mut rng = TestRng::of(self.seed, number);
        let mut scenario = Scenario::of(&mut rng);
        if let Some((_, areas)) = self.bug {
            scenario.areas = areas;
        }
        (scenario, rng)
    }

    /// The first step of a history for which the model with the planted bug expects another response than the model
    /// without it. Needs no server.
    fn first_effect_of_bug(self, number: u64) -> Option<usize> {
        let (scenario, mut rng) = self.scenario(number);
        let mut planted = ModelState::new(self.bug.map(|(bug, _)| bug), scenario);
        let mut correct = ModelState::new(None, scenario);
        let mut differs = |planted: &mut ModelState, step: &Step| {
            step.exchange(planted).expected != step.exchange(&mut correct).expected
        };
        for step in scenario.initial_steps() {
            differs(&mut planted, &step);
        }
        (1..=STEPS).find(|_| {
            let step = Step::next(scenario, &planted, &mut rng);
            differs(&mut planted, &step)
        })
    }

    /// Runs one history with the first `count` of the given steps, or of random steps.
    fn run_history(self, number: u64, count: usize, given: Option<&[Step]>) -> Result<(), Failure> {
        let (scenario, mut rng) = self.scenario(number);
        let mut state = ModelState::new(self.bug.map(|(bug, _)| bug), scenario);
        let mut actors = self.fixture.actors(&state, scenario.has_active_cookie);
        let (mut steps, mut transcript) = (Vec::new(), Vec::new());
        for step in scenario.initial_steps() {
            actors.perform(&step.exchange(&mut state)).1.unwrap();
        }
        for at in 0..count {
            let step = given.map_or_else(|| Step::next(scenario, &state, &mut rng), |given| given[at].clone());
            let exchange = step.exchange(&mut state);
            // A response that the OpenAPI document does not describe panics.
            let performed = catch_unwind(AssertUnwindSafe(|| actors.perform(&exchange)));
            let (line, result) =
                performed.unwrap_or_else(|_| (format!("{:?}", exchange.action), Err("a panic".into())));
            transcript.push(format!("  {step:?}\n      {line}"));
            steps.push(step);
            if let Err(error) = result {
                let transcript = format!("{error}\n{scenario:?}\n{}", transcript.join("\n"));
                return Err(Failure { steps, transcript });
            }
        }
        Ok(())
    }

    /// Shrinks a failing history: removes ranges of steps while it still fails.
    fn shrink(self, number: u64, mut failure: Failure) -> Failure {
        let (mut tries, mut size) = (0, failure.steps.len() / 2);
        while size > 0 {
            let mut from = 0;
            while from + size < failure.steps.len() && tries < MAX_SHRINK_TRIES {
                tries += 1;
                let mut steps = failure.steps.clone();
                steps.drain(from..from + size);
                match self.run_history(number, steps.len(), Some(&steps)) {
                    Err(shorter) => failure = shorter,
                    Ok(()) => from += size,
                }
            }
            size /= 2;
        }
        failure
    }

    /// Runs `count` histories concurrently and returns the first failure.
    fn run_histories(self, count: u64) -> Result<(), (u64, Failure)> {
        let (next, first) = (AtomicU64::new(0), Mutex::new(None));
        let worker = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                if let Err(failure) = self.run_history(number, STEPS, None) {
                    next.store(count, Ordering::Relaxed);
                    *first.lock().unwrap() = Some((number, failure));
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(worker);
            }
        });
        first.into_inner().unwrap().map_or(Ok(()), Err)
    }
}

#[test]
fn server_responses_equal_the_model() {
    let server = fixture::server();
    let (seed, count) = (seed(1), runs(HISTORIES));
    let runner = HistoryRunner {
        fixture: Fixture::of(&server),
        seed,
        bug: None,
    };
    if let Err((number, failure)) = runner.run_histories(count) {
        let failure = runner.shrink(number, failure);
        let command = format!(
            "RECADO_SEED={seed} RECADO_RUNS={count} cargo test -p recado-server --test it model::server_responses"
        );
        panic!("history {number}: {}\nrepeat it with: {command}", failure.transcript);
    }
}

/// Checks the test itself: the server must contradict each planted bug of the model. The model finds the histories in
/// which the bug shows, the shortest first, and the server runs only these.
#[test]
fn model_with_a_planted_bug_is_contradicted() {
    let server = fixture::server();
    for (bug, areas) in [
        (Bug::LastOwnerMayLeave, [TEAM; 2]),
        (Bug::FormerInviteStaysPending, [TEAM; 2]),
        (Bug::ExpiredInviteIsAccepted, [TEAM; 2]),
        (Bug::ViewerMayWrite, [TEMPLATES, CAMPAIGNS]),
        (Bug::EditKeepsReviewStatus, [TEMPLATES; 2]),
        (Bug::StopKeepsSupportMembership, [SUPPORT; 2]),
        (Bug::SupportEndsAtSuspension, [SUPPORT; 2]),
        (Bug::SecondSubscriptionIsAllowed, [SUBSCRIPTIONS; 2]),
        (Bug::RepeatedEventsCount, [SUBSCRIPTIONS; 2]),
        (Bug::DowngradeIgnoresTeamSize, [SUBSCRIPTIONS; 2]),
        (Bug::SendingCampaignMayBeDeleted, [CAMPAIGNS; 2]),
        (Bug::PlanIsNotChecked, [SUBSCRIPTIONS, CAMPAIGNS]),
    ] {
        let runner = HistoryRunner {
            fixture: Fixture::of(&server),
            seed: seed(1),
            bug: Some((bug, areas)),
        };
        let numbers = 0..HISTORIES_PER_BUG;
        let mut effects: Vec<(usize, u64)> = numbers
            .filter_map(|number| Some((runner.first_effect_of_bug(number)?, number)))
            .collect();
        effects.sort_unstable();
        let mut effects = effects.into_iter();
        let is_contradicted = |(steps, number): &(usize, u64)| {
            let played = runner.run_history(*number, *steps, None);
            played.is_err_and(|failure| failure.steps.len() == *steps)
        };
        let found = effects.find(is_contradicted);
        let (steps, number) = found.unwrap_or_else(|| panic!("{bug:?}: not found by {HISTORIES_PER_BUG} histories"));
        println!("{bug:?}: found by history {number} in {steps} steps");
    }
}
