//! Parses inbound events: messages, number changes and consent changes of contacts.

use recado_domain::contacts::{Phone, Referral};
use recado_domain::conversations::{Direction, InboundEvent, InboundMessage, Sender};
use recado_domain::media::{AnnouncedFile, FileKind};
use recado_domain::shared::text;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::fields::{id, unix_time};
use crate::whatsapp::file_fetch::decode_sha256;

/// The longest stored text of a message, in characters, and the largest stored payload, in bytes.
const TEXT_CHARS: usize = 10_000;
const PAYLOAD_BYTES: usize = 8 * 1024;

/// The largest stored data of a flow, in bytes, and the longest media type, in characters.
const FLOW_BYTES: usize = 64 * 1024;
const MIME_TYPE_CHARS: usize = 100;

/// The longest message type, and the longest `wa_id`.
const KIND_CHARS: usize = 32;
const WA_ID_DIGITS: usize = 20;

/// The longest stored username, in characters.
const USERNAME_CHARS: usize = 100;

/// The longest stored field of an ad, in characters.
const REFERRAL_CHARS: usize = 2048;

/// Where the text of each message type is, best path first.
const TEXT_PATHS: &[(&str, &[&str])] = &[
    ("text", &["/text/body"]),
    ("button", &["/button/text"]),
    (
        "interactive",
        &[
            "/interactive/button_reply/title",
            "/interactive/list_reply/title",
            "/interactive/nfm_reply/body",
        ],
    ),
    ("image", &["/image/caption"]),
    ("video", &["/video/caption"]),
    ("document", &["/document/caption", "/document/filename"]),
    ("location", &["/location/name", "/location/address"]),
    ("reaction", &["/reaction/emoji"]),
];

/// The message types that are files.
const FILE_KINDS: [(&str, FileKind); 5] = [
    ("image", FileKind::Image),
    ("video", FileKind::Video),
    ("audio", FileKind::Audio),
    ("document", FileKind::Document),
    ("sticker", FileKind::Sticker),
];

/// The types of an author's change of a message. Where Meta names the changed message is not documented.
const CHANGES: [&str; 2] = ["revoke", "edit"];
const CHANGED_IDS: [&str; 3] = ["original_message_id", "message_id", "id"];

/// The longest stored file name, in characters.
const FILE_NAME_CHARS: usize = 240;

/// The other supported message types. WhatsApp does not document what `unsupported` stands for.
const TYPES_WITHOUT_TEXT: [&str; 5] = ["audio", "sticker", "contacts", "order", "unsupported"];

/// The message types in one change that are not supported.
pub(super) fn unread_kinds(value: &Value) -> impl Iterator<Item = String> + '_ {
    let items = |list: &str| value.get(list).and_then(Value::as_array).into_iter().flatten();
    items("messages")
        .chain(items("message_echoes"))
        .filter(|item| !is_supported(item))
        .map(|item| item.get("type").and_then(Value::as_str).unwrap_or_default().to_owned())
}

fn is_supported(item: &Value) -> bool {
    match item.get("type").and_then(Value::as_str) {
        Some("system") => item
            .pointer("/system/type")
            .and_then(Value::as_str)
            .is_some_and(is_number_change),
        Some(kind) if CHANGES.contains(&kind) => true,
        Some(kind) => TYPES_WITHOUT_TEXT.contains(&kind) || TEXT_PATHS.iter().any(|(name, _)| *name == kind),
        None => false,
    }
}

fn is_number_change(kind: &str) -> bool {
    matches!(kind, "user_changed_number" | "user_changed_user_id")
}

/// The inbound events in one change of a number.
pub(super) fn inbound_events(value: &Value) -> impl Iterator<Item = InboundEvent> + '_ {
    let items = |list: &str| value.get(list).and_then(Value::as_array).into_iter().flatten();
    let messages = items("messages").filter_map(move |item| message(item, value));
    let echoes = items("message_echoes").filter_map(move |item| echo(item, value));
    let preferences = items("user_preferences").filter_map(move |item| preference(item, value));
    let user_ids = items("user_id_update").filter_map(user_id_update);
    messages.chain(echoes).chain(preferences).chain(user_ids)
}

fn message(item: &Value, value: &Value) -> Option<InboundEvent> {
    let kind = item.get("type")?.as_str()?;
    if CHANGES.contains(&kind) {
        return author_change(item, kind, Direction::Inbound);
    }
    let sender = sender(item, "from", "from_user_id", value)?;
    if kind == "system" {
        return number_changed(item, sender);
    }
    content(item, kind, sender).map(InboundEvent::Message)
}

/// A message that the business wrote in its own app. `to` is the contact.
fn echo(item: &Value, value: &Value) -> Option<InboundEvent> {
    let kind = item.get("type")?.as_str()?;
    if CHANGES.contains(&kind) {
        return author_change(item, kind, Direction::Outbound);
    }
    let recipient = sender(item, "to", "to_user_id", value)?;
    content(item, kind, recipient).map(InboundEvent::Echo)
}

/// A message that its author revoked or edited.
fn author_change(item: &Value, kind: &str, direction: Direction) -> Option<InboundEvent> {
    let change = item.get(kind).unwrap_or(&Value::Null);
    let wa_message_id = CHANGED_IDS
        .iter()
        .find_map(|field| id(change, field))
        .or_else(|| item.get("context").and_then(|context| id(context, "id")))?;
    if kind == "revoke" {
        let at = at(item)?;
        return Some(InboundEvent::Revoked {
            wa_message_id,
            direction,
            at,
        });
    }
    let edited = change.get("message").unwrap_or(change);
    let paths = [
        "/text/body",
        "/body",
        "/caption",
        "/image/caption",
        "/video/caption",
        "/document/caption",
    ];
    let text = paths.iter().find_map(|path| edited.pointer(path)?.as_str());
    let text = text.or_else(|| item.pointer("/text/body")?.as_str());
    Some(InboundEvent::Edited {
        wa_message_id,
        direction,
        text: storable_text(text?),
    })
}

fn content(item: &Value, kind: &str, sender: Sender) -> Option<InboundMessage> {
    let is_valid_kind = kind.len() <= KIND_CHARS && kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let paths = TEXT_PATHS
        .iter()
        .find(|(name, _)| *name == kind)
        .map_or(&[][..], |(_, paths)| paths);
    let text = paths
        .iter()
        .find_map(|path| item.pointer(path)?.as_str())
        .map(storable_text);
    Some(InboundMessage {
        wa_message_id: id(item, "id")?,
        sender,
        at: at(item)?,
        kind: if is_valid_kind { kind } else { "unsupported" }.to_owned(),
        text,
        can_opt_out: matches!(kind, "text" | "button"),
        referral: referral(item),
        payload: payload(item, kind),
        caption: caption(item, kind),
        interactive: pressed(item, kind),
        quoted: item.get("context").and_then(|context| id(context, "id")),
        file: file(item, kind),
        answered_wa_id: answered_wa_id(item, kind),
    })
}

fn caption(item: &Value, kind: &str) -> Option<String> {
    let is_file = FILE_KINDS.iter().any(|(name, _)| *name == kind);
    let caption = item.get(kind).filter(|_| is_file)?.get("caption")?.as_str()?;
    Some(storable_text(caption))
}

/// What the contact pressed, or a flow's data.
fn pressed(item: &Value, kind: &str) -> Option<Value> {
    let choice = |reply: &Value, id_field: &str, title_field: &str| {
        let text = |field: &str| reply.get(field).and_then(Value::as_str).map(storable_text);
        json!({ "id": text(id_field), "title": text(title_field) })
    };
    let content = item.get(kind)?;
    match kind {
        "button" => Some(choice(content, "payload", "text")),
        "interactive" => {
            let reply = content.get("button_reply").or_else(|| content.get("list_reply"));
            reply.map(|reply| choice(reply, "id", "title")).or_else(|| {
                let data = content.get("nfm_reply")?.get("response_json")?;
                let data = match data {
                    Value::String(json) => serde_json::from_str(json).ok()?,
                    data => data.clone(),
                };
                let fits = data.is_object() && text::json_bytes(&data) <= FLOW_BYTES;
                fits.then(|| without_nul(&data))
            })
        }
        _ => None,
    }
}

/// The message's file. WhatsApp stores it under its id.
fn file(item: &Value, kind: &str) -> Option<AnnouncedFile> {
    let (_, file_kind) = FILE_KINDS.iter().find(|(name, _)| *name == kind)?;
    let content = item.get(kind)?;
    let text = |field: &str, chars: usize| {
        let text = content.get(field)?.as_str()?;
        Some(storable_text(text).chars().take(chars).collect::<String>()).filter(|text| !text.is_empty())
    };
    Some(AnnouncedFile {
        kind: *file_kind,
        wa_media_id: id(content, "id")?,
        mime_type: text("mime_type", MIME_TYPE_CHARS),
        file_name: text("filename", FILE_NAME_CHARS),
        sha256: content.get("sha256").and_then(Value::as_str).and_then(decode_sha256),
    })
}

/// The number of a card that WhatsApp's button for a contact request sent. None for a card that was shared by hand, and
/// for a message that does not name exactly one number.
fn answered_wa_id(item: &Value, kind: &str) -> Option<String> {
    let cards = item.get("contacts").filter(|_| kind == "contacts")?.as_array()?;
    let [card] = &cards[..] else { return None };
    if card.get("origin")?.as_str()? != "contact_request" {
        return None;
    }
    let [number] = &card.get("phones")?.as_array()?[..] else {
        return None;
    };
    let wa_id = wa_id(number, "wa_id")?;
    let shown = number.get("phone").and_then(Value::as_str).and_then(Phone::parse);
    let is_same = shown.is_none() || shown == Phone::parse(&format!("+{wa_id}"));
    is_same.then_some(wa_id)
}

/// The ad or post that led to the message, or none if the callback has no data of it.
fn referral(item: &Value) -> Option<Box<Referral>> {
    let given = item.get("referral")?;
    let text = |field: &str| {
        let text = given.get(field)?.as_str()?;
        Some(storable_text(text).chars().take(REFERRAL_CHARS).collect::<String>()).filter(|text| !text.is_empty())
    };
    let referral = Referral {
        source_type: text("source_type"),
        source_id: text("source_id"),
        source_url: text("source_url"),
        headline: text("headline"),
        body: text("body"),
        media_type: text("media_type"),
        image_url: text("image_url"),
        video_url: text("video_url"),
        thumbnail_url: text("thumbnail_url"),
        ctwa_clid: text("ctwa_clid"),
    };
    (referral != Referral::default()).then(|| Box::new(referral))
}

/// WhatsApp assigns a new user id when a number changes.
fn number_changed(item: &Value, sender: Sender) -> Option<InboundEvent> {
    let system = item.get("system")?;
    if !is_number_change(system.get("type")?.as_str()?) {
        return None;
    }
    let now = Sender {
        wa_id: wa_id(system, "wa_id").or_else(|| wa_id(system, "new_wa_id")),
        user_id: user_id(system, "user_id").or_else(|| user_id(system, "new_user_id")),
        parent_user_id: user_id(system, "parent_user_id"),
        ..Sender::default()
    };
    Some(InboundEvent::NumberChanged { sender, now })
}

/// A changed user id, outside of messages. Meta does not document the form of the ids: they are read as an object with
/// `previous` and `current`, and as the current id.
fn user_id_update(item: &Value) -> Option<InboundEvent> {
    let previous = |field: &str| user_id(item.get(field)?, "previous");
    let current = |field: &str| user_id(item.get(field)?, "current").or_else(|| user_id(item, field));
    let sender = Sender {
        wa_id: wa_id(item, "wa_id"),
        user_id: previous("user_id").or_else(|| user_id(item, "previous_user_id")),
        parent_user_id: previous("parent_user_id"),
        ..Sender::default()
    };
    let now = Sender {
        wa_id: sender.wa_id.clone(),
        user_id: current("user_id"),
        parent_user_id: current("parent_user_id"),
        ..Sender::default()
    };
    now.user_id
        .is_some()
        .then_some(InboundEvent::NumberChanged { sender, now })
}

fn preference(item: &Value, value: &Value) -> Option<InboundEvent> {
    let opted_in = match item.get("value")?.as_str()? {
        "stop" => false,
        "resume" => true,
        _ => return None,
    };
    let category = item.get("category").and_then(Value::as_str);
    if category.is_some_and(|category| category != "marketing_messages") {
        return None;
    }
    Some(InboundEvent::Preference {
        sender: sender(item, "wa_id", "user_id", value)?,
        opted_in,
        at: at(item)?,
    })
}

/// The sender of an item, completed from the callback's `contacts`.
fn sender(item: &Value, wa_field: &str, user_field: &str, value: &Value) -> Option<Sender> {
    let (own_wa_id, own_user_id) = (wa_id(item, wa_field), user_id(item, user_field));
    let contacts = value
        .get("contacts")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let same = |contact: &&Value| {
        (own_wa_id.is_some() && wa_id(contact, "wa_id") == own_wa_id)
            || (own_user_id.is_some() && user_id(contact, "user_id") == own_user_id)
    };
    let nameless = own_wa_id.is_none() && own_user_id.is_none();
    let contact = match contacts {
        [only] if nameless => Some(only),
        all => all.iter().find(same),
    };
    let sender = Sender {
        wa_id: own_wa_id.or_else(|| wa_id(contact?, "wa_id")),
        user_id: own_user_id.or_else(|| user_id(contact?, "user_id")),
        name: contact
            .and_then(|contact| contact.pointer("/profile/name")?.as_str())
            .map(storable_text),
        parent_user_id: contact.and_then(|contact| user_id(contact, "parent_user_id")),
        username: contact.and_then(username),
    };
    (sender.wa_id.is_some() || sender.user_id.is_some()).then_some(sender)
}

/// The recipient that a status names, if its user id is known. `contacts` may name it beside the number.
pub(super) fn recipient(status: &Value, value: &Value) -> Option<Sender> {
    if wa_id(status, "recipient_id").is_none() && user_id(status, "recipient_user_id").is_none() {
        return None;
    }
    let found = sender(status, "recipient_id", "recipient_user_id", value)?;
    found.user_id.as_ref()?;
    Some(Sender {
        parent_user_id: user_id(status, "recipient_parent_user_id").or(found.parent_user_id),
        ..found
    })
}

fn username(contact: &Value) -> Option<String> {
    let given = contact.pointer("/profile/username")?.as_str()?;
    let name: String = storable_text(given).chars().take(USERNAME_CHARS).collect();
    Some(name).filter(|name| !name.is_empty())
}

fn wa_id(object: &Value, field: &str) -> Option<String> {
    let given = id(object, field)?;
    let digits = given.strip_prefix('+').unwrap_or(&given);
    let fits = (1..=WA_ID_DIGITS).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| digits.to_owned())
}

fn user_id(object: &Value, field: &str) -> Option<String> {
    id(object, field).filter(|given| given.bytes().all(|byte| byte.is_ascii_graphic()))
}

fn at(item: &Value) -> Option<OffsetDateTime> {
    unix_time(item, "timestamp")
}

/// The text without NUL, at most `TEXT_CHARS` long.
fn storable_text(text: &str) -> String {
    text.chars().filter(|&c| c != '\0').take(TEXT_CHARS).collect()
}

/// The message's content besides its text, for clients. A payload over `PAYLOAD_BYTES` is replaced.
fn payload(item: &Value, kind: &str) -> Value {
    let mut content = Map::new();
    for field in [kind, "context", "errors"] {
        if field == "text" {
            continue;
        }
        if let Some(value) = item.get(field) {
            content.insert(storable_text(field), without_nul(value));
        }
    }
    let content = Value::Object(content);
    if text::json_bytes(&content) > PAYLOAD_BYTES {
        json!({ "too_large": true })
    } else {
        content
    }
}

fn without_nul(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace('\0', "")),
        Value::Array(items) => items.iter().map(without_nul).collect(),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| (key.replace('\0', ""), without_nul(value)));
            Value::Object(fields.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests;
