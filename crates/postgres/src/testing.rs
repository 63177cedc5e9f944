//! A separate database for every test, and pipelined reads of any SQL text.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test without its database can only fail"
)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::Untyped;
use recado_domain::shared::{AccountId, StoreError};
use secrecy::{ExposeSecret as _, SecretString};
use tokio_postgres::{Client, Config, NoTls};

use crate::sql::{Sql, TextRow, sql};
use crate::tenant_role::TENANT_ROLE;
use crate::{DatabaseTls, OwnerPool, PoolConfig, TenantPool, migrate, prepare_tenant_role};

/// Hash of the migrations: changed migrations get a new template database.
const MIGRATIONS_HASH: &str = env!("RECADO_MIGRATIONS_HASH");

/// The tenant role's password on a cluster whose owner has none.
const TENANT_PASSWORD: &str = "recado-tests";

/// Connections of each test pool.
const POOL_SIZE: usize = 4;

/// A migrated, empty database; dropped with the value.
#[derive(Debug)]
pub struct TestDatabase {
    server: Config,
    name: String,
    url: SecretString,
}

impl TestDatabase {
    /// Clones the template database. The first test that needs it creates it.
    pub async fn new() -> Self {
        let Ok(url) = std::env::var("TEST_DATABASE_URL") else {
            panic!("TEST_DATABASE_URL is not set: run the tests with `cargo xtask test`");
        };
        let server: Config = url.parse().expect("TEST_DATABASE_URL is a PostgreSQL URL");
        let admin = connect(&server).await;
        let template = template(&admin, &url).await;
        let name = unique_name();
        run(
            &admin,
            &format!("CREATE DATABASE {name} TEMPLATE {template} STRATEGY wal_log"),
        )
        .await;
        let url = with_database(&url, &name);
        Self { server, name, url }
    }

    /// The owner's URL.
    pub fn url(&self) -> SecretString {
        self.url.clone()
    }

    /// A small pool of tenant connections.
    pub fn tenant_pool(&self) -> TenantPool {
        TenantPool::new(&self.config()).expect("the URL of the test database is valid")
    }

    /// A small pool of the owner's connections.
    pub fn owner_pool(&self) -> OwnerPool {
        OwnerPool::new(&self.config()).expect("the URL of the test database is valid")
    }

    /// The URL with which tenants log in.
    pub fn tenant_url(&self) -> SecretString {
        tenant_url(self.url.expose_secret()).into()
    }

    /// Configuration of the pools, for a test that needs other sizes or timeouts. Tenants log in as the tenant role.
    pub fn config(&self) -> PoolConfig {
        PoolConfig::new(self.url(), POOL_SIZE).tenant_login(Some(self.tenant_url()))
    }

    /// A plain owner connection, for assertions in SQL.
    pub async fn client(&self) -> Client {
        let mut config = self.server.clone();
        connect(config.dbname(&self.name)).await
    }
}

impl Drop for TestDatabase {
    /// Best effort: a remaining database costs some disk space, and no later test uses it.
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        let dropper = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                if let Ok((client, connection)) = server.connect(NoTls).await {
                    let driver = tokio::spawn(connection);
                    let _ = client
                        .batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
                        .await;
                    drop(client);
                    let _ = driver.await;
                }
            });
            std::io::Result::Ok(())
        });
        let _ = dropper.join();
    }
}

async fn connect(config: &Config) -> Client {
    let (client, connection) = config
        .connect(NoTls)
        .await
        .expect("the PostgreSQL server of TEST_DATABASE_URL accepts connections");
    tokio::spawn(connection);
    client
}

async fn run(client: &Client, statement: &str) {
    client
        .batch_execute(statement)
        .await
        .unwrap_or_else(|error| panic!("{statement}: {error:?}"));
}

/// Returns the name of the template database. The first process creates it under an advisory lock; others wait for
/// that.
async fn template(admin: &Client, url: &str) -> String {
    // A template has partitions for the next days only.
    let day = since_epoch().as_secs() / (24 * 60 * 60);
    let name = format!("recado_template_{MIGRATIONS_HASH}_{day}");
    if is_ready(admin, &name).await {
        return name;
    }
    run(admin, "SELECT pg_advisory_lock(hashtext('recado test template'))").await;
    if !is_ready(admin, &name).await {
        // Remains of a process that was interrupted while it created the template.
        run(admin, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
        run(admin, &format!("CREATE DATABASE {name}")).await;
        let owner_url = with_database(url, &name);
        migrate(&owner_url).await.expect("the migrations run");
        prepare_tenant_role(
            &owner_url,
            Some(&tenant_url(owner_url.expose_secret()).into()),
            &DatabaseTls::default(),
        )
        .await
        .expect("the tenant role can log in");
        run(
            admin,
            &format!("ALTER DATABASE {name} IS_TEMPLATE true ALLOW_CONNECTIONS false"),
        )
        .await;
    }
    run(admin, "SELECT pg_advisory_unlock(hashtext('recado test template'))").await;
    name
}

async fn is_ready(admin: &Client, name: &str) -> bool {
    let query = "SELECT 1 FROM pg_database WHERE datname = $1 AND datistemplate";
    admin
        .query_opt(query, &[&name])
        .await
        .expect("the databases can be listed")
        .is_some()
}

/// Unique across processes and days.
fn unique_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(
        "recado_test_{}_{}_{count}",
        std::process::id(),
        since_epoch().as_micros()
    )
}

#[expect(clippy::disallowed_methods, reason = "a name for a test, no logic depends on it")]
fn since_epoch() -> Duration {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// Replaces the database name in a URL.
fn with_database(url: &str, database: &str) -> SecretString {
    let (base, query) = url
        .split_once('?')
        .map_or((url, None), |(base, query)| (base, Some(query)));
    let (scheme, rest) = base.split_once("://").unwrap_or(("postgres", base));
    let authority = rest.split_once('/').map_or(rest, |(authority, _)| authority);
    let query = query.map_or(String::new(), |query| format!("?{query}"));
    format!("{scheme}://{authority}/{database}{query}").into()
}

/// Returns the owner's URL with the tenant role and its password. Roles belong to the cluster, so all tests of a
/// cluster have one password: the owner's.
pub fn tenant_url(owner_url: &str) -> String {
    let (scheme, rest) = owner_url.split_once("://").unwrap_or(("postgres", owner_url));
    let (credentials, server) = rest.split_once('@').unwrap_or(("", rest));
    let password = credentials
        .split_once(':')
        .map_or(TENANT_PASSWORD, |(_, password)| password);
    format!("{scheme}://{TENANT_ROLE}:{password}@{server}")
}

/// How a connection caches a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementCaching {
    /// Prepared once per connection, like the statements of the stores.
    Yes,
    /// Prepared for every execution.
    No,
    /// Prepared for every execution, although the first check reports it as cacheable.
    Deceptive,
}

/// Reads the column `text` with a pipelined read.
pub async fn read(
    pool: &TenantPool,
    account: AccountId,
    caching: StatementCaching,
    statement: &str,
) -> Result<Vec<String>, StoreError> {
    let statement = statement.to_owned();
    let rows: Vec<TextRow> = match caching {
        StatementCaching::Yes => pool.read_rows(account, sql(statement)).await?,
        StatementCaching::No => pool.read_rows(account, diesel::sql_query(statement)).await?,
        StatementCaching::Deceptive => pool.read_rows(account, Deceptive::from(sql(statement))).await?,
    };
    Ok(words(rows))
}

/// Like [`read`], for two statements in one transaction.
pub async fn read_both(
    pool: &TenantPool,
    account: AccountId,
    first: &str,
    second: &str,
) -> Result<(Vec<String>, Vec<String>), StoreError> {
    let (first, second) = (sql(first.to_owned()), sql(second.to_owned()));
    let (first, second) = pool.read_both(account, first, second).await?;
    Ok((words(first), words(second)))
}

fn words(rows: Vec<TextRow>) -> Vec<String> {
    rows.into_iter().map(|row| row.text).collect()
}

/// Reports itself as cacheable on the first check, and as not cacheable afterwards.
struct Deceptive {
    statement: Sql<'static>,
    was_checked: AtomicBool,
}

impl From<Sql<'static>> for Deceptive {
    fn from(statement: Sql<'static>) -> Self {
        Self {
            statement,
            was_checked: AtomicBool::new(false),
        }
    }
}

impl QueryFragment<Pg> for Deceptive {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        if self.was_checked.swap(true, Ordering::Relaxed) {
            out.unsafe_to_cache_prepared();
        }
        self.statement.walk_ast(out)
    }
}

impl QueryId for Deceptive {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Deceptive {
    type SqlType = Untyped;
}
