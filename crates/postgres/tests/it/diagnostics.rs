//! What `recado doctor` reads from the database.

use recado_domain::shared::AccountId;
use recado_postgres::{PgDiagnostics, TenantRole, tenant_role};
use uuid::Uuid;

use crate::support::DbFixture;

#[tokio::test]
async fn migrated_database_protects_its_tenants() {
    let fixture = DbFixture::new().await;
    let expected = TenantRole {
        name: "recado_tenant".into(),
        superuser: false,
        bypasses_row_security: false,
        owned_tables: Vec::new(),
        inherited: Vec::new(),
    };
    assert_eq!(tenant_role(&fixture.tenants).await.unwrap(), expected);
    let database = PgDiagnostics::new(fixture.owner.clone());
    assert_eq!(database.unprotected_tables().await.unwrap(), Vec::<String>::new());
    fixture
        .sql("ALTER TABLE tags DISABLE ROW LEVEL SECURITY; ALTER TABLE tags OWNER TO recado_tenant")
        .await;
    assert_eq!(database.unprotected_tables().await.unwrap(), ["tags"]);
    assert_eq!(tenant_role(&fixture.tenants).await.unwrap().owned_tables, ["tags"]);
}

#[tokio::test]
async fn recent_callback_is_found_by_any_of_its_traces() {
    let fixture = DbFixture::new().await;
    let (account, id) = (fixture.account, Uuid::now_v7());
    let database = PgDiagnostics::new(fixture.owner.clone());
    assert!(!database.has_recent_callback().await.unwrap());
    let traces = [
        (
            "whatsapp_callbacks",
            "INSERT INTO whatsapp_callbacks (id, body, due_at, received_at)
             SELECT gen_random_uuid(), '', now(), $time"
                .to_owned(),
        ),
        (
            "message_rollups",
            format!(
                "INSERT INTO message_rollups (account_id, bucket_minutes, bucket_start, received)
                 SELECT '{account}', 15, $time, 1"
            ),
        ),
        (
            "campaigns",
            format!(
                "INSERT INTO campaigns (account_id, id, name, status) VALUES ('{account}', '{id}', 'c', 'sent');
                 INSERT INTO campaign_counter_slots (account_id, campaign_id, total, pending, delivered, created_at)
                 SELECT '{account}', '{id}', 1, 0, 1, $time"
            ),
        ),
    ];
    for (table, insert) in traces {
        for (age, found) in [("25 hours", false), ("1 hour", true)] {
            let insert = insert.replace("$time", &format!("now() - interval '{age}'"));
            fixture.sql(&insert).await;
            assert_eq!(database.has_recent_callback().await.unwrap(), found, "{table}: {age}");
            fixture.sql(&format!("TRUNCATE {table} CASCADE")).await;
        }
    }
}

#[tokio::test]
async fn account_status_is_none_for_an_unknown_account() {
    let fixture = DbFixture::new().await;
    let database = PgDiagnostics::new(fixture.owner.clone());
    let status = database.account_status(fixture.account).await.unwrap();
    assert_eq!(status.as_deref(), Some("active"));
    assert_eq!(database.account_status(AccountId(Uuid::now_v7())).await.unwrap(), None);
}
