//! What of a template goes to the platform.

use serde::Serialize;
use serde_json::Value;

use super::{Category, HeaderType, Template, TemplateType, placeholders};
use crate::shared::FieldErrors;

/// A template ready for the platform: every rule that the platform would refuse it for has been checked.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateSubmission {
    /// Its name.
    pub name: String,
    /// `pt_BR` or `pt`.
    pub language: String,
    /// What it is for.
    pub category: Category,
    /// The header's text and its examples, in order.
    pub header: Option<(String, Vec<String>)>,
    /// The body and its examples, in order.
    pub body: (String, Vec<String>),
    /// The footer.
    pub footer: Option<String>,
    /// The buttons, in the platform's shape.
    pub buttons: Vec<Value>,
}

/// The answer to a submission, as published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Submission {
    /// The platform's id of the template.
    pub meta_template_id: String,
    /// The platform's word for its state.
    pub status: String,
    /// The category the platform put it into.
    pub category: String,
}

impl TemplateSubmission {
    /// Checks what only matters to the platform, naming the field.
    pub fn of(template: &Template) -> Result<Self, FieldErrors> {
        let mut errors = FieldErrors::default();
        if template.template_type == TemplateType::Carousel {
            errors.add("template_type", "carousels cannot be submitted yet");
        }
        if !matches!(template.header_type, HeaderType::None | HeaderType::Text) {
            errors.add("header_type", "media headers cannot be submitted yet");
        }
        let body = template.body_text.clone().unwrap_or_default();
        if body.trim().is_empty() {
            errors.add("body_text", "is required for a submission");
        }
        errors.into_result()?;
        Ok(Self {
            name: template.name.clone(),
            language: template.language.clone(),
            category: template.category,
            header: template
                .header_placeholder_text()
                .map(|text| (text.to_owned(), template.examples_of(text))),
            body: (body.clone(), template.examples_of(&body)),
            footer: template.footer_text.clone(),
            buttons: template.buttons.clone(),
        })
    }
}

impl Template {
    /// The header, where it is text.
    pub(crate) fn header_placeholder_text(&self) -> Option<&str> {
        self.header_text
            .as_deref()
            .filter(|_| self.header_type == HeaderType::Text)
    }

    /// Position and value of each button whose URL ends in a placeholder: its own example, since a campaign maps the
    /// placeholders of the texts alone.
    pub(crate) fn button_values(&self) -> Vec<(usize, String)> {
        let value = |button: &Value| {
            let url = button.get("url").and_then(Value::as_str)?;
            let example = button.get("example")?;
            let example = example.get(0).unwrap_or(example).as_str()?;
            url.contains("{{").then(|| example.to_owned())
        };
        self.buttons
            .iter()
            .enumerate()
            .filter_map(|(position, button)| Some((position, value(button)?)))
            .collect()
    }

    /// The examples of a text's placeholders, in the order of their numbers.
    fn examples_of(&self, text: &str) -> Vec<String> {
        values_of(text, &self.variables)
    }
}

/// Of `values` (of placeholders 1, 2, ...) those that a text uses, in the order of their numbers.
pub(crate) fn values_of(text: &str, values: &[String]) -> Vec<String> {
    let used = placeholders(text);
    used.iter()
        .filter_map(|number| values.get(number.checked_sub(1)?).cloned())
        .collect()
}
