//! Accounts, users and memberships.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use recado_domain::accounts::{AccountStatus, AccountStore, Session};
use recado_domain::shared::{Role, UserId};
use recado_postgres::PgAccounts;
use time::Duration;

use crate::support::{DbFixture, NOW, account, id, session};

/// More accounts than any test creates.
const LIMIT: i64 = 1000;

#[tokio::test]
async fn user_without_a_name_keeps_the_stored_name() {
    let fixture = DbFixture::new().await;
    let accounts = PgAccounts::new(fixture.owner.clone());
    let changed = Session {
        email: "new@example.com".into(),
        name: None,
        ..session(fixture.user)
    };
    accounts.record_user(&changed).await.unwrap();
    accounts.record_user(&changed).await.unwrap();
    let stored = fixture
        .text("SELECT string_agg(email || ' ' || name, ',') FROM users")
        .await;
    assert_eq!(stored.unwrap(), "new@example.com Ana");
}

#[tokio::test]
async fn account_is_created_with_its_owner() {
    let fixture = DbFixture::new().await;
    let accounts = PgAccounts::new(fixture.owner.clone());
    let expected = account("ana");
    let created = accounts.create(&expected, fixture.user, LIMIT).await.unwrap().unwrap();
    assert_eq!(created, expected);
    let memberships = accounts.memberships(fixture.user).await.unwrap();
    assert_eq!(
        memberships.iter().map(|m| m.account_id).collect::<Vec<_>>(),
        [fixture.account, expected.id]
    );
    assert_eq!((memberships[1].role, &memberships[1].account), (Role::Owner, &expected));
    assert_eq!(accounts.memberships(UserId(id())).await.unwrap(), []);
}

#[tokio::test]
async fn account_without_a_stored_owner_is_not_created() {
    let fixture = DbFixture::new().await;
    let accounts = PgAccounts::new(fixture.owner.clone());
    accounts
        .create(&account("padaria"), UserId(id()), LIMIT)
        .await
        .unwrap_err();
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM account_slugs WHERE slug = 'padaria'")
            .await,
        0
    );
    assert_eq!(fixture.number("SELECT count(*) FROM accounts").await, 1);
}

#[tokio::test]
async fn accounts_of_an_owner_are_limited_under_concurrency() {
    let fixture = DbFixture::new().await;
    let accounts = PgAccounts::new(fixture.owner.clone());
    // The fixture's account counts, too.
    let creates = (0..12).map(|_| {
        let (accounts, user) = (accounts.clone(), fixture.user);
        async move { accounts.create(&account("loja"), user, 5).await.unwrap() }
    });
    let created: Vec<_> = join_all(creates).await.into_iter().flatten().collect();
    assert_eq!(created.len(), 4);
    // An account that the user only joined as an owner, and one that they no longer own, do not count.
    fixture
        .sql(&format!(
            "UPDATE accounts SET created_by = NULL WHERE id = '{}';
             UPDATE account_users SET role = 'admin' WHERE account_id = '{}'",
            created[0].id, created[1].id
        ))
        .await;
    for expected in [true, true, false] {
        let again = accounts.create(&account("loja"), fixture.user, 5).await.unwrap();
        assert_eq!(again.is_some(), expected);
    }
}

#[tokio::test]
async fn name_counts_as_verified_only_by_its_own_token() {
    let fixture = DbFixture::new().await;
    let accounts = PgAccounts::new(fixture.owner.clone());
    for (name, email_verified, expected) in [
        (Some("Ana"), Some(true), "Ana true"),
        (None, Some(false), "Ana true"),
        (Some("Ana"), None, "Ana false"),
        (Some("Ana"), Some(true), "Ana true"),
        (Some("Bia"), Some(false), "Bia false"),
    ] {
        let changed = Session {
            name: name.map(str::to_owned),
            email_verified,
            ..session(fixture.user)
        };
        accounts.record_user(&changed).await.unwrap();
        let stored = fixture.text("SELECT name || ' ' || name_is_verified FROM users").await;
        assert_eq!(stored.unwrap(), expected);
    }
}

#[tokio::test]
async fn account_slugs_of_concurrent_creates_have_no_gap() {
    let fixture = DbFixture::new().await;
    let accounts = PgAccounts::new(fixture.owner.clone());
    let creates = (0..20).map(|_| {
        let (accounts, user) = (accounts.clone(), fixture.user);
        async move {
            accounts
                .create(&account("loja"), user, LIMIT)
                .await
                .unwrap()
                .unwrap()
                .slug
        }
    });
    let slugs: BTreeSet<String> = join_all(creates).await.into_iter().collect();
    let expected: BTreeSet<String> = (2..=21).map(|n| format!("loja-{n}")).collect();
    assert_eq!(slugs, expected);
}

#[tokio::test]
async fn account_slug_takes_the_first_free_number() {
    let fixture = DbFixture::new().await;
    let accounts = PgAccounts::new(fixture.owner.clone());
    fixture
        .client
        .batch_execute(
            "INSERT INTO account_slugs (slug, account_id)
             SELECT CASE n WHEN 1 THEN 'padaria' ELSE 'padaria-' || n END, (SELECT id FROM accounts LIMIT 1)
             FROM generate_series(1, 300) n WHERE n NOT IN (77, 250)",
        )
        .await
        .unwrap();
    for expected in ["padaria-77", "padaria-250", "padaria-301"] {
        let created = accounts
            .create(&account("padaria"), fixture.user, LIMIT)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(created.slug, expected);
    }
}

#[tokio::test]
async fn account_slug_is_shortened_for_its_number() {
    let fixture = DbFixture::new().await;
    let accounts = PgAccounts::new(fixture.owner.clone());
    let (long, cut) = ("a".repeat(50), "a".repeat(48));
    let mut slugs = Vec::new();
    for _ in 0..3 {
        let created = accounts.create(&account(&long), fixture.user, LIMIT).await.unwrap();
        slugs.push(created.unwrap().slug);
    }
    assert_eq!(slugs, [long.clone(), format!("{cut}-2"), format!("{cut}-3")]);
}

#[tokio::test]
async fn membership_access_follows_use_and_suspension() {
    let fixture = DbFixture::new().await;
    let accounts = PgAccounts::new(fixture.owner.clone());
    let second = fixture.another_account().await;
    // Before the first switch, the oldest membership applies: at equal times the lower id.
    assert_eq!(
        accounts
            .latest_membership_access(fixture.user)
            .await
            .unwrap()
            .unwrap()
            .account_id,
        fixture.account
    );
    let switched = accounts.switch(fixture.user, second, NOW).await.unwrap().unwrap();
    assert_eq!((switched.account_id, switched.role), (second, Role::Owner));
    assert_eq!(
        accounts
            .latest_membership_access(fixture.user)
            .await
            .unwrap()
            .unwrap()
            .account_id,
        second
    );
    accounts
        .switch(fixture.user, fixture.account, NOW + Duration::SECOND)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        accounts
            .latest_membership_access(fixture.user)
            .await
            .unwrap()
            .unwrap()
            .account_id,
        fixture.account
    );

    fixture
        .sql(&format!(
            "UPDATE accounts SET status = 'suspended' WHERE id = '{second}'"
        ))
        .await;
    assert_eq!(accounts.switch(fixture.user, second, NOW).await.unwrap(), None);
    let membership_access = accounts.membership_access(fixture.user, second).await.unwrap().unwrap();
    assert_eq!(membership_access.status, AccountStatus::Suspended);

    let stranger = UserId(id());
    assert_eq!(accounts.membership_access(stranger, second).await.unwrap(), None);
    assert_eq!(accounts.latest_membership_access(stranger).await.unwrap(), None);
    assert_eq!(accounts.switch(stranger, fixture.account, NOW).await.unwrap(), None);
}
