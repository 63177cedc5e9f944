//! WhatsApp's rules for a submission, checked here first so that an error names the field. A draft may violate them.

use super::components::has_card_examples;
use super::findings::{FindingCode, Findings};
use super::placeholders::{
    has_adjacent_placeholders, has_unordered_placeholders, in_braces, invalid_name, invalid_placeholder,
};
use super::sendable::{CARD_COMPONENTS, CARD_HEADERS};
use super::{Template, TemplateType, placeholders, validate};
use crate::messaging::{
    Button, ButtonType, CarouselCard, Category, Component, ComponentType, HeaderType, ParameterFormat,
};

const LABEL_CHARS: usize = 25;
const URL_CHARS: usize = 2000;
const PHONE_CHARS: usize = 20;
const CODE_CHARS: usize = 20;
const CARD_BODY_CHARS: usize = 160;
const CARD_BUTTONS: usize = 2;

const KNOWN_BUTTONS: &str = "must be one of QUICK_REPLY, URL, PHONE_NUMBER, VOICE_CALL, COPY_CODE, OTP";

/// The most buttons of one type.
const MAX_BUTTONS_BY_TYPE: [(ButtonType, usize); 3] = [
    (ButtonType::Url, 2),
    (ButtonType::PhoneNumber, 1),
    (ButtonType::CopyCode, 1),
];

/// Every reason why WhatsApp would reject the template, by field.
pub(super) fn check(template: &Template) -> Findings {
    let mut errors = Findings::default();
    if template.category == Category::Authentication {
        check_authentication(template, &mut errors);
    } else {
        validate::check_all(template, &mut errors);
        check_texts(template, &mut errors);
        if count(&template.buttons, &ButtonType::Otp) > 0 {
            let message = "may have an OTP button only in category AUTHENTICATION";
            errors.add("buttons", FindingCode::NotAllowed, message);
        }
    }
    if template.header_type.is_file() && template.header_media_url.is_none() {
        let message = "is required for a header of this type";
        errors.add("header_media_url", FindingCode::Required, message);
    }
    check_buttons("buttons", &template.buttons, &mut errors);
    if template.template_type == TemplateType::Carousel {
        check_carousel(template, &mut errors);
    }
    errors
}

fn check_authentication(template: &Template, errors: &mut Findings) {
    // WhatsApp writes the text, so its placeholders and examples are not submitted. A header is refused below.
    let submitted = Template {
        header_type: HeaderType::None,
        body_text: None,
        variables: vec![],
        ..template.clone()
    };
    validate::check_all(&submitted, errors);
    if template.header_type != HeaderType::None {
        errors.add(
            "header_type",
            FindingCode::NotAllowed,
            "must be none in category AUTHENTICATION",
        );
    }
    if template.footer_text.is_some() {
        errors.add(
            "footer_text",
            FindingCode::NotAllowed,
            "must be absent in category AUTHENTICATION",
        );
    }
    if template.buttons.len() != 1 || count(&template.buttons, &ButtonType::Otp) != 1 {
        errors.add(
            "buttons",
            FindingCode::Count,
            "must be exactly one OTP button in category AUTHENTICATION",
        );
    }
    if template.template_type == TemplateType::Carousel {
        errors.add(
            "template_type",
            FindingCode::NotAllowed,
            "must be standard in category AUTHENTICATION",
        );
    }
}

fn check_texts(template: &Template, errors: &mut Findings) {
    let body = template.body_text.as_deref().unwrap_or_default().trim();
    if body.is_empty() {
        errors.add("body_text", FindingCode::Required, "is required for a submission");
    }
    if body.starts_with("{{") || body.ends_with("}}") {
        let message = "must neither begin nor end with a placeholder";
        errors.add("body_text", FindingCode::Placeholder, message);
    }
    if has_adjacent_placeholders(body) {
        let message = "must have a word between two placeholders";
        errors.add("body_text", FindingCode::Placeholder, message);
    }
    if has_unordered_placeholders(body) {
        let message = "must have its placeholders in ascending order";
        errors.add("body_text", FindingCode::Placeholder, message);
    }
    let header = template.header_placeholder_text().unwrap_or_default();
    for (field, text) in [("header_text", header), ("body_text", body)] {
        // The names of a named template are checked with its fields.
        let invalid = invalid_placeholder(text).filter(|_| template.parameter_format == ParameterFormat::Positional);
        if let Some(inside) = invalid {
            let message = format!("has {{{{{inside}}}}}, which is not a placeholder");
            errors.add(field, FindingCode::Placeholder, message);
        }
    }
    let footer = template.footer_text.as_deref().unwrap_or_default();
    if in_braces(footer).next().is_some() {
        errors.add("footer_text", FindingCode::Placeholder, "must not have placeholders");
    }
}

fn count(buttons: &[Button], kind: &ButtonType) -> usize {
    buttons.iter().filter(|button| button.kind == *kind).count()
}

fn check_buttons(at: &str, buttons: &[Button], errors: &mut Findings) {
    for (kind, most) in MAX_BUTTONS_BY_TYPE {
        if count(buttons, &kind) > most {
            errors.add(
                at,
                FindingCode::Count,
                format!("may have at most {most} of type {}", kind.as_str()),
            );
        }
    }
    let quick = buttons.iter().map(|button| button.kind == ButtonType::QuickReply);
    let mut groups: Vec<bool> = quick.collect();
    groups.dedup();
    if groups.iter().filter(|quick| **quick).count() > 1 {
        errors.add(
            at,
            FindingCode::Order,
            "must have its QUICK_REPLY buttons next to each other",
        );
    }
    for (position, button) in buttons.iter().enumerate() {
        check_button(&format!("{at}[{position}]"), button, errors);
    }
}

fn check_button(at: &str, button: &Button, errors: &mut Findings) {
    let label = &button.label;
    let labelled = matches!(
        button.kind,
        ButtonType::QuickReply | ButtonType::Url | ButtonType::PhoneNumber
    );
    if (labelled && label.trim().is_empty()) || label.chars().count() > LABEL_CHARS {
        errors.add(
            format!("{at}.text"),
            FindingCode::Length,
            format!("must have 1 to {LABEL_CHARS} characters"),
        );
    }
    match button.kind {
        ButtonType::Url => check_address(at, button, errors),
        ButtonType::PhoneNumber => {
            let phone = &button.phone_number;
            if phone.is_empty() || phone.chars().count() > PHONE_CHARS {
                let message = format!("must have 1 to {PHONE_CHARS} characters");
                errors.add(format!("{at}.phone_number"), FindingCode::Length, message);
            }
        }
        ButtonType::CopyCode => {
            let code = button.example.as_deref().unwrap_or_default();
            if code.is_empty() || code.chars().count() > CODE_CHARS {
                errors.add(
                    format!("{at}.example"),
                    FindingCode::Length,
                    format!("must have 1 to {CODE_CHARS} characters"),
                );
            }
        }
        // No message of such a template could be sent.
        ButtonType::Other(ref name) => {
            let (code, message) = if name.is_empty() {
                (FindingCode::Required, "is required")
            } else {
                (FindingCode::NotAllowed, KNOWN_BUTTONS)
            };
            errors.add(format!("{at}.type"), code, message);
        }
        ButtonType::QuickReply | ButtonType::VoiceCall | ButtonType::Otp => {}
    }
}

fn check_address(at: &str, button: &Button, errors: &mut Findings) {
    let url = &button.url;
    let address = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    if address.is_none_or(str::is_empty) || url.chars().count() > URL_CHARS {
        let message = format!("must be an http or https URL of at most {URL_CHARS} characters");
        errors.add(format!("{at}.url"), FindingCode::Format, message);
    }
    if !button.has_placeholder() {
        return;
    }
    let ends_with_placeholder = url.strip_suffix("{{1}}").is_some_and(|rest| !rest.contains("{{"));
    if !ends_with_placeholder {
        errors.add(
            format!("{at}.url"),
            FindingCode::Placeholder,
            "may have one placeholder: {{1}} at its end",
        );
    }
    if button
        .example
        .as_deref()
        .is_none_or(|example| example.trim().is_empty())
    {
        errors.add(
            format!("{at}.example"),
            FindingCode::Examples,
            "is required for a URL with a placeholder",
        );
    }
}

fn check_carousel(template: &Template, errors: &mut Findings) {
    if template.category != Category::Marketing {
        errors.add("category", FindingCode::NotAllowed, "must be MARKETING for a carousel");
    }
    if template.header_type != HeaderType::None {
        errors.add(
            "header_type",
            FindingCode::NotAllowed,
            "must be none for a carousel: its cards have headers",
        );
    }
    if template.limited_time_offer.is_some() {
        let message = "must be standard for a limited-time offer";
        errors.add("template_type", FindingCode::NotAllowed, message);
    }
    let shape = template.carousel_cards.first().map(shape);
    for (position, card) in template.carousel_cards.iter().enumerate() {
        let at = format!("carousel_cards[{position}].components");
        if Some(self::shape(card)) != shape {
            errors.add(
                &at,
                FindingCode::UnequalCards,
                "must have the same types in the same order as those of the first card",
            );
        }
        check_card(&at, card, template.parameter_format, errors);
    }
}

/// The types of a card's components and buttons, in order.
fn shape(card: &CarouselCard) -> Vec<(&ComponentType, &str, Vec<&ButtonType>)> {
    let components = card.components.iter().map(|component| {
        let buttons = component.buttons.iter().map(|button| &button.kind);
        (&component.kind, component.format.as_str(), buttons.collect())
    });
    components.collect()
}

fn check_card(at: &str, card: &CarouselCard, format: ParameterFormat, errors: &mut Findings) {
    for (position, component) in card.components.iter().enumerate() {
        if !CARD_COMPONENTS.contains(&component.kind) {
            let field = format!("{at}[{position}].type");
            errors.add(field, FindingCode::NotAllowed, "must be one of HEADER, BODY, BUTTONS");
        }
    }
    match card.component(&ComponentType::Header) {
        Some((position, header)) if header.header_type().is_some_and(|kind| CARD_HEADERS.contains(&kind)) => {
            if header.file.as_deref().is_none_or(str::is_empty) {
                let field = format!("{at}[{position}].example.header_handle");
                errors.add(field, FindingCode::Required, "must be the URL of an uploaded file");
            }
        }
        Some((position, _)) => errors.add(
            format!("{at}[{position}].format"),
            FindingCode::NotAllowed,
            "must be IMAGE or VIDEO",
        ),
        None => errors.add(at, FindingCode::Required, "must have a HEADER of format IMAGE or VIDEO"),
    }
    if let Some((position, body)) = card.component(&ComponentType::Body) {
        check_card_body(&format!("{at}[{position}]"), body, format, errors);
    }
    if let Some((position, component)) = card.component(&ComponentType::Buttons) {
        let at = format!("{at}[{position}].buttons");
        let buttons = &component.buttons;
        if buttons.len() > CARD_BUTTONS {
            errors.add(
                &at,
                FindingCode::Count,
                format!("may have at most {CARD_BUTTONS} items"),
            );
        }
        if count(buttons, &ButtonType::Otp) > 0 {
            errors.add(&at, FindingCode::NotAllowed, "must not have an OTP button");
        }
        check_buttons(&at, buttons, errors);
    }
}

fn check_card_body(at: &str, body: &Component, format: ParameterFormat, errors: &mut Findings) {
    let content = &body.text;
    if content.trim().is_empty() || content.chars().count() > CARD_BODY_CHARS {
        errors.add(
            format!("{at}.text"),
            FindingCode::Length,
            format!("must have 1 to {CARD_BODY_CHARS} characters"),
        );
    }
    let used = placeholders(content);
    let (is_invalid, rule, examples) = match format {
        ParameterFormat::Positional => (
            !used.iter().copied().eq(1..=used.len()),
            "must number its placeholders {{1}}, {{2}}, ... without gaps",
            "body_text",
        ),
        ParameterFormat::Named => (
            invalid_name(content).is_some(),
            "must name its placeholders with lowercase letters, digits and underscores",
            "body_text_named_params",
        ),
    };
    if is_invalid {
        errors.add(format!("{at}.text"), FindingCode::Placeholder, rule);
    } else if !has_card_examples(body, format) {
        errors.add(
            format!("{at}.example.{examples}"),
            FindingCode::Examples,
            "must have one example per placeholder",
        );
    }
}
