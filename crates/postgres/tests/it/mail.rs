//! The mail queue: leases, retries and concurrent workers.

use futures_util::future::join_all;
use recado_domain::mail::{ClaimedMail, MailQueue};
use recado_domain::shared::{AccountId, MailId, Sealed};
use recado_postgres::PgMailQueue;
use time::Duration;

use crate::support::{DbFixture, LEASE, id};

async fn insert_mail(fixture: &DbFixture, count: usize) -> Vec<MailId> {
    let ids: Vec<_> = (0..count).map(|_| id()).collect();
    for id in &ids {
        let account = fixture.account;
        let insert = "INSERT INTO outgoing_mail (id, account_id, content, due_at)";
        fixture
            .sql(&format!(
                "{insert} VALUES ('{id}', '{account}', '\\x0102', now() - interval '1 hour')"
            ))
            .await;
    }
    ids.into_iter().map(MailId::from).collect()
}

fn queue(fixture: &DbFixture) -> PgMailQueue {
    PgMailQueue::new(fixture.owner.clone())
}

#[tokio::test]
async fn mail_is_claimed_by_one_worker_until_its_lease_expires() {
    let fixture = DbFixture::new().await;
    let ids = insert_mail(&fixture, 1).await;
    let claimed = queue(&fixture).claim(LEASE, None).await.unwrap().unwrap();
    assert_eq!(
        (claimed.mail.id, claimed.account_id, claimed.attempts),
        (ids[0], fixture.account, 1)
    );
    assert_eq!(claimed.mail.content, Sealed(vec![1, 2]));
    assert_eq!(queue(&fixture).claim(LEASE, None).await.unwrap(), None);
    fixture
        .sql("UPDATE outgoing_mail SET due_at = due_at - interval '61 seconds'")
        .await;
    let again = queue(&fixture).claim(LEASE, None).await.unwrap().unwrap();
    assert_eq!((again.mail.id, again.attempts), (ids[0], 2));
    // The attempt number fences off the worker of the first claim.
    queue(&fixture).defer(ids[0], 1, Duration::ZERO).await.unwrap();
    assert_eq!(queue(&fixture).claim(LEASE, None).await.unwrap(), None);
    queue(&fixture).defer(ids[0], 2, Duration::ZERO).await.unwrap();
    assert_eq!(queue(&fixture).claim(LEASE, None).await.unwrap().unwrap().attempts, 3);
    queue(&fixture).delete(ids[0]).await.unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM outgoing_mail").await, 0);
}

#[tokio::test]
async fn deferred_mail_is_due_by_the_database_clock() {
    let fixture = DbFixture::new().await;
    let ids = insert_mail(&fixture, 1).await;
    let claimed = queue(&fixture).claim(LEASE, None).await.unwrap().unwrap();
    queue(&fixture)
        .defer(ids[0], claimed.attempts, Duration::minutes(5))
        .await
        .unwrap();
    assert_eq!(queue(&fixture).claim(LEASE, None).await.unwrap(), None);
    let remaining = "SELECT extract(epoch FROM due_at - now()) FROM outgoing_mail";
    let seconds = fixture.number(remaining).await;
    assert!((290..=300).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn concurrent_workers_claim_each_mail_once() {
    let fixture = DbFixture::new().await;
    let mut ids = insert_mail(&fixture, 30).await;
    let claims = (0..8).map(async |_| {
        let mut mine: Vec<ClaimedMail> = Vec::new();
        while let Some(claimed) = queue(&fixture).claim(LEASE, None).await.unwrap() {
            mine.push(claimed);
        }
        mine
    });
    let claimed = join_all(claims).await.concat();
    let mut seen: Vec<MailId> = claimed.iter().map(|claimed| claimed.mail.id).collect();
    seen.sort_unstable();
    ids.sort_unstable();
    assert_eq!(seen, ids);
}

/// Inserts mails of an account that are due now.
async fn insert_mails_of(fixture: &DbFixture, account: AccountId, count: u32) {
    fixture
        .sql(&format!(
            "INSERT INTO outgoing_mail (id, account_id, content, due_at)
             SELECT gen_random_uuid(), '{account}', '\\x01', clock_timestamp()
             FROM generate_series(1, {count}) n"
        ))
        .await;
}

#[tokio::test]
async fn mail_of_accounts_is_claimed_in_turn() {
    let fixture = DbFixture::new().await;
    let (second, third) = (fixture.another_account().await, fixture.another_account().await);
    insert_mails_of(&fixture, second, 5000).await;
    let queue = queue(&fixture);
    let mut previous = queue
        .claim(LEASE, None)
        .await
        .unwrap()
        .map(|claimed| claimed.account_id);
    assert_eq!(previous, Some(second));
    insert_mails_of(&fixture, fixture.account, 1).await;
    insert_mails_of(&fixture, third, 2).await;
    // Claims look for further accounts every 100 ms.
    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
    let mut accounts = Vec::new();
    for _ in 0..6 {
        previous = queue
            .claim(LEASE, previous)
            .await
            .unwrap()
            .map(|claimed| claimed.account_id);
        accounts.extend(previous);
    }
    let position = |account| accounts.iter().position(|claimed| *claimed == account).unwrap();
    // Each account had its turn within one round of three, whatever the order of their ids.
    assert!(position(fixture.account) < 3 && position(third) < 3, "{accounts:?}");
    let of = |account| accounts.iter().filter(|claimed| **claimed == account).count();
    assert_eq!((of(fixture.account), of(second), of(third)), (1, 3, 2));
}

#[tokio::test]
async fn mail_of_a_further_account_is_found_when_the_known_ones_have_none() {
    let fixture = DbFixture::new().await;
    let other = fixture.another_account().await;
    insert_mails_of(&fixture, fixture.account, 1).await;
    let queue = queue(&fixture);
    let first = queue.claim(LEASE, None).await.unwrap().unwrap().account_id;
    insert_mails_of(&fixture, other, 1).await;
    let second = queue.claim(LEASE, Some(first)).await.unwrap().unwrap().account_id;
    assert_eq!([first, second], [fixture.account, other]);
    assert_eq!(queue.claim(LEASE, Some(second)).await.unwrap(), None);
}

#[tokio::test]
async fn deferred_mail_of_the_next_account_is_passed_over() {
    let fixture = DbFixture::new().await;
    let other = fixture.another_account().await;
    insert_mails_of(&fixture, fixture.account, 1).await;
    insert_mails_of(&fixture, other, 1).await;
    let queue = queue(&fixture);
    let first = queue.claim(LEASE, None).await.unwrap().unwrap().account_id;
    fixture
        .sql(&format!(
            "UPDATE outgoing_mail SET due_at = now() + interval '1 hour' WHERE account_id <> '{first}';
             UPDATE outgoing_mail SET due_at = now() - interval '1 second' WHERE account_id = '{first}'"
        ))
        .await;
    let again = queue.claim(LEASE, Some(first)).await.unwrap().unwrap();
    assert_eq!(again.account_id, first);
    assert_eq!(queue.claim(LEASE, Some(first)).await.unwrap(), None);
}
