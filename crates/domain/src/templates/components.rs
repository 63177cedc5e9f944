//! The components of a template that a message fills: texts with placeholders, files, buttons and cards.

use super::placeholders::{count, names};
use super::{Template, TemplateType};
use crate::messaging::{
    Button, ButtonKind, ButtonType, ButtonValue, CarouselCard, Component, HeaderType, ParameterFormat, TextParameter,
};
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
                cards.map(|card| card_components(card, self.parameter_format)).collect()
            }
        }
    }

    pub(super) fn examples_of(&self, text: &str) -> Vec<TextParameter> {
        self.parameters_of(text, &self.variables)
    }
}

fn card_components(card: &CarouselCard, format: ParameterFormat) -> CardComponents {
    let header = card.header();
    let header_type = match header.and_then(Component::header_type) {
        Some(HeaderType::Video) => HeaderType::Video,
        _ => HeaderType::Image,
    };
    let url = header.and_then(|header| header.file.clone()).unwrap_or_default();
    CardComponents {
        header: (header_type, url),
        body: card.body().map_or_else(Vec::new, |body| card_parameters(body, format)),
        buttons: button_values(card.buttons(), None),
    }
}

fn card_parameters(body: &Component, format: ParameterFormat) -> Vec<TextParameter> {
    let mut parameters: Vec<TextParameter> = match format {
        ParameterFormat::Positional => body.examples.iter().map(TextParameter::numbered).collect(),
        ParameterFormat::Named => {
            let used = names(&body.text);
            let is_used = |name: &Option<String>| name.as_deref().is_some_and(|name| used.contains(&name));
            let examples = body.named_body_examples.iter();
            examples.filter(|example| is_used(&example.name)).cloned().collect()
        }
    };
    for parameter in &mut parameters {
        parameter.text = single_spaced(&parameter.text);
    }
    parameters
}

/// Whether each placeholder of a card's body has an example.
pub(super) fn has_card_examples(body: &Component, format: ParameterFormat) -> bool {
    card_parameters(body, format).len() == count(&body.text, format)
}

fn button_values(buttons: &[Button], code: Option<&str>) -> Vec<ButtonValue> {
    let buttons = buttons.iter().enumerate();
    let values = buttons.filter_map(|(index, button)| {
        let (kind, value) = button_value(button, code)?;
        let value = single_spaced(value);
        Some(ButtonValue { index, kind, value })
    });
    values.collect()
}

fn button_value<'a>(button: &'a Button, code: Option<&'a str>) -> Option<(ButtonKind, &'a str)> {
    match button.kind {
        ButtonType::CopyCode => Some((ButtonKind::CopyCode, button.example.as_deref()?)),
        ButtonType::Otp => Some((ButtonKind::Url, code?)),
        _ if button.has_placeholder() => Some((ButtonKind::Url, button.example.as_deref()?)),
        _ => None,
    }
}
