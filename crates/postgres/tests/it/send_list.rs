//! The list of a campaign's sends: in the order of sending, at the cost of a page.

use recado_domain::callbacks::{StatusUpdate, StatusUpdateStore as _};
use recado_domain::campaigns::{
    CampaignSend, CampaignStore as _, QueuedRun, RunQueue as _, RunRetryStore as _, RunStore as _, SendResult,
    SendStore as _, SendsPage,
};
use recado_domain::messaging::SendStatus;
use recado_domain::shared::{AccountId, CampaignId, Page, PageQuery, SendId, StoreError};
use uuid::Uuid;

use crate::retries::{retry_of, tried};
use crate::status_updates::status_update;
use crate::support::{DbFixture, LEASE, id};

/// The list as the interface defines it: every send whose contact is not deleted.
const EXPECTED: &str = "SELECT string_agg(s.id::text, ' ' ORDER BY s.sent_at DESC NULLS LAST, s.id)
  FROM campaign_sends s JOIN contacts c ON c.account_id = s.account_id AND c.id = s.contact_id
  WHERE c.deleted_at IS NULL";

impl DbFixture {
    /// A page of the sends of a campaign that is not archived.
    pub(crate) async fn sends(
        &self,
        account: AccountId,
        campaign: CampaignId,
        page: PageQuery,
    ) -> Result<Option<Page<CampaignSend>>, StoreError> {
        let page = self.campaigns().sends(account, campaign, page).await?;
        Ok(page.map(|page| match page {
            SendsPage::Stored(page) => page,
            SendsPage::Archived { .. } => panic!("the sends are archived"),
        }))
    }
}

/// Reads all pages of several sizes and compares them, concatenated, with the expected list.
async fn assert_listed(fixture: &DbFixture, campaign: CampaignId) {
    let expected = fixture.text(EXPECTED).await.unwrap();
    for limit in [1, 7, 100] {
        let mut listed: Vec<String> = vec![];
        for number in 1.. {
            let page = PageQuery::new(Some(number), Some(limit), 20, 100);
            let sends = fixture.sends(fixture.account, campaign, page).await;
            let page = sends.unwrap().unwrap();
            let length = limit.min(page.total - (number - 1) * limit).max(0);
            assert_eq!(i64::try_from(page.data.len()).unwrap(), length);
            if page.data.is_empty() {
                break;
            }
            listed.extend(page.data.iter().map(|send| send.id.to_string()));
        }
        assert_eq!(listed.join(" "), expected, "pages of {limit}");
    }
}

fn sent(sends: &[SendId]) -> Vec<(SendId, SendResult)> {
    let result = |send: &SendId| {
        let message_id = Some(format!("m{send}"));
        (
            *send,
            SendResult::Sent {
                message_id,
                wa_id: None,
            },
        )
    };
    sends.iter().map(result).collect()
}

/// A run of 30 sends. 20 were sent, the last five of them recorded by status updates only; one failed without having been
/// sent, and two afterwards; the contacts of two sent ones and of two others are deleted.
async fn half_sent() -> (DbFixture, CampaignId, QueuedRun, Uuid) {
    let fixture = DbFixture::new().await;
    fixture.on_plan("scale").await;
    fixture.add_contacts(30).await;
    let (worker, runs) = (id(), fixture.runs());
    let (campaign, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 24).await;
    runs.record_and_start(run, worker, &sent(&sends[..10]), &[])
        .await
        .unwrap();
    runs.record(run, &sent(&sends[10..15])).await.unwrap();
    let reported = sends[15..20].iter();
    let mut updates: Vec<_> = reported
        .map(|send| status_update(Some(*send), &format!("m{send}"), SendStatus::Delivered))
        .collect();
    updates.extend([0, 1, 20].map(|at| failed(sends[at])));
    fixture.status_updates().apply(fixture.account, &updates).await.unwrap();
    fixture
        .sql(
            "UPDATE contacts SET deleted_at = now() WHERE id IN (SELECT contact_id FROM (
               SELECT contact_id, row_number() OVER (PARTITION BY sent_at IS NULL ORDER BY contact_id) AS n
               FROM campaign_sends) s WHERE n IN (2, 4))",
        )
        .await;
    (fixture, campaign.id, run, worker)
}

#[tokio::test]
async fn sends_are_listed_in_the_order_of_sending() {
    let (fixture, campaign, ..) = half_sent().await;
    let sent = "SELECT count(*) || ' at ' || count(DISTINCT sent_at) FROM campaign_sends WHERE sent_at IS NOT NULL";
    assert_eq!(fixture.text(sent).await.unwrap(), "20 at 3");
    assert_listed(&fixture, campaign).await;
    fixture.assert_recount().await;
}

#[tokio::test]
async fn retried_sends_move_to_the_end_and_return_to_the_top() {
    let (fixture, campaign, run, worker) = half_sent().await;
    let runs = fixture.runs();
    runs.finish(run).await.unwrap();
    let campaign = fixture
        .campaigns()
        .find(fixture.account, campaign)
        .await
        .unwrap()
        .unwrap();
    let (tried, failed) = tried(&runs.retry(&retry_of(&fixture, &campaign).await).await.unwrap());
    assert!(failed >= 2, "{tried} tried, {failed} had failed");
    runs.take(worker, LEASE).await.unwrap();
    let again = fixture.in_flight(run, worker, 3).await;
    assert_eq!(again.len(), 3);
    assert_listed(&fixture, campaign.id).await;
    fixture.assert_recount().await;
    runs.record_and_start(run, worker, &sent(&again), &[]).await.unwrap();
    assert_listed(&fixture, campaign.id).await;
    fixture.assert_recount().await;
}

fn failed(send: SendId) -> StatusUpdate {
    StatusUpdate {
        error_code: Some(131_026),
        ..status_update(Some(send), &format!("m{send}"), SendStatus::Failed)
    }
}

/// Without pending sends, the page behind the sent ones reads the failed ones only.
#[tokio::test]
async fn failed_sends_follow_when_none_is_pending() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(9).await;
    let (worker, runs) = (id(), fixture.runs());
    let (campaign, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 9).await;
    runs.record(run, &sent(&sends[..5])).await.unwrap();
    let updates: Vec<_> = sends[4..].iter().map(|send| failed(*send)).collect();
    fixture.status_updates().apply(fixture.account, &updates).await.unwrap();
    let pending = "SELECT count(*) FROM campaign_sends WHERE status = 'pending'";
    assert_eq!(fixture.number(pending).await, 0);
    assert_listed(&fixture, campaign.id).await;
    runs.finish(run).await.unwrap();
    assert_listed(&fixture, campaign.id).await;
}

/// Status updates carry whole seconds: a retried send can get the time of its first attempt again.
#[tokio::test]
async fn retried_send_with_the_same_time_is_listed_again() {
    let fixture = DbFixture::new().await;
    fixture.on_plan("scale").await;
    fixture.add_contacts(2).await;
    let (worker, runs) = (id(), fixture.runs());
    let (campaign, run) = fixture.started(worker).await;
    let mut sends = fixture.in_flight(run, worker, 2).await;
    sends.sort_unstable();
    let reported = |send: SendId, message: &str| status_update(Some(send), message, SendStatus::Sent);
    let both = sends.iter().map(|send| reported(*send, &format!("m{send}")));
    let updates = fixture.status_updates();
    updates.apply(fixture.account, &both.collect::<Vec<_>>()).await.unwrap();
    updates.apply(fixture.account, &[failed(sends[0])]).await.unwrap();
    runs.finish(run).await.unwrap();
    let retry = retry_of(&fixture, &campaign).await;
    assert_eq!(tried(&runs.retry(&retry).await.unwrap()), (1, 1));
    runs.take(worker, LEASE).await.unwrap();
    assert_eq!(fixture.in_flight(run, worker, 2).await, sends[..1]);
    fixture.assert_recount().await;
    updates
        .apply(fixture.account, &[reported(sends[0], "again")])
        .await
        .unwrap();
    fixture.assert_recount().await;
    assert_listed(&fixture, campaign.id).await;
    let rows = "SELECT count(*) FROM campaign_send_times";
    assert_eq!(fixture.number(rows).await, 1);
}
