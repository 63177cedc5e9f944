//! Invites: one pending invite per address, token hashes, expiry by the database's clock, and races.

use futures_util::future::join_all;
use recado_domain::accounts::AccountStore;
use recado_domain::mail::{OutgoingMail, RecipientHash};
use recado_domain::shared::{AccountId, CursorQuery, GuardOutcome, Role, Sealed, UserId, WriteOutcome};
use recado_domain::team::{Acceptance, Invite, InviteInsert, InviteOutcome, InviteStatus, InviteStore};
use recado_postgres::{PgAccounts, PgInvites};
use time::Duration;

use crate::support::{DbFixture, event, id, position, session};

use InviteStatus::{Accepted, Expired, Pending, Revoked};

impl DbFixture {
    pub(crate) fn invites(&self) -> PgInvites {
        PgInvites::new(self.owner.clone())
    }

    async fn invite_input(&self, account: AccountId, email: &str, token: u8) -> InviteInsert {
        let facts = self.invites().facts(account, self.user).await.unwrap();
        InviteInsert {
            account_id: account,
            invite: Invite {
                id: id().into(),
                email: email.into(),
                role: Role::Member,
                status: Pending,
                expires_at: facts.now + Duration::HOUR,
                created_at: facts.now,
            },
            invited_by: self.user,
            token_hash: vec![token; 32],
            superseded: (Pending, Revoked),
            mail: None,
            recipient: RecipientHash(email.to_lowercase().into_bytes()),
        }
    }

    async fn invited(&self, account: AccountId, email: &str, token: u8) -> Invite {
        let insert = self.invite_input(account, email, token).await;
        self.invites().insert(&insert, 100).await.unwrap();
        insert.invite
    }

    async fn non_member(&self) -> UserId {
        let user = UserId(id());
        let accounts = PgAccounts::new(self.owner.clone());
        accounts.record_user(&session(user)).await.unwrap();
        user
    }

    fn acceptance(&self, invite: &Invite, user: UserId) -> Acceptance {
        Acceptance {
            account_id: self.account,
            invite: invite.id,
            status: (Pending, Accepted),
            user,
            role: invite.role,
            events: vec![event(user.0)],
        }
    }

    async fn status(&self, invite: &Invite) -> InviteStatus {
        let found = self.invites().invite(self.account, invite.id).await.unwrap();
        found.unwrap().status
    }

    async fn set_expiry(&self, invite: &Invite, when: &str) {
        let id = invite.id;
        self.sql(&format!(
            "UPDATE team_invites SET expires_at = {when} WHERE id = '{id}'"
        ))
        .await;
    }
}

#[tokio::test]
async fn invite_is_listed_newest_first_and_found_by_token() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    let foreign = fixture.invited(other_account, "bia@example.com", 9).await;
    let mut ids = Vec::new();
    for token in 1..=3 {
        ids.push(
            fixture
                .invited(fixture.account, &format!("b{token}@e.example"), token)
                .await
                .id,
        );
    }
    ids.reverse();
    let list = async |cursor| {
        let query = CursorQuery { cursor, limit: 2 };
        fixture.invites().invites(fixture.account, &query).await.unwrap()
    };
    let first = list(None).await;
    let second = list(position(first.next_cursor)).await;
    let seen: Vec<_> = first.data.iter().chain(&second.data).map(|invite| invite.id).collect();
    assert_eq!((seen, first.has_more, second.has_more), (ids, true, false));

    let non_member = fixture.non_member().await;
    let presented = fixture
        .invites()
        .presented(&[9; 32], non_member)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((presented.account_id, &presented.invite), (other_account, &foreign));
    assert_eq!((presented.invited_by, presented.is_member), (fixture.user, false));
    assert!(presented.now >= foreign.created_at && presented.now < foreign.expires_at);
    let presented_to_member = fixture
        .invites()
        .presented(&[9; 32], fixture.user)
        .await
        .unwrap()
        .unwrap();
    assert!(presented_to_member.is_member);
    assert_eq!(fixture.invites().presented(&[8; 32], non_member).await.unwrap(), None);
    assert_eq!(
        fixture.invites().invite(fixture.account, foreign.id).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn invite_address_has_one_pending_invite_per_account() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    let foreign = fixture.invited(other_account, "bia@example.com", 1).await;
    let first = fixture.invited(fixture.account, "bia@example.com", 2).await;
    let second = fixture.invited(fixture.account, "BIA@Example.com", 3).await;
    assert_eq!(
        (fixture.status(&first).await, fixture.status(&second).await),
        (Revoked, Pending)
    );
    let stored = fixture
        .invites()
        .invite(other_account, foreign.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stored.status, Pending);
    assert_eq!(fixture.number("SELECT count(*) FROM invite_tokens").await, 2);
    assert_eq!(fixture.invites().presented(&[2; 32], fixture.user).await.unwrap(), None);

    let inserts = join_all((10..30).map(|token| fixture.invite_input(fixture.account, "Bia@example.com", token))).await;
    join_all(
        inserts
            .iter()
            .map(async |insert| fixture.invites().insert(insert, 100).await.unwrap()),
    )
    .await;
    let pending = "SELECT count(*) FROM team_invites WHERE status = 'pending'";
    assert_eq!(fixture.number(pending).await, 2);
    assert_eq!(fixture.number("SELECT count(*) FROM invite_tokens").await, 2);
}

#[tokio::test]
async fn invite_and_its_mail_are_stored_together() {
    let fixture = DbFixture::new().await;
    let facts = fixture.invites().facts(fixture.account, fixture.user).await.unwrap();
    assert_eq!((facts.account.as_str(), facts.inviter.as_str()), ("Loja da Ana", "Ana"));
    let mut insert = fixture.invite_input(fixture.account, "bia@example.com", 1).await;
    insert.mail = Some(OutgoingMail {
        id: id().into(),
        content: Sealed(vec![1]),
    });
    let outcome = fixture.invites().insert(&insert, 100).await.unwrap();
    assert_eq!(outcome, InviteOutcome::Done { mailed: true });
    for table in ["team_invites", "invite_tokens", "outgoing_mail", "mail_recipients"] {
        let stored = fixture.number(&format!("SELECT count(*) FROM {table}")).await;
        assert_eq!(stored, 1, "{table}");
    }
}

#[tokio::test]
async fn invite_accepted_fifty_times_adds_one_member() {
    let fixture = DbFixture::new().await;
    let user = fixture.non_member().await;
    let invite = fixture.invited(fixture.account, "bia@example.com", 1).await;
    let acceptance = fixture.acceptance(&invite, user);
    let invites = fixture.invites();
    let results = join_all((0..50).map(async |_| invites.accept(&acceptance).await.unwrap())).await;
    assert_eq!(results.iter().filter(|&&accepted| accepted.is_done()).count(), 1);
    let members = format!("SELECT count(*) FROM account_users WHERE user_id = '{user}' AND role = 'member'");
    assert_eq!(fixture.number(&members).await, 1);
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 1);
    assert_eq!(fixture.number("SELECT count(*) FROM invite_tokens").await, 0);
    assert_eq!(fixture.status(&invite).await, Accepted);
}

#[tokio::test]
async fn invite_of_another_account_is_not_found() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    let user = fixture.non_member().await;
    let foreign = fixture.invited(other_account, "bia@example.com", 1).await;
    // An invite of another account is not found.
    let acceptance = fixture.acceptance(&foreign, user);
    assert!(!fixture.invites().accept(&acceptance).await.unwrap().is_done());
    let moved = fixture
        .invites()
        .set_status(fixture.account, foreign.id, Pending, Revoked)
        .await;
    assert_eq!(moved.unwrap(), WriteOutcome::Missing);
    fixture.set_expiry(&foreign, "now()").await;
    let expired = fixture
        .invites()
        .expire(fixture.account, foreign.id, Pending, Expired)
        .await;
    assert!(!expired.unwrap().is_done());
    let stored = fixture
        .invites()
        .invite(other_account, foreign.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stored.status, Pending);
}

#[tokio::test]
async fn invite_accepted_by_a_member_stays_pending() {
    let fixture = DbFixture::new().await;
    let invite = fixture.invited(fixture.account, "bia@example.com", 1).await;
    let acceptance = fixture.acceptance(&invite, fixture.user);
    assert!(!fixture.invites().accept(&acceptance).await.unwrap().is_done());
    assert_eq!(fixture.status(&invite).await, Pending);
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 0);
    assert_eq!(fixture.number("SELECT count(*) FROM invite_tokens").await, 1);
}

#[tokio::test]
async fn invite_expires_by_the_database_clock() {
    let fixture = DbFixture::new().await;
    let user = fixture.non_member().await;
    let invite = fixture.invited(fixture.account, "bia@example.com", 1).await;
    let expire = async || {
        let invites = fixture.invites();
        invites
            .expire(fixture.account, invite.id, Pending, Expired)
            .await
            .unwrap()
    };
    assert!(!expire().await.is_done(), "not before its time");
    fixture.set_expiry(&invite, "now() - interval '1 microsecond'").await;
    assert!(
        !fixture
            .invites()
            .accept(&fixture.acceptance(&invite, user))
            .await
            .unwrap()
            .is_done()
    );
    assert!(expire().await.is_done());
    assert!(!expire().await.is_done(), "once");
    assert_eq!(fixture.status(&invite).await, Expired);
    assert_eq!(fixture.number("SELECT count(*) FROM invite_tokens").await, 0);
    assert!(
        !fixture
            .invites()
            .accept(&fixture.acceptance(&invite, user))
            .await
            .unwrap()
            .is_done()
    );
    let moved = fixture
        .invites()
        .set_status(fixture.account, invite.id, Pending, Revoked)
        .await;
    assert_eq!(moved.unwrap(), WriteOutcome::Stale(Expired));
}

#[tokio::test]
async fn invite_revoked_and_accepted_at_once_does_one() {
    let fixture = DbFixture::new().await;
    for round in 1..=20 {
        let user = fixture.non_member().await;
        let invite = fixture
            .invited(fixture.account, &format!("b{round}@e.example"), round)
            .await;
        let (accepts, revokes) = (fixture.invites(), fixture.invites());
        let acceptance = fixture.acceptance(&invite, user);
        let (accepted, revoked) = tokio::join!(
            accepts.accept(&acceptance),
            revokes.set_status(fixture.account, invite.id, Pending, Revoked)
        );
        let (accepted, revoked) = (accepted.unwrap(), revoked.unwrap());
        assert_eq!(
            accepted,
            GuardOutcome::of(revoked == WriteOutcome::Stale(Accepted)),
            "{revoked:?}"
        );
        let members = format!("SELECT count(*) FROM account_users WHERE user_id = '{user}'");
        assert_eq!(fixture.number(&members).await, i64::from(accepted.is_done()));
    }
}
