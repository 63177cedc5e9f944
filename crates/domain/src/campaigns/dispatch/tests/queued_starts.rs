//! Queued starts: the worker prepares the run, or aborts the start with a notification.

use std::sync::Arc;

use super::fixture::{FIRST, RUN, empty_file_ids};
use crate::billing::PlanEntitlement;
use crate::campaigns::service::tests::{NOW, campaign, tenant};
use crate::campaigns::{
    CampaignRefusal, CampaignStatus, ClaimOutcome, Dispatcher, MockRunQueue, MockRunStartStore, MockRunStore,
    MockSendRateLimiter, MockSendStore, MockTimeSlices, QueuedStart, RunEnd, RunFacts, RunInputs, RunReport,
    SendCounts, StartOutcome, Trigger, Worker,
};
use crate::media::tests::media;
use crate::messaging::{MetaStatus, MockWhatsappGateway};
use crate::settings::{LateAction, LatePolicy};
use crate::shared::{Event, MockCipher, MockClock, MockShutdown, MockTimer, NotificationKind};
use crate::templates::MockTemplateStore;
use crate::templates::tests::approved_template;
use crate::whatsapp::MessageFiles;

fn facts(status: CampaignStatus, meta_status: MetaStatus) -> RunFacts {
    let mut template = approved_template("Oi {{1}}!", &["Ana"]);
    template.meta_status = meta_status;
    let mut campaign = campaign(status);
    campaign.template_id = Some(template.id);
    RunFacts {
        campaign,
        template: Some(template),
        content_frozen: false,
        profile_id: None,
        number_unverified: false,
        billing: PlanEntitlement {
            plan: "free".into(),
            granted: None,
            subscriptions: vec![],
        },
        late_policy: None,
        now: NOW,
    }
}

/// The stores of a worker that holds the run.
#[derive(Default)]
struct Stores {
    starts: MockRunStartStore,
    queue: MockRunQueue,
    runs: MockRunStore,
    sends: MockSendStore,
}

fn queued_start(facts: RunFacts) -> Stores {
    queued_by(Trigger::Send, facts)
}

fn queued_by(trigger: Trigger, facts: RunFacts) -> Stores {
    let mut stores = Stores::default();
    stores.starts.expect_queued_start().returning(move |_| {
        Ok(Some(QueuedStart {
            trigger,
            actor: Some(tenant().actor),
        }))
    });
    stores
        .starts
        .expect_facts()
        .returning(move |_, _| Ok(Some(facts.clone())));
    stores.runs.expect_report().returning(|_| {
        Ok(Some(RunReport::of(
            &campaign(CampaignStatus::Draft),
            &SendCounts::default(),
        )))
    });
    stores
}

async fn execute(stores: Stores) -> RunEnd {
    let mut shutdown = MockShutdown::new();
    shutdown.expect_is_stopping().return_const(false);
    let mut time_slices = MockTimeSlices::new();
    time_slices.expect_should_yield().return_const(false);
    let dispatcher = Dispatcher {
        starts: Arc::new(stores.starts),
        queue: Arc::new(stores.queue),
        runs: Arc::new(stores.runs),
        sends: Arc::new(stores.sends),
        templates: Arc::new(MockTemplateStore::new()),
        gateway: Arc::new(MockWhatsappGateway::new()),
        files: MessageFiles::new(media(&Arc::default()), empty_file_ids()),
        cipher: Arc::new(MockCipher::new()),
        limiter: Arc::new(MockSendRateLimiter::new()),
        time_slices: Arc::new(time_slices),
        timer: Arc::new(MockTimer::new()),
        clock: Arc::new(MockClock::new()),
        shutdown: Arc::new(shutdown),
        worker: Worker {
            id: FIRST,
            delay: time::Duration::ZERO,
        },
    };
    dispatcher.run(RUN).await.unwrap()
}

fn expects_abort(starts: &mut MockRunStartStore, reason: &'static str) {
    starts
        .expect_abort_start()
        .withf(move |run, status, events| {
            let [Event::Notification(notification)] = events else {
                return false;
            };
            *run == RUN
                && *status == CampaignStatus::Draft
                && notification.kind == NotificationKind::Error
                && notification.message.contains(reason)
        })
        .times(1)
        .returning(|_, _, _| Ok(()));
}

#[tokio::test]
async fn scheduled_start_that_is_prepared_too_late_is_skipped() {
    let mut late = facts(CampaignStatus::Sending, MetaStatus::Approved);
    late.campaign.scheduled_at = Some(NOW - time::Duration::hours(2));
    late.late_policy = Some(LatePolicy {
        within: 3600,
        otherwise: LateAction::Skip,
    });
    let mut stores = queued_by(Trigger::Schedule, late);
    stores
        .starts
        .expect_skip_start()
        .withf(|run, status, events| {
            let is_complete = matches!(events, [Event::Audit(_), Event::Notification(_)]);
            (*run, *status) == (RUN, CampaignStatus::Draft) && is_complete
        })
        .times(1)
        .returning(|_, _, _| Ok(()));
    stores.starts.expect_start().never();
    execute(stores).await;
}

#[tokio::test]
async fn queued_start_is_prepared_and_executed() {
    let facts = facts(CampaignStatus::Sending, MetaStatus::Approved);
    let (campaign, template) = (facts.campaign.clone(), facts.template.clone().unwrap());
    let mut stores = queued_start(facts);
    stores
        .starts
        .expect_start()
        .withf(|start, worker, _| start.expected == CampaignStatus::Sending && *worker == Some(FIRST))
        .times(1)
        .returning(|_, _, _| Ok(StartOutcome::Started { recipients: 0 }));
    stores.runs.expect_inputs().returning(move |_| {
        let mut campaign = campaign.clone();
        campaign.simulated = true;
        Ok(Some(RunInputs {
            campaign,
            template: template.clone(),
            profile: None,
        }))
    });
    stores
        .sends
        .expect_claim()
        .returning(|_, _, _, _, _| Ok(ClaimOutcome::Exhausted));
    stores.runs.expect_finish().times(1).returning(|_| Ok(None));
    assert!(matches!(execute(stores).await, RunEnd::Over(_)));
}

#[tokio::test]
async fn queued_start_that_is_refused_is_aborted_with_the_reason() {
    let mut stores = queued_start(facts(CampaignStatus::Sending, MetaStatus::Paused));
    expects_abort(&mut stores.starts, "not approved");
    execute(stores).await;
    let mut stores = queued_start(facts(CampaignStatus::Sending, MetaStatus::Approved));
    stores
        .starts
        .expect_start()
        .returning(|_, _, _| Ok(StartOutcome::Refused(CampaignRefusal::NoRecipients)));
    expects_abort(&mut stores.starts, "no contact");
    execute(stores).await;
}

#[tokio::test]
async fn queued_start_of_a_cancelled_campaign_is_not_aborted() {
    let mut stores = queued_start(facts(CampaignStatus::Cancelled, MetaStatus::Approved));
    stores.starts.expect_abort_start().never();
    execute(stores).await;
}

#[tokio::test]
async fn queued_start_that_keeps_changing_is_released() {
    let mut stores = queued_start(facts(CampaignStatus::Sending, MetaStatus::Approved));
    stores
        .starts
        .expect_start()
        .times(3)
        .returning(|_, _, _| Ok(StartOutcome::Changed));
    stores.queue.expect_release().times(1).returning(|_, _| Ok(()));
    execute(stores).await;
}
