//! The login of tenants: where `SET ROLE` leads, which roles are refused, and what `recado migrate` makes.

use std::time::Duration;

use recado_domain::campaigns::CampaignStore as _;
use recado_domain::shared::StoreError;
use recado_postgres::{
    DatabaseTls, PgCampaigns, PoolConfig, TenantPool, TenantRoleError, check_tenant_role, prepare_tenant_role,
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio_postgres::{Client, NoTls};

use crate::error_codes::ERROR_CODES;
use crate::support::{DbFixture, id};

async fn login(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A role of the whole cluster, with a name that no other test uses.
fn unique_role() -> String {
    format!("recado_test_{}_{}", std::process::id(), id().simple())
}

/// The tenant URL with another user and password.
fn as_user(fixture: &DbFixture, user: &str, password: &str) -> String {
    let url = fixture.db.tenant_url().expose_secret().to_owned();
    let (_, server) = url.split_once('@').unwrap();
    format!("postgres://{user}:{password}@{server}")
}

async fn drop_role(fixture: &DbFixture, role: &str) {
    fixture
        .sql(&format!("DROP OWNED BY \"{role}\" CASCADE; DROP ROLE \"{role}\""))
        .await;
}

#[tokio::test]
async fn set_role_of_a_tenant_login_leads_nowhere() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    for account in [fixture.account, other_account] {
        let contact = id();
        fixture
            .sql(&format!(
                "INSERT INTO contacts (account_id, id, name) VALUES ('{account}', '{contact}', 'c')"
            ))
            .await;
    }
    let owner = fixture.text("SELECT current_user::text").await.unwrap();
    let client = login(fixture.db.tenant_url().expose_secret()).await.unwrap();
    let visible = async || -> i64 {
        let row = client.query_one("SELECT count(*) FROM contacts", &[]).await;
        row.unwrap().get(0)
    };
    let escapes = [
        "RESET ROLE",
        "SET ROLE NONE",
        "RESET SESSION AUTHORIZATION",
        "RESET ALL",
        "DISCARD ALL",
    ];
    for escape in escapes {
        client.batch_execute(escape).await.unwrap();
        let begin = format!("BEGIN; SET LOCAL app.account_id = '{}'", fixture.account);
        client.batch_execute(&begin).await.unwrap();
        if escape != "DISCARD ALL" {
            client.batch_execute(escape).await.unwrap();
            // RESET ALL also removed the account.
            client
                .batch_execute(&format!("SET LOCAL app.account_id = '{}'", fixture.account))
                .await
                .unwrap();
        }
        assert_eq!(visible().await, 1, "{escape}");
        let row = client
            .query_one("SELECT current_user::text, session_user::text", &[])
            .await
            .unwrap();
        assert_eq!((row.get(0), row.get(1)), ("recado_tenant", "recado_tenant"), "{escape}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    for forbidden in [
        format!("SET ROLE \"{owner}\""),
        format!("SET SESSION AUTHORIZATION \"{owner}\""),
        "ALTER TABLE contacts DISABLE ROW LEVEL SECURITY".to_owned(),
        "DROP POLICY tenant_isolation ON contacts".to_owned(),
        "ALTER ROLE recado_tenant BYPASSRLS".to_owned(),
        "SELECT count(*) FROM api_key_hashes".to_owned(),
    ] {
        let refused = client.batch_execute(&forbidden).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "42501", "{forbidden}: {refused:?}");
    }
    // With row security off, a statement fails instead of reading everything.
    client.batch_execute("SET row_security = off").await.unwrap();
    let refused = client
        .query_one("SELECT count(*) FROM contacts", &[])
        .await
        .unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "42501");
}

#[tokio::test]
async fn tenant_login_has_its_settings_without_startup_options() {
    let fixture = DbFixture::new().await;
    let client = login(fixture.db.tenant_url().expose_secret()).await.unwrap();
    for (setting, value) in [
        ("statement_timeout", "10s"),
        ("lock_timeout", "2s"),
        ("idle_in_transaction_session_timeout", "10s"),
        ("client_connection_check_interval", "1s"),
        ("jit", "off"),
        ("max_parallel_workers_per_gather", "0"),
        ("plan_cache_mode", "force_generic_plan"),
        ("app.account_id", "none"),
    ] {
        let row = client.query_one(&format!("SHOW {setting}"), &[]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), value, "{setting}");
    }
}

async fn assert_refused(fixture: &DbFixture, url: &str, reason: &str) {
    let url = SecretString::from(url.to_owned());
    match check_tenant_role(&url, &DatabaseTls::default()).await {
        Err(error @ TenantRoleError::Refused { .. }) => {
            assert!(error.to_string().contains(reason), "{error}, not {reason}");
        }
        other => panic!("{reason}: {other:?}"),
    }
    let config = PoolConfig {
        size: 1,
        ..fixture.db.config().tenant_login(Some(url))
    };
    let campaigns = PgCampaigns::new(TenantPool::new(&config).unwrap(), ERROR_CODES);
    let found = campaigns.find(fixture.account, id().into()).await;
    let Err(StoreError::Unavailable(error)) = found else {
        panic!("{reason}: {found:?}")
    };
    assert!(error.to_string().contains(reason), "{error}, not {reason}");
}

#[tokio::test]
async fn role_that_row_security_does_not_bind_is_refused() {
    let fixture = DbFixture::new().await;
    let owner_url = fixture.db.url();
    assert_refused(&fixture, owner_url.expose_secret(), "is a superuser").await;
    let owner = fixture.text("SELECT current_user::text").await.unwrap();
    let cases = [
        ("BYPASSRLS", String::new(), "bypasses row-level security"),
        ("", "ALTER TABLE tags OWNER TO {role}".to_owned(), "owns tables"),
        ("", format!("GRANT \"{owner}\" TO {{role}}"), "owns tables"),
        ("", "GRANT pg_execute_server_program TO {role}".to_owned(), "can assume"),
        ("CREATEROLE", String::new(), "can assume"),
        (
            "",
            "REVOKE recado_tenant FROM {role}".to_owned(),
            "does not have the privileges",
        ),
    ];
    for (attribute, statement, reason) in cases {
        let role = unique_role();
        fixture
            .sql(&format!(
                "CREATE ROLE \"{role}\" LOGIN PASSWORD 'secret' {attribute} IN ROLE recado_tenant; {}",
                statement.replace("{role}", &format!("\"{role}\""))
            ))
            .await;
        assert_refused(&fixture, &as_user(&fixture, &role, "secret"), reason).await;
        drop_role(&fixture, &role).await;
    }
    let sound = check_tenant_role(&fixture.db.tenant_url(), &DatabaseTls::default()).await;
    assert!(sound.is_ok(), "{sound:?}");
}

#[tokio::test]
async fn migrate_makes_the_login_and_keeps_a_working_password() {
    let fixture = DbFixture::new().await;
    let role = unique_role();
    let (owner_url, first) = (fixture.db.url(), as_user(&fixture, &role, "first"));
    let prepare =
        async |url: &str| prepare_tenant_role(&owner_url, Some(&url.to_owned().into()), &DatabaseTls::default()).await;
    prepare(&first).await.unwrap();
    check_tenant_role(&first.clone().into(), &DatabaseTls::default())
        .await
        .unwrap();
    let stored = format!("SELECT rolpassword FROM pg_authid WHERE rolname = '{role}'");
    let hash = fixture.text(&stored).await.unwrap();
    assert!(hash.starts_with("SCRAM-SHA-256$"), "{hash}");
    // A pooler may have a copy of the hash.
    prepare(&first).await.unwrap();
    assert_eq!(fixture.text(&stored).await.unwrap(), hash);
    let second = as_user(&fixture, &role, "second");
    prepare(&second).await.unwrap();
    check_tenant_role(&second.clone().into(), &DatabaseTls::default())
        .await
        .unwrap();
    assert!(login(&first).await.is_err());

    let config = PoolConfig {
        size: 1,
        ..fixture.db.config().tenant_login(Some(second.into()))
    };
    let campaigns = PgCampaigns::new(TenantPool::new(&config).unwrap(), ERROR_CODES);
    let campaign = fixture.stored_draft().await;
    assert!(campaigns.find(fixture.account, campaign.id).await.unwrap().is_some());
    drop(campaigns);
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop_role(&fixture, &role).await;
}

#[tokio::test]
async fn migrate_refuses_to_make_the_owner_a_tenant() {
    let fixture = DbFixture::new().await;
    let url = fixture.db.url();
    let refused = prepare_tenant_role(&url, Some(&url), &DatabaseTls::default()).await;
    assert!(matches!(refused, Err(TenantRoleError::Refused { .. })), "{refused:?}");
}
