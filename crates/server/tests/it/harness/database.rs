//! A database for every test, and SQL for state that no route can set or return.

use std::collections::BTreeMap;
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::Duration;

use recado_postgres::testing::TestDatabase;
use secrecy::ExposeSecret as _;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::{reference, until, webhook_events};

/// The most events of a database that are checked.
const MAX_CHECKED_EVENTS: usize = 10_000;

/// How long a database may take to return its events. A test may leave it locked or suspended.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// A migrated database and a connection of its owner.
pub struct Database {
    client: RwLock<Client>,
    url: String,
    /// Drops the database with this value. `None` if another owner drops it.
    _database: Option<TestDatabase>,
}

/// Drives all database connections of the tests; the tests themselves are plain threads.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Database {
    pub fn new() -> Self {
        runtime().block_on(async {
            let database = TestDatabase::new().await;
            let url = database.url().expose_secret().to_owned();
            Self {
                client: RwLock::new(connect(&url).await),
                url,
                _database: Some(database),
            }
        })
    }

    /// An existing database, which this value does not drop.
    pub fn at(url: &str) -> Self {
        Self {
            client: RwLock::new(runtime().block_on(connect(url))),
            url: url.to_owned(),
            _database: None,
        }
    }

    /// Replaces a broken connection.
    pub fn reconnect(&self) {
        *self.client.write().unwrap() = runtime().block_on(connect(&self.url));
    }

    /// Replaces a broken connection; returns false if the database does not accept connections yet.
    pub fn try_reconnect(&self) -> bool {
        let connected = runtime().block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.ok()?;
            tokio::spawn(connection);
            Some(client)
        });
        let Some(client) = connected else { return false };
        *self.client.write().unwrap() = client;
        true
    }

    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Creates an empty database on the same cluster.
    pub fn empty(&self) -> Empty<'_> {
        let name = format!("recado_test_empty_{}", uuid::Uuid::new_v4().simple());
        self.run(&format!("CREATE DATABASE {name}"));
        Empty { server: self, name }
    }

    #[track_caller]
    pub fn run(&self, sql: &str) {
        let done = runtime().block_on(self.client.read().unwrap().batch_execute(sql));
        done.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// The rows of a query, with every value as text.
    #[track_caller]
    pub fn rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        let messages = runtime().block_on(self.client.read().unwrap().simple_query(sql));
        let messages = messages.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        rows.map(|row| (0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect())
            .collect()
    }

    /// The first value of the first row; empty if it is null or missing.
    #[track_caller]
    pub fn text(&self, sql: &str) -> String {
        let first = self.rows(sql).into_iter().next().and_then(|row| row.into_iter().next());
        first.flatten().unwrap_or_default()
    }

    /// The rows of each table as text.
    pub fn dump(&self) -> BTreeMap<String, String> {
        self.dump_tables(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'
               AND tablename NOT IN (SELECT relname FROM pg_class WHERE relispartition)",
            "",
        )
    }

    /// The account's rows of each table as text.
    pub fn dump_account(&self, account: &str) -> BTreeMap<String, String> {
        let tables = "SELECT tablename FROM pg_tables JOIN information_schema.columns ON table_name = tablename
          AND table_schema = schemaname WHERE schemaname = 'public' AND column_name = 'account_id'
          AND tablename NOT IN (SELECT relname FROM pg_class WHERE relispartition)";
        self.dump_tables(tables, &format!("WHERE account_id = '{account}'"))
    }

    fn dump_tables(&self, tables: &str, condition: &str) -> BTreeMap<String, String> {
        // A worker clears this soon after a number was verified.
        until("verified numbers have received their held messages", || {
            self.count("FROM whatsapp_profiles WHERE held_since IS NOT NULL AND verification_state = 'verified'") == 0
        });
        let names = self.rows(tables).into_iter().filter_map(|row| row.into_iter().next()?);
        let dumped: BTreeMap<_, _> = names
            .map(|table| {
                let rows = format!("SELECT string_agg(t::text, '|' ORDER BY t::text) FROM {table} t {condition}");
                (table, self.text(&rows))
            })
            .collect();
        assert!(dumped.len() > 20, "{dumped:?}");
        dumped
    }

    /// Waits until the relays have moved every outbox event to its table.
    #[track_caller]
    pub fn wait_for_outbox(&self) {
        until("the outbox is empty", || self.count("FROM outbox_events") == 0);
    }

    /// Runs `SELECT count(*)` followed by `sql`.
    #[track_caller]
    pub fn count(&self, sql: &str) -> i64 {
        let text = self.text(&format!("SELECT count(*) {sql}"));
        text.parse().unwrap_or_else(|_| panic!("{sql}: {text}"))
    }
}

/// Every webhook event that a test caused fits its event type.
impl Drop for Database {
    fn drop(&mut self) {
        if std::thread::panicking() || reference::has_previous_version() {
            return;
        }
        let sql = format!("SELECT type, payload FROM webhook_events LIMIT {MAX_CHECKED_EVENTS}");
        let client = self.client.read().unwrap_or_else(PoisonError::into_inner);
        // A test may have stopped its database.
        let query = async { timeout(CHECK_TIMEOUT, client.simple_query(&sql)).await };
        let Ok(Ok(messages)) = runtime().block_on(query) else {
            return;
        };
        for message in messages {
            let SimpleQueryMessage::Row(row) = message else {
                continue;
            };
            let (kind, data) = (row.get("type").unwrap(), row.get("payload").unwrap());
            webhook_events::check(kind, &serde_json::from_str(data).unwrap());
        }
    }
}

/// A database without tables; dropped with the value.
pub struct Empty<'a> {
    server: &'a Database,
    name: String,
}

impl Empty<'_> {
    pub fn url(&self) -> String {
        let url = self.server.url();
        let own = self.server.text("SELECT current_database()");
        url.replacen(&own, &self.name, 1)
    }
}

impl Drop for Empty<'_> {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        runtime()
            .block_on(self.server.client.read().unwrap().batch_execute(&drop))
            .ok();
    }
}
