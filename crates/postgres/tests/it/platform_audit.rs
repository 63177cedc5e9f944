//! The platform audit log: each entry commits or rolls back with its change, survives the account, and is append-only.

use recado_domain::accounts::AccountStatus;
use recado_domain::administration::{
    AccountChange, AccountUpdate, AdministrationStore, DeletionStore, PlatformAuditFilter, PlatformAuditLog,
    PlatformAuditStore, PlatformEntity, PlatformEntry, SupportStore,
};
use recado_domain::billing::{BillingAccountStore, Change, ChangeOutcome};
use recado_domain::shared::{AccountId, AuditAction, Page, PageQuery, StoreError, UserId};
use recado_postgres::{PgAdministration, PgDeletions, PgPlatformAudit, PgSubscriptions, PgSupport};
use serde_json::json;
use time::{Duration, OffsetDateTime};

use crate::billing;
use crate::support::{DbFixture, LEASE, NOW, account, event, id, platform_entry};

fn administration(fixture: &DbFixture) -> PgAdministration {
    PgAdministration::new(fixture.owner.clone())
}

async fn page(fixture: &DbFixture, filter: &PlatformAuditFilter, page: i64, limit: i64) -> Page<PlatformAuditLog> {
    let query = PageQuery::new(Some(page), Some(limit), 50, 100);
    let store = PgPlatformAudit::new(fixture.owner.clone());
    store.page(filter, query).await.unwrap()
}

async fn entries(fixture: &DbFixture) -> Vec<PlatformAuditLog> {
    page(fixture, &PlatformAuditFilter::default(), 1, 100).await.data
}

async fn count(fixture: &DbFixture) -> i64 {
    fixture.number("SELECT count(*) FROM platform_audit").await
}

#[tokio::test]
async fn account_changes_insert_one_entry_each() {
    let fixture = DbFixture::new().await;
    let (store, entry) = (administration(&fixture), platform_entry(fixture.account));
    let created = store.create(&account("padaria"), false, None, entry.clone()).await;
    assert_eq!(created.unwrap().0.slug, "padaria");
    let change = AccountChange {
        name: Some("Nova".into()),
        plan: Some("free".into()),
        ..AccountChange::default()
    };
    let updated = store.update(fixture.account, &change, None, platform_entry(fixture.account));
    assert!(matches!(updated.await.unwrap(), AccountUpdate::Done(..)));
    let (status, events) = (AccountStatus::Suspended, [event(fixture.account.0)]);
    let entry_of_status = platform_entry(fixture.account);
    let suspended = store.set_status(fixture.account, status, &events, entry_of_status);
    assert!(suspended.await.unwrap().is_done());
    let planned = store.set_plan(fixture.account, "growth", &events, platform_entry(fixture.account));
    assert!(planned.await.unwrap().is_done());
    let found = entries(&fixture).await;
    assert_eq!(found.len(), 4);
    let changes: Vec<_> = found.iter().rev().map(|entry| entry.changes.clone()).collect();
    let expected = [
        Some(json!({ "slug": "padaria" })),
        Some(json!({ "name": { "from": "Loja da Ana", "to": "Nova" } })),
        None,
        None,
    ];
    assert_eq!(changes, expected);
    let first = found.last().unwrap();
    assert_eq!((first.id, first.user_id), (entry.id, entry.user_id));
    assert_eq!(
        (first.email.as_str(), first.action.as_str(), first.entity_type.as_str()),
        ("root@example.com", "update", "account")
    );
    assert_eq!(
        (first.ip_address.as_deref(), first.request_id.as_deref()),
        (Some("203.0.113.7"), Some("r1"))
    );
}

#[tokio::test]
async fn change_that_does_not_happen_inserts_no_entry() {
    let fixture = DbFixture::new().await;
    let (store, unknown) = (administration(&fixture), AccountId(id()));
    let taken = store
        .create(&account("loja"), true, None, platform_entry(unknown))
        .await;
    assert!(
        matches!(taken, Err(StoreError::Duplicate { field: "slug" })),
        "{taken:?}"
    );
    let change = AccountChange::default();
    let missing = store.update(unknown, &change, None, platform_entry(unknown)).await;
    assert_eq!(missing.unwrap(), AccountUpdate::Missing);
    let status = AccountStatus::Suspended;
    let missing = store.set_status(unknown, status, &[], platform_entry(unknown)).await;
    assert!(!missing.unwrap().is_done());
    assert!(
        !store
            .set_plan(unknown, "growth", &[], platform_entry(unknown))
            .await
            .unwrap()
            .is_done()
    );
    let ended = store.end_sessions(UserId(id()), NOW, platform_entry(unknown)).await;
    assert_eq!(ended.unwrap(), None);
    let deletions = PgDeletions::new(fixture.owner.clone());
    assert!(
        !deletions
            .begin(unknown, LEASE, NOW, platform_entry(unknown))
            .await
            .unwrap()
            .is_done()
    );
    assert_eq!(count(&fixture).await, 0);
}

/// The entry cannot be inserted because its id exists. Everything else of the transaction is rolled back.
#[tokio::test]
async fn change_rolls_back_with_its_entry() {
    let fixture = DbFixture::new().await;
    let (store, entry, here) = (
        administration(&fixture),
        platform_entry(fixture.account),
        fixture.account,
    );
    let deletions = PgDeletions::new(fixture.owner.clone());
    let support = PgSupport::new(fixture.owner.clone());
    let change = AccountChange {
        name: Some("Nova".into()),
        ..AccountChange::default()
    };
    store.update(here, &change, None, entry.clone()).await.unwrap();
    let state = async || {
        let query = "SELECT (SELECT string_agg(a::text, ',' ORDER BY a.id) FROM accounts a)
             || (SELECT string_agg(m::text, ',' ORDER BY m.user_id) FROM account_users m)
             || (SELECT string_agg(u::text, ',' ORDER BY u.id) FROM users u)
             || (SELECT count(*) FROM outbox_events) || (SELECT count(*) FROM platform_audit)";
        fixture.text(query).await.unwrap()
    };
    let before = state().await;
    let (events, end) = ([event(here.0)], OffsetDateTime::now_utc() + Duration::HOUR);
    let root = crate::administration::admin(fixture.user);
    let status = AccountStatus::Suspended;
    assert!(
        store
            .create(&account("padaria"), false, None, entry.clone())
            .await
            .is_err()
    );
    assert!(store.update(here, &change, None, entry.clone()).await.is_err());
    assert!(store.set_status(here, status, &events, entry.clone()).await.is_err());
    assert!(store.set_plan(here, "growth", &events, entry.clone()).await.is_err());
    assert!(store.end_sessions(fixture.user, NOW, entry.clone()).await.is_err());
    assert!(deletions.begin(here, LEASE, NOW, entry.clone()).await.is_err());
    let started = support.start(&root, here, None, end, &events, entry.clone()).await;
    assert!(started.is_err());
    assert!(support.stop(fixture.user, here, entry).await.is_err());
    assert_eq!(state().await, before);
}

#[tokio::test]
async fn subscription_change_commits_with_its_entry() {
    let fixture = DbFixture::new().await;
    let (store, here) = (administration(&fixture), fixture.account);
    let mut row = billing::subscribed(&fixture, here, "sub_1").await;
    row.plan = "scale".into();
    let change = Change {
        account_plan: Some("scale".into()),
        withdraws_grant: true,
        events: vec![event(here.0)],
        ..Change::of(row.clone())
    };
    let written = store.change_subscription(&change, platform_entry(here)).await;
    assert_eq!(written.unwrap(), ChangeOutcome::Done);
    assert_eq!(count(&fixture).await, 1);
    let stale = store.change_subscription(&change, platform_entry(here)).await;
    assert_eq!(stale.unwrap(), ChangeOutcome::Stale);
    assert_eq!(count(&fixture).await, 1);
    let overview = PgSubscriptions::new(fixture.tenants.clone(), fixture.owner.clone())
        .overview(here)
        .await
        .unwrap();
    let stored = overview.subscription.unwrap();
    assert_eq!((stored.plan.as_str(), stored.status), ("scale", row.status));
    assert_eq!(overview.account_plan, "scale");
    let other = fixture.another_account().await;
    let foreign = PgSubscriptions::new(fixture.tenants.clone(), fixture.owner.clone())
        .overview(other)
        .await
        .unwrap();
    assert_eq!(foreign.account_plan, "free");
}

#[tokio::test]
async fn entries_survive_their_account() {
    let fixture = DbFixture::new().await;
    let deletions = PgDeletions::new(fixture.owner.clone());
    let here = fixture.account;
    let entry = PlatformEntry {
        action: AuditAction::Delete,
        ..platform_entry(here)
    };
    assert!(deletions.begin(here, LEASE, NOW, entry).await.unwrap().is_done());
    while deletions.purge(here, LEASE).await.unwrap().has_more() {}
    deletions.end(here).await.unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM accounts").await, 0);
    let [found] = entries(&fixture).await.try_into().unwrap();
    assert_eq!((found.action.as_str(), found.account_id), ("delete", Some(here)));
    let kept = json!({ "name": "Loja da Ana", "slug": "loja", "plan": "free" });
    assert_eq!(found.changes, Some(kept));
}

#[tokio::test]
async fn entries_cannot_be_changed_deleted_or_read_by_tenants() {
    let fixture = DbFixture::new().await;
    let status = AccountStatus::Suspended;
    let (store, entry) = (administration(&fixture), platform_entry(fixture.account));
    assert!(
        store
            .set_status(fixture.account, status, &[], entry)
            .await
            .unwrap()
            .is_done()
    );
    // The owner of the database is a superuser in tests, whom no grant binds. So another role owns the table here.
    let (client, owner) = (fixture.db.client().await, format!("audit_owner_{}", id().simple()));
    client
        .batch_execute(&format!(
            "CREATE ROLE {owner}; ALTER TABLE platform_audit OWNER TO {owner}; SET ROLE {owner}"
        ))
        .await
        .unwrap();
    for statement in [
        "UPDATE platform_audit SET email = 'x'",
        "DELETE FROM platform_audit",
        "TRUNCATE platform_audit",
    ] {
        let error = client.batch_execute(statement).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501", "{statement}");
    }
    let insert = "INSERT INTO platform_audit SELECT gen_random_uuid(), user_id, email, action, entity_type
        FROM platform_audit";
    client
        .batch_execute(&format!(
            "{insert}; RESET ROLE; ALTER TABLE platform_audit OWNER TO CURRENT_USER; DROP ROLE {owner}"
        ))
        .await
        .unwrap();
    let granted = "SELECT coalesce(string_agg(p.role || ' ' || p.privilege, ', '), '') FROM (
           SELECT r.rolname AS role, privilege FROM pg_class c CROSS JOIN pg_roles r
           CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) privilege
           WHERE c.relname = 'platform_audit' AND r.rolname = 'recado_tenant'
             AND has_table_privilege(r.oid, c.oid, privilege)) p";
    assert_eq!(fixture.text(granted).await.as_deref(), Some(""));
    assert_eq!(count(&fixture).await, 2);
}

#[tokio::test]
async fn entries_are_filtered_and_paged_newest_first() {
    let fixture = DbFixture::new().await;
    let (first, second, admin) = (id(), id(), id());
    fixture
        .sql(&format!(
            "INSERT INTO platform_audit (id, user_id, email, action, entity_type, entity_id, account_id, created_at)
             SELECT md5('e' || i)::uuid, CASE WHEN i % 2 = 0 THEN '{admin}' ELSE '{first}' END::uuid, 'root@example.com',
               CASE WHEN i % 3 = 0 THEN 'create' ELSE 'update' END,
               CASE WHEN i % 5 = 0 THEN 'user_sessions' ELSE 'account' END, '{first}'::uuid,
               CASE WHEN i % 4 = 0 THEN '{first}' WHEN i % 4 = 1 THEN '{second}' END::uuid,
               timestamptz '2026-01-01' + i * interval '1 hour'
             FROM generate_series(1, 60) i"
        ))
        .await;
    let all = PlatformAuditFilter::default();
    let (one, two, beyond) = (
        page(&fixture, &all, 1, 40).await,
        page(&fixture, &all, 2, 40).await,
        page(&fixture, &all, 3, 40).await,
    );
    assert_eq!((one.data.len(), two.data.len(), beyond.data.len()), (40, 20, 0));
    assert_eq!((one.total, two.total, beyond.total), (60, 60, 60));
    let listed: Vec<_> = one.data.into_iter().chain(two.data).collect();
    assert!(listed.is_sorted_by(|newer, older| newer.created_at > older.created_at));
    let start = time::macros::datetime!(2026-01-01 00:00 UTC);
    let filter = |change: fn(&mut PlatformAuditFilter)| {
        let mut filter = PlatformAuditFilter::default();
        change(&mut filter);
        filter
    };
    let mut by_ids = filter(|filter| filter.action = Some("update".into()));
    (by_ids.account_id, by_ids.user_id) = (Some(first.into()), Some(admin.into()));
    let mut by_time = filter(|filter| filter.entity_type = Some("user_sessions".into()));
    (by_time.since, by_time.until) = (Some(start + Duration::hours(10)), Some(start + Duration::hours(20)));
    for (filter, expected) in [
        (filter(|filter| filter.action = Some("create".into())), 20),
        (filter(|filter| filter.entity_type = Some("user_sessions".into())), 12),
        (filter(|filter| filter.action = Some("export".into())), 0),
        (by_ids, 10),
        (by_time, 3),
    ] {
        let found = page(&fixture, &filter, 1, 100).await;
        assert_eq!(
            (found.total, found.data.len()),
            (expected, usize::try_from(expected).unwrap()),
            "{filter:?}"
        );
    }
    assert_eq!(PlatformEntity::UserSessions.as_str(), "user_sessions");
}
