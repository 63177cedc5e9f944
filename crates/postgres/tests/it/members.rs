//! Memberships: the member list, guarded changes, and races for the last owner.

use futures_util::future::join_all;
use recado_domain::accounts::AccountStore;
use recado_domain::shared::{AccountId, CursorPage, CursorQuery, Role, TimeCursor, UserId};
use recado_domain::team::{Member, MemberChange, MemberFacts, MemberStep, MemberStore, MemberWrite, decide_member};
use recado_postgres::{PgAccounts, PgMembers};

use crate::support::{DbFixture, event, id, position, session};

impl DbFixture {
    fn members(&self) -> PgMembers {
        PgMembers::new(self.owner.clone())
    }

    /// Adds a new user to the account.
    pub(crate) async fn add_member(&self, account: AccountId, role: Role) -> UserId {
        let user = UserId(id());
        let accounts = PgAccounts::new(self.owner.clone());
        accounts.record_user(&session(user)).await.unwrap();
        self.sql(&format!(
            "INSERT INTO account_users (account_id, user_id, role) VALUES ('{account}', '{user}', '{role}')"
        ))
        .await;
        user
    }

    async fn owners(&self) -> i64 {
        let account = self.account;
        self.number(&format!(
            "SELECT count(*) FROM account_users WHERE account_id = '{account}' AND role = 'owner'"
        ))
        .await
    }
}

fn cursor_query(cursor: Option<TimeCursor>, limit: i64) -> CursorQuery<TimeCursor> {
    CursorQuery { cursor, limit }
}

#[tokio::test]
async fn member_pages_list_the_account_oldest_first() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    fixture.add_member(other_account, Role::Admin).await;
    let mut users = vec![fixture.user];
    for _ in 0..4 {
        users.push(fixture.add_member(fixture.account, Role::Member).await);
    }
    // Members with the same time are ordered by id.
    fixture
        .sql("UPDATE account_users SET created_at = '2026-04-01' WHERE role = 'member'")
        .await;
    let members = fixture.members();
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page: CursorPage<Member> = members
            .members(fixture.account, &cursor_query(cursor, 2))
            .await
            .unwrap();
        seen.extend(page.data.iter().map(|member| member.user_id));
        assert_eq!(page.has_more, page.next_cursor.is_some());
        cursor = position(page.next_cursor);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, users);
    let first = members.member(fixture.account, fixture.user).await.unwrap().unwrap();
    assert_eq!((first.role, first.name.as_deref()), (Role::Owner, Some("Ana")));
    assert_eq!(members.member(other_account, users[1]).await.unwrap(), None);
}

#[tokio::test]
async fn member_facts_cover_one_account_only() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    let bia = fixture.add_member(other_account, Role::Owner).await;
    let members = fixture.members();
    let facts = members.facts(fixture.account, fixture.user, bia).await.unwrap();
    let expected = MemberFacts {
        actor: Some(Role::Owner),
        target: None,
        other_owners: true,
    };
    assert_eq!(facts, expected);
    let facts = members
        .facts(fixture.account, fixture.user, fixture.user)
        .await
        .unwrap();
    assert!(!facts.other_owners && facts.target == Some(Role::Owner));
    let missing = members.facts(id().into(), fixture.user, bia).await.unwrap();
    assert_eq!(
        (missing.actor, missing.target, missing.other_owners),
        (None, None, false)
    );
}

#[tokio::test]
async fn member_change_on_outdated_facts_is_rejected() {
    let fixture = DbFixture::new().await;
    let bia = fixture.add_member(fixture.account, Role::Member).await;
    let members = fixture.members();
    let write = MemberWrite {
        account_id: fixture.account,
        actor: fixture.user,
        target: bia,
        facts: members.facts(fixture.account, fixture.user, bia).await.unwrap(),
        step: MemberStep::SetRole {
            from: Role::Member,
            to: Role::Admin,
        },
        events: vec![event(bia.0)],
    };
    assert!(members.write(&write).await.unwrap().is_done());
    // The member already is an admin.
    assert!(!members.write(&write).await.unwrap().is_done());
    let removal = MemberWrite {
        facts: members.facts(fixture.account, fixture.user, bia).await.unwrap(),
        step: MemberStep::Remove { from: Role::Admin },
        ..write
    };
    // The actor no longer is an owner.
    fixture
        .sql(&format!(
            "UPDATE account_users SET role = 'viewer' WHERE user_id = '{}'",
            fixture.user
        ))
        .await;
    assert!(!members.write(&removal).await.unwrap().is_done());
    fixture
        .sql(&format!(
            "UPDATE account_users SET role = 'owner' WHERE user_id = '{}'",
            fixture.user
        ))
        .await;
    assert!(members.write(&removal).await.unwrap().is_done());
    assert_eq!(fixture.number("SELECT count(*) FROM account_users").await, 1);
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 2);
    let account = fixture.account;
    let events = format!("SELECT count(*) FROM outbox_events WHERE account_id = '{account}'");
    assert_eq!(fixture.number(&events).await, 2);
}

/// Retries like the use case: decides on the stored facts until the change is written or refused.
async fn change(members: &PgMembers, write: (AccountId, UserId, UserId), change: MemberChange) -> bool {
    let (account_id, actor, target) = write;
    loop {
        let facts = members.facts(account_id, actor, target).await.unwrap();
        let Ok(step) = decide_member(facts, change) else {
            return false;
        };
        let write = MemberWrite {
            account_id,
            actor,
            target,
            facts,
            step,
            events: vec![],
        };
        if members.write(&write).await.unwrap().is_done() {
            return true;
        }
    }
}

/// Every owner changes the next one concurrently. Returns the number of changes that were written.
async fn race(fixture: &DbFixture, owners: &[UserId], owner_change: MemberChange) -> usize {
    let changes = owners.iter().enumerate().map(|(at, &actor)| {
        let (members, target) = (fixture.members(), owners[(at + 1) % owners.len()]);
        async move { change(&members, (fixture.account, actor, target), owner_change).await }
    });
    join_all(changes).await.into_iter().filter(|&written| written).count()
}

#[tokio::test]
async fn owners_who_demote_or_remove_each_other_leave_one() {
    let fixture = DbFixture::new().await;
    for round in 0..10 {
        for owner_change in [MemberChange::Role(Role::Viewer), MemberChange::Removal] {
            let account = fixture.account;
            fixture
                .sql(&format!("DELETE FROM account_users WHERE account_id = '{account}'"))
                .await;
            let mut owners = Vec::new();
            for _ in 0..2 + round % 3 {
                owners.push(fixture.add_member(account, Role::Owner).await);
            }
            let written = race(&fixture, &owners, owner_change).await;
            assert!(fixture.owners().await >= 1, "round {round}");
            assert!(written >= 1, "round {round}: one change succeeds");
            if owners.len() == 2 {
                assert_eq!((written, fixture.owners().await), (1, 1), "round {round}");
            }
        }
    }
}
