//! Validates a contact that another system reports, by the fields and rules of a new contact.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::change::validate_draft;
use super::import::{check_tags, parse_tag_names};
use super::{ContactInput, ContactUpsert};
use crate::shared::FieldErrors;

/// Validates the reported fields. Null and unknown fields are ignored.
pub(super) fn parse(fields: &Map<String, Value>) -> Result<ContactUpsert, FieldErrors> {
    let mut errors = FieldErrors::default();
    let input = ContactInput {
        name: parse_field(fields, "name", &mut errors),
        phone: parse_field(fields, "phone", &mut errors).map(Some),
        email: parse_field(fields, "email", &mut errors).map(Some),
        wa_user_id: parse_field(fields, "wa_user_id", &mut errors).map(Some),
        time_zone: parse_field(fields, "time_zone", &mut errors).map(Some),
        attributes: parse_field(fields, "attributes", &mut errors),
        tag_ids: parse_field(fields, "tag_ids", &mut errors),
        // Another system's data may be older than the contact's own opt-out, so `false` has no effect.
        opted_out: parse_field(fields, "opted_out", &mut errors).filter(|out| *out),
    };
    let names = fields.get("tags").cloned().unwrap_or_default();
    let tags = parse_tag_names(names).and_then(check_tags).unwrap_or_else(|message| {
        errors.add("tags", message);
        Vec::new()
    });
    // Report only the type errors first: they would cause misleading errors below.
    errors.clone().into_result()?;
    let tag_ids = input.tag_ids.clone().unwrap_or_default();
    let contact = validate_draft(input)?;
    Ok(ContactUpsert { contact, tag_ids, tags })
}

fn parse_field<T: DeserializeOwned>(fields: &Map<String, Value>, name: &str, errors: &mut FieldErrors) -> Option<T> {
    let value = fields.get(name).filter(|value| !value.is_null())?;
    serde_json::from_value(value.clone())
        .map_err(|error| errors.add(name, error.to_string()))
        .ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::shared::TagId;

    fn parse_json(fields: &Value) -> Result<ContactUpsert, Vec<String>> {
        parse(fields.as_object().unwrap()).map_err(|errors| errors.0.into_keys().collect())
    }

    #[test]
    fn upsert_reads_every_field_of_a_contact() {
        let tag = Uuid::from_u128(5);
        let fields = json!({
            "name": " Ana ", "phone": "11 96123-4567", "email": "ana@loja.example", "wa_user_id": "BR.1a",
            "time_zone": "america/manaus", "attributes": { "city": "SP" }, "tag_ids": [tag], "tags": ["vip", " vip "], "opted_out": true,
            "id": "x", "created_at": 7,
        });
        let upsert = parse_json(&fields).unwrap();
        let contact = &upsert.contact;
        assert_eq!(
            (contact.name.as_str(), contact.wa_user_id.as_deref()),
            ("Ana", Some("BR.1a"))
        );
        assert_eq!(
            contact.phone.as_ref().map(|phone| phone.as_str()),
            Some("+5511961234567")
        );
        assert_eq!(
            (contact.email.as_deref(), contact.opted_out),
            (Some("ana@loja.example"), Some(true))
        );
        assert_eq!(contact.attributes["city"], "SP");
        assert_eq!(contact.time_zone, Some("America/Manaus".parse().unwrap()));
        assert_eq!(
            (upsert.tag_ids, upsert.tags),
            (vec![TagId(tag)], vec!["vip".to_owned()])
        );
        let hidden = json!({ "name": "Ana", "wa_user_id": "BR.1a", "phone": null, "email": null, "tags": "a; b" });
        let upsert = parse_json(&hidden).unwrap();
        assert_eq!((upsert.contact.phone, upsert.tags.len()), (None, 2));
    }

    #[test]
    fn upsert_applies_only_an_opt_out_of_true() {
        let parsed_opt_out = |opted_out: bool| {
            let fields = json!({ "name": "Ana", "phone": "11961234567", "opted_out": opted_out });
            parse_json(&fields).unwrap().contact.opted_out
        };
        assert_eq!((parsed_opt_out(true), parsed_opt_out(false)), (Some(true), None));
    }

    #[test]
    fn upsert_reports_invalid_fields() {
        for (fields, invalid) in [
            (json!({}), vec!["name", "phone"]),
            (json!({ "name": "Ana" }), vec!["phone"]),
            (
                json!({ "name": 7, "phone": [], "tag_ids": ["x"] }),
                vec!["name", "phone", "tag_ids"],
            ),
            (json!({ "name": "Ana", "wa_user_id": "x" }), vec!["wa_user_id"]),
            (
                json!({ "name": "Ana", "phone": "1", "email": "a" }),
                vec!["email", "phone"],
            ),
            (
                json!({ "name": "Ana", "phone": "11961234567", "attributes": { "a": [] } }),
                vec!["attributes.a"],
            ),
            (
                json!({ "name": "Ana", "phone": "11961234567", "tags": 7 }),
                vec!["tags"],
            ),
            (
                json!({ "name": "Ana", "phone": "11961234567", "time_zone": "BRT" }),
                vec!["time_zone"],
            ),
            (
                json!({ "name": "Ana", "phone": "11961234567", "opted_out": "yes" }),
                vec!["opted_out"],
            ),
        ] {
            assert_eq!(
                parse_json(&fields).map(drop),
                Err(invalid.iter().map(ToString::to_string).collect()),
                "{fields}"
            );
        }
    }
}
