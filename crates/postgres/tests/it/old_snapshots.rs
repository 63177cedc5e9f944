//! Runs stay fast while another transaction holds an old snapshot: frequent updates are spread over counter slots, and
//! a lease is renewed no more often than necessary.

use recado_domain::callbacks::StatusUpdateStore;
use recado_domain::campaigns::{QueuedRun, SendResult, SendStore as _};
use recado_domain::messaging::SendStatus;
use recado_domain::shared::SendId;

use crate::status_updates::status_update;
use crate::support::{DbFixture, LEASE, id};

fn accepted(send: SendId) -> (SendId, SendResult) {
    let sent = SendResult::Sent {
        message_id: Some(send.to_string()),
        wa_id: None,
    };
    (send, sent)
}

/// A run whose counter slots are those of a million messages, with two sends in flight.
async fn large_run(fixture: &DbFixture) -> (QueuedRun, Vec<SendId>) {
    fixture.add_contacts(2).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 2).await;
    fixture
        .sql(
            "UPDATE campaign_counter_slots SET total = 1000000; UPDATE message_usage_slots SET reserved = 1000000;
             INSERT INTO campaign_counter_slots (account_id, campaign_id, slot, created_at, total)
               SELECT account_id, campaign_id, 32000, created_at, -999998 FROM campaign_counter_slots;
             INSERT INTO message_usage_slots (account_id, month, slot, reserved)
               SELECT account_id, month, 32000, -999998 FROM message_usage_slots",
        )
        .await;
    fixture.assert_recount().await;
    (run, sends)
}

#[tokio::test]
async fn counter_slot_depends_on_time_and_message_count() {
    let fixture = DbFixture::with_production_counter_slots().await;
    for (messages, slot) in [
        ("0", "0"),
        ("-5", "0"),
        ("9999", "0"),
        ("10000", "1"),
        ("19999", "1"),
        ("20000", "1 + extract(epoch FROM now())::bigint % 2"),
        ("1000000", "1 + extract(epoch FROM now())::bigint % 100"),
        ("9000000000", "1 + extract(epoch FROM now())::bigint % 1000"),
    ] {
        // One statement, so that both sides use the same `now()`.
        let differ = format!("SELECT abs(counter_slot({messages}) - ({slot}))");
        assert_eq!(fixture.number(&differ).await, 0, "{messages}");
    }
}

#[tokio::test]
async fn large_run_does_not_update_its_initial_counter_rows() {
    let fixture = DbFixture::with_production_counter_slots().await;
    let (run, sends) = large_run(&fixture).await;
    let first = "SELECT string_agg(ctid::text, ' ') FROM (
        SELECT ctid FROM campaign_counter_slots WHERE slot = 0
        UNION ALL SELECT ctid FROM message_usage_slots WHERE slot = 0) AS f";
    let before = fixture.text(first).await;
    let (results, worker) = ([accepted(sends[0])], id());
    fixture
        .runs()
        .record_and_start(run, worker, &results, &[])
        .await
        .unwrap();
    assert_eq!(fixture.usage().await, "1/1");
    fixture.assert_recount().await;
    fixture.runs().record(run, &[accepted(sends[1])]).await.unwrap();
    let read = status_update(Some(sends[1]), &sends[1].to_string(), SendStatus::Read);
    fixture.status_updates().apply(fixture.account, &[read]).await.unwrap();
    assert_eq!(fixture.usage().await, "2/0");
    fixture.assert_recount().await;
    assert_eq!(fixture.text(first).await, before);
    let creation_times = "SELECT count(DISTINCT created_at) FROM campaign_counter_slots";
    assert_eq!(fixture.number(creation_times).await, 1);
    let written = "SELECT count(*) FROM campaign_counter_slots WHERE slot BETWEEN 1 AND 100 AND sent + read > 0";
    assert!(fixture.number(written).await > 0);
}

/// A sum reads the slots of one campaign or month by index, not the slots of all.
#[tokio::test]
async fn counter_sums_read_the_slots_of_one_key() {
    let fixture = DbFixture::new().await;
    let (run, _) = large_run(&fixture).await;
    let (account, campaign) = (run.account_id, run.campaign_id);
    let campaign_condition = format!("account_id = '{account}' AND campaign_id = '{campaign}'");
    let queries = [
        format!("SELECT pending FROM campaign_counters WHERE {campaign_condition}"),
        format!(
            "SELECT n.sent FROM campaigns c
             LEFT JOIN campaign_counters n ON n.account_id = c.account_id AND n.campaign_id = c.id
             WHERE c.account_id = '{account}' AND c.id = '{campaign}'"
        ),
        format!("SELECT sent FROM message_usage WHERE account_id = '{account}' AND month = '2026-01-01'"),
    ];
    let client = fixture.db.client().await;
    let begin = format!(
        "SET ROLE recado_tenant; SET enable_seqscan = off; SET enable_bitmapscan = off; BEGIN; \
         SET LOCAL app.account_id = '{account}'"
    );
    client.batch_execute(&begin).await.unwrap();
    for query in queries {
        let plan = client.query(&format!("EXPLAIN {query}"), &[]).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        let by_key = |line: &String| {
            line.contains("Index Cond") && (line.contains("(campaign_id = '") || line.contains("(month = '"))
        };
        assert!(plan.iter().any(by_key), "{query}\n{}", plan.join("\n"));
    }
}

#[tokio::test]
async fn run_lease_is_renewed_after_a_tenth_of_it() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let leased = async || fixture.text("SELECT leased_until FROM campaign_queue").await.unwrap();
    let claim = async |worker| fixture.runs().claim(run, worker, None, 1, LEASE).await.unwrap();
    let first = leased().await;
    claim(worker).await;
    assert_eq!(leased().await, first);
    let renewed_with_remaining = async |seconds| {
        let set_lease = format!("UPDATE campaign_queue SET leased_until = now() + interval '{seconds} seconds'");
        fixture.sql(&set_lease).await;
        let before = leased().await;
        claim(worker).await;
        leased().await != before
    };
    assert!(!renewed_with_remaining(55).await);
    assert!(renewed_with_remaining(53).await);
    // An expired lease is renewed as long as no other worker has claimed the run.
    assert!(renewed_with_remaining(-1).await);
    // A worker without the lease does not renew it.
    let held = leased().await;
    claim(id()).await;
    assert_eq!(leased().await, held);
}
