//! Whether this server can build messages of a template. WhatsApp's review is not considered.

use super::components::has_card_examples;
use super::{Template, TemplateType};
use crate::messaging::{Button, ButtonType, CarouselCard, Component, ComponentType, HeaderType, ParameterFormat};

/// The types of a card's header.
pub(super) const CARD_HEADERS: [HeaderType; 2] = [HeaderType::Image, HeaderType::Video];

/// The components of a card.
pub(super) const CARD_COMPONENTS: [ComponentType; 3] =
    [ComponentType::Header, ComponentType::Body, ComponentType::Buttons];

const CARDS: std::ops::RangeInclusive<usize> = 2..=10;

impl Template {
    /// Why this server cannot send messages of the template. Empty if it can.
    pub fn unsendable_reasons(&self) -> Vec<String> {
        let mut reasons = self.unsupported.clone();
        if self.header_file().is_some_and(|(_, url)| url.is_empty()) {
            add(&mut reasons, "missing_media");
        }
        for button in &self.buttons {
            self.check_button(button, &mut reasons);
        }
        if self.template_type == TemplateType::Carousel {
            if !CARDS.contains(&self.carousel_cards.len()) {
                add(&mut reasons, "carousel_shape");
            }
            for card in &self.carousel_cards {
                self.check_card(card, &mut reasons);
            }
        }
        reasons
    }

    fn check_button(&self, button: &Button, reasons: &mut Vec<String>) {
        let has_value = match button.kind {
            ButtonType::Url => !button.has_placeholder() || button.example.is_some(),
            ButtonType::CopyCode => button.example.is_some(),
            // The one-time code is the first value of the body.
            ButtonType::Otp => !self.variables.is_empty(),
            ButtonType::QuickReply | ButtonType::PhoneNumber | ButtonType::VoiceCall => true,
            ButtonType::Other(_) => false,
        };
        if !has_value {
            let kind = button.kind.as_str().to_ascii_lowercase();
            add(reasons, &format!("unsupported_button:{kind}"));
        }
    }

    fn check_card(&self, card: &CarouselCard, reasons: &mut Vec<String>) {
        let header = card.header();
        let has_file_header = header
            .and_then(Component::header_type)
            .is_some_and(|kind| CARD_HEADERS.contains(&kind));
        let filled = card
            .body()
            .is_none_or(|body| has_card_examples(body, self.parameter_format));
        let has_known_components = card.components.iter().all(|part| CARD_COMPONENTS.contains(&part.kind));
        if !has_known_components || !filled || !has_file_header {
            add(reasons, "carousel_shape");
        } else if header
            .and_then(|header| header.file.as_deref())
            .is_none_or(str::is_empty)
        {
            add(reasons, "missing_media");
        }
        for button in card.buttons() {
            self.check_button(button, reasons);
        }
    }
}

/// The parts of WhatsApp's template that no field here can hold, as reasons.
pub(super) fn unsupported_parts(components: &[Component], parameter_format: Option<ParameterFormat>) -> Vec<String> {
    let mut reasons = Vec::new();
    if parameter_format.is_none() {
        add(&mut reasons, "unsupported_parameter_format");
    }
    for component in components {
        let reason = match &component.kind {
            ComponentType::Other(kind) => format!("unsupported_component:{}", kind.to_ascii_lowercase()),
            ComponentType::LimitedTimeOffer if component.limited_time_offer.is_none() => {
                "unsupported_component:limited_time_offer".to_owned()
            }
            ComponentType::Header if component.header_type().is_none() => {
                format!("unsupported_header:{}", component.format.to_ascii_lowercase())
            }
            _ => continue,
        };
        add(&mut reasons, &reason);
    }
    reasons
}

fn add(reasons: &mut Vec<String>, reason: &str) {
    if !reasons.iter().any(|existing| existing == reason) {
        reasons.push(reason.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::templates::tests::approved_template;

    fn with_button(button: serde_json::Value) -> Vec<String> {
        let template = Template {
            buttons: vec![button.into()],
            ..approved_template("Oi {{1}}", &["Ana"])
        };
        template.unsendable_reasons()
    }

    #[test]
    fn buttons_need_a_known_type_and_a_value() {
        for button in [
            json!({ "type": "QUICK_REPLY", "text": "Sim" }),
            json!({ "type": "phone_number", "phone_number": "+551130000000" }),
            json!({ "type": "VOICE_CALL", "text": "Ligar" }),
            json!({ "type": "URL", "url": "https://loja.example" }),
            json!({ "type": "URL", "url": "https://loja.example/{{1}}", "example": ["a"] }),
            json!({ "type": "COPY_CODE", "example": "X5" }),
            json!({ "type": "OTP", "otp_type": "COPY_CODE" }),
        ] {
            assert_eq!(with_button(button), Vec::<String>::new());
        }
        for (button, reason) in [
            (json!({ "type": "FLOW", "flow_id": "7" }), "unsupported_button:flow"),
            (json!({ "type": "CATALOG" }), "unsupported_button:catalog"),
            (
                json!({ "type": "URL", "url": "https://loja.example/{{1}}" }),
                "unsupported_button:url",
            ),
            (json!({ "type": "COPY_CODE" }), "unsupported_button:copy_code"),
        ] {
            assert_eq!(with_button(button), [reason]);
        }
        let otp = Template {
            buttons: vec![json!({ "type": "OTP" }).into()],
            ..approved_template("", &[])
        };
        assert_eq!(otp.unsendable_reasons(), ["unsupported_button:otp"]);
    }

    #[test]
    fn file_header_without_a_file_is_unsendable() {
        let image = |url: Option<&str>| Template {
            header_type: HeaderType::Image,
            header_media_url: url.map(str::to_owned),
            ..approved_template("Oi", &[])
        };
        assert_eq!(image(None).unsendable_reasons(), ["missing_media"]);
        assert_eq!(
            image(Some("https://cdn.example/a.png")).unsendable_reasons(),
            Vec::<String>::new()
        );
    }

    #[test]
    fn card_needs_a_file_and_examples() {
        let header =
            json!({ "type": "HEADER", "format": "IMAGE", "example": { "header_handle": ["https://c.example/a"] } });
        let product = json!({ "type": "HEADER", "format": "PRODUCT" });
        let body = json!({ "type": "BODY", "text": "Por {{1}}" });
        let filled = json!({ "type": "BODY", "text": "Por {{1}}", "example": { "body_text": [["R$ 10"]] } });
        let flow = json!({ "type": "BUTTONS", "buttons": [{ "type": "FLOW" }] });
        let reasons = |components: serde_json::Value| {
            let card = json!({ "components": components });
            let carousel = Template {
                template_type: TemplateType::Carousel,
                carousel_cards: vec![card.clone().into(), card.into()],
                ..approved_template("Oi", &[])
            };
            carousel.unsendable_reasons()
        };
        assert_eq!(reasons(json!([header, filled])), Vec::<String>::new());
        assert_eq!(reasons(json!([header, body])), ["carousel_shape"]);
        assert_eq!(reasons(json!([product, filled])), ["carousel_shape"]);
        assert_eq!(
            reasons(json!([{ "type": "HEADER", "format": "VIDEO" }])),
            ["missing_media"]
        );
        assert_eq!(reasons(json!([header, filled, flow])), ["unsupported_button:flow"]);
    }

    #[test]
    fn unsupported_components_are_reasons() {
        let components = json!([{ "type": "HEADER", "format": "PRODUCT" }, { "type": "BODY", "text": "Oi" },
            { "type": "call_permission_request" }]);
        let components: Vec<Component> = components.as_array().unwrap().iter().map(Component::from).collect();
        let reasons = unsupported_parts(&components, Some(ParameterFormat::Named));
        assert_eq!(
            reasons,
            [
                "unsupported_header:product",
                "unsupported_component:call_permission_request"
            ]
        );
        assert_eq!(unsupported_parts(&[], None), ["unsupported_parameter_format"]);
        let template = Template {
            unsupported: reasons.clone(),
            ..approved_template("Oi", &[])
        };
        assert_eq!(template.unsendable_reasons(), reasons);
    }
}
