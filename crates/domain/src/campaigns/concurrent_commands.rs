//! Optimistic locking for commands: a command is decided again if the campaign changes between its read and its write.

use super::{Campaign, CampaignError, CampaignStatus, Campaigns, Command, transition};
use crate::shared::{CampaignId, Tenant, WriteOutcome, retry_on_conflict};

/// How often a start is decided again after a concurrent change. Each attempt freezes the audience, so it is expensive.
pub(super) const START_ATTEMPTS: usize = 3;

impl Campaigns {
    /// Optimistic locking: reads the campaign, then `attempt` decides on it and writes. `attempt` gets the campaign and
    /// the status to which the command leads. If the write meets a concurrent change, everything repeats as long as the
    /// new status allows the command. So no command fails because of a stale read, and no change is overwritten.
    pub(super) async fn apply_command<T>(
        &self,
        tenant: &Tenant,
        id: CampaignId,
        command: Command,
        attempt: impl AsyncFn(Campaign, CampaignStatus) -> Result<(WriteOutcome<CampaignStatus>, T), CampaignError>,
    ) -> Result<T, CampaignError> {
        retry_on_conflict(async || {
            let stored = self.get(tenant, id).await?;
            let status = transition(stored.status, command)?;
            let (write, output) = attempt(stored, status).await?;
            if let WriteOutcome::Stale(current_status) = write {
                transition(current_status, command)?;
            }
            Ok(write.or_missing(CampaignError::NotFound)?.map(|()| output))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use time::Duration;
    use uuid::Uuid;

    use super::super::service::tests::{NOW, campaign, campaigns_over, tenant};
    use super::super::{
        CampaignInput, CampaignRefusal, MockCampaignStore, MockRunRetryStore, MockRunStartStore, ScheduleInput,
    };
    use super::*;
    use crate::shared::{Event, WRITE_ATTEMPTS};

    const ID: CampaignId = CampaignId(Uuid::from_u128(1));

    /// A store whose campaign changes to the next of `versions` just before each write, as long as one is left. Such a
    /// write is stale; a write to the last version succeeds.
    fn racing(versions: Vec<Campaign>) -> (Campaigns, Arc<Mutex<Vec<Campaign>>>) {
        let versions = Arc::new(Mutex::new(versions));
        let written = Arc::new(Mutex::new(Vec::new()));
        let mut store = MockCampaignStore::new();
        let mut starts = MockRunStartStore::new();
        let versions_copy = versions.clone();
        store
            .expect_find()
            .returning(move |_, _| Ok(versions_copy.lock().unwrap().first().cloned()));
        store.expect_unknown_references().returning(|_, _| Ok(vec![]));
        let (versions_copy, log) = (versions.clone(), written.clone());
        store
            .expect_update()
            .returning(move |campaign, _, _| Ok(write(&versions_copy, &log, campaign)));
        let (versions_copy, log) = (versions.clone(), written.clone());
        store
            .expect_delete()
            .returning(move |campaign, _, _| Ok(write(&versions_copy, &log, campaign)));
        let (versions_copy, log) = (versions, written.clone());
        starts
            .expect_enqueue_start()
            .returning(move |start_request| Ok(write(&versions_copy, &log, &start_request.campaign)));
        (campaigns_over(store, starts, MockRunRetryStore::new()), written)
    }

    fn write(
        versions: &Mutex<Vec<Campaign>>,
        log: &Mutex<Vec<Campaign>>,
        campaign: &Campaign,
    ) -> WriteOutcome<CampaignStatus> {
        let mut versions = versions.lock().unwrap();
        if versions.len() > 1 {
            versions.remove(0);
            return WriteOutcome::Stale(versions[0].status);
        }
        log.lock().unwrap().push(campaign.clone());
        WriteOutcome::Done
    }

    fn named(name: &str) -> CampaignInput {
        CampaignInput {
            name: Some(name.into()),
            ..CampaignInput::default()
        }
    }

    async fn run_command(campaigns: &Campaigns, command: Command) -> Result<(), CampaignError> {
        let (later, tenant) = (NOW + Duration::hours(1), tenant());
        match command {
            Command::Edit => campaigns.update(&tenant, ID, named("Outro")).await.map(drop),
            Command::Schedule => campaigns
                .schedule(&tenant, ID, ScheduleInput::at(Some(later)))
                .await
                .map(drop),
            Command::Unschedule => campaigns.unschedule(&tenant, ID).await.map(drop),
            Command::Start => campaigns.enqueue_start(&tenant, ID).await.map(drop),
            Command::PauseOrResume => campaigns.pause(&tenant, ID).await.map(drop),
            Command::Cancel => campaigns.cancel(&tenant, ID).await.map(drop),
            Command::Delete => campaigns.delete(&tenant, ID).await,
            unexpected => panic!("{unexpected:?}"),
        }
    }

    #[tokio::test]
    async fn command_after_a_lost_race_follows_the_new_status() {
        use CampaignStatus::{Cancelled, Completed, Draft, Scheduled, Sending};
        for (command, before, after, allowed) in [
            (Command::Cancel, Scheduled, Sending, true),
            (Command::Cancel, Sending, Sending, true),
            (Command::Cancel, Sending, Completed, false),
            (Command::Edit, Draft, Scheduled, true),
            (Command::Edit, Scheduled, Draft, true),
            (Command::Edit, Draft, Sending, false),
            (Command::Schedule, Scheduled, Draft, true),
            (Command::Schedule, Draft, Cancelled, false),
            (Command::Unschedule, Scheduled, Scheduled, true),
            (Command::Unschedule, Scheduled, Sending, false),
            (Command::Start, Scheduled, Draft, true),
            (Command::Start, Draft, Sending, false),
            (Command::PauseOrResume, Sending, Sending, true),
            (Command::PauseOrResume, Sending, Completed, false),
            (Command::Delete, Draft, Scheduled, true),
            (Command::Delete, Scheduled, Sending, false),
        ] {
            let (campaigns, written) = racing(vec![campaign(before), campaign(after)]);
            let done = run_command(&campaigns, command).await;
            let written = written.lock().unwrap().len();
            assert_eq!(
                (done.is_ok(), written),
                (allowed, usize::from(allowed)),
                "{command:?} {after}"
            );
            if let Err(error) = done {
                let refused = CampaignRefusal::Status { status: after, command };
                assert!(matches!(error, CampaignError::Refused(found) if found == refused));
            }
        }
    }

    #[tokio::test]
    async fn command_on_a_constantly_changing_campaign_is_contended() {
        for (changes, allowed) in [(WRITE_ATTEMPTS - 1, true), (WRITE_ATTEMPTS, false)] {
            let versions = (0..=changes).map(|_| campaign(CampaignStatus::Scheduled)).collect();
            let (campaigns, _) = racing(versions);
            let done = run_command(&campaigns, Command::Cancel).await;
            assert_eq!(done.is_ok(), allowed);
            assert!(allowed || matches!(done, Err(CampaignError::Refused(CampaignRefusal::Contended))));
        }
    }

    #[tokio::test]
    async fn update_keeps_a_concurrent_change() {
        let later = NOW + Duration::hours(1);
        let scheduled = Campaign {
            scheduled_at: Some(later),
            ..campaign(CampaignStatus::Scheduled)
        };
        let (campaigns, written) = racing(vec![campaign(CampaignStatus::Draft), scheduled]);
        let changed = campaigns.update(&tenant(), ID, named("Outro")).await.unwrap();
        assert_eq!((changed.name.as_str(), changed.scheduled_at), ("Outro", Some(later)));
        assert_eq!(*written.lock().unwrap(), [changed]);
    }

    #[tokio::test]
    async fn concurrent_pause_keeps_the_first_reason() {
        let waiting = Campaign {
            paused_at: Some(NOW),
            pause_reason: Some("token expired".into()),
            ..campaign(CampaignStatus::Sending)
        };
        let (campaigns, written) = racing(vec![campaign(CampaignStatus::Sending), waiting]);
        let paused = campaigns.pause(&tenant(), ID).await.unwrap();
        assert_eq!(paused.pause_reason.as_deref(), Some("token expired"));
        assert!(written.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn cancel_after_a_lost_race_audits_the_latest_status() {
        let mut store = MockCampaignStore::new();
        let mut statuses = [CampaignStatus::Scheduled, CampaignStatus::Sending].into_iter();
        store
            .expect_find()
            .returning(move |_, _| Ok(statuses.next().map(campaign)));
        store
            .expect_update()
            .times(1)
            .withf(|_, expected, _| expected.status == CampaignStatus::Scheduled)
            .returning(|_, _, _| Ok(WriteOutcome::Stale(CampaignStatus::Sending)));
        store
            .expect_update()
            .times(1)
            .withf(|_, expected, events| {
                let previous = |events: &[Event]| match events.first() {
                    Some(Event::Audit(audit)) => audit.changes.clone(),
                    _ => None,
                };
                expected.status == CampaignStatus::Sending
                    && previous(events) == Some(serde_json::json!({ "previousStatus": "sending" }))
            })
            .returning(|_, _, _| Ok(WriteOutcome::Done));
        let campaigns = campaigns_over(store, MockRunStartStore::new(), MockRunRetryStore::new());
        assert_eq!(
            campaigns.cancel(&tenant(), ID).await.unwrap(),
            CampaignStatus::Cancelled
        );
    }
}
