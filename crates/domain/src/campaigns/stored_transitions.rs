//! What the commands of members store: the new status, the time of the change, and who scheduled the campaign.

use std::sync::{Arc, Mutex};

use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::prepare::tests::facts;
use super::service::tests::{NOW, campaign, campaigns_over, tenant};
use super::{
    Campaign, CampaignError, CampaignRefusal, CampaignStatus, Campaigns, MockCampaignStore, MockRunRetryStore,
    MockRunStartStore, ResumeFacts, RunFacts, ScheduleInput, Scheduler, SendCounts,
};
use crate::shared::{CampaignId, WriteOutcome};

const ID: CampaignId = CampaignId(Uuid::from_u128(1));
const EARLIER: OffsetDateTime = NOW.saturating_sub(Duration::HOUR);

/// The use cases over a campaign that was changed an hour ago, and what they store.
fn over(stored: Campaign) -> (Campaigns, Arc<Mutex<Option<Campaign>>>) {
    let stored = Campaign {
        updated_at: EARLIER,
        ..stored
    };
    let written = Arc::new(Mutex::new(None));
    let mut store = MockCampaignStore::new();
    store.expect_find().returning(move |_, _| Ok(Some(stored.clone())));
    let seen = written.clone();
    store.expect_update().returning(move |campaign, _, _| {
        *seen.lock().unwrap() = Some(campaign.clone());
        Ok(WriteOutcome::Done)
    });
    let mut starts = MockRunStartStore::new();
    let seen = written.clone();
    starts.expect_enqueue_start().returning(move |start| {
        *seen.lock().unwrap() = Some(start.campaign.clone());
        Ok(WriteOutcome::Done)
    });
    starts.expect_resume_facts().returning(|_, _| {
        let mut run = facts();
        run.campaign.status = CampaignStatus::Sending;
        Ok(Some(ResumeFacts {
            cost: crate::costs::CampaignCost::default(),
            run,
            number_lost: false,
            quota: None,
        }))
    });
    starts.expect_facts().returning(|_, _| Ok(Some(facts())));
    (campaigns_over(store, starts, MockRunRetryStore::new()), written)
}

fn take(written: &Mutex<Option<Campaign>>) -> Campaign {
    written.lock().unwrap().take().unwrap()
}

#[tokio::test]
async fn every_command_stores_its_status_and_time() {
    let later = NOW + Duration::HOUR;
    let (draft, written) = over(campaign(CampaignStatus::Draft));
    draft
        .schedule(&tenant(), ID, ScheduleInput::at(Some(later)))
        .await
        .unwrap();
    let scheduled = take(&written);
    assert_eq!(
        (scheduled.status, scheduled.updated_at),
        (CampaignStatus::Scheduled, NOW)
    );
    let scheduler = Scheduler {
        user_id: tenant().actor.user_id,
        support_admin: None,
    };
    assert_eq!(scheduled.scheduled_by, Some(scheduler));
    draft.enqueue_start(&tenant(), ID).await.unwrap();
    let sending = take(&written);
    assert_eq!((sending.status, sending.updated_at), (CampaignStatus::Sending, NOW));
    let (waiting, written) = over(scheduled);
    waiting.unschedule(&tenant(), ID).await.unwrap();
    let unscheduled = take(&written);
    assert_eq!(
        (unscheduled.status, unscheduled.updated_at),
        (CampaignStatus::Draft, NOW)
    );
    let (running, written) = over(campaign(CampaignStatus::Sending));
    running.pause(&tenant(), ID).await.unwrap();
    let paused = take(&written);
    assert_eq!((paused.status, paused.updated_at), (CampaignStatus::Sending, NOW));
    let (stopped, written) = over(paused);
    stopped.resume(&tenant(), ID).await.unwrap();
    let resumed = take(&written);
    assert_eq!((resumed.status, resumed.updated_at), (CampaignStatus::Sending, NOW));
}

#[tokio::test]
async fn campaign_of_an_unverified_number_is_not_enqueued() {
    let with_template = Campaign {
        template_id: facts().campaign.template_id,
        ..campaign(CampaignStatus::Draft)
    };
    let mut store = MockCampaignStore::new();
    store
        .expect_find()
        .returning(move |_, _| Ok(Some(with_template.clone())));
    let mut starts = MockRunStartStore::new();
    starts.expect_facts().returning(|_, _| {
        Ok(Some(RunFacts {
            number_unverified: true,
            ..facts()
        }))
    });
    let campaigns = campaigns_over(store, starts, MockRunRetryStore::new());
    let refused = campaigns.enqueue_start(&tenant(), ID).await;
    assert!(matches!(
        refused,
        Err(CampaignError::Refused(CampaignRefusal::NumberUnverified))
    ));
}

#[test]
fn refusal_names_its_reason_and_data() {
    let reasons = vec!["unsupported_header:gif".to_owned()];
    for (refusal, details) in [
        (
            CampaignRefusal::TemplateNotSendable { reasons },
            serde_json::json!({ "reason": "template_not_sendable", "reasons": ["unsupported_header:gif"] }),
        ),
        (
            CampaignRefusal::NothingToRetry { left_out: vec![] },
            serde_json::json!({ "reason": "nothing_to_retry", "left_out": [] }),
        ),
        (CampaignRefusal::OptedOut, serde_json::json!({ "reason": "opted_out" })),
    ] {
        assert_eq!(refusal.details(), details);
    }
}

#[test]
fn accepted_messages_are_those_that_were_sent_whatever_came_later() {
    let counts = SendCounts {
        total: 100,
        pending: 50,
        sent: 1,
        delivered: 2,
        read: 4,
        failed: 43,
    };
    assert_eq!(counts.accepted(), 7);
}
