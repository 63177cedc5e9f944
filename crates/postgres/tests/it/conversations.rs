//! Conversations: inbound events, replies and their status updates.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;
use recado_domain::callbacks::{StatusUpdate, StatusUpdateStore};
use recado_domain::campaigns::Variables;
use recado_domain::conversations::{
    BegunReply, Conversation, ConversationQuery, ConversationStatus, ConversationStore, Direction, InboundEvent,
    InboundItem, InboundMessage, InboxStore, Message, MessageOrigin, MessageStatus, MockIdentityReport, ReceiveOutcome,
    ReplyDraft, ReplyResult, Sender,
};
use recado_domain::direct_messages::{RequestedContent, RequestedTemplate, RequestedValues};
use recado_domain::messaging::{AddressKind, MessageContent, SendStatus};
use recado_domain::rollups::RollupStore;
use recado_domain::shared::{AccountId, ContactId, ConversationId, CursorQuery, MessageId, ProfileId, TimeCursor};
use recado_domain::whatsapp::ProfileStore;
use recado_postgres::{PgConversations, PgInbox, PgProfiles, PgRollups};
use serde_json::json;
use time::Duration;
use uuid::Uuid;

use crate::campaign_events;
use crate::status_updates::status_update;
use crate::support::{DbFixture, NOW, id, id_at, position};
use crate::webhook_events::endpoint;
use crate::whatsapp::profile;

const NUMBER: &str = "111";

/// A fixture whose account has connected the number `NUMBER`.
pub(crate) async fn connected() -> (DbFixture, ProfileId) {
    let fixture = DbFixture::new().await;
    let stored = profile(NUMBER);
    PgProfiles::new(fixture.tenants.clone())
        .insert(fixture.account, &stored, &[])
        .await
        .unwrap();
    (fixture, stored.profile.id)
}

pub(crate) fn conversations(fixture: &DbFixture) -> PgConversations {
    PgConversations::new(fixture.tenants.clone(), fixture.owner.clone())
}

pub(crate) fn inbox(fixture: &DbFixture) -> PgInbox {
    let mut report = MockIdentityReport::new();
    report.expect_same_persons().return_const(());
    PgInbox::new(fixture.tenants.clone(), Arc::new(report))
}

pub(crate) async fn receive(fixture: &DbFixture, account: AccountId, events: Vec<InboundEvent>) -> ReceiveOutcome {
    let inbound_items = inbound_items(events);
    inbox(fixture).receive(account, NUMBER, &inbound_items).await.unwrap()
}

pub(crate) fn inbound_items(events: Vec<InboundEvent>) -> Vec<InboundItem> {
    let item = |event| InboundItem {
        event,
        contact_id: id().into(),
        conversation_id: id().into(),
        message_id: id().into(),
        media_id: id().into(),
    };
    events.into_iter().map(item).collect()
}

pub(crate) fn sender(wa_id: &str) -> Sender {
    Sender {
        wa_id: Some(wa_id.into()),
        user_id: None,
        name: Some("Ana".into()),
        ..Sender::default()
    }
}

pub(crate) fn message(wamid: &str, sender: Sender, text: &str, minutes: i64) -> InboundEvent {
    InboundEvent::Message(InboundMessage {
        wa_message_id: wamid.into(),
        sender,
        at: NOW + Duration::minutes(minutes),
        kind: "text".into(),
        text: Some(text.into()),
        can_opt_out: true,
        answered_wa_id: None,
        referral: None,
        payload: json!({ "context": { "id": "x" } }),
        caption: None,
        interactive: None,
        quoted: None,
        file: None,
    })
}

fn all(limit: i64) -> ConversationQuery {
    ConversationQuery {
        status: None,
        page: cursor_query(None, limit),
    }
}

fn cursor_query(cursor: Option<TimeCursor>, limit: i64) -> CursorQuery<TimeCursor> {
    CursorQuery { cursor, limit }
}

pub(crate) async fn only_conversation(fixture: &DbFixture, account: AccountId) -> Conversation {
    let found = conversations(fixture).list(account, &all(10)).await.unwrap().data;
    let [conversation] = &found[..] else {
        panic!("{found:?}")
    };
    conversation.clone()
}

async fn messages(fixture: &DbFixture, id: ConversationId) -> Vec<Message> {
    conversations(fixture)
        .messages(fixture.account, id, &cursor_query(None, 100))
        .await
        .unwrap()
        .unwrap()
        .data
}

async fn contact_column(fixture: &DbFixture, column: &str) -> Option<String> {
    fixture
        .text(&format!(
            "SELECT {column} FROM contacts WHERE account_id = '{}'",
            fixture.account
        ))
        .await
}

#[tokio::test]
async fn unknown_sender_becomes_a_contact_with_a_conversation() {
    let (fixture, profile) = connected().await;
    let other = fixture.another_account().await;
    let hidden = Sender {
        wa_id: None,
        user_id: Some("BR.1".into()),
        name: None,
        ..Sender::default()
    };
    receive(
        &fixture,
        fixture.account,
        vec![
            message("a", sender("553188887777"), "oi", 1),
            message("b", hidden, "olá", 2),
        ],
    )
    .await;
    let contacts = "SELECT string_agg(concat_ws(' ', name, phone, wa_id, wa_user_id), ', ' ORDER BY id) FROM contacts";
    assert_eq!(
        fixture.text(contacts).await.unwrap(),
        "Ana +5531988887777 553188887777, BR.1 BR.1"
    );
    let found = conversations(&fixture)
        .list(fixture.account, &all(10))
        .await
        .unwrap()
        .data;
    let times: Vec<_> = found.iter().map(|item| item.last_message_at).collect();
    assert_eq!(times, [NOW + Duration::minutes(2), NOW + Duration::minutes(1)]);
    let stored = messages(&fixture, found[1].id).await;
    let [stored] = &stored[..] else { panic!("{stored:?}") };
    assert_eq!(
        (stored.direction, stored.status, stored.kind.as_str()),
        (Direction::Inbound, MessageStatus::Received, "text")
    );
    assert_eq!(
        (
            stored.text.as_deref(),
            stored.wa_message_id.as_deref(),
            stored.created_at
        ),
        (Some("oi"), Some("a"), NOW + Duration::minutes(1))
    );
    assert_eq!(
        fixture
            .text("SELECT payload FROM messages WHERE wa_message_id = 'a'")
            .await
            .unwrap(),
        r#"{"context": {"id": "x"}}"#
    );
    let profiles = format!("SELECT count(*) FROM conversations WHERE profile_id = '{profile}'");
    assert_eq!(fixture.number(&profiles).await, 2);
    // Other accounts cannot see it, and an account without the number ignores its inbound events.
    assert_eq!(conversations(&fixture).list(other, &all(10)).await.unwrap().data, []);
    assert_eq!(
        conversations(&fixture)
            .messages(other, found[0].id, &cursor_query(None, 9))
            .await
            .unwrap(),
        None
    );
    receive(&fixture, other, vec![message("c", sender("5511961234567"), "oi", 0)]).await;
    assert_eq!(fixture.number("SELECT count(*) FROM contacts").await, 2);
}

#[tokio::test]
async fn inbound_batch_received_ten_times_is_stored_once() {
    let (fixture, _) = connected().await;
    let batch = || {
        let text = |n: i64| {
            message(
                &format!("m{n}"),
                sender(if n % 2 == 0 { "553188887777" } else { "5511961234567" }),
                "oi",
                n,
            )
        };
        (0..6).map(text).collect::<Vec<_>>()
    };
    // The sender has no canonical phone number: only the inbox lock prevents duplicate contacts.
    let odd = || {
        vec![message(
            "odd",
            Sender {
                wa_id: Some("5500".into()),
                ..Sender::default()
            },
            "oi",
            0,
        )]
    };
    join_all((0..10).map(|round| {
        let mut events = batch();
        if round % 2 == 0 {
            events.reverse();
        }
        events.extend(odd());
        receive(&fixture, fixture.account, events)
    }))
    .await;
    assert_eq!(fixture.number("SELECT count(*) FROM contacts").await, 3);
    assert_eq!(fixture.number("SELECT count(*) FROM conversations").await, 3);
    assert_eq!(fixture.number("SELECT count(*) FROM messages").await, 7);
    let latest = conversations(&fixture)
        .list(fixture.account, &all(1))
        .await
        .unwrap()
        .data
        .remove(0);
    assert_eq!(latest.last_message_at, NOW + Duration::minutes(5));
}

#[tokio::test]
async fn inbound_message_finds_a_concurrently_created_contact() {
    let (fixture, _) = connected().await;
    let account = fixture.account;
    let lock = fixture.db.client().await;
    lock.batch_execute(&format!(
        "BEGIN; INSERT INTO contacts (account_id, id, name, phone) VALUES ('{account}', '{}', 'Bia', '+5531988887777')",
        id()
    ))
    .await
    .unwrap();
    let waiting = receive(&fixture, account, vec![message("a", sender("553188887777"), "oi", 0)]);
    let commit = async {
        let waits =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while fixture.number(waits).await == 0 {}
        lock.batch_execute("COMMIT").await.unwrap();
    };
    tokio::join!(waiting, commit);
    assert_eq!(
        contact_column(&fixture, "name || ' ' || wa_id").await.unwrap(),
        "Bia 553188887777"
    );
    assert_eq!(fixture.number("SELECT count(*) FROM messages").await, 1);
}

#[tokio::test]
async fn sender_ids_are_set_only_if_no_contact_has_them() {
    let (fixture, _) = connected().await;
    let account = fixture.account;
    fixture
        .sql(&format!(
            "INSERT INTO contacts (account_id, id, name, phone, wa_user_id) VALUES
               ('{account}', '{}', 'Ana', '+5531988887777', NULL), ('{account}', '{}', 'Bia', NULL, 'BR.2')",
            id(),
            id()
        ))
        .await;
    let both = Sender {
        user_id: Some("BR.2".into()),
        ..sender("553188887777")
    };
    receive(&fixture, account, vec![message("a", both, "oi", 0)]).await;
    let rows = "SELECT string_agg(concat_ws(' ', name, phone, wa_id, wa_user_id), ', ' ORDER BY name) FROM contacts";
    assert_eq!(fixture.text(rows).await.unwrap(), "Ana +5531988887777, Bia BR.2");
    let named =
        "SELECT string_agg(o.name, ', ' ORDER BY c.name) FROM contacts c JOIN contacts o ON o.id = c.same_person_as";
    assert_eq!(fixture.text(named).await.unwrap(), "Bia, Ana");
    let number_changed = InboundEvent::NumberChanged {
        sender: Sender {
            user_id: Some("BR.2".into()),
            ..Sender::default()
        },
        now: sender("553188887777"),
    };
    receive(&fixture, account, vec![number_changed]).await;
    assert_eq!(
        fixture.text(rows).await.unwrap(),
        "Ana +5531988887777, Bia BR.2",
        "contacts are not merged"
    );
    let number_changed = InboundEvent::NumberChanged {
        sender: sender("553188887777"),
        now: Sender {
            user_id: Some("BR.3".into()),
            ..sender("5511961234567")
        },
    };
    receive(&fixture, account, vec![number_changed.clone(), number_changed]).await;
    assert_eq!(
        fixture.text(rows).await.unwrap(),
        "Ana +5511961234567 5511961234567 BR.3, Bia BR.2"
    );
}

#[tokio::test]
async fn consent_changes_apply_by_time_and_ignore_repeats() {
    let (fixture, _) = connected().await;
    let account = fixture.account;
    let consent_change = |opted_in, minutes| InboundEvent::Preference {
        sender: sender("5511961234567"),
        opted_in,
        at: NOW + Duration::minutes(minutes),
    };
    let sair = || message("a", sender("5511961234567"), " Sair ", 1);
    receive(
        &fixture,
        account,
        vec![sair(), message("b", sender("5511961234567"), "STOP", 2)],
    )
    .await;
    let out = "SELECT count(*) FROM contacts WHERE opted_out_at = '2026-03-01 12:01:00.123456Z'";
    assert_eq!(fixture.number(out).await, 1, "the first time wins");
    receive(&fixture, account, vec![consent_change(true, 1)]).await;
    assert_eq!(fixture.number(out).await, 1, "older than the last consent change");
    receive(
        &fixture,
        account,
        vec![consent_change(true, 5), consent_change(false, 4), sair()],
    )
    .await;
    receive(&fixture, account, vec![sair()]).await;
    assert_eq!(contact_column(&fixture, "opted_out_at").await, None);
    receive(&fixture, account, vec![consent_change(false, 6)]).await;
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM contacts WHERE opted_out_at IS NOT NULL")
            .await,
        1
    );
    assert_eq!(fixture.number("SELECT count(*) FROM messages").await, 2);
}

#[tokio::test]
async fn conversation_reopens_and_is_new_after_contact_removal() {
    let (fixture, _) = connected().await;
    let account = fixture.account;
    receive(&fixture, account, vec![message("a", sender("5511961234567"), "oi", 0)]).await;
    let first = only_conversation(&fixture, account).await;
    let store = conversations(&fixture);
    let closed = store
        .set_status(account, first.id, ConversationStatus::Closed)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        closed,
        Conversation {
            status: ConversationStatus::Closed,
            ..first.clone()
        }
    );
    let with_status = |status| ConversationQuery {
        status: Some(status),
        page: cursor_query(None, 9),
    };
    assert_eq!(
        store
            .list(account, &with_status(ConversationStatus::Closed))
            .await
            .unwrap()
            .data,
        [closed]
    );
    assert_eq!(
        store
            .list(account, &with_status(ConversationStatus::Open))
            .await
            .unwrap()
            .data,
        []
    );
    receive(&fixture, account, vec![message("b", sender("5511961234567"), "oi", 1)]).await;
    assert_eq!(
        only_conversation(&fixture, account).await.status,
        ConversationStatus::Open
    );
    assert_eq!(
        store
            .set_status(account, ConversationId(id()), ConversationStatus::Open)
            .await
            .unwrap(),
        None
    );
    fixture.sql("UPDATE contacts SET deleted_at = now()").await;
    assert_eq!(store.list(account, &all(9)).await.unwrap().data, []);
    assert_eq!(
        store.messages(account, first.id, &cursor_query(None, 9)).await.unwrap(),
        None
    );
    receive(&fixture, account, vec![message("c", sender("5511961234567"), "oi", 2)]).await;
    assert_ne!(only_conversation(&fixture, account).await.id, first.id);
}

#[tokio::test]
async fn conversation_pages_are_ordered_by_time_and_id() {
    let (fixture, _) = connected().await;
    let account = fixture.account;
    let events = (0..7_i64).map(|n| message(&format!("m{n}"), sender(&format!("551196123456{n}")), "oi", n / 3));
    receive(&fixture, account, events.collect()).await;
    let store = conversations(&fixture);
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = store
            .list(
                account,
                &ConversationQuery {
                    status: Some(ConversationStatus::Open),
                    page: cursor_query(cursor, 2),
                },
            )
            .await
            .unwrap();
        seen.extend(page.data);
        cursor = position(page.next_cursor);
        if !page.has_more {
            break;
        }
    }
    assert!(
        seen.is_sorted_by(|a, b| (a.last_message_at, a.id) > (b.last_message_at, b.id)),
        "{seen:?}"
    );
    assert_eq!(seen.len(), 7);
    let conversation = seen[0].id;
    let more = (0..9).map(|n| message(&format!("x{n}"), sender("5511961234566"), "oi", 2));
    receive(&fixture, account, more.collect()).await;
    let first = store
        .messages(account, conversation, &cursor_query(None, 4))
        .await
        .unwrap()
        .unwrap();
    let rest = store
        .messages(account, conversation, &cursor_query(position(first.next_cursor), 100))
        .await
        .unwrap()
        .unwrap();
    let ids: HashSet<MessageId> = first.data.iter().chain(&rest.data).map(|message| message.id).collect();
    assert_eq!((ids.len(), rest.has_more), (10, false));
}

#[tokio::test]
async fn pages_merge_direct_messages_in_order() {
    let (fixture, _) = connected().await;
    let (account, store) = (fixture.account, conversations(&fixture));
    let inbound = (0..5).map(|n| message(&format!("m{n}"), sender("5511961234567"), "oi", 2 * n));
    receive(&fixture, account, inbound.collect()).await;
    let conversation = only_conversation(&fixture, account).await;
    // Two of them have the time of an inbound message.
    for minutes in [1, 2, 4, 7] {
        let (id, at) = (id(), format!("'{}'::timestamptz + interval '{minutes} minutes'", NOW));
        fixture
            .sql(&format!(
                "INSERT INTO direct_messages (account_id, id, contact_id, profile_id, kind, request, status, send_at,
                   expires_at, sent_at, conversation_id, created_by, created_at, updated_at)
                 VALUES ('{account}', '{id}', '{contact}', '{id}', 'text',
                   '{{\"content\": {{\"free_form\": {{\"text\": \"direct\"}}}}}}', 'sent', now(), now(), {at},
                   '{conversation}', '{id}', now(), now())",
                contact = conversation.contact_id,
                conversation = conversation.id,
            ))
            .await;
    }
    let all = messages(&fixture, conversation.id).await;
    assert!(
        all.is_sorted_by(|a, b| (a.created_at, a.id) > (b.created_at, b.id)),
        "{all:?}"
    );
    let direct: Vec<_> = all
        .iter()
        .filter(|message| message.origin == MessageOrigin::Api)
        .collect();
    assert_eq!(
        (all.len(), direct.len(), direct[0].text.as_deref()),
        (9, 4, Some("direct"))
    );
    for limit in 1..=4 {
        let (mut paged, mut cursor) = (vec![], None);
        loop {
            let query = cursor_query(cursor, limit);
            let page = store.messages(account, conversation.id, &query).await.unwrap().unwrap();
            paged.extend(page.data);
            cursor = position(page.next_cursor);
            if !page.has_more {
                break;
            }
        }
        assert!(paged == all, "in pages of {limit}");
    }
}

#[tokio::test]
async fn template_reply_reserves_a_message_and_releases_it() {
    let (fixture, profile) = connected().await;
    let (account, store) = (fixture.account, conversations(&fixture));
    receive(&fixture, account, vec![message("a", sender("5511961234567"), "oi", 0)]).await;
    let conversation = only_conversation(&fixture, account).await.id;
    let rollups = PgRollups::new(fixture.owner.clone());
    let reserved = "SELECT coalesce(sum(reserved), 0)::bigint FROM message_usage_slots";
    let draft = |limit| ReplyDraft {
        content: RequestedContent::Template {
            key: RequestedTemplate::Id(id().into()),
            variables: Variables::default(),
            values: RequestedValues::default(),
        },
        monthly_limit: Some(limit),
        ..reply_draft(conversation, id_at(NOW), NOW, profile)
    };
    let refused = draft(0);
    let begun = store.begin_reply(account, &refused).await.unwrap();
    assert_eq!((begun, fixture.number(reserved).await), (BegunReply::QuotaExceeded, 0));
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM messages WHERE direction = 'outbound'")
            .await,
        0
    );
    let failed = ReplyResult::Failed {
        message: "no".into(),
        opted_out: false,
    };
    // Both an accepted and a failed reply give the reservation back; an accepted one counts as a reply.
    for (result, limit) in [(failed, 1), (sent("w"), 1)] {
        let draft = draft(limit);
        let reply = stored(store.begin_reply(account, &draft).await.unwrap()).unwrap();
        assert_eq!((reply.kind.as_str(), fixture.number(reserved).await), ("template", 1));
        assert_eq!(rollups.verify(account).await.unwrap(), []);
        store.record_reply(account, reply.id, &result).await.unwrap();
        assert_eq!(fixture.number(reserved).await, 0);
    }
    let begun = store.begin_reply(account, &draft(1)).await.unwrap();
    assert_eq!(begun, BegunReply::QuotaExceeded, "the month's message is used");
}

/// Receives a message, closes the conversation and begins a reply to it.
pub(crate) async fn reply_to_inbound_message(fixture: &DbFixture, profile: ProfileId) -> Message {
    receive(
        fixture,
        fixture.account,
        vec![message("a", sender("5511961234567"), "oi", 0)],
    )
    .await;
    let store = conversations(fixture);
    let conversation = only_conversation(fixture, fixture.account).await;
    store
        .set_status(fixture.account, conversation.id, ConversationStatus::Closed)
        .await
        .unwrap();
    let draft = reply_draft(conversation.id, id_at(NOW), NOW + Duration::minutes(3), profile);
    stored(store.begin_reply(fixture.account, &draft).await.unwrap()).unwrap()
}

/// The message of a reply that was stored.
pub(crate) fn stored(begun: BegunReply) -> Option<Message> {
    match begun {
        BegunReply::Stored(message) => Some(*message),
        BegunReply::Missing | BegunReply::QuotaExceeded => None,
    }
}

/// A text reply that is not stored yet.
pub(crate) fn reply_draft(
    conversation_id: ConversationId,
    id: Uuid,
    created_at: time::OffsetDateTime,
    profile_id: ProfileId,
) -> ReplyDraft {
    ReplyDraft {
        id: id.into(),
        conversation_id,
        profile_id,
        content: RequestedContent::FreeForm(MessageContent::Text("Olá".into())),
        template_id: None,
        text: Some("Olá".into()),
        context: None,
        address: AddressKind::Phone,
        created_at,
        monthly_limit: None,
    }
}

/// A draft like a message that was stored.
fn draft_of(message: &Message, profile: ProfileId) -> ReplyDraft {
    reply_draft(message.conversation_id, message.id.0, message.created_at, profile)
}

pub(crate) fn sent(wamid: &str) -> ReplyResult {
    ReplyResult::Sent {
        message_id: wamid.into(),
        wa_id: Some("551196".into()),
    }
}

#[tokio::test]
async fn reply_facts_return_number_phone_and_last_inbound_time() {
    let (fixture, profile) = connected().await;
    let account = fixture.account;
    let second = crate::whatsapp::profile("222");
    PgProfiles::new(fixture.tenants.clone())
        .insert(account, &second, &[])
        .await
        .unwrap();
    let reply = reply_to_inbound_message(&fixture, profile).await;
    let store = conversations(&fixture);
    let facts = store
        .reply_facts(account, reply.conversation_id, None)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (facts.last_inbound_at, facts.phone.as_deref()),
        (Some(NOW), Some("+5511961234567"))
    );
    assert_eq!(facts.profile.as_ref().map(|stored| stored.profile.id), Some(profile));
    assert_eq!(
        (facts.conversation.status, facts.conversation.last_message_at),
        (ConversationStatus::Open, reply.created_at)
    );
    let clock_difference = (facts.now - time::OffsetDateTime::now_utc()).abs();
    assert!(clock_difference < Duration::MINUTE, "`now` is the database's clock");
    // Without its number, the conversation uses the default number; without any number, none.
    let profiles = PgProfiles::new(fixture.tenants.clone());
    profiles.delete(account, profile, &[]).await.unwrap();
    let facts = store
        .reply_facts(account, reply.conversation_id, None)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(facts.profile.map(|stored| stored.profile.id), Some(second.profile.id));
    profiles.delete(account, second.profile.id, &[]).await.unwrap();
    assert_eq!(
        store
            .reply_facts(account, reply.conversation_id, None)
            .await
            .unwrap()
            .unwrap()
            .profile,
        None
    );
    let other_account = fixture.another_account().await;
    assert_eq!(
        store
            .reply_facts(other_account, reply.conversation_id, None)
            .await
            .unwrap(),
        None
    );
    let begun = store
        .begin_reply(other_account, &draft_of(&reply, profile))
        .await
        .unwrap();
    assert_eq!(begun, BegunReply::Missing);
    assert_eq!(
        store.record_reply(other_account, reply.id, &sent("w")).await.unwrap(),
        None
    );
}

fn reply_update(id: Option<MessageId>, wamid: &str, status: SendStatus) -> StatusUpdate {
    StatusUpdate {
        send_id: id.map(|id| id.0.into()),
        ..status_update(None, wamid, status)
    }
}

#[tokio::test]
async fn reply_status_only_advances_in_any_order() {
    let (fixture, profile) = connected().await;
    let reply = reply_to_inbound_message(&fixture, profile).await;
    let (account, store) = (fixture.account, conversations(&fixture));
    endpoint(&fixture, account, "{message.read,message.failed}", true).await;
    let none: [usize; 0] = [];
    // Before the result is recorded, a status update finds the reply by our id, not by WhatsApp's.
    let batch = [reply_update(None, "w", SendStatus::Read)];
    assert_eq!(fixture.status_updates().apply(account, &batch).await.unwrap(), [0]);
    for _ in 0..10 {
        let batch = [
            reply_update(Some(reply.id), "w", SendStatus::Read),
            reply_update(None, "w", SendStatus::Delivered),
            reply_update(Some(reply.id), "w", SendStatus::Sent),
        ];
        assert_eq!(
            fixture.status_updates().apply(account, &batch[..1]).await.unwrap(),
            none
        );
        assert_eq!(fixture.status_updates().apply(account, &batch).await.unwrap(), none);
    }
    let recorded = store
        .record_reply(account, reply.id, &sent("w"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (recorded.status, recorded.wa_message_id.as_deref()),
        (MessageStatus::Read, Some("w"))
    );
    assert_eq!(contact_column(&fixture, "wa_id").await.unwrap(), "551196");
    let late = ReplyResult::Failed {
        message: "no".into(),
        opted_out: false,
    };
    assert_eq!(
        store
            .record_reply(account, reply.id, &late)
            .await
            .unwrap()
            .unwrap()
            .status,
        MessageStatus::Read
    );
    let events = campaign_events::emitted_events(&fixture).await;
    let contact = contact_column(&fixture, "id").await;
    assert_eq!(
        events,
        [(
            "message.read".to_owned(),
            json!([{ "id": reply.id, "campaign_id": null, "conversation_id": reply.conversation_id,
                     "contact_id": contact, "wa_message_id": "w", "status": "read", "error_code": null,
                     "error_message": null, "address": "phone" }])
        )]
    );
}

#[tokio::test]
async fn reply_ignores_foreign_updates_and_taken_message_ids() {
    let (fixture, profile) = connected().await;
    let reply = reply_to_inbound_message(&fixture, profile).await;
    let (account, store) = (fixture.account, conversations(&fixture));
    store.record_reply(account, reply.id, &sent("w")).await.unwrap();
    // Status updates of an inbound message or of another account change nothing.
    let updates = [
        reply_update(None, "a", SendStatus::Failed),
        reply_update(Some(reply.id), "w", SendStatus::Failed),
    ];
    assert_eq!(
        fixture.status_updates().apply(account, &updates[..1]).await.unwrap(),
        [0]
    );
    assert_eq!(
        fixture
            .status_updates()
            .apply(fixture.another_account().await, &updates)
            .await
            .unwrap(),
        [0, 1]
    );
    // A WhatsApp id stays with the message that has it.
    let second = Message {
        id: id_at(NOW).into(),
        ..reply.clone()
    };
    let begun = store.begin_reply(account, &draft_of(&second, profile)).await.unwrap();
    assert!(stored(begun).is_some());
    let recorded = store
        .record_reply(account, second.id, &sent("w"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(recorded.status, MessageStatus::Sent);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM messages WHERE wa_message_id = 'w'")
            .await,
        1
    );
}

#[tokio::test]
async fn reply_rejected_or_unresolved_ends_as_failed() {
    let (fixture, profile) = connected().await;
    let reply = reply_to_inbound_message(&fixture, profile).await;
    let (account, store) = (fixture.account, conversations(&fixture));
    let second = Message {
        id: id_at(NOW).into(),
        ..reply.clone()
    };
    let begun = store.begin_reply(account, &draft_of(&second, profile)).await.unwrap();
    assert!(stored(begun).is_some());
    let refused = ReplyResult::Failed {
        message: "closed".into(),
        opted_out: true,
    };
    let failed = store.record_reply(account, second.id, &refused).await.unwrap().unwrap();
    assert_eq!(failed.status, MessageStatus::Failed);
    let opted_out = "SELECT count(*)::text FROM contacts WHERE opted_out_at = consent_at AND opted_out_at <= now()";
    assert_eq!(fixture.text(opted_out).await.as_deref(), Some("1"), "as WhatsApp said");
    let unknown = store
        .record_reply(account, reply.id, &ReplyResult::Unknown)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(unknown.status, MessageStatus::Pending);
    assert_eq!(store.fail_unknown(Duration::HOUR, 10).await.unwrap(), 0);
    assert_eq!(store.fail_unknown(Duration::ZERO, 10).await.unwrap(), 1);
    assert_eq!(store.fail_unknown(Duration::ZERO, 10).await.unwrap(), 0);
    let errors = "SELECT string_agg(left(error_message, 22), ', ' ORDER BY id) FROM messages WHERE status = 'failed'";
    assert_eq!(fixture.text(errors).await.unwrap(), "the outcome is unknown, closed");
    let late = [StatusUpdate {
        send_id: Some(reply.id.0.into()),
        ..status_update(None, "w", SendStatus::Delivered)
    }];
    fixture.status_updates().apply(account, &late).await.unwrap();
    let stored = messages(&fixture, reply.conversation_id).await;
    assert!(stored.iter().all(|message| message.status != MessageStatus::Delivered));
    let contact: ContactId = only_conversation(&fixture, account).await.contact_id;
    assert_eq!(
        fixture
            .number(&format!("SELECT count(*) FROM contacts WHERE id = '{contact}'"))
            .await,
        1
    );
}
