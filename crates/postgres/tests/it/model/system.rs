//! Runs each step on the stores with a real database, and compares their outcomes and rows with those of the in-memory
//! store.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use recado_domain::campaigns::{Campaign, CampaignStore as _, QueuedRun};
use recado_domain::shared::{AccountId, CampaignId, ProfileId, SendId, TemplateId};
use recado_domain::templates::{Template, TemplateStore as _};
use recado_domain::whatsapp::ProfileStore as _;
use recado_postgres::{PgProfiles, PgTestSends};
use time::format_description::well_known::Iso8601;
use time::{Date, Duration};
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::callers::Caller;
use super::mutant::ModelSends;
use super::state::{CAMPAIGNS, Claimed, Key, State, StepOutcome};
use super::steps::{Step, any_step, is_allowed};
use crate::histories::{index, number};
use crate::support::{DbFixture, id};
use crate::whatsapp::profile;

/// A delay longer than any test.
pub(super) const LONG: Duration = Duration::HOUR;

/// The in-memory store as the reference.
pub(super) struct Model;

impl ReferenceStateMachine for Model {
    type State = State;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<State> {
        (3..8_i64, any::<bool>())
            .prop_map(|(limit, simulates)| State::new(&current_model(), limit, simulates))
            .boxed()
    }

    fn transitions(state: &State) -> BoxedStrategy<Step> {
        any_step(state)
    }

    fn apply(state: State, step: &Step) -> State {
        state.after(&current_model(), step)
    }

    fn preconditions(state: &State, step: &Step) -> bool {
        is_allowed(state, step)
    }
}

/// A database that many cases use in sequence.
pub(super) struct ModelFixture {
    runtime: Runtime,
    pub(super) fixture: DbFixture,
    pub(super) accounts: [AccountId; 2],
    pub(super) profiles: [ProfileId; 2],
    pub(super) templates: Vec<TemplateId>,
    /// The current month.
    pub(super) month: Date,
    /// Replaces the store's statement.
    pub(super) record_and_start: Option<String>,
}

thread_local! {
    static CURRENT_MODEL: RefCell<Option<Rc<ModelFixture>>> = const { RefCell::new(None) };
}

fn current_model() -> Rc<ModelFixture> {
    CURRENT_MODEL.with_borrow(|model| model.clone().expect("a model is set"))
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
        let (fixture, accounts, profiles, templates, month) = runtime.block_on(async {
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
            let month = "SELECT date_trunc('month', now() AT TIME ZONE 'UTC')::date";
            let month = Date::parse(&fixture.text(month).await.unwrap(), &Iso8601::DATE).unwrap();
            (fixture, accounts, [profiles[0], profiles[1]], templates, month)
        });
        Self {
            runtime,
            fixture,
            accounts,
            profiles,
            templates,
            month,
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

    /// The campaigns of a case, all drafts.
    pub(super) fn campaigns(&self) -> impl Iterator<Item = Campaign> {
        let campaigns = CAMPAIGNS.iter().enumerate();
        campaigns.map(|(at, account)| Campaign {
            id: campaign_id(at),
            account_id: self.accounts[*account],
            template_id: Some(self.templates[at]),
            ..self.fixture.draft()
        })
    }

    /// Clears the database and inserts the rows of the state.
    async fn clear(&self, state: &State) {
        let mut contacts = String::new();
        for (account, row) in &state.tables.accounts {
            for (id, contact) in &row.contacts {
                let (name, phone) = (&contact.recipient.name, &contact.recipient.phone);
                contacts.push_str(&format!(
                    "INSERT INTO contacts (account_id, id, name, phone)
                     VALUES ('{account}', '{id}', '{name}', '{phone}');"
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
        for row in state.tables.campaigns.values() {
            self.fixture.campaigns().insert(&row.campaign, &[]).await.unwrap();
        }
    }

    pub(super) fn run(&self, campaign: usize) -> QueuedRun {
        QueuedRun {
            account_id: self.accounts[CAMPAIGNS[campaign]],
            campaign_id: campaign_id(campaign),
        }
    }

    /// The ids of the stored sends.
    async fn ids(&self) -> BTreeMap<Key, SendId> {
        let query = "SELECT id::text, campaign_id::text, contact_id::text FROM campaign_sends";
        let rows = self.fixture.client.query(query, &[]).await.unwrap();
        let ids = rows.iter().map(|row| {
            let [id, campaign, contact]: [Uuid; 3] = [0, 1, 2].map(|at| row.get::<_, String>(at).parse().unwrap());
            ((index(campaign), index(contact)), id.into())
        });
        ids.collect()
    }

    /// The SQL of steps that no store performs.
    fn sql_of(&self, step: &Step) -> Option<String> {
        Some(match step {
            Step::Expire(campaign) => format!(
                "UPDATE campaign_queue SET leased_until = now() - interval '1 second' WHERE campaign_id = '{}'",
                number(*campaign)
            ),
            Step::Consent { account, contact, out } => {
                let (account, contact) = (self.accounts[*account], number(*contact));
                let since = if *out { "now()" } else { "NULL" };
                format!(
                    "UPDATE contacts SET opted_out_at = {since}, consent_at = NULL
                     WHERE account_id = '{account}' AND id = '{contact}'"
                )
            }
            Step::Suspend { account, suspended } => {
                let status = if *suspended { "suspended" } else { "active" };
                format!(
                    "UPDATE accounts SET status = '{status}' WHERE id = '{}'",
                    self.accounts[*account]
                )
            }
            Step::PassTime => "UPDATE campaign_sends SET started_at = started_at - interval '1 day';
                 UPDATE campaign_sends SET retry_at = now() - interval '1 second' WHERE retry_at > now()"
                .to_owned(),
            _ => return None,
        })
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
    model: Rc<ModelFixture>,
    ids: BTreeMap<Key, SendId>,
    /// The state before the next step.
    before: State,
}

impl StateMachineTest for System {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(state: &State) -> Self {
        let model = current_model();
        model.runtime.block_on(model.clear(state));
        Self {
            model,
            ids: BTreeMap::new(),
            before: state.clone(),
        }
    }

    fn apply(mut system: Self, state: &State, step: Step) -> Self {
        let model = system.model.clone();
        model.runtime.block_on(async {
            let outcome = system.run_step(&step).await;
            system.ids = model.ids().await;
            check_outcome(state, &step, outcome);
            assert_eq!(model.lines().await, state.lines(&model), "after {step:?}");
            model.fixture.assert_recount().await;
        });
        assert_eq!(state.violation, None, "after {step:?}");
        system.before = state.clone();
        system
    }
}

/// Compares the outcome of the store with that of the in-memory store. A claim may return other sends that are due.
fn check_outcome(state: &State, step: &Step, outcome: StepOutcome) {
    let (
        Step::Claim {
            campaign, after, size, ..
        },
        StepOutcome::Claimed(_),
        StepOutcome::Claimed(claimed),
    ) = (step, &state.outcome, &outcome)
    else {
        assert_eq!(outcome, state.outcome, "the outcome of {step:?}");
        return;
    };
    let [due, fresh] = state.claimable(*campaign, *after);
    if after.is_some() && !due.is_empty() {
        // Sends that became due before the claim's position may be left to a later claim.
        let [_, all_fresh] = state.claimable(*campaign, None);
        let waits = |send: &Claimed| due.contains(send) || all_fresh.contains(send);
        assert!((1..=*size).contains(&claimed.len()), "{claimed:?}");
        assert!(claimed.iter().all(waits), "{claimed:?}");
        return;
    }
    assert_eq!(claimed.len(), (*size).min(due.len() + fresh.len()), "{claimed:?}");
    let (due_claimed, fresh_claimed) = claimed.split_at(due.len().min(*size));
    let is_due = due_claimed.iter().all(|send| due.contains(send));
    assert!(is_due, "{due_claimed:?} of {due:?}");
    assert!(fresh.starts_with(fresh_claimed), "{fresh_claimed:?} of {fresh:?}");
}

impl System {
    async fn run_step(&self, step: &Step) -> StepOutcome {
        let (model, fixture) = (&self.model, &self.model.fixture);
        if let Some(sql) = model.sql_of(step) {
            fixture.sql(&sql).await;
        }
        let (runs, campaigns) = (fixture.runs(), fixture.campaigns());
        let (updates, test_sends) = (fixture.status_updates(), PgTestSends::new(fixture.tenants.clone()));
        let sends = ModelSends {
            fixture,
            runs: fixture.runs(),
            statement: model.record_and_start.as_deref(),
        };
        let caller = Caller {
            model,
            runs: &runs,
            sends: &sends,
            campaigns: &campaigns,
            updates: &updates,
            test_sends: &test_sends,
            ids: &self.ids,
            before: &self.before,
        };
        caller.run(step).await
    }
}
