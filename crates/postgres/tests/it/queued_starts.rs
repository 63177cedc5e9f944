//! Queued starts that are executed or aborted, and scheduled campaigns that are due.

use futures_util::future::join_all;
use recado_domain::campaigns::{
    Campaign, CampaignRefusal, CampaignStatus, CampaignStore, Command, EnqueueStart, QueuedRun, QueuedStart,
    RunQueue as _, RunStart, RunStartStore as _, StartOutcome, Trigger,
};
use recado_domain::shared::{Actor, WriteOutcome};
use time::Duration;

use crate::support::{DbFixture, LEASE, NOW, event, id};

fn start_request(fixture: &DbFixture, campaign: &Campaign, trigger: Trigger) -> EnqueueStart {
    EnqueueStart {
        campaign: Campaign {
            status: CampaignStatus::Sending,
            ..campaign.clone()
        },
        expected: campaign.status,
        run: QueuedStart {
            trigger,
            actor: Some(Actor {
                user_id: fixture.user,
                ip_address: None,
                support_admin: None,
            }),
        },
        events: vec![event(id())],
    }
}

fn queued_run(campaign: &Campaign) -> QueuedRun {
    QueuedRun {
        account_id: campaign.account_id,
        campaign_id: campaign.id,
    }
}

async fn status(fixture: &DbFixture) -> String {
    fixture.text("SELECT status FROM campaigns").await.unwrap()
}

#[tokio::test]
async fn concurrent_enqueue_start_succeeds_once() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    let campaign = fixture.stored_draft().await;
    let start_request = start_request(&fixture, &campaign, Trigger::Send);
    let outcomes = join_all((0..10).map(|_| {
        let (runs, start_request) = (fixture.runs(), start_request.clone());
        async move { runs.enqueue_start(&start_request).await.unwrap() }
    }));
    let outcomes = outcomes.await;
    assert_eq!(
        outcomes
            .iter()
            .filter(|outcome| **outcome == WriteOutcome::Done)
            .count(),
        1
    );
    let stale = WriteOutcome::Stale(CampaignStatus::Sending);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == stale).count(), 9);
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 1);
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_sends").await, 0);

    let (runs, worker) = (fixture.runs(), id());
    let run = runs.take(worker, LEASE).await.unwrap().unwrap();
    assert_eq!(run, queued_run(&campaign));
    assert_eq!(runs.queued_start(run).await.unwrap(), Some(start_request.run));
    let facts = runs.facts(fixture.account, campaign.id).await.unwrap().unwrap();
    let start = RunStart {
        expected: CampaignStatus::Sending,
        trigger: Trigger::Send,
        ..fixture.start_of(&facts.campaign)
    };
    let outcome = runs.start(&start, Some(worker), LEASE).await.unwrap();
    assert_eq!(outcome, StartOutcome::Started { recipients: 3 });
    assert_eq!(runs.queued_start(run).await.unwrap(), None);
    assert_eq!(fixture.in_flight(run, worker, 10).await.len(), 3);
    fixture.assert_recount().await;
    // A started run cannot be aborted.
    runs.abort_start(run, CampaignStatus::Draft, &[event(id())])
        .await
        .unwrap();
    assert_eq!(status(&fixture).await, "sending");
}

#[tokio::test]
async fn aborted_start_returns_to_draft_unless_cancelled() {
    let fixture = DbFixture::new().await;
    let (runs, campaign) = (fixture.runs(), fixture.stored_draft().await);
    runs.enqueue_start(&start_request(&fixture, &campaign, Trigger::Send))
        .await
        .unwrap();
    let run = queued_run(&campaign);
    // The campaign is paused before the abort. The draft is not paused.
    fixture
        .sql("UPDATE campaigns SET paused_at = now(), pause_reason = 'x'")
        .await;
    runs.abort_start(run, CampaignStatus::Draft, &[event(id())])
        .await
        .unwrap();
    assert_eq!(status(&fixture).await, "draft");
    let paused = "SELECT count(*) FROM campaigns WHERE paused_at IS NOT NULL OR pause_reason IS NOT NULL";
    assert_eq!(fixture.number(paused).await, 0);
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_queue").await, 0);
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 2);

    let campaign = fixture.expected(&campaign, CampaignStatus::Draft).await;
    runs.enqueue_start(&start_request(&fixture, &campaign, Trigger::Send))
        .await
        .unwrap();
    let cancelled = Campaign {
        status: CampaignStatus::Cancelled,
        ..campaign.clone()
    };
    let cancel = fixture.campaigns();
    cancel
        .update(
            &cancelled,
            &fixture.expected(&cancelled, CampaignStatus::Sending).await,
            &[],
        )
        .await
        .unwrap();
    runs.abort_start(run, CampaignStatus::Draft, &[event(id())])
        .await
        .unwrap();
    assert_eq!(status(&fixture).await, "cancelled");
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 3);
}

#[tokio::test]
async fn skipped_start_stores_its_time_and_leaves_no_queue_entry() {
    let fixture = DbFixture::new().await;
    let (runs, campaign) = (fixture.runs(), fixture.stored_draft().await);
    let run = queued_run(&campaign);
    let skip = async || {
        runs.skip_start(run, CampaignStatus::Draft, &[event(id())])
            .await
            .unwrap()
    };
    let skipped = "SELECT count(*) FROM campaigns WHERE skipped_at IS NOT NULL";
    let events = "SELECT count(*) FROM outbox_events";
    skip().await;
    assert_eq!(
        (fixture.number(skipped).await, fixture.number(events).await),
        (0, 0),
        "nothing is queued"
    );
    runs.enqueue_start(&start_request(&fixture, &campaign, Trigger::Schedule))
        .await
        .unwrap();
    let queued = fixture.number(events).await;
    skip().await;
    skip().await;
    assert_eq!(status(&fixture).await, "draft");
    assert_eq!(
        (fixture.number(skipped).await, fixture.number(events).await),
        (1, queued + 1)
    );
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_queue").await, 0);
}

#[tokio::test]
async fn due_campaigns_exclude_suspended_and_deleted() {
    let fixture = DbFixture::new().await;
    let (runs, campaign) = (fixture.runs(), fixture.stored_draft().await);
    let due = async || runs.due(10).await.unwrap();
    let set = async |change: &str| fixture.sql(&format!("UPDATE campaigns SET {change}")).await;
    set("status = 'scheduled', scheduled_at = now() + interval '1 minute'").await;
    assert_eq!(due().await, []);
    set("scheduled_at = now()").await;
    assert_eq!(due().await, [queued_run(&campaign)]);
    fixture.sql("UPDATE accounts SET status = 'suspended'").await;
    assert_eq!(due().await, []);
    fixture.sql("UPDATE accounts SET status = 'active'").await;
    set("deleted_at = now()").await;
    assert_eq!(due().await, []);
}

#[tokio::test]
async fn start_is_stale_after_a_change_of_the_campaign() {
    let fixture = DbFixture::new().await;
    let campaign = fixture.stored_draft().await;
    let scheduled = Campaign {
        status: CampaignStatus::Scheduled,
        scheduled_at: Some(NOW),
        ..campaign
    };
    let store = fixture.campaigns();
    store
        .update(
            &scheduled,
            &fixture.expected(&scheduled, CampaignStatus::Draft).await,
            &[],
        )
        .await
        .unwrap();
    let scheduled = fixture.expected(&scheduled, CampaignStatus::Scheduled).await;
    let starts = [Trigger::Schedule, Trigger::Send].map(|trigger| start_request(&fixture, &scheduled, trigger));
    let later = Campaign {
        scheduled_at: Some(NOW + Duration::DAY),
        ..scheduled.clone()
    };
    store
        .update(&later, &fixture.expected(&later, CampaignStatus::Scheduled).await, &[])
        .await
        .unwrap();
    let runs = fixture.runs();
    for stale in &starts {
        assert_eq!(
            runs.enqueue_start(stale).await.unwrap(),
            WriteOutcome::Stale(CampaignStatus::Scheduled)
        );
    }
    let current = fixture.expected(&later, CampaignStatus::Scheduled).await;
    let sent = start_request(&fixture, &current, Trigger::Send);
    assert_eq!(runs.enqueue_start(&sent).await.unwrap(), WriteOutcome::Done);
}

#[tokio::test]
async fn second_start_of_a_queued_run_is_refused() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(2).await;
    let (runs, campaign) = (fixture.runs(), fixture.stored_draft().await);
    runs.enqueue_start(&start_request(&fixture, &campaign, Trigger::Send))
        .await
        .unwrap();
    let (slow, fast) = (id(), id());
    let run = runs.take(fast, LEASE).await.unwrap().unwrap();
    let decide_start = async || {
        let facts = runs.facts(fixture.account, campaign.id).await.unwrap().unwrap();
        RunStart {
            expected: CampaignStatus::Sending,
            trigger: Trigger::Send,
            ..fixture.start_of(&facts.campaign)
        }
    };
    runs.start(&decide_start().await, Some(fast), LEASE).await.unwrap();
    let sends = fixture.in_flight(run, fast, 1).await;
    // The audience grows, and the slow worker reads the facts again.
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name, phone) VALUES ('{}', '{}', 'Bia', '+5511888888888')",
            fixture.account,
            id()
        ))
        .await;
    let outcome = runs.start(&decide_start().await, Some(slow), LEASE).await.unwrap();
    let refusal = CampaignRefusal::Status {
        status: CampaignStatus::Sending,
        command: Command::Start,
    };
    assert_eq!(outcome, StartOutcome::Refused(refusal));
    runs.abort_start(run, CampaignStatus::Draft, &[]).await.unwrap();
    let run_state = "SELECT c.status || ' ' || c.total_recipients || ' ' || (q.worker = '";
    let run_state = format!("{run_state}{fast}') FROM campaigns c JOIN campaign_queue q ON q.campaign_id = c.id");
    assert_eq!(fixture.text(&run_state).await.unwrap(), "sending 2 true");
    assert_eq!(
        (sends.len(), fixture.number("SELECT count(*) FROM campaign_sends").await),
        (1, 2)
    );
    fixture.assert_recount().await;
}
