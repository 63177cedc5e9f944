//! Reads: they leave in one flush, and whatever happens, none of them answers without the account that it is of.

use std::time::Duration;

use futures_util::future::join_all;
use recado_domain::automations::AutomationStore;
use recado_domain::billing::SubscriptionStore;
use recado_domain::brand::BrandStore;
use recado_domain::campaigns::{CampaignQuery, CampaignSort, CampaignStore, QueuedRun, RunStore};
use recado_domain::contacts::{ContactFilter, ContactQuery, ContactStore, TagStore};
use recado_domain::conversations::{ConversationQuery, ConversationStore};
use recado_domain::folders::{FolderQuery, FolderStore};
use recado_domain::links::LinkStore;
use recado_domain::segments::SegmentStore;
use recado_domain::shared::{
    AccountId, ContactId, ConversationId, CursorQuery, PageQuery, ProfileId, SegmentId, StoreError, SubscriptionId,
    WebhookId,
};
use recado_domain::templates::TemplateStore;
use recado_domain::webhooks::{LogQuery, WebhookStore};
use recado_domain::whatsapp::ProfileStore;
use recado_postgres::testing::{Kept, read, read_both};
use recado_postgres::{
    PgAutomations, PgBrand, PgCampaigns, PgContacts, PgConversations, PgFolders, PgLinks, PgProfiles, PgRuns,
    PgSegments, PgSubscriptions, PgTags, PgTemplates, PgWebhooks, PoolConfig, TenantPool,
};
use tokio::task::coop::consume_budget;
use tokio::task::yield_now;

use crate::pool::assert_quiet;
use crate::support::{DbFixture, id};
use crate::wire::Wire;

const NAMES: &str = "SELECT name AS word FROM contacts ORDER BY id";
const BROKEN: &str = "SELECT (1 / (length(name) - length(name)))::text AS word FROM contacts";

/// The same statement to people, and another one to a connection.
fn variant(number: usize) -> String {
    format!("{NAMES} /* {number} */")
}

async fn names(fixture: &DbFixture, account: AccountId) -> Vec<String> {
    let query = format!("SELECT name FROM contacts WHERE account_id = '{account}' ORDER BY id");
    let rows = fixture.client.query(&query, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// A wire whose connection is open, an account of three people, and their names.
async fn wired() -> (DbFixture, Wire, Vec<String>) {
    let fixture = DbFixture::new().await;
    fixture.people(3).await;
    let wire = Wire::to(&fixture.db);
    read(&wire.tenants, fixture.account, Kept::Yes, "SELECT 'open' AS word")
        .await
        .unwrap();
    let people = names(&fixture, fixture.account).await;
    assert_eq!(people.len(), 3);
    wire.said();
    (fixture, wire, people)
}

/// What is said by a read of these messages.
fn said(fixture: &DbFixture, queries: &[&str]) -> Vec<String> {
    let begin = format!("BEGIN READ ONLY; SET LOCAL app.account_id = '{}'", fixture.account);
    let mut said = vec![begin];
    said.extend(queries.iter().map(|&message| message.to_owned()));
    said.push("COMMIT".to_owned());
    said
}

#[tokio::test]
async fn a_prepared_query_leaves_with_its_whole_transaction_in_one_flush() {
    let (fixture, wire, people) = wired().await;
    for statement in [NAMES, &variant(1), &variant(2)] {
        // Only the preparation leaves with the beginning; the end waits until the last row is there.
        let first = read(&wire.tenants, fixture.account, Kept::Yes, statement)
            .await
            .unwrap();
        assert_eq!(first, people);
        assert_eq!(wire.said(), (said(&fixture, &["parse", "bind", "execute"]), 3));
        for _ in 0..5 {
            let next = read(&wire.tenants, fixture.account, Kept::Yes, statement)
                .await
                .unwrap();
            assert_eq!(next, people);
            assert_eq!(wire.said(), (said(&fixture, &["bind", "execute"]), 1));
        }
    }
}

#[tokio::test]
async fn a_query_that_no_connection_keeps_is_never_overtaken() {
    let (fixture, wire, people) = wired().await;
    for _ in 0..3 {
        let found = read(&wire.tenants, fixture.account, Kept::No, NAMES).await.unwrap();
        assert_eq!(found, people);
        assert_eq!(wire.said(), (said(&fixture, &["parse", "bind", "execute"]), 3));
    }
}

#[tokio::test]
async fn two_queries_leave_together_once_both_are_prepared() {
    let (fixture, wire, people) = wired().await;
    let both = async |first: usize, second: usize| {
        let (first, second) = (variant(first), variant(second));
        let found = read_both(&wire.tenants, fixture.account, &first, &second)
            .await
            .unwrap();
        assert_eq!(found, (people.clone(), people.clone()));
        let (messages, flushes) = wire.said();
        let (begin, end) = (said(&fixture, &[])[0].clone(), "COMMIT".to_owned());
        assert_eq!(
            (messages.first(), messages.last()),
            (Some(&begin), Some(&end)),
            "{messages:?}"
        );
        assert_eq!(messages.iter().filter(|message| **message == end).count(), 1);
        flushes
    };
    assert!(both(1, 2).await > 1, "none is prepared");
    assert_eq!(both(1, 2).await, 1);
    assert!(both(1, 3).await > 1, "the second is not");
    assert!(both(4, 1).await > 1, "the first is not");
    assert_eq!(both(4, 3).await, 1);
}

#[tokio::test]
async fn a_preparation_that_takes_its_time_is_waited_for() {
    let (fixture, wire, people) = wired().await;
    wire.hold();
    let asked = read(&wire.tenants, fixture.account, Kept::Yes, NAMES);
    let released = async {
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while !wire.has_said("parse") {
            assert!(std::time::Instant::now() < deadline, "nothing is prepared");
            yield_now().await;
        }
        // Whatever leaves without an answer has left with the preparation.
        assert!(!wire.has_said("COMMIT") && !wire.has_said("execute"));
        wire.release();
    };
    let (found, ()) = tokio::join!(asked, released);
    assert_eq!(found.unwrap(), people);
    assert_eq!(wire.said().0, said(&fixture, &["parse", "bind", "execute"]));
}

#[tokio::test]
async fn a_query_that_was_overtaken_is_refused_by_the_database() {
    let (fixture, wire, people) = wired().await;
    for _ in 0..20 {
        let overtaken = read(&wire.tenants, fixture.account, Kept::Deceptive, NAMES).await;
        let Err(StoreError::Failed(error)) = overtaken else {
            panic!("{overtaken:?}");
        };
        assert_eq!(error.to_string(), "invalid input syntax for type uuid: \"none\"");
        assert_eq!(wire.tenants.usage().open, 0, "its connection is gone");
        let found = read(&wire.tenants, fixture.account, Kept::Yes, NAMES).await.unwrap();
        assert_eq!(found, people);
    }
}

/// After a while of work the runtime refuses a task its locks, so that others have their turn, whether anybody holds
/// them or not: between any two steps of a read.
#[tokio::test]
async fn a_task_that_has_worked_for_a_while_reads_as_any_other() {
    let (fixture, wire, people) = wired().await;
    read(&wire.tenants, fixture.account, Kept::Yes, NAMES).await.unwrap();
    wire.said();
    for work in 0..=130 {
        yield_now().await;
        for _ in 0..work {
            consume_budget().await;
        }
        let found = read(&wire.tenants, fixture.account, Kept::Yes, NAMES).await.unwrap();
        assert_eq!(found, people, "{work}");
        assert_eq!(wire.said(), (said(&fixture, &["bind", "execute"]), 1), "{work}");
    }
}

#[tokio::test]
async fn what_fails_in_a_read_closes_its_connection() {
    let (fixture, wire, people) = wired().await;
    for _ in 0..3 {
        // Prepared as well as not.
        let broken = read(&wire.tenants, fixture.account, Kept::Yes, BROKEN).await;
        assert!(matches!(broken, Err(StoreError::Failed(_))), "{broken:?}");
        assert_eq!(wire.tenants.usage().open, 0);
        let written = read(
            &wire.tenants,
            fixture.account,
            Kept::Yes,
            "DELETE FROM contacts RETURNING name AS word",
        )
        .await;
        assert!(matches!(written, Err(StoreError::Failed(_))), "{written:?}");
        let found = read(&wire.tenants, fixture.account, Kept::Yes, NAMES).await.unwrap();
        assert_eq!(found, people);
    }
    assert_eq!(names(&fixture, fixture.account).await, people);
}

/// Each holds what the other one waits for, and the database takes back the read, which has waited longer.
#[tokio::test]
async fn a_read_that_loses_a_deadlock_is_read_again() {
    let (fixture, wire, people) = wired().await;
    fixture.sql("BEGIN; LOCK TABLE tags IN ACCESS EXCLUSIVE MODE").await;
    let asked = read_both(&wire.tenants, fixture.account, NAMES, "SELECT name AS word FROM tags");
    let crossed = async {
        fixture.blocked(1).await;
        fixture.sql("LOCK TABLE contacts IN ACCESS EXCLUSIVE MODE").await;
        fixture.sql("COMMIT").await;
    };
    let (found, ()) = tokio::join!(asked, crossed);
    assert_eq!(found.unwrap(), (people, vec![]));
    let (messages, _) = wire.said();
    assert_eq!(
        messages.iter().filter(|message| message.starts_with("BEGIN")).count(),
        2
    );
}

/// Reads once, so that everything is prepared, and then again, in one flush.
macro_rules! assert_flushed_once {
    ($wire:expr, $($read:expr),+ $(,)?) => {$(
        $read.await.unwrap();
        $wire.said();
        $read.await.unwrap();
        let (messages, flushes) = $wire.said();
        assert_eq!(flushes, 1, "{}: {messages:?}", stringify!($read));
    )+};
}

#[tokio::test]
async fn contacts_and_what_is_kept_of_them_are_read_in_one_flush() {
    let (fixture, wire, _) = wired().await;
    let (account, pool) = (fixture.account, || wire.tenants.clone());
    let (contacts, segments) = (PgContacts::new(pool()), PgSegments::new(pool()));
    let cursor_query = CursorQuery { cursor: None, limit: 2 };
    let everybody = ContactQuery {
        filter: ContactFilter::default(),
        page: cursor_query.clone(),
    };
    let folders = FolderQuery {
        kind: None,
        page: cursor_query.clone(),
    };
    assert_flushed_once!(
        wire,
        contacts.list(account, &everybody),
        contacts.find(account, ContactId(id())),
        PgTags::new(pool()).list(account, &cursor_query),
        segments.list(account, &cursor_query),
        segments.find(account, SegmentId(id())),
        PgFolders::new(pool()).list(account, &folders),
        PgAutomations::new(pool()).list(account, &cursor_query),
        PgLinks::new(pool(), fixture.owner.clone()).list(account, &cursor_query),
    );
}

#[tokio::test]
async fn campaigns_and_what_they_are_made_of_are_read_in_one_flush() {
    let (fixture, wire, _) = wired().await;
    let (account, pool) = (fixture.account, || wire.tenants.clone());
    let campaign = fixture.stored_draft().await;
    let page = PageQuery::new(None, None, 20, 100);
    let list = CampaignQuery {
        page,
        sort: CampaignSort::CreatedAt,
        descending: true,
        folder_id: None,
    };
    let cursor_query = CursorQuery { cursor: None, limit: 2 };
    let (campaigns, templates, profiles) = (
        PgCampaigns::new(pool()),
        PgTemplates::new(pool()),
        PgProfiles::new(pool()),
    );
    let run = QueuedRun {
        account_id: account,
        campaign_id: campaign.id,
    };
    assert_flushed_once!(
        wire,
        campaigns.find(account, campaign.id),
        campaigns.list(account, &list),
        campaigns.stats(account, campaign.id),
        campaigns.sends(account, campaign.id, page),
        campaigns.unknown_references(account, &campaign),
        PgRuns::new(pool(), fixture.owner.clone()).queued_start(run),
        templates.find(account, campaign.template_id.unwrap()),
        templates.find_by_meta_id(account, "1"),
        profiles.list(account, &cursor_query),
        profiles.find(account, ProfileId(id())),
        profiles.default_profile(account),
    );
}

#[tokio::test]
async fn conversations_bills_and_endpoints_are_read_in_one_flush() {
    let (fixture, wire, _) = wired().await;
    let (account, pool) = (fixture.account, || wire.tenants.clone());
    let page = PageQuery::new(None, None, 20, 100);
    let cursor_query = CursorQuery { cursor: None, limit: 2 };
    let open = ConversationQuery {
        status: None,
        page: cursor_query.clone(),
    };
    let (conversations, subscriptions, webhooks) = (
        PgConversations::new(pool(), fixture.owner.clone()),
        PgSubscriptions::new(pool()),
        PgWebhooks::new(pool()),
    );
    assert_flushed_once!(
        wire,
        conversations.list(account, &open),
        conversations.messages(account, ConversationId(id()), &cursor_query),
        subscriptions.overview(account),
        subscriptions.find(account, SubscriptionId(id())),
        subscriptions.history(account, page),
        webhooks.page(account, page),
        webhooks.find(account, WebhookId(id())),
        webhooks.logs(account, &LogQuery::default()),
        PgBrand::new(pool()).find(account),
    );
}

/// Reads of one account over connections shared with another one: used ones, new ones, such as nobody keeps, such as
/// fail, and such as are given up. Whatever answers, answers with the account's own people.
async fn reader(pool: TenantPool, account: AccountId, people: Vec<String>, number: usize) {
    for step in 0..60 {
        let fresh = variant(1000 * number + step);
        let moment = Duration::from_micros(u64::try_from(37 * step).unwrap());
        match step % 6 {
            0 => assert_eq!(read(&pool, account, Kept::Yes, &fresh).await.unwrap(), people),
            1 => assert_eq!(read(&pool, account, Kept::No, NAMES).await.unwrap(), people),
            2 => assert!(read(&pool, account, Kept::Yes, BROKEN).await.is_err()),
            3 => {
                let both = read_both(&pool, account, NAMES, &fresh).await.unwrap();
                assert_eq!(both, (people.clone(), people.clone()));
            }
            4 => {
                let asked = read(&pool, account, Kept::Yes, &fresh);
                if let Ok(found) = tokio::time::timeout(moment, asked).await {
                    assert_eq!(found.unwrap(), people);
                }
            }
            _ => {
                if let Ok(found) = tokio::time::timeout(moment, read(&pool, account, Kept::Yes, NAMES)).await {
                    assert_eq!(found.unwrap(), people);
                }
            }
        }
        assert_eq!(read(&pool, account, Kept::Yes, NAMES).await.unwrap(), people);
    }
}

async fn two_accounts_share(size: usize) {
    let fixture = DbFixture::new().await;
    let other = fixture.another_account().await;
    fixture.people(3).await;
    fixture.people_of(other, 5).await;
    fixture
        .sql(&format!(
            "UPDATE contacts SET name = 'other ' || name WHERE account_id = '{other}'"
        ))
        .await;
    let config = PoolConfig {
        size,
        // Many wait for few connections here, which open anew all the time.
        wait_timeout: Duration::from_secs(60),
        ..fixture.db.config()
    };
    let pool = TenantPool::new(&config).unwrap();
    let mut readers = Vec::new();
    for number in 0..6 {
        let account = if number % 2 == 0 { fixture.account } else { other };
        let people = names(&fixture, account).await;
        readers.push(tokio::spawn(reader(pool.clone(), account, people, number)));
    }
    for done in join_all(readers).await {
        done.unwrap();
    }
    assert_quiet(&fixture).await;
    assert!(pool.usage().open <= size);
}

#[tokio::test]
async fn two_accounts_over_one_connection_never_see_each_other() {
    two_accounts_share(1).await;
}

#[tokio::test]
async fn two_accounts_over_two_connections_never_see_each_other() {
    two_accounts_share(2).await;
}

/// Here answers come while a read is being polled.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn two_accounts_on_several_threads_never_see_each_other() {
    two_accounts_share(2).await;
}
