//! Overlapping workers: a lease expires during a call, and another worker takes the run.

use futures_util::FutureExt;
use uuid::Uuid;

use super::crashes::{check, check_after_timeout, fixture, run_to_the_end};
use super::faults::Fault;
use super::fixture::{FIRST, Fixture, RUN, SECOND, THIRD, accepted, phone, run_blocked, unknown};
use crate::campaigns::RunEnd;
use crate::messaging::SendStatus;
use crate::simulation::rng::TestRng;

/// During the first worker's call, its lease expires and `second_worker` executes the run until `fault`.
fn take_over_during_call(fixture: &Fixture, second_worker: Uuid, call: usize, fault: Option<(usize, Fault)>) {
    let fixture_copy = fixture.clone();
    fixture.during_call(call, move || {
        fixture_copy.runs.expire();
        let second = fixture_copy.dispatcher(second_worker);
        if let Some(Ok(Some(run))) = second.take().now_or_never() {
            if let Some((step, fault)) = fault {
                fixture_copy.injector.inject_after(step, fault);
            }
            let _ = second.run(run).now_or_never();
            fixture_copy.injector.disarm();
        }
    });
}

#[tokio::test]
async fn worker_that_lost_its_run_only_records_its_calls() {
    let fixture = Fixture::new(15, |to, _| accepted(to));
    let runs = fixture.runs.clone();
    fixture.during_call(3, move || {
        runs.expire();
        // Another worker holds the run and has not started a send.
        runs.tables().entry_mut(RUN.campaign_id).unwrap().worker = Some(THIRD);
    });
    assert_eq!(fixture.run().await, RunEnd::HandedOver);
    assert_eq!(fixture.called_phones().len(), 4);
    assert_eq!(fixture.count(SendStatus::Sent), 4);
}

/// The first worker's late results must not make due again the sends that the second worker has called.
#[tokio::test]
async fn late_results_release_only_sends_of_their_worker() {
    let fixture = Fixture::new(4, |to, call| match to {
        to if to == phone(0) && call == 0 => run_blocked(),
        to if to == phone(1) => unknown(),
        to => accepted(to),
    });
    // After `take`, the steps are: inputs, claim, four for the first two sends. The second worker then dies in a call.
    take_over_during_call(&fixture, SECOND, 0, Some((5, Fault::KillAfter)));
    fixture.dispatcher(FIRST).run(RUN).await.unwrap();
    assert_eq!(fixture.called_phones(), [phone(0), phone(1), phone(2)]);
    fixture.runs.resume();
    run_to_the_end(&fixture);
    assert_eq!(
        fixture.called_phones(),
        [phone(0), phone(1), phone(2), phone(0), phone(3)]
    );
}

#[test]
fn overlapping_workers_call_no_contact_twice() {
    for seed in 200..260 {
        let mut rng = TestRng(seed);
        for round in 0..40 {
            let fixture = fixture(seed);
            let call = rng.below(12);
            let fault = (rng.below(3) > 0).then(|| (rng.below(25), Fault::ALL[rng.below(4)]));
            // Every claimed run has a new worker id. Even with a reused id, no contact is called twice.
            let second_worker = if round % 2 == 0 { FIRST } else { SECOND };
            take_over_during_call(&fixture, second_worker, call, fault);
            if round % 4 < 2 {
                fixture.stop_after(Some(rng.below(12)));
            }
            let _ = fixture.dispatcher(FIRST).run(RUN).now_or_never();
            fixture.stop_after(None);
            run_to_the_end(&fixture);
            let case = format!("seed {seed}, taken over at call {call}, then {fault:?}");
            check(&fixture, &case);
            check_after_timeout(&fixture, &case);
        }
    }
}
