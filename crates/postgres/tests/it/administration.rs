//! Administration of accounts: the list compared with a reference, owner invites and support mode.

use recado_domain::accounts::{Account, AccountStatus, AccountStore, Session};
use recado_domain::administration::{
    AccountChange, AccountFilter, AccountRow, AccountUpdate, Admin, AdministrationReportStore, AdministrationStore,
    SupportStore,
};
use recado_domain::mail::RecipientHash;
use recado_domain::shared::{AccountId, Event, PageQuery, Role, StoreError, UserId};
use recado_domain::team::{Invite, InviteInsert, InviteStatus};
use recado_postgres::{PgAccounts, PgAdministration, PgSupport};
use time::{Duration, OffsetDateTime};

use crate::support::{DbFixture, NOW, account, event, id, platform_entry, session};

fn store(fixture: &DbFixture) -> PgAdministration {
    PgAdministration::new(fixture.owner.clone())
}

/// Accounts with various names, plans, statuses, owners, members and support memberships.
async fn insert_accounts(fixture: &DbFixture) {
    fixture
        .sql(
            "INSERT INTO users (id, email) SELECT md5('u' || i)::uuid, 'Dono' || i || '@Loja_' || i % 7 || '%.example'
               FROM generate_series(1, 60) i;
             INSERT INTO accounts (id, name, slug, plan, status, created_at)
               SELECT md5('a' || i)::uuid, CASE i % 4 WHEN 0 THEN 'Padaria ' WHEN 1 THEN 'PADARIA 50%_' ELSE 'Loja ' END || i,
                 's' || i, (ARRAY['free', 'starter', 'growth'])[i % 3 + 1],
                 CASE WHEN i % 5 = 0 THEN 'suspended' ELSE 'active' END,
                 timestamptz '2026-01-01' + i / 3 * interval '1 day'
               FROM generate_series(1, 60) i;
             INSERT INTO account_users (account_id, user_id, role, created_at)
               SELECT md5('a' || i)::uuid, md5('u' || i)::uuid, 'owner', timestamptz '2026-01-02'
               FROM generate_series(1, 60) i WHERE i % 6 <> 0;
             -- A second owner, sometimes the older one; members; support mode.
             INSERT INTO account_users (account_id, user_id, role, created_at)
               SELECT md5('a' || i)::uuid, md5('u' || (i + 7) % 60 + 1)::uuid, 'owner',
                 timestamptz '2026-01-02' + (i % 3 - 1) * interval '1 hour'
               FROM generate_series(1, 60) i WHERE i % 4 = 1;
             INSERT INTO account_users (account_id, user_id, role)
               SELECT md5('a' || i)::uuid, md5('u' || (i + 20) % 60 + 1)::uuid, 'member'
               FROM generate_series(1, 60, 2) i;
             INSERT INTO account_users (account_id, user_id, role, is_support, expires_at)
               SELECT md5('a' || i)::uuid, md5('u' || (i + 30) % 60 + 1)::uuid, 'admin', true, now() + interval '1 hour'
               FROM generate_series(1, 60, 3) i;
             UPDATE accounts SET deleting_at = now() WHERE id = md5('a9')::uuid;",
        )
        .await;
}

async fn list_page(fixture: &DbFixture, filter: &AccountFilter, page: i64, limit: i64) -> (Vec<AccountRow>, i64, i64) {
    let query = PageQuery::new(Some(page), Some(limit), 20, 100);
    let page = store(fixture)
        .list(filter, query, NOW - Duration::days(30))
        .await
        .unwrap();
    (page.data, page.total, page.total_pages)
}

/// The published semantics: filters the complete overview.
fn reference(all: &[AccountRow], filter: &AccountFilter) -> Vec<AccountRow> {
    let holds = |text: &str, part: &str| text.to_lowercase().contains(&part.to_lowercase());
    let matches = |row: &&AccountRow| {
        let found = filter.search.as_deref().is_none_or(|part| {
            holds(&row.company_name, part) || row.owner_email.as_deref().is_some_and(|email| holds(email, part))
        });
        found
            && filter.plan.as_deref().is_none_or(|plan| row.plan == plan)
            && filter.status.is_none_or(|status| row.status == status)
    };
    all.iter().filter(matches).cloned().collect()
}

#[tokio::test]
async fn account_list_equals_the_filtered_overview() {
    let fixture = DbFixture::new().await;
    insert_accounts(&fixture).await;
    let (all, total, _) = list_page(&fixture, &AccountFilter::default(), 1, 100).await;
    assert_eq!(
        (all.len(), total),
        (60, 60),
        "excludes the account being deleted, includes the fixture's"
    );
    let order = |row: &AccountRow| std::cmp::Reverse((row.created_at, row.id));
    assert!(all.is_sorted_by_key(order));
    assert!(all.iter().any(|row| row.owner_email.is_none()) && all.iter().all(|row| row.users <= 3));
    let searches = [
        None,
        Some("padaria"),
        Some("50%"),
        Some("_1%.ex"),
        Some("DONO1"),
        Some("\\"),
        Some("@loja"),
        Some("zz"),
    ];
    for search in searches {
        for plan in [None, Some("starter")] {
            for status in [None, Some(AccountStatus::Suspended), Some(AccountStatus::Active)] {
                let filter = AccountFilter {
                    search: search.map(str::to_owned),
                    plan: plan.map(str::to_owned),
                    status,
                };
                let expected = reference(&all, &filter);
                let mut found = vec![];
                let pages = i64::try_from(expected.len().div_ceil(7)).unwrap();
                for page in 1..=pages + 1 {
                    let (rows, total, total_pages) = list_page(&fixture, &filter, page, 7).await;
                    assert_eq!(
                        (total, total_pages),
                        (i64::try_from(expected.len()).unwrap(), pages),
                        "{filter:?}"
                    );
                    found.extend(rows);
                }
                assert_eq!(found, expected, "{filter:?}");
            }
        }
    }
}

#[tokio::test]
async fn account_list_counts_equal_a_recount() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    fixture.add_contacts(5).await;
    fixture.add_contacts_to(other_account, 3).await;
    fixture
        .sql(&format!(
            "UPDATE contacts SET deleted_at = now() WHERE account_id = '{0}' AND name = 'Contact 1';
             UPDATE contact_counts SET contacts = contacts - 1 WHERE account_id = '{0}';
             INSERT INTO subscriptions (account_id, id, plan, cycle, status, billing_type, value) VALUES
               ('{0}', md5('1')::uuid, 'starter', 'YEARLY', 'past_due', 'PIX', 97000),
               ('{0}', md5('2')::uuid, 'growth', 'MONTHLY', 'cancelled', 'PIX', 29700),
               ('{1}', md5('3')::uuid, 'growth', 'MONTHLY', 'pending', 'PIX', 29700);
             INSERT INTO campaigns (account_id, id, name, status, executed_at, completed_at, updated_at)
               SELECT '{0}', md5('c' || i)::uuid, 'c', (ARRAY['completed', 'sending', 'cancelled', 'partial'])[i % 4 + 1],
                 began, CASE WHEN i % 4 = 0 THEN began + i * interval '2 days' END, began + i * interval '2 days'
               FROM generate_series(1, 16) i
               CROSS JOIN LATERAL (SELECT timestamptz '2026-02-25' - i * interval '4 days' AS began) b;
             INSERT INTO campaign_sends (account_id, id, campaign_id, contact_id, status, sent_at)
               SELECT '{0}', send_id(coalesce(c.executed_at, now()), c.id, k.id), c.id, k.id,
                 (ARRAY['sent', 'read', 'failed', 'delivered', 'pending'])[k.n],
                 CASE WHEN k.n < 5 THEN least(c.executed_at + k.n * interval '9 hours', c.updated_at) END
               FROM campaigns c CROSS JOIN (SELECT id, row_number() OVER (ORDER BY id) AS n FROM contacts
                 WHERE account_id = '{0}') k;
             INSERT INTO campaign_counter_slots (account_id, campaign_id, total, pending, sent, delivered, read, failed)
               SELECT account_id, id, 5, 1, 1, 1, 1, 1 FROM campaigns;
             INSERT INTO conversations (account_id, id, contact_id, last_message_at)
               SELECT '{0}', md5('v')::uuid, id, now() FROM contacts WHERE account_id = '{0}' LIMIT 1;
             INSERT INTO conversation_counts (account_id, status, conversations) VALUES ('{0}', 'open', 1);
             INSERT INTO messages (account_id, id, conversation_id, direction, type, status, created_at)
               SELECT '{0}', md5('m' || i)::uuid, md5('v')::uuid, CASE WHEN i % 3 = 0 THEN 'inbound' ELSE 'outbound' END,
                 'text', CASE i % 5 WHEN 0 THEN 'failed' ELSE 'sent' END, timestamptz '2026-02-25' - i * interval '3 days'
               FROM generate_series(1, 20) i;",
            fixture.account, other_account
        ))
        .await;
    let (rows, ..) = list_page(&fixture, &AccountFilter::default(), 1, 100).await;
    let row_of = |account: AccountId| rows.iter().find(|row| row.id == account).unwrap().clone();
    let since = format!("timestamptz '{}'", NOW - Duration::days(30));
    let sent = fixture
        .number(&format!(
            "SELECT (SELECT count(*) FROM campaign_sends WHERE status IN ('sent', 'delivered', 'read') AND sent_at >= {since})
               + (SELECT count(*) FROM messages WHERE direction = 'outbound' AND status = 'sent' AND created_at >= {since})"
        ))
        .await;
    let row = row_of(fixture.account);
    assert!(sent > 10, "{sent}");
    assert_eq!(
        (row.contacts, row.mrr.0, row.messages_30d, row.users),
        (4, 8_083, sent, 1)
    );
    let other_row = row_of(other_account);
    assert_eq!((other_row.contacts, other_row.mrr.0, other_row.messages_30d), (3, 0, 0));
    let detail = store(&fixture).detail(fixture.account).await.unwrap().unwrap();
    assert_eq!(
        (
            detail.metrics.contacts,
            detail.metrics.conversations,
            detail.users.len()
        ),
        (4, 1, 1)
    );
    assert!(store(&fixture).detail(id().into()).await.unwrap().is_none());
}

#[tokio::test]
async fn administration_totals_exclude_deleted_contacts() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(2).await;
    // The state after a contact's deletion: its conversation remains, but no counter includes it.
    fixture
        .sql(&format!(
            "INSERT INTO conversations (account_id, id, contact_id, last_message_at)
               SELECT '{0}', md5(id::text)::uuid, id, now() FROM contacts WHERE account_id = '{0}';
             UPDATE contacts SET deleted_at = now() WHERE id = (SELECT id FROM contacts ORDER BY id LIMIT 1);
             UPDATE contact_counts SET contacts = contacts - 1;
             INSERT INTO conversation_counts (account_id, status, conversations)
               VALUES ('{0}', 'open', 1), ('{0}', 'closed', 0)",
            fixture.account
        ))
        .await;
    let totals = store(&fixture).totals().await.unwrap();
    assert_eq!((totals.contacts, totals.conversations), (1, 1));
}

async fn update(store: &PgAdministration, id: AccountId, change: &AccountChange) -> Account {
    match store.update(id, change, None, platform_entry(id)).await.unwrap() {
        AccountUpdate::Done(account, _) => account,
        outcome => panic!("{outcome:?}"),
    }
}

#[tokio::test]
async fn account_slug_is_unique() {
    let fixture = DbFixture::new().await;
    let accounts = store(&fixture);
    let taken = accounts
        .create(&account("loja"), true, None, platform_entry(fixture.account))
        .await;
    assert!(
        matches!(taken, Err(StoreError::Duplicate { field: "slug" })),
        "{taken:?}"
    );
    let (numbered, _) = accounts
        .create(&account("loja"), false, None, platform_entry(fixture.account))
        .await
        .unwrap();
    assert_eq!(numbered.slug, "loja-2");
    let change = |slug: &str| AccountChange {
        slug: Some(slug.into()),
        ..AccountChange::default()
    };
    let taken = accounts
        .update(numbered.id, &change("loja"), None, platform_entry(fixture.account))
        .await;
    assert!(
        matches!(taken, Err(StoreError::Duplicate { field: "slug" })),
        "{taken:?}"
    );
    assert_eq!(update(&accounts, numbered.id, &change("loja-2")).await.slug, "loja-2");
    assert_eq!(update(&accounts, numbered.id, &change("nova")).await.slug, "nova");
    // The update released the old slug and changed nothing else.
    assert_eq!(
        accounts
            .create(&account("loja-2"), true, None, platform_entry(fixture.account))
            .await
            .unwrap()
            .0
            .slug,
        "loja-2"
    );
    let slugs = "SELECT string_agg(a.slug || (a.slug = s.slug), ' ' ORDER BY a.slug)
                 FROM accounts a JOIN account_slugs s ON s.account_id = a.id";
    assert_eq!(fixture.text(slugs).await.unwrap(), "lojatrue loja-2true novatrue");
    assert_eq!(
        accounts
            .update(id().into(), &change("x"), None, platform_entry(fixture.account))
            .await
            .unwrap(),
        AccountUpdate::Missing
    );
    let all_fields = AccountChange {
        name: Some("Outra".into()),
        slug: None,
        logo_url: Some(Some("https://x/y.png".into())),
        plan: Some("scale".into()),
        status: Some(AccountStatus::Suspended),
    };
    let after = update(&accounts, numbered.id, &all_fields).await;
    assert_eq!(
        (after.name.as_str(), after.plan.as_str(), after.slug.as_str()),
        ("Outra", "scale", "nova")
    );
    let cleared = AccountChange {
        logo_url: Some(None),
        ..AccountChange::default()
    };
    let after = update(&accounts, numbered.id, &cleared).await;
    assert_eq!((after.logo_url, after.status), (None, AccountStatus::Suspended));
}

#[tokio::test(flavor = "multi_thread")]
async fn account_slug_goes_to_one_of_two_concurrent_updates() {
    let fixture = DbFixture::new().await;
    let accounts = store(&fixture);
    let (left, right) = (
        accounts
            .create(&account("a"), true, None, platform_entry(fixture.account))
            .await
            .unwrap()
            .0,
        accounts
            .create(&account("b"), true, None, platform_entry(fixture.account))
            .await
            .unwrap()
            .0,
    );
    for round in 0..20 {
        let change = AccountChange {
            slug: Some(format!("slug-{round}")),
            ..AccountChange::default()
        };
        let (first, second) = tokio::join!(
            accounts.update(left.id, &change, None, platform_entry(fixture.account)),
            accounts.update(right.id, &change, None, platform_entry(fixture.account))
        );
        assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    }
}

pub(crate) fn admin(user: UserId) -> Admin {
    Admin {
        user_id: user,
        email: "root@example.com".into(),
        ip_address: None,
        request_id: None,
        entry_id: id().into(),
        in_support: false,
    }
}

async fn stored_admin(fixture: &DbFixture) -> Admin {
    let user = UserId(id());
    let accounts = PgAccounts::new(fixture.owner.clone());
    let session = Session { ..session(user) };
    accounts.record_user(&session).await.unwrap();
    admin(user)
}

async fn memberships(fixture: &DbFixture, user: UserId) -> String {
    let query = format!(
        "SELECT string_agg(role || ' ' || is_support, ', ' ORDER BY account_id) FROM account_users WHERE user_id = '{user}'"
    );
    fixture.text(&query).await.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn support_mode_adds_one_membership_and_removes_it() {
    let fixture = DbFixture::new().await;
    let (support, root) = (PgSupport::new(fixture.owner.clone()), stored_admin(&fixture).await);
    let other_account = fixture.another_account().await;
    let end = OffsetDateTime::now_utc() + Duration::hours(4);
    let (here, events) = (fixture.account, [event(fixture.account.0)]);
    let start = async |admin: &Admin, account: AccountId, leaving: Option<AccountId>, events: &[Event]| {
        let started = support.start(admin, account, leaving, end, events, platform_entry(account));
        started.await.unwrap()
    };
    let stop = async |user: UserId, account: AccountId| {
        let stopped = support.stop(user, account, platform_entry(account));
        stopped.await.unwrap().is_done()
    };
    let (a, b, c) = tokio::join!(
        start(&root, here, None, &events),
        start(&root, here, None, &events),
        start(&root, here, Some(other_account), &events)
    );
    for name in [a, b, c] {
        assert_eq!(name.as_deref(), Some("Loja da Ana"));
    }
    assert_eq!(memberships(&fixture, root.user_id).await, "admin true");
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 3);
    // Entering another account leaves the first.
    start(&root, other_account, Some(here), &[]).await;
    assert_eq!(memberships(&fixture, root.user_id).await, "admin true");
    assert!(!stop(root.user_id, here).await);
    assert!(stop(root.user_id, other_account).await);
    assert_eq!(memberships(&fixture, root.user_id).await, "");
    // Support mode neither changes nor removes a regular membership.
    start(&admin(fixture.user), here, Some(other_account), &[]).await;
    assert!(!stop(fixture.user, here).await);
    assert_eq!(memberships(&fixture, fixture.user).await, "owner false, owner false");
    assert_eq!(start(&root, id().into(), None, &events).await, None);
}

#[tokio::test]
async fn support_membership_expired_is_ignored_and_swept() {
    let fixture = DbFixture::new().await;
    let (support, accounts) = (
        PgSupport::new(fixture.owner.clone()),
        PgAccounts::new(fixture.owner.clone()),
    );
    let (past, future) = (
        OffsetDateTime::now_utc() - Duration::SECOND,
        OffsetDateTime::now_utc() + Duration::HOUR,
    );
    let mut expired = vec![];
    for _ in 0..5 {
        let root = stored_admin(&fixture).await;
        support
            .start(&root, fixture.account, None, past, &[], platform_entry(fixture.account))
            .await
            .unwrap();
        expired.push(root.user_id);
    }
    let present = stored_admin(&fixture).await;
    support
        .start(
            &present,
            fixture.account,
            None,
            future,
            &[],
            platform_entry(fixture.account),
        )
        .await
        .unwrap();
    for user in &expired {
        assert_eq!(accounts.membership_access(*user, fixture.account).await.unwrap(), None);
        assert_eq!(accounts.latest_membership_access(*user).await.unwrap(), None);
        assert!(accounts.memberships(*user).await.unwrap().is_empty());
        assert!(accounts.switch(*user, fixture.account, NOW).await.unwrap().is_none());
    }
    let membership_access = accounts
        .membership_access(present.user_id, fixture.account)
        .await
        .unwrap()
        .unwrap();
    assert!(membership_access.support_until.is_some());
    let swept = [
        support.sweep(3).await.unwrap(),
        support.sweep(3).await.unwrap(),
        support.sweep(3).await.unwrap(),
    ];
    assert_eq!(swept, [3, 2, 0]);
    assert_eq!(fixture.number("SELECT count(*) FROM account_users").await, 2);
    // Support mode may switch to a suspended account.
    fixture.sql("UPDATE accounts SET status = 'suspended'").await;
    assert!(
        accounts
            .switch(present.user_id, fixture.account, NOW)
            .await
            .unwrap()
            .is_some()
    );
    assert!(
        accounts
            .switch(fixture.user, fixture.account, NOW)
            .await
            .unwrap()
            .is_none()
    );
}

fn owners_invite(account: &Account, email: &str, token: u8) -> InviteInsert {
    let now = OffsetDateTime::now_utc();
    InviteInsert {
        account_id: account.id,
        invite: Invite {
            id: id().into(),
            email: email.into(),
            role: Role::Owner,
            status: InviteStatus::Pending,
            expires_at: now + Duration::HOUR,
            created_at: now,
        },
        invited_by: UserId(id()),
        token_hash: vec![token; 32],
        superseded: (InviteStatus::Pending, InviteStatus::Revoked),
        mail: None,
        recipient: RecipientHash(email.to_lowercase().into_bytes()),
    }
}

#[tokio::test]
async fn owner_invite_by_administrator_requires_no_owner() {
    let fixture = DbFixture::new().await;
    let accounts = store(&fixture);
    let first = account("padaria");
    let created = accounts
        .create(
            &first,
            true,
            Some(owners_invite(&first, "a@example.com", 1)),
            platform_entry(first.id),
        )
        .await;
    let (created, mailed) = created.unwrap();
    assert!(!mailed);
    let change = AccountChange {
        name: Some("Outra".into()),
        ..AccountChange::default()
    };
    let second_invite = owners_invite(&created, "b@example.com", 2);
    let done = accounts
        .update(created.id, &change, Some(second_invite), platform_entry(created.id))
        .await
        .unwrap();
    assert!(matches!(done, AccountUpdate::Done(account, false) if account.name == "Outra"));
    let invites =
        "SELECT string_agg(i.email || ' ' || i.status || ' ' || (t.token_hash IS NOT NULL), ', ' ORDER BY i.email)
         FROM team_invites i LEFT JOIN invite_tokens t ON t.invite_id = i.id";
    let one_is_open = "a@example.com revoked false, b@example.com pending true";
    assert_eq!(fixture.text(invites).await.unwrap(), one_is_open);
    // An invite of a member, or of an owner beside another, is refused, and no part of the change is written.
    let join = |role: &str| {
        format!(
            "INSERT INTO account_users (account_id, user_id, role) VALUES ('{}', '{}', '{role}')",
            created.id, fixture.user
        )
    };
    fixture.sql(&join("viewer")).await;
    let email = fixture
        .text(&format!("SELECT email FROM users WHERE id = '{}'", fixture.user))
        .await
        .unwrap();
    for (address, expected) in [
        (email.as_str(), AccountUpdate::Member),
        ("c@example.com", AccountUpdate::Owned),
    ] {
        let change = AccountChange {
            name: Some("Nunca".into()),
            ..AccountChange::default()
        };
        let refused = accounts
            .update(
                created.id,
                &change,
                Some(owners_invite(&created, address, 3)),
                platform_entry(created.id),
            )
            .await;
        assert_eq!(refused.unwrap(), expected);
        assert_eq!(fixture.text(invites).await.unwrap(), one_is_open);
        fixture
            .sql("UPDATE account_users SET role = 'owner' WHERE role = 'viewer'")
            .await;
    }
    assert_eq!(accounts.account(created.id).await.unwrap().unwrap().name, "Outra");
}

/// A support membership does not count as an owner.
#[tokio::test]
async fn support_membership_is_no_owner() {
    let fixture = DbFixture::new().await;
    let accounts = store(&fixture);
    let (created, _) = accounts
        .create(&account("padaria"), true, None, platform_entry(fixture.account))
        .await
        .unwrap();
    fixture
        .sql(&format!(
            "INSERT INTO account_users (account_id, user_id, role, is_support, expires_at)
             VALUES ('{}', '{}', 'admin', true, now() + interval '1 hour')",
            created.id, fixture.user
        ))
        .await;
    let invite = owners_invite(&created, "a@example.com", 1);
    let done = accounts
        .update(
            created.id,
            &AccountChange::default(),
            Some(invite),
            platform_entry(created.id),
        )
        .await
        .unwrap();
    assert!(matches!(done, AccountUpdate::Done(..)));
}
