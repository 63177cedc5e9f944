//! Runs each step on the store with a real database, and compares its outcome and rows with those of the in-memory store.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use recado_domain::accounts::{Account, AccountStore as _};
use recado_domain::media::in_memory::{InMemoryFile, PlantedFileBug};
use recado_domain::media::{FETCH_LEASE, MessageFileStore as _, lost_files_event};
use recado_postgres::{PgAccounts, PgMessageFiles};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::runtime::Runtime;

use super::state::{REPORT_INTERVAL, State, Step, StepOutcome, accounts, conversation};
use crate::model_clock::{replace_clock, set_clock};
use crate::support::{DbFixture, account};

/// The in-memory store as the reference.
pub(super) struct Model;

impl ReferenceStateMachine for Model {
    type State = State;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<State> {
        Just(State::new(BUG.get())).boxed()
    }

    fn transitions(state: &State) -> BoxedStrategy<Step> {
        state.any_step()
    }

    fn apply(state: State, step: &Step) -> State {
        state.after(step)
    }

    fn preconditions(state: &State, step: &Step) -> bool {
        state.is_allowed(step)
    }
}

/// A database that many cases use in sequence.
struct Database {
    runtime: Runtime,
    fixture: DbFixture,
}

thread_local! {
    static DATABASE: RefCell<Option<Rc<Database>>> = const { RefCell::new(None) };
    static BUG: Cell<Option<PlantedFileBug>> = const { Cell::new(None) };
}

/// Runs cases on this thread with a new database. `planted` is SQL that runs before the first one.
pub(super) fn with_database<T>(planted: &str, cases: impl FnOnce() -> T) -> T {
    DATABASE.set(Some(Rc::new(Database::new(planted))));
    let done = cases();
    DATABASE.take();
    done
}

/// Runs cases with a planted bug of the in-memory store.
pub(super) fn with_bug(bug: PlantedFileBug, cases: impl FnOnce()) {
    BUG.set(Some(bug));
    cases();
    BUG.take();
}

const FAILED_AT: &str = "ALTER TABLE whatsapp_media_failures ALTER COLUMN failed_at SET DEFAULT public.now();
    CREATE FUNCTION microseconds(at timestamptz) RETURNS text LANGUAGE sql STABLE
     AS $$ SELECT coalesce((extract(epoch FROM at) * 1000000)::bigint::text, '-') $$";

/// Failed requests that are older than an hour count no more.
const LINES: &str = "SELECT string_agg(line, E'\\n') FROM (
    SELECT concat('file ', id, ' ', account_id, ' ', state, ' due=', microseconds(due_at), ' claim=',
      coalesce(claim_id::text, '-'), ' key=', coalesce(file_id::text, '-'), ' attempts=', attempts, ' mismatches=',
      mismatches, ' reason=', coalesce(reason, '-'), ' size=', coalesce(size::text, '-'), ' sha256=',
      coalesce(sha256, '-'), ' type=', coalesce(mime_type, '-'), ' abandoned=', array_to_string(abandoned, ','),
      ' reported=', microseconds(lost_reported_at)) AS line
    FROM message_media
    UNION ALL
    SELECT concat('failure ', phone_number_id, ' ', microseconds(failed_at)) FROM whatsapp_media_failures
    WHERE failed_at > now() - interval '1 hour') l";

/// The text of a value, or `-`.
fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn microseconds(at: Option<OffsetDateTime>) -> String {
    or_dash(at.map(|at| at.unix_timestamp_nanos() / 1000))
}

fn file_line(row: &InMemoryFile) -> String {
    let (file, published) = (&row.file, &row.file.file);
    let abandoned: Vec<String> = file.abandoned.iter().map(ToString::to_string).collect();
    format!(
        "file {} {} {} due={} claim={} key={} attempts={} mismatches={} reason={} size={} sha256={} type={} \
         abandoned={} reported={}",
        published.id,
        file.account_id,
        published.state,
        microseconds(row.due_at),
        or_dash(row.claim),
        or_dash(row.key),
        file.facts.attempts,
        file.facts.mismatches,
        or_dash(published.reason),
        or_dash(published.size),
        or_dash(published.sha256.as_ref()),
        or_dash(published.mime_type.as_ref()),
        abandoned.join(","),
        microseconds(row.reported_at),
    )
}

/// The expected rows of the database, and the events of the last step.
fn expected_lines(state: &State) -> Vec<String> {
    let tables = &state.tables;
    let mut lines: Vec<String> = tables.files.values().map(file_line).collect();
    for number in tables.failures.keys() {
        let failures = tables.recent_failures(number).into_iter();
        lines.extend(failures.map(|at| format!("failure {number} {}", microseconds(Some(at)))));
    }
    let events = tables.events.iter();
    lines.extend(events.map(|(account, event)| event_line(&account.to_string(), &json!(event))));
    lines.sort_unstable();
    lines
}

fn event_line(account: &str, payload: &Value) -> String {
    format!("event {account} {}", payload["data"])
}

impl Database {
    fn new(planted: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let fixture = runtime.block_on(async {
            let mut fixture = DbFixture::new().await;
            let store = PgAccounts::new(fixture.owner.clone());
            for id in accounts() {
                let account = Account { id, ..account("loja") };
                store.create(&account, fixture.user, 1000).await.unwrap().unwrap();
                let conversation = conversation(id);
                let insert = format!(
                    "INSERT INTO contacts (account_id, id, name, phone)
                       VALUES ('{id}', '{conversation}', 'Ana', '+5511900000001');
                     INSERT INTO conversations (account_id, id, contact_id, last_message_at)
                       VALUES ('{id}', '{conversation}', '{conversation}', now())"
                );
                fixture.sql(&insert).await;
            }
            replace_clock(&mut fixture).await;
            fixture.sql(FAILED_AT).await;
            fixture.sql(planted).await;
            fixture
        });
        Self { runtime, fixture }
    }

    /// The rows and the new events in the format of `expected_lines`.
    async fn lines(&self) -> Vec<String> {
        let text = self.fixture.text(LINES).await.unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let events = "DELETE FROM outbox_events RETURNING account_id::text, payload::text";
        for row in self.fixture.client.query(events, &[]).await.unwrap() {
            let [account, payload] = [0, 1].map(|column| row.get::<_, String>(column));
            let payload: Value = serde_json::from_str(&payload).unwrap();
            lines.push(event_line(&account, &payload));
        }
        lines.sort_unstable();
        lines
    }

    async fn insert(&self, row: &InMemoryFile) {
        let file = &row.file;
        let insert = format!(
            "INSERT INTO message_media (account_id, id, message_id, conversation_id, profile_id, phone_number_id,
               wa_media_id, type, state, due_at, written_at)
             VALUES ('{}', '{}', '{}', '{}', '{}', '{}', '{}', 'image', 'pending', now(), '{}')",
            file.account_id,
            file.file.id,
            file.message_id,
            file.conversation_id,
            file.profile_id,
            row.number,
            file.wa_media_id,
            file.facts.written_at,
        );
        self.fixture.sql(&insert).await;
    }

    async fn run(&self, begun: &State, step: &Step) -> StepOutcome {
        let store = PgMessageFiles::new(self.fixture.tenants.clone(), self.fixture.owner.clone());
        match step {
            Step::Add { account, number, age } => {
                self.insert(&begun.new_file(*account, *number, *age)).await;
                StepOutcome::Nothing
            }
            Step::Claim => StepOutcome::Claimed(store.claim(begun.next_claim(), FETCH_LEASE).await.unwrap()),
            Step::Renew(claim) => match begun.claims.get(*claim) {
                Some(file) => StepOutcome::Is(store.renew(file, FETCH_LEASE).await.unwrap()),
                None => StepOutcome::Nothing,
            },
            Step::Record { .. } => match begun.recorded(step) {
                Some((file, decision, failed)) => {
                    let events = [lost_files_event(7)];
                    let recorded = store.record(&file, &decision, failed, &events).await;
                    StepOutcome::Is(recorded.unwrap())
                }
                None => StepOutcome::Nothing,
            },
            Step::ReportLost => StepOutcome::Is(store.report_lost(REPORT_INTERVAL, lost_files_event).await.unwrap()),
            Step::PassTime(_) => StepOutcome::Nothing,
        }
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
        let clear = "DELETE FROM message_media; DELETE FROM whatsapp_media_failures; DELETE FROM outbox_events";
        database.runtime.block_on(database.fixture.sql(clear));
        Self {
            database,
            before: state.clone(),
        }
    }

    fn apply(mut system: Self, state: &State, step: Step) -> Self {
        let (database, begun) = (system.database.clone(), system.before.begun(&step));
        database.runtime.block_on(async {
            set_clock(&database.fixture, begun.tables.now).await;
            let outcome = database.run(&begun, &step).await;
            assert_eq!(outcome, state.outcome, "the outcome of {step:?}");
            let (lines, expected) = (database.lines().await, expected_lines(state));
            assert_eq!(lines, expected, "the rows after {step:?}");
        });
        system.before = state.clone();
        system
    }
}
