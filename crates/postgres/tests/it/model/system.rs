//! Runs each step on the stores with a real database, and compares their outcomes and rows with the model.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use recado_domain::callbacks::{StatusUpdate, StatusUpdateStore as _};
use recado_domain::campaigns::{
    Campaign, CampaignStatus, CampaignStore as _, ClaimPosition, QueuedRun, RunQueue as _, RunStartStore as _,
    RunStore as _, RunSweepStore as _, SendStore as _, StartOutcome, TestSendStore as _,
};
use recado_domain::shared::{AccountId, CampaignId, ProfileId, SendId, TemplateId};
use recado_domain::templates::{Template, TemplateStore as _};
use recado_domain::whatsapp::ProfileStore as _;
use recado_postgres::{PgProfiles, PgTestSends};
use time::Duration;
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::callers::claimed;
use super::state::{CAMPAIGNS, CONTACTS_PER_ACCOUNT, Key, State, StepOutcome};
use super::steps::{Pause, Step, any_step, is_allowed};
use crate::support::{DbFixture, LEASE, id};
use crate::whatsapp::profile;

/// A delay longer than any test.
pub(super) const LONG: Duration = Duration::HOUR;

/// The reference model, without a database.
pub(super) struct Model;

impl ReferenceStateMachine for Model {
    type State = State;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<State> {
        (3..8_i64, any::<bool>())
            .prop_map(|(limit, simulates)| State::new(limit, simulates))
            .boxed()
    }

    fn transitions(state: &State) -> BoxedStrategy<Step> {
        any_step(state)
    }

    fn apply(state: State, step: &Step) -> State {
        state.after(step)
    }

    fn preconditions(state: &State, step: &Step) -> bool {
        is_allowed(state, step)
    }
}

/// A database that many cases use in sequence.
pub(super) struct ModelFixture {
    runtime: Runtime,
    pub(super) fixture: DbFixture,
    accounts: [AccountId; 2],
    pub(super) profiles: [ProfileId; 2],
    templates: Vec<TemplateId>,
    /// Replaces the store's statement.
    pub(super) record_and_start: Option<String>,
}

thread_local! {
    static CURRENT_MODEL: RefCell<Option<Rc<ModelFixture>>> = const { RefCell::new(None) };
}

pub(super) fn number(at: usize) -> Uuid {
    Uuid::from_u128(u128::try_from(at).unwrap() + 1)
}

fn campaign_id(at: usize) -> CampaignId {
    number(at).into()
}

impl ModelFixture {
    /// `planted` is SQL that runs before the first case.
    pub(super) fn new(record_and_start: Option<String>, planted: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (fixture, accounts, profiles, templates) = runtime.block_on(async {
            let fixture = DbFixture::new().await;
            let accounts = [fixture.account, fixture.another_account().await];
            let mut profiles = Vec::new();
            for (account, number) in accounts.iter().zip(["111", "222"]) {
                let stored = profile(number);
                PgProfiles::new(fixture.tenants.clone())
                    .insert(*account, &stored, &[])
                    .await
                    .unwrap();
                profiles.push(stored.profile.id);
            }
            let mut templates = Vec::new();
            for account in CAMPAIGNS {
                let template = Template {
                    account_id: accounts[account],
                    ..fixture.template_of(id().into())
                };
                fixture.templates().insert(&template).await.unwrap();
                templates.push(template.id);
            }
            fixture.sql(planted).await;
            (fixture, accounts, [profiles[0], profiles[1]], templates)
        });
        Self {
            runtime,
            fixture,
            accounts,
            profiles,
            templates,
            record_and_start,
        }
    }

    /// Runs cases on this thread with this model.
    pub(super) fn play<T>(self, cases: impl FnOnce() -> T) -> T {
        CURRENT_MODEL.set(Some(Rc::new(self)));
        let done = cases();
        CURRENT_MODEL.take();
        done
    }

    async fn clear(&self) {
        let mut contacts = String::new();
        for (account, count) in self.accounts.iter().zip(CONTACTS_PER_ACCOUNT) {
            for contact in 0..count {
                let id = number(contact);
                contacts.push_str(&format!(
                    "INSERT INTO contacts (account_id, id, name, phone)
                     VALUES ('{account}', '{id}', 'Ana {contact}', '+5511900000{contact:03}');"
                ));
            }
        }
        self.fixture
            .sql(&format!(
                "DELETE FROM campaign_queue; DELETE FROM campaign_claims; DELETE FROM campaign_sends;
                 DELETE FROM campaign_send_times; DELETE FROM campaigns; DELETE FROM message_usage_slots;
                 DELETE FROM sent_messages;
                 DELETE FROM outbox_events; DELETE FROM contacts; UPDATE accounts SET status = 'active'; {contacts}"
            ))
            .await;
        for (at, account) in CAMPAIGNS.iter().enumerate() {
            let campaign = Campaign {
                id: campaign_id(at),
                account_id: self.accounts[*account],
                template_id: Some(self.templates[at]),
                ..self.fixture.draft()
            };
            self.fixture.campaigns().insert(&campaign, &[]).await.unwrap();
        }
    }

    pub(super) fn run(&self, campaign: usize) -> QueuedRun {
        QueuedRun {
            account_id: self.accounts[CAMPAIGNS[campaign]],
            campaign_id: campaign_id(campaign),
        }
    }

    pub(super) async fn stored(&self, campaign: usize) -> Campaign {
        let run = self.run(campaign);
        self.fixture
            .campaigns()
            .find(run.account_id, run.campaign_id)
            .await
            .unwrap()
            .unwrap()
    }

    /// The rows of the database in the format of `State::lines`.
    async fn lines(&self) -> Vec<String> {
        let query = LINES.replace("$1", &format!("'{}'", self.accounts[0]));
        let text = self.fixture.text(&query).await.unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }
}

const LINES: &str = "SELECT string_agg(line, E'\\n') FROM (
    SELECT concat('campaign ', right(id::text, 1), ' ', status, ' paused=', (paused_at IS NOT NULL)::text,
      ' simulated=', simulated::text, ' total=', total_recipients) AS line FROM campaigns
    UNION ALL
    SELECT concat('queue ', right(campaign_id::text, 1), ' worker=', coalesce(right(worker::text, 1), '-'),
      ' expired=', coalesce(leased_until < now(), false)::text, ' prepared=', prepared::text) FROM campaign_queue
    UNION ALL
    SELECT concat('counters ', right(campaign_id::text, 1), ' ', total, ' = ',
      concat_ws(' ', pending, sent, delivered, read, failed)) FROM campaign_counters
    UNION ALL
    SELECT concat('send ', right(campaign_id::text, 1), ' ', right(contact_id::text, 1), ' ', status,
      ' started=', (started_at IS NOT NULL)::text, ' recently=', coalesce(started_at > now(), false)::text,
      ' unknown=', (unknown_at IS NOT NULL)::text, ' attempts=', attempts,
      ' retry=', CASE WHEN retry_at IS NULL THEN '-' WHEN retry_at <= now() THEN 'due' ELSE 'later' END,
      ' message=', coalesce(wa_message_id, '-'), ' superseded=', coalesce(superseded_wa_message_id, '-'),
      ' never=', never_confirmed::text) FROM campaign_sends
    UNION ALL
    SELECT concat('usage ', (a.id <> $1)::int, ' ', coalesce(u.sent, 0), ' ', coalesce(u.reserved, 0), ' ',
      coalesce(u.test_sends, 0)) FROM accounts a LEFT JOIN message_usage u ON u.account_id = a.id
    UNION ALL
    SELECT concat('out ', (account_id <> $1)::int, ' ', right(id::text, 1)) FROM contacts
    WHERE opted_out_at IS NOT NULL
    UNION ALL
    SELECT concat('message ', (account_id <> $1)::int, ' ', wa_message_id) FROM sent_messages
    UNION ALL
    SELECT concat('not in list ', id) FROM (
      SELECT campaign_id, sent_at, id FROM campaign_sends WHERE sent_at IS NOT NULL EXCEPT ALL
      SELECT campaign_id, sent_at, unnest(send_ids) FROM campaign_send_times) s
    UNION ALL
    SELECT concat('not sent ', id) FROM (
      SELECT campaign_id, sent_at, unnest(send_ids) AS id FROM campaign_send_times EXCEPT ALL
      SELECT campaign_id, sent_at, id FROM campaign_sends) t) l";

/// The system under test of one case.
pub(super) struct System {
    pub(super) model: Rc<ModelFixture>,
    ids: Vec<(Key, SendId)>,
    /// Started sends that were neither put back by their worker nor retried after a failure.
    pub(super) outstanding: BTreeSet<Key>,
    /// The number of starts per send.
    pub(super) starts: BTreeMap<Key, usize>,
}

impl StateMachineTest for System {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(state: &State) -> Self {
        let model = CURRENT_MODEL.with_borrow(|model| model.clone().expect("a model is set"));
        assert!(state.sends.is_empty());
        let mut ids = Vec::new();
        model.runtime.block_on(async {
            model.clear().await;
            for (campaign, account) in CAMPAIGNS.iter().enumerate() {
                for contact in 0..CONTACTS_PER_ACCOUNT[*account] {
                    // An id that no send has. The start of the campaign determines the ids of its sends.
                    let unknown =
                        Uuid::from_u128((1 << 64) | (number(campaign).as_u128() << 32) | number(contact).as_u128());
                    ids.push(((campaign, contact), unknown.into()));
                }
            }
        });
        Self {
            model,
            ids,
            outstanding: BTreeSet::new(),
            starts: BTreeMap::new(),
        }
    }

    fn apply(mut system: Self, state: &State, step: Step) -> Self {
        let model = system.model.clone();
        model.runtime.block_on(async {
            let outcome = system.run_step(state, &step).await;
            system.read_ids().await;
            assert_eq!(outcome, state.outcome, "the outcome of {step:?}");
            assert_eq!(model.lines().await, state.lines(), "after {step:?}");
            model.fixture.assert_recount().await;
        });
        let reserved_quota = matches!(
            state.outcome,
            StepOutcome::Start(StartOutcome::Started { .. }) | StepOutcome::Reserved(true)
        );
        for (at, account) in state.accounts.iter().enumerate() {
            let (used, limit) = (state.used(at), account.limit);
            let surplus = if reserved_quota && step.account() == Some(at) {
                0
            } else {
                account.surplus
            };
            assert!(
                used <= limit + surplus,
                "{used} of {limit} messages are used after {step:?}"
            );
        }
        system
    }
}

impl System {
    pub(super) fn id(&self, key: Key) -> SendId {
        self.ids.iter().find(|(other, _)| *other == key).unwrap().1
    }

    pub(super) fn key(&self, id: SendId) -> Key {
        self.ids.iter().find(|(_, other)| *other == id).unwrap().0
    }

    /// Reads the ids of the sends that exist.
    async fn read_ids(&mut self) {
        let query = "SELECT id::text, campaign_id::text, contact_id::text FROM campaign_sends";
        let rows = self.model.fixture.client.query(query, &[]).await.unwrap();
        for row in rows {
            let [id, campaign, contact]: [Uuid; 3] = [0, 1, 2].map(|at| row.get::<_, String>(at).parse().unwrap());
            for (key, send) in &mut self.ids {
                if (number(key.0), number(key.1)) == (campaign, contact) {
                    *send = id.into();
                }
            }
        }
    }

    /// The position of a claim after a contact. It names the sends in flight.
    fn position(&self, state: &State, campaign: usize, after: Option<usize>) -> Option<ClaimPosition> {
        let open = state.sends_of(campaign).filter(|(_, send)| send.is_open());
        Some(ClaimPosition {
            after: number(after?).into(),
            in_flight: open.map(|(key, _)| self.id(key)).collect(),
        })
    }

    async fn run_step(&mut self, state: &State, step: &Step) -> StepOutcome {
        let model = self.model.clone();
        let (fixture, runs) = (&model.fixture, model.fixture.runs());
        match step {
            Step::Start {
                campaign,
                worker,
                expected,
            } => {
                let start = self.start_of(state, *campaign, *expected).await;
                StepOutcome::Start(runs.start(&start, worker.map(number), LEASE).await.unwrap())
            }
            Step::EnqueueStart { campaign, expected } => {
                let start_request = self.start_request(*campaign, *expected).await;
                StepOutcome::Write(runs.enqueue_start(&start_request).await.unwrap())
            }
            Step::Take(worker) => {
                let taken = runs.take(number(*worker), LEASE).await.unwrap();
                StepOutcome::Taken(taken.map(|run| (0..CAMPAIGNS.len()).find(|at| model.run(*at) == run).unwrap()))
            }
            Step::Claim {
                campaign,
                worker,
                after,
                size,
            } => {
                let (run, worker) = (model.run(*campaign), number(*worker));
                let limit = i64::try_from(*size).unwrap();
                let position = self.position(state, *campaign, *after);
                let claim = runs.claim(run, worker, position, limit, LEASE).await.unwrap();
                claimed(state, *campaign, claim)
            }
            Step::RecordAndStart {
                campaign,
                worker,
                results,
                next,
            } => self.record_and_start(*campaign, *worker, results, next).await,
            Step::Record { campaign, results } => {
                let send_results = self.send_results(*campaign, results);
                runs.record(model.run(*campaign), &send_results).await.unwrap();
                self.remove_put_back(*campaign, results);
                StepOutcome::Nothing
            }
            Step::Finish { campaign } => StepOutcome::Report(runs.finish(model.run(*campaign)).await.unwrap().unwrap()),
            Step::Retry { campaign, expected } => self.retry(state, *campaign, *expected).await,
            Step::StatusUpdates(account, items) => {
                let batch: Vec<StatusUpdate> = items.iter().map(|item| self.status_update_of(item)).collect();
                StepOutcome::Unmatched(
                    fixture
                        .status_updates()
                        .apply(model.accounts[*account], &batch)
                        .await
                        .unwrap(),
                )
            }
            Step::FailUnknown => StepOutcome::Failed(runs.fail_unknown(Duration::ZERO, 100).await.unwrap()),
            Step::ReserveTestSend(account) => {
                let limit = state.accounts[*account].limit;
                let taken = PgTestSends::new(fixture.tenants.clone())
                    .reserve_message(model.accounts[*account], limit, &[])
                    .await
                    .unwrap();
                StepOutcome::Reserved(taken.is_some())
            }
            other => self.run_stateless_step(other).await,
        }
    }

    /// Steps that do not read the model's state.
    async fn run_stateless_step(&self, step: &Step) -> StepOutcome {
        let (model, fixture, runs) = (&self.model, &self.model.fixture, self.model.fixture.runs());
        match step {
            Step::AbortStart(campaign) => {
                runs.abort_start(model.run(*campaign), CampaignStatus::Draft, &[])
                    .await
                    .unwrap();
            }
            Step::Pause(campaign, Pause::Run) => runs.pause(model.run(*campaign), "x", &[]).await.unwrap(),
            Step::Pause(campaign, Pause::Template) => {
                let (run, template) = (model.run(*campaign), model.templates[*campaign]);
                runs.pause_template(run.account_id, template, "x").await.unwrap();
            }
            Step::Release(campaign, worker) => {
                runs.release(model.run(*campaign), number(*worker)).await.unwrap();
            }
            Step::Abandon(campaign, worker) => {
                runs.abandon(model.run(*campaign), number(*worker)).await.unwrap();
            }
            Step::ReleaseTestSend(account) => {
                let account = model.accounts[*account];
                let month = fixture
                    .text("SELECT date_trunc('month', now() AT TIME ZONE 'UTC')::date")
                    .await
                    .unwrap();
                let month = time::Date::parse(&month, &time::format_description::well_known::Iso8601::DATE).unwrap();
                PgTestSends::new(fixture.tenants.clone())
                    .release_message(account, month)
                    .await
                    .unwrap();
            }
            Step::Pause(..) | Step::Resume(_) | Step::Cancel(_) | Step::StaleEdit { .. } => {
                return self.write(step).await;
            }
            external => fixture.sql(&self.sql_of(external)).await,
        }
        StepOutcome::Nothing
    }

    /// The SQL of steps that no store performs.
    fn sql_of(&self, step: &Step) -> String {
        match step {
            Step::Expire(campaign) => {
                let id = number(*campaign);
                format!(
                    "UPDATE campaign_queue SET leased_until = now() - interval '1 second' WHERE campaign_id = '{id}'"
                )
            }
            Step::Consent { account, contact, out } => {
                let (account, contact) = (self.model.accounts[*account], number(*contact));
                let since = if *out { "now()" } else { "NULL" };
                format!(
                    "UPDATE contacts SET opted_out_at = {since}, consent_at = NULL
                     WHERE account_id = '{account}' AND id = '{contact}'"
                )
            }
            Step::Suspend { account, suspended } => {
                let (account, status) = (
                    self.model.accounts[*account],
                    if *suspended { "suspended" } else { "active" },
                );
                format!("UPDATE accounts SET status = '{status}' WHERE id = '{account}'")
            }
            Step::PassTime => "UPDATE campaign_sends SET started_at = started_at - interval '1 day';
                 UPDATE campaign_sends SET retry_at = now() - interval '1 second' WHERE retry_at > now()"
                .to_owned(),
            other => unreachable!("{other:?}"),
        }
    }

    /// Writes of the campaign, each with the status that its caller expects.
    async fn write(&self, step: &Step) -> StepOutcome {
        let (Step::Pause(at, _) | Step::Resume(at) | Step::Cancel(at) | Step::StaleEdit { campaign: at, .. }) = step
        else {
            unreachable!("{step:?}")
        };
        let (store, stored) = (self.model.fixture.campaigns(), self.model.stored(*at).await);
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
