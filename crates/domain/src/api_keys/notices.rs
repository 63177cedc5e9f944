//! Notifications about keys: two warnings before a key expires, an error when it has expired, and an information about
//! a key that was not used for `UNUSED_FOR`.

use std::sync::Arc;

use serde_json::json;
use time::{Duration, OffsetDateTime};

use super::{ExpiryNotice, KeyNoticeStore, NoticeClaim, NoticeDecision, NoticeTimes};
use crate::shared::{Clock, Event, NotificationDraft, NotificationKind, StoreError, timestamp};

/// How long before the end of a key the two warnings are due.
const FIRST_WARNING: Duration = Duration::days(7);
const SECOND_WARNING: Duration = Duration::days(1);

/// How long a key is unused before it is named, and how long until it is named again.
const UNUSED_FOR: Duration = Duration::days(90);

/// Notifies accounts about their keys.
pub struct KeyNotices {
    store: Arc<dyn KeyNoticeStore>,
    clock: Arc<dyn Clock>,
}

impl KeyNotices {
    pub fn new(store: Arc<dyn KeyNoticeStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    /// Claims up to `limit` keys and appends their notifications. Returns true if more may be due.
    pub async fn notify_due(&self, limit: i64) -> Result<bool, StoreError> {
        let now = self.clock.now();
        let times = NoticeTimes {
            now,
            day: now + SECOND_WARNING,
            week: now + FIRST_WARNING,
            unused_since: now - UNUSED_FOR,
        };
        let claims = self.store.claim(&times, limit).await?;
        if claims.is_empty() {
            return Ok(false);
        }
        let decisions: Vec<NoticeDecision> = claims.into_iter().map(|claim| decide(claim, &times)).collect();
        self.store.record(&decisions).await?;
        Ok(i64::try_from(decisions.len()).is_ok_and(|claimed| claimed >= limit))
    }
}

fn decide(claim: NoticeClaim, times: &NoticeTimes) -> NoticeDecision {
    let due = claim
        .expires_at
        .map_or(ExpiryNotice::Unsent, |at| due_notice(at, times));
    let mut events = vec![];
    let mut expiry_notice = claim.expiry_notice;
    if rank(due) > rank(claim.expiry_notice) {
        expiry_notice = due;
        events.extend(claim.expires_at.map(|at| expiry_event(&claim, due, at)));
    }
    let named_at = claim.unused_notified_at;
    let is_unused = used_at(&claim) <= times.unused_since && named_at.is_none_or(|at| at <= times.unused_since);
    // An expired key is not named, but counts as named, so that it is not claimed again and again.
    if is_unused && due != ExpiryNotice::Expired {
        events.push(unused_event(&claim));
    }
    NoticeDecision {
        unused_notified_at: if is_unused { Some(times.now) } else { named_at },
        claim,
        expiry_notice,
        events,
    }
}

fn used_at(claim: &NoticeClaim) -> OffsetDateTime {
    claim.last_used_at.unwrap_or(claim.created_at)
}

fn due_notice(expires_at: OffsetDateTime, times: &NoticeTimes) -> ExpiryNotice {
    if expires_at <= times.now {
        ExpiryNotice::Expired
    } else if expires_at <= times.day {
        ExpiryNotice::Day
    } else if expires_at <= times.week {
        ExpiryNotice::Week
    } else {
        ExpiryNotice::Unsent
    }
}

/// Notifications about one expiry are given in this order, and one that is late replaces the earlier ones.
fn rank(notice: ExpiryNotice) -> u8 {
    match notice {
        ExpiryNotice::Unsent => 0,
        ExpiryNotice::Week => 1,
        ExpiryNotice::Day => 2,
        ExpiryNotice::Expired => 3,
    }
}

fn expiry_event(claim: &NoticeClaim, notice: ExpiryNotice, expires_at: OffsetDateTime) -> Event {
    let (name, hint, at) = (&claim.name, &claim.key_hint, timestamp::format(expires_at));
    let (kind, title, message) = match notice {
        ExpiryNotice::Expired => (
            NotificationKind::Error,
            format!("API key expired: {name}"),
            format!("The API key {name} (...{hint}) expired at {at}. Requests with it are refused."),
        ),
        ExpiryNotice::Unsent | ExpiryNotice::Week | ExpiryNotice::Day => (
            NotificationKind::Warning,
            format!("API key expires soon: {name}"),
            format!("The API key {name} (...{hint}) expires at {at}. Extend it or replace it before then."),
        ),
    };
    Event::Notification(NotificationDraft {
        kind,
        title,
        message,
        data: json!({ "api_key_id": claim.id, "name": name, "key_hint": hint, "expires_at": at }),
    })
}

fn unused_event(claim: &NoticeClaim) -> Event {
    let (name, hint, days) = (&claim.name, &claim.key_hint, UNUSED_FOR.whole_days());
    Event::Notification(NotificationDraft {
        kind: NotificationKind::Info,
        title: format!("API key not used: {name}"),
        message: format!("The API key {name} (...{hint}) was not used for {days} days. Delete it if it is not needed."),
        data: json!({ "api_key_id": claim.id, "name": name, "key_hint": hint,
            "last_used_at": claim.last_used_at.map(timestamp::format) }),
    })
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::MockKeyNoticeStore;
    use super::*;
    use crate::shared::MockClock;

    const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

    fn claim(expires_at: Option<OffsetDateTime>, expiry_notice: ExpiryNotice) -> NoticeClaim {
        NoticeClaim {
            account_id: Uuid::from_u128(1).into(),
            id: Uuid::from_u128(2).into(),
            name: "Shop".into(),
            key_hint: "x9Qa".into(),
            created_at: NOW - Duration::DAY,
            last_used_at: None,
            expires_at,
            expiry_notice,
            unused_notified_at: None,
            lease_until: NOW + Duration::MINUTE,
        }
    }

    async fn decision_on(claim: NoticeClaim) -> NoticeDecision {
        let mut store = MockKeyNoticeStore::new();
        let times = NoticeTimes {
            now: NOW,
            day: NOW + Duration::DAY,
            week: NOW + Duration::WEEK,
            unused_since: NOW - Duration::days(90),
        };
        let claimed = vec![claim];
        store
            .expect_claim()
            .withf(move |claimed_with, limit| *claimed_with == times && *limit == 10)
            .return_once(|_, _| Ok(claimed));
        let (sender, receiver) = std::sync::mpsc::channel();
        store.expect_record().times(1).returning(move |decisions| {
            sender.send(decisions.to_vec()).unwrap();
            Ok(())
        });
        let mut clock = MockClock::new();
        clock.expect_now().return_const(NOW);
        assert!(
            !KeyNotices::new(Arc::new(store), Arc::new(clock))
                .notify_due(10)
                .await
                .unwrap()
        );
        receiver.recv().unwrap().remove(0)
    }

    fn kinds(decision: &NoticeDecision) -> Vec<NotificationKind> {
        let kind = |event: &Event| match event {
            Event::Notification(draft) => draft.kind,
            Event::Audit(_) | Event::Webhook(_) => panic!("{event:?}"),
        };
        decision.events.iter().map(kind).collect()
    }

    #[tokio::test]
    async fn expiry_is_notified_once_a_stage() {
        use ExpiryNotice::{Day, Expired, Unsent, Week};
        use NotificationKind::{Error, Warning};
        for (left, before, after, expected) in [
            (Duration::WEEK + Duration::SECOND, Unsent, Unsent, vec![]),
            (Duration::WEEK, Unsent, Week, vec![Warning]),
            (Duration::WEEK, Week, Week, vec![]),
            (Duration::DAY + Duration::SECOND, Week, Week, vec![]),
            (Duration::DAY, Week, Day, vec![Warning]),
            (Duration::HOUR, Unsent, Day, vec![Warning]),
            (Duration::SECOND, Day, Day, vec![]),
            (Duration::ZERO, Day, Expired, vec![Error]),
            (-Duration::DAY, Unsent, Expired, vec![Error]),
            (-Duration::DAY, Expired, Expired, vec![]),
        ] {
            let decision = decision_on(claim(Some(NOW + left), before)).await;
            assert_eq!(
                (decision.expiry_notice, kinds(&decision)),
                (after, expected),
                "{left} {before}"
            );
        }
    }

    #[tokio::test]
    async fn expiry_notification_names_key_and_time() {
        let decision = decision_on(claim(Some(NOW + Duration::HOUR), ExpiryNotice::Week)).await;
        let [Event::Notification(draft)] = decision.events.as_slice() else {
            panic!("{decision:?}")
        };
        assert_eq!(draft.title, "API key expires soon: Shop");
        assert!(
            draft.message.contains("(...x9Qa) expires at 2026-03-01T13:00:00.000Z"),
            "{draft:?}"
        );
        assert_eq!(draft.data["api_key_id"], json!(Uuid::from_u128(2)));
        assert_eq!(draft.data["expires_at"], "2026-03-01T13:00:00.000Z");
    }

    #[tokio::test]
    async fn unused_key_is_named_once_a_quarter() {
        let ago = |days| NOW - Duration::days(days);
        for (created, used, named, is_named) in [
            (90, None, None, true),
            (89, None, None, false),
            (400, Some(90), None, true),
            (400, Some(89), None, false),
            (400, None, Some(89), false),
            (400, None, Some(90), true),
            (400, Some(1), Some(200), false),
        ] {
            let decision = decision_on(NoticeClaim {
                created_at: ago(created),
                last_used_at: used.map(ago),
                unused_notified_at: named.map(ago),
                ..claim(None, ExpiryNotice::Unsent)
            })
            .await;
            let expected = if is_named { vec![NotificationKind::Info] } else { vec![] };
            assert_eq!(kinds(&decision), expected, "{created} {used:?} {named:?}");
            let mark = if is_named { Some(NOW) } else { named.map(ago) };
            assert_eq!(decision.unused_notified_at, mark);
        }
        // An expired key is marked and not named.
        let expired = NoticeClaim {
            created_at: ago(400),
            ..claim(Some(ago(10)), ExpiryNotice::Expired)
        };
        let decision = decision_on(expired).await;
        assert_eq!((kinds(&decision), decision.unused_notified_at), (vec![], Some(NOW)));
    }

    #[tokio::test]
    async fn full_batch_is_followed_by_another() {
        for (claimed, limit, more) in [(0, 2, false), (1, 2, false), (2, 2, true)] {
            let mut store = MockKeyNoticeStore::new();
            let claims = vec![claim(None, ExpiryNotice::Unsent); claimed];
            store.expect_claim().return_once(|_, _| Ok(claims));
            store
                .expect_record()
                .times(usize::from(claimed > 0))
                .returning(|_| Ok(()));
            let mut clock = MockClock::new();
            clock.expect_now().return_const(NOW);
            let notices = KeyNotices::new(Arc::new(store), Arc::new(clock));
            assert_eq!(notices.notify_due(limit).await.unwrap(), more);
        }
    }
}
