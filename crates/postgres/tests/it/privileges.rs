//! The whole matrix of privileges and policies, from the catalogue, and the policy of every insert.

use std::fmt::Write as _;

use secrecy::ExposeSecret as _;
use tokio_postgres::{Client, NoTls};

use crate::support::DbFixture;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/privileges.golden");

/// One line for each relation and role but the owner. A privilege on columns names them.
const PRIVILEGES: &str = "WITH roles AS (
       SELECT oid, rolname::text AS role FROM pg_roles WHERE rolname = 'recado_tenant'
       UNION ALL SELECT 0, 'PUBLIC'),
     relations AS (
       SELECT c.oid, c.relname::text AS relation, c.relkind, c.relacl FROM pg_class c
       WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
         AND NOT c.relispartition AND c.relname <> '__diesel_schema_migrations'),
     granted AS (
       SELECT r.oid AS relation, a.grantee, a.privilege_type AS privilege, NULL::text AS columns
       FROM relations r, aclexplode(r.relacl) a
       UNION ALL
       SELECT r.oid, a.grantee, a.privilege_type, string_agg(t.attname, ', ' ORDER BY t.attname)
       FROM relations r JOIN pg_attribute t ON t.attrelid = r.oid AND NOT t.attisdropped, aclexplode(t.attacl) a
       GROUP BY r.oid, a.grantee, a.privilege_type)
     SELECT format('%s %s: %s', o.role, r.relation, coalesce(string_agg(
         g.privilege || coalesce(' (' || g.columns || ')', ''), ', '
         ORDER BY array_position(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'], g.privilege), g.privilege, g.columns),
       '-'))
     FROM roles o CROSS JOIN relations r LEFT JOIN granted g ON g.relation = r.oid AND g.grantee = o.oid
     WHERE o.role <> 'PUBLIC' OR g.privilege IS NOT NULL
     GROUP BY o.role, r.relation ORDER BY o.role <> 'recado_tenant', r.relation";

const POLICIES: &str =
    "SELECT format('%s: %s %s for %s to %s using %s with check %s', tablename, policyname, permissive,
       cmd, array_to_string(roles, ', '), coalesce(qual, '-'), coalesce(with_check, '-'))
     FROM pg_policies WHERE schemaname = 'public' ORDER BY tablename, policyname";

const FUNCTIONS: &str = "SELECT format('%s: %s, execute by %s', p.oid::regprocedure,
       CASE WHEN p.prosecdef THEN 'security definer' ELSE 'security invoker' END,
       coalesce((SELECT string_agg(coalesce(r.rolname::text, 'PUBLIC'), ', ' ORDER BY r.rolname)
         FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a LEFT JOIN pg_roles r ON r.oid = a.grantee
         WHERE a.grantee <> p.proowner), '-'))
     FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
       AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e') ORDER BY 1";

/// What the tenant role is, and what it can do beside relations and functions.
const ROLE: &str = "SELECT format('recado_tenant: superuser %s, create database %s, create role %s, bypass RLS %s,
 replication %s, schema public create %s, temporary tables %s, member of %s', r.rolsuper, r.rolcreatedb, r.rolcreaterole,
       r.rolbypassrls, r.rolreplication, has_schema_privilege(r.oid, 'public', 'CREATE'),
       has_database_privilege(r.oid, current_database(), 'TEMPORARY'),
       coalesce((SELECT string_agg(g.rolname::text, ', ') FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
         WHERE m.member = r.oid), '-'))
     FROM pg_roles r WHERE r.rolname = 'recado_tenant'";

async fn lines(client: &Client, query: &str) -> Vec<String> {
    let rows = client.query(query, &[]).await.unwrap();
    rows.into_iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn privileges_match_privileges_golden() {
    let fixture = DbFixture::with_production_counter_slots().await;
    let mut matrix = String::new();
    for (title, query) in [
        ("role", ROLE),
        ("privileges", PRIVILEGES),
        ("policies", POLICIES),
        ("functions", FUNCTIONS),
    ] {
        writeln!(matrix, "# {title}").unwrap();
        for line in lines(&fixture.client, query).await {
            writeln!(matrix, "{}", line.replace('\n', "")).unwrap();
        }
        matrix.push('\n');
    }
    if std::env::var("RECADO_WRITE_GOLDEN").is_ok() {
        std::fs::write(GOLDEN, &matrix).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    let changed: Vec<&str> = matrix
        .lines()
        .filter(|line| !golden.lines().any(|known| known == *line))
        .collect();
    let gone: Vec<&str> = golden
        .lines()
        .filter(|line| !matrix.lines().any(|known| known == *line))
        .collect();
    assert_eq!(
        matrix, golden,
        "privileges differ from privileges.golden. New: {changed:#?}. Gone: {gone:#?}. If that is intended, run this \
         test with RECADO_WRITE_GOLDEN=1 and review the diff"
    );
}

/// A table that has a row for each account.
#[derive(Debug)]
struct AccountTable {
    name: String,
    /// Whether the tenant role may insert into it.
    may_insert: bool,
    /// The column that partitions the table, with a value. Without it no partition would be found.
    partition_key: Option<(String, String)>,
}

async fn account_tables(client: &Client) -> Vec<AccountTable> {
    let query = "SELECT c.relname::text, has_table_privilege('recado_tenant', c.oid, 'INSERT'), k.attname::text,
           CASE WHEN k.atttypid = 'uuid'::regtype THEN quote_literal(lpad('1', 32, '0')) ELSE 'now()' END
         FROM pg_class c
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'account_id' AND NOT a.attisdropped
         LEFT JOIN pg_partitioned_table p ON p.partrelid = c.oid
         LEFT JOIN pg_attribute k ON k.attrelid = c.oid AND k.attnum = p.partattrs[0]
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
         ORDER BY 1";
    let rows = client.query(query, &[]).await.unwrap();
    let tables: Vec<AccountTable> = rows
        .iter()
        .map(|row| AccountTable {
            name: row.get(0),
            may_insert: row.get(1),
            partition_key: row.get::<_, Option<String>>(2).map(|column| (column, row.get(3))),
        })
        .collect();
    assert!(
        tables.len() > 60 && tables.iter().filter(|table| table.may_insert).count() > 50,
        "{tables:?}"
    );
    tables
}

#[tokio::test]
async fn insert_for_another_account_is_refused_in_every_table() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    let tenant_url = fixture.db.tenant_url();
    let (client, connection) = tokio_postgres::connect(tenant_url.expose_secret(), NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let begin = format!("BEGIN; SET LOCAL app.account_id = '{other_account}'");
    for AccountTable {
        name: table,
        may_insert,
        partition_key,
    } in account_tables(&fixture.client).await
    {
        let (column, value) = partition_key.map_or_else(Default::default, |(column, value)| {
            (format!(", {column}"), format!(", {value}"))
        });
        // The policy is checked before constraints, so the account and the partition suffice.
        for (account, is_own) in [(fixture.account, false), (other_account, true)] {
            client.batch_execute(&begin).await.unwrap();
            let inserted = client
                .batch_execute(&format!(
                    "INSERT INTO {table} (account_id{column}) VALUES ('{account}'{value})"
                ))
                .await;
            client.batch_execute("ROLLBACK").await.unwrap();
            let refusal = inserted.err().map(|error| {
                let error = error.as_db_error().unwrap().clone();
                (error.code().code().to_owned(), error.message().to_owned())
            });
            let code = refusal.as_ref().map(|(code, _)| code.as_str());
            match (may_insert, is_own) {
                (false, _) => assert_eq!(code, Some("42501"), "{table}: {refusal:?}"),
                (true, false) => {
                    assert_eq!(code, Some("42501"), "{table}: {refusal:?}");
                    let (_, message) = refusal.unwrap();
                    assert!(message.contains("row-level security policy"), "{table}: {message}");
                }
                (true, true) => assert_ne!(code, Some("42501"), "{table}: {refusal:?}"),
            }
        }
    }
}

#[tokio::test]
async fn tenant_cannot_write_what_only_the_owner_writes() {
    let fixture = DbFixture::new().await;
    let tenant_url = fixture.db.tenant_url();
    let (client, connection) = tokio_postgres::connect(tenant_url.expose_secret(), NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    for table in [
        "account_users",
        "api_keys",
        "audit_counts",
        "audit_logs",
        "link_rollups",
        "team_invites",
    ] {
        for statement in [
            format!("INSERT INTO {table} (account_id) VALUES ('{}')", fixture.account),
            format!("UPDATE {table} SET account_id = account_id"),
            format!("DELETE FROM {table}"),
        ] {
            let begin = format!("BEGIN; SET LOCAL app.account_id = '{}'", fixture.account);
            client.batch_execute(&begin).await.unwrap();
            let refused = client.batch_execute(&statement).await.unwrap_err();
            assert_eq!(refused.code().unwrap().code(), "42501", "{statement}");
            client.batch_execute("ROLLBACK").await.unwrap();
        }
    }
}
