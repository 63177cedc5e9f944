//! Pipelined reads are sent in one flush, and no read returns rows of another account.

use std::time::Duration;

use futures_util::future::join_all;
use recado_domain::automations::AutomationStore;
use recado_domain::billing::{BillingAccountStore, SubscriptionStore};
use recado_domain::brand::BrandStore;
use recado_domain::campaigns::{CampaignQuery, CampaignSort, CampaignStore, QueuedRun, RunStartStore as _};
use recado_domain::contacts::{ContactFilter, ContactQuery, ContactStore, TagStore};
use recado_domain::conversations::{ConversationQuery, ConversationStore};
use recado_domain::folders::{FolderQuery, FolderStore};
use recado_domain::links::LinkStore;
use recado_domain::segments::SegmentStore;
use recado_domain::settings::SettingsStore;
use recado_domain::shared::{
    AccountId, ContactId, ConversationId, CursorQuery, PageQuery, ProfileId, SegmentId, StoreError, SubscriptionId,
    WebhookId,
};
use recado_domain::templates::TemplateStore;
use recado_domain::webhooks::{LogQuery, WebhookLogStore, WebhookStore};
use recado_domain::whatsapp::ProfileStore;
use recado_postgres::testing::{StatementCaching, read, read_both};
use recado_postgres::{
    PgAutomations, PgBrand, PgCampaigns, PgContacts, PgConversations, PgFolders, PgLinks, PgProfiles, PgRuns,
    PgSegments, PgSettings, PgSubscriptions, PgTags, PgTemplates, PgWebhooks, PoolConfig, TenantPool,
};
use recado_testkit::DEADLINE;
use tokio::task::coop::consume_budget;
use tokio::task::yield_now;

use crate::error_codes::ERROR_CODES;
use crate::pool::assert_quiet;
use crate::support::{DbFixture, id};
use crate::wire::Wire;

const NAMES: &str = "SELECT name AS text FROM contacts ORDER BY id";
const BROKEN: &str = "SELECT (1 / (length(name) - length(name)))::text AS text FROM contacts";

/// A statement that returns the same rows as `NAMES`, but that a connection prepares separately.
fn variant(number: usize) -> String {
    format!("{NAMES} /* {number} */")
}

async fn names(fixture: &DbFixture, account: AccountId) -> Vec<String> {
    let query = format!("SELECT name FROM contacts WHERE account_id = '{account}' ORDER BY id");
    let rows = fixture.client.query(&query, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// A proxy with an open connection, an account with three contacts, and their names.
async fn open_proxy() -> (DbFixture, Wire, Vec<String>) {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    let wire = Wire::to(&fixture.db);
    read(
        &wire.tenants,
        fixture.account,
        StatementCaching::Yes,
        "SELECT 'open' AS text",
    )
    .await
    .unwrap();
    let people = names(&fixture, fixture.account).await;
    assert_eq!(people.len(), 3);
    wire.take_messages();
    (fixture, wire, people)
}

/// The messages of a read transaction with these messages between `BEGIN` and `COMMIT`.
fn transaction_messages(fixture: &DbFixture, queries: &[&str]) -> Vec<String> {
    let begin = format!("BEGIN READ ONLY; SET LOCAL app.account_id = '{}'", fixture.account);
    let mut messages = vec![begin];
    messages.extend(queries.iter().map(|&message| message.to_owned()));
    messages.push("COMMIT".to_owned());
    messages
}

#[tokio::test]
async fn prepared_read_sends_one_flush() {
    let (fixture, wire, people) = open_proxy().await;
    for statement in [NAMES, &variant(1), &variant(2)] {
        // Unprepared: only the preparation is sent with `BEGIN`, and `COMMIT` waits for the last row.
        let first = read(&wire.tenants, fixture.account, StatementCaching::Yes, statement)
            .await
            .unwrap();
        assert_eq!(first, people);
        assert_eq!(
            wire.take_messages(),
            (transaction_messages(&fixture, &["parse", "bind", "execute"]), 3)
        );
        for _ in 0..5 {
            let next = read(&wire.tenants, fixture.account, StatementCaching::Yes, statement)
                .await
                .unwrap();
            assert_eq!(next, people);
            assert_eq!(
                wire.take_messages(),
                (transaction_messages(&fixture, &["bind", "execute"]), 1)
            );
        }
    }
}

#[tokio::test]
async fn uncached_read_sends_commit_after_its_rows() {
    let (fixture, wire, people) = open_proxy().await;
    for _ in 0..3 {
        let found = read(&wire.tenants, fixture.account, StatementCaching::No, NAMES)
            .await
            .unwrap();
        assert_eq!(found, people);
        assert_eq!(
            wire.take_messages(),
            (transaction_messages(&fixture, &["parse", "bind", "execute"]), 3)
        );
    }
}

#[tokio::test]
async fn two_prepared_reads_share_one_flush() {
    let (fixture, wire, people) = open_proxy().await;
    let both = async |first: usize, second: usize| {
        let (first, second) = (variant(first), variant(second));
        let found = read_both(&wire.tenants, fixture.account, &first, &second)
            .await
            .unwrap();
        assert_eq!(found, (people.clone(), people.clone()));
        let (messages, flushes) = wire.take_messages();
        let (begin, end) = (transaction_messages(&fixture, &[])[0].clone(), "COMMIT".to_owned());
        assert_eq!(
            (messages.first(), messages.last()),
            (Some(&begin), Some(&end)),
            "{messages:?}"
        );
        assert_eq!(messages.iter().filter(|message| **message == end).count(), 1);
        flushes
    };
    assert!(both(1, 2).await > 1, "both statements are unprepared");
    assert_eq!(both(1, 2).await, 1);
    assert!(both(1, 3).await > 1, "the second statement is unprepared");
    assert!(both(4, 1).await > 1, "the first statement is unprepared");
    assert_eq!(both(4, 3).await, 1);
}

#[tokio::test]
async fn read_waits_for_a_slow_preparation() {
    let (fixture, wire, people) = open_proxy().await;
    wire.hold_responses();
    let pending_read = read(&wire.tenants, fixture.account, StatementCaching::Yes, NAMES);
    let released = async {
        let deadline = std::time::Instant::now() + DEADLINE;
        while !wire.has_message("parse") {
            assert!(std::time::Instant::now() < deadline, "the statement is not prepared");
            yield_now().await;
        }
        // The proxy holds the response, so only the first flush has passed.
        assert!(!wire.has_message("COMMIT") && !wire.has_message("execute"));
        wire.release_responses();
    };
    let (found, ()) = tokio::join!(pending_read, released);
    assert_eq!(found.unwrap(), people);
    assert_eq!(
        wire.take_messages().0,
        transaction_messages(&fixture, &["parse", "bind", "execute"])
    );
}

#[tokio::test]
async fn read_that_runs_after_commit_is_rejected() {
    let (fixture, wire, people) = open_proxy().await;
    for _ in 0..20 {
        let late_read = read(&wire.tenants, fixture.account, StatementCaching::Deceptive, NAMES).await;
        let Err(StoreError::Failed(error)) = late_read else {
            panic!("{late_read:?}");
        };
        assert_eq!(error.to_string(), "invalid input syntax for type uuid: \"none\"");
        assert_eq!(wire.tenants.usage().open, 0, "the connection is not closed");
        let found = read(&wire.tenants, fixture.account, StatementCaching::Yes, NAMES)
            .await
            .unwrap();
        assert_eq!(found, people);
    }
}

/// Tokio's cooperative budget: after some work the runtime makes even uncontended locks pending. Every value of `work`
/// exhausts the budget at another step of the read.
#[tokio::test]
async fn read_with_exhausted_task_budget_sends_one_flush() {
    let (fixture, wire, people) = open_proxy().await;
    read(&wire.tenants, fixture.account, StatementCaching::Yes, NAMES)
        .await
        .unwrap();
    wire.take_messages();
    for work in 0..=130 {
        yield_now().await;
        for _ in 0..work {
            consume_budget().await;
        }
        let found = read(&wire.tenants, fixture.account, StatementCaching::Yes, NAMES)
            .await
            .unwrap();
        assert_eq!(found, people, "{work}");
        assert_eq!(
            wire.take_messages(),
            (transaction_messages(&fixture, &["bind", "execute"]), 1),
            "{work}"
        );
    }
}

#[tokio::test]
async fn failed_read_closes_its_connection() {
    let (fixture, wire, people) = open_proxy().await;
    for _ in 0..3 {
        // The first iteration prepares the statements, the next ones reuse them.
        let broken = read(&wire.tenants, fixture.account, StatementCaching::Yes, BROKEN).await;
        assert!(matches!(broken, Err(StoreError::Failed(_))), "{broken:?}");
        assert_eq!(wire.tenants.usage().open, 0);
        let written = read(
            &wire.tenants,
            fixture.account,
            StatementCaching::Yes,
            "DELETE FROM contacts RETURNING name AS text",
        )
        .await;
        assert!(matches!(written, Err(StoreError::Failed(_))), "{written:?}");
        let found = read(&wire.tenants, fixture.account, StatementCaching::Yes, NAMES)
            .await
            .unwrap();
        assert_eq!(found, people);
    }
    assert_eq!(names(&fixture, fixture.account).await, people);
}

/// Each transaction holds the lock that the other one needs. PostgreSQL aborts the read, which has waited longer.
#[tokio::test]
async fn read_that_loses_a_deadlock_is_retried() {
    let (fixture, wire, people) = open_proxy().await;
    fixture.sql("BEGIN; LOCK TABLE tags IN ACCESS EXCLUSIVE MODE").await;
    let pending_read = read_both(&wire.tenants, fixture.account, NAMES, "SELECT name AS text FROM tags");
    let crossed = async {
        fixture.blocked(1).await;
        fixture.sql("LOCK TABLE contacts IN ACCESS EXCLUSIVE MODE").await;
        fixture.sql("COMMIT").await;
    };
    let (found, ()) = tokio::join!(pending_read, crossed);
    assert_eq!(found.unwrap(), (people, vec![]));
    let (messages, _) = wire.take_messages();
    assert_eq!(
        messages
            .iter()
            .filter(|message| message.starts_with("BEGIN READ ONLY"))
            .count(),
        2
    );
}

/// Reads once to prepare the statements, then asserts that a second read needs one flush.
macro_rules! assert_flushed_once {
    ($wire:expr, $($read:expr),+ $(,)?) => {$(
        $read.await.unwrap();
        $wire.take_messages();
        $read.await.unwrap();
        let (messages, flushes) = $wire.take_messages();
        assert_eq!(flushes, 1, "{}: {messages:?}", stringify!($read));
    )+};
}

#[tokio::test]
async fn contact_reads_send_one_flush() {
    let (fixture, wire, _) = open_proxy().await;
    let (account, pool) = (fixture.account, || wire.tenants.clone());
    let (contacts, segments) = (PgContacts::new(pool()), PgSegments::new(pool()));
    let cursor_query = CursorQuery { cursor: None, limit: 2 };
    let all_contacts = ContactQuery {
        filter: ContactFilter::default(),
        page: cursor_query.clone(),
    };
    let folders = FolderQuery {
        kind: None,
        page: cursor_query.clone(),
    };
    assert_flushed_once!(
        wire,
        contacts.list(account, &all_contacts),
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
async fn campaign_reads_send_one_flush() {
    let (fixture, wire, _) = open_proxy().await;
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
        PgCampaigns::new(pool(), ERROR_CODES),
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
        PgRuns::new(pool(), fixture.owner.clone(), ERROR_CODES).queued_start(run),
        templates.find(account, campaign.template_id.unwrap()),
        templates.find_by_meta_id(account, "1"),
        profiles.list(account, &cursor_query),
        profiles.find(account, ProfileId(id())),
        profiles.default_profile(account),
    );
}

#[tokio::test]
async fn conversation_billing_and_webhook_reads_send_one_flush() {
    let (fixture, wire, _) = open_proxy().await;
    let (account, pool) = (fixture.account, || wire.tenants.clone());
    let page = PageQuery::new(None, None, 20, 100);
    let cursor_query = CursorQuery { cursor: None, limit: 2 };
    let open = ConversationQuery {
        status: None,
        page: cursor_query.clone(),
    };
    let (conversations, subscriptions, webhooks) = (
        PgConversations::new(pool(), fixture.owner.clone()),
        PgSubscriptions::new(pool(), fixture.owner.clone()),
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
        PgSettings::new(pool()).load(account),
    );
}

/// Reads of one account over connections that it shares with another account. The reads are prepared, unprepared,
/// uncached, failing or cancelled. Every successful read returns the contacts of the account.
async fn reader(pool: TenantPool, account: AccountId, people: Vec<String>, number: usize) {
    for step in 0..60 {
        let fresh = variant(1000 * number + step);
        let cancel_after = Duration::from_micros(u64::try_from(37 * step).unwrap());
        match step % 6 {
            0 => assert_eq!(
                read(&pool, account, StatementCaching::Yes, &fresh).await.unwrap(),
                people
            ),
            1 => assert_eq!(read(&pool, account, StatementCaching::No, NAMES).await.unwrap(), people),
            2 => assert!(read(&pool, account, StatementCaching::Yes, BROKEN).await.is_err()),
            3 => {
                let both = read_both(&pool, account, NAMES, &fresh).await.unwrap();
                assert_eq!(both, (people.clone(), people.clone()));
            }
            4 => {
                let pending_read = read(&pool, account, StatementCaching::Yes, &fresh);
                if let Ok(found) = tokio::time::timeout(cancel_after, pending_read).await {
                    assert_eq!(found.unwrap(), people);
                }
            }
            _ => {
                if let Ok(found) =
                    tokio::time::timeout(cancel_after, read(&pool, account, StatementCaching::Yes, NAMES)).await
                {
                    assert_eq!(found.unwrap(), people);
                }
            }
        }
        assert_eq!(
            read(&pool, account, StatementCaching::Yes, NAMES).await.unwrap(),
            people
        );
    }
}

async fn two_accounts_share(size: usize) {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    fixture.add_contacts(3).await;
    fixture.add_contacts_to(other_account, 5).await;
    fixture
        .sql(&format!(
            "UPDATE contacts SET name = 'other ' || name WHERE account_id = '{other_account}'"
        ))
        .await;
    let config = PoolConfig {
        size,
        // Many readers share few connections, which reopen all the time.
        wait_timeout: Duration::from_secs(60),
        ..fixture.db.config()
    };
    let pool = TenantPool::new(&config).unwrap();
    let mut readers = Vec::new();
    for number in 0..6 {
        let account = if number % 2 == 0 {
            fixture.account
        } else {
            other_account
        };
        let people = names(&fixture, account).await;
        readers.push(tokio::spawn(reader(pool.clone(), account, people, number)));
    }
    for result in join_all(readers).await {
        result.unwrap();
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

/// On several threads, responses arrive while a read is being polled.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn two_accounts_on_several_threads_never_see_each_other() {
    two_accounts_share(2).await;
}
