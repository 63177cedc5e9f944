//! Races between the start of a run, its end and the run queue.

use recado_domain::campaigns::{
    Campaign, CampaignRefusal, CampaignStatus, EnqueueStart, QueuedRun, QueuedStart, RetryOutcome, RunQueue as _,
    RunRetryStore as _, RunStart, RunStartStore as _, RunSweepStore as _, StartOutcome, TestSendStore, Trigger,
};
use recado_domain::shared::WriteOutcome;
use recado_postgres::PgTestSends;

use crate::retries::retry_of;
use crate::support::{DbFixture, LEASE, event, id};

async fn queued_start(fixture: &DbFixture) -> QueuedRun {
    let campaign = fixture.stored_draft().await;
    let start_request = EnqueueStart {
        campaign: Campaign {
            status: CampaignStatus::Sending,
            ..campaign.clone()
        },
        expected: CampaignStatus::Draft,
        run: QueuedStart {
            trigger: Trigger::Send,
            actor: None,
        },
        events: vec![],
    };
    assert_eq!(
        fixture.runs().enqueue_start(&start_request).await.unwrap(),
        WriteOutcome::Done
    );
    QueuedRun {
        account_id: campaign.account_id,
        campaign_id: campaign.id,
    }
}

/// Regression: `abort_start` held the queue row while it waited for the campaign, and deadlocked with a cancel.
#[tokio::test]
async fn abort_start_waits_for_the_campaign_without_its_queue_row() {
    let fixture = DbFixture::new().await;
    let run = queued_start(&fixture).await;
    let locker = fixture.db.client().await;
    locker
        .batch_execute("BEGIN; SELECT 1 FROM campaigns FOR NO KEY UPDATE")
        .await
        .unwrap();
    let runs = fixture.runs();
    let abort_start = tokio::spawn(async move { runs.abort_start(run, CampaignStatus::Draft, &[event(id())]).await });
    fixture.blocked(1).await;
    locker
        .batch_execute("SELECT 1 FROM campaign_queue FOR UPDATE NOWAIT; COMMIT")
        .await
        .expect("the queue row is free");
    abort_start.await.unwrap().unwrap();
    assert_eq!(
        fixture.text("SELECT status FROM campaigns").await.as_deref(),
        Some("draft")
    );
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_queue").await, 0);
}

/// Regression: the sweep deleted the queue row of an earlier run while a start reused it, so no worker took the run.
#[tokio::test]
async fn sweep_of_the_queue_keeps_a_row_that_a_start_reuses() {
    let fixture = DbFixture::new().await;
    let run = queued_start(&fixture).await;
    fixture.sql("UPDATE campaigns SET status = 'draft'").await;
    let start = fixture.db.client().await;
    start
        .batch_execute(
            "BEGIN; SELECT 1 FROM campaigns FOR NO KEY UPDATE; UPDATE campaigns SET status = 'sending';
             UPDATE campaign_queue SET created_at = now()",
        )
        .await
        .unwrap();
    let runs = fixture.runs();
    assert_eq!(runs.take(id(), LEASE).await.unwrap(), None, "`take` deletes no row");
    let sweep = tokio::spawn(async move { runs.sweep_queue(10).await });
    fixture.blocked(1).await;
    start.batch_execute("COMMIT").await.unwrap();
    assert_eq!(sweep.await.unwrap().unwrap(), 0);
    assert_eq!(fixture.runs().take(id(), LEASE).await.unwrap(), Some(run));
}

/// The plan ends after the start read the quota limit.
#[tokio::test]
async fn start_after_its_plan_ended_is_refused() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(251).await;
    let start = fixture.start_of(&fixture.stored_draft().await);
    let start_outcome = async |start: &RunStart| fixture.runs().start(start, None, LEASE).await.unwrap();
    let exceeded = CampaignRefusal::QuotaExceeded {
        limit: 250,
        left: 250,
        wanted: 251,
    };
    assert_eq!(start_outcome(&start).await, StartOutcome::Refused(exceeded));
    fixture.on_plan("none").await;
    assert_eq!(
        start_outcome(&start).await,
        StartOutcome::Refused(CampaignRefusal::NoActivePlan)
    );
    let test_sends = PgTestSends::new(fixture.tenants.clone());
    assert_eq!(
        test_sends.reserve_message(fixture.account, 1000, &[]).await.unwrap(),
        None
    );
    fixture.assert_recount().await;
    fixture.on_plan("scale").await;
    assert_eq!(start_outcome(&start).await, StartOutcome::Started { recipients: 251 });

    fixture
        .sql("UPDATE campaign_sends SET status = 'failed', failed_at = now(); UPDATE campaigns SET status = 'partial'")
        .await;
    fixture.on_plan("none").await;
    let retry = retry_of(&fixture, &start.campaign).await;
    let refused = fixture.runs().retry(&retry).await.unwrap();
    assert_eq!(refused, RetryOutcome::Refused(CampaignRefusal::NoActivePlan));
}
