//! Injects each fault into each step of a run: no contact is called twice, and every send ends.

use futures_util::FutureExt;
use time::Duration;
use uuid::Uuid;

use super::faults::Fault;
use super::fixture::{FIRST, Fixture, RUN, SECOND, accepted, failed, phone, run_blocked, throttled, too_fast, unknown};
use super::{all_phones, over};
use crate::campaigns::CampaignStatus;
use crate::messaging::{SendOutcome, SendStatus};
use crate::simulation::rng::TestRng;

/// The outcome of a call. It depends on seed, recipient and number of earlier calls, not on the order of calls.
fn random_outcome(seed: u64, to: &str, call: usize) -> SendOutcome {
    let digits: u64 = to.trim_start_matches("+55119").parse().unwrap();
    let mut rng = TestRng(seed ^ (digits << 20) ^ (u64::try_from(call).unwrap() << 40));
    match rng.below(20) {
        0..10 => accepted(to),
        10..13 => failed(),
        13..15 => throttled(),
        15 => too_fast(),
        16..19 => unknown(),
        _ => run_blocked(),
    }
}

/// A run of up to 14 contacts, of which one may be unreachable, at one of three send rates.
pub(super) fn fixture(seed: u64) -> Fixture {
    let mut rng = TestRng(seed);
    let contacts = 1 + rng.below(14);
    let mut fixture = Fixture::new(contacts, move |to, call| random_outcome(seed, to, call));
    match rng.below(3) {
        0 => {}
        1 => fixture = fixture.per_second(80),
        _ => fixture.delay = Duration::ZERO,
    }
    if rng.below(2) == 0 {
        let unreachable = rng.below(contacts);
        fixture.runs.tables().contact_mut(unreachable).opted_out = true;
    }
    fixture
}

/// Executes the run by one worker after another, and resumes it after each pause, until it ends.
pub(super) fn run_to_the_end(fixture: &Fixture) {
    for worker in 0..200 {
        fixture.runs.expire();
        if fixture.runs.tables().campaign().paused_at.is_some() {
            fixture.runs.resume();
        }
        let worker = Uuid::from_u128(1000 + worker);
        if fixture.take_over(worker).now_or_never().unwrap().is_none() {
            return;
        }
    }
    panic!("the run never ends");
}

/// Whether the recipient may have received the message.
pub(super) fn may_have_arrived(outcome: &SendOutcome) -> bool {
    match outcome {
        SendOutcome::Accepted { .. } | SendOutcome::Unknown { .. } | SendOutcome::OpaqueRejection { .. } => true,
        SendOutcome::Failed { .. } | SendOutcome::Throttled { .. } | SendOutcome::RunBlocked { .. } => false,
    }
}

/// Checks the invariants of an ended run: calls, statuses, counters and the campaign's status.
pub(super) fn check(fixture: &Fixture, case: &str) {
    let outcomes_by_phone = fixture.outcomes_by_phone();
    for (to, outcomes) in &outcomes_by_phone {
        let last = outcomes.len() - 1;
        let called_again = outcomes[..last]
            .iter()
            .any(|o| may_have_arrived(o) || matches!(o, SendOutcome::Failed { .. }));
        assert!(!called_again, "{case}: {to} was called again after {outcomes:?}");
    }
    let state = fixture.runs.tables();
    for (at, row) in state.rows().enumerate() {
        let outcome = outcomes_by_phone.get(&phone(at)).and_then(|outcomes| outcomes.last());
        let status_fits_outcome = match row.status {
            SendStatus::Sent => matches!(outcome, Some(SendOutcome::Accepted { .. })),
            SendStatus::Failed => row.error.is_some() && !matches!(outcome, Some(SendOutcome::Accepted { .. })),
            SendStatus::Pending => row.started_at.is_some(),
            SendStatus::Delivered | SendStatus::Read => false,
        };
        assert!(status_fits_outcome, "{case}: {row:?} after {outcome:?}");
        let opted_out = state.contact(at).opted_out;
        assert!(!opted_out || outcome.is_none(), "{case}: {row:?}");
    }
    assert_eq!(state.check_sums(), Ok(()), "{case}");
    // A send may become sent after the end of the run, so a partial campaign is valid in any case.
    let all_sent = state.rows().all(|row| row.status == SendStatus::Sent);
    let status_is_valid = match state.campaign().status {
        CampaignStatus::Completed => all_sent,
        status => status == CampaignStatus::Partial,
    };
    assert!(status_is_valid, "{case}: {}", state.campaign().status);
}

/// Fails sends whose outcome is unknown, and checks that no send is pending.
pub(super) fn check_after_timeout(fixture: &Fixture, case: &str) {
    fixture.runs.fail_unknown();
    assert_eq!(fixture.count(SendStatus::Pending), 0, "{case}");
}

/// Executes the run as the first worker, with a fault at a step. After an error, the worker continues the run or
/// abandons it. False: the run ended before that step.
fn run_with_fault(fixture: &Fixture, step: usize, fault: Fault, continues: bool) -> bool {
    fixture.injector.inject_after(step, fault);
    let first = fixture.dispatcher(FIRST);
    let end = first.run(RUN).now_or_never();
    if fixture.injector.disarm() {
        return false;
    }
    if !continues && matches!(end, Some(Err(_))) {
        first.abandon(RUN).now_or_never().unwrap().unwrap();
    }
    if continues && matches!(end, Some(Err(_))) {
        // The worker still holds the run, and tries again at once.
        let _ = first.run(RUN).now_or_never().unwrap().unwrap();
    }
    true
}

#[test]
fn crashed_run_calls_no_contact_twice() {
    let mut faults_injected = 0;
    for seed in 0..60 {
        for fault in Fault::ALL {
            for step in 0.. {
                let fixture = fixture(seed);
                let case = format!("seed {seed}, {fault:?} at step {step}");
                let continues = (seed + u64::try_from(step).unwrap()).is_multiple_of(2);
                let failed = run_with_fault(&fixture, step, fault, continues);
                run_to_the_end(&fixture);
                check(&fixture, &case);
                check_after_timeout(&fixture, &case);
                if !failed {
                    break;
                }
                faults_injected += 1;
            }
        }
    }
    assert!(faults_injected > 3000, "only {faults_injected} faults were injected");
}

/// A crash leaves at most `MAX_IN_FLIGHT` sends unknown; at the default send rate, `MIN_RESULT_BATCH`.
#[test]
fn crash_leaves_a_bounded_number_of_unknown_sends() {
    let mut most = [0; 2];
    for (at, (contacts, delay, bound)) in [(35, 200, 10), (130, 0, 50)].into_iter().enumerate() {
        for fault in Fault::ALL {
            for step in 0.. {
                let mut fixture = Fixture::new(contacts, |to, _| accepted(to));
                fixture.delay = Duration::milliseconds(delay);
                let failed = run_with_fault(&fixture, step, fault, false);
                run_to_the_end(&fixture);
                let unknown = fixture.count(SendStatus::Pending);
                assert!(unknown <= bound, "{fault:?} at step {step}: {unknown}");
                most[at] = unknown.max(most[at]);
                if !failed {
                    break;
                }
            }
        }
    }
    assert!(
        most[0] > 5 && most[1] > 20,
        "no step came close to the bounds: {most:?}"
    );
}

/// The second worker takes over from a crashed one and crashes too.
#[test]
fn second_crash_calls_no_contact_twice() {
    for seed in 100..140 {
        let mut rng = TestRng(seed);
        for _ in 0..40 {
            let fixture = fixture(seed);
            let faults = [(); 2].map(|()| (rng.below(30), Fault::ALL[rng.below(4)]));
            let case = format!("seed {seed}, {faults:?}");
            run_with_fault(&fixture, faults[0].0, faults[0].1, false);
            fixture.runs.expire();
            fixture.injector.inject_after(faults[1].0, faults[1].1);
            let second = fixture.dispatcher(SECOND);
            if let Some(Ok(Some(run))) = second.take().now_or_never() {
                let _ = second.run(run).now_or_never();
            }
            fixture.injector.disarm();
            run_to_the_end(&fixture);
            check(&fixture, &case);
            check_after_timeout(&fixture, &case);
        }
    }
}

#[tokio::test]
async fn failed_start_still_records_the_calls_that_were_made() {
    let fixture = Fixture::new(5, |to, _| accepted(to));
    // The steps are: inputs, claim, then start and call of each send. The start of the third send fails.
    fixture.injector.inject_after(6, Fault::ErrorBefore);
    fixture.dispatcher(FIRST).run(RUN).await.unwrap_err();
    assert_eq!(fixture.called_phones(), all_phones(2));
    assert_eq!(fixture.count(SendStatus::Sent), 2);
    // The worker still holds the run, and continues it at once.
    assert_eq!(fixture.run().await, over(5, 5, CampaignStatus::Completed));
    assert_eq!(fixture.called_phones(), all_phones(5));
}
