//! Validates new and changed contacts. A change validates only the fields that it names: a stored contact may exceed
//! today's limits, and its other fields can still be changed.

use serde_json::{Map, Value};

use super::limits::{attributes_fit, attributes_rule};
use super::{Contact, ContactChange, ContactDraft, ContactInput, Phone};
use crate::shared::{FieldErrors, text};

const NAME_CHARS: usize = 200;
const WA_USER_ID_CHARS: usize = 128;

/// The rule of a time zone. The message continues the field's name.
pub(super) const TIME_ZONE_RULE: &str = "must be the IANA name of a time zone, such as America/Sao_Paulo";

/// The most tags that a request may set.
const MAX_TAGS: usize = 50;

/// Sanitizes a contact's name. Returns `None` if the result is empty or longer than `NAME_CHARS`.
pub(super) fn check_name(name: &str) -> Option<String> {
    let name = text::sanitize(name);
    (!name.is_empty() && name.chars().count() <= NAME_CHARS).then_some(name)
}

/// Validates a new contact, which requires a name and a phone number or WhatsApp user id.
pub(super) fn validate_draft(input: ContactInput) -> Result<ContactDraft, FieldErrors> {
    let mut errors = FieldErrors::default();
    let with_name = ContactInput {
        name: Some(input.name.unwrap_or_default()),
        ..input
    };
    let change = validate(with_name, &mut errors);
    let (phone, wa_user_id) = (change.phone.flatten(), change.wa_user_id.flatten());
    if phone.is_none() && wa_user_id.is_none() && errors.0.keys().all(|field| field == "name") {
        require_address(&mut errors);
    }
    errors.into_result()?;
    Ok(ContactDraft {
        name: change.name.unwrap_or_default(),
        phone,
        email: change.email.flatten(),
        wa_user_id,
        time_zone: change.time_zone.flatten(),
        attributes: change.attributes.unwrap_or_default(),
        opted_out: change.opted_out,
    })
}

impl ContactChange {
    /// Validates the fields that the input names.
    pub(super) fn from_input(input: ContactInput) -> Result<Self, FieldErrors> {
        let mut errors = FieldErrors::default();
        let change = validate(input, &mut errors);
        errors.into_result()?;
        Ok(change)
    }

    /// Whether the change needs optimistic locking, because its validity depends on the stored phone number and user
    /// id. Every other change is valid for any stored contact and never conflicts.
    pub(super) fn changes_address(&self) -> bool {
        self.phone.is_some() || self.wa_user_id.is_some()
    }

    /// Rejects a change that removes the contact's last phone number or user id.
    pub(super) fn check_address(&self, stored: &Contact) -> Result<(), FieldErrors> {
        let present_after = |new: Option<bool>, stored: bool| new.unwrap_or(stored);
        let (had_phone, had_id) = (stored.phone.is_some(), stored.wa_user_id.is_some());
        let has_phone = present_after(self.phone.as_ref().map(Option::is_some), had_phone);
        let has_id = present_after(self.wa_user_id.as_ref().map(Option::is_some), had_id);
        let mut errors = FieldErrors::default();
        if (had_phone || had_id) && !has_phone && !has_id {
            require_address(&mut errors);
        }
        errors.into_result()
    }
}

fn require_address(errors: &mut FieldErrors) {
    errors.add("phone", "is required, unless wa_user_id is given");
}

/// Validates the given fields and adds the invalid ones to `errors`.
fn validate(input: ContactInput, errors: &mut FieldErrors) -> ContactChange {
    let name = input.name.and_then(|name| {
        let name = check_name(&name);
        name.or_else(|| invalid(errors, "name", "must have 1 to 200 characters"))
    });
    let phone = parse_field(input.phone, |text| Phone::parse(&text))
        .unwrap_or_else(|| invalid(errors, "phone", "is not a valid phone number"));
    let wa_user_id = parse_field(input.wa_user_id, check_wa_user_id)
        .unwrap_or_else(|| invalid(errors, "wa_user_id", "is not a valid WhatsApp user id"));
    let email = parse_field(input.email, |text| text::email(text.trim()))
        .unwrap_or_else(|| invalid(errors, "email", "is not a valid e-mail address"));
    let time_zone = parse_field(input.time_zone, |name| name.parse().ok())
        .unwrap_or_else(|| invalid(errors, "time_zone", TIME_ZONE_RULE));
    if let Some(attributes) = &input.attributes {
        check_attributes(attributes, errors);
    }
    if input.tag_ids.as_ref().is_some_and(|tags| tags.len() > MAX_TAGS) {
        errors.add("tag_ids", format!("must have at most {MAX_TAGS} items"));
    }
    ContactChange {
        name,
        phone,
        email,
        wa_user_id,
        time_zone,
        attributes: input.attributes,
        tag_ids: input.tag_ids,
        opted_out: input.opted_out,
    }
}

/// Parses an optional field. The outermost `None` means that the value is invalid.
fn parse_field<T>(input: Option<Option<String>>, parse: impl Fn(String) -> Option<T>) -> Option<Option<Option<T>>> {
    match input {
        None => Some(None),
        Some(None) => Some(Some(None)),
        Some(Some(text)) => parse(text).map(|value| Some(Some(value))),
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

/// Validates a WhatsApp user id: a country code, optionally `ENT`, and up to `WA_USER_ID_CHARS` letters and digits.
pub(crate) fn check_wa_user_id(text: String) -> Option<String> {
    let (country, rest) = text.split_once('.')?;
    let id = rest.strip_prefix("ENT.").unwrap_or(rest);
    let valid = country.len() == 2
        && country.bytes().all(|byte| byte.is_ascii_uppercase())
        && (1..=WA_USER_ID_CHARS).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    valid.then_some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::limits::MAX_ATTRIBUTES;
    use super::*;

    fn excess_attributes() -> Map<String, Value> {
        (0..=MAX_ATTRIBUTES).map(|n| (format!("k{n}"), json!(n))).collect()
    }

    #[test]
    fn change_checks_only_the_fields_it_names() {
        let phone = ContactInput {
            phone: Some(Some("11961234567".into())),
            ..ContactInput::default()
        };
        let change = ContactChange::from_input(phone).unwrap();
        let expected = ContactChange {
            phone: Some(Phone::parse("11961234567")),
            ..ContactChange::default()
        };
        assert_eq!(change, expected);
        let oversized = ContactInput {
            attributes: Some(excess_attributes()),
            ..ContactInput::default()
        };
        let rejected = ContactChange::from_input(oversized).unwrap_err();
        assert_eq!(rejected.0.keys().collect::<Vec<_>>(), ["attributes"]);
    }
}
