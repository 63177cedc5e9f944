//! Carrying runs out, against a run store in memory: what each part of a run does, and what it never does.

mod crashes;
mod faults;
mod files;
mod fixture;
mod overlaps;
mod queued_starts;
mod rows;
mod runs;
mod simulation;
mod stops;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use time::Duration;
use uuid::Uuid;

use super::{CampaignStatus, RunEnd, RunReport, SendOutcome, SendStatus, Variables};
use crate::shared::{Event, NotificationKind, SendId};
use crate::templates::TextParameter;
use crate::whatsapp::OutboundTemplate;
use faults::Fault;
use fixture::{FIRST, Fixture, RUN, SECOND, accepted, failed, phone, run_blocked, throttled, too_fast, unknown};

/// A cancel leaves sends untried; every other end fails them.
fn over(total: i64, sent: i64, status: CampaignStatus) -> RunEnd {
    RunEnd::Over(RunReport {
        total,
        sent,
        failed: (total - sent) * i64::from(status != CampaignStatus::Cancelled),
        simulated: false,
        status,
        paused: false,
    })
}

fn paused(total: i64, sent: i64) -> RunEnd {
    RunEnd::Over(RunReport {
        total,
        sent,
        failed: 0,
        simulated: false,
        status: CampaignStatus::Sending,
        paused: true,
    })
}

fn all_phones(contacts: usize) -> Vec<String> {
    (0..contacts).map(phone).collect()
}

#[tokio::test]
async fn everybody_is_written_to_once_and_results_are_written_ten_at_a_time() {
    let fixture = Fixture::new(23, |to, _| accepted(to));
    assert_eq!(fixture.carry_out().await, over(23, 23, CampaignStatus::Completed));
    assert_eq!(fixture.called(), all_phones(23));
    let state = fixture.runs.state();
    assert_eq!((&state.claimed[..], &state.recorded[..]), (&[23][..], &[10, 10, 3][..]));
    let [Event::Notification(end), Event::Webhook(_)] = &state.events[..] else {
        panic!("{:?}", state.events)
    };
    assert_eq!(end.kind, NotificationKind::Success);
}

#[tokio::test]
async fn the_message_bears_the_send_and_the_values() {
    let fixture = Fixture::new(1, |to, _| accepted(to));
    fixture.runs.state().campaign_mut().variables = Some(Variables([("2".into(), "{email|nada}".into())].into()));
    fixture.carry_out().await;
    let expected = OutboundTemplate {
        send_id: SendId(Uuid::from_u128(1000)),
        to: phone(0),
        template: "boas_vindas".into(),
        language: "pt_BR".into(),
        header: vec![],
        header_file: None,
        body: vec![TextParameter::numbered("Ana"), TextParameter::numbered("nada")],
        buttons: vec![],
        cards: vec![],
    };
    assert_eq!(fixture.messages(), [expected]);
}

#[tokio::test]
async fn a_refused_send_fails_alone_and_the_run_is_partial() {
    let fixture = Fixture::new(12, |to, _| if to == phone(4) { failed() } else { accepted(to) });
    assert_eq!(fixture.carry_out().await, over(12, 11, CampaignStatus::Partial));
    assert_eq!(fixture.called().len(), 12);
    assert_eq!(fixture.row(4).error, Some((Some(131_026), "undeliverable".into())));
}

#[tokio::test]
async fn a_simulated_run_calls_nobody_and_waits_for_nothing() {
    let fixture = Fixture::new(1200, |to, _| accepted(to)).simulated();
    let RunEnd::Over(report) = fixture.carry_out().await else {
        panic!()
    };
    assert_eq!(
        (report.sent, report.status, report.simulated),
        (1200, CampaignStatus::Sent, true)
    );
    assert_eq!(
        (fixture.called().len(), fixture.asked().len(), fixture.rests().len()),
        (0, 0, 0)
    );
    assert_eq!(fixture.runs.state().claimed, [1000, 200]);
}

#[tokio::test]
async fn what_was_throttled_is_tried_again_after_its_wait() {
    let fixture = Fixture::new(3, |to, call| {
        if to == phone(1) && call < 2 {
            throttled()
        } else {
            accepted(to)
        }
    });
    assert_eq!(fixture.carry_out().await, over(3, 3, CampaignStatus::Completed));
    assert_eq!(fixture.called(), [phone(0), phone(1), phone(2), phone(1), phone(1)]);
    assert_eq!((fixture.rests(), fixture.row(1).attempts), (vec![1, 2], 2));
}

#[tokio::test]
async fn throttling_that_does_not_end_fails_the_send_after_five_retries() {
    let fixture = Fixture::new(2, |to, _| if to == phone(1) { throttled() } else { accepted(to) });
    assert_eq!(fixture.carry_out().await, over(2, 1, CampaignStatus::Partial));
    assert_eq!(fixture.ledger()[&phone(1)].len(), 6);
    assert_eq!(
        fixture.rests(),
        [1, 2, 4, 8, 10, 6],
        "a wait is cut at 10 s, to look for a cancel"
    );
    let (code, message) = fixture.row(1).error.unwrap();
    assert_eq!(code, Some(80_007));
    assert!(message.starts_with("gave up after 5 retries"), "{message}");
}

/// Every send is throttled far more often than it may be tried again, and is sent all the same.
#[tokio::test]
async fn number_over_its_rate_slows_down_and_fails_no_send() {
    let fixture = Fixture::new(30, |to, call| if call < 20 { too_fast() } else { accepted(to) }).per_second(200);
    assert_eq!(fixture.carry_out().await, over(30, 30, CampaignStatus::Completed));
    assert!(fixture.ledger().values().all(|outcomes| outcomes.len() == 21));
    assert!((0..30).all(|at| fixture.row(at).attempts == 0));
    let slowed = fixture.slowed();
    assert!(
        slowed.len() > 10 && slowed.iter().all(|rate| *rate == 200.0),
        "{slowed:?}"
    );
    let (_, last) = fixture.asked().last().cloned().unwrap();
    assert_eq!((last.messages, last.time), (1, Duration::SECOND));
}

#[tokio::test]
async fn a_number_that_may_send_nothing_pauses_its_run() {
    let fixture = Fixture::new(10, |_, _| too_fast());
    assert_eq!(fixture.carry_out().await, paused(10, 0));
    assert!(fixture.called().len() >= 5000, "{}", fixture.called().len());
    let reason = fixture.runs.state().campaign().pause_reason.clone().unwrap();
    assert!(reason.contains("throttled"), "{reason}");
    assert_eq!(fixture.count(SendStatus::Pending), 10);
}

#[tokio::test]
async fn an_unknown_outcome_is_never_called_again() {
    let fixture = Fixture::new(3, |to, _| if to == phone(1) { unknown() } else { accepted(to) });
    assert_eq!(fixture.carry_out().await, over(3, 2, CampaignStatus::Partial));
    assert_eq!(fixture.called(), all_phones(3));
    let row = fixture.row(1);
    assert_eq!(
        (row.status, row.unknown, row.started),
        (SendStatus::Pending, true, true)
    );
    assert_eq!(fixture.take_over(SECOND).await, None);
}

#[tokio::test]
async fn what_concerns_the_run_pauses_it_and_nobody_else_is_called() {
    let fixture = Fixture::new(12, |to, call| {
        if to == phone(2) && call == 0 {
            run_blocked()
        } else {
            accepted(to)
        }
    });
    assert_eq!(fixture.carry_out().await, paused(12, 2));
    assert_eq!(fixture.called(), all_phones(3));
    {
        let state = fixture.runs.state();
        assert_eq!(
            state.campaign().pause_reason.as_deref(),
            Some("token expired (code 190)")
        );
        assert!(state.rows[2..].iter().all(|row| !row.started && row.attempts == 0));
        let [Event::Notification(told)] = &state.events[..] else {
            panic!("{:?}", state.events)
        };
        assert_eq!(
            (told.kind, &told.data["reason"]),
            (NotificationKind::Warning, &"token expired (code 190)".into())
        );
    }
    assert_eq!(
        fixture.take_over(SECOND).await,
        None,
        "a paused run is nobody's to take"
    );
    fixture.runs.resume();
    assert_eq!(
        fixture.take_over(SECOND).await,
        Some(over(12, 12, CampaignStatus::Completed))
    );
    assert_eq!(fixture.called()[3..], all_phones(12)[2..]);
}

#[tokio::test]
async fn what_was_in_flight_beside_a_run_block_is_recorded() {
    let fixture = Fixture::new(10, |to, _| if to == phone(1) { run_blocked() } else { accepted(to) }).per_second(80);
    assert_eq!(fixture.carry_out().await, paused(10, 7));
    assert_eq!(fixture.called(), all_phones(8));
}

#[tokio::test]
async fn after_a_cancel_nothing_leaves() {
    // While the last call of a batch is under way, and in the middle of one.
    for last in [9, 3] {
        let fixture = Fixture::new(25, |to, _| accepted(to));
        let runs = fixture.runs.clone();
        fixture.during_call(last, move || runs.cancel());
        let sent = i64::try_from(last).unwrap() + 1;
        assert_eq!(fixture.carry_out().await, over(25, sent, CampaignStatus::Cancelled));
        assert_eq!(fixture.called(), all_phones(last + 1));
        assert_eq!(
            fixture.count(SendStatus::Sent),
            last + 1,
            "what left is recorded all the same"
        );
        assert_eq!(fixture.runs.state().events, []);
    }
}

#[tokio::test]
async fn a_cancel_during_the_last_call_wins() {
    let fixture = Fixture::new(3, |to, _| accepted(to));
    let runs = fixture.runs.clone();
    fixture.during_call(2, move || runs.cancel());
    assert_eq!(fixture.carry_out().await, over(3, 3, CampaignStatus::Cancelled));
}

#[tokio::test]
async fn a_stopping_server_hands_over_and_nobody_is_forgotten_or_written_to_twice() {
    for granted in [0, 4, 10] {
        let fixture = Fixture::new(15, |to, _| accepted(to));
        fixture.stop_after(Some(granted));
        assert_eq!(fixture.carry_out().await, RunEnd::HandedOver);
        assert_eq!(fixture.called(), all_phones(granted));
        assert_eq!(
            (fixture.count(SendStatus::Sent), fixture.runs.state().holder),
            (granted, None)
        );
        fixture.stop_after(None);
        assert_eq!(
            fixture.take_over(SECOND).await,
            Some(over(15, 15, CampaignStatus::Completed))
        );
        assert_eq!(fixture.called(), all_phones(15));
    }
}

#[tokio::test]
async fn what_was_started_when_the_server_stops_and_did_not_leave_is_due_again() {
    let fixture = Fixture::new(15, |to, _| accepted(to));
    fixture.stop_before_departure(4);
    assert_eq!(fixture.carry_out().await, RunEnd::HandedOver);
    assert_eq!((fixture.called(), fixture.row(3).started), (all_phones(3), false));
    fixture.restart();
    assert_eq!(
        fixture.take_over(SECOND).await,
        Some(over(15, 15, CampaignStatus::Completed))
    );
    assert_eq!(fixture.called(), all_phones(15));
}

#[tokio::test]
async fn a_run_makes_room_for_one_that_waits() {
    let fixture = Fixture::new(120, |to, _| accepted(to));
    let crowding = fixture.clone();
    fixture.during_call(60, move || crowding.request_yield());
    assert_eq!(fixture.carry_out().await, RunEnd::HandedOver);
    assert_eq!(
        (fixture.called(), fixture.count(SendStatus::Sent)),
        (all_phones(61), 61)
    );
    assert_eq!(
        fixture.take_over(SECOND).await,
        Some(over(120, 120, CampaignStatus::Completed))
    );
}

#[tokio::test]
async fn a_contact_that_cannot_be_written_to_fails_without_a_call() {
    let fixture = Fixture::new(4, |to, _| accepted(to));
    {
        let mut state = fixture.runs.state();
        state.rows[0].recipient = None;
        state.rows[2].recipient.as_mut().unwrap().name = "  ".into();
    }
    assert_eq!(fixture.carry_out().await, over(4, 2, CampaignStatus::Partial));
    assert_eq!(fixture.called(), [phone(1), phone(3)]);
    let message = |at| fixture.row(at).error.unwrap().1;
    assert_eq!(
        message(0),
        "the contact was deleted, or opted out, before the message left"
    );
    assert_eq!(message(2), "a placeholder is empty for this contact");
}

#[tokio::test]
async fn a_run_that_everybody_refuses_tries_everybody() {
    let fixture = Fixture::new(300, |_, _| failed());
    assert_eq!(fixture.carry_out().await, over(300, 0, CampaignStatus::Partial));
    assert_eq!(fixture.called(), all_phones(300));
    assert_eq!(fixture.count(SendStatus::Failed), 300);
    let state = fixture.runs.state();
    assert_eq!(state.usage, (0, 0));
    assert!(
        matches!(&state.events[..], [Event::Notification(told), Event::Webhook(_)]
        if told.message == "0 messages were sent, 300 were not.")
    );
}

/// Refuses everybody but one recipient with this code, as long as `refusing` says so.
fn refusing(contacts: usize, code: i64, accepts: usize, refusing: &Arc<AtomicBool>) -> Fixture {
    let refusing = refusing.clone();
    Fixture::new(contacts, move |to, _| {
        if to == phone(accepts) || !refusing.load(Ordering::Relaxed) {
            return accepted(to);
        }
        SendOutcome::Failed {
            code,
            message: "refused".into(),
        }
    })
}

#[tokio::test]
async fn a_thousand_refusals_in_a_row_pause_and_resume_goes_on() {
    let goes_wrong = Arc::new(AtomicBool::new(true));
    // The twentieth is reached, and so counting begins anew.
    let fixture = refusing(1300, 131_009, 20, &goes_wrong);
    let RunEnd::Over(report) = fixture.carry_out().await else {
        panic!()
    };
    assert_eq!((report.status, report.paused), (CampaignStatus::Sending, true));
    assert_eq!(fixture.called(), all_phones(1021));
    assert_eq!(
        (fixture.count(SendStatus::Failed), fixture.runs.state().usage),
        (1020, (1, 279))
    );
    let events = fixture.runs.state().events.clone();
    let [Event::Notification(told)] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(told.kind, NotificationKind::Warning);
    assert!(
        told.message.contains("1000 messages in a row were refused: refused"),
        "{told:?}"
    );
    goes_wrong.store(false, Ordering::Relaxed);
    fixture.runs.resume();
    let end = fixture.take_over(SECOND).await;
    assert_eq!(end, Some(over(1300, 280, CampaignStatus::Partial)));
    assert_eq!(fixture.called(), all_phones(1300), "no send is repeated");
}

#[tokio::test]
async fn refusals_of_recipients_never_pause_a_run() {
    let fixture = refusing(1300, 131_026, 1299, &Arc::new(AtomicBool::new(true)));
    assert_eq!(fixture.carry_out().await, over(1300, 1, CampaignStatus::Partial));
    assert_eq!(fixture.called(), all_phones(1300));
}

#[tokio::test]
async fn refused_parameters_fail_one_send_and_pause_after_twenty() {
    for code in [132_012, 132_018] {
        let wrong = |contacts| refusing(contacts, code, 19, &Arc::new(AtomicBool::new(true)));
        let fixture = wrong(39);
        assert_eq!(fixture.carry_out().await, over(39, 1, CampaignStatus::Partial));
        assert_eq!(fixture.row(0).error, Some((Some(code), "refused".into())));
        let fixture = wrong(60);
        let RunEnd::Over(report) = fixture.carry_out().await else {
            panic!()
        };
        assert!(report.paused);
        assert_eq!(fixture.called(), all_phones(40));
        let reason = fixture.runs.state().campaign().pause_reason.clone().unwrap();
        assert!(reason.contains("parameters of the last 20 messages"), "{reason}");
    }
}

#[tokio::test]
async fn who_opts_out_after_the_claim_is_not_called() {
    let fixture = Fixture::new(12, |to, _| accepted(to));
    let runs = fixture.runs.clone();
    fixture.during_call(3, move || runs.state().rows[6].recipient = None);
    assert_eq!(fixture.carry_out().await, over(12, 11, CampaignStatus::Partial));
    assert!(!fixture.called().contains(&phone(6)));
    assert!(fixture.row(6).error.unwrap().1.contains("opted out"));
}

#[tokio::test]
async fn each_burst_reserves_a_slot_of_its_number() {
    let asked = async |fixture: Fixture| {
        fixture.carry_out().await;
        let asked = fixture.asked();
        assert!(asked.iter().all(|(number, _)| number == "1065"));
        let times: Vec<i64> = asked
            .iter()
            .map(|(_, burst)| i64::try_from(burst.time.whole_milliseconds()).unwrap())
            .collect();
        (times, fixture.called().len())
    };
    let fixture = |contacts| Fixture::new(contacts, |to, _| accepted(to));
    assert_eq!(asked(fixture(12)).await, (vec![200; 12], 12));
    assert_eq!(asked(fixture(12).per_second(80)).await, (vec![103; 2], 12));
    assert_eq!(asked(fixture(60).per_second(1000)).await, (vec![25; 3], 60));
    let mut unlimited = fixture(60);
    unlimited.delay = Duration::ZERO;
    assert_eq!(asked(unlimited).await, (vec![], 60));
}

#[tokio::test]
async fn a_slot_that_was_missed_is_not_used() {
    let waited_at = async |rate, contacts: usize, (first, late, no_other)| {
        let fixture = Fixture::new(contacts, |to, _| accepted(to)).per_second(rate);
        fixture.miss_slots(first, Duration::milliseconds(late), no_other);
        fixture.carry_out().await;
        assert_eq!(fixture.called(), all_phones(contacts));
        fixture.waited_for()
    };
    let waited = async |first, late, no_other| waited_at(1000, 50, (first, late, no_other)).await;
    assert_eq!(waited(1, 10, false).await, [1, 2], "a little does not matter");
    assert_eq!(waited(1, 11, false).await, [1, 2, 3, 4], "the second one is in time");
    assert_eq!(
        waited(5, 11, false).await,
        [1, 2, 3, 4, 5, 6],
        "but it is not tried for ever"
    );
    assert_eq!(waited(1, 11, true).await, [1, 3], "what was started leaves");
    let missed = (1, 11, false);
    assert_eq!(waited_at(10, 2, missed).await, [1, 2, 3, 4]);
    assert_eq!(waited_at(9, 2, missed).await, [1, 2], "the next slot is far away");
}

#[tokio::test]
async fn a_slow_send_rate_claims_what_leaves_in_ten_seconds() {
    for (delay, claimed) in [(1, vec![10, 2]), (4, vec![2; 6]), (60, vec![1; 12])] {
        let mut fixture = Fixture::new(12, |to, _| accepted(to));
        fixture.delay = Duration::seconds(delay);
        assert_eq!(fixture.carry_out().await, over(12, 12, CampaignStatus::Completed));
        assert_eq!(fixture.runs.state().claimed, claimed);
    }
}

#[tokio::test]
async fn a_run_without_its_number_waits_for_somebody() {
    let unreadable = Fixture::new(3, |to, _| accepted(to));
    let end = unreadable.dispatcher_with(FIRST, false).carry_out(RUN).await.unwrap();
    let disconnected = Fixture::new(3, |to, _| accepted(to));
    disconnected.runs.state().inputs.as_mut().unwrap().profile = None;
    assert_eq!((end, disconnected.carry_out().await), (paused(3, 0), paused(3, 0)));
    for fixture in [unreadable, disconnected] {
        assert_eq!(fixture.called().len(), 0);
        let (state, reason) = (fixture.runs.state(), "the WhatsApp number is not connected any more");
        assert_eq!(state.campaign().pause_reason.as_deref(), Some(reason));
        assert!(matches!(&state.events[..], [Event::Notification(told)] if told.kind == NotificationKind::Warning));
    }
}

#[tokio::test]
async fn a_campaign_that_is_gone_is_nothing_to_carry_out() {
    let removed = Fixture::new(3, |to, _| accepted(to));
    removed.runs.state().inputs = None;
    assert_eq!(removed.carry_out().await, RunEnd::Gone);
}

#[tokio::test]
async fn a_failing_store_does_not_lose_what_it_can_still_be_told() {
    let fixture = Fixture::new(5, |to, _| accepted(to));
    // inputs, claim; then for each send the mark and the call: the mark of the third one fails.
    fixture.fuse.set(6, Fault::ErrorBefore);
    fixture.dispatcher(FIRST).carry_out(RUN).await.unwrap_err();
    assert_eq!(fixture.called(), all_phones(2));
    assert_eq!(fixture.count(SendStatus::Sent), 2);
    // The worker still holds the run, and may go on with it at once.
    assert_eq!(fixture.carry_out().await, over(5, 5, CampaignStatus::Completed));
    assert_eq!(fixture.called(), all_phones(5));
}
