//! The queues of direct messages: lost leases and holds.

use recado_domain::campaigns::SendResult;
use recado_domain::direct_messages::{DirectMessageQueue, EXPIRED, HoldReason, NumberQueue, Phase};
use recado_domain::settings::{SettingsInput, SettingsStore as _};
use recado_domain::shared::UserId;
use recado_postgres::{PgDirectMessageQueues, PgSettings, PgWaitingMessages, WaitingMessages};
use time::{Duration, OffsetDateTime};
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

/// A held queue is due when a message expires. Until the end of the hold it only fails those.
#[tokio::test]
async fn held_queue_is_due_when_a_message_expires() {
    let fixture = DbFixture::new().await;
    let (store, profile, worker) = (queues(&fixture), id(), id());
    let queue = NumberQueue {
        account_id: fixture.account,
        profile_id: Some(profile.into()),
    };
    let message = message_due_in(&fixture, profile, 0).await;
    message_due_in(&fixture, profile, 0).await;
    fixture
        .sql(&format!(
            "UPDATE direct_messages SET expires_at = now() + interval '300 milliseconds' WHERE id = '{message}'"
        ))
        .await;
    assert_eq!(store.take(worker, LEASE).await.unwrap(), Some(queue));
    let hold = async |delay| store.hold(queue, worker, HoldReason::Number, delay).await.unwrap();
    hold(Duration::MINUTE).await;
    assert_eq!(store.take(worker, LEASE).await.unwrap(), None, "not yet");
    tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    assert_eq!(store.take(worker, LEASE).await.unwrap(), Some(queue));
    let held = store.inputs(queue).await.unwrap().unwrap().held;
    let (reason, left) = held.unwrap();
    assert_eq!(reason, HoldReason::Number);
    assert!(left > Duration::seconds(50) && left < Duration::MINUTE, "{left}");
    hold(left).await;
    let failed = "SELECT string_agg(id || ' ' || error_message, ', ') FROM direct_messages WHERE status = 'failed'";
    assert_eq!(fixture.text(failed).await, Some(format!("{message} {EXPIRED}")));
    let held = "SELECT count(*) FROM direct_message_queues
                WHERE due_at = held_until AND due_at BETWEEN now() + interval '50 seconds' AND now() + interval '1 minute'";
    assert_eq!(fixture.number(held).await, 1);
}

/// Lets a setting hold the only message until `until`. The settings were last changed half an hour ago, which no server
/// noticed yet.
async fn hold_by_setting(fixture: &DbFixture, until: &str) {
    fixture
        .sql(&format!(
            "UPDATE direct_messages SET hold_rule = 'quiet_hours', held_settings_at = now() - interval '1 hour', due_at = {until};
             INSERT INTO account_settings (account_id, holds_changed_at, updated_at)
               SELECT account_id, now() - interval '30 minutes', now() FROM direct_messages
               ON CONFLICT DO NOTHING"
        ))
        .await;
}

#[tokio::test]
async fn message_is_checked_again_whenever_the_settings_that_hold_it_have_changed() {
    let fixture = DbFixture::new().await;
    let store = queues(&fixture);
    message_due_in(&fixture, id(), 0).await;
    let released = async || store.release_holds(10).await.unwrap();
    hold_by_setting(&fixture, "now() + interval '5 hours'").await;
    assert_eq!((released().await, released().await), (1, 0));
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM direct_messages WHERE due_at <= now()")
            .await,
        1
    );
    hold_by_setting(&fixture, "now() + interval '5 hours'").await;
    assert_eq!(released().await, 1);
    fixture
        .sql("UPDATE direct_messages SET due_at = now() + interval '5 hours'")
        .await;
    let set = async |change: SettingsInput| {
        let (change, now) = (change.check().unwrap(), OffsetDateTime::now_utc());
        let settings = PgSettings::new(fixture.tenants.clone());
        settings
            .update(fixture.account, &change, UserId(id()), now, &[])
            .await
            .unwrap();
    };
    set(SettingsInput {
        opt_out_words: Some(Some(vec!["fim".into()])),
        ..SettingsInput::default()
    })
    .await;
    assert_eq!(released().await, 0, "words hold nothing");
    set(SettingsInput {
        hold_at_most_hours: Some(Some(2)),
        ..SettingsInput::default()
    })
    .await;
    assert_eq!(released().await, 1);
}

#[tokio::test]
async fn message_names_a_setting_only_while_it_holds_it() {
    let fixture = DbFixture::new().await;
    let (store, waiting) = (queues(&fixture), PgWaitingMessages::new(fixture.owner.clone()));
    let held = async || {
        let phases = waiting.count().await.unwrap().messages;
        phases.into_iter().find(|(phase, _)| *phase == Phase::Held).unwrap().1
    };
    let (profile, worker) = (id(), id());
    let queue = NumberQueue {
        account_id: fixture.account,
        profile_id: Some(profile.into()),
    };
    let errors =
        "SELECT string_agg(error_message, ', ' ORDER BY updated_at) FROM direct_messages WHERE status = 'failed'";
    message_due_in(&fixture, profile, 0).await;
    fixture
        .sql("UPDATE direct_messages SET send_at = now() - interval '3 hours'")
        .await;
    hold_by_setting(&fixture, "now() + interval '1 hour'").await;
    assert_eq!(held().await, 1);
    hold_by_setting(&fixture, "now() - interval '1 hour'").await;
    assert_eq!(held().await, 0, "it waits for its queue");
    // The hold ended long before the message expired.
    fixture
        .sql("UPDATE direct_messages SET expires_at = now() - interval '1 minute'")
        .await;
    assert_eq!(store.take(worker, LEASE).await.unwrap(), Some(queue));
    assert_eq!(store.start(queue, worker, 10, LEASE, false).await.unwrap().unwrap(), []);
    assert_eq!(fixture.text(errors).await.as_deref(), Some(EXPIRED));
    // Held until it expired: found when it would start, and while the number is held.
    for is_number_held in [false, true] {
        fixture.sql("DELETE FROM direct_messages").await;
        message_due_in(&fixture, profile, 0).await;
        let expired = "UPDATE direct_messages SET expires_at = now() - interval '1 minute'";
        fixture.sql(expired).await;
        hold_by_setting(&fixture, "expires_at").await;
        if is_number_held {
            store
                .hold(queue, worker, HoldReason::Number, Duration::MINUTE)
                .await
                .unwrap();
        } else {
            store.start(queue, worker, 10, LEASE, false).await.unwrap().unwrap();
        }
        assert_eq!(
            fixture.text(errors).await.as_deref(),
            Some("held too long: quiet_hours"),
            "{is_number_held}"
        );
    }
}

#[tokio::test]
async fn messages_of_no_number_are_handed_over_when_they_are_due() {
    let fixture = DbFixture::new().await;
    let (store, worker) = (queues(&fixture), id());
    let (account, other) = (fixture.account, fixture.another_account().await);
    let queue = NumberQueue {
        account_id: account,
        profile_id: None,
    };
    let successor = async || store.inputs(queue).await.unwrap().unwrap().successor;
    message_due_in(&fixture, Uuid::nil(), 0).await;
    message_due_in(&fixture, Uuid::nil(), 3600).await;
    let profile = async |account, state: &str| {
        let id = id();
        fixture
            .sql(&format!(
                "INSERT INTO whatsapp_profiles (account_id, id, name, phone_number_id, waba_id, access_token, verification_state)
                 VALUES ('{account}', '{id}', 'p', '{id}', '1', ''::bytea, '{state}')"
            ))
            .await;
        id
    };
    profile(other, "verified").await;
    assert_eq!(successor().await, None, "numbers of another account");
    profile(account, "failed").await;
    assert!(!successor().await.unwrap().is_verified);
    let verified = profile(account, "verified").await;
    assert_eq!(successor().await.unwrap().id, verified.into());
    assert_eq!(store.take(worker, LEASE).await.unwrap(), Some(queue));
    store.hand_over(queue, id(), verified.into()).await.unwrap();
    let moved = format!("SELECT count(*) FROM direct_messages WHERE profile_id = '{verified}'");
    assert_eq!(fixture.number(&moved).await, 0, "another worker is fenced off");
    store.hand_over(queue, worker, verified.into()).await.unwrap();
    assert_eq!(fixture.number(&moved).await, 1);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM direct_message_queues WHERE worker IS NULL")
            .await,
        2
    );
    let of_number = NumberQueue {
        profile_id: Some(verified.into()),
        ..queue
    };
    assert_eq!(store.take(worker, LEASE).await.unwrap(), Some(of_number));
    assert_eq!(
        store.take(worker, LEASE).await.unwrap(),
        None,
        "the other is due in an hour"
    );
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
