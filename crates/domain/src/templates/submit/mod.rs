//! The submission of a template to WhatsApp.

use schemars::JsonSchema;
use serde::Serialize;

use super::sendable::CARD_HEADERS;
use super::{Finding, Template, TemplateType};
use crate::messaging::{Category, ComponentType, HeaderSubmission, HeaderType, TemplateSubmission};
use crate::shared::text::is_blank;

/// A header file in a submission.
pub(super) struct FileField<'a> {
    /// The input field of the file, for error messages.
    pub(super) field: String,
    /// The header type that the file is used for.
    pub(super) format: HeaderType,
    /// Before the upload the URL, then the handle.
    pub(super) handle: &'a mut String,
}

/// WhatsApp's response to a submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Submission {
    /// WhatsApp's id of the template.
    #[schemars(example = "1795233629837000")]
    pub meta_template_id: String,
    /// WhatsApp's review status, for example `PENDING`, `APPROVED` or `REJECTED`.
    #[schemars(example = &"PENDING")]
    pub status: String,
    /// The category that WhatsApp assigned. It may differ from the requested one.
    #[schemars(example = &"MARKETING")]
    pub category: String,
}

/// What a submission of the template would be refused for, and what WhatsApp often dislikes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TemplateCheck {
    /// Whether there are no errors.
    #[schemars(example = false)]
    pub passes: bool,
    /// The rules that a submission would break. A submission then fails with the same fields.
    pub errors: Vec<Finding>,
    /// What WhatsApp often dislikes. Warnings refuse nothing.
    pub warnings: Vec<Finding>,
}

impl TemplateSubmission {
    /// The submission of a template that passed the rules. It still has URLs instead of file handles.
    pub fn of(template: &Template) -> Self {
        let text = template.header_placeholder_text();
        let text = text.map(|text| HeaderSubmission::Text(text.to_owned(), template.examples_of(text)));
        let file = template.header_file().map(|(format, url)| HeaderSubmission::File {
            format,
            handle: url.to_owned(),
        });
        let location = (template.header_type == HeaderType::Location).then_some(HeaderSubmission::Location);
        let body = template.body_text.as_deref().unwrap_or_default();
        let preset = template.category == Category::Authentication;
        let carousel = template.template_type == TemplateType::Carousel;
        Self {
            name: template.name.clone(),
            language: template.language.clone(),
            category: template.category,
            parameter_format: template.parameter_format,
            header: text.or(file).or(location),
            limited_time_offer: template.limited_time_offer.clone(),
            body: (!preset).then(|| (body.to_owned(), template.examples_of(body))),
            footer: template.footer_text.clone().filter(|text| !is_blank(text)),
            buttons: template.buttons.clone(),
            cards: if carousel {
                template.carousel_cards.clone()
            } else {
                vec![]
            },
            message_send_ttl_seconds: template.message_send_ttl_seconds,
        }
    }

    /// The files of header and cards, always in the same order.
    pub(super) fn files(&mut self) -> Vec<FileField<'_>> {
        let mut files = Vec::new();
        if let Some(HeaderSubmission::File { format, handle }) = &mut self.header {
            files.push(FileField {
                field: "header_media_url".to_owned(),
                format: *format,
                handle,
            });
        }
        for (card, content) in self.cards.iter_mut().enumerate() {
            for (position, component) in content.components.iter_mut().enumerate() {
                let format = component.header_type().filter(|format| CARD_HEADERS.contains(format));
                let is_header = component.kind == ComponentType::Header;
                if let (true, Some(format), Some(handle)) = (is_header, format, &mut component.file) {
                    let field = format!("carousel_cards[{card}].components[{position}].example.header_handle");
                    files.push(FileField { field, format, handle });
                }
            }
        }
        files
    }
}

#[cfg(test)]
mod tests;
