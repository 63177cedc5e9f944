//! The use cases of terms.

use std::sync::{Arc, Mutex};

use serde_json::json;
use time::OffsetDateTime;
use time::macros::datetime;
use uuid::Uuid;

use super::in_memory::ACCOUNT;
use crate::retention::{
    MockRetentionStore, NOTICE, Retention, RetentionBounds, RetentionInput, RetentionKind, RetentionState,
};
use crate::shared::{AuditAction, Event, MockClock, NotificationKind, Role, Tenant, UserId};

const NOW: OffsetDateTime = datetime!(2026-11-29 10:30 UTC);

const BOUNDS: RetentionBounds = RetentionBounds {
    min_days: 30,
    max_days: 3650,
    force_days: None,
};

fn tenant() -> Tenant {
    Tenant::for_tests(ACCOUNT, UserId(Uuid::from_u128(3)), Role::Admin)
}

/// The use cases over one stored row.
fn retention() -> (Retention, Arc<Mutex<Vec<Event>>>) {
    let (row, events) = (
        Arc::new(Mutex::new(RetentionState::default())),
        Arc::new(Mutex::new(vec![])),
    );
    let mut store = MockRetentionStore::new();
    let stored = row.clone();
    store
        .expect_find()
        .returning(move |_| Ok(stored.lock().unwrap().clone()));
    let log = events.clone();
    store
        .expect_update()
        .returning(move |_, terms, version, next_run_at, events| {
            let mut row = row.lock().unwrap();
            if row.version != version {
                return Ok(false);
            }
            *row = RetentionState {
                terms: terms.clone(),
                version: version + 1,
                next_run_at,
                ..row.clone()
            };
            log.lock().unwrap().extend(events.iter().cloned());
            Ok(true)
        });
    let mut clock = MockClock::new();
    clock.expect_now().returning(|| NOW);
    (Retention::new(Arc::new(store), BOUNDS, Arc::new(clock)), events)
}

fn input(days: Option<i64>) -> RetentionInput {
    RetentionInput::parse([(RetentionKind::Messages, days)], &BOUNDS).unwrap()
}

#[tokio::test]
async fn shorter_term_is_audited_and_notified() {
    let (retention, events) = retention();
    let report = retention.update(&tenant(), input(Some(90))).await.unwrap();
    assert_eq!(report.terms.days(RetentionKind::Messages), Some(90));
    assert_eq!(
        (report.takes_effect_at, report.next_run_at),
        (Some(NOW + NOTICE), Some(NOW))
    );
    {
        let events = events.lock().unwrap();
        let [Event::Audit(audit), Event::Notification(warning)] = events.as_slice() else {
            panic!("{events:?}");
        };
        assert_eq!(
            (audit.action, audit.entity_type.as_str()),
            (AuditAction::Update, "retention")
        );
        assert_eq!(audit.changes, Some(json!({ "messages_days": 90 })));
        assert_eq!(warning.kind, NotificationKind::Warning);
        assert_eq!(warning.data["terms"], json!({ "messages_days": 90 }));
        assert_eq!(warning.data["effective_at"], "2026-11-30T10:30:00.000Z");
    }
    // Taken back: audited, without another warning. A run opens campaigns again whose archives have begun.
    let report = retention.update(&tenant(), input(None)).await.unwrap();
    assert!(report.takes_effect_at.is_none() && report.next_run_at.is_some());
    assert_eq!(events.lock().unwrap().len(), 3);
}
