//! Applies WhatsApp's content to a template that the account already has.
//!
//! Parts that say the same as WhatsApp's keep the account's form: its numbering of placeholders, the keys of its buttons
//! and cards, and the URLs of its own files. Everything else becomes WhatsApp's.

use crate::messaging::{Button, ButtonType, CarouselCard, Component, ParameterFormat, RemoteTemplate};
use crate::shared::text::is_blank;
use crate::templates::remote::with_components;
use crate::templates::{Template, numbered_from_one, placeholders};

/// The keys of a button's JSON that are compared as fields.
const BUTTON_FIELDS: [&str; 5] = ["type", "text", "url", "phone_number", "example"];

/// The template with WhatsApp's content. `is_own_file`: whether a URL is one of a file that was uploaded here.
pub(super) fn refreshed(
    template: Template,
    remote: &RemoteTemplate,
    new_draft: Template,
    is_own_file: &dyn Fn(&str) -> bool,
) -> Template {
    let imported = with_components(remote, new_draft);
    if remote.components.is_empty() {
        // A list without components says nothing about the content.
        return Template {
            unsupported: imported.unsupported,
            ..template
        };
    }
    let has_buttons = same_buttons(&template.buttons, &imported.buttons);
    let has_footer = text_of(template.footer_text.as_ref()) == text_of(imported.footer_text.as_ref());
    let cards = cards(&template.carousel_cards, &imported.carousel_cards, is_own_file);
    let header_media_url = header_file(&template, &imported, is_own_file);
    let template = with_texts(template, &imported);
    Template {
        template_type: imported.template_type,
        header_type: imported.header_type,
        header_media_url,
        footer_text: if has_footer {
            template.footer_text
        } else {
            imported.footer_text
        },
        buttons: if has_buttons {
            template.buttons
        } else {
            imported.buttons
        },
        carousel_cards: cards,
        limited_time_offer: imported.limited_time_offer,
        unsupported: imported.unsupported,
        ..template
    }
}

fn text_of(text: Option<&String>) -> Option<&String> {
    text.filter(|text| !is_blank(text))
}

/// Header, body and their examples. WhatsApp lists an authentication template without the text that it writes itself.
fn with_texts(template: Template, imported: &Template) -> Template {
    let same_format = template.parameter_format == imported.parameter_format;
    let of_header = |template: &Template| template.header_placeholder_text().map(numbered_from_one);
    let same_header = of_header(&template) == of_header(imported);
    let of_body = |template: &Template| template.body_text.as_deref().map(numbered_from_one);
    let same_body = imported.body_text.is_none() || of_body(&template) == of_body(imported);
    if same_format && same_header && same_body {
        let variables = examples(&template, imported);
        return Template { variables, ..template };
    }
    Template {
        parameter_format: imported.parameter_format,
        header_text: imported.header_text.clone(),
        body_text: imported.body_text.clone(),
        variables: imported.variables.clone(),
        ..template
    }
}

/// WhatsApp's examples in the order of the template's placeholders. An example that WhatsApp does not list stays.
fn examples(template: &Template, imported: &Template) -> Vec<String> {
    let mut examples = template.variables.clone();
    let positions = match template.parameter_format {
        ParameterFormat::Named => (0..imported.variables.len()).collect(),
        ParameterFormat::Positional => numbers(template),
    };
    for (position, example) in positions.into_iter().zip(&imported.variables) {
        if let Some(stored) = examples.get_mut(position).filter(|_| !is_blank(example)) {
            stored.clone_from(example);
        }
    }
    examples
}

/// The positions in `variables` of the placeholders of the header and then of the body, as WhatsApp lists them.
fn numbers(template: &Template) -> Vec<usize> {
    let texts = [template.header_placeholder_text(), template.body_text.as_deref()];
    let numbers = texts.into_iter().flatten().flat_map(placeholders);
    numbers.map(|number| number.saturating_sub(1)).collect()
}

/// WhatsApp's URL of a file expires, so it replaces an earlier one, but not that of an upload.
fn header_file(template: &Template, imported: &Template, is_own_file: &dyn Fn(&str) -> bool) -> Option<String> {
    let (stored, listed) = (&template.header_media_url, &imported.header_media_url);
    let same_type = template.header_type == imported.header_type;
    let stays = same_type && (listed.is_none() || stored.as_deref().is_some_and(is_own_file));
    // Without a file header, what is stored is not used.
    if stays || (!template.header_type.is_file() && !imported.header_type.is_file()) {
        stored.clone()
    } else {
        listed.clone()
    }
}

fn same_buttons(stored: &[Button], listed: &[Button]) -> bool {
    stored.len() == listed.len()
        && stored
            .iter()
            .zip(listed)
            .all(|(stored, listed)| same_button(stored, listed))
}

fn same_button(stored: &Button, listed: &Button) -> bool {
    // WhatsApp lists the button of a one-time code as a URL that ends with the code.
    if stored.kind == ButtonType::Otp && listed.kind == ButtonType::Url && listed.has_placeholder() {
        return true;
    }
    let others = listed.json().as_object().into_iter().flatten();
    let mut others = others.filter(|(key, _)| !BUTTON_FIELDS.contains(&key.as_str()));
    stored.kind == listed.kind
        && stored.label == listed.label
        && stored.url == listed.url
        && stored.phone_number == listed.phone_number
        && (listed.example.is_none() || stored.example == listed.example)
        && others.all(|(key, value)| stored.json().get(key) == Some(value))
}

/// The stored cards if they say the same, except for those with an older URL of WhatsApp's file.
fn cards(stored: &[CarouselCard], listed: &[CarouselCard], is_own_file: &dyn Fn(&str) -> bool) -> Vec<CarouselCard> {
    let same = stored.len() == listed.len()
        && stored
            .iter()
            .zip(listed)
            .all(|(stored, listed)| same_card(stored, listed));
    if !same {
        return listed.to_vec();
    }
    let cards = stored.iter().zip(listed).map(|(stored, listed)| {
        let file = |card: &CarouselCard| card.header().and_then(|header| header.file.clone());
        let is_newer = file(listed).is_some_and(|url| url.starts_with("https://"));
        let is_own = file(stored).is_some_and(|url| is_own_file(&url));
        if is_newer && !is_own {
            listed.clone()
        } else {
            stored.clone()
        }
    });
    cards.collect()
}

fn same_card(stored: &CarouselCard, listed: &CarouselCard) -> bool {
    stored.components.len() == listed.components.len()
        && stored
            .components
            .iter()
            .zip(&listed.components)
            .all(|(stored, listed)| same_component(stored, listed))
}

/// Compares everything but the file.
fn same_component(stored: &Component, listed: &Component) -> bool {
    let same_examples = listed.examples.is_empty() || stored.examples == listed.examples;
    let same_named = listed.named_body_examples.is_empty() || stored.named_body_examples == listed.named_body_examples;
    stored.kind == listed.kind
        && stored.format == listed.format
        && stored.text == listed.text
        && same_examples
        && same_named
        && same_buttons(&stored.buttons, &listed.buttons)
}
