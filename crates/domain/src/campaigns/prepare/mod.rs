//! Decides whether a run may start. Pure: the store first reads the facts, and afterwards writes the decision and its
//! events in one transaction.

use super::{
    Campaign, CampaignRefusal, Command, QueuedStart, RetryRequest, RunContent, RunFacts, RunRetry, RunStart,
    failed_preconditions, required_placeholders, transition,
};

/// Decides whether a run may start. The campaign must be draft or scheduled (`Start`) or have a queued start
/// (`Prepare`). Its template must be approved and sendable, each placeholder must have a value for some contact, and
/// the plan must be active.
///
/// The store then refuses an empty audience, a placeholder of [`RunStart::required_placeholders`] that is empty for
/// a recipient, and a run beyond the month's limit.
pub fn prepare(facts: RunFacts, command: Command, run: QueuedStart) -> Result<RunStart, CampaignRefusal> {
    if let Some(first) = failed_preconditions(&facts, command).into_iter().next() {
        return Err(first);
    }
    let (status, now, required_placeholders) = (
        transition(facts.campaign.status, command)?,
        facts.now,
        required_placeholders(&facts),
    );
    let monthly_limit = facts
        .billing
        .messages_per_month(now)
        .ok_or(CampaignRefusal::NoActivePlan)?;
    let template = facts.template.as_ref().ok_or(CampaignRefusal::NoTemplate)?;
    Ok(RunStart {
        content: RunContent::of(&facts.campaign, template),
        expected: facts.campaign.status,
        campaign: Campaign {
            status,
            simulated: facts.profile_id.is_none(),
            executed_at: Some(now),
            completed_at: None,
            skipped_at: None,
            updated_at: now,
            ..facts.campaign
        },
        trigger: run.trigger,
        actor: run.actor,
        profile_id: facts.profile_id,
        monthly_limit,
        required_placeholders,
    })
}

/// Decides whether the failed sends of a campaign may be retried.
pub fn prepare_retry(facts: RunFacts, run: QueuedStart, request: RetryRequest) -> Result<RunRetry, CampaignRefusal> {
    facts.campaign.check_not_archived()?;
    if let Some(first) = failed_preconditions(&facts, Command::Retry).into_iter().next() {
        return Err(first);
    }
    let monthly_limit = facts
        .billing
        .messages_per_month(facts.now)
        .ok_or(CampaignRefusal::NoActivePlan)?;
    Ok(RunRetry {
        expected: facts.campaign.status,
        expected_version: facts.campaign.version,
        run,
        request,
        profile_id: facts.profile_id,
        monthly_limit,
        campaign: Campaign {
            status: transition(facts.campaign.status, Command::Retry)?,
            completed_at: None,
            retry_scheduled_at: None,
            updated_at: facts.now,
            ..facts.campaign
        },
    })
}

#[cfg(test)]
pub(crate) mod tests;
