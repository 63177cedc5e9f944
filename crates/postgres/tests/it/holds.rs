//! Sends and direct messages that the settings of an account hold: the limit of messages under concurrent starts, and the
//! state of a waiting run.

use recado_domain::campaigns::{
    CampaignStats, CampaignStore as _, ClaimOutcome, HeldSends, QueuedRun, RunQueue as _, RunStore as _, SendResult,
    SendStore as _,
};
use recado_domain::shared::SendId;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::support::{DbFixture, LEASE, id};

/// Sets the limit to `n` messages in a day.
async fn set_cap(fixture: &DbFixture, n: u16) {
    fixture
        .sql(&format!(
            "INSERT INTO account_settings (account_id, max_marketing_per_contact, updated_at)
             VALUES ('{}', '{{\"n\": {n}, \"days\": 1}}', clock_timestamp())
             ON CONFLICT (account_id) DO UPDATE
               SET max_marketing_per_contact = excluded.max_marketing_per_contact, updated_at = excluded.updated_at",
            fixture.account
        ))
        .await;
}

async fn claimed(fixture: &DbFixture, run: QueuedRun, worker: Uuid) -> Vec<SendId> {
    let claim = fixture.runs().claim(run, worker, None, 100, LEASE).await.unwrap();
    let ClaimOutcome::Sends(sends) = claim else {
        panic!("{claim:?}")
    };
    sends.iter().map(|send| send.id).collect()
}

async fn start(fixture: &DbFixture, run: QueuedRun, worker: Uuid, sends: &[SendId]) -> usize {
    let started = fixture.runs().record_and_start(run, worker, &[], sends).await.unwrap();
    assert!(started.goes_on);
    started.sends.len()
}

/// The most started sends of a contact, and the number of contacts with so many.
async fn most_starts(fixture: &DbFixture) -> String {
    let starts = "SELECT count || '/' || count(*) FROM (SELECT count(*) FROM campaign_sends
        WHERE started_at IS NOT NULL AND status <> 'failed' GROUP BY contact_id) c GROUP BY count
        ORDER BY count DESC LIMIT 1";
    fixture.text(starts).await.unwrap()
}

#[tokio::test]
async fn concurrent_starts_never_exceed_the_cap() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(8).await;
    let mut runs = vec![];
    for _ in 0..5 {
        let worker = id();
        let (_, run) = fixture.started(worker).await;
        runs.push((run, worker, claimed(&fixture, run, worker).await));
    }
    // All sends were claimed before there was a limit, so only their starts are judged.
    set_cap(&fixture, 2).await;
    let starts = runs
        .iter()
        .map(|(run, worker, sends)| start(&fixture, *run, *worker, sends));
    let started: usize = futures_util::future::join_all(starts).await.into_iter().sum();
    assert_eq!((started, most_starts(&fixture).await.as_str()), (16, "2/8"));
    let held =
        "SELECT count(*) FROM campaign_sends WHERE started_at IS NULL AND hold_reason = 'cap' AND held_since <= now()
      AND retry_at BETWEEN now() + interval '23 hours' AND now() + interval '1 day'";
    assert_eq!(fixture.number(held).await, 24);
    fixture.assert_recount().await;
}

#[tokio::test]
async fn linked_contacts_count_as_one_person() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(2).await;
    let (first, second) = (id(), id());
    let (_, run) = fixture.started(first).await;
    let (_, other) = fixture.started(second).await;
    let sends = claimed(&fixture, run, first).await;
    let others = claimed(&fixture, other, second).await;
    fixture
        .sql("UPDATE contacts c SET same_person_as = o.id FROM contacts o WHERE o.account_id = c.account_id AND o.id < c.id")
        .await;
    set_cap(&fixture, 1).await;
    assert_eq!(start(&fixture, run, first, &sends).await, 1);
    assert_eq!(start(&fixture, other, second, &others).await, 0);
}

#[tokio::test]
async fn failed_and_old_messages_do_not_count() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    set_cap(&fixture, 1).await;
    let (first, second) = (id(), id());
    let (_, run) = fixture.started(first).await;
    let (_, other) = fixture.started(second).await;
    let sends = claimed(&fixture, run, first).await;
    let others = claimed(&fixture, other, second).await;
    assert_eq!(start(&fixture, run, first, &sends).await, 3);
    let failed = SendResult::Failed {
        code: Some(131_026),
        message: "no".into(),
    };
    let released = SendResult::Released;
    fixture
        .runs()
        .record(run, &[(sends[0], failed), (sends[1], released)])
        .await
        .unwrap();
    assert_eq!(start(&fixture, other, second, &others).await, 2);
    fixture
        .sql("UPDATE campaign_sends SET started_at = now() - interval '1 day' WHERE started_at IS NOT NULL")
        .await;
    assert_eq!(start(&fixture, other, second, &others).await, 1);
    fixture.assert_recount().await;
}

async fn stats(fixture: &DbFixture, run: QueuedRun) -> CampaignStats {
    let stats = fixture
        .campaigns()
        .stats(run.account_id, run.campaign_id)
        .await
        .unwrap();
    stats.unwrap()
}

async fn claim_until_held(fixture: &DbFixture, run: QueuedRun, worker: Uuid) -> HeldSends {
    loop {
        match fixture.runs().claim(run, worker, None, 2, LEASE).await.unwrap() {
            ClaimOutcome::Skipped(_) => {}
            ClaimOutcome::Held(held) => return held,
            claim => panic!("{claim:?}"),
        }
    }
}

/// A run that waits because its contacts got a message of another run.
async fn waiting_run(fixture: &DbFixture) -> (QueuedRun, HeldSends) {
    fixture.add_contacts(5).await;
    set_cap(fixture, 1).await;
    let (first, second) = (id(), id());
    let (_, run) = fixture.started(first).await;
    let sends = claimed(fixture, run, first).await;
    assert_eq!(start(fixture, run, first, &sends).await, 5);
    let (_, waiting) = fixture.started(second).await;
    let held = claim_until_held(fixture, waiting, second).await;
    fixture.runs().wait(waiting, second, held).await.unwrap();
    (waiting, held)
}

#[tokio::test]
async fn waiting_run_is_taken_when_it_is_due_or_the_settings_change() {
    let fixture = DbFixture::new().await;
    let (run, held) = waiting_run(&fixture).await;
    let fits_in = held.until - OffsetDateTime::now_utc();
    assert!((Duration::hours(23)..=Duration::DAY).contains(&fits_in), "{fits_in}");
    assert_eq!(held.count, 5);
    let shown = stats(&fixture, run).await;
    assert_eq!(
        (shown.held, shown.waiting_until, shown.counts.pending),
        (5, Some(held.until), 5)
    );
    let report = fixture.runs().report(run).await.unwrap().unwrap();
    assert!(report.is_waiting() && !report.paused && report.waiting == 5);
    let found = fixture
        .campaigns()
        .find(run.account_id, run.campaign_id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((found.held, found.waiting_until), (5, Some(held.until)));
    let runs = fixture.runs();
    assert_eq!(
        (runs.take(id(), LEASE).await.unwrap(), runs.has_waiting().await.unwrap()),
        (None, false)
    );

    set_cap(&fixture, 2).await;
    assert!(runs.has_waiting().await.unwrap());
    let worker = id();
    assert_eq!(runs.take(worker, LEASE).await.unwrap(), Some(run));
    let sends = claimed(&fixture, run, worker).await;
    assert_eq!((sends.len(), stats(&fixture, run).await.waiting_until), (5, None));
    assert_eq!(start(&fixture, run, worker, &sends).await, 5);
    fixture.assert_recount().await;
}

#[tokio::test]
async fn due_run_fails_what_was_held_too_long() {
    let fixture = DbFixture::new().await;
    let (run, _) = waiting_run(&fixture).await;
    fixture
        .sql(
            "UPDATE campaign_sends SET retry_at = now(), held_since = now() - interval '48 hours'
               WHERE hold_reason IS NOT NULL;
             UPDATE campaign_queue SET retry_at = now(), waiting_until = now() WHERE waiting_until IS NOT NULL",
        )
        .await;
    let worker = id();
    assert_eq!(fixture.runs().take(worker, LEASE).await.unwrap(), Some(run));
    let claim = async || fixture.runs().claim(run, worker, None, 100, LEASE).await.unwrap();
    assert!(matches!(claim().await, ClaimOutcome::Skipped(_)));
    assert_eq!(claim().await, ClaimOutcome::Exhausted);
    let shown = stats(&fixture, run).await.counts;
    assert_eq!((shown.failed, shown.pending), (5, 0));
    let failed = "SELECT count(*) FROM campaign_sends WHERE error_message = 'held too long: cap' AND error_code IS NULL
      AND hold_reason IS NULL AND failed_at IS NOT NULL";
    assert_eq!(fixture.number(failed).await, 5);
    fixture.assert_recount().await;
}
