//! Scripted actions of users: send a message, change their number, stop or resume marketing messages.

use std::time::Instant;

use serde::Deserialize;
use serde_json::{Value, json};

use super::callback::messages_change;
use super::core::Core;
use super::job::Job;
use super::numbers::DISPLAY_NUMBER;
use super::phone::wa_id;
use crate::{locked, now_ms, set};

/// A message from a user to the business.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Inbound {
    pub phone_number_id: String,
    /// The sender's phone number with its country code in any format; the callback holds its `wa_id`. Empty: a user who
    /// hides the number and is identified by `user_id` alone.
    pub from: String,
    pub user_id: Option<String>,
    /// The sender's user id for the parent business, and the username. Only the callback's contacts name them.
    pub parent_user_id: Option<String>,
    pub username: Option<String>,
    pub text: String,
    pub name: Option<String>,
    /// If set, the message is this file; `text` is its caption.
    pub file: Option<InboundFile>,
    /// The id of the message to which this one replies.
    pub context_id: Option<String>,
    /// Payload of a template's quick reply. If set, the message is a pressed button with the label `text`.
    pub button_payload: Option<String>,
    /// The message's id and its Unix time in seconds. Both are generated if missing.
    pub id: Option<String>,
    pub timestamp: Option<u64>,
    /// If set, the message is a system message: the user now has this number, or this user id.
    pub new_number: Option<String>,
    pub new_user_id: Option<String>,
    /// If set, the message is a contact card.
    pub card: Option<ContactCard>,
}

/// A contact card that a user sends.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ContactCard {
    /// `contact_request`: the user pressed the button of a contact request. `other`: the user shared the card by hand.
    pub origin: Option<String>,
    /// The card's phone numbers with their country codes.
    pub numbers: Vec<String>,
    /// Whether the numbers lack a `wa_id`, as those of people without WhatsApp do.
    pub without_wa_id: bool,
}

impl ContactCard {
    /// The card that the button of a contact request sends.
    pub fn answer(number: &str) -> Self {
        Self {
            origin: Some("contact_request".to_owned()),
            numbers: vec![number.to_owned()],
            without_wa_id: false,
        }
    }

    fn content(&self) -> Value {
        let phone = |number: &String| {
            let mut phone = json!({ "phone": number, "type": "CELL" });
            if !self.without_wa_id {
                set(&mut phone, "wa_id", json!(wa_id(number)));
            }
            phone
        };
        let mut card = json!({ "name": { "formatted_name": "Cliente", "first_name": "Cliente" },
            "phones": self.numbers.iter().map(phone).collect::<Vec<_>>() });
        if let Some(origin) = &self.origin {
            set(&mut card, "origin", json!(origin));
        }
        json!([card])
    }
}

/// The file of a message.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct InboundFile {
    /// `image`, `video`, `audio`, `document` or `sticker`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The id of a file that was added.
    pub id: String,
    pub mime_type: String,
}

/// Several messages of one number in one callback.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct InboundBatch {
    /// The number that receives all of them.
    pub phone_number_id: String,
    /// In the order of their timestamps. Messages without a timestamp are a second apart.
    pub messages: Vec<Inbound>,
    /// Whether the callback lists the messages in reverse order.
    pub reversed: bool,
    /// How many more times the same callback is sent.
    pub repeated: u32,
}

/// A user's change of the preference about marketing messages.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Preference {
    pub phone_number_id: String,
    /// As [`Inbound::from`].
    pub from: String,
    pub user_id: Option<String>,
    /// `stop` or `resume`.
    pub value: String,
    pub timestamp: Option<u64>,
}

impl Inbound {
    pub fn text(phone_number_id: &str, from: &str, text: &str) -> Self {
        Self {
            phone_number_id: phone_number_id.to_owned(),
            from: from.to_owned(),
            text: text.to_owned(),
            ..Self::default()
        }
    }

    fn message(&self, id: &str, at: u64) -> Value {
        let mut message = json!({ "id": id, "timestamp": at.to_string() });
        if !self.from.is_empty() {
            set(&mut message, "from", json!(wa_id(&self.from)));
        }
        if let Some(user) = &self.user_id {
            set(&mut message, "from_user_id", json!(user));
        }
        let (kind, content) = self.content();
        set(&mut message, "type", json!(kind));
        set(&mut message, kind, content);
        if let Some(context) = &self.context_id {
            set(
                &mut message,
                "context",
                json!({ "from": DISPLAY_NUMBER, "id": context }),
            );
        }
        message
    }

    fn content(&self) -> (&str, Value) {
        if let Some(file) = &self.file {
            let mut content = json!({ "id": file.id, "mime_type": file.mime_type });
            if !self.text.is_empty() {
                set(&mut content, "caption", json!(self.text));
            }
            return (&file.kind, content);
        }
        if self.new_number.is_some() || self.new_user_id.is_some() {
            let kind = if self.new_number.is_some() {
                "user_changed_number"
            } else {
                "user_changed_user_id"
            };
            let mut change = json!({ "body": "User changed", "type": kind });
            if let Some(number) = &self.new_number {
                set(&mut change, "wa_id", json!(wa_id(number)));
            }
            if let Some(user) = &self.new_user_id {
                set(&mut change, "user_id", json!(user));
            }
            return ("system", change);
        }
        if let Some(card) = &self.card {
            return ("contacts", card.content());
        }
        match &self.button_payload {
            Some(payload) => ("button", json!({ "payload": payload, "text": self.text })),
            None => ("text", json!({ "body": self.text })),
        }
    }

    fn contact(&self) -> Value {
        let mut contact = json!({ "profile": { "name": self.name.as_deref().unwrap_or("Cliente") } });
        if !self.from.is_empty() {
            set(&mut contact, "wa_id", json!(wa_id(&self.from)));
        }
        if let Some(user) = &self.user_id {
            set(&mut contact, "user_id", json!(user));
        }
        if let Some(user) = &self.parent_user_id {
            set(&mut contact, "parent_user_id", json!(user));
        }
        if let (Some(username), Some(profile)) = (&self.username, contact.get_mut("profile")) {
            set(profile, "username", json!(username));
        }
        contact
    }
}

impl Core {
    /// Enqueues the callback of one message and returns its id.
    pub(super) fn inbound(&self, inbound: &Inbound) -> String {
        let batch = InboundBatch {
            phone_number_id: inbound.phone_number_id.clone(),
            messages: vec![inbound.clone()],
            ..InboundBatch::default()
        };
        self.inbound_batch(&batch).pop().unwrap_or_default()
    }

    /// Enqueues one callback for several messages and returns their ids in the order of `batch.messages`.
    pub(super) fn inbound_batch(&self, batch: &InboundBatch) -> Vec<String> {
        let now = now_ms() / 1000;
        let (mut ids, mut messages, mut contacts) = (Vec::new(), Vec::new(), Vec::new());
        for (inbound, offset) in batch.messages.iter().zip(0..) {
            let id = inbound
                .id
                .clone()
                .unwrap_or_else(|| format!("wamid.{}", uuid::Uuid::new_v4().simple()));
            messages.push(inbound.message(&id, inbound.timestamp.unwrap_or(now + offset)));
            ids.push(id);
            let senders = [Some(wa_id(&inbound.from)), inbound.user_id.clone()];
            let windows = senders.into_iter().flatten().filter(|sender| !sender.is_empty());
            let windows = windows.map(|sender| (batch.phone_number_id.clone(), sender));
            locked(&self.state).open_windows.extend(windows);
            let contact = inbound.contact();
            if !contacts.contains(&contact) {
                contacts.push(contact);
            }
        }
        if batch.reversed {
            messages.reverse();
        }
        let mut change = messages_change(&batch.phone_number_id, "messages", Value::Null);
        if let Some(value) = change.get_mut("value") {
            set(value, "messages", json!(messages));
            set(value, "contacts", json!(contacts));
        }
        for _ in 0..=batch.repeated {
            self.enqueue_change(change.clone());
        }
        ids
    }

    /// Enqueues the callback of a changed preference.
    pub(super) fn preference(&self, preference: &Preference) {
        let at = preference.timestamp.unwrap_or(now_ms() / 1000);
        let mut item = json!({ "value": preference.value, "category": "marketing_messages", "timestamp": at,
            "detail": format!("User requested to {} marketing messages", preference.value) });
        if !preference.from.is_empty() {
            set(&mut item, "wa_id", json!(wa_id(&preference.from)));
        }
        if let Some(user) = &preference.user_id {
            set(&mut item, "user_id", json!(user));
        }
        let mut change = messages_change(&preference.phone_number_id, "user_preferences", item);
        set(&mut change, "field", json!("user_preferences"));
        self.enqueue_change(change);
    }

    fn enqueue_change(&self, change: Value) {
        let waba = self.options().waba_id;
        self.queue.push(Instant::now(), Job::Change { waba, change });
    }
}
