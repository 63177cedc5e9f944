//! A worker that was thought dead and is not: its lease ran out during a call, and another one has the run.

use futures_util::FutureExt;
use uuid::Uuid;

use super::super::{RunEnd, SendStatus};
use super::crashes::{TestRng, bring_to_an_end, check, check_after_the_time_limit, fixture};
use super::faults::Fault;
use super::fixture::{FIRST, Fixture, RUN, SECOND, THIRD, accepted, phone, run_blocked, unknown};

/// While the first worker's call is under way, its lease runs out, and another one has the run until `fault`.
fn overtake(fixture: &Fixture, other: Uuid, call: usize, fault: Option<(usize, Fault)>) {
    let world = fixture.clone();
    fixture.during_call(call, move || {
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

#[tokio::test]
async fn who_lost_the_run_calls_nobody_more_and_still_tells_what_left() {
    let fixture = Fixture::new(15, |to, _| accepted(to));
    let runs = fixture.runs.clone();
    fixture.during_call(3, move || {
        runs.expire();
        // Another worker has it, and has not begun yet.
        runs.state().holder = Some(THIRD);
    });
    assert_eq!(fixture.carry_out().await, RunEnd::HandedOver);
    assert_eq!(fixture.called().len(), 4);
    assert_eq!(fixture.count(SendStatus::Sent), 4);
}

/// The first worker's late report must not make due again what the second one has called meanwhile.
#[tokio::test]
async fn a_late_report_gives_back_only_what_the_worker_had_started() {
    let fixture = Fixture::new(4, |to, call| match to {
        to if to == phone(0) && call == 0 => run_blocked(),
        to if to == phone(1) => unknown(),
        to => accepted(to),
    });
    // take has passed; inputs, claim, four steps for the first two sends; then the second worker dies in a call.
    overtake(&fixture, SECOND, 0, Some((5, Fault::KillAfter)));
    fixture.dispatcher(FIRST).carry_out(RUN).await.unwrap();
    assert_eq!(fixture.called(), [phone(0), phone(1), phone(2)]);
    fixture.runs.resume();
    bring_to_an_end(&fixture);
    assert_eq!(fixture.called(), [phone(0), phone(1), phone(2), phone(0), phone(3)]);
}

#[test]
fn nobody_is_written_to_twice_however_workers_overlap() {
    for seed in 200..260 {
        let mut seeded = TestRng(seed);
        for round in 0..40 {
            let fixture = fixture(seed);
            let call = seeded.below(12);
            let fault = (seeded.below(3) > 0).then(|| (seeded.below(25), Fault::ALL[seeded.below(4)]));
            // Also under the same name, which no process goes by twice: even that writes to nobody twice.
            let other = if round % 2 == 0 { FIRST } else { SECOND };
            overtake(&fixture, other, call, fault);
            if round % 4 < 2 {
                fixture.stop_after(Some(seeded.below(12)));
            }
            let _ = fixture.dispatcher(FIRST).carry_out(RUN).now_or_never();
            fixture.stop_after(None);
            bring_to_an_end(&fixture);
            let story = format!("seed {seed}, overtaken at call {call}, then {fault:?}");
            check(&fixture, &story);
            check_after_the_time_limit(&fixture, &story);
        }
    }
}
