//! Runs whose sends are held: when workers take them, what readers see, and what a killed worker leaves.

use recado_domain::campaigns::{
    CampaignStore as _, ClaimOutcome, QueuedRun, RunQueue as _, RunStart, RunStartStore as _, RunStore as _,
    RunSweepStore as _, SendStore as _,
};
use recado_domain::shared::SendId;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::holds::{claim_until_held, claimed, set_cap, start, stats, waiting_run};
use crate::support::{DbFixture, LEASE, id};

/// Lets the lease of the run expire, as if its worker was killed.
async fn kill_worker(fixture: &DbFixture, run: QueuedRun) {
    fixture
        .sql(&format!(
            "UPDATE campaign_queue SET leased_until = now() - interval '1 second' WHERE campaign_id = '{}'",
            run.campaign_id.0
        ))
        .await;
}

/// The waiting run becomes due, and so do its held sends.
async fn end_holds(fixture: &DbFixture) {
    fixture
        .sql(
            "UPDATE campaign_sends SET retry_at = now() WHERE hold_reason IS NOT NULL;
             UPDATE campaign_queue SET retry_at = now(), waiting_until = now() WHERE waiting_until IS NOT NULL",
        )
        .await;
}

async fn take(fixture: &DbFixture, run: QueuedRun) -> Uuid {
    let worker = id();
    assert_eq!(fixture.runs().take(worker, LEASE).await.unwrap(), Some(run));
    worker
}

async fn assert_not_taken(fixture: &DbFixture) {
    let runs = fixture.runs();
    assert_eq!(
        (runs.take(id(), LEASE).await.unwrap(), runs.has_waiting().await.unwrap()),
        (None, false)
    );
}

async fn shown(fixture: &DbFixture, run: QueuedRun) -> (i64, Option<OffsetDateTime>) {
    let stats = stats(fixture, run).await;
    let found = fixture
        .campaigns()
        .find(run.account_id, run.campaign_id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((found.held, found.waiting_until), (stats.held, stats.waiting_until));
    (stats.held, stats.waiting_until)
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

    set_cap(&fixture, 2, 1).await;
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

/// Regression: a run that a change of the settings had woken stayed idle until its old end when its worker died.
#[tokio::test]
async fn woken_run_of_a_killed_worker_is_taken_at_once() {
    let fixture = DbFixture::new().await;
    let (run, _) = waiting_run(&fixture).await;
    set_cap(&fixture, 2, 1).await;
    let worker = take(&fixture, run).await;
    assert_eq!(claimed(&fixture, run, worker).await.len(), 5);
    kill_worker(&fixture, run).await;
    let next = take(&fixture, run).await;
    let sends = claimed(&fixture, run, next).await;
    assert_eq!(start(&fixture, run, next, &sends).await, 5);
}

#[tokio::test]
async fn worker_killed_before_between_or_after_holds_loses_and_repeats_nothing() {
    let fixture = DbFixture::new().await;
    let (run, _) = waiting_run(&fixture).await;
    end_holds(&fixture).await;
    // Killed after it has held some of the sends again, and once more before the run waits.
    let first = take(&fixture, run).await;
    let claim = fixture.runs().claim(run, first, None, 2, LEASE).await.unwrap();
    assert!(matches!(claim, ClaimOutcome::Skipped(_)), "{claim:?}");
    kill_worker(&fixture, run).await;
    let second = take(&fixture, run).await;
    assert_eq!(claim_until_held(&fixture, run, second).await.count, 5);
    kill_worker(&fixture, run).await;
    let third = take(&fixture, run).await;
    let held = claim_until_held(&fixture, run, third).await;
    fixture.runs().wait(run, second, held).await.unwrap();
    assert_eq!(shown(&fixture, run).await.0, 0, "fenced off");
    fixture.runs().wait(run, third, held).await.unwrap();
    assert_eq!(shown(&fixture, run).await, (5, Some(held.until)));
    assert_not_taken(&fixture).await;
    // Killed after it has started some of them.
    set_cap(&fixture, 2, 1).await;
    let fourth = take(&fixture, run).await;
    let sends = claimed(&fixture, run, fourth).await;
    assert_eq!(start(&fixture, run, fourth, &sends[..2]).await, 2);
    kill_worker(&fixture, run).await;
    let fifth = take(&fixture, run).await;
    let rest = claimed(&fixture, run, fifth).await;
    assert_eq!(start(&fixture, run, fifth, &rest).await, 3);
    let unknown = "SELECT count(*) FROM campaign_sends WHERE unknown_at IS NOT NULL";
    assert_eq!(fixture.number(unknown).await, 2);
    fixture.assert_recount().await;
}

#[tokio::test]
async fn paused_waiting_run_shows_no_wait_and_waits_again_when_resumed() {
    let fixture = DbFixture::new().await;
    let (run, held) = waiting_run(&fixture).await;
    let paused = async |is_paused: bool| {
        let at = if is_paused { "now()" } else { "NULL" };
        let set = format!(
            "UPDATE campaigns SET paused_at = {at} WHERE id = '{}'",
            run.campaign_id.0
        );
        fixture.sql(&set).await;
    };
    paused(true).await;
    assert_eq!(shown(&fixture, run).await, (0, None));
    let report = fixture.runs().report(run).await.unwrap().unwrap();
    assert!(report.paused && !report.is_waiting());
    end_holds(&fixture).await;
    set_cap(&fixture, 1, 1).await;
    assert_not_taken(&fixture).await;
    paused(false).await;
    fixture.sql("UPDATE accounts SET status = 'suspended'").await;
    let report = fixture.runs().report(run).await.unwrap().unwrap();
    assert!(report.paused && !report.is_waiting());
    assert_not_taken(&fixture).await;
    fixture.sql("UPDATE accounts SET status = 'active'").await;
    let worker = take(&fixture, run).await;
    let again = claim_until_held(&fixture, run, worker).await;
    assert_eq!((again.count, again.until), (5, held.until));
    fixture.runs().wait(run, worker, again).await.unwrap();
    assert_eq!(shown(&fixture, run).await, (5, Some(held.until)));
}

#[tokio::test]
async fn end_of_a_wait_that_another_version_leaves_is_not_shown() {
    let fixture = DbFixture::new().await;
    let (run, _) = waiting_run(&fixture).await;
    // The previous version takes the run when it is due, and releases it.
    fixture
        .sql("UPDATE campaign_queue SET retry_at = NULL, waiting_until = now() WHERE waiting_until IS NOT NULL")
        .await;
    assert_eq!(shown(&fixture, run).await, (0, None));
    take(&fixture, run).await;
}

#[tokio::test]
async fn run_whose_holds_end_one_after_another_does_not_count_them_each_time() {
    let fixture = DbFixture::new().await;
    let (run, _) = waiting_run(&fixture).await;
    fixture
        .sql(
            "UPDATE campaign_sends s SET retry_at = now() + k.n * interval '1 second'
             FROM (SELECT id, row_number() OVER () AS n FROM campaign_sends WHERE hold_reason IS NOT NULL) k
             WHERE s.id = k.id;
             UPDATE campaign_queue SET retry_at = now()",
        )
        .await;
    let worker = take(&fixture, run).await;
    let held = claim_until_held(&fixture, run, worker).await;
    let wait = held.until - OffsetDateTime::now_utc();
    assert!(wait > Duration::seconds(2), "{wait}");
}

#[tokio::test]
async fn contact_that_must_not_be_written_to_fails_without_a_hold() {
    let fixture = DbFixture::new().await;
    let (run, _) = waiting_run(&fixture).await;
    end_holds(&fixture).await;
    fixture
        .sql("UPDATE contacts SET opted_out_at = now() WHERE id = (SELECT min(id::text)::uuid FROM contacts)")
        .await;
    let worker = take(&fixture, run).await;
    let sends = claimed(&fixture, run, worker).await;
    let started = fixture.runs().record_and_start(run, worker, &[], &sends).await.unwrap();
    assert_eq!((started.sends.len(), started.unreachable), (1, sends));
}

/// Regression: a send whose contact lost its phone was held until a message fitted, and failed only then.
#[tokio::test]
async fn contact_without_an_address_fails_without_a_hold() {
    let fixture = DbFixture::new().await;
    let (run, _) = waiting_run(&fixture).await;
    end_holds(&fixture).await;
    fixture
        .sql(
            "UPDATE contacts SET phone = NULL, wa_user_id = 'BR.' || n
             FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM contacts) c WHERE c.id = contacts.id AND n <= 2",
        )
        .await;
    let worker = take(&fixture, run).await;
    let sends = claimed(&fixture, run, worker).await;
    let started = fixture.runs().record_and_start(run, worker, &[], &sends).await.unwrap();
    assert_eq!((started.sends.len(), started.unreachable), (2, sends));
}

/// A run with `reach: any` writes to these contacts by user id, so they are held if they have a fitting one.
#[tokio::test]
async fn contact_with_a_user_id_is_held_if_the_run_uses_it() {
    let fixture = DbFixture::new().await;
    let (run, _) = waiting_run(&fixture).await;
    end_holds(&fixture).await;
    fixture
        .sql(
            "UPDATE campaigns SET reach = 'any';
             UPDATE contacts SET phone = NULL, wa_user_id = CASE WHEN n = 1 THEN 'BR.1' END
             FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM contacts) c WHERE c.id = contacts.id AND n <= 2",
        )
        .await;
    let worker = take(&fixture, run).await;
    let sends = claimed(&fixture, run, worker).await;
    assert_eq!(sends.len(), 1, "the contact without any address");
    let held = "SELECT count(*) FROM campaign_sends WHERE hold_reason = 'cap' AND retry_at > now()";
    assert_eq!(fixture.number(held).await, 4);
}

#[tokio::test]
async fn many_held_sends_become_due_in_batches() {
    const CONTACTS: usize = 6000;
    let fixture = DbFixture::new().await;
    fixture.on_plan("scale").await;
    fixture.add_contacts(CONTACTS).await;
    let (worker, campaign) = (id(), fixture.stored_draft().await);
    let start_of_all = RunStart {
        monthly_limit: 10_000,
        ..fixture.start_of(&campaign)
    };
    fixture.runs().start(&start_of_all, Some(worker), LEASE).await.unwrap();
    while fixture.runs().materialize_sends().await.unwrap().has_more() {}
    let run = QueuedRun {
        account_id: fixture.account,
        campaign_id: campaign.id,
    };
    set_cap(&fixture, 1, 1).await;
    fixture
        .sql(
            "UPDATE campaign_sends SET hold_reason = 'cap', held_since = now(), retry_at = now() + interval '1 day';
             UPDATE campaign_queue SET worker = NULL, leased_until = NULL, held = 6000, checked_settings_at = now(),
               retry_at = now() + interval '1 day', waiting_until = now() + interval '1 day'",
        )
        .await;
    set_cap(&fixture, 2, 1).await;
    let worker = take(&fixture, run).await;
    let (mut claims, mut sends) = (0, Vec::new());
    while sends.len() < CONTACTS {
        claims += 1;
        match fixture.runs().claim(run, worker, None, 1000, LEASE).await.unwrap() {
            ClaimOutcome::Sends(claimed) => {
                let ids: Vec<SendId> = claimed.iter().map(|send| send.id).collect();
                assert_eq!(start(&fixture, run, worker, &ids).await, ids.len());
                sends.extend(ids);
            }
            ClaimOutcome::Wait(_) => assert!(sends.is_empty() && claims == 1, "{claims}"),
            claim => panic!("{claim:?}"),
        }
    }
    assert_eq!(claims, 7);
    sends.sort_unstable_by_key(|send| send.0);
    sends.dedup();
    assert_eq!(sends.len(), CONTACTS, "none starts twice");
}
