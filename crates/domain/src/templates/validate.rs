//! The rules of a template's content. Every fault names its field.

use serde_json::Value;

use super::{HeaderType, Template, TemplateInput, TemplateType, placeholders};
use crate::shared::{FieldErrors, text};

const NAME_CHARS: usize = 512;
const BODY_CHARS: usize = 1024;
const FOOTER_CHARS: usize = 60;
const HEADER_CHARS: usize = 60;
const URL_CHARS: usize = 2000;
const EXAMPLE_CHARS: usize = 1024;
const BUTTONS: usize = 10;
/// How large all buttons may be, and all cards, in bytes: lists hold a hundred templates.
const SHAPES_BYTES: usize = 64 * 1024;
const CARDS: std::ops::RangeInclusive<usize> = 2..=10;

/// The template with the caller's wishes, checked as a whole.
pub(super) fn merge(template: Template, input: TemplateInput) -> Result<Template, FieldErrors> {
    let mut errors = FieldErrors::default();
    let merged = apply(template, input, &mut errors);
    check_each(&merged, &mut errors);
    check_together(&merged, &mut errors);
    errors.into_result()?;
    Ok(merged)
}

/// What is wrong with the caller's wishes whatever template they are for. `any` has nothing wrong in it.
pub(super) fn check_alone(any: Template, input: TemplateInput) -> Result<(), FieldErrors> {
    let mut errors = FieldErrors::default();
    let merged = apply(any, input, &mut errors);
    check_each(&merged, &mut errors);
    errors.into_result()
}

fn apply(template: Template, input: TemplateInput, errors: &mut FieldErrors) -> Template {
    let header_type = input
        .header_type
        .map(|word| word.unwrap_or_else(|| HeaderType::None.as_str().to_owned()));
    Template {
        name: input.name.unwrap_or(template.name),
        category: word("category", input.category, template.category, errors),
        language: input.language.unwrap_or(template.language),
        template_type: word("template_type", input.template_type, template.template_type, errors),
        header_type: word("header_type", header_type, template.header_type, errors),
        header_text: input.header_text.unwrap_or(template.header_text),
        header_media_url: input.header_media_url.unwrap_or(template.header_media_url),
        body_text: input.body_text.unwrap_or(template.body_text),
        footer_text: input.footer_text.unwrap_or(template.footer_text),
        buttons: input.buttons.map_or(template.buttons, Option::unwrap_or_default),
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

fn word<T: std::str::FromStr<Err = String>>(
    field: &str,
    given: Option<String>,
    kept: T,
    errors: &mut FieldErrors,
) -> T {
    match given.map(|given| given.parse()) {
        None => kept,
        Some(Ok(value)) => value,
        Some(Err(message)) => {
            errors.add(field, message);
            kept
        }
    }
}

/// The rules that look at one field at a time.
fn check_each(template: &Template, errors: &mut FieldErrors) {
    let name_fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if template.name.is_empty() || template.name.len() > NAME_CHARS || !template.name.bytes().all(name_fits) {
        errors.add("name", "must be 1 to 512 lowercase letters, digits and underscores");
    }
    if !is_language(&template.language) {
        errors.add("language", "must have the form pt_BR or pt");
    }
    at_most("header_text", template.header_text.as_deref(), HEADER_CHARS, errors);
    at_most("body_text", template.body_text.as_deref(), BODY_CHARS, errors);
    at_most("footer_text", template.footer_text.as_deref(), FOOTER_CHARS, errors);
    if template.header_media_url.as_deref().is_some_and(|url| !is_web_url(url)) {
        errors.add("header_media_url", "must be an http or https URL");
    }
    if !placeholders(template.footer_text.as_deref().unwrap_or_default()).is_empty() {
        errors.add("footer_text", "must not have placeholders");
    }
    for (position, example) in template.variables.iter().enumerate() {
        if example.trim().is_empty() || example.chars().count() > EXAMPLE_CHARS {
            errors.add(format!("example_values[{position}]"), "must have 1 to 1024 characters");
        }
    }
    check_buttons(&template.buttons, errors);
    for (position, card) in template.carousel_cards.iter().enumerate() {
        if !card.is_object() {
            errors.add(format!("carousel_cards[{position}]"), "must be an object");
        }
    }
    for (field, shapes) in [
        ("buttons", &template.buttons),
        ("carousel_cards", &template.carousel_cards),
    ] {
        if text::json_bytes(shapes) > SHAPES_BYTES {
            errors.add(field, format!("must be at most {SHAPES_BYTES} bytes"));
        }
    }
}

/// The rules that hold fields against each other.
fn check_together(template: &Template, errors: &mut FieldErrors) {
    if template.header_type == HeaderType::Text && template.header_text.as_deref().is_none_or(|t| t.trim().is_empty()) {
        errors.add("header_text", "is required when header_type is text");
    }
    check_placeholders(template, errors);
    check_cards(template, errors);
}

fn at_most(field: &str, text: Option<&str>, chars: usize, errors: &mut FieldErrors) {
    if text.is_some_and(|text| text.chars().count() > chars) {
        errors.add(field, format!("must have at most {chars} characters"));
    }
}

/// Header and body share one numbering, so that one value can stand in both.
fn check_placeholders(template: &Template, errors: &mut FieldErrors) {
    let header = template
        .header_text
        .as_deref()
        .filter(|_| template.header_type == HeaderType::Text);
    let in_header = placeholders(header.unwrap_or_default());
    let in_body = placeholders(template.body_text.as_deref().unwrap_or_default());
    if in_header.len() > 1 {
        errors.add("header_text", "must have at most one placeholder");
    }
    let all: Vec<usize> = in_header.union(&in_body).copied().collect();
    if !all.iter().copied().eq(1..=all.len()) {
        errors.add(
            "body_text",
            "must number its placeholders {{1}}, {{2}}, ... without gaps",
        );
    } else if template.variables.len() != all.len() {
        let message = format!(
            "must have one example a placeholder: {}, not {}",
            all.len(),
            template.variables.len()
        );
        errors.add("example_values", message);
    }
}

fn check_buttons(buttons: &[Value], errors: &mut FieldErrors) {
    if buttons.len() > BUTTONS {
        errors.add("buttons", format!("must have at most {BUTTONS} items"));
    }
    for (position, button) in buttons.iter().enumerate() {
        if button.get("type").and_then(Value::as_str).is_none_or(str::is_empty) {
            errors.add(format!("buttons[{position}].type"), "is required");
        }
    }
}

fn check_cards(template: &Template, errors: &mut FieldErrors) {
    let cards = &template.carousel_cards;
    match template.template_type {
        TemplateType::Carousel if !CARDS.contains(&cards.len()) => {
            errors.add("carousel_cards", "must have 2 to 10 items");
        }
        TemplateType::Standard if !cards.is_empty() => {
            errors.add("carousel_cards", "needs template_type carousel");
        }
        TemplateType::Carousel | TemplateType::Standard => {}
    }
}

fn is_language(language: &str) -> bool {
    match language.as_bytes() {
        [a, b] => a.is_ascii_lowercase() && b.is_ascii_lowercase(),
        [a, b, b'_', c, d] => {
            [a, b].iter().all(|x| x.is_ascii_lowercase()) && [c, d].iter().all(|x| x.is_ascii_uppercase())
        }
        _ => false,
    }
}

fn is_web_url(url: &str) -> bool {
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let plain = !url.chars().any(|c| c.is_whitespace() || c.is_control());
    host.is_some_and(|host| !host.is_empty() && !host.starts_with('/')) && plain && url.len() <= URL_CHARS
}
