//! The queues of direct messages: lost leases and holds.

use recado_domain::campaigns::SendResult;
use recado_domain::direct_messages::{DirectMessageQueue, HoldReason, NumberQueue, Phase};
use recado_postgres::{PgDirectMessageQueues, PgWaitingMessages, WaitingMessages};
use time::Duration;
use uuid::Uuid;

use crate::error_codes::ERROR_CODES;
use crate::support::{DbFixture, LEASE, id};

fn queues(fixture: &DbFixture) -> PgDirectMessageQueues {
    PgDirectMessageQueues::new(fixture.tenants.clone(), fixture.owner.clone(), ERROR_CODES)
}

/// A message in the queue of a number, to a contact who has just written. It is due after this time.
async fn message_due_in(fixture: &DbFixture, profile: Uuid, seconds: i64) -> Uuid {
    let (account, message) = (fixture.account, id());
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name, phone)
               VALUES ('{account}', '{message}', 'Ana', '+55119' || lpad((abs(hashtext('{message}')) % 100000000)::text, 8, '0'));
             INSERT INTO conversations (account_id, id, contact_id, last_message_at, last_inbound_at)
               VALUES ('{account}', '{message}', '{message}', now(), now());
             INSERT INTO direct_messages (account_id, id, contact_id, profile_id, kind, request, send_at, expires_at,
               due_at, created_by, created_at, updated_at)
               SELECT '{account}', '{message}', '{message}', '{profile}', 'text',
                 '{{\"content\": {{\"free_form\": {{\"text\": \"oi\"}}}}}}', t, t + interval '1 day', t, '{message}', now(), now()
               FROM (SELECT now() + {seconds} * interval '1 second') s (t);
             INSERT INTO direct_message_queues AS q (account_id, profile_id, due_at)
               VALUES ('{account}', '{profile}', now() + {seconds} * interval '1 second')
               ON CONFLICT (account_id, profile_id) DO UPDATE SET due_at = least(q.due_at, excluded.due_at)"
        ))
        .await;
    message
}

#[tokio::test]
async fn message_that_returns_after_a_lost_lease_is_tried_again() {
    let fixture = DbFixture::new().await;
    let (store, profile) = (queues(&fixture), id());
    let message = message_due_in(&fixture, profile, 0).await;
    let queue = NumberQueue {
        account_id: fixture.account,
        profile_id: Some(profile.into()),
    };
    let (first, second) = (id(), id());
    assert_eq!(store.take(first, LEASE).await.unwrap(), Some(queue));
    let started = store.start(queue, first, 10, LEASE, false).await.unwrap().unwrap();
    assert_eq!(started.len(), 1);
    fixture
        .sql("UPDATE direct_message_queues SET leased_until = now() - interval '1 second'")
        .await;
    assert_eq!(store.take(second, LEASE).await.unwrap(), Some(queue));
    assert_eq!(
        store.start(queue, first, 10, LEASE, false).await.unwrap(),
        None,
        "fenced off"
    );
    store.release(queue, second).await.unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM direct_message_queues").await, 0);
    // The call of the first worker ends now: the message certainly did not leave.
    let delay = Duration::ZERO;
    let results = [(message.into(), SendResult::Deferred { delay })];
    store.record(queue, &results).await.unwrap();
    assert_eq!(store.take(second, LEASE).await.unwrap(), Some(queue));
    let again = store.start(queue, second, 10, LEASE, false).await.unwrap().unwrap();
    assert_eq!((again.len(), again[0].attempts), (1, 1));
}

#[tokio::test]
async fn hold_lasts_beside_new_messages_and_begins_only_with_a_due_one() {
    let fixture = DbFixture::new().await;
    let (store, profile, worker) = (queues(&fixture), id(), id());
    let queue = NumberQueue {
        account_id: fixture.account,
        profile_id: Some(profile.into()),
    };
    let held = "SELECT count(*) FROM direct_message_queues WHERE hold_reason = 'number' AND due_at > now()";
    message_due_in(&fixture, profile, 0).await;
    assert_eq!(store.take(worker, LEASE).await.unwrap(), Some(queue));
    store
        .hold(queue, worker, HoldReason::Number, Duration::MINUTE)
        .await
        .unwrap();
    assert_eq!(fixture.number(held).await, 1);
    // What makes a queue due, as a new message does, leaves the hold as it is.
    store
        .record(queue, &[(id().into(), SendResult::Released)])
        .await
        .unwrap();
    assert_eq!(fixture.number(held).await, 1);
    assert_eq!(store.take(worker, LEASE).await.unwrap(), None);
    // A queue whose first message is due next week must not make a message of today wait for it.
    let scheduled = id();
    message_due_in(&fixture, scheduled, 7 * 86_400).await;
    let later = NumberQueue {
        profile_id: Some(scheduled.into()),
        ..queue
    };
    fixture
        .sql(&format!(
            "UPDATE direct_message_queues SET worker = '{worker}' WHERE profile_id = '{scheduled}'"
        ))
        .await;
    store
        .hold(later, worker, HoldReason::Number, Duration::MINUTE)
        .await
        .unwrap();
    assert_eq!(fixture.number(held).await, 1, "only the first queue");
}

#[tokio::test]
async fn waiting_messages_are_counted_by_phase() {
    let fixture = DbFixture::new().await;
    let waiting = PgWaitingMessages::new(fixture.owner.clone());
    let phases = [
        Phase::Scheduled,
        Phase::Waiting,
        Phase::Held,
        Phase::Leaving,
        Phase::Unknown,
    ];
    let counted = |counts: [i64; 5], files| WaitingMessages {
        messages: phases.into_iter().zip(counts).collect(),
        files,
    };
    assert_eq!(waiting.count().await.unwrap(), counted([0; 5], 0));
    let (profile, held) = (id(), id());
    for seconds in [60, 60, 60, 0, 0] {
        message_due_in(&fixture, profile, seconds).await;
    }
    message_due_in(&fixture, held, 0).await;
    let started = [
        message_due_in(&fixture, profile, 0).await,
        message_due_in(&fixture, profile, 0).await,
    ];
    fixture
        .sql(&format!(
            "UPDATE direct_message_queues SET hold_reason = 'number' WHERE profile_id = '{held}';
             UPDATE direct_messages SET due_at = NULL, started_at = now() WHERE id IN ('{}', '{}');
             UPDATE direct_messages SET unknown_at = now() WHERE id = '{1}';
             INSERT INTO message_media (account_id, id, type, state, due_at, written_at)
               VALUES ('{2}', '{1}', 'image', 'pending', now() + interval '1 hour', now()),
                 ('{2}', '{0}', 'image', 'ready', NULL, now())",
            started[0], started[1], fixture.account
        ))
        .await;
    assert_eq!(waiting.count().await.unwrap(), counted([3, 2, 1, 1, 1], 1));
}
