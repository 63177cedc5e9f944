//! Commands that are decided on anew when the campaign changes between its reading and its writing.

use super::{Campaign, CampaignError, CampaignStatus, Campaigns, Command, transition};
use crate::shared::{CampaignId, Tenant, WRITE_ATTEMPTS, WriteOutcome, retry_on_conflict};

/// How often the start of a run is decided on: each attempt freezes the audience.
pub(super) const ATTEMPTS: u32 = 3;

impl Campaigns {
    /// Reads the campaign, and lets `attempt` decide on it, given the status that the command leads to, and write. Where
    /// something was faster, all of it happens again, as long as the command is allowed: nobody is refused, and nobody's
    /// change is overwritten, for what was true a moment ago.
    pub(super) async fn decided<T>(
        &self,
        tenant: &Tenant,
        id: CampaignId,
        command: Command,
        attempt: impl AsyncFn(Campaign, CampaignStatus) -> Result<(WriteOutcome<CampaignStatus>, T), CampaignError>,
    ) -> Result<T, CampaignError> {
        retry_on_conflict(WRITE_ATTEMPTS, async || {
            let stored = self.get(tenant, id).await?;
            let status = transition(stored.status, command)?;
            let (write, decided) = attempt(stored, status).await?;
            if let WriteOutcome::Stale(found) = write {
                transition(found, command)?;
            }
            Ok(write.or_missing(CampaignError::NotFound)?.map(|()| decided))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use time::Duration;
    use uuid::Uuid;

    use super::super::service::tests::{NOW, campaign, tenant};
    use super::super::{CampaignInput, MockCampaignStore, MockRunStore, Refusal};
    use super::*;
    use crate::shared::{Event, MockClock, MockIds};

    const ID: CampaignId = CampaignId(Uuid::from_u128(1));

    /// A store in which the campaign becomes the next of `lives` just before each write that finds one; a write is
    /// accepted where nothing is left to happen.
    fn racing(lives: Vec<Campaign>) -> (Campaigns, Arc<Mutex<Vec<Campaign>>>) {
        let lives = Arc::new(Mutex::new(lives));
        let written = Arc::new(Mutex::new(Vec::new()));
        let mut store = MockCampaignStore::new();
        let mut runs = MockRunStore::new();
        let life = lives.clone();
        store
            .expect_find()
            .returning(move |_, _| Ok(life.lock().unwrap().first().cloned()));
        store.expect_unknown_references().returning(|_, _| Ok(vec![]));
        let (life, log) = (lives.clone(), written.clone());
        store
            .expect_update()
            .returning(move |campaign, _, _| Ok(write(&life, &log, campaign)));
        let (life, log) = (lives.clone(), written.clone());
        store
            .expect_delete()
            .returning(move |campaign, _, _| Ok(write(&life, &log, campaign)));
        let (life, log) = (lives, written.clone());
        runs.expect_enqueue_start()
            .returning(move |start_request| Ok(write(&life, &log, &start_request.campaign)));
        let mut clock = MockClock::new();
        clock.expect_now().return_const(NOW);
        let mut ids = MockIds::new();
        ids.expect_next().returning(|| ID.0);
        let campaigns = Campaigns::new(Arc::new(store), Arc::new(runs), Arc::new(clock), Arc::new(ids));
        (campaigns, written)
    }

    fn write(
        lives: &Mutex<Vec<Campaign>>,
        log: &Mutex<Vec<Campaign>>,
        campaign: &Campaign,
    ) -> WriteOutcome<CampaignStatus> {
        let mut lives = lives.lock().unwrap();
        if lives.len() > 1 {
            lives.remove(0);
            return WriteOutcome::Stale(lives[0].status);
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

    async fn commanded(campaigns: &Campaigns, command: Command) -> Result<(), CampaignError> {
        let (later, tenant) = (NOW + Duration::hours(1), tenant());
        match command {
            Command::Edit => campaigns.update(&tenant, ID, named("Outro")).await.map(drop),
            Command::Schedule => campaigns.schedule(&tenant, ID, Some(later)).await.map(drop),
            Command::Unschedule => campaigns.unschedule(&tenant, ID).await.map(drop),
            Command::Start => campaigns.enqueue_start(&tenant, ID).await.map(drop),
            Command::PauseOrResume => campaigns.pause(&tenant, ID).await.map(drop),
            Command::Cancel => campaigns.cancel(&tenant, ID).await.map(drop),
            Command::Delete => campaigns.delete(&tenant, ID).await,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_lost_race_is_refused_only_where_the_new_status_refuses() {
        use CampaignStatus::{Cancelled, Completed, Draft, Scheduled, Sending};
        for (command, before, after, goes) in [
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
            let done = commanded(&campaigns, command).await;
            let written = written.lock().unwrap().len();
            assert_eq!(
                (done.is_ok(), written),
                (goes, usize::from(goes)),
                "{command:?} {after}"
            );
            if let Err(error) = done {
                let refused = Refusal::Status { status: after, command };
                assert!(matches!(error, CampaignError::Refused(found) if found == refused));
            }
        }
    }

    #[tokio::test]
    async fn a_campaign_that_changes_all_the_time_is_told_so() {
        for (changes, goes) in [(WRITE_ATTEMPTS - 1, true), (WRITE_ATTEMPTS, false)] {
            let lives = (0..=changes).map(|_| campaign(CampaignStatus::Scheduled)).collect();
            let (campaigns, _) = racing(lives);
            let done = commanded(&campaigns, Command::Cancel).await;
            assert_eq!(done.is_ok(), goes);
            assert!(goes || matches!(done, Err(CampaignError::Refused(Refusal::Contended))));
        }
    }

    #[tokio::test]
    async fn what_somebody_else_changed_meanwhile_stays() {
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
    async fn a_pause_beside_another_one_keeps_the_first_reason() {
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
    async fn what_is_told_is_of_the_campaign_as_it_was_at_last() {
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
        let mut clock = MockClock::new();
        clock.expect_now().return_const(NOW);
        let (runs, ids) = (Arc::new(MockRunStore::new()), Arc::new(MockIds::new()));
        let campaigns = Campaigns::new(Arc::new(store), runs, Arc::new(clock), ids);
        assert_eq!(
            campaigns.cancel(&tenant(), ID).await.unwrap(),
            CampaignStatus::Cancelled
        );
    }
}
