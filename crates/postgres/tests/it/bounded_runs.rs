//! The cost of a run's end, of a retry and of its claims does not depend on the number of the campaign's sends. Checked by
//! the rows that are read, and by what is counted afterwards.

use std::collections::BTreeSet;

use recado_domain::campaigns::{
    Campaign, CampaignStatus, CampaignStore as _, ClaimOutcome, ClaimPosition, QueuedRun, RetryOutcome, RunQueue as _,
    RunRetry, RunRetryStore as _, RunStore as _, RunSweepStore as _, SendResult, SendStore as _,
};
use recado_domain::shared::{PageQuery, SendId};
use time::Duration;
use uuid::Uuid;

use crate::retries::{retry_of, tried};
use crate::support::{DbFixture, LEASE, id};

/// The sends that a statement may read here: far fewer than a campaign has.
const FEW: i64 = 60;

/// So many that no planner prefers to read all of them.
const MANY_SENDS: usize = 2000;

/// More failed sends than one retry batch has.
const MANY_FAILED: i64 = 4500;

const UNKNOWN: &str = "SELECT count(*) FROM campaign_sends WHERE unknown_at IS NOT NULL";

const PENDING: &str = "SELECT count(*) FROM campaign_sends WHERE status = 'pending'";

/// How many rows of `campaign_sends` all closed connections have read.
async fn sends_read(fixture: &mut DbFixture) -> i64 {
    fixture.close().await;
    fixture.sql("SELECT pg_stat_force_next_flush()").await;
    let read = "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables
         WHERE relname LIKE 'campaign_sends%'";
    fixture.number(read).await
}

/// A run of `contacts` sends, of which five are in flight.
async fn run_in_flight(contacts: usize) -> (DbFixture, Campaign, QueuedRun, Uuid, Vec<SendId>) {
    let fixture = DbFixture::new().await;
    fixture.on_plan("scale").await;
    fixture.add_contacts(contacts).await;
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 5).await;
    fixture.sql("ANALYZE campaign_sends").await;
    (fixture, campaign, run, worker, sends)
}

async fn cancel(fixture: &DbFixture, campaign: &Campaign) {
    let cancelled = Campaign {
        status: CampaignStatus::Cancelled,
        ..campaign.clone()
    };
    let expected = fixture.expected(&cancelled, CampaignStatus::Sending).await;
    fixture.campaigns().update(&cancelled, &expected, &[]).await.unwrap();
}

/// Makes the campaign one of ten million, by its counters and the month's usage.
async fn ten_million(fixture: &DbFixture) {
    fixture
        .sql(
            "UPDATE campaign_counter_slots SET total = total + 10000000, pending = pending + 10000000;
             UPDATE message_usage_slots SET reserved = reserved + 10000000",
        )
        .await;
}

#[tokio::test]
async fn cancel_reads_only_the_sends_in_flight() {
    let (mut fixture, campaign, ..) = run_in_flight(MANY_SENDS).await;
    ten_million(&fixture).await;
    let before = sends_read(&mut fixture).await;
    cancel(&fixture, &campaign).await;
    let read = sends_read(&mut fixture).await - before;
    assert!(read <= FEW, "{read} sends were read");
    assert_eq!(
        (fixture.usage().await.as_str(), fixture.number(UNKNOWN).await),
        ("0/5", 5)
    );
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_claims").await, 0);
}

#[tokio::test]
async fn finish_and_lost_lease_read_only_the_sends_in_flight() {
    let (mut fixture, _, run, worker, sends) = run_in_flight(MANY_SENDS).await;
    ten_million(&fixture).await;
    let before = sends_read(&mut fixture).await;
    fixture
        .sql("UPDATE campaign_queue SET leased_until = now() - interval '1 second'")
        .await;
    assert_eq!(fixture.runs().take(worker, LEASE).await.unwrap(), Some(run));
    fixture
        .runs()
        .record(run, &[(sends[0], SendResult::Released)])
        .await
        .unwrap();
    fixture.runs().finish(run).await.unwrap();
    let read = sends_read(&mut fixture).await - before;
    assert!(read <= FEW, "{read} sends were read");
    assert_eq!(
        (fixture.usage().await.as_str(), fixture.number(UNKNOWN).await),
        ("0/4", 4)
    );
}

/// Claims with `position` and starts what was claimed.
async fn claim_and_start(
    fixture: &DbFixture,
    run: QueuedRun,
    worker: Uuid,
    position: Option<ClaimPosition>,
) -> (Vec<SendId>, ClaimPosition) {
    let claim = fixture.runs().claim(run, worker, position, 2, LEASE).await.unwrap();
    let ClaimOutcome::Sends(sends) = claim else {
        panic!("{claim:?}")
    };
    let ids: Vec<SendId> = sends.iter().map(|send| send.id).collect();
    let position = ClaimPosition {
        after: sends.iter().map(|send| send.contact_id).max().unwrap(),
        in_flight: ids.clone(),
    };
    (fixture.start_sends(run, worker, &ids).await, position)
}

#[tokio::test]
async fn claims_keep_the_sends_in_flight() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(9).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let (first, position) = claim_and_start(&fixture, run, worker, None).await;
    // The worker names its own sends in flight.
    let (second, _) = claim_and_start(&fixture, run, worker, Some(position)).await;
    // After an error it knows none. The store reads them, and the worker's next claims keep them.
    let (third, position) = claim_and_start(&fixture, run, worker, None).await;
    let (fourth, _) = claim_and_start(&fixture, run, worker, Some(position)).await;
    let sent = SendResult::Sent {
        message_id: None,
        wa_id: None,
    };
    fixture.runs().record(run, &[(second[0], sent)]).await.unwrap();
    fixture.runs().abandon(run, worker).await.unwrap();
    let unknown: BTreeSet<String> = [first[0], first[1], second[1], third[0], third[1], fourth[0], fourth[1]]
        .map(|send| send.to_string())
        .into();
    let marked = fixture
        .text("SELECT string_agg(id::text, ' ') FROM campaign_sends WHERE unknown_at IS NOT NULL")
        .await
        .unwrap();
    assert_eq!(marked.split(' ').map(str::to_owned).collect::<BTreeSet<_>>(), unknown);
    fixture.assert_recount().await;
}

#[tokio::test]
async fn exhausted_run_ends_without_a_search() {
    let fixture = DbFixture::new().await;
    fixture.on_plan("scale").await;
    fixture.add_contacts(400).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let (mut fixture, mut position, mut sends) = (fixture, None, 0);
    while sends < 400 {
        let claim = fixture.runs().claim(run, worker, position, 20, LEASE).await.unwrap();
        let ClaimOutcome::Sends(claimed) = claim else {
            panic!("{claim:?} after {sends} sends")
        };
        let ids: Vec<SendId> = claimed.iter().map(|send| send.id).collect();
        fixture.start_sends(run, worker, &ids).await;
        let results: Vec<_> = ids
            .iter()
            .map(|send| {
                let sent = SendResult::Sent {
                    message_id: None,
                    wa_id: None,
                };
                (*send, sent)
            })
            .collect();
        fixture
            .runs()
            .record_and_start(run, worker, &results, &[])
            .await
            .unwrap();
        sends += ids.len();
        position = Some(ClaimPosition {
            after: claimed.last().unwrap().contact_id,
            in_flight: vec![],
        });
    }
    let before = sends_read(&mut fixture).await;
    let claim = fixture.runs().claim(run, worker, position, 20, LEASE).await.unwrap();
    assert_eq!(claim, ClaimOutcome::Exhausted);
    let read = sends_read(&mut fixture).await - before;
    assert!(read <= FEW, "{read} sends were read");
}

/// A finished run of `contacts` sends that all failed.
async fn all_failed(contacts: i64) -> (DbFixture, Campaign, QueuedRun) {
    let fixture = DbFixture::new().await;
    fixture.on_plan("scale").await;
    fixture.add_contacts(usize::try_from(contacts).unwrap()).await;
    let (campaign, run) = fixture.started(id()).await;
    fixture
        .sql(
            "UPDATE campaign_sends SET status = 'failed', started_at = now(), failed_at = now(), error_code = 131000;
             UPDATE campaign_counter_slots SET pending = 0, failed = total; UPDATE message_usage_slots SET reserved = 0",
        )
        .await;
    fixture.runs().finish(run).await.unwrap();
    fixture.assert_recount().await;
    (fixture, campaign, run)
}

async fn retry(fixture: &DbFixture, campaign: &Campaign) -> RetryOutcome {
    let run_retry = RunRetry {
        monthly_limit: 100_000,
        ..retry_of(fixture, campaign).await
    };
    fixture.runs().retry(&run_retry).await.unwrap()
}

#[tokio::test]
async fn large_retry_is_announced_and_reset_in_batches() {
    let (fixture, campaign, run) = all_failed(MANY_FAILED).await;
    let outcome = retry(&fixture, &campaign).await;
    assert_eq!(tried(&outcome), (MANY_FAILED, MANY_FAILED));
    // The counters and the quota count the whole choice, the request reset one batch.
    assert_eq!(
        (fixture.number(PENDING).await, fixture.usage().await.as_str()),
        (2000, "0/4500")
    );
    let stats = fixture.campaigns().stats(fixture.account, campaign.id).await.unwrap();
    let stats = stats.unwrap();
    assert_eq!((stats.counts.pending, stats.counts.failed), (MANY_FAILED, 0));
    // Two workers at once reset each batch once.
    let (runs, worker) = (fixture.runs(), id());
    let (first, second) = tokio::join!(runs.materialize_sends(), runs.materialize_sends());
    first.unwrap();
    second.unwrap();
    runs.take(worker, LEASE).await.unwrap();
    let mut claimed = BTreeSet::new();
    let mut position = None;
    while let ClaimOutcome::Sends(sends) = runs.claim(run, worker, position, 1000, LEASE).await.unwrap() {
        let ids: Vec<SendId> = sends.iter().map(|send| send.id).collect();
        let started = fixture.start_sends(run, worker, &ids).await;
        for send in &started {
            assert!(claimed.insert(*send), "{send} was started twice");
        }
        let no = SendResult::Failed {
            code: None,
            message: "no".into(),
        };
        let results: Vec<_> = started.iter().map(|send| (*send, no.clone())).collect();
        runs.record(run, &results).await.unwrap();
        position = Some(ClaimPosition {
            after: sends.iter().map(|send| send.contact_id).max().unwrap(),
            in_flight: vec![],
        });
    }
    assert_eq!(i64::try_from(claimed.len()).unwrap(), MANY_FAILED);
    assert!(!runs.materialize_sends().await.unwrap().has_more());
    runs.finish(run).await.unwrap();
    assert_eq!(fixture.usage().await, "0/0");
    fixture.assert_recount().await;
}

#[tokio::test]
async fn cancelled_retry_releases_its_batches() {
    let (mut fixture, campaign, ..) = all_failed(MANY_FAILED).await;
    retry(&fixture, &campaign).await;
    fixture.runs().materialize_sends().await.unwrap();
    let before = sends_read(&mut fixture).await;
    cancel(&fixture, &campaign).await;
    let read = sends_read(&mut fixture).await - before;
    assert!(read <= FEW, "{read} sends were read");
    assert_eq!(fixture.usage().await, "0/0");
    while fixture.runs().materialize_sends().await.unwrap().has_more() {}
    assert_eq!(fixture.number(PENDING).await, MANY_FAILED);
    assert_eq!(fixture.usage().await, "0/0");
    fixture.assert_recount().await;
}

/// A request that ends before its commit leaves neither batches nor counters. The next one takes every send once.
#[tokio::test]
async fn interrupted_retry_chooses_all_or_none() {
    let (fixture, campaign, _) = all_failed(MANY_FAILED).await;
    let client = fixture.db.client().await;
    // The usage is the last row that a retry writes.
    client
        .batch_execute("BEGIN; UPDATE message_usage_slots SET sent = sent")
        .await
        .unwrap();
    let kill = async {
        fixture.blocked(1).await;
        client
            .batch_execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'; COMMIT",
            )
            .await
            .unwrap();
    };
    let retry_request = RunRetry {
        monthly_limit: 100_000,
        ..retry_of(&fixture, &campaign).await
    };
    let runs = fixture.runs();
    let (killed, ()) = tokio::join!(runs.retry(&retry_request), kill);
    killed.unwrap_err();
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_retry_batches").await, 0);
    fixture.assert_recount().await;
    assert_eq!(tried(&retry(&fixture, &campaign).await), (MANY_FAILED, MANY_FAILED));
}

#[tokio::test]
async fn retry_of_few_reads_few_sends() {
    let fixture = DbFixture::new().await;
    fixture.on_plan("scale").await;
    fixture.add_contacts(MANY_SENDS).await;
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    fixture
        .sql(
            "UPDATE campaign_sends SET status = 'sent', started_at = now(), sent_at = now();
             UPDATE campaign_sends SET status = 'failed', failed_at = now(), error_code = 131000
               WHERE id IN (SELECT id FROM campaign_sends ORDER BY id LIMIT 5);
             INSERT INTO campaign_send_times (account_id, campaign_id, sent_at, first_send_id, send_ids)
               SELECT account_id, campaign_id, now(), (array_agg(id))[1], array_agg(id) FROM campaign_sends
               GROUP BY account_id, campaign_id;
             UPDATE campaign_counter_slots SET pending = 0, sent = total - 5, failed = 5;
             UPDATE message_usage_slots SET sent = 1995, reserved = 0;
             ANALYZE campaign_sends",
        )
        .await;
    fixture.runs().finish(run).await.unwrap();
    let mut fixture = fixture;
    let before = sends_read(&mut fixture).await;
    assert_eq!(tried(&retry(&fixture, &campaign).await), (5, 5));
    fixture.runs().take(worker, LEASE).await.unwrap();
    assert_eq!(fixture.in_flight(run, worker, 10).await.len(), 5);
    let read = sends_read(&mut fixture).await - before;
    assert!(read <= FEW, "{read} sends were read");
    fixture.assert_recount().await;
}

#[tokio::test]
async fn late_result_of_another_month_does_not_join_the_retry() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    let (runs, worker) = (fixture.runs(), id());
    let (campaign, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 3).await;
    let no = SendResult::Failed {
        code: Some(131_000),
        message: "no".into(),
    };
    runs.record(run, &[(sends[0], no.clone()), (sends[1], no)])
        .await
        .unwrap();
    runs.finish(run).await.unwrap();
    fixture
        .sql("UPDATE message_usage_slots SET month = '2025-01-01'; UPDATE campaigns SET quota_month = '2025-01-01'")
        .await;
    assert_eq!(tried(&retry(&fixture, &campaign).await), (2, 2));
    // The lost worker of the first run reports that its request did not leave.
    runs.record(run, &[(sends[2], SendResult::Released)]).await.unwrap();
    cancel(&fixture, &campaign).await;
    let usage = "SELECT string_agg(sent || '/' || reserved, ' ' ORDER BY month) FROM message_usage";
    assert_eq!(fixture.text(usage).await.unwrap(), "0/1 0/0");
    fixture.assert_recount().await;
    runs.fail_unknown(Duration::ZERO, 10).await.unwrap();
    assert_eq!(fixture.text(usage).await.unwrap(), "0/0 0/0");
    fixture.assert_recount().await;
}

#[tokio::test]
async fn counters_of_an_ended_campaign_are_folded() {
    let (fixture, campaign, run, ..) = run_in_flight(20).await;
    fixture
        .sql(
            "INSERT INTO campaign_counter_slots (account_id, campaign_id, slot, created_at, pending, sent)
               SELECT account_id, campaign_id, i, created_at, -i, i FROM campaign_counter_slots, generate_series(1, 3) i",
        )
        .await;
    let runs = fixture.runs();
    let sums = async || {
        let stats = fixture.campaigns().stats(fixture.account, campaign.id).await.unwrap();
        stats.unwrap()
    };
    let before = sums().await;
    let changed_at = |age| format!("UPDATE campaigns SET updated_at = now() - interval '{age}'");
    // A sending campaign, and one that ended just now, keep their slots.
    fixture.sql(&changed_at("2 days")).await;
    assert_eq!(runs.fold_counters(10).await.unwrap(), 0);
    runs.finish(run).await.unwrap();
    assert_eq!(runs.fold_counters(10).await.unwrap(), 0);
    fixture.sql(&changed_at("2 days")).await;
    assert_eq!(runs.fold_counters(10).await.unwrap(), 1);
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_counter_slots").await, 1);
    assert_eq!(sums().await, before);
    assert_eq!(runs.fold_counters(10).await.unwrap(), 0);
}

#[tokio::test]
async fn page_of_sends_ignores_earlier_deletions() {
    let (fixture, campaign, ..) = run_in_flight(30).await;
    let account = fixture.account;
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name, deleted_at)
               SELECT '{account}', gen_random_uuid(), 'x', '2020-01-01' FROM generate_series(1, 1000);
             UPDATE contacts SET deleted_at = now() WHERE account_id = '{account}' AND id IN
               (SELECT contact_id FROM campaign_sends ORDER BY contact_id LIMIT 7);
             ANALYZE contacts"
        ))
        .await;
    let mut fixture = fixture;
    let scans = "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname = 'contacts'";
    fixture.close().await;
    fixture.sql("SELECT pg_stat_force_next_flush()").await;
    let before = fixture.number(scans).await;
    let page = PageQuery::new(Some(2), None, 10, 100);
    let page = fixture.sends(account, campaign.id, page).await.unwrap().unwrap();
    assert_eq!((page.total, page.data.len(), page.total_pages), (23, 10, 3));
    fixture.close().await;
    let read = fixture.number(scans).await - before;
    assert!(read <= FEW, "{read} entries of contacts were read");
}
