//! Runs of retention, closed campaigns and the references of removed messages.

use std::collections::BTreeMap;

use recado_domain::callbacks::StatusUpdateStore as _;
use recado_domain::campaigns::{
    CampaignRefusal, CampaignStore as _, QueuedRun, QueuedStart, RetryOutcome, RetryRequest, RunRetryStore as _,
    RunStartStore as _, RunStore as _, Trigger, prepare_retry,
};
use recado_domain::direct_messages::{
    CreationOutcome, CreationPlan, Decision, DirectMessageStore as _, MessageInput, MessageRequest, RecipientInput,
    decide,
};
use recado_domain::messaging::{ContentInput, SendStatus};
use recado_domain::retention::{
    ArchiveFile, ArchiveStep, ArchiveStore, RetainedRows, RetentionBounds, RetentionKind, RetentionRuns as _,
    RetentionStore, RetentionTerms, RowBatch, StoredArchive,
};
use recado_domain::shared::{AccountId, CampaignId, Role, SendId, Tenant};
use recado_postgres::{PgDirectMessages, PgRetention};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::error_codes::ERROR_CODES;
use crate::holds::set_cap;
use crate::retries::retry_of;
use crate::status_updates::{in_flight, status_update};
use crate::support::{DbFixture, LEASE, id};

const BOUNDS: RetentionBounds = RetentionBounds {
    min_days: 30,
    max_days: 3650,
    force_days: None,
};

impl DbFixture {
    pub(crate) fn retention(&self) -> PgRetention {
        PgRetention::new(self.tenants.clone(), self.owner.clone())
    }
}

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

pub(crate) fn horizon() -> Option<OffsetDateTime> {
    Some(now() - Duration::days(30))
}

fn no_terms() -> RetentionTerms {
    RetentionTerms::default()
}

/// A campaign with three sends that ended 40 days ago. The first one failed.
pub(crate) async fn ended() -> (DbFixture, QueuedRun, Vec<SendId>) {
    let (fixture, run, sends) = in_flight().await;
    let updates = [
        status_update(Some(sends[0]), "m0", SendStatus::Failed),
        status_update(Some(sends[1]), "m1", SendStatus::Sent),
        status_update(Some(sends[2]), "m2", SendStatus::Sent),
    ];
    fixture.status_updates().apply(fixture.account, &updates).await.unwrap();
    fixture.runs().finish(run).await.unwrap();
    fixture
        .sql("UPDATE campaigns SET completed_at = now() - interval '40 days'")
        .await;
    (fixture, run, sends)
}

async fn statuses(fixture: &DbFixture) -> String {
    let query = "SELECT string_agg(status, ' ' ORDER BY wa_message_id) FROM campaign_sends";
    fixture.text(query).await.unwrap()
}

async fn next(fixture: &DbFixture, horizon: Option<OffsetDateTime>) -> ArchiveStep {
    fixture.retention().next(fixture.account, horizon, id()).await.unwrap()
}

pub(crate) fn file(key: Uuid, sends: i64) -> ArchiveFile {
    ArchiveFile {
        key,
        stored: StoredArchive {
            size: 7,
            sha256: [1; 32],
        },
        sends,
        months: vec![],
    }
}

#[tokio::test]
async fn closed_campaign_ignores_status_updates_and_retries() {
    let (fixture, run, sends) = ended().await;
    assert_eq!(next(&fixture, None).await, ArchiveStep::None);
    let too_early = Some(now() - Duration::days(50));
    assert_eq!(next(&fixture, too_early).await, ArchiveStep::None);

    let campaign = fixture
        .campaigns()
        .find(fixture.account, run.campaign_id)
        .await
        .unwrap()
        .unwrap();
    let decided_before = retry_of(&fixture, &campaign).await;
    let ArchiveStep::Write(task) = next(&fixture, horizon()).await else {
        panic!("no campaign is over")
    };
    assert_eq!((task.counts.total, task.counts.sent, task.counts.failed), (3, 2, 1));
    let late = [status_update(Some(sends[1]), "m1", SendStatus::Read)];
    let unmatched = fixture.status_updates().apply(fixture.account, &late).await.unwrap();
    assert_eq!(unmatched, [0]);
    assert_eq!(statuses(&fixture).await, "failed sent sent");
    // A retry that was decided before the campaign was closed.
    let retried = fixture.runs().retry(&decided_before).await.unwrap();
    assert!(!matches!(retried, RetryOutcome::Started { .. }), "{retried:?}");
    assert_eq!(statuses(&fixture).await, "failed sent sent");

    // The term became longer before the file was verified: the campaign is as before.
    assert_eq!(next(&fixture, too_early).await, ArchiveStep::None);
    fixture.status_updates().apply(fixture.account, &late).await.unwrap();
    assert_eq!(statuses(&fixture).await, "failed read sent");
    fixture.assert_recount().await;
}

#[tokio::test]
async fn campaign_that_may_change_is_not_archived() {
    let (fixture, ..) = ended().await;
    for (change, back) in [
        (
            "UPDATE campaigns SET retry_scheduled_at = now()",
            "UPDATE campaigns SET retry_scheduled_at = NULL",
        ),
        (
            "UPDATE campaigns SET status = 'sending'",
            "UPDATE campaigns SET status = 'partial'",
        ),
        (
            "UPDATE campaign_sends SET unknown_at = now() WHERE wa_message_id = 'm1'",
            "UPDATE campaign_sends SET unknown_at = NULL",
        ),
        (
            "INSERT INTO campaign_retry_batches (account_id, campaign_id, batch_no, send_ids)
               SELECT account_id, id, 1, '{}' FROM campaigns",
            "DELETE FROM campaign_retry_batches",
        ),
        (
            "INSERT INTO partition_horizons VALUES ('campaign_sends', now() + interval '1 day')",
            "DELETE FROM partition_horizons",
        ),
    ] {
        fixture.sql(change).await;
        assert_eq!(next(&fixture, horizon()).await, ArchiveStep::None, "{change}");
        fixture.sql(back).await;
    }
    assert!(matches!(next(&fixture, horizon()).await, ArchiveStep::Write(_)));
}

#[tokio::test]
async fn sends_leave_only_with_the_file_of_the_current_attempt() {
    let (fixture, run, _) = ended().await;
    let (store, account, campaign) = (fixture.retention(), fixture.account, run.campaign_id);
    let remove = async || {
        store
            .remove_sends(account, campaign, SendId(Uuid::nil()), 2)
            .await
            .unwrap()
    };
    let (ArchiveStep::Write(first), ArchiveStep::Write(second)) =
        (next(&fixture, horizon()).await, next(&fixture, horizon()).await)
    else {
        panic!("no attempt")
    };
    assert_eq!(second.abandoned, [first.key]);
    assert!(!store.complete(account, campaign, &file(first.key, 3)).await.unwrap());
    assert_eq!(remove().await, None);
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_sends").await, 3);
    fixture.sql("UPDATE campaign_archives SET removed_at = NULL").await;

    assert!(store.complete(account, campaign, &file(second.key, 3)).await.unwrap());
    assert!(!store.complete(account, campaign, &file(second.key, 3)).await.unwrap());
    assert_eq!(next(&fixture, None).await, ArchiveStep::Remove(campaign));
    let last = remove().await.unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_sends").await, 1);
    assert!(store.remove_sends(account, campaign, last, 2).await.unwrap().is_some());
    assert_eq!(store.remove_sends(account, campaign, last, 2).await.unwrap(), None);
    assert_eq!(next(&fixture, horizon()).await, ArchiveStep::None);
    let (path, stored) = ArchiveStore::find(&store, account, campaign).await.unwrap().unwrap();
    assert_eq!((path.key, stored), (second.key, file(second.key, 3).stored));
    assert_eq!(fixture.number("SELECT total FROM campaign_counters").await, 3);
    let other = fixture.another_account().await;
    assert!(ArchiveStore::find(&store, other, campaign).await.unwrap().is_none());
    let unknown = CampaignId(id());
    assert!(ArchiveStore::find(&store, account, unknown).await.unwrap().is_none());
}

/// The retry of an archived campaign is refused with its own reason, also if it was decided before.
#[tokio::test]
async fn archived_campaign_is_not_retried() {
    let (fixture, run, _) = ended().await;
    let ArchiveStep::Write(task) = next(&fixture, horizon()).await else {
        panic!("no attempt")
    };
    let store = fixture.retention();
    store
        .complete(fixture.account, run.campaign_id, &file(task.key, 3))
        .await
        .unwrap();
    let campaign = fixture
        .campaigns()
        .find(fixture.account, run.campaign_id)
        .await
        .unwrap()
        .unwrap();
    assert!(campaign.archived_at.is_some());
    let facts = fixture
        .runs()
        .facts(fixture.account, run.campaign_id)
        .await
        .unwrap()
        .unwrap();
    let start = QueuedStart {
        trigger: Trigger::Retry,
        actor: None,
    };
    let refused = prepare_retry(facts, start, RetryRequest::default());
    assert_eq!(refused.err(), Some(CampaignRefusal::Archived));
}

/// A start that the limit counts stays, also if its term is shorter.
#[tokio::test]
async fn campaign_is_archived_when_no_limit_counts_its_starts() {
    let (fixture, ..) = ended().await;
    let count = async || {
        let (store, kind) = (fixture.retention(), RetentionKind::CampaignSends);
        store.count(fixture.account, kind, horizon().unwrap()).await.unwrap()
    };
    set_cap(&fixture, 1, 41).await;
    assert_eq!((next(&fixture, horizon()).await, count().await), (ArchiveStep::None, 0));
    set_cap(&fixture, 1, 40).await;
    assert_eq!(count().await, 3);
    assert!(matches!(next(&fixture, horizon()).await, ArchiveStep::Write(_)));
    // A limit that is set before the file was verified opens the campaign again.
    set_cap(&fixture, 1, 90).await;
    assert_eq!(next(&fixture, horizon()).await, ArchiveStep::None);
    let closed = "SELECT count(*) FROM campaigns WHERE archiving_at IS NOT NULL";
    assert_eq!(fixture.number(closed).await, 0);
}

#[tokio::test]
async fn direct_message_leaves_when_no_limit_counts_its_start() {
    let fixture = DbFixture::new().await;
    let (account, contact, template) = (fixture.account, id(), id());
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name) VALUES ('{account}', '{contact}', 'c');
             INSERT INTO message_templates (account_id, id, name, category, language, template_type)
               VALUES ('{account}', '{template}', 't', 'MARKETING', 'pt_BR', 'standard');
             INSERT INTO direct_messages (account_id, id, contact_id, profile_id, kind, template_id, request, status,
               client_reference, is_marketing, started_at, send_at, expires_at, created_by, created_at, updated_at)
             SELECT '{account}', gen_random_uuid(), '{contact}', '{contact}', k.kind, k.template::uuid, '{{}}', k.status,
               k.reference, k.is_marketing, t.started, t.made, t.made, '{contact}', t.made, t.made
             FROM (VALUES ('text', NULL, 'sent', 'text', false), ('template', '{template}', 'sent', 'marketing', true),
                 ('template', '{template}', 'failed', 'failed', true), ('template', '{template}', 'read', 'utility', false),
                 ('template', '{template}', 'cancelled', 'cancelled', NULL),
                 ('template', '{template}', 'read', 'unmarked', NULL)) k (kind, template, status, reference, is_marketing)
             CROSS JOIN (SELECT now() - interval '41 days', now() - interval '40 days') t (made, started)"
        ))
        .await;
    fixture
        .sql("UPDATE direct_messages SET started_at = NULL WHERE status = 'cancelled'")
        .await;
    let store = fixture.retention();
    let removed = async || {
        let old = horizon().unwrap();
        let counted = store.count(account, RetentionKind::Messages, old).await.unwrap();
        let removed = store
            .remove(account, RetainedRows::DirectMessages, old, RowBatch::first(10))
            .await
            .unwrap();
        assert_eq!(counted, removed.count);
        removed.count
    };
    set_cap(&fixture, 1, 41).await;
    assert_eq!(removed().await, 4);
    let left = "SELECT string_agg(client_reference, ' ' ORDER BY client_reference) FROM direct_messages";
    assert_eq!(fixture.text(left).await.unwrap(), "marketing unmarked");
    set_cap(&fixture, 1, 40).await;
    assert_eq!(removed().await, 2);
}

/// The next batch does not read the rows again that stay before the last one that was removed.
#[tokio::test]
async fn batch_of_direct_messages_begins_after_the_one_before() {
    let fixture = DbFixture::new().await;
    let (account, contact) = (fixture.account, id());
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name) VALUES ('{account}', '{contact}', 'c');
             INSERT INTO direct_messages (account_id, id, contact_id, profile_id, kind, request, status, client_reference,
               send_at, expires_at, created_by, created_at, updated_at)
             SELECT '{account}', gen_random_uuid(), '{contact}', '{contact}', 'text', '{{}}',
               CASE WHEN n = 1 THEN 'pending' ELSE 'sent' END, 'r' || n, t, t, '{contact}', t, t
             FROM generate_series(1, 5) n, LATERAL (SELECT now() - interval '90 days' + n * interval '1 hour') s (t)"
        ))
        .await;
    let store = fixture.retention();
    let remove = |batch| store.remove(account, RetainedRows::DirectMessages, horizon().unwrap(), batch);
    let first = remove(RowBatch::first(2)).await.unwrap();
    assert_eq!(first.count, 2);
    // A row before the last one that ends meanwhile stays until the next run.
    fixture.sql("UPDATE direct_messages SET status = 'sent'").await;
    let next = |after| RowBatch { after, limit: 2 };
    let second = remove(next(first.last)).await.unwrap();
    assert_eq!(second.count, 2);
    assert_eq!(
        fixture
            .text("SELECT client_reference FROM direct_messages")
            .await
            .as_deref(),
        Some("r1")
    );
    let last = remove(next(second.last)).await.unwrap();
    assert_eq!((last.count, last.last), (0, None));
    assert_eq!(remove(RowBatch::first(2)).await.unwrap().count, 1);
}

async fn set_terms(fixture: &DbFixture, account: AccountId, due: &str) {
    fixture
        .sql(&format!(
            "INSERT INTO retention_settings (account_id, version, next_run_at)
               VALUES ('{account}', 1, now() - interval '{due}')"
        ))
        .await;
}

#[tokio::test]
async fn runs_are_claimed_once_by_the_longest_wait() {
    let fixture = DbFixture::new().await;
    let (store, other) = (fixture.retention(), fixture.another_account().await);
    assert_eq!(store.claim(id(), LEASE, &BOUNDS).await.unwrap(), None);
    set_terms(&fixture, fixture.account, "1 minute").await;
    set_terms(&fixture, other, "1 hour").await;
    let first = store.claim(id(), LEASE, &BOUNDS).await.unwrap().unwrap();
    let second = store.claim(id(), LEASE, &BOUNDS).await.unwrap().unwrap();
    assert_eq!((first.account_id, second.account_id), (other, fixture.account));
    assert_eq!(store.claim(id(), LEASE, &BOUNDS).await.unwrap(), None);
    assert!(store.renew(&first, LEASE).await.unwrap());
    // A large account waits behind the others after its iteration.
    store.end(&first, Some(first.now), None).await.unwrap();
    store
        .end(&second, Some(second.now - Duration::HOUR), None)
        .await
        .unwrap();
    let next = store.claim(id(), LEASE, &BOUNDS).await.unwrap().unwrap();
    assert_eq!(next.account_id, fixture.account);
    // A worker that died is replaced, and may not go on.
    fixture
        .sql("UPDATE retention_settings SET leased_until = now() - interval '1 second', next_run_at = now() - interval '1 day'
              WHERE claim_id IS NOT NULL")
        .await;
    let replaced = store.claim(id(), LEASE, &BOUNDS).await.unwrap().unwrap();
    assert_eq!(replaced.account_id, fixture.account);
    assert!(!store.renew(&next, LEASE).await.unwrap());
    // A change of the terms ends the run, whose end keeps the new time of the next one.
    let soon = now() - Duration::MINUTE;
    let is_stored = store
        .update(fixture.account, &no_terms(), 1, Some(soon), &[])
        .await
        .unwrap();
    assert!(is_stored && !store.renew(&replaced, LEASE).await.unwrap());
    store.end(&replaced, None, None).await.unwrap();
    assert!(
        RetentionStore::find(&store, fixture.account)
            .await
            .unwrap()
            .next_run_at
            .is_some()
    );
    assert!(!store.update(fixture.account, &no_terms(), 1, None, &[]).await.unwrap());
}

#[tokio::test]
async fn forced_term_gives_every_account_a_run() {
    let fixture = DbFixture::new().await;
    let store = fixture.retention();
    let forced = RetentionBounds {
        force_days: Some(30),
        ..BOUNDS
    };
    let claim = store.claim(id(), LEASE, &forced).await.unwrap().unwrap();
    assert_eq!((claim.account_id, claim.version), (fixture.account, 0));
    assert!(claim.terms.horizon(RetentionKind::Orders, &forced, claim.now).is_some());
    // Its first change has the version that a missing row has.
    assert!(store.update(fixture.account, &no_terms(), 0, None, &[]).await.unwrap());
}

#[tokio::test]
async fn rows_leave_in_batches_and_are_remembered_as_missing() {
    let fixture = DbFixture::new().await;
    let (store, other) = (fixture.retention(), fixture.another_account().await);
    for account in [fixture.account, other] {
        fixture
            .sql(&format!(
                "INSERT INTO notifications (account_id, id, type, title, message)
                   SELECT '{account}', first_id(now() - n * interval '1 day'), 'info', 't', 'm'
                   FROM generate_series(1, 50) n"
            ))
            .await;
    }
    let (rows, before) = (RetainedRows::Notifications, now() - Duration::days(30));
    let mut removed = vec![];
    while removed.last() != Some(&0) {
        let batch = store.remove(fixture.account, rows, before, RowBatch::first(8));
        removed.push(batch.await.unwrap().count);
    }
    assert_eq!(removed, [8, 8, 5, 0]);
    let left = |account: AccountId| format!("SELECT count(*) FROM notifications WHERE account_id = '{account}'");
    assert_eq!(fixture.number(&left(fixture.account)).await, 29);
    assert_eq!(fixture.number(&left(other)).await, 50);
    let horizons = "SELECT string_agg(account_id || ' ' || table_name, ',') FROM retention_horizons";
    let expected = format!("{} notifications", fixture.account);
    assert_eq!(fixture.text(horizons).await.unwrap(), expected);
}

/// A removal that commits between the read of the facts and the insert.
#[tokio::test]
async fn reference_of_a_removed_message_is_not_used_again() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    let (contact, old, new) = (id(), id(), id());
    let insert = |message: Uuid, age: u32| {
        format!(
            "INSERT INTO direct_messages (account_id, id, contact_id, profile_id, kind, request, client_reference, status,
               send_at, expires_at, created_by, created_at, updated_at)
             SELECT '{account}', '{message}', '{contact}', '{contact}', 'text', '{{\"text\": \"oi\"}}', 'r1', 'sent',
               t, t, '{contact}', t, t FROM (SELECT now() - interval '{age} days') s (t)"
        )
    };
    let name = format!("INSERT INTO contacts (account_id, id, name) VALUES ('{account}', '{contact}', 'c')");
    fixture.sql(&format!("{name}; {}", insert(old, 40))).await;
    let removed = fixture
        .retention()
        .remove(
            account,
            RetainedRows::DirectMessages,
            horizon().unwrap(),
            RowBatch::first(10),
        )
        .await;
    assert_eq!(removed.unwrap().count, 1);
    let references = "SELECT message_id || ' ' || status || ' ' || length(request_hash) FROM direct_message_references";
    assert_eq!(fixture.text(references).await.unwrap(), format!("{old} sent 32"));
    // Removed twice (a server of the previous version made it again): the first message keeps the reference.
    fixture.sql(&insert(new, 40)).await;
    let store = fixture.retention();
    let again = store.remove(
        account,
        RetainedRows::DirectMessages,
        horizon().unwrap(),
        RowBatch::first(10),
    );
    assert_eq!(again.await.unwrap().count, 1);
    assert_eq!(fixture.text(references).await.unwrap(), format!("{old} sent 32"));
}

/// The insert looks for removed references after it has inserted, so a removal in between is found.
#[tokio::test]
async fn message_with_a_reference_that_was_removed_meanwhile_is_decided_again() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    let contact = id();
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name, phone) VALUES ('{account}', '{contact}', 'c', '+5511961234567');
             INSERT INTO conversations (account_id, id, contact_id, last_message_at, last_inbound_at)
               VALUES ('{account}', '{contact}', '{contact}', now(), now())"
        ))
        .await;
    let input = MessageInput {
        to: Some(RecipientInput {
            phone: Some("+5511961234567".into()),
            ..RecipientInput::default()
        }),
        content: ContentInput::text("oi"),
        client_reference: Some("r1".into()),
        ..MessageInput::default()
    };
    let request = MessageRequest::parse(input).unwrap();
    let store = PgDirectMessages::new(fixture.tenants.clone(), ERROR_CODES);
    let facts = store.facts(account, std::slice::from_ref(&request)).await.unwrap();
    let tenant = Tenant::for_tests(account, fixture.user, Role::Owner);
    let Decision::New(message, None) = decide(&tenant, &request, &facts, &id) else {
        panic!("not a new message")
    };
    let plan = CreationPlan {
        contacts: vec![],
        messages: vec![*message],
        quota: BTreeMap::new(),
        monthly_limit: 0,
        now: facts.now,
    };
    let reference = format!("INSERT INTO direct_message_references VALUES ('{account}', 'r1', '{contact}', 'read')");
    fixture.sql(&reference).await;
    assert_eq!(store.insert(account, &plan).await.unwrap(), CreationOutcome::Changed);
    for table in ["direct_messages", "direct_message_queues"] {
        assert_eq!(fixture.number(&format!("SELECT count(*) FROM {table}")).await, 0);
    }
    let facts = store.facts(account, std::slice::from_ref(&request)).await.unwrap();
    // Without a hash any request repeats the removed one.
    let removed = decide(&tenant, &request, &facts, &id);
    assert!(
        matches!(removed, Decision::Removed(message) if message.id.0 == contact),
        "no repetition"
    );
    fixture.sql("DELETE FROM direct_message_references").await;
    assert_eq!(store.insert(account, &plan).await.unwrap(), CreationOutcome::Inserted);
}
