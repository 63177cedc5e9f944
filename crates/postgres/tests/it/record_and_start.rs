//! The statement that records results and starts sends, and the send rate of a number.

use recado_domain::callbacks::StatusUpdateStore as _;
use recado_domain::campaigns::{
    Burst, ClaimOutcome, ClaimPosition, PAIR_INTERVAL, QueuedRun, SendResult, SendSlotStore as _, SendStore as _,
};
use recado_domain::messaging::SendStatus;
use recado_domain::shared::{ContactId, SendId};
use recado_domain::whatsapp::ProfileStore as _;
use recado_postgres::{PgProfiles, PgSendSlots};
use time::Duration;
use uuid::Uuid;

use crate::status_updates::status_update;
use crate::support::{DbFixture, LEASE, id};
use crate::webhook_events::endpoint;
use crate::whatsapp::profile;

fn accepted(message: impl ToString) -> SendResult {
    SendResult::Sent {
        message_id: Some(message.to_string()),
        wa_id: None,
    }
}

async fn claim(
    fixture: &DbFixture,
    run: QueuedRun,
    worker: Uuid,
    after: Option<ContactId>,
    size: i64,
) -> Vec<ContactId> {
    let position = after.map(|after| ClaimPosition {
        after,
        in_flight: vec![],
    });
    match fixture.runs().claim(run, worker, position, size, LEASE).await.unwrap() {
        ClaimOutcome::Sends(sends) => sends.into_iter().map(|send| send.contact_id).collect(),
        unexpected => panic!("{unexpected:?}"),
    }
}

#[tokio::test]
async fn record_and_start_writes_results_and_starts_sends() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(6).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let first = fixture.in_flight(run, worker, 3).await;
    let ClaimOutcome::Sends(rest) = fixture.runs().claim(run, worker, None, 10, LEASE).await.unwrap() else {
        panic!()
    };
    let rest: Vec<SendId> = rest.iter().map(|send| send.id).collect();
    let results = [
        (first[0], accepted("m0")),
        (
            first[1],
            SendResult::Failed {
                code: Some(131_026),
                message: "no".into(),
            },
        ),
        (first[2], accepted("m2")),
    ];
    let started = fixture
        .runs()
        .record_and_start(run, worker, &results, &rest[..2])
        .await
        .unwrap();
    assert!(started.goes_on);
    assert_eq!(started.sends, rest[..2]);
    assert_eq!(fixture.usage().await, "2/3");
    fixture.assert_recount().await;
    let named = "SELECT string_agg(s.wa_message_id || (m.send_id = s.id), ' ' ORDER BY s.wa_message_id)
      FROM campaign_sends s JOIN sent_messages m ON m.account_id = s.account_id AND m.wa_message_id = s.wa_message_id
      WHERE s.status = 'sent' AND s.sent_at IS NOT NULL";
    assert_eq!(fixture.text(named).await.unwrap(), "m0true m2true");
    // A repetition, as after a lost response, changes nothing, and an unknown send is not started.
    let again = fixture
        .runs()
        .record_and_start(run, worker, &results, &[rest[0], rest[1], SendId(id())])
        .await
        .unwrap();
    assert_eq!(again.sends, []);
    assert_eq!(fixture.usage().await, "2/3");
    fixture.assert_recount().await;
}

#[tokio::test]
async fn record_and_start_reports_unreachable_contacts() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(4).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let contacts = claim(&fixture, run, worker, None, 10).await;
    for (contact, change) in contacts
        .iter()
        .zip(["opted_out_at = now()", "deleted_at = now()", "phone = NULL"])
    {
        fixture
            .sql(&format!("UPDATE contacts SET {change} WHERE id = '{contact}'"))
            .await;
    }
    let ClaimOutcome::Sends(sends) = fixture.runs().claim(run, worker, None, 10, LEASE).await.unwrap() else {
        panic!()
    };
    let ids: Vec<SendId> = sends.iter().map(|send| send.id).collect();
    let started = fixture.runs().record_and_start(run, worker, &[], &ids).await.unwrap();
    assert_eq!(started.sends, ids);
    assert_eq!(
        started
            .unreachable
            .into_iter()
            .collect::<std::collections::HashSet<_>>(),
        ids[..3].iter().copied().collect()
    );
}

#[tokio::test]
async fn record_and_start_is_one_transaction() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(4).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 2).await;
    let results: Vec<_> = sends.iter().map(|&send| (send, accepted(send))).collect();
    let started = fixture
        .runs()
        .record_and_start(run, worker, &results, &[])
        .await
        .unwrap();
    assert!(started.goes_on && started.sends.is_empty());
    let writers = "SELECT count(DISTINCT xmin::text) FROM (
        SELECT xmin FROM campaign_sends WHERE status = 'sent' UNION ALL SELECT xmin FROM sent_messages
        UNION ALL SELECT xmin FROM campaign_counter_slots WHERE sent <> 0
        UNION ALL SELECT xmin FROM message_usage_slots WHERE sent <> 0) w";
    assert_eq!(fixture.number(writers).await, 1);
}

/// A statement without a transaction must not record a result whose event is due.
#[tokio::test]
async fn events_of_recorded_sends_commit_with_them() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(4).await;
    endpoint(&fixture, fixture.account, "{message.sent}", true).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 2).await;
    let results: Vec<_> = sends.iter().map(|&send| (send, accepted(send))).collect();
    let record = || async { fixture.runs().record_and_start(run, worker, &results, &[]).await };
    fixture
        .sql("ALTER TABLE outbox_events ADD CONSTRAINT no_sent_events CHECK (payload ->> 'type' <> 'message.sent')")
        .await;
    record().await.unwrap_err();
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM campaign_sends WHERE status = 'sent'")
            .await,
        0
    );
    fixture
        .sql("ALTER TABLE outbox_events DROP CONSTRAINT no_sent_events")
        .await;
    assert!(record().await.unwrap().goes_on);
    let writers = "SELECT count(DISTINCT xmin::text) FROM (
        SELECT xmin FROM campaign_sends WHERE status = 'sent'
        UNION ALL SELECT xmin FROM outbox_events WHERE payload ->> 'type' = 'message.sent') w";
    assert_eq!(fixture.number(writers).await, 1);
    let events = "SELECT jsonb_array_length(payload -> 'items')::bigint FROM outbox_events
        WHERE payload ->> 'type' = 'message.sent'";
    assert_eq!(fixture.number(events).await, 2);
}

#[tokio::test]
async fn status_update_finds_its_send_by_message_id() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 3).await;
    let runs = fixture.runs();
    runs.record_and_start(run, worker, &[(sends[0], accepted("fast"))], &[])
        .await
        .unwrap();
    runs.record(run, &[(sends[1], accepted("slow"))]).await.unwrap();
    let batch = [
        status_update(None, "fast", SendStatus::Delivered),
        status_update(None, "slow", SendStatus::Delivered),
        status_update(None, "unknown", SendStatus::Delivered),
    ];
    fixture.status_updates().apply(fixture.account, &batch).await.unwrap();
    let delivered = fixture
        .number("SELECT count(*) FROM campaign_sends WHERE status = 'delivered'")
        .await;
    assert_eq!(delivered, 2);
    // Another account has no such message.
    let other_account = fixture.another_account().await;
    let unknown = fixture
        .status_updates()
        .apply(other_account, &batch[..1])
        .await
        .unwrap();
    assert_eq!(unknown.len(), 1);
}

#[tokio::test]
async fn claims_page_by_contact_and_restart_at_the_end() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(7).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let all = claim(&fixture, run, worker, None, 10).await;
    assert!(all.is_sorted() && all.len() == 7);
    assert_eq!(claim(&fixture, run, worker, Some(all[2]), 3).await, all[3..6]);
    // After the last contact, the claim restarts from the beginning.
    assert_eq!(claim(&fixture, run, worker, Some(all[6]), 10).await, all);
    // A send that is due for a retry comes first, regardless of its position.
    fixture
        .sql(&format!(
            "UPDATE campaign_sends SET retry_at = now() WHERE contact_id = '{}'",
            all[1]
        ))
        .await;
    assert_eq!(claim(&fixture, run, worker, Some(all[4]), 2).await, [all[1], all[5]]);
}

#[tokio::test]
async fn contact_is_not_messaged_twice_within_pair_interval() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    let profiles = PgProfiles::new(fixture.tenants.clone());
    let numbers = [profile("1"), profile("2")];
    for number in &numbers {
        profiles.insert(fixture.account, number, &[]).await.unwrap();
    }
    let (a, b) = (id(), id());
    let start_from = async |worker, number: usize| {
        let (campaign, run) = fixture.started(worker).await;
        let number = numbers[number].profile.id;
        fixture
            .sql(&format!(
                "UPDATE campaigns SET profile_id = '{number}' WHERE id = '{}'",
                campaign.id
            ))
            .await;
        run
    };
    let (first, same_number, other_number) = (start_from(a, 0).await, start_from(b, 0).await, start_from(b, 1).await);
    assert_eq!(fixture.in_flight(first, a, 2).await.len(), 2);
    assert_eq!(
        fixture.in_flight(other_number, b, 3).await.len(),
        3,
        "another number may send"
    );
    assert_eq!(
        fixture.in_flight(same_number, b, 3).await.len(),
        1,
        "only the contact without a recent message"
    );
    let ClaimOutcome::Wait(wait) = fixture.runs().claim(same_number, b, None, 3, LEASE).await.unwrap() else {
        panic!()
    };
    assert!(
        wait <= PAIR_INTERVAL && wait > PAIR_INTERVAL - Duration::seconds(3),
        "{wait}"
    );
    fixture
        .sql("UPDATE campaign_sends SET retry_at = now() - interval '1 second' WHERE retry_at IS NOT NULL")
        .await;
    fixture
        .sql("UPDATE campaign_sends SET started_at = started_at - interval '7 seconds'")
        .await;
    assert_eq!(fixture.in_flight(same_number, b, 3).await.len(), 2);
}

fn burst(messages: u32, time: Duration) -> Burst {
    Burst { messages, time }
}

#[tokio::test]
async fn throttled_number_halves_its_rate_once_and_recovers() {
    let fixture = DbFixture::new().await;
    let (send_slots, other_server) = (
        PgSendSlots::new(fixture.owner.clone()),
        PgSendSlots::new(fixture.owner.clone()),
    );
    // Moves the throttling into the past.
    let age = async |seconds: i64| {
        let past = format!(
            "UPDATE phone_number_send_slots SET throttled_at = throttled_at - interval '{seconds} s',
              next_slot_at = now()"
        );
        fixture.sql(&past).await;
    };
    let assert_near =
        |rate: f64, expected: f64| assert!((expected..expected + 20.0).contains(&rate), "{rate}, not {expected}");
    let ten = burst(10, Duration::milliseconds(50));
    assert_eq!(send_slots.reserve("1", ten).await.unwrap().limit, None);
    assert_near(send_slots.slow_down("1", 200.0).await.unwrap(), 100.0);
    // A second throttling within the interval has the same cause and does not halve the rate again.
    age(-5).await;
    assert_near(other_server.slow_down("1", 200.0).await.unwrap(), 100.0);
    age(7).await;
    assert_near(other_server.slow_down("1", 200.0).await.unwrap(), 51.0);
    age(100).await;
    assert_near(send_slots.reserve("1", ten).await.unwrap().limit.unwrap(), 151.0);
    assert_eq!(
        send_slots.reserve("2", ten).await.unwrap().limit,
        None,
        "another number has its own rate"
    );
}

#[tokio::test]
async fn throttled_rate_spaces_send_slots_apart() {
    let fixture = DbFixture::new().await;
    let send_slots = PgSendSlots::new(fixture.owner.clone());
    send_slots.slow_down("1", 1000.0).await.unwrap();
    fixture
        .sql("UPDATE phone_number_send_slots SET throttled_rate = 0.5, throttled_at = now() - interval '1 s'")
        .await;
    assert_eq!(send_slots.slow_down("1", 1000.0).await.unwrap(), 1.0, "the lowest rate");
    fixture
        .sql(
            "UPDATE phone_number_send_slots SET throttled_rate = 0.01, throttled_at = now() + interval '1 h',
          next_slot_at = now()",
        )
        .await;
    send_slots
        .reserve("1", burst(25, Duration::milliseconds(25)))
        .await
        .unwrap();
    let wait = send_slots.reserve("1", burst(1, Duration::ZERO)).await.unwrap().wait;
    assert!(
        wait > Duration::seconds(2400) && wait <= Duration::seconds(2500),
        "{wait}"
    );
    // A number with a lower configured rate keeps that rate.
    assert_eq!(send_slots.slow_down("3", 0.2).await.unwrap(), 0.2);
}

#[tokio::test]
async fn each_send_slot_is_reserved_once() {
    let fixture = DbFixture::new().await;
    let send_slots = PgSendSlots::new(fixture.owner.clone());
    let step = Duration::seconds(10);
    let reserve = |number: &'static str| {
        let send_slots = send_slots.clone();
        async move { send_slots.reserve(number, burst(1, step)).await.unwrap().wait }
    };
    let mut waits = futures_util::future::join_all((0..8).map(|_| reserve("1"))).await;
    waits.sort_unstable();
    for (at, wait) in (0_i32..).zip(waits) {
        let expected = step * at;
        assert!(
            wait <= expected && wait > expected - Duration::seconds(5),
            "{at}: {wait}"
        );
    }
    assert_eq!(reserve("2").await, Duration::ZERO);
}

#[tokio::test]
async fn send_slots_commit_asynchronously() {
    let mut fixture = DbFixture::new().await;
    fixture
        .record_commits(&[
            ("phone_number_send_slots", "INSERT OR UPDATE"),
            ("campaign_sends", "UPDATE"),
        ])
        .await;
    fixture.add_contacts(2).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let send_slots = PgSendSlots::new(fixture.owner.clone());
    for _ in 0..2 {
        send_slots.reserve("1", burst(1, Duration::seconds(10))).await.unwrap();
        fixture.in_flight(run, worker, 1).await;
    }
    assert_eq!(
        fixture.recorded_commits().await,
        "campaign_sends on, phone_number_send_slots off"
    );
}
