//! Runs of a campaign whose sends the planner's statistics do not contain: claims, the end, retries and the list of
//! sends.

use recado_domain::campaigns::{
    Campaign, CampaignStatus, CampaignStore, ClaimOutcome, QueuedRun, RunRetryStore as _, SendStore as _,
};
use recado_domain::shared::{PageQuery, WriteOutcome};
use uuid::Uuid;

use super::fixture::{FIRST_PAGE, PART, ROWS};
use crate::retries::{retry_of, tried};
use crate::support::{DbFixture, LEASE, id};

/// Two campaigns with all sends of the account, of which the second one has a few more than two claims. `worker` runs
/// both.
async fn running(fixture: &DbFixture, worker: Uuid) -> Vec<QueuedRun> {
    let few = 2 * PART + 10;
    fixture
        .sql(&format!(
            "UPDATE campaign_sends SET started_at = NULL WHERE account_id = '{0}';
             UPDATE campaign_sends SET campaign_id = key('{0}', 2) FROM generate_series({few}, 2 * {few} - 1) i
               WHERE account_id = '{0}' AND id = key('{0}', i);
             UPDATE campaigns SET run_quota_month = quota_month WHERE account_id = '{0}';
             DELETE FROM campaign_counter_slots WHERE account_id = '{0}';
             INSERT INTO campaign_counter_slots (account_id, campaign_id, total, pending)
               SELECT account_id, campaign_id, count(*), count(*) FROM campaign_sends WHERE account_id = '{0}' GROUP BY 1, 2;
             INSERT INTO campaign_queue (account_id, campaign_id, trigger, worker, leased_until)
               SELECT '{0}', key('{0}', i), 'execute', '{worker}', now() + interval '10 s' FROM generate_series(1, 2) i",
            fixture.account
        ))
        .await;
    let mut runs = vec![];
    for i in [1, 2] {
        fixture.freeze(i).await;
        runs.push(QueuedRun {
            account_id: fixture.account,
            campaign_id: fixture.key(i).await.into(),
        });
    }
    runs
}

async fn assert_run_reads_few_rows(fixture: &mut DbFixture, run: QueuedRun, worker: Uuid) {
    // The second claim is that of a worker that does not know which sends the first one started.
    for claim in ["the first claim", "the second claim"] {
        fixture.count_reads().await;
        let outcome = fixture.runs().claim(run, worker, None, FIRST_PAGE.limit, LEASE).await;
        let ClaimOutcome::Sends(sends) = outcome.unwrap() else {
            panic!("{claim}: no sends");
        };
        assert_eq!(sends.len(), PART);
        fixture.assert_looked_up(claim).await;
        let sends: Vec<_> = sends.iter().map(|send| send.id).collect();
        assert_eq!(fixture.start_sends(run, worker, &sends).await.len(), PART);
    }
    let campaign = fixture
        .campaigns()
        .find(run.account_id, run.campaign_id)
        .await
        .unwrap()
        .unwrap();
    let cancelled = Campaign {
        status: CampaignStatus::Cancelled,
        ..campaign
    };
    let expected = fixture.expected(&cancelled, CampaignStatus::Sending).await;
    fixture.count_reads().await;
    let outcome = fixture.campaigns().update(&cancelled, &expected, &[]).await.unwrap();
    assert!(matches!(outcome, WriteOutcome::Done), "{outcome:?}");
    fixture.assert_looked_up("the end of a run").await;
    let unknown = format!(
        "SELECT count(*) FROM campaign_sends WHERE unknown_at IS NOT NULL AND campaign_id = '{}'",
        run.campaign_id
    );
    assert_eq!(fixture.number(&unknown).await, i64::try_from(2 * PART).unwrap());
}

pub(super) async fn claims_and_ends_of_runs_read_few_rows(mut fixture: DbFixture) {
    let worker = id();
    for run in running(&fixture, worker).await {
        assert_run_reads_few_rows(&mut fixture, run, worker).await;
    }
}

/// Of the first campaign's sends some failed; the second campaign has a few sends, which an early end left untried.
async fn ended(fixture: &DbFixture) {
    let template = fixture.stored_template().await;
    fixture.on_plan("growth").await;
    fixture
        .sql(&format!(
            "UPDATE campaign_sends SET status = 'sent', sent_at = now() - i / 10 * interval '1 s'
               FROM generate_series(2 * {PART} + 1, {ROWS}) i WHERE account_id = '{0}' AND id = key('{0}', i);
             UPDATE campaign_sends SET status = 'failed', failed_at = now() - interval '9 days'
               FROM generate_series(1, {PART}) i WHERE account_id = '{0}' AND id = key('{0}', i);
             UPDATE campaign_sends SET status = 'pending', started_at = NULL, campaign_id = key('{0}', 2)
               FROM generate_series({PART} + 1, 2 * {PART}) i WHERE account_id = '{0}' AND id = key('{0}', i);
             UPDATE campaigns SET status = 'partial', template_id = '{template}', executed_at = now()
               WHERE account_id = '{0}' AND id IN (key('{0}', 1), key('{0}', 2));
             UPDATE campaign_counter_slots SET total = {ROWS} - {PART}, pending = 0, failed = {PART},
               sent = {ROWS} - 2 * {PART} WHERE account_id = '{0}';
             INSERT INTO campaign_counter_slots (account_id, campaign_id, slot, total, pending)
               VALUES ('{0}', key('{0}', 2), 0, {PART}, {PART})",
            fixture.account
        ))
        .await;
    for campaign in [1, 2] {
        fixture.freeze(campaign).await;
    }
    fixture
        .sql(&format!(
            "INSERT INTO campaign_send_times (account_id, campaign_id, sent_at, first_send_id, send_ids)
               SELECT account_id, campaign_id, sent_at, (array_agg(id ORDER BY id))[1], array_agg(id) FROM campaign_sends
               WHERE account_id = '{0}' AND sent_at IS NOT NULL GROUP BY account_id, campaign_id, sent_at",
            fixture.account
        ))
        .await;
}

pub(super) async fn retries_and_pages_of_sends_read_few_rows(mut fixture: DbFixture) {
    ended(&fixture).await;
    let (failed, untried) = (fixture.key(1).await.into(), fixture.key(2).await.into());
    let part = i64::try_from(PART).unwrap();
    fixture.count_reads().await;
    let counts = fixture.campaigns().stats(fixture.account, untried).await.unwrap();
    assert_eq!(counts.unwrap().counts.pending, part);
    let page = PageQuery::new(None, None, 20, 100);
    let sends = fixture.sends(fixture.account, untried, page).await.unwrap();
    assert_eq!(sends.unwrap().total, part);
    fixture.assert_looked_up("a page of untried sends").await;
    fixture.count_reads().await;
    let page = PageQuery::new(None, Some(100), 20, 100);
    let sends = fixture.sends(fixture.account, failed, page).await.unwrap().unwrap();
    assert!(sends.data.len() == 100 && sends.data[99].sent_at.is_some());
    fixture.assert_few_of(ROWS / 2, "a page of sent sends").await;
    for (campaign, retried, operation) in [
        (failed, part, "a retry of failed sends"),
        (untried, 0, "a retry of untried sends"),
    ] {
        let campaign = fixture
            .campaigns()
            .find(fixture.account, campaign)
            .await
            .unwrap()
            .unwrap();
        let mut retry = retry_of(&fixture, &campaign).await;
        retry.monthly_limit = 1_000_000;
        fixture.count_reads().await;
        let outcome = fixture.runs().retry(&retry).await.unwrap();
        assert_eq!(tried(&outcome), (part, retried));
        fixture.assert_looked_up(operation).await;
    }
}
