//! One contact that another system tells of: by the fields and the rules of a new one, new or not.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::change::draft_of;
use super::import::{check_tags, names_of};
use super::{ContactInput, ContactUpsert};
use crate::shared::FieldErrors;

/// Reads what was told. Null says nothing, and neither does a field that is none of a contact's.
pub(super) fn read(fields: &Map<String, Value>) -> Result<ContactUpsert, FieldErrors> {
    let mut errors = FieldErrors::default();
    let input = ContactInput {
        name: field(fields, "name", &mut errors),
        phone: field(fields, "phone", &mut errors).map(Some),
        email: field(fields, "email", &mut errors).map(Some),
        wa_user_id: field(fields, "wa_user_id", &mut errors).map(Some),
        attributes: field(fields, "attributes", &mut errors),
        tag_ids: field(fields, "tag_ids", &mut errors),
        // A system's list may be older than a person's word: false decides nothing.
        opted_out: field(fields, "opted_out", &mut errors).filter(|out| *out),
    };
    let names = fields.get("tags").cloned().unwrap_or_default();
    let tags = names_of(names).and_then(check_tags).unwrap_or_else(|message| {
        errors.add("tags", message);
        Vec::new()
    });
    // What has the wrong type is named as that alone.
    errors.clone().into_result()?;
    let tag_ids = input.tag_ids.clone().unwrap_or_default();
    let contact = draft_of(input)?;
    Ok(ContactUpsert { contact, tag_ids, tags })
}

fn field<T: DeserializeOwned>(fields: &Map<String, Value>, name: &str, errors: &mut FieldErrors) -> Option<T> {
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

    fn told(fields: &Value) -> Result<ContactUpsert, Vec<String>> {
        read(fields.as_object().unwrap()).map_err(|errors| errors.0.into_keys().collect())
    }

    #[test]
    fn everything_that_a_contact_has_may_be_told() {
        let tag = Uuid::from_u128(5);
        let fields = json!({
            "name": " Ana ", "phone": "11 96123-4567", "email": "ana@loja.example", "wa_user_id": "BR.1a",
            "attributes": { "city": "SP" }, "tag_ids": [tag], "tags": ["vip", " vip "], "opted_out": true,
            "id": "x", "created_at": 7,
        });
        let read = told(&fields).unwrap();
        let contact = &read.contact;
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
        assert_eq!((read.tag_ids, read.tags), (vec![TagId(tag)], vec!["vip".to_owned()]));
        let hidden = json!({ "name": "Ana", "wa_user_id": "BR.1a", "phone": null, "email": null, "tags": "a; b" });
        let read = told(&hidden).unwrap();
        assert_eq!((read.contact.phone, read.tags.len()), (None, 2));
    }

    #[test]
    fn system_decides_about_an_opt_out_only_by_true() {
        let of = |opted_out: bool| {
            let fields = json!({ "name": "Ana", "phone": "11961234567", "opted_out": opted_out });
            told(&fields).unwrap().contact.opted_out
        };
        assert_eq!((of(true), of(false)), (Some(true), None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (fields, wrong) in [
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
                json!({ "name": "Ana", "phone": "11961234567", "opted_out": "yes" }),
                vec!["opted_out"],
            ),
        ] {
            assert_eq!(
                told(&fields).map(drop),
                Err(wrong.iter().map(ToString::to_string).collect()),
                "{fields}"
            );
        }
    }
}
