//! Writes that meet an erasure: what was read before it, and what is left of messages afterwards.

use std::collections::BTreeMap;

use recado_domain::callbacks::{StatusUpdate, StatusUpdateStore as _};
use recado_domain::campaigns::QueuedRun;
use recado_domain::conversations::InboxStore as _;
use recado_domain::direct_messages::{
    CreationOutcome, CreationPlan, Decision, DirectMessageStore as _, MessageInput, MessageRequest, RecipientInput,
    decide,
};
use recado_domain::erasures::{ErasureQueue as _, ErasureStep};
use recado_domain::messaging::{ContentInput, SendStatus};
use recado_domain::retention::{ArchiveStep, ArchiveStore as _};
use recado_domain::shared::{ContactId, Role, SendId, Tenant};
use recado_postgres::PgDirectMessages;
use uuid::Uuid;

use crate::conversations::{connected, inbound_items, inbox, message, sender};
use crate::error_codes::ERROR_CODES;
use crate::retention::{ended, file, horizon};
use crate::status_updates::{in_flight, status_update};
use crate::support::{DbFixture, LEASE, id};
use crate::webhook_events::endpoint;

const PHONE: &str = "+5511961234567";

/// The batch waits for the contact while the erasure commits. Its message is older, and makes no new contact.
#[tokio::test]
async fn batch_that_waits_for_the_erasure_stores_no_old_message() {
    let (fixture, _) = connected().await;
    let contact = fixture.person(fixture.account).await;
    let lock = fixture.db.client().await;
    lock.batch_execute("BEGIN; SELECT FROM contacts FOR UPDATE")
        .await
        .unwrap();
    let items = inbound_items(vec![message("m1", sender("5511961234567"), "oi", 0)]);
    let erased = fixture.erase(fixture.account, contact);
    let received = async {
        // The erasure is first in the queue of the lock.
        fixture.blocked(1).await;
        inbox(&fixture).receive(fixture.account, "111", &items).await.unwrap();
    };
    let released = async {
        fixture.blocked(2).await;
        lock.batch_execute("COMMIT").await.unwrap();
    };
    tokio::join!(erased, received, released);
    assert_eq!(fixture.number("SELECT count(*) FROM contacts").await, 1);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM messages WHERE wa_message_id = 'm1'")
            .await,
        0
    );
}

#[tokio::test]
async fn message_that_was_decided_before_the_erasure_is_decided_again() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    let contact = fixture.person(account).await;
    fixture.sql("UPDATE conversations SET last_inbound_at = now()").await;
    let input = MessageInput {
        to: Some(RecipientInput {
            phone: Some(PHONE.into()),
            ..RecipientInput::default()
        }),
        content: ContentInput::text("oi"),
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
    fixture.erase(account, contact).await;
    assert_eq!(store.insert(account, &plan).await.unwrap(), CreationOutcome::Changed);
    assert_eq!(fixture.number("SELECT count(*) FROM direct_messages").await, 0);
}

/// Takes the step of campaign sends of the only erasure.
async fn empty_sends(fixture: &DbFixture) {
    let erasures = fixture.erasures();
    let claim = erasures.claim(id(), LEASE).await.unwrap().unwrap();
    erasures
        .run_batch(&claim, ErasureStep::CampaignSends, 10, LEASE)
        .await
        .unwrap();
}

/// Resets a failed send as a retry does.
async fn reset_for_retry(fixture: &DbFixture, run: QueuedRun, send: SendId) {
    let statement = include_str!("../../src/campaigns/reset_retry_batch.sql")
        .replace("{keys}", "(SELECT unnest($2) AS id)")
        .replace("{of_campaign}", "s.campaign_id = $3")
        .replace("{limit}", "")
        .replace("$1", &format!("'{}'", fixture.account))
        .replace("$2", &format!("ARRAY['{send}'::uuid]"))
        .replace("$3", &format!("'{}'", run.campaign_id))
        .replace("$4", &format!("'{}'", Uuid::nil()))
        .replace("$5", &format!("'{}'", Uuid::nil()))
        .replace("$6", &format!("'{}'", Uuid::max()));
    fixture.sql(&statement).await;
    fixture.sql("UPDATE campaign_sends SET started_at = now()").await;
}

async fn contact_of(fixture: &DbFixture, send: SendId) -> ContactId {
    let query = format!("SELECT contact_id::text FROM campaign_sends WHERE id = '{send}'");
    fixture.text(&query).await.unwrap().parse::<Uuid>().unwrap().into()
}

/// WhatsApp's message ids of all tries leave, however often the send was tried again.
#[tokio::test]
async fn message_ids_of_all_tries_leave() {
    let (fixture, run, sends) = in_flight().await;
    let send = sends[0];
    for message in ["m1", "m2", "m3"] {
        let failed = status_update(Some(send), message, SendStatus::Failed);
        fixture
            .status_updates()
            .apply(fixture.account, &[failed])
            .await
            .unwrap();
        reset_for_retry(&fixture, run, send).await;
    }
    let stored = "SELECT superseded_wa_message_id FROM campaign_sends WHERE superseded_wa_message_id IS NOT NULL";
    assert_eq!(fixture.text(stored).await.as_deref(), Some("m1 m2 m3"));
    let ids = "SELECT count(*) FROM sent_messages";
    assert_eq!(fixture.number(ids).await, 3);
    fixture.erase(fixture.account, contact_of(&fixture, send).await).await;
    empty_sends(&fixture).await;
    assert_eq!(fixture.number(ids).await, 0);
    assert_eq!(fixture.text(stored).await, None);
}

/// The list of message ids would name the person after the send has left its table.
#[tokio::test]
async fn message_ids_of_archived_sends_leave_with_them() {
    let (fixture, run, _) = ended().await;
    let (retention, account) = (fixture.retention(), fixture.account);
    assert_eq!(fixture.number("SELECT count(*) FROM sent_messages").await, 3);
    let ArchiveStep::Write(task) = retention.next(account, horizon(), id()).await.unwrap() else {
        panic!("no attempt")
    };
    let file = file(task.key, 3);
    assert!(retention.complete(account, run.campaign_id, &file).await.unwrap());
    let after = SendId(Uuid::nil());
    retention
        .remove_sends(account, run.campaign_id, after, 10)
        .await
        .unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM campaign_sends").await, 0);
    assert_eq!(fixture.number("SELECT count(*) FROM sent_messages").await, 0);
}

/// A status update after the request changes the status. It stores no text and has no event.
#[tokio::test]
async fn status_update_of_an_erased_contact_has_no_event() {
    let (fixture, _, sends) = in_flight().await;
    endpoint(&fixture, fixture.account, "{*}", true).await;
    fixture
        .erase(fixture.account, contact_of(&fixture, sends[0]).await)
        .await;
    fixture.sql("DELETE FROM outbox_events").await;
    let updates = [(sends[0], "m0"), (sends[1], "m1")].map(|(send, message)| StatusUpdate {
        error_message: Some(format!("{PHONE} is not reachable")),
        ..status_update(Some(send), message, SendStatus::Failed)
    });
    fixture.status_updates().apply(fixture.account, &updates).await.unwrap();
    let events = "SELECT string_agg(payload::text, ' ') FROM outbox_events WHERE payload ->> 'type' LIKE 'message.%'";
    let events = fixture.text(events).await.unwrap();
    assert!(
        events.contains(&sends[1].to_string()) && !events.contains(&sends[0].to_string()),
        "{events}"
    );
    for (send, expected) in [
        (sends[0], "failed - -".to_owned()),
        (sends[1], format!("failed {PHONE} is not reachable m1")),
    ] {
        let stored = format!(
            "SELECT concat_ws(' ', status, coalesce(error_message, '-'), coalesce(wa_message_id, '-'))
             FROM campaign_sends WHERE id = '{send}'"
        );
        assert_eq!(fixture.text(&stored).await, Some(expected));
    }
}

/// An upload stays as long as a message to another receiver, who is not erased, has it.
#[tokio::test]
async fn upload_of_several_people_leaves_with_the_last_one() {
    let fixture = DbFixture::new().await;
    let account = fixture.account;
    let (first, second) = (fixture.person(account).await, id());
    let people = [first, second.into()];
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name) VALUES ('{account}', '{second}', 'Bia')"
        ))
        .await;
    let [shared, own] = [id(), id()];
    for upload in [shared, own] {
        fixture
            .sql(&format!(
                "INSERT INTO message_media (account_id, id, type, mime_type, state, file_id, written_at, expires_at, file_name)
                 VALUES ('{account}', '{upload}', 'document', 'application/pdf', 'ready', '{upload}', now(),
                   now() + interval '1 day', 'f.pdf')"
            ))
            .await;
    }
    for (contact, upload) in [(people[0], shared), (people[1], shared), (people[0], own)] {
        fixture
            .sql(&format!(
                "INSERT INTO direct_messages (account_id, id, contact_id, profile_id, kind, request, status, media_id,
                   send_at, expires_at, created_by, created_at, updated_at)
                 VALUES ('{account}', gen_random_uuid(), '{contact}', '{contact}', 'media', '{{}}', 'sent', '{upload}',
                   now(), now(), '{contact}', now(), now())"
            ))
            .await;
    }
    let ready = "SELECT count(*) FROM message_media WHERE state = 'ready' AND file_name IS NOT NULL";
    for (contact, left) in people.into_iter().zip([1, 0]) {
        fixture.erase(account, contact).await;
        let erasures = fixture.erasures();
        let claim = erasures.claim(id(), LEASE).await.unwrap().unwrap();
        let (_, released) = erasures
            .release_files(&claim, ErasureStep::Files, 10, LEASE)
            .await
            .unwrap();
        assert_eq!((released.len(), fixture.number(ready).await), (1, left));
        fixture.sql("DELETE FROM erasures").await;
    }
}
