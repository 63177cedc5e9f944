//! The effect of inbound events on an account's contacts, conversations and messages. The store reads the affected
//! rows, this module decides, and the store writes the changes, all under one lock.

mod added_identifiers;
mod contact_card;

use std::collections::{BTreeMap, HashMap, HashSet};

use time::OffsetDateTime;

use self::added_identifiers::added_identifiers;
use super::identity::{ReportedBy, change_number, matches, set_ids};
use super::{
    ContactIdentity, ConversationEvent, ConversationStatus, Direction, InboundEvent, InboundMessage, MessageContext,
    MessageOrigin, MessageStatus, OptOutAnswer, OptOutRules, Sender, transition,
};
use crate::contacts::{AddedIdentifiers, ScopedUserId};
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

/// The number that received inbound events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivingNumber {
    pub profile_id: ProfileId,
    /// The scope of the user ids that the number reports.
    pub scope: String,
    /// The store's time.
    pub now: OffsetDateTime,
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
    /// WhatsApp's user ids, also those for a parent business.
    pub user_ids: Vec<String>,
}

redacted_debug!(InboxKeys {});

impl InboxKeys {
    pub fn of(items: &[InboundItem]) -> Self {
        let mut keys = Self::default();
        for item in items {
            match &item.event {
                InboundEvent::Message(message) | InboundEvent::Echo(message) => {
                    keys.add(&message.sender);
                    keys.add(&contact_card::answered_number(message));
                }
                InboundEvent::Revoked { .. } | InboundEvent::Edited { .. } => {}
                InboundEvent::Preference { sender, .. } => keys.add(sender),
                InboundEvent::NumberChanged { sender, now } => {
                    keys.add(sender);
                    keys.add(now);
                }
                InboundEvent::Recipient { recipient, .. } => keys.add(recipient),
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
        self.user_ids.extend(sender.parent_user_id.clone());
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
    /// When contacts were asked for their phone numbers.
    asked: HashMap<ConversationId, Vec<OffsetDateTime>>,
    opt_outs: OptOutRules,
    changes: InboxChanges,
}

/// The changes that a batch of inbound events makes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InboxChanges {
    pub new_contacts: Vec<ContactIdentity>,
    pub changed: Vec<ContactIdentity>,
    /// New and changed user ids of contacts.
    pub user_ids: Vec<(ContactId, ScopedUserId)>,
    /// The numbers and ids that contacts got, unless an event of the batch decides their consent.
    pub added: Vec<AddedIdentifiers>,
    /// How many contacts turned out to be the same person as another one.
    pub same_persons: usize,
    /// Changed contacts that lose an id to another contact of the batch. The store MUST clear their ids before it
    /// writes any contact: ids are unique at every statement.
    pub released: Vec<ContactId>,
    /// New and changed conversations.
    pub conversations: Vec<ConversationState>,
    pub messages: Vec<NewMessage>,
    /// Revoked and edited messages, in the order of their events.
    pub message_changes: Vec<MessageChange>,
    /// The contacts to which the store MUST queue the account's reply to an opt-out.
    pub opt_out_answers: Vec<OptOutAnswer>,
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
            asked: HashMap::new(),
            opt_outs: OptOutRules::default(),
            changes: InboxChanges::default(),
        }
    }

    /// Sets the stored messages that the batch quotes. Default: none are known.
    #[must_use]
    pub fn quoting(self, quoted: HashMap<String, MessageId>) -> Self {
        Self { quoted, ..self }
    }

    /// Sets the account's own opt-out words and its reply. Default: none.
    #[must_use]
    pub fn with_opt_outs(self, opt_outs: OptOutRules) -> Self {
        Self { opt_outs, ..self }
    }

    /// The conversations whose contact requests decide about the cards of the batch.
    pub fn answering(&self, items: &[InboundItem], scope: &str) -> Vec<ConversationId> {
        let mut found = HashSet::new();
        for item in items {
            if let InboundEvent::Message(message) = &item.event
                && message.answered_wa_id.is_some()
            {
                let senders = matches(&self.contacts, &message.sender, scope).into_iter();
                let contacts = senders.filter_map(|at| self.contacts.get(at));
                found.extend(contacts.filter_map(|contact| Some(self.conversations.get(&contact.id)?.id)));
            }
        }
        found.into_iter().collect()
    }

    /// Sets when contacts were asked for their phone numbers, by requests that have not failed. Default: none was.
    #[must_use]
    pub fn asked(mut self, requests: Vec<(ConversationId, OffsetDateTime)>) -> Self {
        for (conversation, at) in requests {
            self.asked.entry(conversation).or_default().push(at);
        }
        self
    }

    /// Applies the inbound events of one number in their order. A stored message changes nothing. A preference, number
    /// change or name of an unknown person changes nothing.
    #[must_use]
    pub fn apply(mut self, items: Vec<InboundItem>, number: &ReceivingNumber) -> InboxChanges {
        let (contacts, conversations) = (self.contacts.clone(), self.conversations.clone());
        for item in items {
            match item.event {
                InboundEvent::Message(ref message) | InboundEvent::Echo(ref message)
                    if self.stored.contains_key(&message.wa_message_id) => {}
                InboundEvent::Message(ref message) => {
                    self.apply_message(message.clone(), &item, Direction::Inbound, number);
                }
                InboundEvent::Echo(ref message) => {
                    self.apply_message(message.clone(), &item, Direction::Outbound, number);
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
                InboundEvent::Preference { sender, opted_in, at } => {
                    self.apply_preference(&sender, opted_in, at, number);
                }
                InboundEvent::NumberChanged { sender, now } => {
                    if let Some(&at) = matches(&self.contacts, &sender, &number.scope).first() {
                        let reported = ReportedBy {
                            scope: &number.scope,
                            at: number.now,
                        };
                        self.changes.same_persons += change_number(&mut self.contacts, at, &now, reported);
                    }
                }
                InboundEvent::Recipient { recipient, at } => self.name_recipient(&recipient, at, number),
            }
        }
        let (existing, new_contacts) = self.contacts.split_at(contacts.len().min(self.contacts.len()));
        let mut changes = self.changes;
        changes.new_contacts = new_contacts.to_vec();
        changes.changed = existing
            .iter()
            .zip(&contacts)
            .filter(|(now, before)| !now.is_stored_as(before))
            .map(|(now, _)| now.clone())
            .collect();
        changes.user_ids = changed_user_ids(&contacts, &self.contacts);
        changes.added = added_identifiers(&contacts, &self.contacts);
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
    fn apply_message(
        &mut self,
        message: InboundMessage,
        item: &InboundItem,
        direction: Direction,
        number: &ReceivingNumber,
    ) {
        self.stored.insert(message.wa_message_id.clone(), item.message_id);
        let profile = number.profile_id;
        let at = self.contact_of(&message.sender, item, message.at, number);
        if direction == Direction::Inbound {
            self.apply_card(at, &message);
            self.apply_opt_out(at, &message, (item.message_id, number.now));
        }
        let Some(contact) = self.contacts.get(at) else {
            return;
        };
        let is_inbound = direction == Direction::Inbound;
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

    /// Finds the sender's contact, or makes one, and completes its ids. Returns its position.
    fn contact_of(
        &mut self,
        sender: &Sender,
        item: &InboundItem,
        at: OffsetDateTime,
        number: &ReceivingNumber,
    ) -> usize {
        let mut matched = matches(&self.contacts, sender, &number.scope);
        if matched.is_empty() {
            matched.push(self.contacts.len());
            self.contacts
                .push(ContactIdentity::from_sender(item.contact_id, sender));
        }
        let reported = ReportedBy {
            scope: &number.scope,
            at,
        };
        self.changes.same_persons += set_ids(&mut self.contacts, &matched, sender, reported);
        matched.first().copied().unwrap_or_default()
    }

    fn apply_card(&mut self, at: usize, message: &InboundMessage) {
        let conversation = self
            .contacts
            .get(at)
            .and_then(|contact| self.conversations.get(&contact.id));
        let requests = conversation.and_then(|conversation| self.asked.get(&conversation.id));
        if requests.is_some_and(|requests| contact_card::is_answer(requests, message.at)) {
            self.changes.same_persons += contact_card::set_number(&mut self.contacts, at, message);
        }
    }

    /// Opts the contact out if its message is an opt-out word. The first opt-out is answered.
    fn apply_opt_out(&mut self, at: usize, message: &InboundMessage, (id, now): (MessageId, OffsetDateTime)) {
        let text = message.text.as_deref().filter(|_| message.can_opt_out);
        if !text.is_some_and(|text| self.opt_outs.is_opt_out(text, message.at)) {
            return;
        }
        let Some(contact) = self.contacts.get_mut(at) else {
            return;
        };
        let before = contact.consent;
        contact.consent = before.with_opt_out(message.at);
        if before.opted_out_at.is_some() || contact.consent.opted_out_at.is_none() {
            return;
        }
        let contact = contact.clone();
        let answer = self.opt_outs.answer(&self.contacts, &contact, (id, message.at), now);
        self.changes.opt_out_answers.extend(answer);
    }

    /// Stores the ids of the recipient of a message. One who is no contact stays unknown.
    fn name_recipient(&mut self, recipient: &Sender, at: OffsetDateTime, number: &ReceivingNumber) {
        let matched = matches(&self.contacts, recipient, &number.scope);
        let reported = ReportedBy {
            scope: &number.scope,
            at,
        };
        self.changes.same_persons += set_ids(&mut self.contacts, &matched, recipient, reported);
    }

    fn apply_preference(&mut self, sender: &Sender, opted_in: bool, at: OffsetDateTime, number: &ReceivingNumber) {
        let position = matches(&self.contacts, sender, &number.scope).first().copied();
        if let Some(contact) = position.and_then(|position| self.contacts.get_mut(position)) {
            contact.consent = if opted_in {
                contact.consent.with_opt_in(at)
            } else {
                contact.consent.with_opt_out(at)
            };
        }
    }
}

/// The user ids that are new or changed.
fn changed_user_ids(before: &[ContactIdentity], now: &[ContactIdentity]) -> Vec<(ContactId, ScopedUserId)> {
    let mut changed = Vec::new();
    for (position, contact) in now.iter().enumerate() {
        let known = before.get(position).map_or(&[][..], |before| &before.user_ids);
        let new = contact.user_ids.iter().filter(|reported| !known.contains(reported));
        changed.extend(new.map(|reported| (contact.id, reported.clone())));
    }
    changed
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
mod identity_tests;
#[cfg(test)]
mod opt_out_tests;
#[cfg(test)]
mod recipient_tests;
#[cfg(test)]
mod tests;
