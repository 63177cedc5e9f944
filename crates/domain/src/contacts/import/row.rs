//! Validates one row of an import. The rules are the same for every file format.

use serde_json::{Map, Value};

use super::super::change::{TIME_ZONE_RULE, check_name, check_wa_user_id};
use super::super::limits::{attributes_fit, attributes_rule};
use super::super::model::ContactDraft;
use super::super::{ImportRow, Phone};
use crate::shared::{redacted_debug, text};

/// The most tags of a row.
const MAX_TAGS: usize = 50;
/// The longest tag name.
const MAX_TAG_CHARS: usize = 100;

/// A parsed line: a contact or its error message.
pub(super) struct ParsedLine {
    pub(super) line: u64,
    pub(super) row: Result<ImportRow, String>,
}

/// The unchecked fields of a row. An absent field is empty.
#[derive(Default)]
pub(super) struct RowInput {
    pub(super) name: String,
    pub(super) phone: String,
    pub(super) email: String,
    pub(super) wa_user_id: String,
    pub(super) time_zone: String,
    pub(super) tags: Vec<String>,
    pub(super) attributes: Map<String, Value>,
    pub(super) opted_out: bool,
}

redacted_debug!(RowInput {});

impl RowInput {
    /// Validates the row. The error message names the invalid field.
    pub(super) fn check(self) -> Result<ImportRow, String> {
        // Spreadsheet exports write an apostrophe before `+55...`.
        let phone = self.phone.trim();
        let phone = phone.strip_prefix('\'').unwrap_or(phone);
        let wa_user_id = self.wa_user_id.trim();
        if phone.is_empty() && wa_user_id.is_empty() {
            return Err("has neither phone nor wa_user_id".to_owned());
        }
        let phone = match phone {
            "" => None,
            phone => Some(Phone::parse(phone).ok_or("phone is not a valid phone number")?),
        };
        let wa_user_id = match wa_user_id {
            "" => None,
            id => Some(check_wa_user_id(id.to_owned()).ok_or("wa_user_id is not a valid WhatsApp user id")?),
        };
        let name = check_name(&self.name).ok_or("name must have 1 to 200 characters")?;
        let email = match self.email.trim() {
            "" => None,
            email => Some(text::email(email).ok_or("email is not a valid e-mail address")?),
        };
        let time_zone = match self.time_zone.trim() {
            "" => None,
            name => Some(name.parse().map_err(|_| format!("time_zone {TIME_ZONE_RULE}"))?),
        };
        if !attributes_fit(&self.attributes) {
            return Err(format!("attributes {}", attributes_rule()));
        }
        Ok(ImportRow {
            contact: ContactDraft {
                name,
                phone,
                email,
                wa_user_id,
                time_zone,
                attributes: self.attributes,
                opted_out: self.opted_out.then_some(true),
            },
            tags: check_tags(self.tags).map_err(|message| format!("tags {message}"))?,
        })
    }
}

/// Splits tag names at semicolons.
pub(super) fn split_tags(text: &str) -> Vec<String> {
    text.split(';').map(str::to_owned).collect()
}

/// Sanitizes tag names and removes duplicates. The error message continues the field's name.
pub(in crate::contacts) fn check_tags(names: Vec<String>) -> Result<Vec<String>, String> {
    let mut tags: Vec<String> = Vec::new();
    for tag in names
        .iter()
        .map(|name| text::sanitize(name))
        .filter(|tag| !tag.is_empty())
    {
        if tag.chars().count() > MAX_TAG_CHARS {
            return Err(format!("must have names of at most {MAX_TAG_CHARS} characters"));
        }
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    if tags.len() > MAX_TAGS {
        Err(format!("must have at most {MAX_TAGS} names"))
    } else {
        Ok(tags)
    }
}

/// Merges two rows of one contact as the store would if it wrote one after the other.
pub(super) fn merge(mut earlier: ImportRow, later: ImportRow) -> ImportRow {
    let contact = &mut earlier.contact;
    contact.name = later.contact.name;
    contact.email = later.contact.email.or(contact.email.take());
    contact.wa_user_id = contact.wa_user_id.take().or(later.contact.wa_user_id);
    contact.time_zone = later.contact.time_zone.or(contact.time_zone.take());
    contact.attributes.extend(later.contact.attributes);
    contact.opted_out = contact.opted_out.or(later.contact.opted_out);
    for tag in later.tags {
        if !earlier.tags.contains(&tag) {
            earlier.tags.push(tag);
        }
    }
    earlier
}
