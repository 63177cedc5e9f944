//! The mapping of a template's placeholders to values for each contact.
//!
//! A mapping like `{ "2": "{attributes.coupon|PROMO10} off" }` is text with fields in braces. The fallback after `|`
//! replaces a value that the contact lacks. Without a mapping, `{{1}}`, `{{first_name}}` and `{{nome}}` are the
//! contact's first name, and every other placeholder is the template's example.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Recipient;
use crate::shared::FieldErrors;
use crate::shared::text::{is_blank, single_spaced};
use crate::templates::{Placeholder, is_placeholder_name};

/// The longest mapping of one placeholder, in characters.
const MAPPING_CHARS: usize = 1024;

/// The placeholders that are the contact's first name unless a mapping says otherwise.
const FIRST_NAMES: [&str; 3] = ["1", "first_name", "nome"];

/// The value of each placeholder, by its number, or by its name in a template with named placeholders. A value is text
/// in which `{name}`, `{first_name}`, `{phone}`, `{email}` and `{attributes.<name>}` are replaced by the contact's
/// values, each with an optional fallback after `|`. Without a value, `{{1}}`, `{{first_name}}` and `{{nome}}` are the
/// contact's first name, and every other placeholder is the template's example. WhatsApp rejects line breaks, tabs and
/// long runs of spaces in a value, so each run of white space and control characters becomes one space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(example = serde_json::json!({ "1": "{first_name|cliente}", "2": "{attributes.coupon|PROMO10}" }))]
pub struct Variables(pub BTreeMap<String, String>);

/// A contact field that a mapping can insert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    Name,
    /// The name's first word.
    FirstName,
    /// E.164.
    Phone,
    Email,
    /// The attribute with this name.
    Attribute(String),
}

/// A placeholder that is empty for every contact that has none of `fields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredPlaceholder {
    /// The number or name of the placeholder.
    pub placeholder: String,
    /// Empty: the placeholder is empty for every contact.
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field { field: Field, fallback: String },
}

impl Variables {
    /// Checks every mapping: the key is a number or name, fields are known, braces are closed and not nested.
    pub fn validate(&self) -> Result<(), FieldErrors> {
        let mut errors = FieldErrors::default();
        for (placeholder, mapping) in &self.0 {
            let path = format!("variables.{placeholder}");
            let is_number = placeholder.parse::<u32>().is_ok() && !placeholder.starts_with(['0', '+']);
            if !is_number && !is_placeholder_name(placeholder) {
                errors.add(&path, "is neither the number nor the name of a placeholder");
            }
            if mapping.chars().count() > MAPPING_CHARS {
                errors.add(&path, format!("must have at most {MAPPING_CHARS} characters"));
            } else if let Err(message) = parse(mapping) {
                errors.add(&path, message);
            }
        }
        errors.into_result()
    }

    /// The values of the placeholders for a contact, in order, each [`single_spaced`].
    pub fn render(&self, placeholders: &[Placeholder], contact: &Recipient) -> Vec<String> {
        let mut values = Vec::with_capacity(placeholders.len());
        for (parts, _) in self.mappings(placeholders) {
            let value: String = parts.iter().map(|part| render(part, contact)).collect();
            values.push(single_spaced(&value));
        }
        values
    }

    /// The placeholders that could be empty for a contact.
    pub fn required_placeholders(&self, placeholders: &[Placeholder]) -> Vec<RequiredPlaceholder> {
        let mut required_placeholders = Vec::new();
        for (parts, placeholder) in self.mappings(placeholders) {
            let mut fields = Vec::new();
            let filled = parts.iter().any(|part| match part {
                Part::Text(text) => !is_blank(text),
                Part::Field { field, fallback } => {
                    fields.push(field.clone());
                    !is_blank(fallback)
                }
            });
            if !filled {
                let placeholder = placeholder.to_owned();
                required_placeholders.push(RequiredPlaceholder { placeholder, fields });
            }
        }
        required_placeholders
    }

    fn mappings<'a>(&'a self, placeholders: &'a [Placeholder]) -> impl Iterator<Item = (Vec<Part>, &'a str)> {
        placeholders.iter().map(|Placeholder { key, example }| {
            let parts = match self.0.get(key) {
                Some(mapping) => parse(mapping).unwrap_or_default(),
                None if FIRST_NAMES.contains(&key.as_str()) => vec![Part::Field {
                    field: Field::FirstName,
                    fallback: String::new(),
                }],
                None => vec![Part::Text(example.clone())],
            };
            (parts, key.as_str())
        })
    }
}

fn parse(mapping: &str) -> Result<Vec<Part>, &'static str> {
    let mut parts = Vec::new();
    let mut rest = mapping;
    while let Some((text, after)) = rest.split_once('{') {
        let (inside, after) = after.split_once('}').ok_or("has a brace that is not closed")?;
        if inside.contains('{') {
            return Err("has a brace inside a field");
        }
        let (name, fallback) = inside.split_once('|').unwrap_or((inside, ""));
        let field = match name.trim() {
            "name" => Field::Name,
            "first_name" => Field::FirstName,
            "phone" => Field::Phone,
            "email" => Field::Email,
            field => match field.strip_prefix("attributes.").filter(|key| !key.is_empty()) {
                Some(key) => Field::Attribute(key.to_owned()),
                None => return Err("names a field other than name, first_name, phone, email or attributes.*"),
            },
        };
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        parts.push(Part::Field {
            field,
            fallback: fallback.to_owned(),
        });
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    Ok(parts)
}

fn render(part: &Part, contact: &Recipient) -> String {
    match part {
        Part::Text(text) => text.clone(),
        Part::Field { field, fallback } => {
            let value = value(field, contact);
            if is_blank(&value) { fallback.clone() } else { value }
        }
    }
}

fn value(field: &Field, contact: &Recipient) -> String {
    match field {
        Field::Name => contact.name.clone(),
        Field::FirstName => single_spaced(&contact.name)
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned(),
        Field::Phone => contact.phone.clone(),
        Field::Email => contact.email.clone().unwrap_or_default(),
        Field::Attribute(key) => match contact.attributes.get(key) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        Variables(pairs.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect())
    }

    fn ana() -> Recipient {
        Recipient {
            name: "Ana Maria Souza".into(),
            phone: "+5511961234567".into(),
            user_id: None,
            email: None,
            attributes: json!({ "coupon": "ANA5", "points": 12, "empty": " " })
                .as_object()
                .unwrap()
                .clone(),
        }
    }

    fn rendered(pairs: &[(&str, &str)], examples: &[&str]) -> Vec<String> {
        let examples: Vec<String> = examples.iter().map(|&e| e.to_owned()).collect();
        variables(pairs).render(&Placeholder::numbered(&examples), &ana())
    }

    #[test]
    fn unmapped_placeholders_are_first_name_then_examples() {
        assert_eq!(rendered(&[], &["Bia", "PROMO10"]), ["Ana", "PROMO10"]);
    }

    #[test]
    fn mapping_combines_fields_fallbacks_and_text() {
        let pairs = [
            ("1", "{name}, {email|sem e-mail}"),
            ("2", "{attributes.coupon|X}"),
            ("3", "{attributes.points} pts"),
        ];
        assert_eq!(
            rendered(&pairs, &["a", "b", "c"]),
            ["Ana Maria Souza, sem e-mail", "ANA5", "12 pts"]
        );
        assert_eq!(rendered(&[("1", "{attributes.empty|nada}")], &["a"]), ["nada"]);
    }

    #[test]
    fn rendered_values_collapse_white_space() {
        let mut contact = ana();
        contact.name = "\u{1}\tAna\u{2028}Maria".into();
        contact
            .attributes
            .insert("address".into(), " Rua A\r\nCasa     2\t".into());
        contact.attributes.insert("control".into(), "\u{7}\u{a0}".into());
        let mappings = variables(&[
            ("1", "{first_name}     {attributes.address}!"),
            ("2", "{attributes.control|nada}"),
            ("3", "{attributes.control}"),
            ("4", "{name}"),
        ]);
        let examples = ["a", "b", "c", "d", "PROMO\n10"].map(str::to_owned);
        assert_eq!(
            mappings.render(&Placeholder::numbered(&examples), &contact),
            ["Ana Rua A Casa 2 !", "nada", "", "Ana Maria", "PROMO 10"]
        );
    }

    #[test]
    fn required_placeholders_lists_those_that_can_be_empty() {
        let pairs = [
            ("1", "{email}{attributes.coupon}"),
            ("2", "{email|-}"),
            ("3", "Oi {email}"),
            ("4", " "),
        ];
        let examples = vec![String::from("x"); 5];
        let required_placeholders = variables(&pairs).required_placeholders(&Placeholder::numbered(&examples));
        let coupon = Field::Attribute("coupon".into());
        assert_eq!(
            required_placeholders,
            [
                RequiredPlaceholder {
                    placeholder: "1".into(),
                    fields: vec![Field::Email, coupon]
                },
                RequiredPlaceholder {
                    placeholder: "4".into(),
                    fields: vec![]
                },
            ]
        );
    }

    #[test]
    fn validate_names_each_wrong_mapping() {
        let wrong = variables(&[
            ("1", "{age}"),
            ("2", "{name"),
            ("X", "y"),
            ("03", ""),
            ("4", "{attributes.}"),
            ("5", "{email|{name}}"),
        ]);
        let errors = wrong.validate().unwrap_err();
        let fields: Vec<&str> = errors.0.keys().map(String::as_str).collect();
        assert_eq!(
            fields,
            [
                "variables.03",
                "variables.1",
                "variables.2",
                "variables.4",
                "variables.5",
                "variables.X"
            ]
        );
        variables(&[("1", "{name|cliente}"), ("12", "plain } text"), ("nome_2", "x")])
            .validate()
            .unwrap();
    }

    #[test]
    fn named_placeholders_map_by_name() {
        let placeholder = |key: &str, example: &str| Placeholder {
            key: key.into(),
            example: example.into(),
        };
        let named = ["first_name", "nome", "cupom", "dia", "vazio"].map(|key| placeholder(key, "exemplo"));
        let mappings = variables(&[("dia", "{attributes.points}"), ("1", "x"), ("vazio", "{email}")]);
        assert_eq!(mappings.render(&named, &ana()), ["Ana", "Ana", "exemplo", "12", ""]);
        let required_placeholders: Vec<String> = mappings
            .required_placeholders(&named)
            .into_iter()
            .map(|required| required.placeholder)
            .collect();
        assert_eq!(required_placeholders, ["first_name", "nome", "dia", "vazio"]);
        let without = variables(&[]).required_placeholders(&[placeholder("cupom", " ")]);
        assert_eq!((without[0].placeholder.as_str(), without[0].fields.len()), ("cupom", 0));
    }

    fn bia() -> Vec<Placeholder> {
        Placeholder::numbered(&["Bia".into()])
    }

    /// Arbitrary text, with fields and braces more often than by chance.
    fn any_mapping() -> impl Strategy<Value = String> {
        let fragment = prop_oneof![
            Just("{name}".to_owned()),
            Just("{first_name|cliente}".to_owned()),
            Just("{email}".to_owned()),
            Just("{email|}".to_owned()),
            Just("{attributes.coupon| }".to_owned()),
            Just("{attributes.coupon|X5}".to_owned()),
            "[{}| a\u{a0}\u{2028}]{0,4}",
            "\\PC{0,6}",
        ];
        prop::collection::vec(fragment, 0..6).prop_map(|fragments| fragments.concat())
    }

    fn any_contact() -> impl Strategy<Value = Recipient> {
        (
            "[ a-zé\n\u{1}\u{2028}]{0,8}",
            prop::option::of("[ a-z@\t]{0,5}"),
            prop::option::of("[ A-Z0-9\u{1f}\u{85}]{0,3}"),
        )
            .prop_map(|(name, email, coupon)| Recipient {
                name,
                phone: "+5511961234567".into(),
                user_id: None,
                email,
                attributes: coupon
                    .map(|coupon| ("coupon".to_owned(), coupon.into()))
                    .into_iter()
                    .collect(),
            })
    }

    proptest! {
        /// Rendering replaces every field of a valid mapping.
        #[test]
        fn valid_mapping_leaves_no_field_unrendered(mapping in any_mapping(), contact in any_contact()) {
            let variables = variables(&[("1", &mapping)]);
            let [value] = &variables.render(&bia(), &contact)[..] else { panic!() };
            if variables.validate().is_ok() {
                prop_assert!(!value.contains('{'), "{mapping:?} became {value:?}");
            } else {
                prop_assert_eq!(value, "");
            }
        }

        /// The check before a run agrees with rendering: a value is empty exactly for contacts that have none of the
        /// required fields.
        #[test]
        fn required_placeholders_agree_with_rendering(mapping in any_mapping(), contact in any_contact()) {
            let variables = variables(&[("1", &mapping)]);
            prop_assume!(variables.validate().is_ok());
            let required_placeholders = variables.required_placeholders(&bia());
            let lacks = |field: &Field| is_blank(&value(field, &contact));
            let expected_empty = required_placeholders.iter().any(|required| required.fields.iter().all(lacks));
            prop_assert_eq!(variables.render(&bia(), &contact)[0].is_empty(), expected_empty);
        }

        /// WhatsApp accepts every rendered value (132018).
        #[test]
        fn rendered_value_has_no_runs_of_white_space(mapping in any_mapping(), contact in any_contact()) {
            let placeholders = Placeholder::numbered(&["Bia\n".into(), "x\t\ty".into()]);
            for value in variables(&[("1", &mapping)]).render(&placeholders, &contact) {
                prop_assert!(!value.contains(char::is_control) && !value.contains("  "), "{:?}", value);
                prop_assert_eq!(value.trim(), &value);
            }
        }
    }
}
