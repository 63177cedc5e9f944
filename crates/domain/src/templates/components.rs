//! The components of a template that a message fills: texts with placeholders, files, buttons and cards.

use serde_json::Value;

use super::placeholders::{count, names};
use super::{Template, TemplateType};
use crate::messaging::{ButtonKind, ButtonValue, HeaderType, ParameterFormat, TextParameter};
use crate::shared::text::single_spaced;

/// The values of one carousel card. They are the template's examples, because a campaign maps only the placeholders of
/// header and body.
pub(crate) struct CardComponents {
    pub(crate) header: (HeaderType, String),
    pub(crate) body: Vec<TextParameter>,
    pub(crate) buttons: Vec<ButtonValue>,
}

impl Template {
    /// The type and URL of a file header. The URL is empty if none is set.
    pub(crate) fn header_file(&self) -> Option<(HeaderType, &str)> {
        let url = self.header_media_url.as_deref().unwrap_or_default();
        self.header_type.is_file().then_some((self.header_type, url))
    }

    /// The values of the buttons that need one: their examples. A one-time code is the first of `values`.
    pub(crate) fn button_values(&self, values: &[String]) -> Vec<ButtonValue> {
        let code = values.first().map(String::as_str);
        button_values(&self.buttons, code)
    }

    pub(crate) fn cards(&self) -> Vec<CardComponents> {
        match self.template_type {
            TemplateType::Standard => vec![],
            TemplateType::Carousel => {
                let cards = self.carousel_cards.iter();
                cards.map(|content| card(content, self.parameter_format)).collect()
            }
        }
    }

    pub(super) fn examples_of(&self, text: &str) -> Vec<TextParameter> {
        self.parameters_of(text, &self.variables)
    }
}

fn card(card: &Value, parameters: ParameterFormat) -> CardComponents {
    let header = component(card, "HEADER").map(|(_, header)| header);
    let format = match header.map(|header| uppercase_text(header, "format")).as_deref() {
        Some("VIDEO") => HeaderType::Video,
        _ => HeaderType::Image,
    };
    let url = header.and_then(header_file).unwrap_or_default();
    let body = component(card, "BODY")
        .map(|(_, body)| card_parameters(body, parameters))
        .unwrap_or_default();
    let buttons = component(card, "BUTTONS").map(|(_, buttons)| items(buttons, "buttons"));
    CardComponents {
        header: (format, url.to_owned()),
        body,
        buttons: button_values(buttons.unwrap_or_default(), None),
    }
}

pub(super) fn card_parameters(body: &Value, format: ParameterFormat) -> Vec<TextParameter> {
    let mut parameters = match format {
        ParameterFormat::Positional => {
            let examples = body_examples(body).into_iter();
            examples.map(TextParameter::numbered).collect()
        }
        ParameterFormat::Named => {
            let used = names(text(body, "text"));
            let mut examples = named_examples(body, "body_text_named_params");
            examples.retain(|example| example.name.as_deref().is_some_and(|name| used.contains(&name)));
            examples
        }
    };
    for parameter in &mut parameters {
        parameter.text = single_spaced(&parameter.text);
    }
    parameters
}

/// Whether each placeholder of a card's body has an example.
pub(super) fn has_card_examples(body: &Value, format: ParameterFormat) -> bool {
    card_parameters(body, format).len() == count(text(body, "text"), format)
}

fn button_values(buttons: &[Value], code: Option<&str>) -> Vec<ButtonValue> {
    let buttons = buttons.iter().enumerate();
    let values = buttons.filter_map(|(index, button)| {
        let (kind, value) = button_value(button, code)?;
        let value = single_spaced(value);
        Some(ButtonValue { index, kind, value })
    });
    values.collect()
}

fn button_value<'a>(button: &'a Value, code: Option<&'a str>) -> Option<(ButtonKind, &'a str)> {
    match uppercase_text(button, "type").as_str() {
        "COPY_CODE" => Some((ButtonKind::CopyCode, example(button)?)),
        "OTP" => Some((ButtonKind::Url, code?)),
        _ if text(button, "url").contains("{{") => Some((ButtonKind::Url, example(button)?)),
        _ => None,
    }
}

/// The first component of a type, with its position.
pub(super) fn component<'a>(part: &'a Value, kind: &str) -> Option<(usize, &'a Value)> {
    let mut components = items(part, "components").iter().enumerate();
    components.find(|(_, component)| uppercase_text(component, "type") == kind)
}

/// The example of a button: a string, or an array with one string.
pub(super) fn example(button: &Value) -> Option<&str> {
    let example = button.get("example")?;
    example.get(0).unwrap_or(example).as_str()
}

/// The examples of a body in WhatsApp's format.
pub(super) fn body_examples(body: &Value) -> Vec<String> {
    let examples = body.pointer("/example/body_text/0").and_then(Value::as_array);
    let examples = examples.into_iter().flatten().filter_map(Value::as_str);
    examples.map(str::to_owned).collect()
}

/// The examples of named placeholders in WhatsApp's format.
pub(super) fn named_examples(component: &Value, field: &str) -> Vec<TextParameter> {
    let examples = component
        .get("example")
        .map_or(&[][..], |example| items(example, field));
    let mut named: Vec<TextParameter> = Vec::new();
    for example in examples {
        let name = text(example, "param_name");
        if !named.iter().any(|existing| existing.name.as_deref() == Some(name)) {
            named.push(TextParameter {
                name: Some(name.to_owned()),
                text: text(example, "example").to_owned(),
            });
        }
    }
    named
}

/// The URL of a header's file. It is in the field in which WhatsApp expects a handle.
pub(super) fn header_file(header: &Value) -> Option<&str> {
    header.pointer("/example/header_handle/0")?.as_str()
}

pub(super) fn items<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A text in upper case, because the case of WhatsApp's constants does not matter.
pub(super) fn uppercase_text(object: &Value, field: &str) -> String {
    text(object, field).to_ascii_uppercase()
}
