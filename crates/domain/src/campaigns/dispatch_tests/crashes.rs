//! Every step of a run goes wrong once, in every way: nobody is written to twice, and no send is left without an end.

use futures_util::FutureExt;
use time::Duration;
use uuid::Uuid;

use super::super::{CampaignStatus, RunStore, SendOutcome, SendStatus};
use super::faults::Fault;
use super::fixture::{FIRST, Fixture, RUN, SECOND, accepted, failed, phone, run_blocked, throttled, too_fast, unknown};

/// Numbers from a seed (SplitMix64), the same on every machine.
pub(super) struct TestRng(pub(super) u64);

impl TestRng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound).unwrap()).unwrap()
    }
}

/// What the platform answers to a call: of the seed, the recipient and how often they were called, not of the order.
fn answer(seed: u64, to: &str, call: usize) -> SendOutcome {
    let digits: u64 = to.trim_start_matches("+55119").parse().unwrap();
    let mut seeded = TestRng(seed ^ (digits << 20) ^ (u64::try_from(call).unwrap() << 40));
    match seeded.below(20) {
        0..10 => accepted(to),
        10..13 => failed(),
        13..15 => throttled(),
        15 => too_fast(),
        16..19 => unknown(),
        _ => run_blocked(),
    }
}

/// A run of some contacts, a few of them gone, at one of three send rates.
pub(super) fn fixture(seed: u64) -> Fixture {
    let mut seeded = TestRng(seed);
    let contacts = 1 + seeded.below(14);
    let mut fixture = Fixture::new(contacts, move |to, call| answer(seed, to, call));
    match seeded.below(3) {
        0 => {}
        1 => fixture = fixture.per_second(80),
        _ => fixture.delay = Duration::ZERO,
    }
    if seeded.below(2) == 0 {
        let gone = seeded.below(contacts);
        fixture.runs.state().rows[gone].recipient = None;
    }
    fixture
}

/// One worker after another takes the run, and whatever pauses it is seen to, until it is over.
pub(super) fn bring_to_an_end(fixture: &Fixture) {
    for worker in 0..200 {
        fixture.runs.expire();
        if fixture.runs.state().campaign().paused_at.is_some() {
            fixture.runs.resume();
        }
        let worker = Uuid::from_u128(1000 + worker);
        if fixture.take_over(worker).now_or_never().unwrap().is_none() {
            return;
        }
    }
    panic!("the run never ends");
}

/// Whether the recipient may have got the message.
pub(super) fn may_have_arrived(outcome: &SendOutcome) -> bool {
    match outcome {
        SendOutcome::Accepted { .. } | SendOutcome::Unknown { .. } | SendOutcome::OpaqueRejection { .. } => true,
        SendOutcome::Failed { .. } | SendOutcome::Throttled { .. } | SendOutcome::RunBlocked { .. } => false,
    }
}

/// What has to be true of a run that is over, whatever happened on the way.
pub(super) fn check(fixture: &Fixture, story: &str) {
    let ledger = fixture.ledger();
    for (to, outcomes) in &ledger {
        let last = outcomes.len() - 1;
        let again = outcomes[..last]
            .iter()
            .any(|o| may_have_arrived(o) || matches!(o, SendOutcome::Failed { .. }));
        assert!(!again, "{story}: {to} was called again after {outcomes:?}");
    }
    let state = fixture.runs.state();
    for (at, row) in state.rows.iter().enumerate() {
        let outcome = ledger.get(&phone(at)).and_then(|outcomes| outcomes.last());
        let honest = match row.status {
            SendStatus::Sent => matches!(outcome, Some(SendOutcome::Accepted { .. })),
            SendStatus::Failed => row.error.is_some() && !matches!(outcome, Some(SendOutcome::Accepted { .. })),
            SendStatus::Pending => row.started,
            SendStatus::Delivered | SendStatus::Read => false,
        };
        assert!(honest, "{story}: {row:?} after {outcome:?}");
        assert!(row.recipient.is_some() || outcome.is_none(), "{story}: {row:?}");
    }
    let of = |status| state.rows.iter().filter(|row| row.status == status).count();
    let counted = |status| usize::try_from(state.counts.of(status)).unwrap();
    for &status in SendStatus::ALL {
        assert_eq!(of(status), counted(status), "{story}: {status}");
    }
    // What was sent may have become known after the end.
    let all_sent = of(SendStatus::Sent) == state.rows.len();
    let ended = match state.campaign().status {
        CampaignStatus::Completed => all_sent,
        other => other == CampaignStatus::Partial,
    };
    assert!(ended, "{story}: {}", state.campaign().status);
}

/// After the time for news is over, nothing is open.
pub(super) fn check_after_the_time_limit(fixture: &Fixture, story: &str) {
    fixture
        .runs
        .fail_unknown(Duration::minutes(10), 100)
        .now_or_never()
        .unwrap()
        .unwrap();
    assert_eq!(fixture.count(SendStatus::Pending), 0, "{story}");
}

/// Lets the first worker's run go wrong at a step. False: it was over before that step.
fn go_wrong(fixture: &Fixture, step: usize, fault: Fault, goes_on: bool) -> bool {
    fixture.fuse.set(step, fault);
    let first = fixture.dispatcher(FIRST);
    let end = first.carry_out(RUN).now_or_never();
    if fixture.fuse.take_out() {
        return false;
    }
    if !goes_on && matches!(end, Some(Err(_))) {
        // Gives it up, for the next one.
        first.abandon(RUN).now_or_never().unwrap().unwrap();
    }
    if goes_on && matches!(end, Some(Err(_))) {
        // The same worker, which still holds the run, tries again at once.
        let _ = first.carry_out(RUN).now_or_never().unwrap().unwrap();
    }
    true
}

#[test]
fn nobody_is_written_to_twice_whatever_step_goes_wrong() {
    let mut crashes = 0;
    for seed in 0..60 {
        for fault in Fault::ALL {
            for step in 0.. {
                let fixture = fixture(seed);
                let story = format!("seed {seed}, {fault:?} at step {step}");
                let goes_on = (seed + u64::try_from(step).unwrap()).is_multiple_of(2);
                let wrong = go_wrong(&fixture, step, fault, goes_on);
                bring_to_an_end(&fixture);
                check(&fixture, &story);
                check_after_the_time_limit(&fixture, &story);
                if !wrong {
                    break;
                }
                crashes += 1;
            }
        }
    }
    assert!(crashes > 3000, "only {crashes} faults were tried");
}

/// A crash leaves at most fifty sends of which nobody knows; at the default send rate ten.
#[test]
fn a_crash_leaves_few_unknown() {
    let mut most = [0; 2];
    for (at, (contacts, delay, bound)) in [(35, 200, 10), (130, 0, 50)].into_iter().enumerate() {
        for fault in Fault::ALL {
            for step in 0.. {
                let mut fixture = Fixture::new(contacts, |to, _| accepted(to));
                fixture.delay = Duration::milliseconds(delay);
                let wrong = go_wrong(&fixture, step, fault, false);
                bring_to_an_end(&fixture);
                let open = fixture.count(SendStatus::Pending);
                assert!(open <= bound, "{fault:?} at step {step}: {open}");
                most[at] = open.max(most[at]);
                if !wrong {
                    break;
                }
            }
        }
    }
    assert!(most[0] > 5 && most[1] > 20, "the worst moment was not hit: {most:?}");
}

/// A crash of a worker that took over from a crashed one is no worse.
#[test]
fn two_crashes_are_no_worse_than_one() {
    for seed in 100..140 {
        let mut seeded = TestRng(seed);
        for _ in 0..40 {
            let fixture = fixture(seed);
            let faults = [(); 2].map(|()| (seeded.below(30), Fault::ALL[seeded.below(4)]));
            let story = format!("seed {seed}, {faults:?}");
            go_wrong(&fixture, faults[0].0, faults[0].1, false);
            fixture.runs.expire();
            fixture.fuse.set(faults[1].0, faults[1].1);
            let second = fixture.dispatcher(SECOND);
            if let Some(Ok(Some(run))) = second.take().now_or_never() {
                let _ = second.carry_out(run).now_or_never();
            }
            fixture.fuse.take_out();
            bring_to_an_end(&fixture);
            check(&fixture, &story);
            check_after_the_time_limit(&fixture, &story);
        }
    }
}
