//! Tests of the administration use cases with mocked ports.

mod deletion;
mod owners;
mod platform_audit;

use std::sync::{Arc, Mutex};

use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::*;
use crate::accounts::AccountStatus;
use crate::billing::{
    BillingType, Cents, ChangeOutcome, Cycle, GatewaySubscription, MockBillingAccountStore, MockPaymentGateway,
    Overview, PaymentGatewayError, Subscription, SubscriptionStatus, Usage,
};
use crate::mail::{MockRecipientHasher, RecipientHash};
use crate::media::{MediaStoreError, MockMediaStore};
use crate::shared::{
    AccountId, AuditAction, AuditLogId, Event, MockClock, MockErrorReport, MockIds, MockSecrets, Page, PageQuery,
    RowOutcome, SideStep, StoreError, SubscriptionId, UserId,
};
use crate::team::{Invites, MockInviteStore};

const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);
const ACCOUNT: AccountId = AccountId(Uuid::from_u128(9));

fn admin(in_support: bool) -> Admin {
    Admin {
        user_id: UserId(Uuid::from_u128(1)),
        email: "root@example.com".into(),
        ip_address: Some("10.0.0.1".into()),
        request_id: Some("r1".into()),
        entry_id: AuditLogId(Uuid::from_u128(3)),
        in_support,
    }
}

fn clock() -> Arc<MockClock> {
    let mut clock = MockClock::new();
    clock.expect_now().return_const(NOW);
    Arc::new(clock)
}

fn account() -> crate::accounts::Account {
    crate::accounts::Account {
        id: ACCOUNT,
        name: "Loja".into(),
        slug: "loja".into(),
        logo_url: None,
        plan: "free".into(),
        status: AccountStatus::Active,
        created_at: NOW,
    }
}

fn subscription(status: SubscriptionStatus) -> Subscription {
    Subscription {
        account_id: ACCOUNT,
        id: SubscriptionId(Uuid::from_u128(5)),
        plan: "starter".into(),
        cycle: Cycle::Monthly,
        status,
        billing_type: BillingType::Pix,
        value: Cents(9_700),
        billing_email: None,
        gateway_customer_id: None,
        gateway_subscription_id: Some("sub_1".into()),
        current_period_start: None,
        current_period_end: None,
        cancelled_at: None,
        inactivated_at: None,
        lapsed_at: None,
        period_granted: false,
        anchor_day: None,
        check_at: None,
        last_event: None,
        pending: None,
        version: 3,
        created_at: NOW,
        updated_at: NOW,
    }
}

fn subscribed(status: Option<SubscriptionStatus>) -> MockBillingAccountStore {
    let mut store = MockBillingAccountStore::new();
    store.expect_overview().returning(move |_| {
        Ok(Overview {
            account_name: "Loja".into(),
            account_plan: "free".into(),
            granted_plan: None,
            subscription: status.map(subscription),
            usage: Usage {
                contacts: 0,
                messages: 0,
                automations: 0,
                team: 0,
                whatsapp: 0,
            },
        })
    });
    store
}

fn invites() -> Invites {
    let mut ids = MockIds::new();
    ids.expect_next().returning(|| Uuid::from_u128(7));
    let mut secrets = MockSecrets::new();
    secrets.expect_token().returning(|_| "t0k3n".into());
    let mut recipients = MockRecipientHasher::new();
    recipients.expect_hash().returning(|_| RecipientHash(vec![1]));
    let store = Arc::new(MockInviteStore::new());
    Invites::new(
        store,
        Arc::new(secrets),
        Arc::new(ids),
        None,
        Arc::new(recipients),
        "https://recado.example",
    )
}

fn administration(store: MockAdministrationStore, subscriptions: MockBillingAccountStore) -> Administration {
    administration_with_reports(store, MockAdministrationReportStore::new(), subscriptions)
}

fn administration_with_reports(
    store: MockAdministrationStore,
    reports: MockAdministrationReportStore,
    subscriptions: MockBillingAccountStore,
) -> Administration {
    let mut ids = MockIds::new();
    ids.expect_next().returning(|| Uuid::from_u128(9));
    Administration::new(
        Arc::new(store),
        Arc::new(reports),
        Arc::new(subscriptions),
        clock(),
        Arc::new(ids),
        invites(),
    )
}

fn action(action: &str, plan: Option<&str>) -> ActionInput {
    ActionInput {
        action: Some(action.into()),
        plan: plan.map(str::to_owned),
    }
}

/// Returns the names of the invalid fields.
fn invalid_fields<T: std::fmt::Debug>(result: Result<T, AdministrationError>) -> Vec<String> {
    match result {
        Err(AdministrationError::Invalid(errors)) => errors.0.into_keys().collect(),
        other => panic!("{other:?}"),
    }
}

/// The action and the entity of an entry, and whether it names the account.
fn described(entry: &PlatformEntry) -> String {
    let (action, entity) = (entry.action.as_str(), entry.entity.as_str());
    format!("{action} {entity}, account {}", entry.account_id == Some(ACCOUNT))
}

fn changes(events: &[Event]) -> serde_json::Value {
    match events {
        [Event::Audit(audit)] => audit.recorded_changes().unwrap_or_default(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn account_list_counts_messages_of_thirty_days() {
    let mut reports = MockAdministrationReportStore::new();
    reports
        .expect_list()
        .withf(|_, _, since| *since == NOW - Duration::days(30))
        .times(1)
        .returning(|_, page, _| Ok(Page::new(page, vec![], 0)));
    let all = administration_with_reports(MockAdministrationStore::new(), reports, MockBillingAccountStore::new());
    let page = PageQuery::new(None, None, 20, 100);
    assert_eq!(all.list(&AccountFilter::default(), page).await.unwrap().data, []);
}

#[tokio::test]
async fn account_action_with_invalid_input_reaches_no_store() {
    for (input, field) in [
        (ActionInput::default(), "action"),
        (action("close", None), "action"),
        (action("Suspend", None), "action"),
        (action("change_plan", None), "plan"),
        (action("change_plan", Some("gold")), "plan"),
        (action("change_plan", Some("")), "plan"),
    ] {
        let all = administration(MockAdministrationStore::new(), MockBillingAccountStore::new());
        assert_eq!(invalid_fields(all.act(&admin(false), ACCOUNT, &input).await), [field]);
    }
}

#[tokio::test]
async fn suspend_and_reactivate_append_an_audit_entry() {
    use AccountStatus::{Active, Suspended};
    for (name, expected, in_support) in [("suspend", Suspended, false), ("reactivate", Active, true)] {
        let mut store = MockAdministrationStore::new();
        store
            .expect_set_status()
            .returning(move |account, status, events, entry| {
                assert_eq!(described(&entry), "update account_action, account true");
                assert_eq!(entry.changes, Some(serde_json::json!({ "action": name })));
                let [Event::Audit(audit)] = events else {
                    panic!("{events:?}")
                };
                assert_eq!((account, status), (ACCOUNT, expected));
                assert_eq!(
                    (audit.entity_type.as_str(), audit.entity_id),
                    ("admin_account_action", Some(ACCOUNT.0))
                );
                assert_eq!(audit.user_id, Some(admin(false).user_id));
                let changes = changes(events);
                assert_eq!(changes["action"], name);
                assert_eq!(changes.get("support_admin").is_some(), in_support);
                Ok(RowOutcome::Done)
            });
        let all = administration(store, MockBillingAccountStore::new());
        all.act(&admin(in_support), ACCOUNT, &action(name, None)).await.unwrap();
    }
    let mut store = MockAdministrationStore::new();
    store
        .expect_set_status()
        .returning(|_, _, _, _| Ok(RowOutcome::Missing));
    let all = administration(store, MockBillingAccountStore::new());
    let missing = all.act(&admin(false), ACCOUNT, &action("suspend", None)).await;
    assert!(matches!(missing, Err(AdministrationError::NotFound)));
}

#[tokio::test]
async fn granted_plan_changes_a_paid_subscription_but_not_its_price() {
    use SubscriptionStatus::{Active, PastDue, Pending};
    for status in [Some(Active), Some(PastDue), Some(Pending), None] {
        let paying = matches!(status, Some(Active | PastDue));
        let mut store = MockAdministrationStore::new();
        store.expect_account().returning(|_| Ok(Some(account())));
        store
            .expect_set_plan()
            .times(usize::from(!paying))
            .withf(|_, plan, events, entry| {
                plan == "growth"
                    && changes(events)["plan"]["to"] == "growth"
                    && entry
                        .changes
                        .as_ref()
                        .is_some_and(|changes| changes["plan"]["to"] == "growth")
            })
            .returning(|_, _, _, _| Ok(RowOutcome::Done));
        let is_first_write = Mutex::new(true);
        store
            .expect_change_subscription()
            .times(if paying { 2 } else { 0 })
            .returning(move |change, entry| {
                assert_eq!(described(&entry), "update account_action, account true");
                assert_eq!(entry.changes.unwrap()["plan"]["from"], "free");
                let after = &change.subscription;
                assert_eq!(
                    (after.plan.as_str(), after.value, after.version),
                    ("growth", Cents(9_700), 3)
                );
                assert_eq!(change.account_plan.as_deref(), Some("growth"));
                assert!(change.withdraws_grant, "an earlier grant must not outrank the new plan");
                // The first write meets a concurrent change.
                Ok(match std::mem::take(&mut *is_first_write.lock().unwrap()) {
                    true => ChangeOutcome::Stale,
                    false => ChangeOutcome::Done,
                })
            });
        let all = administration(store, subscribed(status));
        let input = action("change_plan", Some("growth"));
        all.act(&admin(false), ACCOUNT, &input).await.unwrap();
    }
}

#[tokio::test]
async fn plan_change_with_repeated_stale_writes_is_a_conflict() {
    let mut store = MockAdministrationStore::new();
    store.expect_account().returning(|_| Ok(Some(account())));
    store
        .expect_change_subscription()
        .returning(|_, _| Ok(ChangeOutcome::Stale));
    let all = administration(store, subscribed(Some(SubscriptionStatus::Active)));
    let input = action("change_plan", Some("growth"));
    let refused = all.act(&admin(false), ACCOUNT, &input).await;
    assert!(matches!(refused, Err(AdministrationError::Conflict(_))));
}

#[tokio::test]
async fn account_create_validates_input_and_derives_slug() {
    let refused = |name: &str, slug: Option<&str>, plan: Option<&str>| {
        let input = AccountInput {
            name: Some(name.into()),
            slug: slug.map(str::to_owned),
            plan: plan.map(str::to_owned),
            owner_email: None,
        };
        async move {
            let all = administration(MockAdministrationStore::new(), MockBillingAccountStore::new());
            invalid_fields(all.create(&admin(false), &input).await)
        }
    };
    assert_eq!(refused("", None, None).await, ["name"]);
    assert_eq!(refused("x", Some("A B"), Some("gold")).await, ["plan", "slug"]);
    for slug in ["", "-a", "a--b", "Ação", &"a".repeat(51)] {
        assert_eq!(refused("x", Some(slug), None).await, ["slug"], "{slug}");
    }
    for (slug, expected) in [(None, "loja-da-ana"), (Some("ana-2"), "ana-2")] {
        let mut store = MockAdministrationStore::new();
        store.expect_create().returning(move |account, is_given, owner, _| {
            assert!(owner.is_none());
            assert_eq!((account.slug.as_str(), is_given), (expected, slug.is_some()));
            match is_given {
                true => Err(StoreError::Duplicate { field: "slug" }),
                false => Ok((account.clone(), false)),
            }
        });
        let input = AccountInput {
            name: Some(" Loja da <b>Ana</b>".into()),
            slug: slug.map(str::to_owned),
            plan: None,
            owner_email: None,
        };
        let created = administration(store, MockBillingAccountStore::new())
            .create(&admin(false), &input)
            .await;
        match slug {
            Some(_) => assert_eq!(invalid_fields(created), ["slug"]),
            None => assert_eq!(created.unwrap().account.plan, "free"),
        }
    }
}

#[tokio::test]
async fn account_update_validates_every_field() {
    let patch = AccountPatch {
        name: Some(" ".into()),
        slug: Some("a b".into()),
        logo_url: Some(Some("javascript:alert(1)".into())),
        plan: Some("gold".into()),
        status: Some("closed".into()),
        owner_email: None,
    };
    let all = administration(MockAdministrationStore::new(), MockBillingAccountStore::new());
    let fields = invalid_fields(all.update(&admin(false), ACCOUNT, &patch).await);
    assert_eq!(fields, ["logo_url", "name", "plan", "slug", "status"]);
    for url in ["", "http://", "https:///x", "https://a b", "ftp://a"] {
        let patch = AccountPatch {
            logo_url: Some(Some(url.into())),
            ..AccountPatch::default()
        };
        assert_eq!(
            invalid_fields(all.update(&admin(false), ACCOUNT, &patch).await),
            ["logo_url"],
            "{url}"
        );
    }
    let mut store = MockAdministrationStore::new();
    let expected = AccountChange {
        logo_url: Some(None),
        status: Some(AccountStatus::Suspended),
        ..AccountChange::default()
    };
    store
        .expect_update()
        .withf(move |_, change, owner, _| *change == expected && owner.is_none())
        .returning(|_, _, _, entry| {
            assert_eq!(described(&entry), "update account, account true");
            Ok(AccountUpdate::Done(account(), false))
        });
    let patch = AccountPatch {
        logo_url: Some(None),
        status: Some("suspended".into()),
        ..AccountPatch::default()
    };
    let all = administration(store, MockBillingAccountStore::new());
    all.update(&admin(false), ACCOUNT, &patch).await.unwrap();
}

#[tokio::test]
async fn support_start_appends_audit_entry_of_the_administrator() {
    let (elsewhere, end) = (AccountId(Uuid::from_u128(8)), NOW + SUPPORT_MODE_DURATION);
    for (leaving, left) in [(None, None), (Some(ACCOUNT), None), (Some(elsewhere), Some(elsewhere))] {
        let mut store = MockSupportStore::new();
        store
            .expect_start()
            .returning(move |admin, account, leaving, expires_at, events, entry| {
                assert_eq!(described(&entry), "login support_mode, account true");
                let named = entry.changes.unwrap();
                assert_eq!(named["reason"], "ticket 7");
                assert_eq!(named.get("left_account_id").is_some(), left.is_some());
                assert_eq!(
                    (admin.email.as_str(), account, leaving, expires_at),
                    ("root@example.com", ACCOUNT, left, end)
                );
                let expected = serde_json::json!({ "reason": "ticket 7", "support_admin": "root@example.com" });
                assert_eq!(changes(events), expected);
                Ok(Some("Loja".into()))
            });
        let support = Support::new(Arc::new(store), clock());
        let started = support
            .start(&admin(false), ACCOUNT, leaving, Some(" ticket  7"))
            .await
            .unwrap();
        assert_eq!((started.started_at, started.expires_at), (NOW, end));
    }
    let support = Support::new(Arc::new(MockSupportStore::new()), clock());
    let long = "x".repeat(501);
    assert_eq!(
        invalid_fields(support.start(&admin(false), ACCOUNT, None, Some(&long)).await),
        ["reason"]
    );
    let mut store = MockSupportStore::new();
    store.expect_start().returning(|_, _, _, _, _, _| Ok(None));
    let missing = Support::new(Arc::new(store), clock())
        .start(&admin(false), ACCOUNT, None, None)
        .await;
    assert!(matches!(missing, Err(AdministrationError::NotFound)));
}
