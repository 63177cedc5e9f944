//! Notifications about API keys: claims, leases and decisions that are recorded once.

use std::collections::BTreeSet;

use recado_domain::api_keys::{ApiKeyStore, ExpiryNotice, KeyNoticeStore, NoticeClaim, NoticeDecision, NoticeTimes};
use recado_domain::shared::{Event, NotificationDraft, NotificationKind};
use recado_postgres::PgApiKeys;
use serde_json::json;
use time::Duration;

use crate::api_keys::record;
use crate::support::{DbFixture, NOW};

const TIMES: NoticeTimes = NoticeTimes {
    now: NOW,
    day: NOW.saturating_add(Duration::DAY),
    week: NOW.saturating_add(Duration::WEEK),
    unused_since: NOW.saturating_sub(Duration::days(90)),
};

fn decision(claim: &NoticeClaim, expiry_notice: ExpiryNotice) -> NoticeDecision {
    let event = Event::Notification(NotificationDraft {
        kind: NotificationKind::Warning,
        title: "t".into(),
        message: "m".into(),
        data: json!({}),
    });
    NoticeDecision {
        claim: claim.clone(),
        expiry_notice,
        unused_notified_at: claim.unused_notified_at,
        events: vec![event],
    }
}

/// Inserts a key with these columns, as SQL, and returns its name.
async fn insert_key(fixture: &DbFixture, number: u8, columns: &str) {
    let keys = PgApiKeys::new(fixture.owner.clone());
    let record = record(fixture, fixture.account, &number.to_string(), &[number; 32]);
    keys.insert(&record, 100, &[]).await.unwrap();
    fixture
        .sql(&format!("UPDATE api_keys SET {columns} WHERE id = '{}'", record.key.id))
        .await;
}

fn at(offset: Duration) -> String {
    format!("'{}'", recado_domain::shared::timestamp::format(NOW + offset))
}

#[tokio::test]
async fn claim_returns_the_keys_with_a_due_notification() {
    let fixture = DbFixture::new().await;
    let ahead = |days: i64| at(Duration::days(days));
    let due = [
        format!("expires_at = {}", ahead(7)),
        format!("expires_at = {}, expiry_notice = 'week'", ahead(1)),
        format!("expires_at = {}, expiry_notice = 'day'", ahead(0)),
        format!("expires_at = {}", ahead(-30)),
        format!("created_at = {}", ahead(-90)),
        format!("created_at = {}, last_used_at = {}", ahead(-400), ahead(-90)),
        format!("created_at = {}, unused_notified_at = {}", ahead(-400), ahead(-90)),
    ];
    let not_due = [
        "name = name".to_owned(),
        format!("expires_at = {}", ahead(8)),
        format!("expires_at = {}, expiry_notice = 'week'", ahead(2)),
        format!("expires_at = {}, expiry_notice = 'day'", ahead(1)),
        format!("expires_at = {}, expiry_notice = 'expired'", ahead(-30)),
        format!("created_at = {}, last_used_at = {}", ahead(-400), ahead(-89)),
        format!("created_at = {}, unused_notified_at = {}", ahead(-400), ahead(-89)),
        format!(
            "expires_at = {}, notice_lease_until = now() + interval '1 minute'",
            ahead(1)
        ),
    ];
    for (number, columns) in (0_u8..).zip(due.iter().chain(&not_due)) {
        insert_key(&fixture, number, columns).await;
    }
    let keys = PgApiKeys::new(fixture.owner.clone());
    let mut claimed = BTreeSet::new();
    loop {
        let claims = keys.claim(&TIMES, 3).await.unwrap();
        assert!(claims.len() <= 3);
        if claims.is_empty() {
            break;
        }
        for claim in claims {
            assert!(claimed.insert(claim.name), "a claimed key is not claimed again");
        }
    }
    let expected: BTreeSet<String> = (0..due.len()).map(|number| number.to_string()).collect();
    assert_eq!(claimed, expected);
}

#[tokio::test]
async fn decision_is_recorded_once_with_its_notification() {
    let fixture = DbFixture::new().await;
    insert_key(&fixture, 1, &format!("expires_at = {}", at(Duration::HOUR))).await;
    let keys = PgApiKeys::new(fixture.owner.clone());
    let claim = keys.claim(&TIMES, 10).await.unwrap().remove(0);
    let decided = [decision(&claim, ExpiryNotice::Day)];
    for _ in 0..2 {
        keys.record(&decided).await.unwrap();
    }
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 1);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM api_keys WHERE expiry_notice = 'day'")
            .await,
        1
    );
    assert_eq!(keys.claim(&TIMES, 10).await.unwrap(), []);
}

#[tokio::test]
async fn worker_that_lost_its_lease_records_nothing() {
    let fixture = DbFixture::new().await;
    insert_key(&fixture, 1, &format!("expires_at = {}", at(Duration::HOUR))).await;
    let keys = PgApiKeys::new(fixture.owner.clone());
    let lost = keys.claim(&TIMES, 10).await.unwrap().remove(0);
    // Another worker takes over what a killed one left.
    fixture
        .sql("UPDATE api_keys SET notice_lease_until = now() - interval '1 second'")
        .await;
    let taken = keys.claim(&TIMES, 10).await.unwrap().remove(0);
    keys.record(&[decision(&lost, ExpiryNotice::Day)]).await.unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 0);
    keys.record(&[decision(&taken, ExpiryNotice::Day)]).await.unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 1);
}

#[tokio::test]
async fn changed_expiry_is_notified_again() {
    let fixture = DbFixture::new().await;
    insert_key(&fixture, 1, &format!("expires_at = {}", at(Duration::HOUR))).await;
    let keys = PgApiKeys::new(fixture.owner.clone());
    let claim = keys.claim(&TIMES, 10).await.unwrap().remove(0);
    let mut stored = keys.get(fixture.account, claim.id).await.unwrap().unwrap();
    stored.key.expires_at = Some(NOW + Duration::days(2));
    keys.update(fixture.account, &stored, &[]).await.unwrap();
    // The claim is about the former expiry.
    keys.record(&[decision(&claim, ExpiryNotice::Day)]).await.unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM outbox_events").await, 0);
    fixture.sql("UPDATE api_keys SET notice_lease_until = NULL").await;
    let claim = keys.claim(&TIMES, 10).await.unwrap().remove(0);
    keys.record(&[decision(&claim, ExpiryNotice::Week)]).await.unwrap();
    assert_eq!(keys.claim(&TIMES, 10).await.unwrap(), []);
    // An unrelated change does not repeat the notification, another expiry does.
    for (days, is_due) in [(2, false), (3, true)] {
        let mut stored = keys.get(fixture.account, claim.id).await.unwrap().unwrap();
        stored.key.expires_at = Some(NOW + Duration::days(days));
        keys.update(fixture.account, &stored, &[]).await.unwrap();
        assert_eq!(!keys.claim(&TIMES, 10).await.unwrap().is_empty(), is_due);
    }
}
