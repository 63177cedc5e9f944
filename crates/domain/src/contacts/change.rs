//! What a caller writes about a contact, checked. A change checks only the fields that it names: a stored contact may
//! hold more than a caller may write today, and can still be changed in everything else.

use serde_json::{Map, Value};

use super::limits::{attributes_fit, attributes_rule};
use super::service::check_name;
use super::{Contact, ContactChange, ContactDraft, ContactInput, Phone};
use crate::shared::{FieldErrors, text};

const WA_USER_ID_CHARS: usize = 128;

/// How many tags a contact may be given.
const TAGS: usize = 50;

/// A new contact, which needs a name and a phone or user id.
pub(super) fn draft_of(input: ContactInput) -> Result<ContactDraft, FieldErrors> {
    let mut errors = FieldErrors::default();
    let named = ContactInput {
        name: Some(input.name.unwrap_or_default()),
        ..input
    };
    let change = checked(named, &mut errors);
    let (phone, wa_user_id) = (change.phone.flatten(), change.wa_user_id.flatten());
    if phone.is_none() && wa_user_id.is_none() && errors.0.keys().all(|field| field == "name") {
        needs_address(&mut errors);
    }
    errors.into_result()?;
    Ok(ContactDraft {
        name: change.name.unwrap_or_default(),
        phone,
        email: change.email.flatten(),
        wa_user_id,
        attributes: change.attributes.unwrap_or_default(),
        opted_out: change.opted_out,
    })
}

impl ContactChange {
    /// The fields that an input names.
    pub(super) fn of(input: ContactInput) -> Result<Self, FieldErrors> {
        let mut errors = FieldErrors::default();
        let change = checked(input, &mut errors);
        errors.into_result()?;
        Ok(change)
    }

    /// Whether it may be written depends on the stored contact. Every other change may be written whatever is stored, so
    /// that it never conflicts with another one.
    pub(super) fn names_address(&self) -> bool {
        self.phone.is_some() || self.wa_user_id.is_some()
    }

    /// A contact that can be reached by a phone or a user id stays so.
    pub(super) fn check_address(&self, stored: &Contact) -> Result<(), FieldErrors> {
        let stays = |given: Option<bool>, stored: bool| given.unwrap_or(stored);
        let (had_phone, had_id) = (stored.phone.is_some(), stored.wa_user_id.is_some());
        let has_phone = stays(self.phone.as_ref().map(Option::is_some), had_phone);
        let has_id = stays(self.wa_user_id.as_ref().map(Option::is_some), had_id);
        let mut errors = FieldErrors::default();
        if (had_phone || had_id) && !has_phone && !has_id {
            needs_address(&mut errors);
        }
        errors.into_result()
    }
}

fn needs_address(errors: &mut FieldErrors) {
    errors.add("phone", "is required, unless wa_user_id is given");
}

/// The given fields that can be read; the others are named in `errors`.
fn checked(input: ContactInput, errors: &mut FieldErrors) -> ContactChange {
    let name = input.name.and_then(|name| {
        let name = check_name(&name);
        name.or_else(|| invalid(errors, "name", "must have 1 to 200 characters"))
    });
    let phone = read(input.phone, |text| Phone::parse(&text))
        .unwrap_or_else(|| invalid(errors, "phone", "is not a phone number"));
    let wa_user_id = read(input.wa_user_id, check_wa_user_id)
        .unwrap_or_else(|| invalid(errors, "wa_user_id", "is not a user id of the platform"));
    let email = read(input.email, |text| text::email(text.trim()))
        .unwrap_or_else(|| invalid(errors, "email", "is not an e-mail address"));
    if let Some(attributes) = &input.attributes {
        check_attributes(attributes, errors);
    }
    if input.tag_ids.as_ref().is_some_and(|tags| tags.len() > TAGS) {
        errors.add("tag_ids", format!("must have at most {TAGS} items"));
    }
    ContactChange {
        name,
        phone,
        email,
        wa_user_id,
        attributes: input.attributes,
        tag_ids: input.tag_ids,
        opted_out: input.opted_out,
    }
}

/// A field that was given, read; none when it cannot be read.
fn read<T>(input: Option<Option<String>>, read: impl Fn(String) -> Option<T>) -> Option<Option<Option<T>>> {
    match input {
        None => Some(None),
        Some(None) => Some(Some(None)),
        Some(Some(text)) => read(text).map(|value| Some(Some(value))),
    }
}

fn invalid<T>(errors: &mut FieldErrors, field: &str, message: &str) -> Option<T> {
    errors.add(field, message);
    None
}

fn check_attributes(attributes: &Map<String, Value>, errors: &mut FieldErrors) {
    if !attributes_fit(attributes) {
        errors.add("attributes", attributes_rule());
    }
    for (key, value) in attributes {
        if value.is_array() || value.is_object() {
            errors.add(format!("attributes.{key}"), "must be a string, number, boolean or null");
        }
    }
}

/// The platform's id of a person whose number is hidden: a country, maybe `ENT`, and up to 128 letters and digits.
fn check_wa_user_id(text: String) -> Option<String> {
    let (country, rest) = text.split_once('.')?;
    let id = rest.strip_prefix("ENT.").unwrap_or(rest);
    let fits = country.len() == 2
        && country.bytes().all(|byte| byte.is_ascii_uppercase())
        && (1..=WA_USER_ID_CHARS).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    fits.then_some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::limits::MAX_ATTRIBUTES;
    use super::*;

    /// More attributes than a caller may write.
    fn too_many() -> Map<String, Value> {
        (0..=MAX_ATTRIBUTES).map(|n| (format!("k{n}"), json!(n))).collect()
    }

    #[test]
    fn change_checks_only_the_fields_it_names() {
        let phone = ContactInput {
            phone: Some(Some("11961234567".into())),
            ..ContactInput::default()
        };
        let change = ContactChange::of(phone).unwrap();
        let expected = ContactChange {
            phone: Some(Phone::parse("11961234567")),
            ..ContactChange::default()
        };
        assert_eq!(change, expected);
        let oversized = ContactInput {
            attributes: Some(too_many()),
            ..ContactInput::default()
        };
        let refused = ContactChange::of(oversized).unwrap_err();
        assert_eq!(refused.0.keys().collect::<Vec<_>>(), ["attributes"]);
    }
}
