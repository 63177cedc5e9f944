//! The tenant role: which privileges a login of tenant pools may have, and its settings.
//!
//! Roles belong to the cluster, so `recado migrate` and not a migration makes them: a migration runs once for a
//! database, and a password must not be in one.

use std::time::Duration;

use diesel::ConnectionError;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use secrecy::SecretString;
use thiserror::Error;
use tokio_postgres::Config;

use crate::sql::{TextRow, sql};
use crate::sqlstate::{self, bad_connection};
use crate::tls::{DatabaseTls, parse_url};

/// The role that has the privileges of tenants. It owns no table, so row-level security applies to it.
pub(crate) const TENANT_ROLE: &str = "recado_tenant";

/// `app.account_id` of a tenant connection outside a transaction. No policy can parse it, so a statement there fails.
/// An empty setting would return no rows, which looks like a valid result.
pub(crate) const NO_ACCOUNT: &str = "none";

/// Settings of every tenant connection.
pub(crate) const CONSTANT_SETTINGS: [(&str, &str); 2] = [
    // Starting parallel workers takes longer than the queries, and they take CPU time from other sessions.
    ("max_parallel_workers_per_gather", "0"),
    // By default a statement has one generic plan for all accounts, keys and pages. A custom plan for an account
    // without statistics would scan all of its rows, because the planner expects a single row.
    ("plan_cache_mode", "force_generic_plan"),
];

/// Settings of the role in addition to [`CONSTANT_SETTINGS`], as `ALTER ROLE` stores them. Pools with other timeouts
/// set them for each transaction.
const ROLE_SETTINGS: [(&str, &str); 5] = [
    ("statement_timeout", "10s"),
    ("lock_timeout", "2s"),
    ("idle_in_transaction_session_timeout", "10s"),
    ("client_connection_check_interval", "1s"),
    ("jit", "off"),
];

/// The limit of a check at the start. The driver's own timeout ends with the TCP connection, so a server that accepts
/// it and never responds would hold the start forever.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a change of a role is tried: another migration of the cluster may change the same role.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Error)]
pub enum TenantRoleError {
    /// Row-level security would not bind the role.
    #[error("the role \"{role}\" {problem}")]
    Refused { role: String, problem: String },
    #[error("the URL is not a PostgreSQL URL with a user")]
    Url,
    #[error("the database cannot be reached")]
    Connect(#[source] ConnectionError),
    #[error("the role \"{role}\" cannot be changed, so a superuser has to run: {statement}")]
    Change {
        role: String,
        statement: String,
        #[source]
        cause: diesel::result::Error,
    },
}

/// Returns a query for the reason why tenant pools must not use a role, as `text`. Empty: there is none. Every role
/// that it could assume with `SET ROLE` counts.
pub(crate) fn problem_query(role: &str) -> String {
    format!(include_str!("problem.sql"), tenant_role = TENANT_ROLE, role = role,)
}

/// Checks the role of `TENANT_DATABASE_URL` on a connection of its own.
pub async fn check_tenant_role(tenant_url: &SecretString, tls: &DatabaseTls) -> Result<(), TenantRoleError> {
    let config = parse(tenant_url)?;
    let role = user(&config)?;
    let checked = tokio::time::timeout(CHECK_TIMEOUT, async {
        let connected = sqlstate::connect_in_transaction(&config, tls).await;
        let mut conn = connected.map_err(TenantRoleError::Connect)?;
        refuse_if(&mut conn, role, "session_user").await
    });
    checked
        .await
        .unwrap_or_else(|elapsed| Err(TenantRoleError::Connect(bad_connection(elapsed))))
}

/// Makes the tenant role's settings the defaults of its sessions. With `TENANT_DATABASE_URL` also makes its role: a
/// login with the privileges of `recado_tenant` and, unless the role can already log in, with the password of the URL.
///
/// Without `TENANT_DATABASE_URL` a missing right is only logged, because no one logs in as the tenant role then.
pub async fn prepare_tenant_role(
    url: &SecretString,
    tenant_url: Option<&SecretString>,
    tls: &DatabaseTls,
) -> Result<(), TenantRoleError> {
    let owner = parse(url)?;
    let mut conn = sqlstate::connect(&owner, tls).await.map_err(TenantRoleError::Connect)?;
    let Some(tenant_url) = tenant_url else {
        if let Err(error) = set_defaults(&mut conn, TENANT_ROLE).await {
            tracing::warn!(%error, "the settings of the tenant role were left as they are");
        }
        return Ok(());
    };
    let config = parse(tenant_url)?;
    let role = user(&config)?;
    ensure_role(&mut conn, &role).await?;
    refuse_if(&mut conn, role.clone(), &literal(&role)).await?;
    set_defaults(&mut conn, &role).await?;
    let Some(password) = config.get_password() else {
        return Ok(());
    };
    if sqlstate::connect(&config, tls).await.is_ok() {
        return Ok(());
    }
    // The server gets only the hash, so that no log of statements contains the password.
    let hash = postgres_protocol::password::scram_sha_256(password);
    let statement = format!("ALTER ROLE {} LOGIN PASSWORD", identifier(&role));
    change_as(
        &mut conn,
        &role,
        &format!("{statement} {}", literal(&hash)),
        &format!("{statement} '...'"),
    )
    .await
}

async fn refuse_if(conn: &mut AsyncPgConnection, role: String, expression: &str) -> Result<(), TenantRoleError> {
    let problem = text(conn, problem_query(expression))
        .await
        .map_err(TenantRoleError::Connect)?;
    match problem.is_empty() {
        true => Ok(()),
        false => Err(TenantRoleError::Refused { role, problem }),
    }
}

/// Creates a role other than `recado_tenant`, which the migrations create, and grants it the privileges.
async fn ensure_role(conn: &mut AsyncPgConnection, role: &str) -> Result<(), TenantRoleError> {
    if role == TENANT_ROLE {
        return Ok(());
    }
    let name = identifier(role);
    let query = format!(
        "SELECT CASE WHEN r.rolname IS NULL THEN 'missing' WHEN pg_has_role(r.oid, t.oid, 'USAGE') THEN 'member'
           ELSE 'no member' END AS text
         FROM pg_roles t LEFT JOIN pg_roles r ON r.rolname = {} WHERE t.rolname = '{TENANT_ROLE}'",
        literal(role)
    );
    match text(conn, query).await.map_err(TenantRoleError::Connect)?.as_str() {
        "missing" => {
            let attributes = "LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS NOREPLICATION";
            change(
                conn,
                role,
                &format!("CREATE ROLE {name} {attributes} IN ROLE {TENANT_ROLE}"),
            )
            .await
        }
        "member" => Ok(()),
        _ => change(conn, role, &format!("GRANT {TENANT_ROLE} TO {name}")).await,
    }
}

/// Stores the settings that the role does not have yet.
async fn set_defaults(conn: &mut AsyncPgConnection, role: &str) -> Result<(), TenantRoleError> {
    let query = format!(
        "SELECT coalesce(string_agg(c.setting, E'\\n'), '') AS text
         FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) AS c (setting)
         WHERE r.rolname = {} AND s.setdatabase = 0",
        literal(role)
    );
    let stored = text(conn, query).await.map_err(TenantRoleError::Connect)?;
    let is_stored = |name: &str, value: &str| stored.lines().any(|line| line == format!("{name}={value}"));
    let alter = format!("ALTER ROLE {} SET", identifier(role));
    for (name, value) in CONSTANT_SETTINGS.iter().chain(&ROLE_SETTINGS) {
        if !is_stored(name, value) {
            change(conn, role, &format!("{alter} {name} = '{value}'")).await?;
        }
    }
    // Only a superuser may store a setting that PostgreSQL does not know. Without it, a statement outside of a
    // transaction finds no rows instead of failing.
    let account = format!("{alter} app.account_id = '{NO_ACCOUNT}'");
    if !is_stored("app.account_id", NO_ACCOUNT)
        && let Err(error) = conn.batch_execute(&account).await
    {
        tracing::info!(%error, "the tenant role has no default account, which only a superuser can store");
    }
    Ok(())
}

async fn change(conn: &mut AsyncPgConnection, role: &str, statement: &str) -> Result<(), TenantRoleError> {
    change_as(conn, role, statement, statement).await
}

/// `shown` is the statement without secrets.
async fn change_as(
    conn: &mut AsyncPgConnection,
    role: &str,
    statement: &str,
    shown: &str,
) -> Result<(), TenantRoleError> {
    let mut tries_left = TRIES;
    loop {
        tries_left -= 1;
        match conn.batch_execute(statement).await {
            Ok(()) => return Ok(()),
            Err(_) if tries_left > 0 => tokio::time::sleep(PAUSE).await,
            Err(cause) => {
                return Err(TenantRoleError::Change {
                    role: role.to_owned(),
                    statement: shown.to_owned(),
                    cause,
                });
            }
        }
    }
}

fn parse(url: &SecretString) -> Result<Config, TenantRoleError> {
    parse_url(url).map_err(|error| TenantRoleError::Connect(bad_connection(error)))
}

fn user(config: &Config) -> Result<String, TenantRoleError> {
    config.get_user().map(str::to_owned).ok_or(TenantRoleError::Url)
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `standard_conforming_strings` is on, so a backslash has no meaning.
fn literal(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// Reads one text. Through a pooler this requires a transaction.
pub(crate) async fn text(conn: &mut AsyncPgConnection, query: String) -> Result<String, ConnectionError> {
    let row = sql(query).get_result::<TextRow>(conn).await;
    Ok(row.map_err(bad_connection)?.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_names_are_quoted() {
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
        assert_eq!(literal("o'brien"), "'o''brien'");
    }

    #[test]
    fn url_without_a_user_is_refused() {
        let config: Config = "postgres://127.0.0.1/recado".parse().unwrap();
        assert!(matches!(user(&config), Err(TenantRoleError::Url)));
    }
}
