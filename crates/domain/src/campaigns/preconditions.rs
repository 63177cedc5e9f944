//! The preconditions of a run: the same rules for every start, retry and resume.

use super::{CampaignRefusal, Command, RequiredPlaceholder, ResumeFacts, RunFacts, may_be_sent, transition};
use crate::templates::Template;

/// All failed preconditions of a run, in the order in which they are reported. The store checks the audience and the
/// month's quota.
pub fn failed_preconditions(facts: &RunFacts, command: Command) -> Vec<CampaignRefusal> {
    let mut found = Vec::new();
    found.extend(transition(facts.campaign.status, command).err());
    found.extend(failed_template_preconditions(facts));
    for required in required_placeholders(facts) {
        if required.fields.is_empty() {
            let placeholder = required.placeholder;
            found.push(CampaignRefusal::EmptyPlaceholder { placeholder });
        }
    }
    found.extend(missing_values(facts));
    found.extend(check_number(facts).err());
    if facts.billing.messages_per_month(facts.now).is_none() {
        found.push(CampaignRefusal::NoActivePlan);
    }
    found
}

/// The campaign's template if it may be sent.
pub(super) fn approved_template(facts: &RunFacts) -> Result<&Template, CampaignRefusal> {
    match failed_template_preconditions(facts).into_iter().next() {
        Some(refusal) => Err(refusal),
        None => facts.template.as_ref().ok_or(CampaignRefusal::NoTemplate),
    }
}

fn failed_template_preconditions(facts: &RunFacts) -> Vec<CampaignRefusal> {
    let Some(template) = &facts.template else {
        return vec![CampaignRefusal::NoTemplate];
    };
    let mut found = Vec::new();
    if !may_be_sent(template, facts.content_frozen) {
        found.push(CampaignRefusal::TemplateNotApproved);
    }
    found.extend(check_sendable(template).err());
    found
}

/// The first precondition that forbids to resume a paused run: those of a start, the number and the quota. The month's
/// usage already includes the run's messages, so the quota is exceeded only if the plan was downgraded.
pub(super) fn failed_resume_precondition(facts: &ResumeFacts) -> Option<CampaignRefusal> {
    let run = &facts.run;
    if let Some(first) = failed_preconditions(run, Command::PauseOrResume).into_iter().next() {
        return Some(first);
    }
    if facts.number_lost {
        return Some(CampaignRefusal::NumberNotConnected);
    }
    let budget = run.campaign.budget.as_ref();
    if let Some(refusal) = budget.and_then(|budget| budget.check_spent(&facts.cost).err()) {
        return Some(refusal);
    }
    let (limit, quota) = (run.billing.messages_per_month(run.now)?, facts.quota?);
    (quota.used > limit).then(|| CampaignRefusal::QuotaExceeded {
        limit,
        left: limit.saturating_sub(quota.used).saturating_add(quota.pending).max(0),
        wanted: quota.pending,
    })
}

/// Refuses a number that WhatsApp has not confirmed.
pub(super) fn check_number(facts: &RunFacts) -> Result<(), CampaignRefusal> {
    match facts.number_unverified {
        true => Err(CampaignRefusal::NumberUnverified),
        false => Ok(()),
    }
}

/// Refuses a template with components that Recado cannot send.
pub(super) fn check_sendable(template: &Template) -> Result<(), CampaignRefusal> {
    match template.unsendable_reasons() {
        reasons if reasons.is_empty() => Ok(()),
        reasons => Err(CampaignRefusal::TemplateNotSendable { reasons }),
    }
}

/// The values beside the placeholders that the template needs and the campaign does not have.
pub(super) fn missing_values(facts: &RunFacts) -> Vec<CampaignRefusal> {
    let campaign = &facts.campaign;
    let missing = facts
        .template
        .as_ref()
        .map(|template| template.missing_values(campaign.header_location.as_ref(), campaign.offer_expires_at));
    let missing = missing.unwrap_or_default().into_iter();
    missing.map(|field| CampaignRefusal::MissingValue { field }).collect()
}

/// The placeholders that must not be empty for any recipient.
pub fn required_placeholders(facts: &RunFacts) -> Vec<RequiredPlaceholder> {
    let variables = facts.campaign.variables.clone().unwrap_or_default();
    let placeholders = facts.template.as_ref().map(Template::placeholders);
    variables.required_placeholders(&placeholders.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::Duration;
    use uuid::Uuid;

    use super::super::prepare::tests::facts;
    use super::super::service::tests::{NOW, campaigns_over, tenant};
    use super::super::{
        CampaignError, CampaignStatus, MockCampaignStore, MockRunRetryStore, MockRunStartStore, RunQuota,
        ScheduleInput, Variables,
    };
    use super::*;
    use crate::messaging::MetaStatus;
    use crate::shared::CampaignId;
    use crate::templates::outbound_tests::{location, location_template, offer_template};

    #[test]
    fn failed_preconditions_lists_all_of_them() {
        let mut worst = facts();
        worst.campaign.status = CampaignStatus::Sent;
        worst.template = None;
        worst.billing.plan = "gold".into();
        let found = failed_preconditions(&worst, Command::Start);
        assert!(matches!(
            found[..],
            [
                CampaignRefusal::Status { .. },
                CampaignRefusal::NoTemplate,
                CampaignRefusal::NoActivePlan
            ]
        ));
        assert_eq!(failed_preconditions(&facts(), Command::Start), []);
        let unsendable = facts().template.map(|template| Template {
            meta_status: MetaStatus::Pending,
            buttons: vec![json!({ "type": "FLOW", "text": "Agendar" }).into()],
            ..template
        });
        let facts = RunFacts {
            template: unsendable,
            ..facts()
        };
        let reasons = vec!["unsupported_button:flow".to_owned()];
        assert_eq!(
            failed_preconditions(&facts, Command::Start),
            [
                CampaignRefusal::TemplateNotApproved,
                CampaignRefusal::TemplateNotSendable { reasons }
            ]
        );
    }

    #[test]
    fn location_and_end_of_offer_are_preconditions() {
        for (template, field) in [
            (location_template(), "header_location"),
            (offer_template(true), "offer_expires_at"),
        ] {
            let mut facts = RunFacts {
                template: Some(template),
                ..facts()
            };
            let found = failed_preconditions(&facts, Command::Start);
            assert_eq!(found, [CampaignRefusal::MissingValue { field }]);
            let details = json!({ "reason": "placeholder_empty", "placeholders": [field] });
            assert_eq!(found[0].details(), details);
            facts.campaign.header_location = Some(location());
            facts.campaign.offer_expires_at = Some(NOW);
            assert_eq!(failed_preconditions(&facts, Command::Start), []);
        }
    }

    fn paused() -> ResumeFacts {
        let mut run = facts();
        run.campaign.status = CampaignStatus::Sending;
        run.content_frozen = true;
        ResumeFacts {
            cost: crate::costs::CampaignCost::default(),
            run,
            number_lost: false,
            quota: None,
        }
    }

    #[test]
    fn resume_requires_the_preconditions_of_a_start() {
        assert_eq!(failed_resume_precondition(&paused()), None);
        for (status, refused) in [
            (MetaStatus::Draft, false),
            (MetaStatus::Pending, true),
            (MetaStatus::Rejected, true),
            (MetaStatus::Paused, true),
            (MetaStatus::Disabled, true),
        ] {
            let mut facts = paused();
            facts.run.template.as_mut().unwrap().meta_status = status;
            let refusal = refused.then_some(CampaignRefusal::TemplateNotApproved);
            assert_eq!(failed_resume_precondition(&facts), refusal, "{status}");
            // Without frozen content, the template itself must be approved.
            facts.run.content_frozen = false;
            assert_eq!(
                failed_resume_precondition(&facts),
                Some(CampaignRefusal::TemplateNotApproved)
            );
        }
        let mut facts = paused();
        facts.run.template = None;
        assert_eq!(failed_resume_precondition(&facts), Some(CampaignRefusal::NoTemplate));
        let mut facts = paused();
        facts.run.campaign.variables = Some(Variables([("2".to_owned(), " ".to_owned())].into()));
        let placeholder = "2".to_owned();
        assert_eq!(
            failed_resume_precondition(&facts),
            Some(CampaignRefusal::EmptyPlaceholder { placeholder })
        );
        let mut facts = paused();
        facts.run.billing.plan = "gold".into();
        assert_eq!(failed_resume_precondition(&facts), Some(CampaignRefusal::NoActivePlan));
        let facts = ResumeFacts {
            number_lost: true,
            ..paused()
        };
        assert_eq!(
            failed_resume_precondition(&facts),
            Some(CampaignRefusal::NumberNotConnected)
        );
    }

    #[test]
    fn resume_counts_reserved_messages_once() {
        // The free plan has 250 messages a month.
        for (used, pending, left) in [(250, 40, None), (251, 40, Some(39)), (900, 40, Some(0))] {
            let quota = Some(RunQuota { used, pending });
            let refused = failed_resume_precondition(&ResumeFacts { quota, ..paused() });
            let expected = left.map(|left| CampaignRefusal::QuotaExceeded {
                limit: 250,
                left,
                wanted: 40,
            });
            assert_eq!(refused, expected);
        }
    }

    #[tokio::test]
    async fn send_and_schedule_refuse_an_unsendable_template() {
        for schedule in [false, true] {
            let facts = facts();
            let template = facts.template.map(|template| Template {
                unsupported: vec!["unsupported_header:location".into()],
                ..template
            });
            let facts = RunFacts { template, ..facts };
            let campaign = facts.campaign.clone();
            let mut store = MockCampaignStore::new();
            store.expect_find().returning(move |_, _| Ok(Some(campaign.clone())));
            let mut starts = MockRunStartStore::new();
            starts.expect_facts().returning(move |_, _| Ok(Some(facts.clone())));
            let campaigns = campaigns_over(store, starts, MockRunRetryStore::new());
            let done = match schedule {
                true => {
                    campaigns
                        .schedule(
                            &tenant(),
                            CampaignId(Uuid::from_u128(1)),
                            ScheduleInput::at(Some(NOW + Duration::hours(1))),
                        )
                        .await
                }
                false => campaigns.enqueue_start(&tenant(), CampaignId(Uuid::from_u128(1))).await,
            };
            let Err(CampaignError::Refused(refusal)) = done else {
                panic!("{done:?}")
            };
            assert_eq!(refusal.reason(), "template_not_sendable");
            assert!(refusal.to_string().contains("unsupported_header:location"), "{refusal}");
        }
    }
}
