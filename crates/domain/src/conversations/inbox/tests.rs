//! Tests of the effect of inbound events.

use serde_json::json;
use time::Duration;
use time::macros::datetime;
use uuid::Uuid;

use super::*;

const T: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);
const PROFILE: ProfileId = ProfileId(Uuid::from_u128(77));

fn sender(wa_id: &str) -> Sender {
    Sender {
        wa_id: Some(wa_id.into()),
        user_id: None,
        name: Some("Ana".into()),
        ..Sender::default()
    }
}

fn message(id: &str, wa_id: &str, text: &str, minutes: i64) -> InboundEvent {
    InboundEvent::Message(InboundMessage {
        wa_message_id: id.into(),
        sender: sender(wa_id),
        at: T + Duration::minutes(minutes),
        kind: "text".into(),
        text: Some(text.into()),
        can_opt_out: true,
        referral: None,
        payload: json!({}),
        caption: None,
        interactive: None,
        quoted: None,
        file: None,
    })
}

fn items(events: Vec<InboundEvent>) -> Vec<InboundItem> {
    let numbered = events.into_iter().zip(1_u128..);
    let item = |(event, n): (InboundEvent, u128)| InboundItem {
        event,
        contact_id: Uuid::from_u128(100 + n).into(),
        conversation_id: Uuid::from_u128(200 + n).into(),
        message_id: Uuid::from_u128(300 + n).into(),
        media_id: Uuid::from_u128(400 + n).into(),
    };
    numbered.map(item).collect()
}

fn apply(inbox: Inbox, events: Vec<InboundEvent>) -> InboxChanges {
    inbox.apply(items(events), &number("W1"))
}

fn number(scope: &str) -> ReceivingNumber {
    ReceivingNumber {
        profile_id: PROFILE,
        scope: scope.to_owned(),
        now: T + Duration::days(1),
    }
}

#[test]
fn unknown_sender_becomes_one_contact_and_conversation() {
    let changes = apply(
        Inbox::default(),
        vec![
            message("a", "553188887777", "oi", 1),
            message("b", "5531988887777", "tudo bem?", 0),
            message("a", "553188887777", "oi", 1),
        ],
    );
    let [contact] = &changes.new_contacts[..] else {
        panic!("{changes:?}")
    };
    assert_eq!(
        (contact.name.as_str(), contact.phone.as_deref()),
        ("Ana", Some("+5531988887777"))
    );
    let [conversation] = &changes.conversations[..] else {
        panic!("{changes:?}")
    };
    assert_eq!(
        (conversation.contact_id, conversation.profile_id),
        (contact.id, Some(PROFILE))
    );
    // The later message counts, although it was reported first.
    assert_eq!(
        (conversation.last_message_at, conversation.last_inbound_at),
        (T + Duration::minutes(1), Some(T + Duration::minutes(1)))
    );
    let stored: Vec<&str> = changes
        .messages
        .iter()
        .map(|new| new.message.wa_message_id.as_str())
        .collect();
    assert_eq!(stored, ["a", "b"]);
    assert!(changes.changed.is_empty());
}

/// An inbox with one contact, and a closed conversation that holds message `a`.
fn existing_contact() -> (Inbox, ContactIdentity, ConversationState) {
    let contact = ContactIdentity {
        consent: super::super::Consent::default(),
        ..ContactIdentity::from_sender(Uuid::from_u128(1).into(), &sender("5511961234567"))
    };
    let conversation = ConversationState {
        id: Uuid::from_u128(2).into(),
        contact_id: contact.id,
        profile_id: None,
        status: ConversationStatus::Closed,
        last_message_at: T + Duration::minutes(9),
        last_inbound_at: Some(T),
    };
    let seen = HashMap::from([("a".to_owned(), MessageId(Uuid::from_u128(50)))]);
    (
        Inbox::new(vec![contact.clone()], vec![conversation.clone()], seen),
        contact,
        conversation,
    )
}

#[test]
fn repeated_message_changes_nothing_even_if_it_opts_out() {
    let (inbox, ..) = existing_contact();
    assert_eq!(
        apply(inbox, vec![message("a", "5511961234567", "SAIR", 0)]),
        InboxChanges::default()
    );
}

/// The event with its message changed.
fn changed(event: InboundEvent, change: impl FnOnce(&mut InboundMessage)) -> InboundMessage {
    let InboundEvent::Message(mut message) = event else {
        panic!("not a message")
    };
    change(&mut message);
    message
}

#[test]
fn echo_is_outbound_and_opens_no_window() {
    let echo = |minutes| changed(message("e", "5511961234567", "SAIR", minutes), |_| {});
    let changes = apply(
        Inbox::default(),
        vec![InboundEvent::Echo(echo(1)), InboundEvent::Echo(echo(1))],
    );
    let [conversation] = &changes.conversations[..] else {
        panic!("{changes:?}")
    };
    assert_eq!(
        (
            conversation.last_inbound_at,
            conversation.last_message_at,
            conversation.profile_id
        ),
        (None, T + Duration::minutes(1), Some(PROFILE))
    );
    let [new] = &changes.messages[..] else {
        panic!("{changes:?}")
    };
    assert_eq!(
        (new.direction, new.status(), new.origin()),
        (Direction::Outbound, MessageStatus::Sent, MessageOrigin::BusinessApp)
    );
    assert_eq!(changes.new_contacts[0].consent.opted_out_at, None);
    let (inbox, _, before) = existing_contact();
    let changes = apply(inbox, vec![InboundEvent::Echo(echo(20))]);
    let now = &changes.conversations[0];
    assert_eq!(
        (now.status, now.last_inbound_at, now.last_message_at),
        (
            ConversationStatus::Open,
            before.last_inbound_at,
            T + Duration::minutes(20)
        )
    );
}

#[test]
fn message_names_the_quoted_message_where_it_is_known() {
    let quoting = |id: &str, quoted: &str| {
        let event = message(id, "5511961234567", "oi", 1);
        InboundEvent::Message(changed(event, |message| message.quoted = Some(quoted.into())))
    };
    let (inbox, ..) = existing_contact();
    let inbox = inbox.quoting(HashMap::from([("q".to_owned(), MessageId(Uuid::from_u128(60)))]));
    let events = ["a", "q", "b", "unknown"].into_iter().zip(["b", "c", "d", "e"]);
    let changes = apply(inbox, events.map(|(quoted, id)| quoting(id, quoted)).collect());
    let contexts: Vec<Option<u128>> = changes
        .messages
        .iter()
        .map(|new| Some(new.context.as_ref()?.message_id?.0.as_u128()))
        .collect();
    // The third quotes the first of the batch.
    assert_eq!(contexts, [Some(50), Some(60), Some(301), None]);
}

#[test]
fn revoked_and_edited_messages_are_changed_in_order() {
    let direction = Direction::Outbound;
    let edited = InboundEvent::Edited {
        wa_message_id: "a".into(),
        direction,
        text: "novo".into(),
    };
    let revoked = InboundEvent::Revoked {
        wa_message_id: "a".into(),
        direction,
        at: T,
    };
    let changes = apply(Inbox::default(), vec![edited, revoked]);
    let kinds = changes.message_changes.iter();
    let kinds: Vec<_> = kinds
        .map(|change| (change.text.as_deref(), change.revoked_at))
        .collect();
    assert_eq!(kinds, [(Some("novo"), None), (None, Some(T))]);
}

#[test]
fn old_message_reopens_but_keeps_the_latest_times() {
    let (inbox, _, conversation) = existing_contact();
    let changes = apply(inbox.clone(), vec![message("b", "5511961234567", "oi", -5)]);
    let reopened = ConversationState {
        status: ConversationStatus::Open,
        ..conversation.clone()
    };
    assert_eq!(
        (&changes.conversations[..], changes.messages.len()),
        (&[reopened][..], 1)
    );
    let changes = apply(inbox, vec![message("b", "5511961234567", "oi", 5)]);
    let now = &changes.conversations[0];
    assert_eq!(
        (now.last_message_at, now.last_inbound_at, now.profile_id),
        (
            conversation.last_message_at,
            Some(T + Duration::minutes(5)),
            Some(PROFILE)
        )
    );
}

#[test]
fn opt_out_word_in_a_caption_does_not_count() {
    let (inbox, contact, _) = existing_contact();
    let changes = apply(
        inbox.clone(),
        vec![
            message("b", "5511961234567", " sair ", 3),
            message("c", "5511961234567", "STOP", 4),
        ],
    );
    assert_eq!(changes.changed[0].consent.opted_out_at, Some(T + Duration::minutes(3)));
    let InboundEvent::Message(caption) = message("b", "5511961234567", "SAIR", 3) else {
        panic!()
    };
    let changes = apply(
        inbox,
        vec![InboundEvent::Message(InboundMessage {
            can_opt_out: false,
            ..caption
        })],
    );
    assert!(changes.changed.is_empty(), "{contact:?}");
}

#[test]
fn preference_of_unknown_sender_changes_nothing() {
    let preference = |wa_id: &str, opted_in, minutes| InboundEvent::Preference {
        sender: sender(wa_id),
        opted_in,
        at: T + Duration::minutes(minutes),
    };
    let number_changed = |from: &str, to: &str| InboundEvent::NumberChanged {
        sender: sender(from),
        now: sender(to),
    };
    let unknown = vec![preference("551196", false, 0), number_changed("551196", "551197")];
    assert_eq!(apply(Inbox::default(), unknown), InboxChanges::default());
    let (inbox, ..) = existing_contact();
    let changes = apply(
        inbox.clone(),
        vec![
            preference("5511961234567", false, 1),
            preference("5511961234567", true, 2),
            preference("5511961234567", false, 1),
        ],
    );
    assert_eq!(changes.changed[0].consent.opted_out_at, None);
    let changes = apply(
        inbox,
        vec![
            number_changed("5511961234567", "5511962222222"),
            message("b", "5511962222222", "oi", 1),
        ],
    );
    assert_eq!(changes.changed[0].phone.as_deref(), Some("+5511962222222"));
    assert!(changes.new_contacts.is_empty());
}

#[test]
fn id_taken_by_another_contact_is_released() {
    let number_changed = |from: &str, to: &str| InboundEvent::NumberChanged {
        sender: sender(from),
        now: sender(to),
    };
    let (inbox, contact, _) = existing_contact();
    let changes = apply(inbox.clone(), vec![number_changed("5511961234567", "5511962222222")]);
    assert_eq!(changes.released, []);
    let changes = apply(
        inbox,
        vec![
            number_changed("5511961234567", "5511962222222"),
            message("b", "5511961234567", "oi", 1),
        ],
    );
    assert_eq!((changes.released, changes.new_contacts.len()), (vec![contact.id], 1));
}

#[test]
fn inbox_keys_cover_every_sender() {
    let events = vec![
        message("b", "553188887777", "oi", 0),
        message("b", "553188887777", "oi", 0),
        InboundEvent::NumberChanged {
            sender: Sender {
                user_id: Some("BR.1".into()),
                ..Sender::default()
            },
            now: sender("5511961234567"),
        },
    ];
    let keys = InboxKeys::of(&items(events));
    assert_eq!(keys.phones, ["+5511961234567", "+5531988887777"]);
    assert_eq!(keys.wa_ids, ["5511961234567", "553188887777"]);
    assert_eq!(keys.user_ids, ["BR.1"]);
}
