//! Tests of the decision whether a run may start.

use serde_json::json;
use time::macros::datetime;

use super::super::{CampaignStatus, RetryReport, StartOutcome, Trigger};
use super::*;
use crate::billing::{self, PlanEntitlement};
use crate::campaigns::service::tests::{NOW, campaign, tenant};
use crate::messaging::MetaStatus;
use crate::shared::AuditAction;
use crate::templates::Template;
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
        number_unverified: false,
        billing,
        late_policy: None,
        now: NOW,
    }
}

fn execute_request() -> QueuedStart {
    QueuedStart {
        trigger: Trigger::Execute,
        actor: Some(tenant().actor),
    }
}

fn prepared(facts: RunFacts) -> Result<RunStart, CampaignRefusal> {
    prepare(facts, Command::Start, execute_request())
}

#[test]
fn run_without_a_number_is_simulated() {
    let start = prepared(facts()).unwrap();
    assert_eq!(
        (start.campaign.status, start.campaign.simulated),
        (CampaignStatus::Sending, true)
    );
    assert_eq!((start.expected, start.monthly_limit), (CampaignStatus::Draft, 250));
    assert_eq!(start.campaign.executed_at, Some(NOW));
    let connected = prepared(RunFacts {
        profile_id: Some(uuid::Uuid::nil().into()),
        number_unverified: false,
        ..facts()
    })
    .unwrap();
    assert!(!connected.campaign.simulated);
}

#[test]
fn start_matches_only_the_campaign_it_was_decided_on() {
    let start = prepared(facts()).unwrap();
    let stored = facts().campaign;
    assert!(start.matches_campaign(&stored));
    assert!(!start.matches_campaign(&Campaign {
        name: "Outro".into(),
        ..stored.clone()
    }));
    assert!(!start.matches_campaign(&Campaign {
        rfm_segments: vec!["champions".into()],
        ..stored
    }));
}

#[test]
fn start_requires_the_template_it_was_decided_on() {
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
    let refused = Err(StartOutcome::Refused(CampaignRefusal::TemplateNotApproved));
    assert_eq!(start.check_template(None), refused);
    let draft = Template {
        meta_status: MetaStatus::Draft,
        ..template
    };
    assert_eq!(start.check_template(Some(&draft)), refused);
}

#[test]
fn start_is_refused_by_each_failed_precondition() {
    let sending = RunFacts {
        campaign: campaign(CampaignStatus::Sending),
        ..facts()
    };
    assert!(matches!(prepared(sending), Err(CampaignRefusal::Status { .. })));
    assert_eq!(
        prepared(RunFacts {
            template: None,
            ..facts()
        }),
        Err(CampaignRefusal::NoTemplate)
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
        Err(CampaignRefusal::TemplateNotApproved)
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
    assert_eq!(
        prepared(RunFacts { billing, ..facts() }),
        Err(CampaignRefusal::NoActivePlan)
    );
    let mut with_empty_placeholder = facts();
    with_empty_placeholder.campaign.variables =
        Some(super::super::Variables([("2".to_owned(), " ".to_owned())].into()));
    assert_eq!(
        prepared(with_empty_placeholder),
        Err(CampaignRefusal::EmptyPlaceholder {
            placeholder: "2".into()
        })
    );
}

#[test]
fn queued_start_is_prepared_only_while_sending() {
    let sending = || {
        let mut facts = facts();
        facts.campaign.status = CampaignStatus::Sending;
        facts
    };
    let start = prepare(sending(), Command::Prepare, execute_request()).unwrap();
    assert_eq!(
        (start.expected, start.campaign.status),
        (CampaignStatus::Sending, CampaignStatus::Sending)
    );
    let draft = prepare(facts(), Command::Prepare, execute_request());
    assert!(matches!(draft, Err(CampaignRefusal::Status { .. })));
    let without_template = RunFacts {
        template: None,
        ..sending()
    };
    assert_eq!(
        prepare(without_template, Command::Prepare, execute_request()),
        Err(CampaignRefusal::NoTemplate)
    );
}

#[test]
fn retry_requires_the_preconditions_of_a_start() {
    let ended = |status| {
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
    let retry = retried(ended(CampaignStatus::Partial)).unwrap();
    assert_eq!(
        (retry.expected, retry.campaign.status),
        (CampaignStatus::Partial, CampaignStatus::Sending)
    );
    assert_eq!((retry.campaign.completed_at, retry.run.trigger), (None, Trigger::Retry));
    assert_eq!(retry.expected_version, ended(CampaignStatus::Partial).campaign.version);
    let report = RetryReport {
        tried: 2,
        left_out: vec![],
    };
    let audit = retry.audit(&report);
    assert_eq!(
        (audit.action, audit.user_id),
        (AuditAction::Update, Some(tenant().actor.user_id))
    );
    let expected = json!({ "status": "sending", "previousStatus": "partial",
        "retry": { "codes": null, "not_before": null, "force": false, "tried": 2, "left_out": [] } });
    assert_eq!(audit.changes, Some(expected));
    for status in [CampaignStatus::Sent, CampaignStatus::Draft, CampaignStatus::Cancelled] {
        assert!(retried(ended(status)).is_err());
    }
    let without_template = RunFacts {
        template: None,
        ..ended(CampaignStatus::Completed)
    };
    assert_eq!(retried(without_template), Err(CampaignRefusal::NoTemplate));
}
