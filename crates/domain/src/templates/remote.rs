//! Converts a template of WhatsApp's list to the fields of this server.

use std::collections::HashMap;

use super::sendable::unsupported_parts;
use super::{Template, TemplateType, placeholders};
use crate::messaging::{Component, ComponentType, HeaderType, ParameterFormat, RemoteTemplate, TextParameter};

/// The draft with the content of WhatsApp's template.
pub(super) fn with_components(remote: &RemoteTemplate, new_draft: Template) -> Template {
    let format = parameter_format(remote);
    let mut template = Template {
        parameter_format: format.unwrap_or(ParameterFormat::Positional),
        unsupported: unsupported_parts(&remote.components, format),
        ..new_draft
    };
    for component in &remote.components {
        read_component(&mut template, component);
    }
    if template.parameter_format == ParameterFormat::Named {
        let examples = remote.components.iter().flat_map(named_examples);
        let examples: HashMap<_, _> = examples
            .map(|example| (example.name.as_deref(), &example.text))
            .collect();
        let example_of = |name: &str| examples.get(&Some(name)).copied().cloned().unwrap_or_default();
        template.variables = template.names().into_iter().map(example_of).collect();
    }
    template
}

/// None for an unknown format. If WhatsApp omits it, the form of the examples decides.
fn parameter_format(remote: &RemoteTemplate) -> Option<ParameterFormat> {
    match remote.parameter_format.as_deref() {
        Some(format) if format.eq_ignore_ascii_case("NAMED") => Some(ParameterFormat::Named),
        Some(format) if format.eq_ignore_ascii_case("POSITIONAL") => Some(ParameterFormat::Positional),
        Some(_) => None,
        None if remote
            .components
            .iter()
            .any(|part| named_examples(part).next().is_some()) =>
        {
            Some(ParameterFormat::Named)
        }
        None => Some(ParameterFormat::Positional),
    }
}

/// The examples of the body's field win: they come last. WhatsApp may list them in a component of any type.
fn named_examples(component: &Component) -> impl Iterator<Item = &TextParameter> {
    component
        .named_header_examples
        .iter()
        .chain(&component.named_body_examples)
}

fn read_component(template: &mut Template, component: &Component) {
    let content = || Some(component.text.clone()).filter(|text| !text.is_empty());
    match component.kind {
        ComponentType::Header => read_header(template, component),
        ComponentType::Body => {
            // WhatsApp numbers the placeholders of each component from 1; here header and body share one numbering.
            let header_placeholders = template.variables.len();
            template.variables.extend(resized_examples(component));
            template.body_text = content().map(|body| renumbered(&body, header_placeholders));
        }
        ComponentType::Footer => template.footer_text = content(),
        ComponentType::Buttons => template.buttons.clone_from(&component.buttons),
        ComponentType::Carousel => {
            template.template_type = TemplateType::Carousel;
            template.carousel_cards.clone_from(&component.cards);
        }
        ComponentType::LimitedTimeOffer => template.limited_time_offer.clone_from(&component.limited_time_offer),
        ComponentType::Other(_) => {}
    }
}

/// WhatsApp lists the header first.
fn read_header(template: &mut Template, component: &Component) {
    template.header_type = component.header_type().unwrap_or(HeaderType::None);
    if template.header_type == HeaderType::Text {
        template.variables = resized_examples(component);
        template.header_text = Some(component.text.clone());
    }
    let file = component.file.clone();
    template.header_media_url = file.filter(|url| template.header_type.is_file() && url.starts_with("https://"));
}

/// Returns exactly one example per placeholder: drops surplus examples and adds empty ones for missing examples. A
/// campaign sends the example of a placeholder that it does not map, so it must map one without an example.
fn resized_examples(component: &Component) -> Vec<String> {
    let mut examples = component.examples.clone();
    examples.resize(placeholders(&component.text).len(), String::new());
    examples
}

/// The text with `before` added to every placeholder number. It proceeds from the largest number, so that no new
/// number equals one that is still to be replaced.
fn renumbered(text: &str, before: usize) -> String {
    let mut renumbered = text.to_owned();
    for number in placeholders(text).into_iter().rev() {
        let new = number.saturating_add(before);
        renumbered = renumbered.replace(&format!("{{{{{number}}}}}"), &format!("{{{{{new}}}}}"));
    }
    renumbered
}
