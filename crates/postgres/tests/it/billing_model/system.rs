//! Runs each step on the stores with a real database, and compares their outcomes and rows with those of the in-memory
//! store.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use proptest_state_machine::StateMachineTest;
use recado_domain::accounts::{Account, AccountStore as _};
use recado_domain::billing::in_memory::{FakePaymentGateway, InMemoryBilling};
use recado_postgres::{PgAccounts, PgBillingWork, PgGatewayEvents};
use serde_json::Value;
use time::OffsetDateTime;
use tokio::runtime::Runtime;

use super::callers::Caller;
use super::state::{Model, State, accounts, microseconds};
use super::steps::Step;
use crate::billing::store;
use crate::model_clock::replace_clock;
use crate::support::{DbFixture, account};
use crate::webhook_events::endpoint;

/// A database that many cases use in sequence.
struct Database {
    runtime: Runtime,
    fixture: DbFixture,
}

thread_local! {
    static DATABASE: RefCell<Option<Rc<Database>>> = const { RefCell::new(None) };
}

/// Runs cases on this thread with a new database. `planted` is SQL that runs before the first one.
pub(super) fn with_database<T>(planted: &str, cases: impl FnOnce() -> T) -> T {
    DATABASE.set(Some(Rc::new(Database::new(planted))));
    let done = cases();
    DATABASE.take();
    done
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
            }
            endpoint(&fixture, accounts()[0], "{subscription.changed}", true).await;
            replace_clock(&mut fixture).await;
            fixture.sql(planted).await;
            fixture
        });
        Self { runtime, fixture }
    }

    /// Clears the database for the initial state.
    async fn clear(&self) {
        self.fixture
            .sql(
                "DELETE FROM subscriptions; DELETE FROM gateway_subscriptions; DELETE FROM gateway_events;
                 DELETE FROM applied_gateway_events; DELETE FROM outbox_events; DELETE FROM contact_counts;
                 UPDATE accounts SET plan = 'free', granted_plan = NULL",
            )
            .await;
    }

    /// The SQL of what no store performs.
    fn sql_of(step: &Step) -> Option<String> {
        Some(match step {
            Step::SetContacts(account, contacts) => format!(
                "INSERT INTO contact_counts (account_id, day, contacts) VALUES ('{account}', '2026-01-01', {contacts})
                 ON CONFLICT (account_id, day) DO UPDATE SET contacts = excluded.contacts"
            ),
            Step::Grant(account, plan) => {
                let plan = plan.map_or("NULL".to_owned(), |plan| format!("'{plan}'"));
                format!("UPDATE accounts SET granted_plan = {plan} WHERE id = '{account}'")
            }
            _ => return None,
        })
    }

    async fn set_clock(&self, now: OffsetDateTime) {
        let now = microseconds(now);
        let sql = format!(
            "UPDATE model_clock SET at = to_timestamp({now} / 1000000) + {now} % 1000000 * interval '1 microsecond'"
        );
        self.fixture.sql(&sql).await;
    }

    /// The rows in the format of `State::lines`.
    async fn lines(&self) -> Vec<String> {
        let [first, second] = accounts();
        let query = LINES.replace("$1", &format!("'{first}', '{second}'"));
        let text = self.fixture.text(&query).await.unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }

    /// The outbox in the format of `State::appended`.
    async fn appended(&self) -> Vec<String> {
        let query = "SELECT account_id::text, payload::text FROM outbox_events ORDER BY account_id, seq";
        let rows = self.fixture.client.query(query, &[]).await.unwrap();
        let events = rows.iter().map(|row| {
            let [account, payload] = [0, 1].map(|column| row.get::<_, String>(column));
            let payload: Value = serde_json::from_str(&payload).unwrap();
            format!("{account} {payload}")
        });
        events.collect()
    }
}

const LINES: &str = "SELECT string_agg(line, E'\\n') FROM (
    SELECT concat('account ', id, ' plan=', plan, ' granted=', coalesce(granted_plan, '-')) AS line
    FROM accounts WHERE id IN ($1)
    UNION ALL
    SELECT concat('subscription ', account_id, ' ', id, ' version=', version, ' attempt=', attempt::text)
    FROM subscriptions
    UNION ALL
    SELECT concat('payment ', account_id, ' ', gateway_payment_id, ' of ', subscription_id) FROM billing_history
    UNION ALL
    SELECT concat('applied ', account_id, ' ', event_id) FROM applied_gateway_events
    UNION ALL
    SELECT concat('event ', id, ' key=', key, ' subject=', gateway_subscription_id, ' attempts=', attempts,
      ' received=', (extract(epoch FROM received_at) * 1000000)::bigint,
      CASE WHEN due_at IS NULL THEN ' finished' WHEN due_at <= now() THEN ' due'
        ELSE concat(' until ', (extract(epoch FROM due_at) * 1000000)::bigint) END) FROM gateway_events
    UNION ALL
    SELECT concat('owner ', gateway_subscription_id, ' ', account_id, ' ', subscription_id)
    FROM gateway_subscriptions) l";

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
        let (database, fixture) = (&self.database, &self.database.fixture);
        let begun = self.before.begin(step);
        database.set_clock(begun.tables.now).await;
        if let Some(sql) = Database::sql_of(step) {
            fixture.sql(&sql).await;
        }
        let subscriptions = Arc::new(store(fixture));
        let caller = Caller {
            subscriptions: subscriptions.clone(),
            accounts: subscriptions,
            events: Arc::new(PgGatewayEvents::new(fixture.owner.clone())),
            work: Arc::new(PgBillingWork::new(fixture.owner.clone())),
            gateway: Arc::new(FakePaymentGateway::new(begun.gateway)),
            clock_and_ids: Arc::new(InMemoryBilling::new(begun.tables)),
        };
        assert_eq!(caller.run(step).await, state.outcome, "the outcome of {step:?}");
        assert_eq!(*caller.gateway.state(), state.gateway, "the gateway after {step:?}");
        assert_same(&database.lines().await, &state.lines(), step);
        assert_same(&caller.reads(state).await, &state.reads, step);
        assert_same(&database.appended().await, &state.appended(), step);
    }
}
