//! Retries of failed sends.

use recado_domain::callbacks::StatusUpdateStore as _;
use recado_domain::campaigns::{
    Campaign, CampaignRefusal, CampaignStatus, CampaignStore as _, ClaimOutcome, QueuedRun, QueuedStart, RetryOutcome,
    RetryRequest, RunQueue as _, RunRetry, RunRetryStore as _, RunStartStore as _, RunStore as _, RunSweepStore as _,
    SendResult, SendStore as _, Trigger,
};
use recado_domain::messaging::SendStatus;
use recado_domain::shared::SendId;
use time::Duration;

use crate::status_updates::status_update;
use crate::support::{DbFixture, LEASE, id};

/// A retry of the campaign's failed sends, decided on the stored campaign.
pub(crate) async fn retry_of(fixture: &DbFixture, campaign: &Campaign) -> RunRetry {
    let stored = fixture
        .campaigns()
        .find(fixture.account, campaign.id)
        .await
        .unwrap()
        .unwrap();
    RunRetry {
        expected_version: stored.version,
        campaign: Campaign {
            status: CampaignStatus::Sending,
            completed_at: None,
            ..stored
        },
        expected: CampaignStatus::Partial,
        run: QueuedStart {
            trigger: Trigger::Retry,
            actor: None,
        },
        profile_id: None,
        monthly_limit: 100,
        request: RetryRequest::default(),
    }
}

fn failed() -> SendResult {
    SendResult::Failed {
        code: Some(131_026),
        message: "undeliverable".into(),
    }
}

fn sent(message: &str) -> SendResult {
    SendResult::Sent {
        message_id: Some(message.into()),
        wa_id: None,
    }
}

/// The recipients of a started retry, and how many of them are failed sends.
pub(crate) fn tried(outcome: &RetryOutcome) -> (i64, i64) {
    match outcome {
        RetryOutcome::Started { recipients, report } => (*recipients, report.tried),
        RetryOutcome::Refused(_) | RetryOutcome::Missing => panic!("{outcome:?}"),
    }
}

/// A finished run of five: two sent, two failed (one of them after it was accepted), one never confirmed.
async fn finished(fixture: &DbFixture) -> (Campaign, QueuedRun, Vec<SendId>) {
    fixture.add_contacts(5).await;
    let worker = id();
    let (campaign, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 5).await;
    let results = [sent("w0"), sent("w1"), failed(), failed(), SendResult::Unknown];
    let results: Vec<_> = sends.iter().copied().zip(results).collect();
    fixture.runs().record(run, &results).await.unwrap();
    fixture.runs().finish(run).await.unwrap();
    fixture.runs().fail_unknown(Duration::ZERO, 10).await.unwrap();
    fixture.assert_recount().await;
    assert_eq!(fixture.usage().await, "2/0");
    (campaign, run, sends)
}

#[tokio::test]
async fn retry_decided_on_an_older_campaign_is_refused() {
    let fixture = DbFixture::new().await;
    let (campaign, run, _) = finished(&fixture).await;
    let (runs, worker) = (fixture.runs(), id());
    let decided = retry_of(&fixture, &campaign).await;
    let (first, second) = tokio::join!(runs.retry(&decided), runs.retry(&decided));
    let started = [first.unwrap(), second.unwrap()].map(|outcome| matches!(outcome, RetryOutcome::Started { .. }));
    assert_eq!(started.iter().filter(|started| **started).count(), 1);
    // The first retry ended with failed sends. A request that was decided before MUST NOT retry them.
    runs.take(worker, LEASE).await.unwrap();
    let again = fixture.in_flight(run, worker, 10).await;
    let results: Vec<_> = again.iter().map(|send| (*send, failed())).collect();
    runs.record(run, &results).await.unwrap();
    runs.finish(run).await.unwrap();
    let refused = runs.retry(&decided).await.unwrap();
    assert_eq!(refused, RetryOutcome::Refused(CampaignRefusal::Contended));
    assert_eq!(fixture.usage().await, "2/0");
    fixture.assert_recount().await;
}

#[tokio::test]
async fn retry_counts_in_the_current_month() {
    let fixture = DbFixture::new().await;
    let (campaign, run, sends) = finished(&fixture).await;
    // The run started in an earlier month.
    fixture
        .sql("UPDATE message_usage_slots SET month = '2025-01-01'; UPDATE campaigns SET quota_month = '2025-01-01'")
        .await;
    let over_quota = RunRetry {
        monthly_limit: 1,
        ..retry_of(&fixture, &campaign).await
    };
    let refused = fixture.runs().retry(&over_quota).await.unwrap();
    assert!(
        matches!(
            refused,
            RetryOutcome::Refused(CampaignRefusal::QuotaExceeded { wanted: 3, .. })
        ),
        "{refused:?}"
    );
    fixture.assert_recount().await;

    let (runs, worker) = (fixture.runs(), id());
    runs.retry(&retry_of(&fixture, &campaign).await).await.unwrap();
    runs.take(worker, LEASE).await.unwrap();
    let again = fixture.in_flight(run, worker, 10).await;
    runs.record(run, &[(again[0], sent("w2"))]).await.unwrap();
    fixture.assert_recount().await;
    let usage = "SELECT string_agg(sent || '/' || reserved, ' ' ORDER BY month) FROM message_usage";
    assert_eq!(fixture.text(usage).await.unwrap(), "2/0 1/2");
    // A late failure of the first run's message counts in the first run's month.
    assert!(!again.contains(&sends[0]));
    runs.record(run, &[(sends[0], failed())]).await.unwrap();
    fixture.assert_recount().await;
    assert_eq!(fixture.text(usage).await.unwrap(), "1/0 1/2");
    runs.finish(run).await.unwrap();
    fixture.assert_recount().await;
}

#[tokio::test]
async fn late_delivery_of_a_retried_send_prevents_resending() {
    let fixture = DbFixture::new().await;
    let (campaign, run, sends) = finished(&fixture).await;
    let (runs, worker) = (fixture.runs(), id());
    runs.retry(&retry_of(&fixture, &campaign).await).await.unwrap();
    let late = [status_update(Some(sends[4]), "w4", SendStatus::Delivered)];
    fixture.status_updates().apply(fixture.account, &late).await.unwrap();
    runs.take(worker, LEASE).await.unwrap();
    let again = fixture.in_flight(run, worker, 10).await;
    assert_eq!((again.len(), again.contains(&sends[4])), (2, false));
    fixture.assert_recount().await;
}

#[tokio::test]
async fn retry_resets_failed_sends_only() {
    let fixture = DbFixture::new().await;
    let (campaign, run, sends) = finished(&fixture).await;
    let (runs, worker) = (fixture.runs(), id());
    let outcome = runs.retry(&retry_of(&fixture, &campaign).await).await.unwrap();
    assert_eq!(tried(&outcome), (3, 3));
    fixture.assert_recount().await;
    assert_eq!(fixture.usage().await, "2/3");
    assert_eq!(runs.take(worker, LEASE).await.unwrap(), Some(run));
    assert_eq!(runs.queued_start(run).await.unwrap(), None);
    let ClaimOutcome::Sends(claimed) = runs.claim(run, worker, None, 10, LEASE).await.unwrap() else {
        panic!("nothing to claim")
    };
    let mut again: Vec<SendId> = claimed.iter().map(|send| send.id).collect();
    again.sort_unstable();
    let mut expected = sends[2..].to_vec();
    expected.sort_unstable();
    assert_eq!(again, expected);
    fixture.start_sends(run, worker, &again).await;
    let results = [(again[0], sent("w2")), (again[1], failed()), (again[2], failed())];
    runs.record(run, &results).await.unwrap();
    let report = runs.finish(run).await.unwrap().unwrap();
    assert_eq!(
        (report.status, report.sent, report.failed),
        (CampaignStatus::Partial, 3, 2)
    );
    fixture.assert_recount().await;
    assert_eq!(fixture.usage().await, "3/0");
}
