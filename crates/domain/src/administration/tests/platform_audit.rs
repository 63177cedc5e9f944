//! Tests of the platform audit log: entries of support mode and of ended sessions, and the differences of an update.

use serde_json::json;

use super::*;

#[tokio::test]
async fn support_stop_is_recorded_in_the_platform_audit_log() {
    let mut store = MockSupportStore::new();
    store.expect_stop().times(1).returning(|user, account, entry| {
        assert_eq!((user, account), (admin(false).user_id, ACCOUNT));
        assert_eq!(described(&entry), "delete support_mode, account true");
        assert_eq!((entry.user_id, entry.email.as_str()), (user, "root@example.com"));
        assert_eq!(
            (entry.ip_address.as_deref(), entry.request_id.as_deref()),
            (Some("10.0.0.1"), Some("r1"))
        );
        Ok(RowOutcome::Missing)
    });
    Support::new(Arc::new(store), clock())
        .stop(&admin(true), ACCOUNT)
        .await
        .unwrap();
}

#[tokio::test]
async fn ended_sessions_are_recorded_under_the_user() {
    let user = UserId(Uuid::from_u128(4));
    for found in [Some(NOW), None] {
        let mut store = MockAdministrationStore::new();
        store.expect_end_sessions().times(1).returning(move |ended, at, entry| {
            assert_eq!((ended, at), (user, NOW));
            assert_eq!(described(&entry), "update user_sessions, account false");
            assert_eq!((entry.entity_id, entry.account_id), (user.0, None));
            Ok(found)
        });
        let ended = administration(store, MockBillingAccountStore::new())
            .end_sessions(&admin(false), user)
            .await;
        match found {
            Some(at) => assert_eq!(ended.unwrap(), at),
            None => assert!(matches!(ended, Err(AdministrationError::NotFound))),
        }
    }
}

#[test]
fn differences_name_changed_fields_with_both_values() {
    let change = AccountChange {
        name: Some("Loja".into()),
        slug: Some("nova".into()),
        logo_url: Some(None),
        plan: Some("growth".into()),
        status: Some(AccountStatus::Suspended),
    };
    let expected = json!({
        "slug": { "from": "loja", "to": "nova" },
        "plan": { "from": "free", "to": "growth" },
        "status": { "from": "active", "to": "suspended" },
    });
    assert_eq!(change.differences(&account()), expected);
    assert_eq!(AccountChange::default().differences(&account()), json!({}));
}

#[test]
fn entry_merges_its_changes() {
    let entry = admin(false)
        .platform_entry(AuditAction::Update, PlatformEntity::Account, ACCOUNT)
        .with_changes(json!({ "owner_invited": true }))
        .with_changes(json!({ "name": { "from": "a", "to": "b" } }));
    let expected = json!({ "owner_invited": true, "name": { "from": "a", "to": "b" } });
    assert_eq!(entry.changes, Some(expected));
    assert!(!format!("{entry:?}").contains("root@example.com"));
}

#[tokio::test]
async fn platform_audit_page_passes_the_filter_to_the_store() {
    let filter = PlatformAuditFilter {
        account_id: Some(ACCOUNT),
        since: Some(NOW),
        ..PlatformAuditFilter::default()
    };
    let (mut store, expected) = (MockPlatformAuditStore::new(), filter.clone());
    store
        .expect_page()
        .withf(move |filter, page| *filter == expected && page.limit() == 50)
        .times(1)
        .returning(|_, page| Ok(Page::new(page, vec![], 0)));
    let page = PageQuery::new(None, None, 50, 100);
    let found = PlatformAudit::new(Arc::new(store)).page(&filter, page).await.unwrap();
    assert_eq!(found.total, 0);
}
