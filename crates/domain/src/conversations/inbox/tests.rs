//! Tests of the effect of inbound events.

use serde_json::json;
use time::Duration;
use time::macros::datetime;
use uuid::Uuid;

use super::super::{ANSWERED_WITHIN, Consent};
use super::*;

pub(super) const T: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);
const PROFILE: ProfileId = ProfileId(Uuid::from_u128(77));

fn sender(wa_id: &str) -> Sender {
    Sender {
        wa_id: Some(wa_id.into()),
        user_id: None,
        name: Some("Ana".into()),
        ..Sender::default()
    }
}

pub(super) fn message(id: &str, wa_id: &str, text: &str, minutes: i64) -> InboundEvent {
    InboundEvent::Message(InboundMessage {
        wa_message_id: id.into(),
        sender: sender(wa_id),
        at: T + Duration::minutes(minutes),
        kind: "text".into(),
        text: Some(text.into()),
        can_opt_out: true,
        answered_wa_id: None,
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

pub(super) fn apply(inbox: Inbox, events: Vec<InboundEvent>) -> InboxChanges {
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
pub(super) fn existing_contact() -> (Inbox, ContactIdentity, ConversationState) {
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

pub(super) fn contact(id: u128, phone: Option<&str>, user: Option<&str>) -> ContactIdentity {
    ContactIdentity {
        id: ContactId(Uuid::from_u128(id)),
        name: "Ana".into(),
        phone: phone.map(str::to_owned),
        wa_id: None,
        wa_user_id: user.map(str::to_owned),
        user_ids: vec![],
        same_person_as: None,
        consent: Consent::default(),
    }
}

/// A card of the person `BR.1`.
fn card(wa_id: &str) -> InboundMessage {
    InboundMessage {
        wa_message_id: "wamid.1".into(),
        sender: Sender {
            user_id: Some("BR.1".into()),
            ..Sender::default()
        },
        at: T,
        kind: "contacts".into(),
        text: None,
        can_opt_out: false,
        referral: None,
        payload: json!({}),
        caption: None,
        interactive: None,
        quoted: None,
        file: None,
        answered_wa_id: Some(wa_id.into()),
    }
}

/// Applies the card to the contacts, of which the first has the conversation that it comes from.
fn apply_card(contacts: Vec<ContactIdentity>, asked: &[OffsetDateTime], message: InboundMessage) -> InboxChanges {
    let conversation = ConversationState {
        id: Uuid::from_u128(200).into(),
        contact_id: contacts[0].id,
        profile_id: None,
        status: ConversationStatus::Open,
        last_message_at: T,
        last_inbound_at: Some(T),
    };
    let is_answer = message.answered_wa_id.is_some();
    let item = InboundItem {
        event: InboundEvent::Message(message),
        contact_id: Uuid::from_u128(100).into(),
        conversation_id: Uuid::from_u128(201).into(),
        message_id: Uuid::from_u128(300).into(),
        media_id: Uuid::from_u128(400).into(),
    };
    let inbox = Inbox::new(contacts, vec![conversation.clone()], [].into());
    let answering = inbox.answering(std::slice::from_ref(&item), "W1");
    assert_eq!(answering.len(), usize::from(is_answer));
    let asked = asked.iter().map(|at| (conversation.id, *at)).collect();
    inbox.asked(asked).apply(vec![item], &number("W1"))
}

fn hidden() -> ContactIdentity {
    contact(1, None, Some("BR.1"))
}

/// The phone number of the contact after the card.
fn phone_after(asked: &[OffsetDateTime], message: InboundMessage) -> Option<String> {
    let changes = apply_card(vec![hidden()], asked, message);
    assert_eq!((changes.same_persons, changes.messages.len()), (0, 1));
    changes.changed.into_iter().find_map(|contact| contact.phone)
}

#[test]
fn answer_sets_the_phone_within_seven_days() {
    let answered = Some("+5511961234567".to_owned());
    let number = || card("551161234567");
    for (asked, expected) in [
        (vec![], None),
        (vec![T], answered.clone()),
        (vec![T - ANSWERED_WITHIN], answered.clone()),
        (vec![T - ANSWERED_WITHIN - Duration::SECOND], None),
        (vec![T + contact_card::CLOCK_DIFFERENCE], answered.clone()),
        (vec![T + contact_card::CLOCK_DIFFERENCE + Duration::SECOND], None),
        (vec![T - Duration::days(30), T - Duration::HOUR], answered),
    ] {
        assert_eq!(phone_after(&asked, number()), expected, "{asked:?}");
    }
    let by_hand = InboundMessage {
        answered_wa_id: None,
        ..number()
    };
    assert_eq!(phone_after(&[T], by_hand), None);
}

#[test]
fn answer_with_a_number_of_another_contact_changes_no_contact() {
    let asked = [T - Duration::HOUR];
    let mut by_wa_id = contact(2, None, None);
    by_wa_id.wa_id = Some("551161234567".into());
    for other in [contact(2, Some("+5511961234567"), None), by_wa_id] {
        let changes = apply_card(vec![hidden(), other], &asked, card("551161234567"));
        assert!(
            changes
                .changed
                .iter()
                .all(|contact| contact.phone.is_none() && contact.wa_id.is_none())
        );
        assert_eq!((changes.same_persons, changes.messages.len()), (1, 1));
    }
}

#[test]
fn answer_of_a_known_number_changes_nothing() {
    let asked = [T - Duration::HOUR];
    let known = contact(1, Some("+5511961234567"), Some("BR.1"));
    let changes = apply_card(vec![known.clone()], &asked, card("5511969999999"));
    assert!(changes.changed.iter().all(|contact| contact.phone == known.phone));
    // WhatsApp names the sender's own number, which is not the one of the card.
    let mut shown = card("5511969999999");
    shown.sender.wa_id = Some("5511961234567".into());
    let changes = apply_card(vec![hidden()], &asked, shown);
    assert_eq!(changes.changed[0].phone.as_deref(), Some("+5511961234567"));
    assert_eq!(changes.changed[0].wa_id.as_deref(), Some("5511961234567"));
}

#[test]
fn inbox_loads_the_contacts_with_a_cards_number() {
    let item = InboundItem {
        event: InboundEvent::Message(card("551161234567")),
        contact_id: Uuid::nil().into(),
        conversation_id: Uuid::nil().into(),
        message_id: Uuid::nil().into(),
        media_id: Uuid::nil().into(),
    };
    let keys = InboxKeys::of(&[item]);
    assert_eq!(
        (keys.phones, keys.wa_ids),
        (vec!["+5511961234567".to_owned()], vec!["551161234567".to_owned()])
    );
}
