//! Converts a template of WhatsApp's list to the fields of this server.

use std::collections::HashMap;

use serde_json::Value;

use super::components::{body_examples, header_file, items, named_examples, text, uppercase_text};
use super::sendable::{header_type, unsupported_parts};
use super::{Template, TemplateType, placeholders};
use crate::messaging::{HeaderType, ParameterFormat, RemoteTemplate, TextParameter};

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
        let examples = remote.components.iter().flat_map(all_named_examples);
        let examples: HashMap<Option<String>, String> = examples.map(|example| (example.name, example.text)).collect();
        let example_of = |name: &str| examples.get(&Some(name.to_owned())).cloned().unwrap_or_default();
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
            .any(|part| !all_named_examples(part).is_empty()) =>
        {
            Some(ParameterFormat::Named)
        }
        None => Some(ParameterFormat::Positional),
    }
}

fn all_named_examples(component: &Value) -> Vec<TextParameter> {
    let mut examples = named_examples(component, "header_text_named_params");
    examples.extend(named_examples(component, "body_text_named_params"));
    examples
}

fn read_component(template: &mut Template, component: &Value) {
    let content = || Some(text(component, "text").to_owned()).filter(|text| !text.is_empty());
    match uppercase_text(component, "type").as_str() {
        "HEADER" => read_header(template, component),
        "BODY" => {
            // WhatsApp numbers the placeholders of each component from 1; here header and body share one numbering.
            let header_placeholders = template.variables.len();
            let body = text(component, "text");
            let placeholder_count = placeholders(body).len();
            template
                .variables
                .extend(resize_examples(body_examples(component), placeholder_count));
            template.body_text = content().map(|body| renumbered(&body, header_placeholders));
        }
        "FOOTER" => template.footer_text = content(),
        "BUTTONS" => template.buttons = items(component, "buttons").to_vec(),
        "CAROUSEL" => {
            template.template_type = TemplateType::Carousel;
            template.carousel_cards = items(component, "cards").to_vec();
        }
        _ => {}
    }
}

/// WhatsApp lists the header first.
fn read_header(template: &mut Template, component: &Value) {
    template.header_type = header_type(&uppercase_text(component, "format")).unwrap_or(HeaderType::None);
    if template.header_type == HeaderType::Text {
        let header = text(component, "text");
        let examples = component.pointer("/example/header_text").and_then(Value::as_array);
        let examples = examples
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned);
        template.variables = resize_examples(examples.collect(), placeholders(header).len());
        template.header_text = Some(header.to_owned());
    }
    template.header_media_url = header_file(component)
        .filter(|url| template.header_type.is_file() && url.starts_with("https://"))
        .map(str::to_owned);
}

/// Returns exactly one example per placeholder: drops surplus examples and adds empty ones for missing examples. A
/// campaign sends the example of a placeholder that it does not map, so it must map one without an example.
fn resize_examples(mut examples: Vec<String>, placeholder_count: usize) -> Vec<String> {
    examples.resize(placeholder_count, String::new());
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
