//! Limits on mail to one address: one an hour from an account, five a day from all accounts.

use futures_util::future::join_all;
use recado_domain::mail::{OutgoingMail, RecipientHash};
use recado_domain::shared::{AccountId, Role, Sealed};
use recado_domain::team::{Invite, InviteInsert, InviteOutcome, InviteStatus, InviteStore as _};
use time::{Duration, OffsetDateTime};

use crate::support::{DbFixture, id};

fn invite(fixture: &DbFixture, account: AccountId, email: &str) -> InviteInsert {
    let now = OffsetDateTime::now_utc();
    let mut token_hash = id().as_bytes().to_vec();
    token_hash.resize(32, 0);
    InviteInsert {
        account_id: account,
        invite: Invite {
            id: id().into(),
            email: email.into(),
            role: Role::Member,
            status: InviteStatus::Pending,
            expires_at: now + Duration::HOUR,
            created_at: now,
        },
        invited_by: fixture.user,
        token_hash,
        superseded: (InviteStatus::Pending, InviteStatus::Revoked),
        mail: Some(OutgoingMail {
            id: id().into(),
            content: Sealed(vec![1]),
        }),
        recipient: RecipientHash(email.as_bytes().to_vec()),
    }
}

async fn mailed(fixture: &DbFixture, account: AccountId, email: &str) -> bool {
    let insert = invite(fixture, account, email);
    match fixture.invites().insert(&insert, 100).await.unwrap() {
        InviteOutcome::Done { mailed } => mailed,
        InviteOutcome::Full => panic!("the account is full"),
    }
}

async fn age(fixture: &DbFixture, interval: &str) {
    fixture
        .sql(&format!(
            "UPDATE mail_recipients SET mailed_at = mailed_at - interval '{interval}'"
        ))
        .await;
}

#[tokio::test]
async fn address_gets_one_mail_an_hour_of_an_account() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    assert!(mailed(&fixture, account, "bia@example.com").await);
    assert!(!mailed(&fixture, account, "bia@example.com").await);
    assert!(mailed(&fixture, account, "caio@example.com").await);
    age(&fixture, "59 minutes").await;
    assert!(!mailed(&fixture, account, "bia@example.com").await);
    age(&fixture, "1 minute").await;
    assert!(mailed(&fixture, account, "bia@example.com").await);
    // Every invite exists, with or without its mail.
    assert_eq!(fixture.number("SELECT count(*) FROM team_invites").await, 5);
    assert_eq!(fixture.number("SELECT count(*) FROM outgoing_mail").await, 3);
}

#[tokio::test]
async fn address_gets_five_mails_a_day_of_all_accounts() {
    let fixture = DbFixture::new().await;
    let mut accounts = Vec::new();
    for _ in 0..10 {
        accounts.push(fixture.another_account().await);
    }
    let sent = join_all(
        accounts
            .iter()
            .map(|account| mailed(&fixture, *account, "bia@example.com")),
    )
    .await;
    assert_eq!(sent.iter().filter(|mailed| **mailed).count(), 5, "{sent:?}");
    age(&fixture, "24 hours").await;
    assert!(mailed(&fixture, accounts[0], "bia@example.com").await);
    // The mail of the next day deleted the expired rows.
    assert_eq!(fixture.number("SELECT count(*) FROM mail_recipients").await, 1);
}

#[tokio::test]
async fn pending_invites_are_limited_under_concurrency() {
    let fixture = DbFixture::new().await;
    let inserts: Vec<_> = (0..12)
        .map(|n| invite(&fixture, fixture.account, &format!("p{n}@example.com")))
        .collect();
    let outcomes = join_all(
        inserts
            .iter()
            .map(async |insert| fixture.invites().insert(insert, 5).await.unwrap()),
    )
    .await;
    let full = outcomes
        .iter()
        .filter(|outcome| **outcome == InviteOutcome::Full)
        .count();
    assert_eq!(full, 7);
    let insert = |email: &str| invite(&fixture, fixture.account, email);
    // An invite that supersedes a pending one needs no room.
    let pending = fixture.text("SELECT min(email) FROM team_invites").await.unwrap();
    let again = fixture.invites().insert(&insert(&pending), 5).await.unwrap();
    assert!(matches!(again, InviteOutcome::Done { .. }));
    // An expired invite makes room, and so does a revoked one.
    for change in ["expires_at = now()", "status = 'revoked'"] {
        let email = format!("{}@example.com", id());
        assert_eq!(
            fixture.invites().insert(&insert(&email), 5).await.unwrap(),
            InviteOutcome::Full
        );
        fixture
            .sql(&format!(
                "UPDATE team_invites SET {change} WHERE id = (SELECT id FROM team_invites
                   WHERE status = 'pending' AND expires_at > now() LIMIT 1)"
            ))
            .await;
        let outcome = fixture.invites().insert(&insert(&email), 5).await.unwrap();
        assert!(matches!(outcome, InviteOutcome::Done { .. }), "{change}");
    }
}
