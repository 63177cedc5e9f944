//! One id with WhatsApp is one contact's, whoever learns it at the same time.

use recado_domain::campaigns::{RunStore, SendResult};
use recado_domain::conversations::{ConversationStore, InboundEvent, InboxStore};
use recado_domain::shared::SendId;
use recado_postgres::PgInbox;

use crate::conversations::{connected, conversations, inbound_items, message, receive, replied, sender, sent};
use crate::status_updates::in_flight;
use crate::support::{DbFixture, id};

/// The ids of living contacts, by name.
const KNOWN: &str =
    "SELECT string_agg(concat_ws(' ', name, phone, wa_id, wa_user_id), ', ' ORDER BY name) FROM contacts
    WHERE deleted_at IS NULL";

async fn known(fixture: &DbFixture) -> String {
    fixture.text(KNOWN).await.unwrap_or_default()
}

async fn holders(fixture: &DbFixture, wa_id: &str) -> i64 {
    let query = format!("SELECT count(*) FROM contacts WHERE wa_id = '{wa_id}' AND deleted_at IS NULL");
    fixture.number(&query).await
}

fn taught(send: SendId, wa_id: &str) -> (SendId, SendResult) {
    let result = SendResult::Sent {
        message_id: Some(format!("m{send}")),
        wa_id: Some(wa_id.into()),
    };
    (send, result)
}

/// Another connection has taught this contact an id, and has not committed.
async fn teaching(fixture: &DbFixture, wa_id: &str, contact: &str) -> tokio_postgres::Client {
    let other = fixture.db.client().await;
    let teach = format!("BEGIN; UPDATE contacts SET wa_id = '{wa_id}' WHERE {contact}");
    other.batch_execute(&teach).await.unwrap();
    other
}

async fn commit_when_awaited(fixture: &DbFixture, other: &tokio_postgres::Client) {
    fixture.blocked(1).await;
    other.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sends_that_teach_one_wa_id_at_once_are_all_recorded() {
    let (fixture, run, sends) = in_flight().await;
    let contact = format!("id = (SELECT contact_id FROM campaign_sends WHERE id = '{}')", sends[0]);
    let other = teaching(&fixture, "551", &contact).await;
    let runs = fixture.runs();
    let results = [taught(sends[1], "551"), taught(sends[2], "552")];
    let (recorded, ()) = tokio::join!(runs.record(run, &results), commit_when_awaited(&fixture, &other));
    recorded.unwrap();
    assert_eq!((holders(&fixture, "551").await, holders(&fixture, "552").await), (1, 1));
    let sent = "SELECT count(*) FROM campaign_sends WHERE status = 'sent'";
    assert_eq!(fixture.number(sent).await, 2);
}

#[tokio::test]
async fn batch_that_teaches_one_wa_id_twice_keeps_the_older_contact() {
    let (fixture, run, sends) = in_flight().await;
    let results: Vec<_> = sends.iter().map(|&send| taught(send, "551")).collect();
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
async fn reply_that_teaches_a_wa_id_taken_meanwhile_is_recorded() {
    let (fixture, profile) = connected().await;
    let reply = replied(&fixture, profile).await;
    let insert = format!(
        "INSERT INTO contacts (account_id, id, name, wa_user_id) VALUES ('{}', '{}', 'Bia', 'BR.2')",
        fixture.account,
        id()
    );
    fixture.sql(&insert).await;
    let other = teaching(&fixture, "551196", "name = 'Bia'").await;
    let store = conversations(&fixture);
    let result = sent("w1");
    let (recorded, ()) = tokio::join!(
        store.record_reply(fixture.account, reply.id, &result),
        commit_when_awaited(&fixture, &other)
    );
    assert!(recorded.unwrap().is_some());
    assert_eq!(holders(&fixture, "551196").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_of_a_sender_whose_wa_id_is_learned_meanwhile_arrives() {
    let (fixture, _) = connected().await;
    let insert = format!(
        "INSERT INTO contacts (account_id, id, name, wa_user_id) VALUES ('{}', '{}', 'Bia', 'BR.2')",
        fixture.account,
        id()
    );
    fixture.sql(&insert).await;
    // The number is none of the plan: the sender is found by its `wa_id` alone.
    let other = teaching(&fixture, "551", "name = 'Bia'").await;
    let told = inbound_items(vec![message("a", sender("551"), "oi", 0)]);
    let inbox = PgInbox::new(fixture.tenants.clone());
    let (received, ()) = tokio::join!(
        inbox.receive(fixture.account, "111", &told),
        commit_when_awaited(&fixture, &other)
    );
    received.unwrap();
    assert_eq!(holders(&fixture, "551").await, 1);
    assert_eq!(known(&fixture).await, "Bia 551 BR.2");
    assert_eq!(fixture.number("SELECT count(*) FROM messages").await, 1);
}

/// A number is given up and taken over by the same batch: by a new contact, and by one that is known.
#[tokio::test]
async fn ids_that_change_hands_within_a_batch_arrive() {
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
        known(&fixture).await,
        "Ana +5511962222222 5511962222222, Bia +5511961111111 5511961111111"
    );
    let batch = vec![
        number_changed("5511962222222", "5511963333333"),
        number_changed("5511961111111", "5511962222222"),
        message("c", named("Caio", "5511961111111"), "oi", 2),
    ];
    receive(&fixture, fixture.account, batch).await;
    assert_eq!(
        known(&fixture).await,
        "Ana +5511963333333 5511963333333, Bia +5511962222222 5511962222222, Caio +5511961111111 5511961111111"
    );
    assert_eq!(fixture.number("SELECT count(*) FROM messages").await, 3);
}

/// The migration that makes the id unique can be applied to a database where two contacts bear one.
#[tokio::test]
async fn duplicates_stay_with_the_contact_that_messages_reach() {
    let fixture = DbFixture::new().await;
    let other = fixture.another_account().await;
    fixture.sql("DROP INDEX contacts_wa_id_unique").await;
    let insert =
        async |account: recado_domain::shared::AccountId, name: &str, phone: &str, wa_id: &str, deleted: &str| {
            let values = format!("'{account}', '{}', '{name}', {phone}, '{wa_id}', {deleted}", id());
            let columns = "account_id, id, name, phone, wa_id, deleted_at";
            fixture
                .sql(&format!("INSERT INTO contacts ({columns}) VALUES ({values})"))
                .await;
        };
    for (name, phone, wa_id, deleted) in [
        // By the number without its ninth digit, whoever is older.
        ("a1", "NULL", "553188887777", "NULL"),
        ("a2", "'+5531988887777'", "553188887777", "NULL"),
        // By the number as it is.
        ("b1", "'+16505550000'", "16505551234", "NULL"),
        ("b2", "'+16505551234'", "16505551234", "NULL"),
        ("b3", "NULL", "16505551234", "NULL"),
        // The oldest one; who is deleted does not count.
        ("c0", "NULL", "551", "now()"),
        ("c1", "NULL", "551", "NULL"),
        ("c2", "'+5511961234567'", "551", "NULL"),
        ("d1", "NULL", "552", "NULL"),
    ] {
        insert(fixture.account, name, phone, wa_id, deleted).await;
    }
    insert(other, "e1", "NULL", "551", "NULL").await;
    let migration = include_str!("../../../../migrations/2026-11-24-000067_contacts_wa_id_duplicates/up.sql");
    let index = include_str!("../../../../migrations/2026-11-24-000068_contacts_wa_id_unique/up.sql");
    for _ in 0..2 {
        fixture.sql(migration).await;
        let bearers = "SELECT string_agg(name, ' ' ORDER BY name) FROM contacts WHERE wa_id IS NOT NULL";
        assert_eq!(fixture.text(bearers).await.unwrap(), "a2 b2 c0 c1 d1 e1");
    }
    fixture.sql(index).await;
}
