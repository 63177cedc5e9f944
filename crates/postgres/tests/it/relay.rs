//! The outbox relay when the audit log is unavailable or an event cannot be written.

use std::time::Instant;

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use recado_domain::audit::{AuditFilter, AuditStore};
use recado_domain::campaigns::CampaignStore;
use recado_domain::shared::StoreError;
use recado_domain::shared::{
    AccountId, Audit, AuditAction, Event, EventKind, NotificationDraft, NotificationKind, PageQuery,
};
use recado_testkit::DEADLINE;
use serde_json::json;

use crate::support::{DbFixture, event, id};

pub(crate) fn notification(title: &str) -> Event {
    Event::Notification(NotificationDraft {
        kind: NotificationKind::Info,
        title: title.into(),
        message: "m".into(),
        data: json!({}),
    })
}

fn entry(entity_type: &str, action: AuditAction) -> Event {
    Event::Audit(Audit {
        user_id: None,
        action,
        entity_type: entity_type.into(),
        entity_id: Some(id()),
        changes: None,
        ip_address: None,
        support_admin: None,
    })
}

/// Inserts an audit event that is valid but cannot be written: its entity type exceeds the size limit of an index.
async fn append_unwritable_event(fixture: &DbFixture, account: AccountId) {
    fixture
        .sql(&format!(
            "INSERT INTO outbox_events (account_id, payload) SELECT '{account}', jsonb_build_object('kind', 'audit',
               'action', 'create', 'entity_type', string_agg(md5(i::text), '')) FROM generate_series(1, 400) i"
        ))
        .await;
}

async fn waiting(fixture: &DbFixture) -> i64 {
    fixture.number("SELECT count(*) FROM outbox_events").await
}

async fn entries(fixture: &DbFixture) -> i64 {
    fixture.number("SELECT count(*) FROM audit_logs").await
}

async fn notes(fixture: &DbFixture) -> i64 {
    fixture.number("SELECT count(*) FROM notifications").await
}

/// Relays until the outbox is empty. Panics after `DEADLINE`.
async fn drain(fixture: &DbFixture) {
    let deadline = Instant::now() + DEADLINE;
    while waiting(fixture).await > 0 {
        fixture.relay().await;
        assert!(Instant::now() < deadline, "the outbox is never empty");
    }
}

#[tokio::test]
async fn event_kinds_are_relayed_separately() {
    let fixture = DbFixture::new().await;
    fixture
        .append_events(
            fixture.account,
            &[event(id()), notification("a"), event(id()), notification("b")],
        )
        .await;
    assert_eq!(fixture.outbox().relay(EventKind::Notification, 100).await.unwrap(), 2);
    assert_eq!((entries(&fixture).await, notes(&fixture).await), (0, 2));
    assert_eq!(fixture.outbox().relay(EventKind::Audit, 100).await.unwrap(), 2);
    assert_eq!((entries(&fixture).await, notes(&fixture).await), (2, 2));
    fixture.assert_audit_counts().await;
}

#[tokio::test]
async fn locked_audit_log_delays_only_audit_entries() {
    let fixture = DbFixture::new().await;
    fixture
        .sql("BEGIN; LOCK TABLE audit_logs IN ACCESS EXCLUSIVE MODE")
        .await;
    let (outbox, campaigns) = (fixture.outbox(), fixture.campaigns());
    let blocked_relay = tokio::spawn(async move { outbox.relay(EventKind::Audit, 100).await });
    for _ in 0..20 {
        let campaign = fixture.draft();
        let events = [event(campaign.id.0), notification("n")];
        campaigns.insert(&campaign, &events).await.unwrap();
    }
    assert_eq!(fixture.outbox().relay(EventKind::Notification, 100).await.unwrap(), 20);
    assert_eq!(notes(&fixture).await, 20);
    let refused = fixture.outbox().relay(EventKind::Audit, 100).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    drop(blocked_relay.await.unwrap());
    fixture.sql("COMMIT").await;
    assert_eq!(waiting(&fixture).await, 20);
    assert_eq!(fixture.outbox().relay(EventKind::Audit, 100).await.unwrap(), 20);
    assert_eq!((entries(&fixture).await, waiting(&fixture).await), (20, 0));
    fixture.assert_audit_counts().await;
}

#[tokio::test]
async fn missing_audit_log_sets_no_event_aside() {
    for (table, away) in [
        ("audit_logs", "ALTER TABLE audit_logs RENAME TO elsewhere"),
        ("audit_counts", "ALTER TABLE audit_counts RENAME TO elsewhere"),
    ] {
        let fixture = DbFixture::new().await;
        // The connections have already prepared the statement.
        fixture.append_events(fixture.account, &[event(id())]).await;
        assert_eq!(fixture.relay().await, 1);
        fixture.sql(away).await;
        for _ in 0..20 {
            let campaign = fixture.draft();
            let events = [event(campaign.id.0), notification("n")];
            fixture.campaigns().insert(&campaign, &events).await.unwrap();
        }
        for _ in 0..3 {
            assert!(fixture.outbox().relay(EventKind::Audit, 100).await.is_err(), "{table}");
        }
        assert_eq!(fixture.outbox().relay(EventKind::Notification, 100).await.unwrap(), 20);
        let set_aside = "SELECT count(*) FROM outbox_events WHERE retry_at IS NOT NULL";
        assert_eq!(fixture.number(set_aside).await, 0, "{table}");
        fixture.sql(&format!("ALTER TABLE elsewhere RENAME TO {table}")).await;
        assert_eq!(fixture.outbox().relay(EventKind::Audit, 100).await.unwrap(), 20);
        assert_eq!((entries(&fixture).await, waiting(&fixture).await), (21, 0), "{table}");
        fixture.assert_audit_counts().await;
    }
}

#[tokio::test]
async fn entries_refused_by_a_trigger_are_retried() {
    let fixture = DbFixture::new().await;
    fixture
        .sql(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON audit_logs FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        .await;
    let events: Vec<Event> = (0..30).map(|_| event(id())).collect();
    fixture.append_events(fixture.account, &events).await;
    for _ in 0..3 {
        fixture.relay().await;
    }
    assert_eq!((entries(&fixture).await, waiting(&fixture).await), (0, 30));
    fixture
        .sql("DROP TRIGGER refuse ON audit_logs; DROP FUNCTION refuse")
        .await;
    drain(&fixture).await;
    assert_eq!(entries(&fixture).await, 30);
    fixture.assert_audit_counts().await;
}

#[tokio::test]
async fn unwritable_event_is_set_aside_and_retried() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    append_unwritable_event(&fixture, fixture.account).await;
    fixture
        .sql(&format!(
            "INSERT INTO outbox_events (account_id, payload) VALUES
               ('{0}', '{{\"kind\":\"audit\",\"action\":\"fly\",\"entity_type\":\"x\"}}'),
               ('{0}', '{{\"kind\":\"notification\",\"type\":\"loud\"}}')",
            fixture.account
        ))
        .await;
    for account in [fixture.account, other_account] {
        fixture.append_events(account, &[event(id()), notification("n")]).await;
    }
    fixture.relay().await;
    assert_eq!(
        (entries(&fixture).await, notes(&fixture).await, waiting(&fixture).await),
        (2, 2, 3)
    );
    // The unwritable events are set aside, so a later event needs one batch.
    fixture.append_events(other_account, &[event(id())]).await;
    assert_eq!(fixture.outbox().relay(EventKind::Audit, 100).await.unwrap(), 1);
    assert_eq!((entries(&fixture).await, waiting(&fixture).await), (3, 3));
    // A corrected event is written.
    fixture
        .sql("UPDATE outbox_events SET payload = jsonb_set(payload, '{action}', '\"create\"') WHERE payload ->> 'action' = 'fly';
              UPDATE outbox_events SET retry_at = now()")
        .await;
    fixture.relay().await;
    assert_eq!((entries(&fixture).await, waiting(&fixture).await), (4, 2));
    fixture.assert_audit_counts().await;
}

#[tokio::test]
async fn concurrent_readers_and_relays_write_each_entry_once() {
    let fixture = DbFixture::new().await;
    let other_account = fixture.another_account().await;
    let mut expected = 0;
    for _ in 0..5 {
        for account in [fixture.account, other_account] {
            let events: Vec<Event> = (0..20).map(|_| event(id())).collect();
            fixture.append_events(account, &events).await;
            expected += 20;
        }
        let relays = (0..3).map(|_| async { fixture.outbox().relay(EventKind::Audit, 7).await.map(|_| ()) });
        let page = PageQuery::new(None, None, 50, 100);
        let readers = (0..6).map(|reader| {
            let account = if reader % 2 == 0 {
                fixture.account
            } else {
                other_account
            };
            let store = fixture.audit();
            async move {
                let began = Instant::now();
                let seen = store.page(account, &AuditFilter::default(), page).await.unwrap();
                assert_eq!(
                    seen.total,
                    expected / 2,
                    "a reader sees all entries that existed before its read"
                );
                assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());
            }
        });
        let (relayed, _) = tokio::join!(join_all(relays), join_all(readers));
        assert!(relayed.into_iter().all(|result| result.is_ok()));
    }
    assert_eq!((entries(&fixture).await, waiting(&fixture).await), (expected, 0));
    fixture.assert_audit_counts().await;
}

const ENTRY_KINDS: [(&str, AuditAction); 5] = [
    ("campaign", AuditAction::Create),
    ("campaign", AuditAction::Delete),
    ("message_template", AuditAction::Delete),
    ("api_key", AuditAction::Create),
    ("api_key", AuditAction::Delete),
];

/// The stored counts equal a recount, no matter whether a relay or a reader moves the events, and in which batches.
#[test]
fn audit_counts_equal_entries_after_any_history() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let step = (0..5_usize, 1..9_usize, 0..4_usize, 1..6_usize);
    let mut runner = TestRunner::new(Config {
        cases: 12,
        failure_persistence: None,
        ..Config::default()
    });
    runner
        .run(&prop::collection::vec(step, 1..12), |steps| {
            runtime.block_on(async {
                let fixture = DbFixture::new().await;
                let accounts = [fixture.account, fixture.another_account().await];
                let mut appended = 0;
                for (kind, count, operation, batch) in steps {
                    let (entity_type, action) = ENTRY_KINDS[kind];
                    let events: Vec<Event> = (0..count).map(|_| entry(entity_type, action)).collect();
                    fixture.append_events(accounts[kind % 2], &events).await;
                    appended += i64::try_from(count).unwrap();
                    let page = PageQuery::new(None, Some(1), 50, 100);
                    match operation {
                        0 => drop(fixture.outbox().relay(EventKind::Audit, batch).await.unwrap()),
                        1 => drop(
                            fixture
                                .audit()
                                .page(accounts[0], &AuditFilter::default(), page)
                                .await
                                .unwrap(),
                        ),
                        2 => append_unwritable_event(&fixture, accounts[1]).await,
                        _ => {}
                    }
                    fixture.assert_audit_counts().await;
                }
                while fixture.outbox().relay(EventKind::Audit, 4).await.unwrap() > 0 {}
                fixture.assert_audit_counts().await;
                assert_eq!(entries(&fixture).await, appended);
            });
            Ok(())
        })
        .unwrap();
}
