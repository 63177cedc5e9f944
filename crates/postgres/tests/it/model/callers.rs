//! Calls the ports of a store as the steps say, and translates their return values into outcomes.

use std::collections::BTreeMap;

use recado_domain::callbacks::{StatusUpdate, StatusUpdateStore};
use recado_domain::campaigns::{
    Campaign, CampaignRefusal, CampaignStatus, CampaignStore, ClaimPosition, EnqueueStart, QueuedStart, RetryOutcome,
    RetryRequest, RunQueue, RunRetry, RunRetryStore, RunStart, RunStartStore, RunStore, RunSweepStore, SendResult,
    SendStore, StartOutcome, TestSendStore, Trigger,
};
use recado_domain::shared::SendId;
use time::Duration;

use super::state::{CAMPAIGNS, Key, Kind, State, StepOutcome, message_of};
use super::steps::{Item, Pause, Results, Step};
use super::system::{LONG, ModelFixture};
use crate::error_codes::STOPPED_MARKETING;
use crate::histories::{index, number};
use crate::status_updates::status_update;
use crate::support::LEASE;

/// The ports of runs.
pub(super) trait Runs: RunStartStore + RunQueue + RunStore + RunRetryStore + RunSweepStore {}

impl<T: RunStartStore + RunQueue + RunStore + RunRetryStore + RunSweepStore> Runs for T {}

/// A caller of one store.
pub(super) struct Caller<'a> {
    pub(super) model: &'a ModelFixture,
    pub(super) runs: &'a dyn Runs,
    pub(super) sends: &'a dyn SendStore,
    pub(super) campaigns: &'a dyn CampaignStore,
    pub(super) updates: &'a dyn StatusUpdateStore,
    pub(super) test_sends: &'a dyn TestSendStore,
    /// The ids of the store's sends.
    pub(super) ids: &'a BTreeMap<Key, SendId>,
    /// The state before the step.
    pub(super) before: &'a State,
}

impl Caller<'_> {
    /// Executes the step. Does nothing for a step that no store performs.
    pub(super) async fn run(&self, step: &Step) -> StepOutcome {
        let (model, runs) = (self.model, self.runs);
        match step {
            Step::Start {
                campaign,
                worker,
                expected,
            } => {
                let start = self.start_of(*campaign, *expected).await;
                StepOutcome::Start(runs.start(&start, worker.map(number), LEASE).await.unwrap())
            }
            Step::EnqueueStart { campaign, expected } => {
                let start_request = self.start_request(*campaign, *expected).await;
                StepOutcome::Write(runs.enqueue_start(&start_request).await.unwrap())
            }
            Step::Take(worker) => {
                let taken = runs.take(number(*worker), LEASE).await.unwrap();
                let has_waiting = runs.has_waiting().await.unwrap();
                StepOutcome::Taken(taken.map(|run| index(run.campaign_id.0)), has_waiting)
            }
            Step::Claim {
                campaign,
                worker,
                after,
                size,
            } => {
                let (run, worker) = (model.run(*campaign), number(*worker));
                let (position, size) = (self.position(*campaign, *after), i64::try_from(*size).unwrap());
                let claim = self.sends.claim(run, worker, position, size, LEASE).await;
                claim.unwrap().into()
            }
            Step::RecordAndStart {
                campaign,
                worker,
                results,
                next,
            } => self.record_and_start(*campaign, *worker, results, next).await,
            Step::Record { campaign, results } => {
                let send_results = self.send_results(*campaign, results);
                self.sends.record(model.run(*campaign), &send_results).await.unwrap();
                StepOutcome::Nothing
            }
            Step::Finish { campaign } => StepOutcome::Report(runs.finish(model.run(*campaign)).await.unwrap().unwrap()),
            Step::Retry { campaign, expected } => self.retry(*campaign, *expected).await,
            Step::StatusUpdates(account, items) => {
                let batch: Vec<StatusUpdate> = items.iter().map(|item| self.status_update_of(item)).collect();
                let unmatched = self.updates.apply(model.accounts[*account], &batch).await;
                StepOutcome::Unmatched(unmatched.unwrap())
            }
            Step::FailUnknown => StepOutcome::Failed(runs.fail_unknown(Duration::ZERO, 100).await.unwrap()),
            Step::ReserveTestSend(account) => {
                let (id, limit) = (model.accounts[*account], self.before.limits[*account]);
                let reserved = self.test_sends.reserve_message(id, limit, &[]).await.unwrap();
                StepOutcome::Reserved(reserved.is_some())
            }
            Step::Pause(campaign, Pause::Member)
            | Step::Resume(campaign)
            | Step::Cancel(campaign)
            | Step::StaleEdit { campaign, .. } => self.write(*campaign, step).await,
            other => {
                self.run_without_outcome(other).await;
                StepOutcome::Nothing
            }
        }
    }

    async fn run_without_outcome(&self, step: &Step) {
        let (model, runs) = (self.model, self.runs);
        let done = match step {
            Step::AbortStart(campaign) => runs.abort_start(model.run(*campaign), CampaignStatus::Draft, &[]).await,
            Step::Pause(campaign, Pause::Run) => runs.pause(model.run(*campaign), "x", &[]).await,
            Step::Pause(campaign, Pause::Template) => {
                let (run, template) = (model.run(*campaign), model.templates[*campaign]);
                runs.pause_template(run.account_id, template, "x").await
            }
            Step::Release(campaign, worker) => runs.release(model.run(*campaign), number(*worker)).await,
            Step::Abandon(campaign, worker) => runs.abandon(model.run(*campaign), number(*worker)).await,
            Step::ReleaseTestSend(account) => {
                let account = model.accounts[*account];
                self.test_sends.release_message(account, model.month).await
            }
            _ => Ok(()),
        };
        done.unwrap();
    }

    async fn stored(&self, campaign: usize) -> Campaign {
        let run = self.model.run(campaign);
        let stored = self.campaigns.find(run.account_id, run.campaign_id).await;
        stored.unwrap().unwrap()
    }

    /// The position of a claim after a contact. It names the sends in flight.
    fn position(&self, campaign: usize, after: Option<usize>) -> Option<ClaimPosition> {
        let open = self.before.sends_of(campaign).filter(|(_, send)| send.is_open());
        Some(ClaimPosition {
            after: number(after?).into(),
            in_flight: open.map(|(key, _)| self.ids[&key]).collect(),
        })
    }

    async fn start_of(&self, campaign: usize, expected: CampaignStatus) -> RunStart {
        let (stored, account) = (self.stored(campaign).await, CAMPAIGNS[campaign]);
        let simulated = account == 1 && self.before.simulates;
        let start = self.model.fixture.start_of(&stored);
        RunStart {
            campaign: Campaign {
                simulated,
                ..start.campaign
            },
            expected,
            profile_id: (!simulated).then_some(self.model.profiles[account]),
            monthly_limit: self.before.limits[account],
            ..start
        }
    }

    async fn start_request(&self, campaign: usize, expected: CampaignStatus) -> EnqueueStart {
        let stored = self.stored(campaign).await;
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

    async fn retry(&self, campaign: usize, expected: CampaignStatus) -> StepOutcome {
        let (stored, account) = (self.stored(campaign).await, CAMPAIGNS[campaign]);
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
            monthly_limit: self.before.limits[account],
            request: RetryRequest::default(),
        };
        // The in-memory store does not report what is left out.
        let outcome = match self.runs.retry(&retry).await.unwrap() {
            RetryOutcome::Started { recipients, .. } => StartOutcome::Started { recipients },
            RetryOutcome::Refused(CampaignRefusal::NothingToRetry { .. }) => {
                StartOutcome::Refused(CampaignRefusal::NothingToRetry { left_out: vec![] })
            }
            RetryOutcome::Refused(refusal) => StartOutcome::Refused(refusal),
            RetryOutcome::Missing => StartOutcome::Missing,
        };
        StepOutcome::Start(outcome)
    }

    async fn record_and_start(&self, campaign: usize, worker: usize, results: &Results, next: &[Key]) -> StepOutcome {
        let (run, send_results) = (self.model.run(campaign), self.send_results(campaign, results));
        let next: Vec<SendId> = next.iter().map(|key| self.ids[key]).collect();
        let started = self.sends.record_and_start(run, number(worker), &send_results, &next);
        let started = started.await.unwrap();
        let key = |id: SendId| {
            self.ids
                .iter()
                .find(|(_, other)| **other == id)
                .map(|(key, _)| *key)
                .unwrap()
        };
        StepOutcome::RecordAndStart {
            goes_on: started.goes_on,
            started: started.sends.into_iter().map(key).collect(),
            unreachable: started.unreachable.into_iter().map(key).collect(),
        }
    }

    /// The results in the types of the port.
    fn send_results(&self, campaign: usize, results: &Results) -> Vec<(SendId, SendResult)> {
        let send_results = results.iter().map(|(contact, kind)| {
            let key = (campaign, *contact);
            (self.ids[&key], self.result_of(key, *kind))
        });
        send_results.collect()
    }

    /// The result of the send's last attempt.
    fn result_of(&self, key: Key, kind: Kind) -> SendResult {
        let message = message_of(key, self.before.history(key).starts);
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
            Kind::Throttled => SendResult::Throttled { delay: LONG },
            Kind::Released => SendResult::Released,
        }
    }

    fn status_update_of(&self, item: &Item) -> StatusUpdate {
        let message = message_of(item.key, item.attempt);
        StatusUpdate {
            error_code: item.stopped.then_some(STOPPED_MARKETING),
            ..status_update(item.named.then(|| self.ids[&item.key]), &message, item.status)
        }
    }

    /// Writes of the campaign, each with the status that its caller expects.
    async fn write(&self, campaign: usize, step: &Step) -> StepOutcome {
        let (store, stored) = (self.campaigns, self.stored(campaign).await);
        let going = Campaign {
            paused_at: None,
            pause_reason: None,
            status: CampaignStatus::Sending,
            ..stored.clone()
        };
        let expected = |status| Campaign {
            status,
            ..stored.clone()
        };
        let (draft, sending) = (expected(CampaignStatus::Draft), expected(CampaignStatus::Sending));
        let written = match step {
            Step::Pause(..) => {
                let paused = Campaign {
                    paused_at: Some(stored.updated_at),
                    pause_reason: Some("x".into()),
                    ..going
                };
                store.update(&paused, &sending, &[]).await
            }
            Step::Resume(_) => store.update(&going, &sending, &[]).await,
            Step::Cancel(_) => {
                let cancelled = Campaign {
                    status: CampaignStatus::Cancelled,
                    ..going
                };
                store.update(&cancelled, &sending, &[]).await
            }
            Step::StaleEdit { delete: true, .. } => store.delete(&stored, CampaignStatus::Draft, &[]).await,
            _ => {
                let edited = Campaign {
                    name: "Other".into(),
                    status: CampaignStatus::Draft,
                    ..stored
                };
                store.update(&edited, &draft, &[]).await
            }
        };
        StepOutcome::Write(written.unwrap())
    }
}
