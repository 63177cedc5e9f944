//! Runs that stop: WhatsApp pauses the template or rejects unreadably, the number is missing, or the campaign is
//! deleted.

use std::future::pending;
use std::sync::Arc;

use async_trait::async_trait;
use time::Duration;

use super::fixture::{FIRST, Fixture, RUN, SECOND, accepted, opaque_rejection, phone, template_paused};
use super::{all_phones, over, paused};
use crate::campaigns::{BUDGET_REACHED, Burst, CampaignStatus, Dispatcher, RunEnd, SendRateLimiter, SlotTime};
use crate::messaging::{MetaStatus, SendStatus};
use crate::shared::{Event, NotificationKind, StoreError, WRITE_ATTEMPTS, WriteOutcome};
use crate::templates::tests::approved_template;
use crate::templates::{MockTemplateStore, Template};

#[tokio::test]
async fn unreadable_rejection_pauses_the_run_and_is_never_resent() {
    let fixture = Fixture::new(12, |to, call| {
        if to == phone(2) && call == 0 {
            opaque_rejection()
        } else {
            accepted(to)
        }
    });
    assert_eq!(fixture.run().await, paused(12, 2));
    assert_eq!(fixture.called_phones(), all_phones(3));
    let row = fixture.row(2);
    assert_eq!(
        (row.status, row.unknown_at.is_some(), row.started_at.is_some()),
        (SendStatus::Pending, true, true)
    );
    let reason = fixture.runs.tables().campaign().pause_reason.clone().unwrap();
    assert!(reason.contains("HTTP 403"), "{reason}");
    fixture.runs.resume();
    assert_eq!(
        fixture.take_over(SECOND).await,
        Some(over(12, 11, CampaignStatus::Partial))
    );
    assert_eq!(fixture.called_phones(), all_phones(12), "a contact was called twice");
}

#[tokio::test]
async fn run_pauses_when_its_budget_is_reached() {
    let fixture = Fixture::new(12, |to, _| accepted(to));
    fixture.runs.tables().admitted_sends = Some(5);
    assert_eq!(fixture.run().await, paused(12, 5));
    assert_eq!(fixture.called_phones(), all_phones(5));
    assert_eq!(
        fixture.runs.tables().campaign().pause_reason.as_deref(),
        Some(BUDGET_REACHED)
    );
    fixture.runs.tables().admitted_sends = None;
    fixture.runs.resume();
    assert_eq!(
        fixture.take_over(SECOND).await,
        Some(over(12, 12, CampaignStatus::Completed))
    );
    assert_eq!(fixture.called_phones(), all_phones(12), "a contact was called twice");
}

#[tokio::test]
async fn paused_template_is_stored_before_the_run_pauses() {
    let mut fixture = Fixture::new(12, |to, _| {
        if to == phone(2) {
            template_paused()
        } else {
            accepted(to)
        }
    });
    let mut templates = MockTemplateStore::new();
    let mut outcomes = [WriteOutcome::Stale(MetaStatus::Approved), WriteOutcome::Done].into_iter();
    let runs = fixture.runs.clone();
    // The stored template is updated, not the run's frozen content.
    let stored = approved_template("Tchau", &[]);
    let found = stored.clone();
    templates
        .expect_find()
        .withf(|_, id| *id == approved_template("", &[]).id)
        .returning(move |_, _| Ok(Some(found.clone())));
    templates
        .expect_update()
        .times(2)
        .withf(move |reviewed, expected, events| {
            let is_paused = runs.tables().campaign().paused_at.is_some();
            assert!(!is_paused, "the run was paused before the template was updated");
            reviewed.meta_status == MetaStatus::Paused
                && reviewed.updated_at > expected.updated_at
                && *expected == stored
                && reviewed.content() == stored.content()
                && matches!(events, [Event::Notification(notification)]
                    if notification.title.starts_with("Template paused"))
        })
        .returning(move |_, _, _| Ok(outcomes.next().unwrap()));
    fixture.templates = Arc::new(templates);
    assert_eq!(fixture.run().await, paused(12, 2));
    let state = fixture.runs.tables();
    assert_eq!(
        state.campaign().pause_reason.as_deref(),
        Some("Template is paused (code 132015)")
    );
}

#[tokio::test]
async fn contended_template_still_pauses_the_run() {
    let mut fixture = Fixture::new(3, |_, _| template_paused());
    let mut templates = MockTemplateStore::new();
    let found = approved_template("Tchau", &[]);
    templates.expect_find().returning(move |_, _| Ok(Some(found.clone())));
    templates
        .expect_update()
        .times(WRITE_ATTEMPTS)
        .returning(|_, _, _| Ok(WriteOutcome::Stale(MetaStatus::Approved)));
    fixture.templates = Arc::new(templates);
    assert_eq!(fixture.run().await, paused(3, 0));
}

#[tokio::test]
async fn changed_template_keeps_its_status() {
    let draft = Template {
        meta_status: MetaStatus::Draft,
        ..approved_template("Tchau", &[])
    };
    for found in [Some(draft), None] {
        let mut fixture = Fixture::new(3, |_, _| template_paused());
        let mut templates = MockTemplateStore::new();
        templates.expect_find().returning(move |_, _| Ok(found.clone()));
        templates.expect_update().never();
        fixture.templates = Arc::new(templates);
        assert_eq!(fixture.run().await, paused(3, 0));
    }
}

#[tokio::test]
async fn run_without_its_number_pauses() {
    let unreadable = Fixture::new(3, |to, _| accepted(to));
    let end = unreadable.dispatcher_with(FIRST, false).run(RUN).await.unwrap();
    let disconnected = Fixture::new(3, |to, _| accepted(to));
    disconnected
        .runs
        .tables()
        .accounts
        .values_mut()
        .for_each(|account| account.profiles.clear());
    assert_eq!((end, disconnected.run().await), (paused(3, 0), paused(3, 0)));
    for fixture in [unreadable, disconnected] {
        assert_eq!(fixture.called_phones().len(), 0);
        let (state, reason) = (fixture.runs.tables(), "the WhatsApp number is not connected any more");
        assert_eq!(state.campaign().pause_reason.as_deref(), Some(reason));
        let is_warning = |event: &Event| matches!(event, Event::Notification(n) if n.kind == NotificationKind::Warning);
        assert!(matches!(&state.events[..], [event] if is_warning(event)));
    }
}

#[tokio::test]
async fn run_of_a_deleted_campaign_ends_as_gone() {
    let fixture = Fixture::new(3, |to, _| accepted(to));
    fixture.runs.tables().campaigns.clear();
    assert_eq!(fixture.run().await, RunEnd::Gone);
}

/// Send slots that are far away. The server stops while a run waits for the first.
struct DistantSlots(Fixture);

#[async_trait]
impl SendRateLimiter for DistantSlots {
    async fn reserve(&self, _: &str, _: Burst) -> Result<SlotTime, StoreError> {
        Ok(SlotTime(Duration::HOUR))
    }

    fn limit(&self, _: &str) -> Option<f64> {
        None
    }

    async fn slow_down(&self, _: &str, _: f64) -> Result<(), StoreError> {
        Ok(())
    }

    async fn until(&self, _: SlotTime, _: Duration) {
        self.0.stop_after(Some(0));
        tokio::task::yield_now().await;
        pending().await
    }

    fn since(&self, slot_time: SlotTime) -> Duration {
        -slot_time.0
    }
}

#[tokio::test]
async fn stop_ends_the_wait_for_a_distant_slot() {
    let fixture = Fixture::new(3, |to, _| accepted(to));
    let dispatcher = Dispatcher {
        limiter: Arc::new(DistantSlots(fixture.clone())),
        ..fixture.dispatcher(FIRST)
    };
    assert_eq!(dispatcher.run(RUN).await.unwrap(), RunEnd::HandedOver);
    assert!(fixture.called_phones().is_empty() && (0..3).all(|at| fixture.row(at).started_at.is_none()));
}
