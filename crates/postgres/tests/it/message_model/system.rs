//! Runs each step on the stores with a real database, and compares their outcomes and rows with those of the in-memory
//! store.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use recado_domain::accounts::{Account, AccountStore as _};
use recado_domain::callbacks::{StatusUpdate, StatusUpdateStore as _};
use recado_domain::direct_messages::in_memory::PlantedMessageBug;
use recado_domain::direct_messages::{DirectMessageQueue as _, DirectMessageStore as _};
use recado_domain::templates::{Template, TemplateStore as _};
use recado_postgres::{PgAccounts, PgDirectMessageQueues, PgDirectMessages};
use serde_json::Value;
use time::OffsetDateTime;
use tokio::runtime::Runtime;

use super::lines::{LINES, MICROSECONDS, event_lines};
use super::state::{START, State, StepOutcome, accounts, contact_id, phone, queue_of, wa_message_id};
use super::steps::{CONTACTS, Step, any_step, is_allowed};
use crate::error_codes::{ERROR_CODES, STOPPED_MARKETING};
use crate::histories::number;
use crate::model_clock::replace_clock;
use crate::status_updates::status_update;
use crate::support::{DbFixture, LEASE, account};
use crate::webhook_events::endpoint;

/// The in-memory store as the reference.
pub(super) struct Model;

impl ReferenceStateMachine for Model {
    type State = State;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<State> {
        let database = DATABASE.with_borrow(|database| database.clone().expect("a database is set"));
        Just(State::new(database.templates.clone(), BUG.get())).boxed()
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
struct Database {
    runtime: Runtime,
    fixture: DbFixture,
    /// The template of each account.
    templates: Rc<[Template; 2]>,
}

thread_local! {
    static DATABASE: RefCell<Option<Rc<Database>>> = const { RefCell::new(None) };
    static BUG: Cell<Option<PlantedMessageBug>> = const { Cell::new(None) };
}

/// Runs cases on this thread with a new database. `planted` is SQL that runs before the first one.
pub(super) fn with_database<T>(planted: &str, cases: impl FnOnce() -> T) -> T {
    DATABASE.set(Some(Rc::new(Database::new(planted))));
    let done = cases();
    DATABASE.take();
    done
}

/// Runs cases with a planted bug of the in-memory store.
pub(super) fn with_bug(bug: PlantedMessageBug, cases: impl FnOnce()) {
    BUG.set(Some(bug));
    cases();
    BUG.take();
}

/// The default that decides about the order of the queues.
const WAITING_SINCE: &str = "ALTER TABLE direct_message_queues ALTER COLUMN waiting_since SET DEFAULT public.now()";

/// The kinds of webhook events of messages.
const KINDS: &str = "{message.sent,message.delivered,message.read,message.failed,message.cancelled}";

/// Inserts the accounts with their contacts and templates.
async fn insert_accounts(fixture: &DbFixture) -> [Template; 2] {
    let store = PgAccounts::new(fixture.owner.clone());
    let mut templates = Vec::new();
    for (at, id) in accounts().into_iter().enumerate() {
        let new = Account { id, ..account("loja") };
        store.create(&new, fixture.user, 1000).await.unwrap().unwrap();
        endpoint(fixture, id, KINDS, true).await;
        for contact in 0..CONTACTS {
            let (contact, phone) = (contact_id(at, contact), phone(at, contact));
            let insert = format!(
                "INSERT INTO contacts (account_id, id, name, phone) VALUES ('{id}', '{contact}', 'Ana', '{phone}')"
            );
            fixture.sql(&insert).await;
        }
        let conversation = contact_id(at, 0);
        let insert = format!(
            "INSERT INTO conversations (account_id, id, contact_id, last_message_at, last_inbound_at)
             VALUES ('{id}', '{conversation}', '{conversation}', '{START}', '{START}')"
        );
        fixture.sql(&insert).await;
        let template = Template {
            id: number(at).into(),
            account_id: id,
            body_text: Some("Oi!".into()),
            variables: vec![],
            ..fixture.template("promo")
        };
        fixture.templates().insert(&template).await.unwrap();
        let stored = fixture.templates().find(id, template.id).await;
        templates.push(stored.unwrap().unwrap());
    }
    templates.try_into().unwrap()
}

impl Database {
    fn new(planted: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (fixture, templates) = runtime.block_on(async {
            let mut fixture = DbFixture::new().await;
            let templates = insert_accounts(&fixture).await;
            replace_clock(&mut fixture).await;
            fixture.sql(WAITING_SINCE).await;
            fixture.sql(MICROSECONDS).await;
            fixture.sql(planted).await;
            (fixture, templates)
        });
        Self {
            runtime,
            fixture,
            templates: Rc::new(templates),
        }
    }

    /// Clears the database for the initial state, also of queues that a planted trigger keeps.
    async fn clear(&self) {
        self.fixture
            .sql(
                "SET session_replication_role = replica; DELETE FROM direct_message_queues;
                 SET session_replication_role = origin; DELETE FROM direct_messages; DELETE FROM message_usage_slots;
                 DELETE FROM message_rollups; DELETE FROM outbox_events;
                 UPDATE contacts SET opted_out_at = NULL, consent_at = NULL, wa_id = NULL",
            )
            .await;
    }

    /// Begins a step as the in-memory store does.
    async fn begin(&self, now: OffsetDateTime, step: &Step) {
        let opt_in = match step {
            Step::OptIn(account, contact) => format!(
                "UPDATE contacts SET opted_out_at = NULL, consent_at = NULL WHERE id = '{}'",
                contact_id(*account, *contact)
            ),
            _ => String::new(),
        };
        let begin = format!("UPDATE model_clock SET at = '{now}'; {opt_in}");
        self.fixture.sql(&begin).await;
    }

    /// The rows and the new events in the format of `State::lines`.
    async fn lines(&self) -> Vec<String> {
        let text = self.fixture.text(LINES).await.unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let events = "DELETE FROM outbox_events RETURNING account_id::text, payload::text";
        for row in self.fixture.client.query(events, &[]).await.unwrap() {
            let [account, payload] = [0, 1].map(|column| row.get::<_, String>(column));
            let payload: Value = serde_json::from_str(&payload).unwrap();
            lines.extend(event_lines(&account, &payload));
        }
        lines.sort_unstable();
        lines
    }
}

/// The system under test of one case.
pub(super) struct System {
    database: Rc<Database>,
    /// The state before the next step.
    before: State,
}

impl StateMachineTest for System {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(state: &State) -> Self {
        let database = DATABASE.with_borrow(|database| database.clone().expect("a database is set"));
        database.runtime.block_on(database.clear());
        Self {
            database,
            before: state.clone(),
        }
    }

    fn apply(mut system: Self, state: &State, step: Step) -> Self {
        let database = system.database.clone();
        database.runtime.block_on(system.check_step(state, &step));
        system.before = state.clone();
        system
    }
}

/// Compares the lines of the database with those of the in-memory store. The failure shows only what differs.
fn assert_same(database: &[String], in_memory: &[String], step: &Step) {
    let only_in = |lines: &[String], others: &[String]| -> String {
        let missing = lines.iter().filter(|line| !others.contains(line));
        missing.map(|line| format!("\n  {line}")).collect()
    };
    assert!(
        database == in_memory,
        "after {step:?}\nonly in the database:{}\nonly in the in-memory store:{}",
        only_in(database, in_memory),
        only_in(in_memory, database)
    );
}

impl System {
    /// Runs the step and compares everything with the state after it.
    async fn check_step(&self, state: &State, step: &Step) {
        let begun = self.before.begin(step);
        self.database.begin(begun.tables.now, step).await;
        assert_eq!(self.run(&begun, step).await, state.outcome, "the outcome of {step:?}");
        assert_same(&self.database.lines().await, &state.lines(), step);
    }

    fn queues(&self) -> PgDirectMessageQueues {
        let fixture = &self.database.fixture;
        PgDirectMessageQueues::new(fixture.tenants.clone(), fixture.owner.clone(), ERROR_CODES)
    }

    async fn run(&self, begun: &State, step: &Step) -> StepOutcome {
        let store = PgDirectMessages::new(self.database.fixture.tenants.clone(), ERROR_CODES);
        let queues = self.queues();
        match step {
            Step::Insert { queue, .. } => {
                let inserted = store.insert(queue_of(*queue).account_id, &begun.plan_of(step)).await;
                StepOutcome::Inserted(inserted.unwrap())
            }
            Step::Cancel { account, message } => {
                let cancelled = store.cancel(accounts()[*account], number(*message).into()).await;
                cancelled.unwrap().into()
            }
            Step::Take(worker) => StepOutcome::Taken(queues.take(number(*worker), LEASE).await.unwrap()),
            Step::Due(queue, limit) => {
                let due = queues.due(queue_of(*queue), *limit).await.unwrap();
                StepOutcome::Count(due.into())
            }
            Step::Start {
                queue,
                worker,
                limit,
                is_number_removed,
            } => {
                let started = queues.start(queue_of(*queue), number(*worker), *limit, LEASE, *is_number_removed);
                StepOutcome::Started(started.await.unwrap())
            }
            Step::FailUnknown(ttl, limit) => {
                let failed = queues.fail_unknown(*ttl, i64::try_from(*limit).unwrap()).await;
                StepOutcome::Count(failed.unwrap())
            }
            Step::StatusUpdate { .. } => self.apply_status(step).await,
            other => {
                self.run_without_outcome(begun, other).await;
                StepOutcome::Nothing
            }
        }
    }

    async fn run_without_outcome(&self, begun: &State, step: &Step) {
        let queues = self.queues();
        let done = match step {
            Step::Record(queue, results) => queues.record(queue_of(*queue), &begun.results(results)).await,
            Step::Release(queue, worker) => queues.release(queue_of(*queue), number(*worker)).await,
            Step::Hold(queue, worker, reason, delay) => {
                let (queue, worker) = (queue_of(*queue), number(*worker));
                queues.hold(queue, worker, *reason, *delay).await
            }
            Step::Abandon(queue, worker) => queues.abandon(queue_of(*queue), number(*worker)).await,
            _ => Ok(()),
        };
        done.unwrap();
    }

    async fn apply_status(&self, step: &Step) -> StepOutcome {
        let Step::StatusUpdate {
            account,
            message,
            has_id,
            status,
            stopped,
        } = step
        else {
            return StepOutcome::Nothing;
        };
        let id = has_id.then(|| number(*message).into());
        let update = StatusUpdate {
            error_code: stopped.then_some(STOPPED_MARKETING),
            ..status_update(id, &wa_message_id(*message), *status)
        };
        let updates = self.database.fixture.status_updates();
        let unmatched = updates.apply(accounts()[*account], &[update]).await;
        StepOutcome::IsMatched(unmatched.unwrap().is_empty())
    }
}
