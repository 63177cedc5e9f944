//! Runs that the platform stops: by a template that it has paused, or by an answer that is nobody's word.

use std::sync::Arc;

use super::super::{CampaignStatus, SendStatus};
use super::fixture::{Fixture, SECOND, accepted, opaque_rejection, phone, template_paused};
use super::{all_phones, over, paused};
use crate::shared::{Event, WriteOutcome};
use crate::templates::tests::approved_template;
use crate::templates::{MetaStatus, MockTemplateStore, Template};

#[tokio::test]
async fn a_refusal_that_cannot_be_read_is_never_sent_again_and_the_run_waits() {
    let fixture = Fixture::new(12, |to, call| {
        if to == phone(2) && call == 0 {
            opaque_rejection()
        } else {
            accepted(to)
        }
    });
    assert_eq!(fixture.carry_out().await, paused(12, 2));
    assert_eq!(fixture.called(), all_phones(3));
    let row = fixture.row(2);
    assert_eq!(
        (row.status, row.unknown, row.started),
        (SendStatus::Pending, true, true)
    );
    let reason = fixture.runs.state().campaign().pause_reason.clone().unwrap();
    assert!(reason.contains("HTTP 403"), "{reason}");
    fixture.runs.resume();
    assert_eq!(
        fixture.take_over(SECOND).await,
        Some(over(12, 11, CampaignStatus::Partial))
    );
    assert_eq!(fixture.called(), all_phones(12), "somebody was written to twice");
}

#[tokio::test]
async fn what_a_refusal_says_of_the_template_is_kept_before_the_run_waits() {
    let mut fixture = Fixture::new(12, |to, _| {
        if to == phone(2) {
            template_paused()
        } else {
            accepted(to)
        }
    });
    let mut templates = MockTemplateStore::new();
    let mut answers = [WriteOutcome::Stale(MetaStatus::Approved), WriteOutcome::Done].into_iter();
    let runs = fixture.runs.clone();
    // What is stored is written, not what the run sends.
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
            let waits = runs.state().campaign().paused_at.is_some();
            assert!(!waits, "the run waits, and the template is still approved");
            reviewed.meta_status == MetaStatus::Paused
                && reviewed.updated_at > expected.updated_at
                && *expected == stored
                && reviewed.content() == stored.content()
                && matches!(events, [Event::Notification(told)] if told.title.starts_with("Template paused"))
        })
        .returning(move |_, _, _| Ok(answers.next().unwrap()));
    fixture.templates = Arc::new(templates);
    assert_eq!(fixture.carry_out().await, paused(12, 2));
    let state = fixture.runs.state();
    assert_eq!(
        state.campaign().pause_reason.as_deref(),
        Some("Template is paused (code 132015)")
    );
}

#[tokio::test]
async fn a_template_that_was_changed_since_keeps_its_status() {
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
        assert_eq!(fixture.carry_out().await, paused(3, 0));
    }
}
