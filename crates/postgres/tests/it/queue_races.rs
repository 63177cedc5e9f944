//! What a run's start, its end and the queue do to each other when they meet.

use recado_domain::campaigns::{
    Campaign, CampaignStatus, EnqueueStart, QueuedRun, QueuedStart, Refusal, RetryOutcome, RunStart, RunStore,
    StartOutcome, TestSendStore, Trigger,
};
use recado_domain::shared::WriteOutcome;
use recado_postgres::PgTestSends;

use crate::retries::retry_of;
use crate::support::{LEASE, World, event, id};

async fn queued_start(world: &World) -> QueuedRun {
    let campaign = world.stored_draft().await;
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
        world.runs().enqueue_start(&start_request).await.unwrap(),
        WriteOutcome::Done
    );
    QueuedRun {
        account_id: campaign.account_id,
        campaign_id: campaign.id,
    }
}

/// Deadlocked with a cancel: it held the queue row while it waited for the campaign.
#[tokio::test]
async fn abort_start_waits_for_the_campaign_without_its_queue_row() {
    let world = World::new().await;
    let run = queued_start(&world).await;
    let other = world.db.client().await;
    other
        .batch_execute("BEGIN; SELECT 1 FROM campaigns FOR NO KEY UPDATE")
        .await
        .unwrap();
    let runs = world.runs();
    let abort_start = tokio::spawn(async move { runs.abort_start(run, CampaignStatus::Draft, &[event(id())]).await });
    world.blocked(1).await;
    other
        .batch_execute("SELECT 1 FROM campaign_queue FOR UPDATE NOWAIT; COMMIT")
        .await
        .expect("the queue row is free");
    abort_start.await.unwrap().unwrap();
    assert_eq!(
        world.text("SELECT status FROM campaigns").await.as_deref(),
        Some("draft")
    );
    assert_eq!(world.number("SELECT count(*) FROM campaign_queue").await, 0);
}

/// The row of an earlier run was deleted under a start that reused it: nothing took the run up any more.
#[tokio::test]
async fn sweep_of_the_queue_keeps_a_row_that_a_start_reuses() {
    let world = World::new().await;
    let run = queued_start(&world).await;
    world.sql("UPDATE campaigns SET status = 'draft'").await;
    let start = world.db.client().await;
    start
        .batch_execute(
            "BEGIN; SELECT 1 FROM campaigns FOR NO KEY UPDATE; UPDATE campaigns SET status = 'sending';
             UPDATE campaign_queue SET created_at = now()",
        )
        .await
        .unwrap();
    let runs = world.runs();
    assert_eq!(runs.take(id(), LEASE).await.unwrap(), None, "taking deletes nothing");
    let sweep = tokio::spawn(async move { runs.sweep_queue(10).await });
    world.blocked(1).await;
    start.batch_execute("COMMIT").await.unwrap();
    assert_eq!(sweep.await.unwrap().unwrap(), 0);
    assert_eq!(world.runs().take(id(), LEASE).await.unwrap(), Some(run));
}

/// The limit was decided on before the plan ended.
#[tokio::test]
async fn start_after_its_plan_ended_is_refused() {
    let world = World::new().await;
    world.people(251).await;
    let start = world.start_of(&world.stored_draft().await);
    let limits = async |start: &RunStart| world.runs().start(start, None, LEASE).await.unwrap();
    let exceeded = Refusal::QuotaExceeded {
        limit: 250,
        left: 250,
        wanted: 251,
    };
    assert_eq!(limits(&start).await, StartOutcome::Refused(exceeded));
    world.on_plan("none").await;
    assert_eq!(limits(&start).await, StartOutcome::Refused(Refusal::NoActivePlan));
    let test_sends = PgTestSends::new(world.tenants.clone());
    assert_eq!(
        test_sends.reserve_message(world.account, 1000, &[]).await.unwrap(),
        None
    );
    world.assert_recount().await;
    world.on_plan("scale").await;
    assert_eq!(limits(&start).await, StartOutcome::Started { recipients: 251 });

    world
        .sql("UPDATE campaign_sends SET status = 'failed', failed_at = now(); UPDATE campaigns SET status = 'partial'")
        .await;
    world.on_plan("none").await;
    let retry = retry_of(&world, &start.campaign).await;
    let refused = world.runs().retry(&retry).await.unwrap();
    assert_eq!(refused, RetryOutcome::Refused(Refusal::NoActivePlan));
}
