//! Tests of the dispatcher with an in-memory run store.

mod crashes;
mod fake_time;
mod faults;
mod files;
mod fixture;
mod holds;
mod offers;
mod overlaps;
mod queued_starts;
mod runs;
mod simulation;
mod stops;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use time::Duration;
use uuid::Uuid;

use crate::campaigns::{CampaignStatus, RunEnd, RunReport, Variables};
use crate::messaging::{Addressee, ErrorClass, OutboundTemplate, SendOutcome, SendStatus, TextParameter};
use crate::shared::{Event, NotificationKind, SendId};
use fixture::{Fixture, RUN, SECOND, accepted, failed, phone, run_blocked, throttled, too_fast, unknown};

/// The end of a run with `sent` accepted sends. After a cancel, the other sends are pending; otherwise they failed.
fn over(total: i64, sent: i64, status: CampaignStatus) -> RunEnd {
    RunEnd::Over(RunReport {
        total,
        sent,
        failed: (total - sent) * i64::from(status != CampaignStatus::Cancelled),
        simulated: false,
        status,
        waiting: 0,
        waiting_until: None,
        paused: false,
    })
}

fn paused(total: i64, sent: i64) -> RunEnd {
    let RunEnd::Over(mut report) = over(total, sent, CampaignStatus::Cancelled) else {
        unreachable!()
    };
    (report.status, report.paused) = (CampaignStatus::Sending, true);
    RunEnd::Over(report)
}

fn all_phones(contacts: usize) -> Vec<String> {
    (0..contacts).map(phone).collect()
}

#[tokio::test]
async fn run_calls_each_contact_once_and_records_in_batches() {
    let fixture = Fixture::new(23, |to, _| accepted(to));
    assert_eq!(fixture.run().await, over(23, 23, CampaignStatus::Completed));
    assert_eq!(fixture.called_phones(), all_phones(23));
    assert_eq!(
        (fixture.runs.claimed(), fixture.runs.recorded()),
        (vec![23], vec![10, 10, 3])
    );
    let state = fixture.runs.tables();
    let [Event::Notification(end), Event::Webhook(_)] = &state.events[..] else {
        panic!("{:?}", state.events)
    };
    assert_eq!(end.kind, NotificationKind::Success);
}

#[tokio::test]
async fn message_contains_the_send_id_and_the_values() {
    let fixture = Fixture::new(1, |to, _| accepted(to));
    fixture.runs.tables().run_mut().campaign.variables = Some(Variables([("2".into(), "{email|nada}".into())].into()));
    fixture.run().await;
    let expected = OutboundTemplate {
        send_id: SendId(Uuid::from_u128(1000)),
        to: Addressee::Phone(phone(0)),
        reply_to: None,
        template: "boas_vindas".into(),
        language: "pt_BR".into(),
        header: vec![],
        header_file: None,
        header_location: None,
        offer_expires_at: None,
        body: vec![TextParameter::numbered("Ana"), TextParameter::numbered("nada")],
        buttons: vec![],
        cards: vec![],
    };
    assert_eq!(fixture.messages(), [expected]);
}

#[tokio::test]
async fn failed_send_makes_the_run_partial() {
    let fixture = Fixture::new(12, |to, _| if to == phone(4) { failed() } else { accepted(to) });
    assert_eq!(fixture.run().await, over(12, 11, CampaignStatus::Partial));
    assert_eq!(fixture.called_phones().len(), 12);
    assert_eq!(fixture.row(4).error, Some((Some(131_026), "undeliverable".into())));
}

#[tokio::test]
async fn simulated_run_makes_no_call_and_never_waits() {
    let fixture = Fixture::new(1200, |to, _| accepted(to)).simulated();
    let RunEnd::Over(report) = fixture.run().await else {
        panic!()
    };
    assert_eq!(
        (report.sent, report.status, report.simulated),
        (1200, CampaignStatus::Sent, true)
    );
    assert_eq!(
        (
            fixture.called_phones().len(),
            fixture.reserved_bursts().len(),
            fixture.rests().len()
        ),
        (0, 0, 0)
    );
    assert_eq!(fixture.runs.claimed(), [1000, 200]);
}

#[tokio::test]
async fn throttled_send_is_retried_after_its_wait() {
    let fixture = Fixture::new(3, |to, call| {
        if to == phone(1) && call < 2 {
            throttled()
        } else {
            accepted(to)
        }
    });
    assert_eq!(fixture.run().await, over(3, 3, CampaignStatus::Completed));
    assert_eq!(
        fixture.called_phones(),
        [phone(0), phone(1), phone(2), phone(1), phone(1)]
    );
    assert_eq!((fixture.rests(), fixture.row(1).attempts), (vec![1, 2], 2));
}

#[tokio::test]
async fn throttled_send_fails_after_the_last_retry() {
    let fixture = Fixture::new(2, |to, _| if to == phone(1) { throttled() } else { accepted(to) });
    assert_eq!(fixture.run().await, over(2, 1, CampaignStatus::Partial));
    assert_eq!(fixture.outcomes_by_phone()[&phone(1)].len(), 6);
    assert_eq!(
        fixture.rests(),
        [1, 2, 4, 8, 10, 6],
        "the dispatcher claims again after at most 10 s, to notice a cancel"
    );
    let (code, message) = fixture.row(1).error.unwrap();
    assert_eq!(code, Some(80_007));
    assert!(message.starts_with("gave up after 5 retries"), "{message}");
}

/// Each send is throttled more often than `MAX_RETRIES`, and is sent anyway.
#[tokio::test]
async fn number_over_its_rate_slows_down_and_fails_no_send() {
    let fixture = Fixture::new(30, |to, call| if call < 20 { too_fast() } else { accepted(to) }).per_second(200);
    assert_eq!(fixture.run().await, over(30, 30, CampaignStatus::Completed));
    assert!(
        fixture
            .outcomes_by_phone()
            .values()
            .all(|outcomes| outcomes.len() == 21)
    );
    assert!((0..30).all(|at| fixture.row(at).attempts == 0));
    let slowed = fixture.slowed();
    assert!(
        slowed.len() > 10 && slowed.iter().all(|rate| *rate == 200.0),
        "{slowed:?}"
    );
    let (_, last) = fixture.reserved_bursts().last().cloned().unwrap();
    assert_eq!((last.messages, last.time), (1, Duration::SECOND));
}

#[tokio::test]
async fn run_of_a_number_that_may_send_nothing_pauses() {
    let fixture = Fixture::new(10, |_, _| too_fast());
    assert_eq!(fixture.run().await, paused(10, 0));
    assert!(
        fixture.called_phones().len() >= 5000,
        "{}",
        fixture.called_phones().len()
    );
    let reason = fixture.runs.tables().campaign().pause_reason.clone().unwrap();
    assert!(reason.contains("throttled"), "{reason}");
    assert_eq!(fixture.count(SendStatus::Pending), 10);
}

#[tokio::test]
async fn send_with_unknown_outcome_is_never_called_again() {
    let fixture = Fixture::new(3, |to, _| if to == phone(1) { unknown() } else { accepted(to) });
    assert_eq!(fixture.run().await, over(3, 2, CampaignStatus::Partial));
    assert_eq!(fixture.called_phones(), all_phones(3));
    let row = fixture.row(1);
    assert_eq!(
        (row.status, row.unknown_at.is_some(), row.started_at.is_some()),
        (SendStatus::Pending, true, true)
    );
    assert_eq!(fixture.take_over(SECOND).await, None);
}

#[tokio::test]
async fn blocked_run_pauses_and_makes_no_further_call() {
    let fixture = Fixture::new(12, |to, call| {
        if to == phone(2) && call == 0 {
            run_blocked()
        } else {
            accepted(to)
        }
    });
    assert_eq!(fixture.run().await, paused(12, 2));
    assert_eq!(fixture.called_phones(), all_phones(3));
    {
        let state = fixture.runs.tables();
        assert_eq!(
            state.campaign().pause_reason.as_deref(),
            Some("token expired (code 190)")
        );
        assert!(state.rows().skip(2).all(|row| row.waits() && row.attempts == 0));
        let [Event::Notification(notification)] = &state.events[..] else {
            panic!("{:?}", state.events)
        };
        assert_eq!(
            (notification.kind, &notification.data["reason"]),
            (NotificationKind::Warning, &"token expired (code 190)".into())
        );
    }
    assert_eq!(fixture.take_over(SECOND).await, None, "a paused run cannot be claimed");
    fixture.runs.resume();
    assert_eq!(
        fixture.take_over(SECOND).await,
        Some(over(12, 12, CampaignStatus::Completed))
    );
    assert_eq!(fixture.called_phones()[3..], all_phones(12)[2..]);
}

#[tokio::test]
async fn blocked_run_records_its_in_flight_sends() {
    let fixture = Fixture::new(10, |to, _| if to == phone(1) { run_blocked() } else { accepted(to) }).per_second(80);
    assert_eq!(fixture.run().await, paused(10, 7));
    assert_eq!(fixture.called_phones(), all_phones(8));
}

#[tokio::test]
async fn cancel_stops_further_calls() {
    // During the last call of a result batch, and in the middle of one.
    for last in [9, 3] {
        let fixture = Fixture::new(25, |to, _| accepted(to));
        let runs = fixture.runs.clone();
        fixture.during_call(last, move || runs.cancel());
        let sent = i64::try_from(last).unwrap() + 1;
        assert_eq!(fixture.run().await, over(25, sent, CampaignStatus::Cancelled));
        assert_eq!(fixture.called_phones(), all_phones(last + 1));
        assert_eq!(
            fixture.count(SendStatus::Sent),
            last + 1,
            "messages that left are recorded"
        );
        assert_eq!(fixture.runs.tables().events, []);
    }
}

#[tokio::test]
async fn cancel_during_the_last_call_wins() {
    let fixture = Fixture::new(3, |to, _| accepted(to));
    let runs = fixture.runs.clone();
    fixture.during_call(2, move || runs.cancel());
    assert_eq!(fixture.run().await, over(3, 3, CampaignStatus::Cancelled));
}

#[tokio::test]
async fn stopping_server_hands_over_and_each_contact_is_called_once() {
    for granted in [0, 4, 10] {
        let fixture = Fixture::new(15, |to, _| accepted(to));
        fixture.stop_after(Some(granted));
        assert_eq!(fixture.run().await, RunEnd::HandedOver);
        assert_eq!(fixture.called_phones(), all_phones(granted));
        assert_eq!(
            (
                fixture.count(SendStatus::Sent),
                fixture.runs.tables().holder(RUN.campaign_id)
            ),
            (granted, None)
        );
        fixture.stop_after(None);
        assert_eq!(
            fixture.take_over(SECOND).await,
            Some(over(15, 15, CampaignStatus::Completed))
        );
        assert_eq!(fixture.called_phones(), all_phones(15));
    }
}

#[tokio::test]
async fn send_started_but_not_called_at_a_stop_is_due_again() {
    let fixture = Fixture::new(15, |to, _| accepted(to));
    fixture.stop_before_departure(4);
    assert_eq!(fixture.run().await, RunEnd::HandedOver);
    assert_eq!(
        (fixture.called_phones(), fixture.row(3).started_at.is_some()),
        (all_phones(3), false)
    );
    fixture.restart();
    assert_eq!(
        fixture.take_over(SECOND).await,
        Some(over(15, 15, CampaignStatus::Completed))
    );
    assert_eq!(fixture.called_phones(), all_phones(15));
}

#[tokio::test]
async fn run_yields_to_a_waiting_run() {
    let fixture = Fixture::new(120, |to, _| accepted(to));
    let fixture_copy = fixture.clone();
    fixture.during_call(60, move || fixture_copy.request_yield());
    assert_eq!(fixture.run().await, RunEnd::HandedOver);
    assert_eq!(
        (fixture.called_phones(), fixture.count(SendStatus::Sent)),
        (all_phones(61), 61)
    );
    assert_eq!(
        fixture.take_over(SECOND).await,
        Some(over(120, 120, CampaignStatus::Completed))
    );
}

#[tokio::test]
async fn unreachable_contact_fails_without_a_call() {
    let fixture = Fixture::new(4, |to, _| accepted(to));
    {
        let mut state = fixture.runs.tables();
        state.contact_mut(0).opted_out = true;
        state.contact_mut(2).recipient.name = "  ".into();
    }
    assert_eq!(fixture.run().await, over(4, 2, CampaignStatus::Partial));
    assert_eq!(fixture.called_phones(), [phone(1), phone(3)]);
    let message = |at| fixture.row(at).error.unwrap().1;
    assert_eq!(
        message(0),
        "the contact was deleted, or opted out, before the message left"
    );
    assert_eq!(message(2), "a placeholder is empty for this contact");
}

#[tokio::test]
async fn run_with_only_failures_calls_every_contact() {
    let fixture = Fixture::new(300, |_, _| failed());
    assert_eq!(fixture.run().await, over(300, 0, CampaignStatus::Partial));
    assert_eq!(fixture.called_phones(), all_phones(300));
    assert_eq!(fixture.count(SendStatus::Failed), 300);
    let state = fixture.runs.tables();
    assert_eq!(state.usage(), (0, 0));
    assert!(
        matches!(&state.events[..], [Event::Notification(notification), Event::Webhook(_)]
        if notification.message == "0 messages were sent, 300 were not.")
    );
}

/// WhatsApp rejects every recipient but `accepted_at` with an error of this class, while `rejects` is true.
fn rejecting(contacts: usize, class: ErrorClass, accepted_at: usize, rejects: &Arc<AtomicBool>) -> Fixture {
    let rejects = rejects.clone();
    Fixture::new(contacts, move |to, _| {
        if to == phone(accepted_at) || !rejects.load(Ordering::Relaxed) {
            return accepted(to);
        }
        SendOutcome::Failed {
            code: 1,
            class,
            message: "refused".into(),
        }
    })
}

#[tokio::test]
async fn run_pauses_after_a_thousand_rejections_and_resumes() {
    let rejects = Arc::new(AtomicBool::new(true));
    // The accepted message resets the count of rejections.
    let fixture = rejecting(1300, ErrorClass::InvalidMessage, 20, &rejects);
    let RunEnd::Over(report) = fixture.run().await else {
        panic!()
    };
    assert_eq!((report.status, report.paused), (CampaignStatus::Sending, true));
    assert_eq!(fixture.called_phones(), all_phones(1021));
    assert_eq!(
        (fixture.count(SendStatus::Failed), fixture.runs.tables().usage()),
        (1020, (1, 279))
    );
    let events = fixture.runs.tables().events.clone();
    let [Event::Notification(notification)] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(notification.kind, NotificationKind::Warning);
    assert!(
        notification
            .message
            .contains("1000 messages in a row were refused: refused"),
        "{notification:?}"
    );
    rejects.store(false, Ordering::Relaxed);
    fixture.runs.resume();
    let end = fixture.take_over(SECOND).await;
    assert_eq!(end, Some(over(1300, 280, CampaignStatus::Partial)));
    assert_eq!(fixture.called_phones(), all_phones(1300), "no send is repeated");
}

#[tokio::test]
async fn run_never_pauses_for_recipient_errors() {
    let fixture = rejecting(
        1300,
        ErrorClass::RecipientUnreachable,
        1299,
        &Arc::new(AtomicBool::new(true)),
    );
    assert_eq!(fixture.run().await, over(1300, 1, CampaignStatus::Partial));
    assert_eq!(fixture.called_phones(), all_phones(1300));
}

#[tokio::test]
async fn run_pauses_after_twenty_rejected_parameters() {
    for class in [ErrorClass::ParameterFormat, ErrorClass::ParameterText] {
        let fixture_of = |contacts| rejecting(contacts, class, 19, &Arc::new(AtomicBool::new(true)));
        let fixture = fixture_of(39);
        assert_eq!(fixture.run().await, over(39, 1, CampaignStatus::Partial));
        assert_eq!(fixture.row(0).error, Some((Some(1), "refused".into())));
        let fixture = fixture_of(60);
        let RunEnd::Over(report) = fixture.run().await else {
            panic!()
        };
        assert!(report.paused);
        assert_eq!(fixture.called_phones(), all_phones(40));
        let reason = fixture.runs.tables().campaign().pause_reason.clone().unwrap();
        assert!(reason.contains("parameters of the last 20 messages"), "{reason}");
    }
}

#[tokio::test]
async fn contact_that_opts_out_after_the_claim_is_not_called() {
    let fixture = Fixture::new(12, |to, _| accepted(to));
    let runs = fixture.runs.clone();
    fixture.during_call(3, move || runs.tables().contact_mut(6).opted_out = true);
    assert_eq!(fixture.run().await, over(12, 11, CampaignStatus::Partial));
    assert!(!fixture.called_phones().contains(&phone(6)));
    assert!(fixture.row(6).error.unwrap().1.contains("opted out"));
}

#[tokio::test]
async fn each_burst_reserves_a_slot_of_its_number() {
    let burst_times_and_calls = async |fixture: Fixture| {
        fixture.run().await;
        let reserved = fixture.reserved_bursts();
        assert!(reserved.iter().all(|(number, _)| number == "1065"));
        let times: Vec<i64> = reserved
            .iter()
            .map(|(_, burst)| i64::try_from(burst.time.whole_milliseconds()).unwrap())
            .collect();
        (times, fixture.called_phones().len())
    };
    let fixture = |contacts| Fixture::new(contacts, |to, _| accepted(to));
    assert_eq!(burst_times_and_calls(fixture(12)).await, (vec![200; 12], 12));
    let with_rate = burst_times_and_calls(fixture(12).per_second(80)).await;
    assert_eq!(with_rate, (vec![103; 2], 12));
    let with_highest_rate = burst_times_and_calls(fixture(60).per_second(1000)).await;
    assert_eq!(with_highest_rate, (vec![25; 3], 60));
    let mut unlimited = fixture(60);
    unlimited.delay = Duration::ZERO;
    assert_eq!(burst_times_and_calls(unlimited).await, (vec![], 60));
}

#[tokio::test]
async fn missed_send_slot_is_replaced() {
    let slots_at_rate = async |rate, contacts: usize, (first, late, next_fails)| {
        let fixture = Fixture::new(contacts, |to, _| accepted(to)).per_second(rate);
        fixture.miss_slots(first, Duration::milliseconds(late), next_fails);
        fixture.run().await;
        assert_eq!(fixture.called_phones(), all_phones(contacts));
        fixture.waited_slots()
    };
    let slots = async |first, late, next_fails| slots_at_rate(1000, 50, (first, late, next_fails)).await;
    assert_eq!(slots(1, 10, false).await, [1, 2], "SLOT_TOLERANCE is not exceeded");
    assert_eq!(slots(1, 11, false).await, [1, 2, 3, 4], "the second slot is in time");
    assert_eq!(
        slots(5, 11, false).await,
        [1, 2, 3, 4, 5, 6],
        "at most two more slots are reserved"
    );
    assert_eq!(slots(1, 11, true).await, [1, 3], "started sends leave");
    let missed = (1, 11, false);
    assert_eq!(slots_at_rate(10, 2, missed).await, [1, 2, 3, 4]);
    assert_eq!(slots_at_rate(9, 2, missed).await, [1, 2], "the next slot is far away");
}

#[tokio::test]
async fn slow_send_rate_claims_ten_seconds_of_messages() {
    for (delay, claimed) in [(1, vec![10, 2]), (4, vec![2; 6]), (60, vec![1; 12])] {
        let mut fixture = Fixture::new(12, |to, _| accepted(to));
        fixture.delay = Duration::seconds(delay);
        assert_eq!(fixture.run().await, over(12, 12, CampaignStatus::Completed));
        assert_eq!(fixture.runs.claimed(), claimed);
    }
}
