//! Status updates that are applied to sends.

use recado_domain::callbacks::{CallbackStore, StatusUpdate, StatusUpdateStore};
use recado_domain::campaigns::{SendResult, SendStore as _};
use recado_domain::messaging::SendStatus;
use recado_domain::shared::SendId;
use recado_postgres::{PgCallbacks, PgRuns, PgStatusUpdates, PoolConfig, TenantPool};
use recado_testkit::DEADLINE;
use time::Duration;

use crate::error_codes::{ERROR_CODES, STOPPED_MARKETING};
use crate::support::{DbFixture, NOW, id};

pub(crate) fn status_update(send: Option<SendId>, message: &str, status: SendStatus) -> StatusUpdate {
    StatusUpdate {
        send_id: send,
        message_id: message.into(),
        status,
        at: NOW,
        error_code: None,
        error_message: None,
        pricing: None,
    }
}

/// A run with three sends in flight.
pub(crate) async fn in_flight() -> (DbFixture, recado_domain::campaigns::QueuedRun, Vec<SendId>) {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(3).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 3).await;
    (fixture, run, sends)
}

async fn statuses(fixture: &DbFixture, sends: &[SendId]) -> Vec<String> {
    let mut found = Vec::new();
    for send in sends {
        let query = format!("SELECT status FROM campaign_sends WHERE id = '{send}'");
        found.push(fixture.text(&query).await.unwrap());
    }
    found
}

#[tokio::test]
async fn status_update_finds_its_send_by_either_id() {
    let (fixture, run, sends) = in_flight().await;
    let sent = SendResult::Sent {
        message_id: Some("m0".into()),
        wa_id: None,
    };
    fixture.runs().record(run, &[(sends[0], sent)]).await.unwrap();
    let batch = [
        status_update(None, "unknown", SendStatus::Read),
        status_update(None, "m0", SendStatus::Delivered),
        status_update(Some(sends[1]), "m1", SendStatus::Sent),
        status_update(Some(SendId(id())), "m0", SendStatus::Read),
        status_update(Some(SendId(id())), "other", SendStatus::Read),
    ];
    assert_eq!(
        fixture.status_updates().apply(fixture.account, &batch).await.unwrap(),
        [0, 4]
    );
    assert_eq!(statuses(&fixture, &sends).await, ["read", "sent", "pending"]);
    let stored = format!("SELECT wa_message_id FROM campaign_sends WHERE id = '{}'", sends[1]);
    assert_eq!(fixture.text(&stored).await.unwrap(), "m1");
    assert_eq!(fixture.usage().await, "2/1");
    fixture.assert_recount().await;
    // A status update of another account matches no send.
    let other_account = fixture.another_account().await;
    let foreign = [status_update(Some(sends[2]), "m2", SendStatus::Read)];
    assert_eq!(
        fixture.status_updates().apply(other_account, &foreign).await.unwrap(),
        [0]
    );
    assert_eq!(statuses(&fixture, &sends[2..]).await, ["pending"]);
    let none: [usize; 0] = [];
    assert_eq!(
        fixture.status_updates().apply(fixture.account, &[]).await.unwrap(),
        none
    );
}

#[tokio::test]
async fn outdated_status_update_changes_nothing() {
    let (fixture, run, sends) = in_flight().await;
    let batch = [
        status_update(Some(sends[0]), "m0", SendStatus::Read),
        status_update(Some(sends[0]), "m0", SendStatus::Sent),
        status_update(Some(sends[0]), "m0", SendStatus::Delivered),
        status_update(Some(sends[1]), "m1", SendStatus::Sent),
        status_update(Some(sends[1]), "m1", SendStatus::Delivered),
        status_update(Some(sends[1]), "m1", SendStatus::Failed),
    ];
    for _ in 0..2 {
        let none: [usize; 0] = [];
        assert_eq!(
            fixture.status_updates().apply(fixture.account, &batch).await.unwrap(),
            none
        );
        assert_eq!(statuses(&fixture, &sends).await, ["read", "delivered", "pending"]);
        // A read message has the times of all earlier statuses, even if their updates were missing.
        let whole = "SELECT count(*) FROM campaign_sends
          WHERE status = 'read' AND sent_at IS NOT NULL AND delivered_at IS NOT NULL AND read_at IS NOT NULL";
        assert_eq!(fixture.number(whole).await, 1);
        assert_eq!(fixture.usage().await, "2/1");
        fixture.assert_recount().await;
    }
    // A result that arrives after the status update changes nothing.
    let late = SendResult::Sent {
        message_id: Some("other".into()),
        wa_id: None,
    };
    fixture
        .runs()
        .record(run, &[(sends[0], late), (sends[1], SendResult::Unknown)])
        .await
        .unwrap();
    assert_eq!(statuses(&fixture, &sends).await, ["read", "delivered", "pending"]);
    let message_id = format!("SELECT wa_message_id FROM campaign_sends WHERE id = '{}'", sends[0]);
    assert_eq!(fixture.text(&message_id).await.unwrap(), "m0");
    fixture.assert_recount().await;
}

#[tokio::test]
async fn failed_status_returns_the_message_to_the_quota() {
    let (fixture, run, sends) = in_flight().await;
    fixture
        .runs()
        .record(run, &[(sends[0], SendResult::Unknown)])
        .await
        .unwrap();
    let failure = |send, message| StatusUpdate {
        error_code: Some(131_047),
        error_message: Some("re-engagement".into()),
        at: NOW + Duration::SECOND,
        ..status_update(Some(send), message, SendStatus::Failed)
    };
    let batch = [
        status_update(Some(sends[1]), "m1", SendStatus::Sent),
        failure(sends[1], "m1"),
        failure(sends[0], "m0"),
    ];
    fixture.status_updates().apply(fixture.account, &batch).await.unwrap();
    assert_eq!(statuses(&fixture, &sends).await, ["failed", "failed", "pending"]);
    assert_eq!(fixture.usage().await, "0/1");
    fixture.assert_recount().await;
    let row = format!(
        "SELECT error_code || ' ' || error_message || ' ' || (failed_at = '2026-03-01 12:00:01.123456Z')
           || ' ' || (unknown_at IS NULL) FROM campaign_sends WHERE id = '{}'",
        sends[0]
    );
    assert_eq!(fixture.text(&row).await.unwrap(), "131047 re-engagement true true");
}

#[tokio::test]
async fn concurrent_status_updates_are_counted_once() {
    let fixture = DbFixture::new().await;
    fixture.add_contacts(40).await;
    let worker = id();
    let (_, run) = fixture.started(worker).await;
    let sends = fixture.in_flight(run, worker, 40).await;
    let batches = (0..8).map(|n| {
        let (store, account, mut sends) = (fixture.status_updates(), fixture.account, sends.clone());
        if n % 2 == 0 {
            sends.reverse();
        }
        let status = [
            SendStatus::Sent,
            SendStatus::Delivered,
            SendStatus::Read,
            SendStatus::Sent,
        ][n % 4];
        async move {
            let batch: Vec<_> = sends
                .iter()
                .map(|&send| status_update(Some(send), &send.to_string(), status))
                .collect();
            store.apply(account, &batch).await.unwrap();
        }
    });
    futures_util::future::join_all(batches).await;
    assert_eq!(fixture.usage().await, "40/0");
    assert_eq!(fixture.number("SELECT read FROM campaign_counters").await, 40);
    fixture.assert_recount().await;
}

#[tokio::test]
async fn stopped_marketing_error_opts_the_contact_out() {
    let (fixture, run, sends) = in_flight().await;
    let stopped_result = SendResult::Failed {
        code: Some(131_050),
        message: "stopped".into(),
    };
    let limit_result = SendResult::Failed {
        code: Some(131_049),
        message: "limit".into(),
    };
    fixture
        .runs()
        .record(run, &[(sends[0], stopped_result), (sends[1], limit_result)])
        .await
        .unwrap();
    let stopped = StatusUpdate {
        error_code: Some(131_050),
        ..status_update(Some(sends[2]), "m2", SendStatus::Failed)
    };
    for _ in 0..2 {
        fixture
            .status_updates()
            .apply(fixture.account, std::slice::from_ref(&stopped))
            .await
            .unwrap();
    }
    let out = "SELECT string_agg(s.id::text, ' ' ORDER BY s.id) FROM campaign_sends s
         JOIN contacts c ON c.id = s.contact_id WHERE c.opted_out_at IS NOT NULL";
    let mut expected = [sends[0].to_string(), sends[2].to_string()];
    expected.sort_unstable();
    assert_eq!(fixture.text(out).await.unwrap(), expected.join(" "));
    let at = format!(
        "SELECT c.opted_out_at = '2026-03-01 12:00:00.123456Z' FROM contacts c JOIN campaign_sends s ON s.contact_id = c.id
         WHERE s.id = '{}'",
        sends[2]
    );
    assert_eq!(
        fixture.text(&at).await.unwrap(),
        "true",
        "the opt-out has the time of the status update"
    );
    // A later consent change wins.
    fixture
        .sql("UPDATE contacts SET opted_out_at = NULL, consent_at = now()")
        .await;
    fixture
        .status_updates()
        .apply(fixture.account, &[stopped])
        .await
        .unwrap();
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM contacts WHERE opted_out_at IS NOT NULL")
            .await,
        0
    );
    fixture.assert_recount().await;
}

/// Storing a callback commits synchronously. Applying it commits asynchronously: a lost update is applied again.
#[tokio::test]
async fn status_updates_commit_asynchronously() {
    let (mut fixture, _, sends) = in_flight().await;
    fixture
        .record_commits(&[("whatsapp_callbacks", "INSERT"), ("campaign_sends", "UPDATE")])
        .await;
    let callbacks = PgCallbacks::new(fixture.owner.clone());
    let callback = id().into();
    callbacks.store(callback, b"{}", Duration::minutes(1)).await.unwrap();
    let batch = [status_update(Some(sends[0]), "m0", SendStatus::Delivered)];
    fixture.status_updates().apply(fixture.account, &batch).await.unwrap();
    assert_eq!(
        fixture.recorded_commits().await,
        "campaign_sends off, whatsapp_callbacks on"
    );
    fixture
        .sql(
            "TRUNCATE seen;
             CREATE CONSTRAINT TRIGGER at_end AFTER DELETE ON whatsapp_callbacks
               DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()",
        )
        .await;
    callbacks.delete(callback).await.unwrap();
    assert_eq!(fixture.recorded_commits().await, "whatsapp_callbacks off");
    assert_eq!(fixture.number("SELECT count(*) FROM whatsapp_callbacks").await, 0);
}

/// An import may lock a contact for long. Only writes that concern this contact wait, not others of the campaign.
#[tokio::test]
async fn locked_contact_does_not_block_other_status_updates() {
    let (fixture, run, sends) = in_flight().await;
    let one_slot = "CREATE OR REPLACE FUNCTION counter_slot(messages bigint) RETURNS smallint
      LANGUAGE sql STABLE AS 'SELECT 0::smallint'";
    fixture.sql(one_slot).await;
    let config = PoolConfig {
        lock_timeout: DEADLINE,
        statement_timeout: DEADLINE,
        ..fixture.db.config()
    };
    let pool = TenantPool::new(&config).unwrap();
    let (store, runs) = (
        PgStatusUpdates::new(pool.clone(), ERROR_CODES),
        PgRuns::new(pool, fixture.owner.clone(), ERROR_CODES),
    );
    let status = StatusUpdate {
        error_code: Some(STOPPED_MARKETING),
        ..status_update(Some(sends[0]), "m0", SendStatus::Failed)
    };
    let result = SendResult::Failed {
        code: Some(STOPPED_MARKETING),
        message: "no".into(),
    };
    let (account, recorded) = (fixture.account, sends[2]);
    let status = async move { store.apply(account, &[status]).await };
    let result = async move { runs.record(run, &[(recorded, result)]).await };
    let holder = fixture.db.client().await;
    let lock_contact_of = async |send: SendId| {
        let statement = format!(
            "BEGIN; SELECT FROM contacts c JOIN campaign_sends s ON s.contact_id = c.id WHERE s.id = '{send}' FOR UPDATE OF c"
        );
        holder.batch_execute(&statement).await.unwrap();
    };
    lock_contact_of(sends[0]).await;
    let status = tokio::spawn(status);
    fixture.blocked(1).await;
    let unrelated = status_update(Some(sends[1]), "m1", SendStatus::Delivered);
    fixture.status_updates().apply(account, &[unrelated]).await.unwrap();
    holder.batch_execute("COMMIT").await.unwrap();
    status.await.unwrap().unwrap();
    lock_contact_of(recorded).await;
    let result = tokio::spawn(result);
    fixture.blocked(1).await;
    let unrelated = status_update(Some(sends[1]), "m1", SendStatus::Read);
    fixture.status_updates().apply(account, &[unrelated]).await.unwrap();
    holder.batch_execute("COMMIT").await.unwrap();
    result.await.unwrap().unwrap();
    assert_eq!(statuses(&fixture, &sends).await, ["failed", "read", "failed"]);
    fixture.assert_recount().await;
}
