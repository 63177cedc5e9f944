//! The effect of inbound events on an account's contacts, conversations and messages. The store reads the affected
//! rows, this module decides, and the store writes the changes, all under one lock.

use std::collections::{BTreeMap, HashMap};

use time::OffsetDateTime;

use super::identity::{change_number, find, set_ids};
use super::{
    ContactIdentity, ConversationEvent, ConversationStatus, Direction, InboundEvent, InboundMessage, MessageContext,
    MessageOrigin, MessageStatus, Sender, is_opt_out, transition,
};
use crate::media::{AnnouncedFile, FileState, MessageFile};
use crate::shared::{ContactId, ConversationId, MediaId, MessageId, ProfileId, redacted_debug};

/// An inbound event with the ids of the rows that it may create.
#[derive(Clone, Debug, PartialEq)]
pub struct InboundItem {
    pub event: InboundEvent,
    /// The id of the new contact if the sender is unknown.
    pub contact_id: ContactId,
    /// The id of the new conversation if this is the contact's first message.
    pub conversation_id: ConversationId,
    pub message_id: MessageId,
    /// The id of the message's file.
    pub media_id: MediaId,
}

/// A message that an inbound event adds.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMessage {
    pub id: MessageId,
    pub conversation_id: ConversationId,
    pub contact_id: ContactId,
    pub direction: Direction,
    pub message: InboundMessage,
    /// The file, which is not fetched yet.
    pub file: Option<(MediaId, AnnouncedFile)>,
    /// The quoted message.
    pub context: Option<MessageContext>,
}

impl NewMessage {
    pub fn status(&self) -> MessageStatus {
        match self.direction {
            Direction::Inbound => MessageStatus::Received,
            Direction::Outbound => MessageStatus::Sent,
        }
    }

    pub fn origin(&self) -> MessageOrigin {
        match self.direction {
            Direction::Inbound => MessageOrigin::Contact,
            Direction::Outbound => MessageOrigin::BusinessApp,
        }
    }

    /// The file as it is published before it is fetched.
    pub fn published_file(&self) -> Option<MessageFile> {
        let (id, file) = self.file.as_ref()?;
        Some(MessageFile {
            id: *id,
            kind: file.kind,
            mime_type: file.mime_type.clone(),
            file_name: file.file_name.clone(),
            size: None,
            sha256: None,
            state: FileState::Pending,
            reason: None,
            expires_at: None,
        })
    }
}

/// A change of a stored message by its author.
#[derive(Clone, PartialEq, Eq)]
pub struct MessageChange {
    pub wa_message_id: String,
    pub direction: Direction,
    /// When the message was revoked. None: it was edited.
    pub revoked_at: Option<OffsetDateTime>,
    /// The new text of an edited message.
    pub text: Option<String>,
}

redacted_debug!(MessageChange { direction, revoked_at });

/// The part of a conversation that messages change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationState {
    pub id: ConversationId,
    pub contact_id: ContactId,
    /// The number that received the latest inbound message.
    pub profile_id: Option<ProfileId>,
    pub status: ConversationStatus,
    /// When the latest message was written.
    pub last_message_at: OffsetDateTime,
    /// When the contact last wrote.
    pub last_inbound_at: Option<OffsetDateTime>,
}

/// The keys of the rows that a batch of inbound events may affect.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct InboxKeys {
    /// Phone numbers in canonical form.
    pub phones: Vec<String>,
    /// Phone numbers as WhatsApp writes them.
    pub wa_ids: Vec<String>,
    /// WhatsApp's user ids.
    pub user_ids: Vec<String>,
}

redacted_debug!(InboxKeys {});

impl InboxKeys {
    pub fn of(items: &[InboundItem]) -> Self {
        let mut keys = Self::default();
        for item in items {
            match &item.event {
                InboundEvent::Message(message) | InboundEvent::Echo(message) => keys.add(&message.sender),
                InboundEvent::Revoked { .. } | InboundEvent::Edited { .. } => {}
                InboundEvent::Preference { sender, .. } => keys.add(sender),
                InboundEvent::NumberChanged { sender, now } => {
                    keys.add(sender);
                    keys.add(now);
                }
            }
        }
        for list in [&mut keys.phones, &mut keys.wa_ids, &mut keys.user_ids] {
            list.sort_unstable();
            list.dedup();
        }
        keys
    }

    fn add(&mut self, sender: &Sender) {
        self.phones.extend(sender.phone().map(|phone| phone.to_string()));
        self.wa_ids.extend(sender.wa_id.clone());
        self.user_ids.extend(sender.user_id.clone());
    }
}

/// The rows that a batch of inbound events may affect, and the changes so far.
#[derive(Clone, Debug, Default)]
pub struct Inbox {
    contacts: Vec<ContactIdentity>,
    conversations: BTreeMap<ContactId, ConversationState>,
    /// The stored messages by WhatsApp's ids.
    stored: HashMap<String, MessageId>,
    /// The messages that the batch quotes, by WhatsApp's ids.
    quoted: HashMap<String, MessageId>,
    changes: InboxChanges,
}

/// The changes that a batch of inbound events makes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InboxChanges {
    pub new_contacts: Vec<ContactIdentity>,
    pub changed: Vec<ContactIdentity>,
    /// Changed contacts that lose an id to another contact of the batch. The store MUST clear their ids before it
    /// writes any contact: ids are unique at every statement.
    pub released: Vec<ContactId>,
    /// New and changed conversations.
    pub conversations: Vec<ConversationState>,
    pub messages: Vec<NewMessage>,
    /// Revoked and edited messages, in the order of their events.
    pub message_changes: Vec<MessageChange>,
}

impl Inbox {
    /// `contacts` are the contacts with any of the keys, oldest first, `conversations` their conversations, and `stored`
    /// the messages that are stored already.
    pub fn new(
        contacts: Vec<ContactIdentity>,
        conversations: Vec<ConversationState>,
        stored: HashMap<String, MessageId>,
    ) -> Self {
        Self {
            contacts,
            conversations: conversations
                .into_iter()
                .map(|conversation| (conversation.contact_id, conversation))
                .collect(),
            stored,
            quoted: HashMap::new(),
            changes: InboxChanges::default(),
        }
    }

    /// Sets the stored messages that the batch quotes. Default: none are known.
    #[must_use]
    pub fn quoting(self, quoted: HashMap<String, MessageId>) -> Self {
        Self { quoted, ..self }
    }

    /// Applies the inbound events of one number in their order. A stored message changes nothing. A preference or
    /// number change of an unknown sender changes nothing.
    #[must_use]
    pub fn apply(mut self, items: Vec<InboundItem>, profile: ProfileId) -> InboxChanges {
        let (contacts, conversations) = (self.contacts.clone(), self.conversations.clone());
        for item in items {
            match item.event {
                InboundEvent::Message(ref message) | InboundEvent::Echo(ref message)
                    if self.stored.contains_key(&message.wa_message_id) => {}
                InboundEvent::Message(ref message) => {
                    self.apply_message(message.clone(), &item, Direction::Inbound, profile);
                }
                InboundEvent::Echo(ref message) => {
                    self.apply_message(message.clone(), &item, Direction::Outbound, profile);
                }
                InboundEvent::Revoked {
                    wa_message_id,
                    direction,
                    at,
                } => self.changes.message_changes.push(MessageChange {
                    wa_message_id,
                    direction,
                    revoked_at: Some(at),
                    text: None,
                }),
                InboundEvent::Edited {
                    wa_message_id,
                    direction,
                    text,
                } => self.changes.message_changes.push(MessageChange {
                    wa_message_id,
                    direction,
                    revoked_at: None,
                    text: Some(text),
                }),
                InboundEvent::Preference { sender, opted_in, at } => self.apply_preference(&sender, opted_in, at),
                InboundEvent::NumberChanged { sender, now } => {
                    if let Some(at) = find(&self.contacts, &sender) {
                        change_number(&mut self.contacts, at, &now);
                    }
                }
            }
        }
        let (existing, new_contacts) = self.contacts.split_at(contacts.len().min(self.contacts.len()));
        let mut changes = self.changes;
        changes.new_contacts = new_contacts.to_vec();
        changes.changed = existing
            .iter()
            .zip(&contacts)
            .filter(|(now, before)| now != before)
            .map(|(now, _)| now.clone())
            .collect();
        changes.released = released(&contacts, &self.contacts);
        changes.conversations = self
            .conversations
            .into_values()
            .filter(|now| conversations.get(&now.contact_id) != Some(now))
            .collect();
        changes
    }

    /// Adds a message of the contact, or one that the business wrote to it in its own app. Only the contact's messages
    /// open the service window, and only they opt out.
    fn apply_message(&mut self, message: InboundMessage, item: &InboundItem, direction: Direction, profile: ProfileId) {
        self.stored.insert(message.wa_message_id.clone(), item.message_id);
        let at = find(&self.contacts, &message.sender).unwrap_or_else(|| {
            self.contacts
                .push(ContactIdentity::from_sender(item.contact_id, &message.sender));
            self.contacts.len() - 1
        });
        set_ids(&mut self.contacts, at, &message.sender);
        let Some(contact) = self.contacts.get_mut(at) else {
            return;
        };
        let is_inbound = direction == Direction::Inbound;
        if is_inbound && message.can_opt_out && message.text.as_deref().is_some_and(is_opt_out) {
            contact.consent = contact.consent.with_opt_out(message.at);
        }
        let conversation = self
            .conversations
            .entry(contact.id)
            .or_insert_with(|| ConversationState {
                id: item.conversation_id,
                contact_id: contact.id,
                profile_id: None,
                status: ConversationStatus::Open,
                last_message_at: message.at,
                last_inbound_at: None,
            });
        conversation.status = transition(conversation.status, ConversationEvent::Message);
        conversation.last_message_at = conversation.last_message_at.max(message.at);
        if is_inbound && conversation.last_inbound_at <= Some(message.at) {
            conversation.last_inbound_at = Some(message.at);
            conversation.profile_id = Some(profile);
        }
        if !is_inbound {
            conversation.profile_id = conversation.profile_id.or(Some(profile));
        }
        let context = message.quoted.as_ref().map(|quoted| MessageContext {
            message_id: self.stored.get(quoted).or_else(|| self.quoted.get(quoted)).copied(),
            wa_message_id: quoted.clone(),
        });
        self.changes.messages.push(NewMessage {
            id: item.message_id,
            conversation_id: conversation.id,
            contact_id: contact.id,
            direction,
            file: message.file.clone().map(|file| (item.media_id, file)),
            context,
            message,
        });
    }

    fn apply_preference(&mut self, sender: &Sender, opted_in: bool, at: OffsetDateTime) {
        let position = find(&self.contacts, sender);
        if let Some(contact) = position.and_then(|position| self.contacts.get_mut(position)) {
            contact.consent = if opted_in {
                contact.consent.with_opt_in(at)
            } else {
                contact.consent.with_opt_out(at)
            };
        }
    }
}

/// The contacts that lost an id to another contact.
fn released(before: &[ContactIdentity], now: &[ContactIdentity]) -> Vec<ContactId> {
    let lost_id = |(was, is): &(&ContactIdentity, &ContactIdentity)| {
        was != is
            && now
                .iter()
                .any(|contact| contact.id != was.id && was.shares_id_with(contact))
    };
    before.iter().zip(now).filter(lost_id).map(|(was, _)| was.id).collect()
}

#[cfg(test)]
mod tests {
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
        inbox.apply(items(events), PROFILE)
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
}
