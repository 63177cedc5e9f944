//! Accounts, users and memberships.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use recado_domain::accounts::{AccountStatus, AccountStore, Session};
use recado_domain::shared::{Role, UserId};
use recado_postgres::PgAccounts;
use time::Duration;

use crate::support::{DbFixture, NOW, account, id, session};

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
    let created = accounts.create(&expected, fixture.user).await.unwrap();
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
    accounts.create(&account("padaria"), UserId(id())).await.unwrap_err();
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM account_slugs WHERE slug = 'padaria'")
            .await,
        0
    );
    assert_eq!(fixture.number("SELECT count(*) FROM accounts").await, 1);
}

#[tokio::test]
async fn account_slugs_of_concurrent_creates_have_no_gap() {
    let fixture = DbFixture::new().await;
    let accounts = PgAccounts::new(fixture.owner.clone());
    let creates = (0..20).map(|_| {
        let (accounts, user) = (accounts.clone(), fixture.user);
        async move { accounts.create(&account("loja"), user).await.unwrap().slug }
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
        let created = accounts.create(&account("padaria"), fixture.user).await.unwrap();
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
        slugs.push(accounts.create(&account(&long), fixture.user).await.unwrap().slug);
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
