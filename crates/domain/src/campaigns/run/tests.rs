//! Tests of what a run is decided on.

use time::macros::datetime;

use super::super::CampaignStatus;
use super::*;
use crate::billing;
use crate::campaigns::service::tests::{NOW, campaign, tenant};
use crate::templates::MetaStatus;
use crate::templates::tests::approved_template;

pub(crate) fn facts() -> RunFacts {
    let template = approved_template("Oi {{1}}, use {{2}}.", &["Ana", "PROMO10"]);
    let campaign = Campaign {
        template_id: Some(template.id),
        ..campaign(CampaignStatus::Draft)
    };
    let billing = PlanEntitlement {
        plan: "free".into(),
        granted: None,
        subscriptions: vec![],
    };
    RunFacts {
        campaign,
        template: Some(template),
        content_frozen: false,
        profile_id: None,
        billing,
        now: NOW,
    }
}

fn by_execute() -> QueuedStart {
    QueuedStart {
        trigger: Trigger::Execute,
        actor: Some(tenant().actor),
    }
}

fn prepared(facts: RunFacts) -> Result<RunStart, Refusal> {
    prepare(facts, Command::Start, by_execute())
}

#[test]
fn a_run_without_a_number_is_simulated() {
    let start = prepared(facts()).unwrap();
    assert_eq!(
        (start.campaign.status, start.campaign.simulated),
        (CampaignStatus::Sending, true)
    );
    assert_eq!((start.expected, start.monthly_limit), (CampaignStatus::Draft, 250));
    assert_eq!(start.campaign.executed_at, Some(NOW));
    let connected = prepared(RunFacts {
        profile_id: Some(uuid::Uuid::nil().into()),
        ..facts()
    })
    .unwrap();
    assert!(!connected.campaign.simulated);
}

#[test]
fn a_start_is_of_the_campaign_it_was_decided_on() {
    let start = prepared(facts()).unwrap();
    let stored = facts().campaign;
    assert!(start.is_of(&stored));
    assert!(!start.is_of(&Campaign {
        name: "Outro".into(),
        ..stored.clone()
    }));
    assert!(!start.is_of(&Campaign {
        rfm_segments: vec!["champions".into()],
        ..stored
    }));
}

#[test]
fn a_start_sends_the_template_it_was_decided_on_or_nothing() {
    let start = prepared(facts()).unwrap();
    let template = facts().template.unwrap();
    assert_eq!(start.content, RunContent::of(&facts().campaign, &template));
    assert_eq!(start.check_template(Some(&template)), Ok(()));
    let edited = approved_template("Oi {{1}}, veja {{2}}.", &["Ana", "PROMO10"]);
    assert_eq!(start.check_template(Some(&edited)), Err(StartOutcome::Changed));
    let unsupported = Template {
        unsupported: vec!["unsupported_button:flow".into()],
        ..template.clone()
    };
    assert_eq!(start.check_template(Some(&unsupported)), Err(StartOutcome::Changed));
    let refused = Err(StartOutcome::Refused(Refusal::TemplateNotApproved));
    assert_eq!(start.check_template(None), refused);
    let draft = Template {
        meta_status: MetaStatus::Draft,
        ..template
    };
    assert_eq!(start.check_template(Some(&draft)), refused);
}

#[test]
fn each_precondition_refuses() {
    let sending = RunFacts {
        campaign: campaign(CampaignStatus::Sending),
        ..facts()
    };
    assert!(matches!(prepared(sending), Err(Refusal::Status { .. })));
    assert_eq!(
        prepared(RunFacts {
            template: None,
            ..facts()
        }),
        Err(Refusal::NoTemplate)
    );
    let pending = facts().template.map(|t| Template {
        meta_status: MetaStatus::Pending,
        ..t
    });
    assert_eq!(
        prepared(RunFacts {
            template: pending,
            ..facts()
        }),
        Err(Refusal::TemplateNotApproved)
    );
    let lapsed = billing::SubscriptionState {
        plan: "growth".into(),
        status: billing::SubscriptionStatus::PastDue,
        current_period_end: Some(datetime!(2026-02-28 0:00 UTC)),
    };
    let billing = PlanEntitlement {
        plan: "growth".into(),
        granted: None,
        subscriptions: vec![lapsed],
    };
    assert_eq!(prepared(RunFacts { billing, ..facts() }), Err(Refusal::NoActivePlan));
    let mut blank = facts();
    blank.campaign.variables = Some(super::super::Variables([("2".to_owned(), " ".to_owned())].into()));
    assert_eq!(
        prepared(blank),
        Err(Refusal::EmptyPlaceholder {
            placeholder: "2".into()
        })
    );
}

#[test]
fn a_queued_start_is_prepared_while_it_is_sending() {
    let sending = || {
        let mut facts = facts();
        facts.campaign.status = CampaignStatus::Sending;
        facts
    };
    let start = prepare(sending(), Command::Prepare, by_execute()).unwrap();
    assert_eq!(
        (start.expected, start.campaign.status),
        (CampaignStatus::Sending, CampaignStatus::Sending)
    );
    let draft = prepare(facts(), Command::Prepare, by_execute());
    assert!(matches!(draft, Err(Refusal::Status { .. })));
    let blank = RunFacts {
        template: None,
        ..sending()
    };
    assert_eq!(prepare(blank, Command::Prepare, by_execute()), Err(Refusal::NoTemplate));
}

#[test]
fn failed_sends_are_tried_again_under_the_same_rules() {
    let of = |status| {
        let mut facts = facts();
        facts.campaign.status = status;
        facts.campaign.completed_at = Some(NOW);
        facts
    };
    let retried = |facts| {
        let run = QueuedStart {
            trigger: Trigger::Retry,
            actor: Some(tenant().actor),
        };
        prepare_retry(facts, run, RetryRequest::default())
    };
    let retry = retried(of(CampaignStatus::Partial)).unwrap();
    assert_eq!(
        (retry.expected, retry.campaign.status),
        (CampaignStatus::Partial, CampaignStatus::Sending)
    );
    assert_eq!((retry.campaign.completed_at, retry.run.trigger), (None, Trigger::Retry));
    assert_eq!(retry.expected_version, of(CampaignStatus::Partial).campaign.version);
    let report = RetryReport {
        tried: 2,
        left_out: vec![],
    };
    let audit = retry.audit(&report);
    assert_eq!(
        (audit.action, audit.user_id),
        (AuditAction::Update, Some(tenant().actor.user_id))
    );
    let wanted = json!({ "status": "sending", "previousStatus": "partial",
        "retry": { "codes": null, "not_before": null, "force": false, "tried": 2, "left_out": [] } });
    assert_eq!(audit.changes, Some(wanted));
    for status in [CampaignStatus::Sent, CampaignStatus::Draft, CampaignStatus::Cancelled] {
        assert!(retried(of(status)).is_err());
    }
    let unapproved = RunFacts {
        template: None,
        ..of(CampaignStatus::Completed)
    };
    assert_eq!(retried(unapproved), Err(Refusal::NoTemplate));
}
