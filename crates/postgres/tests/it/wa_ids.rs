//! A `wa_id` belongs to one contact, even if concurrent writers set it on several contacts.

use recado_domain::campaigns::{SendResult, SendStore as _};
use recado_domain::conversations::{ConversationStore, InboundEvent, InboxStore};
use recado_domain::shared::SendId;

use crate::conversations::{
    connected, conversations, inbound_items, message, receive, reply_to_inbound_message, sender, sent,
};
use crate::status_updates::in_flight;
use crate::support::{DbFixture, id};

/// The identifiers of the contacts that are not deleted, ordered by name.
const CONTACT_IDENTIFIERS: &str =
    "SELECT string_agg(concat_ws(' ', name, phone, wa_id, wa_user_id), ', ' ORDER BY name) FROM contacts
    WHERE deleted_at IS NULL";

async fn contact_identifiers(fixture: &DbFixture) -> String {
    fixture.text(CONTACT_IDENTIFIERS).await.unwrap_or_default()
}

async fn holders(fixture: &DbFixture, wa_id: &str) -> i64 {
    let query = format!("SELECT count(*) FROM contacts WHERE wa_id = '{wa_id}' AND deleted_at IS NULL");
    fixture.number(&query).await
}

/// A result that reports the contact's `wa_id`.
fn result_with_wa_id(send: SendId, wa_id: &str) -> (SendId, SendResult) {
    let result = SendResult::Sent {
        message_id: Some(format!("m{send}")),
        wa_id: Some(wa_id.into()),
    };
    (send, result)
}

/// Sets the `wa_id` of a contact in a transaction that stays open on the returned connection.
async fn set_wa_id_uncommitted(fixture: &DbFixture, wa_id: &str, contact: &str) -> tokio_postgres::Client {
    let writer = fixture.db.client().await;
    let update = format!("BEGIN; UPDATE contacts SET wa_id = '{wa_id}' WHERE {contact}");
    writer.batch_execute(&update).await.unwrap();
    writer
}

async fn commit_when_awaited(fixture: &DbFixture, writer: &tokio_postgres::Client) {
    fixture.blocked(1).await;
    writer.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_results_with_one_wa_id_are_all_recorded() {
    let (fixture, run, sends) = in_flight().await;
    let contact = format!("id = (SELECT contact_id FROM campaign_sends WHERE id = '{}')", sends[0]);
    let writer = set_wa_id_uncommitted(&fixture, "551", &contact).await;
    let runs = fixture.runs();
    let results = [result_with_wa_id(sends[1], "551"), result_with_wa_id(sends[2], "552")];
    let (recorded, ()) = tokio::join!(runs.record(run, &results), commit_when_awaited(&fixture, &writer));
    recorded.unwrap();
    assert_eq!((holders(&fixture, "551").await, holders(&fixture, "552").await), (1, 1));
    let sent = "SELECT count(*) FROM campaign_sends WHERE status = 'sent'";
    assert_eq!(fixture.number(sent).await, 2);
}

#[tokio::test]
async fn batch_with_a_duplicate_wa_id_keeps_the_older_contact() {
    let (fixture, run, sends) = in_flight().await;
    let results: Vec<_> = sends.iter().map(|&send| result_with_wa_id(send, "551")).collect();
    fixture.runs().record(run, &results).await.unwrap();
    assert_eq!(holders(&fixture, "551").await, 1);
    let oldest =
        "SELECT count(*) FROM contacts WHERE wa_id = '551' AND id = (SELECT min(id::text)::uuid FROM contacts)";
    assert_eq!(fixture.number(oldest).await, 1);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM campaign_sends WHERE status = 'sent'")
            .await,
        3
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reply_result_with_a_taken_wa_id_is_recorded() {
    let (fixture, profile) = connected().await;
    let reply = reply_to_inbound_message(&fixture, profile).await;
    let insert = format!(
        "INSERT INTO contacts (account_id, id, name, wa_user_id) VALUES ('{}', '{}', 'Bia', 'BR.2')",
        fixture.account,
        id()
    );
    fixture.sql(&insert).await;
    let writer = set_wa_id_uncommitted(&fixture, "551196", "name = 'Bia'").await;
    let store = conversations(&fixture);
    let result = sent("w1");
    let (recorded, ()) = tokio::join!(
        store.record_reply(fixture.account, reply.id, &result),
        commit_when_awaited(&fixture, &writer)
    );
    assert!(recorded.unwrap().is_some());
    assert_eq!(holders(&fixture, "551196").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_is_stored_while_its_wa_id_is_being_taken() {
    let (fixture, _) = connected().await;
    let insert = format!(
        "INSERT INTO contacts (account_id, id, name, wa_user_id) VALUES ('{}', '{}', 'Bia', 'BR.2')",
        fixture.account,
        id()
    );
    fixture.sql(&insert).await;
    // The sender has no valid phone number, so only its `wa_id` identifies the contact.
    let writer = set_wa_id_uncommitted(&fixture, "551", "name = 'Bia'").await;
    let inbound = inbound_items(vec![message("a", sender("551"), "oi", 0)]);
    let inbox = crate::conversations::inbox(&fixture);
    let (received, ()) = tokio::join!(
        inbox.receive(fixture.account, "111", &inbound),
        commit_when_awaited(&fixture, &writer)
    );
    received.unwrap();
    assert_eq!(holders(&fixture, "551").await, 1);
    assert_eq!(contact_identifiers(&fixture).await, "Bia 551 BR.2");
    assert_eq!(fixture.number("SELECT count(*) FROM messages").await, 1);
}

/// In one batch, a contact leaves a number and a new or existing contact takes it.
#[tokio::test]
async fn number_changes_within_one_batch_are_applied() {
    let (fixture, _) = connected().await;
    let number_changed = |from: &str, to: &str| InboundEvent::NumberChanged {
        sender: sender(from),
        now: sender(to),
    };
    let named = |name: &str, wa_id: &str| {
        let mut sender = sender(wa_id);
        sender.name = Some(name.into());
        sender
    };
    receive(
        &fixture,
        fixture.account,
        vec![message("a", named("Ana", "5511961111111"), "oi", 0)],
    )
    .await;
    let batch = vec![
        number_changed("5511961111111", "5511962222222"),
        message("b", named("Bia", "5511961111111"), "oi", 1),
    ];
    receive(&fixture, fixture.account, batch).await;
    assert_eq!(
        contact_identifiers(&fixture).await,
        "Ana +5511962222222 5511962222222, Bia +5511961111111 5511961111111"
    );
    let batch = vec![
        number_changed("5511962222222", "5511963333333"),
        number_changed("5511961111111", "5511962222222"),
        message("c", named("Caio", "5511961111111"), "oi", 2),
    ];
    receive(&fixture, fixture.account, batch).await;
    assert_eq!(
        contact_identifiers(&fixture).await,
        "Ana +5511963333333 5511963333333, Bia +5511962222222 5511962222222, Caio +5511961111111 5511961111111"
    );
    assert_eq!(fixture.number("SELECT count(*) FROM messages").await, 3);
}
