//! Translates the model's steps into calls of the ports, and their return values into outcomes.

use recado_domain::callbacks::StatusUpdate;
use recado_domain::campaigns::{
    Campaign, CampaignRefusal, CampaignStatus, ClaimOutcome, ClaimedSend, EnqueueStart, QueuedStart, RetryOutcome,
    RetryRequest, RunRetry, RunRetryStore as _, RunStart, SendResult, SendStore as _, StartOutcome, StartedSends,
    Trigger,
};
use recado_domain::shared::SendId;
use time::Duration;

use super::mutant;
use super::state::{CAMPAIGNS, Key, Kind, State, StepOutcome, message_of};
use super::steps::{Item, Results};
use super::system::{LONG, System, number};
use crate::error_codes::STOPPED_MARKETING;
use crate::status_updates::status_update;

impl System {
    pub(super) async fn start_of(&self, state: &State, campaign: usize, expected: CampaignStatus) -> RunStart {
        let (stored, account) = (self.model.stored(campaign).await, CAMPAIGNS[campaign]);
        let simulated = account == 1 && state.simulates;
        let start = self.model.fixture.start_of(&stored);
        RunStart {
            campaign: Campaign {
                simulated,
                ..start.campaign
            },
            expected,
            profile_id: (!simulated).then_some(self.model.profiles[account]),
            monthly_limit: state.accounts[account].limit,
            ..start
        }
    }

    pub(super) async fn start_request(&self, campaign: usize, expected: CampaignStatus) -> EnqueueStart {
        let stored = self.model.stored(campaign).await;
        EnqueueStart {
            campaign: Campaign {
                status: CampaignStatus::Sending,
                ..stored
            },
            expected,
            run: QueuedStart {
                trigger: Trigger::Send,
                actor: None,
            },
            events: vec![],
        }
    }

    pub(super) async fn retry(&mut self, state: &State, campaign: usize, expected: CampaignStatus) -> StepOutcome {
        let (stored, account) = (self.model.stored(campaign).await, CAMPAIGNS[campaign]);
        let version = stored.version;
        let retry = RunRetry {
            campaign: Campaign {
                status: CampaignStatus::Sending,
                completed_at: None,
                ..stored
            },
            expected,
            expected_version: version,
            run: QueuedStart {
                trigger: Trigger::Retry,
                actor: None,
            },
            profile_id: Some(self.model.profiles[account]),
            monthly_limit: state.accounts[account].limit,
            request: RetryRequest::default(),
        };
        // The model has no error codes.
        let outcome = match self.model.fixture.runs().retry(&retry).await.unwrap() {
            RetryOutcome::Started { recipients, .. } => StartOutcome::Started { recipients },
            RetryOutcome::Refused(CampaignRefusal::NothingToRetry { .. }) => {
                StartOutcome::Refused(CampaignRefusal::NothingToRetry { left_out: vec![] })
            }
            RetryOutcome::Refused(refusal) => StartOutcome::Refused(refusal),
            RetryOutcome::Missing => StartOutcome::Missing,
        };
        // A retried send is no longer outstanding.
        if matches!(outcome, StartOutcome::Started { .. }) {
            let waiting = state.sends_of(campaign).filter(|(_, send)| send.waits());
            waiting.for_each(|(key, _)| {
                self.outstanding.remove(&key);
            });
        }
        StepOutcome::Start(outcome)
    }

    pub(super) async fn record_and_start(
        &mut self,
        campaign: usize,
        worker: usize,
        results: &Results,
        next: &[Key],
    ) -> StepOutcome {
        let (run, send_results) = (self.model.run(campaign), self.send_results(campaign, results));
        let ids: Vec<SendId> = next.iter().map(|key| self.id(*key)).collect();
        let (worker, fixture) = (number(worker), &self.model.fixture);
        // The model starts sends at any time. A worker starts only sends of its latest claim: here it claimed all.
        let claim = format!(
            "INSERT INTO campaign_claims (account_id, campaign_id, send_ids)
               SELECT account_id, campaign_id, array_agg(id) FROM campaign_sends
               WHERE campaign_id = '{}' GROUP BY account_id, campaign_id
             ON CONFLICT (account_id, campaign_id) DO UPDATE SET send_ids = excluded.send_ids",
            run.campaign_id
        );
        fixture.sql(&claim).await;
        let record_and_start = match &self.model.record_and_start {
            None => fixture
                .runs()
                .record_and_start(run, worker, &send_results, &ids)
                .await
                .unwrap(),
            Some(text) => mutant::record_and_start(fixture, text, run, worker, &send_results, &ids).await,
        };
        self.remove_put_back(campaign, results);
        let StartedSends {
            goes_on,
            sends,
            unreachable,
        } = record_and_start;
        let started: Vec<Key> = sends.into_iter().map(|id| self.key(id)).collect();
        for key in &started {
            assert!(self.outstanding.insert(*key), "{key:?} started twice");
            *self.starts.entry(*key).or_default() += 1;
        }
        // Only `Step::PassTime` lets time pass: until then, a start in the future marks the send as recently started.
        self.model
            .fixture
            .sql(
                "UPDATE campaign_sends SET started_at = now() + interval '1 hour'
                 WHERE started_at BETWEEN now() - interval '10 minutes' AND now()",
            )
            .await;
        let unreachable = unreachable.into_iter().map(|id| self.key(id)).collect();
        StepOutcome::RecordAndStart {
            goes_on,
            started,
            unreachable,
        }
    }

    /// The results in the types of the port.
    pub(super) fn send_results(&self, campaign: usize, results: &Results) -> Vec<(SendId, SendResult)> {
        let send_results = results.iter().map(|(contact, kind)| {
            let key = (campaign, *contact);
            (self.id(key), self.result_of(key, *kind))
        });
        send_results.collect()
    }

    /// The result of the send's last attempt.
    fn result_of(&self, key: Key, kind: Kind) -> SendResult {
        let message = message_of(key, self.starts.get(&key).copied().unwrap_or(0));
        let failed = |code| SendResult::Failed {
            code: Some(code),
            message: "refused".into(),
        };
        match kind {
            Kind::Sent => SendResult::Sent {
                message_id: Some(message),
                wa_id: None,
            },
            Kind::SentWithoutId => SendResult::Sent {
                message_id: None,
                wa_id: None,
            },
            Kind::SentWithWaId => SendResult::Sent {
                wa_id: Some(format!("wa-{message}")),
                message_id: Some(message),
            },
            // A failure with this code may be retried at any time.
            Kind::Failed => failed(131_000),
            Kind::Stopped => failed(STOPPED_MARKETING),
            Kind::Unknown => SendResult::Unknown,
            Kind::DeferredNow => SendResult::Deferred { delay: Duration::ZERO },
            Kind::DeferredLong => SendResult::Deferred { delay: LONG },
            Kind::Released => SendResult::Released,
        }
    }

    /// A send that its worker put back may start again.
    pub(super) fn remove_put_back(&mut self, campaign: usize, results: &Results) {
        for (contact, _) in results.iter().filter(|(_, kind)| kind.puts_back()) {
            self.outstanding.remove(&(campaign, *contact));
        }
    }

    pub(super) fn status_update_of(&self, item: &Item) -> StatusUpdate {
        let message = message_of(item.key, item.attempt);
        StatusUpdate {
            error_code: item.stopped.then_some(STOPPED_MARKETING),
            ..status_update(item.named.then(|| self.id(item.key)), &message, item.status)
        }
    }
}

/// Returns the model's outcome if the store's choice of sends is allowed.
pub(super) fn claimed(state: &State, campaign: usize, claim: ClaimOutcome) -> StepOutcome {
    let sends = match claim {
        ClaimOutcome::Sends(sends) => sends,
        ClaimOutcome::Wait(time) => {
            assert!(time.is_positive());
            return StepOutcome::Wait;
        }
        ClaimOutcome::Exhausted => return StepOutcome::Exhausted,
        ClaimOutcome::Stopped => return StepOutcome::Stopped,
        ClaimOutcome::Lost => return StepOutcome::Lost,
    };
    let contacts: Vec<usize> = sends.iter().map(|send| contact_of(state, campaign, send)).collect();
    let StepOutcome::Claimed {
        due,
        fresh,
        size,
        goes_on,
    } = state.outcome.clone()
    else {
        panic!("claimed {contacts:?}, expected {:?}", state.outcome)
    };
    if goes_on && !due.is_empty() {
        let waits = |contact: &usize| state.sends[&(campaign, *contact)].waits();
        assert!((1..=size).contains(&contacts.len()), "{contacts:?}");
        assert!(contacts.iter().all(waits), "{contacts:?}");
        return state.outcome.clone();
    }
    assert_eq!(contacts.len(), size.min(due.len() + fresh.len()), "{contacts:?}");
    let (due_claimed, fresh_claimed) = contacts.split_at(due.len().min(size));
    assert!(
        due_claimed.iter().all(|contact| due.contains(contact)),
        "{due_claimed:?} of {due:?}"
    );
    assert!(fresh.starts_with(fresh_claimed), "{fresh_claimed:?} of {fresh:?}");
    state.outcome.clone()
}

/// The contact of a claimed send. Also checks its attempts and recipient.
fn contact_of(state: &State, campaign: usize, claimed: &ClaimedSend) -> usize {
    let contact = usize::try_from(claimed.contact_id.0.as_u128()).unwrap() - 1;
    assert_eq!(claimed.attempts, state.sends[&(campaign, contact)].attempts);
    let out = state.account(campaign).out.contains(&contact);
    assert_eq!(claimed.recipient.is_none(), out, "{claimed:?}");
    contact
}
