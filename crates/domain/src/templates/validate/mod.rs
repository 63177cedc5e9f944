//! Validation of a template's content. Every error names its field.

mod checked;
mod offer;

use std::collections::BTreeSet;

use serde::Serialize;

pub(super) use self::checked::Checked;

use super::findings::{FindingCode, Findings};
use super::placeholders::{count, invalid_name, names};
use super::{Template, TemplateInput, TemplateType, placeholders};
use crate::messaging::{Button, CarouselCard, HeaderType, ParameterFormat};
use crate::shared::{FieldErrors, text};

const NAME_CHARS: usize = 512;
const BODY_CHARS: usize = 1024;
const FOOTER_CHARS: usize = 60;
const HEADER_CHARS: usize = 60;
const URL_CHARS: usize = 2000;
const EXAMPLE_CHARS: usize = 1024;
const BUTTONS: usize = 10;
/// The most bytes of all buttons, and of all cards: a list holds up to a hundred templates.
const MAX_JSON_BYTES: usize = 64 * 1024;
const CARDS: std::ops::RangeInclusive<usize> = 2..=10;

/// The template with the caller's fields, after validation.
pub(super) fn merge(template: Template, input: TemplateInput, checked: &Checked) -> Result<Template, FieldErrors> {
    let mut errors = Findings::default();
    let merged = apply(template, input, &mut errors);
    check_each(&merged, checked, &mut errors);
    check_together(&merged, checked, &mut errors);
    errors.into_result()?;
    Ok(merged)
}

/// Validates the caller's fields independently of the stored template. `placeholder` is a valid template.
pub(super) fn check_alone(placeholder: Template, input: TemplateInput) -> Result<(), FieldErrors> {
    let (mut errors, checked) = (Findings::default(), Checked::from_input(&input));
    let merged = apply(placeholder, input, &mut errors);
    check_each(&merged, &checked, &mut errors);
    errors.into_result()
}

/// Adds every error of the stored fields, whoever wrote them.
pub(super) fn check_all(template: &Template, errors: &mut Findings) {
    check_each(template, &Checked::All, errors);
    check_together(template, &Checked::All, errors);
}

fn apply(template: Template, input: TemplateInput, errors: &mut Findings) -> Template {
    let header_type = input
        .header_type
        .map(|value| value.unwrap_or_else(|| HeaderType::None.as_str().to_owned()));
    Template {
        name: input.name.unwrap_or(template.name),
        category: parse_enum("category", input.category, template.category, errors),
        language: input.language.unwrap_or(template.language),
        template_type: parse_enum("template_type", input.template_type, template.template_type, errors),
        parameter_format: parse_enum(
            "parameter_format",
            input.parameter_format,
            template.parameter_format,
            errors,
        ),
        header_type: parse_enum("header_type", header_type, template.header_type, errors),
        header_text: input.header_text.unwrap_or(template.header_text),
        header_media_url: input.header_media_url.unwrap_or(template.header_media_url),
        body_text: input.body_text.unwrap_or(template.body_text),
        footer_text: input.footer_text.unwrap_or(template.footer_text),
        buttons: input.buttons.map_or(template.buttons, Option::unwrap_or_default),
        limited_time_offer: input.limited_time_offer.unwrap_or(template.limited_time_offer),
        message_send_ttl_seconds: input
            .message_send_ttl_seconds
            .unwrap_or(template.message_send_ttl_seconds),
        variables: input
            .example_values
            .map_or(template.variables, Option::unwrap_or_default),
        carousel_cards: input
            .carousel_cards
            .map_or(template.carousel_cards, Option::unwrap_or_default),
        folder_id: input.folder_id.unwrap_or(template.folder_id),
        ..template
    }
}

fn parse_enum<T: std::str::FromStr<Err = String>>(
    field: &str,
    value: Option<String>,
    current: T,
    errors: &mut Findings,
) -> T {
    match value.map(|value| value.parse()) {
        None => current,
        Some(Ok(value)) => value,
        Some(Err(message)) => {
            errors.add(field, FindingCode::Format, message);
            current
        }
    }
}

/// The rules of single fields.
fn check_each(template: &Template, checked: &Checked, errors: &mut Findings) {
    let name_fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let name = &template.name;
    if checked.any(&["name"]) && (name.is_empty() || name.len() > NAME_CHARS || !name.bytes().all(name_fits)) {
        errors.add(
            "name",
            FindingCode::Format,
            "must be 1 to 512 lowercase letters, digits and underscores",
        );
    }
    if checked.any(&["language"]) && !is_language(&template.language) {
        errors.add("language", FindingCode::Format, "must have the form pt_BR, pt or fil");
    }
    for (field, text, chars) in [
        ("header_text", &template.header_text, HEADER_CHARS),
        ("body_text", &template.body_text, BODY_CHARS),
        ("footer_text", &template.footer_text, FOOTER_CHARS),
    ] {
        if checked.any(&[field]) {
            at_most(field, text.as_deref(), chars, errors);
        }
    }
    let url = template.header_media_url.as_deref();
    if checked.any(&["header_media_url"]) && url.is_some_and(|url| !is_web_url(url)) {
        errors.add("header_media_url", FindingCode::Format, "must be an http or https URL");
    }
    let footer = template.footer_text.as_deref().unwrap_or_default();
    if checked.any(&["footer_text"]) && count(footer, template.parameter_format) > 0 {
        errors.add("footer_text", FindingCode::Placeholder, "must not have placeholders");
    }
    if checked.any(&["example_values"]) {
        check_examples(&template.variables, errors);
    }
    if checked.any(&["buttons"]) {
        check_buttons(&template.buttons, errors);
    }
    if checked.any(&["carousel_cards"]) {
        check_each_card(&template.carousel_cards, errors);
    }
    offer::check_alone(template, checked, errors);
}

fn check_examples(examples: &[String], errors: &mut Findings) {
    for (position, example) in examples.iter().enumerate() {
        if example.trim().is_empty() || example.chars().count() > EXAMPLE_CHARS {
            errors.add(
                format!("example_values[{position}]"),
                FindingCode::Examples,
                "must have 1 to 1024 characters",
            );
        }
    }
}

fn check_each_card(cards: &[CarouselCard], errors: &mut Findings) {
    for (position, card) in cards.iter().enumerate() {
        if !card.json().is_object() {
            errors.add(
                format!("carousel_cards[{position}]"),
                FindingCode::Format,
                "must be an object",
            );
        }
    }
    check_size("carousel_cards", &cards, errors);
}

fn check_size(field: &str, items: &impl Serialize, errors: &mut Findings) {
    if text::json_bytes(items) > MAX_JSON_BYTES {
        errors.add(
            field,
            FindingCode::Length,
            format!("must be at most {MAX_JSON_BYTES} bytes"),
        );
    }
}

/// The rules between fields.
fn check_together(template: &Template, checked: &Checked, errors: &mut Findings) {
    let header = template.header_text.as_deref().unwrap_or_default();
    let of_header = checked.any(&["header_type", "header_text"]);
    if of_header && template.header_type == HeaderType::Text && header.trim().is_empty() {
        errors.add(
            "header_text",
            FindingCode::Required,
            "is required when header_type is text",
        );
    }
    if of_header || checked.any(&["parameter_format", "body_text", "example_values"]) {
        check_placeholders(template, errors);
    }
    if checked.any(&["template_type", "carousel_cards"]) {
        check_cards(template, errors);
    }
    offer::check_together(template, checked, errors);
}

fn at_most(field: &str, text: Option<&str>, chars: usize, errors: &mut Findings) {
    if text.is_some_and(|text| text.chars().count() > chars) {
        errors.add(
            field,
            FindingCode::Length,
            format!("must have at most {chars} characters"),
        );
    }
}

/// Header and body share their placeholders, so that one value can be used in both.
fn check_placeholders(template: &Template, errors: &mut Findings) {
    let header = template.header_placeholder_text().unwrap_or_default();
    let body = template.body_text.as_deref().unwrap_or_default();
    if count(header, template.parameter_format) > 1 {
        errors.add(
            "header_text",
            FindingCode::Placeholder,
            "must have at most one placeholder",
        );
    }
    let texts = [("header_text", header), ("body_text", body)];
    let placeholders = match template.parameter_format {
        ParameterFormat::Positional => numbered(texts, errors),
        ParameterFormat::Named => named(template, texts, errors),
    };
    if let Some(placeholders) = placeholders
        && template.variables.len() != placeholders
    {
        let message = format!(
            "must have one example per placeholder: {placeholders}, not {}",
            template.variables.len()
        );
        errors.add("example_values", FindingCode::Examples, message);
    }
}

/// The number of numbered placeholders, or none after an error.
fn numbered(texts: [(&str, &str); 2], errors: &mut Findings) -> Option<usize> {
    for (field, text) in texts {
        if let Some(name) = names(text).first() {
            let message = format!("has the named placeholder {{{{{name}}}}}, which needs parameter_format named");
            errors.add(field, FindingCode::Placeholder, message);
            return None;
        }
    }
    let all: BTreeSet<usize> = texts.into_iter().flat_map(|(_, text)| placeholders(text)).collect();
    if !all.iter().copied().eq(1..=all.len()) {
        errors.add(
            "body_text",
            FindingCode::Placeholder,
            "must number its placeholders {{1}}, {{2}}, ... without gaps",
        );
        return None;
    }
    Some(all.len())
}

/// The number of named placeholders, or none after an error.
fn named(template: &Template, texts: [(&str, &str); 2], errors: &mut Findings) -> Option<usize> {
    for (field, text) in texts {
        if let Some(name) = invalid_name(text) {
            let message = format!(
                "has {{{{{name}}}}}, which is not a name: use lowercase letters, digits and underscores, at most 64, \
                 and no digit first"
            );
            errors.add(field, FindingCode::Placeholder, message);
            return None;
        }
    }
    Some(template.names().len())
}

fn check_buttons(buttons: &[Button], errors: &mut Findings) {
    if buttons.len() > BUTTONS {
        errors.add(
            "buttons",
            FindingCode::Count,
            format!("must have at most {BUTTONS} items"),
        );
    }
    for (position, button) in buttons.iter().enumerate() {
        if button.kind.as_str().is_empty() {
            errors.add(
                format!("buttons[{position}].type"),
                FindingCode::Required,
                "is required",
            );
        }
    }
    check_size("buttons", &buttons, errors);
}

fn check_cards(template: &Template, errors: &mut Findings) {
    let cards = &template.carousel_cards;
    match template.template_type {
        TemplateType::Carousel if !CARDS.contains(&cards.len()) => {
            errors.add("carousel_cards", FindingCode::Count, "must have 2 to 10 items");
        }
        TemplateType::Standard if !cards.is_empty() => {
            errors.add(
                "carousel_cards",
                FindingCode::NotAllowed,
                "needs template_type carousel",
            );
        }
        TemplateType::Carousel | TemplateType::Standard => {}
    }
}

/// Two or three letters and an optional region, for example `pt_BR`, `pt` and `fil`.
fn is_language(language: &str) -> bool {
    let (code, region) = match language.split_once('_') {
        Some((code, region)) => (code, Some(region)),
        None => (language, None),
    };
    let is_region = |region: &str| region.len() == 2 && region.bytes().all(|b| b.is_ascii_uppercase());
    matches!(code.len(), 2 | 3) && code.bytes().all(|b| b.is_ascii_lowercase()) && region.is_none_or(is_region)
}

fn is_web_url(url: &str) -> bool {
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let plain = !url.chars().any(|c| c.is_whitespace() || c.is_control());
    host.is_some_and(|host| !host.is_empty() && !host.starts_with('/')) && plain && url.len() <= URL_CHARS
}

#[cfg(test)]
mod tests;
