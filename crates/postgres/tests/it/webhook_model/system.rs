//! Runs each step on the stores with a real database, and compares their outcomes and rows with those of the in-memory
//! store.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use recado_domain::campaigns::{Campaign, CampaignStore as _};
use recado_domain::shared::{AccountId, EventKind};
use recado_domain::webhooks::{DeliveryKey, WebhookStore as _};
use recado_postgres::PgInbound;
use serde_json::Value;
use time::OffsetDateTime;
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::callers::{Caller, Ids, event_time, new_endpoint, time_after};
use super::state::{Claimed, State, StepOutcome, emitted, first_endpoints};
use super::steps::{ENDPOINTS, Step, any_step};
use crate::histories::index;
use crate::support::DbFixture;
use crate::webhooks::{queue, store};

/// The in-memory store, which makes its own choices. Its states only lead to further steps: [`System`] compares the
/// database with an in-memory store that makes the choices of the database.
pub(super) struct Model;

impl ReferenceStateMachine for Model {
    type State = State;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<State> {
        Just(State::new()).boxed()
    }

    fn transitions(state: &State) -> BoxedStrategy<Step> {
        any_step(state)
    }

    fn apply(state: State, step: &Step) -> State {
        state.after(step, None)
    }

    /// The id of an endpoint is new.
    fn preconditions(state: &State, step: &Step) -> bool {
        !matches!(step, Step::Create(new) if state.has_endpoint(new.endpoint))
    }
}

/// A database that many cases use in sequence.
pub(super) struct ModelFixture {
    runtime: Runtime,
    fixture: DbFixture,
    accounts: [AccountId; 2],
}

thread_local! {
    static CURRENT_MODEL: RefCell<Option<Rc<ModelFixture>>> = const { RefCell::new(None) };
}

impl ModelFixture {
    /// `planted` is SQL that runs before the first case.
    pub(super) fn new(planted: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (fixture, accounts) = runtime.block_on(async {
            let fixture = DbFixture::new().await;
            let accounts = [fixture.account, fixture.another_account().await];
            fixture.sql(HOURS_UNTIL).await;
            fixture.sql(planted).await;
            (fixture, accounts)
        });
        Self {
            runtime,
            fixture,
            accounts,
        }
    }

    /// Runs cases on this thread with this model.
    pub(super) fn play<T>(self, cases: impl FnOnce() -> T) -> T {
        CURRENT_MODEL.set(Some(Rc::new(self)));
        let done = cases();
        CURRENT_MODEL.take();
        done
    }

    /// Clears the database and inserts the first endpoints.
    async fn clear(&self) {
        self.fixture
            .sql(
                "DELETE FROM webhook_deliveries; DELETE FROM webhook_endpoints; DELETE FROM webhook_events;
                 DELETE FROM webhook_logs; DELETE FROM webhook_inbox; DELETE FROM outbox_events;
                 DELETE FROM campaigns; UPDATE accounts SET status = 'active'",
            )
            .await;
        for endpoint in first_endpoints() {
            let webhook = new_endpoint(endpoint, OffsetDateTime::now_utc());
            let account = self.accounts[ENDPOINTS[endpoint.endpoint]];
            store(&self.fixture).insert(account, &webhook, 1, &[]).await.unwrap();
        }
    }

    /// Executes the steps that no port performs.
    async fn change_rows(&self, before: &State, step: &Step) {
        if let Some((at, event)) = emitted(before, step) {
            let campaign = Campaign {
                account_id: self.accounts[at],
                ..self.fixture.draft()
            };
            self.fixture.campaigns().insert(&campaign, &[event]).await.unwrap();
        }
        match step {
            Step::Relay => {
                self.fixture.outbox().relay(EventKind::Webhook, 1000).await.unwrap();
            }
            Step::DropEvents(step) => {
                let cutoff = time_after(*step);
                let drop_events = format!("DELETE FROM webhook_events WHERE occurred_at < '{cutoff}'");
                self.fixture.sql(&drop_events).await;
            }
            Step::Suspend { account, suspended } => {
                let (status, id) = (if *suspended { "suspended" } else { "active" }, self.accounts[*account]);
                let suspend = format!("UPDATE accounts SET status = '{status}' WHERE id = '{id}'");
                self.fixture.sql(&suspend).await;
            }
            Step::PassTime(hours) => self.fixture.sql(&pass_time(*hours)).await,
            _ => {}
        }
    }

    /// Gives the events of the step its time, and reads the ids of those that were relayed.
    async fn date_events(&self, ids: &mut Ids, at: OffsetDateTime) {
        let new_events = format!(
            "UPDATE outbox_events SET created_at = '{at}' WHERE kind = 'webhook' AND created_at > now() - interval '1 hour'"
        );
        self.fixture.sql(&new_events).await;
        let query = "SELECT (payload ->> 'n')::bigint, id::text FROM webhook_events";
        for row in self.fixture.client.query(query, &[]).await.unwrap() {
            let id: Uuid = row.get::<_, String>(1).parse().unwrap();
            ids.events
                .insert(usize::try_from(row.get::<_, i64>(0)).unwrap(), id.into());
        }
    }

    /// The rows of the database in the format of `State::lines`.
    async fn lines(&self, ids: &Ids) -> Vec<String> {
        let query = LINES.replace("$1", &format!("'{}'", self.accounts[0]));
        let mut text = self.fixture.text(&query).await.unwrap_or_default();
        for (event, id) in &ids.events {
            text = text.replace(&id.to_string(), &event.to_string());
        }
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }

    async fn outbox(&self) -> Vec<(usize, Value)> {
        let query = format!(
            "SELECT (account_id <> '{}')::int::bigint, payload::text FROM outbox_events ORDER BY seq",
            self.accounts[0]
        );
        let rows = self.fixture.client.query(&query, &[]).await.unwrap();
        let event = |row: &tokio_postgres::Row| {
            let payload = serde_json::from_str(row.get(1)).unwrap();
            (usize::try_from(row.get::<_, i64>(0)).unwrap(), payload)
        };
        rows.iter().map(event).collect()
    }

    /// The keys of the stored deliveries: events and endpoints.
    async fn deliveries(&self, ids: &Ids) -> Vec<(usize, usize)> {
        let query = "SELECT event_id::text, endpoint_id::text FROM webhook_deliveries";
        let rows = self.fixture.client.query(query, &[]).await.unwrap();
        let key = |row: &tokio_postgres::Row| {
            let [event, endpoint]: [Uuid; 2] = [0, 1].map(|at| row.get::<_, String>(at).parse().unwrap());
            (ids.event_number(event.into()), index(endpoint))
        };
        rows.iter().map(key).collect()
    }
}

/// Moves all times back. Triggers do not notice it.
fn pass_time(hours: i64) -> String {
    let back = |column: &str| format!("{column} = {column} - interval '{hours} hours'");
    let tables = [
        ("webhook_deliveries", vec!["next_attempt_at", "failed_at"]),
        (
            "webhook_endpoints",
            vec!["previous_secret_until", "disabled_at", "created_at", "updated_at"],
        ),
        ("webhook_logs", vec!["next_attempt_at", "created_at"]),
    ];
    let updates = tables.map(|(table, columns)| {
        let columns: Vec<String> = columns.into_iter().map(back).collect();
        format!("UPDATE {table} SET {};", columns.join(", "))
    });
    format!(
        "BEGIN; SET LOCAL session_replication_role = replica; {} COMMIT",
        updates.concat()
    )
}

const LINES: &str = "SELECT string_agg(line, E'\\n') FROM (
    SELECT concat('endpoint ', id, ' ', (account_id <> $1)::int, ' ', name, ' ', direction, ' v', version,
      ' active=', is_active::text, ' events=', array_to_string(events, ','), ' secret=', get_byte(secret, 0), ' ',
      coalesce(get_byte(previous_secret, 0)::text, '-'), ' until=', hours_until(previous_secret_until),
      ' failing=', coalesce(floor(extract(epoch FROM failing_since))::text, '-'), ' ',
      coalesce(floor(extract(epoch FROM last_failed_at))::text, '-'), ' disabled=', hours_until(disabled_at), ' ',
      coalesce(disabled_reason, '-'), ' created=', hours_until(created_at), ' updated=', hours_until(updated_at)) AS line
    FROM webhook_endpoints
    UNION ALL
    SELECT concat('delivery ', endpoint_id, ' ',
      row_number() OVER (PARTITION BY endpoint_id ORDER BY next_attempt_at, event_id), ' ', event_id, ' ', state,
      ' attempts=', attempt, ' leased=', leased::text, ' next=', hours_until(next_attempt_at),
      ' failed=', hours_until(failed_at)) FROM webhook_deliveries
    UNION ALL
    SELECT concat('event ', id, ' ', (account_id <> $1)::int, ' ',
      CASE WHEN seq IS NULL THEN '-'
        ELSE (row_number() OVER (PARTITION BY account_id, seq IS NULL ORDER BY seq))::text END,
      ' ', type, ' ', floor(extract(epoch FROM occurred_at))) FROM webhook_events
    UNION ALL
    SELECT concat('log ', id, ' ', (account_id <> $1)::int, ' ', endpoint_id, ' ', direction, ' ', event_type, ' ',
      message_id, ' ', coalesce(event_id::text, '-'), ' status=', coalesce(response_status::text, '-'),
      ' attempt=', attempt, ' ms=', coalesce(duration_ms::text, '-'), ' error=', coalesce(error, '-'),
      ' next=', hours_until(next_attempt_at), ' created=', hours_until(created_at)) FROM webhook_logs
    UNION ALL
    SELECT concat('inbox ', endpoint_id, ' ', message_id) FROM webhook_inbox) l";

/// Whole hours from now until then, or `-`.
const HOURS_UNTIL: &str = "CREATE FUNCTION hours_until(at timestamptz) RETURNS text LANGUAGE sql STABLE
     AS $$ SELECT coalesce(round(extract(epoch FROM at - now()) / 3600)::text, '-') $$;";

/// The system under test of one case.
pub(super) struct System {
    model: Rc<ModelFixture>,
    ids: Ids,
    /// The state of the in-memory store that makes the choices of the database.
    state: State,
}

impl StateMachineTest for System {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(state: &State) -> Self {
        let model = CURRENT_MODEL.with_borrow(|model| model.clone().expect("a model is set"));
        model.runtime.block_on(model.clear());
        Self {
            model,
            ids: Ids::default(),
            state: state.clone(),
        }
    }

    fn apply(mut system: Self, _: &State, step: Step) -> Self {
        let model = system.model.clone();
        model.runtime.block_on(async {
            let outcome = system.run_step(&step).await;
            let choice = system.choice(&outcome).await;
            let state = system.state.after(&step, choice.as_ref());
            assert_eq!(outcome, state.outcome, "the outcome of {step:?}");
            let lines = model.lines(&system.ids).await;
            assert_eq!(lines, state.lines(), "after {step:?}");
            assert_eq!(model.outbox().await, state.outbox(), "after {step:?}");
            system.state = state;
        });
        system
    }
}

impl System {
    async fn run_step(&mut self, step: &Step) -> StepOutcome {
        let (model, fixture) = (self.model.clone(), &self.model.fixture);
        model.change_rows(&self.state, step).await;
        // Each claim reads the queues from their beginning: other tests cover the positions that a process keeps.
        let (store, queue) = (store(fixture), queue(fixture));
        let mut caller = Caller {
            endpoints: &store,
            logs: &store,
            inbound: &PgInbound::new(fixture.tenants.clone(), fixture.owner.clone()),
            queue: &queue,
            accounts: model.accounts,
            ids: &mut self.ids,
            now: OffsetDateTime::now_utc(),
            before: &self.state,
        };
        let outcome = caller.run(step).await;
        model.date_events(&mut self.ids, event_time(self.state.step)).await;
        outcome
    }

    /// The deliveries that a claim or purge chose: those that the claim returned, and those that are gone.
    async fn choice(&self, outcome: &StepOutcome) -> Option<BTreeSet<DeliveryKey>> {
        let claimed = match outcome {
            StepOutcome::Claimed(claimed) => claimed.as_slice(),
            StepOutcome::Purged(_) => &[],
            _ => return None,
        };
        let stored = self.model.deliveries(&self.ids).await;
        let stored: BTreeSet<DeliveryKey> = stored.iter().map(|(event, at)| self.state.key(*event, *at)).collect();
        let before = self.state.tables.deliveries.keys();
        let is_gone = |key: &&DeliveryKey| !stored.contains(key);
        let key = |claimed: &Claimed| self.state.key(claimed.event, claimed.endpoint);
        Some(before.filter(is_gone).copied().chain(claimed.iter().map(key)).collect())
    }
}
