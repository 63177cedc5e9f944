//! The part of a template that its messages depend on.

use serde::{Deserialize, Serialize};

use super::{Template, TemplateType};
use crate::messaging::{Button, CarouselCard, Category, HeaderType, LimitedTimeOffer, ParameterFormat};

/// The content of a template's messages, without the template's identity, review and unsupported parts. Stored as
/// JSON, so a field that is added later needs `#[serde(default)]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TemplateContent {
    pub name: String,
    pub language: String,
    pub category: Category,
    pub template_type: TemplateType,
    pub parameter_format: ParameterFormat,
    pub header_type: HeaderType,
    pub header_text: Option<String>,
    /// The URL of the file, not WhatsApp's media id: the id expires after 30 days, and an uploaded file never changes.
    pub header_media_url: Option<String>,
    pub body_text: Option<String>,
    pub footer_text: Option<String>,
    pub buttons: Vec<Button>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_time_offer: Option<LimitedTimeOffer>,
    pub variables: Vec<String>,
    pub carousel_cards: Vec<CarouselCard>,
}

impl Template {
    pub fn content(&self) -> TemplateContent {
        TemplateContent {
            name: self.name.clone(),
            language: self.language.clone(),
            category: self.category,
            template_type: self.template_type,
            parameter_format: self.parameter_format,
            header_type: self.header_type,
            header_text: self.header_text.clone(),
            header_media_url: self.header_media_url.clone(),
            body_text: self.body_text.clone(),
            footer_text: self.footer_text.clone(),
            buttons: self.buttons.clone(),
            limited_time_offer: self.limited_time_offer.clone(),
            variables: self.variables.clone(),
            carousel_cards: self.carousel_cards.clone(),
        }
    }

    /// The template with this content.
    #[must_use]
    pub fn with_content(self, content: TemplateContent) -> Self {
        Self {
            name: content.name,
            language: content.language,
            category: content.category,
            template_type: content.template_type,
            parameter_format: content.parameter_format,
            header_type: content.header_type,
            header_text: content.header_text,
            header_media_url: content.header_media_url,
            body_text: content.body_text,
            footer_text: content.footer_text,
            buttons: content.buttons,
            limited_time_offer: content.limited_time_offer,
            variables: content.variables,
            carousel_cards: content.carousel_cards,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::approved_template;
    use super::*;
    use crate::messaging::MetaStatus;

    #[test]
    fn stored_content_is_independent_of_later_changes() {
        let template = Template {
            header_type: HeaderType::Image,
            header_media_url: Some("https://cdn.example/a.png".into()),
            footer_text: Some("Loja".into()),
            limited_time_offer: Some(LimitedTimeOffer {
                text: "Só hoje".into(),
                has_expiration: true,
            }),
            buttons: vec![json!({ "type": "QUICK_REPLY", "text": "Sim" }).into()],
            ..approved_template("Oi {{1}}", &["Ana"])
        };
        let stored = serde_json::to_value(template.content()).unwrap();
        let changed = Template {
            name: "outro".into(),
            category: Category::Utility,
            header_type: HeaderType::None,
            header_media_url: None,
            parameter_format: ParameterFormat::Named,
            meta_status: MetaStatus::Draft,
            unsupported: vec!["unsupported_button:flow".into()],
            ..approved_template("Tchau", &[])
        };
        let restored = changed.clone().with_content(serde_json::from_value(stored).unwrap());
        assert_eq!(restored.content(), template.content());
        assert_eq!(
            (restored.meta_status, restored.unsupported),
            (changed.meta_status, changed.unsupported)
        );
    }
}
