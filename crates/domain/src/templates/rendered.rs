//! Rendered messages: a template's texts with values in place of their placeholders.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use time::OffsetDateTime;

use super::placeholders::fill;
use super::{MessageValues, Template, TemplateType};
use crate::messaging::{Button, ButtonKind, ButtonValue, HeaderLocation, HeaderType, TextParameter};
use crate::shared::schema::Timestamp;
use crate::shared::timestamp;

/// A message as the recipient reads it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Rendered {
    /// The type of the header above the body.
    pub header_type: HeaderType,
    /// The header's text. Null if the header is not a text.
    #[schemars(example = &"Só esta semana")]
    pub header: Option<String>,
    /// The URL of the header's image, video or document. Null if the header is not a file.
    #[schemars(example = &"https://media.example.com/media/0190a1b2/banner.png")]
    pub header_media_url: Option<String>,
    /// The location of the header. Null if the header is not a location, or the campaign names no location.
    pub header_location: Option<HeaderLocation>,
    /// The offer above the body. Null if there is none.
    pub limited_time_offer: Option<RenderedOffer>,
    /// The text of the message.
    #[schemars(example = &"Oi Ana, use VOLTA10 e ganhe 10% de desconto.")]
    pub body: Option<String>,
    /// The text below the body. Null if there is none.
    #[schemars(example = &"Responda SAIR para não receber mais.")]
    pub footer: Option<String>,
    /// The buttons in WhatsApp's format, with the contact's values.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>", example = serde_json::json!([{ "type": "QUICK_REPLY", "text": "Quero!" }]))]
    pub buttons: Vec<Value>,
    /// The cards of a carousel. Empty for a standard template.
    pub cards: Vec<RenderedCard>,
}

/// A limited-time offer as the recipient reads it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RenderedOffer {
    /// The text of the offer.
    #[schemars(example = &"Só até domingo")]
    pub text: String,
    /// When the offer ends. Null if it has no end, or the campaign names none.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub expires_at: Option<OffsetDateTime>,
}

/// A carousel card as the recipient reads it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RenderedCard {
    /// Whether the card shows an image or a video.
    pub header_type: HeaderType,
    /// The URL of the card's image or video.
    #[schemars(example = &"https://media.example.com/media/0190a1b2/card.png")]
    pub header_media_url: String,
    /// The text of the card.
    #[schemars(example = &"Tênis em promoção")]
    pub body: String,
    /// The card's buttons in WhatsApp's format.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>", example = serde_json::json!([{ "type": "QUICK_REPLY", "text": "Ver" }]))]
    pub buttons: Vec<Value>,
}

impl Template {
    /// The message with these values. A message that is sent gets the same values.
    pub(crate) fn rendered(&self, message: &MessageValues) -> Rendered {
        let values = &message.placeholders;
        let expires_at = message.offer_expires_at.filter(|_| self.has_expiring_offer());
        let offer = self.limited_time_offer.as_ref().map(|offer| RenderedOffer {
            text: offer.text.clone(),
            expires_at,
        });
        Rendered {
            header_type: self.header_type,
            header: self
                .header_placeholder_text()
                .map(|text| self.with_values(text, values)),
            header_media_url: self.header_file().map(|(_, url)| url.to_owned()),
            header_location: self.location(message),
            limited_time_offer: offer,
            body: self.body_text.as_deref().map(|text| self.with_values(text, values)),
            footer: self.footer_text.clone(),
            buttons: filled(&self.buttons, &self.button_values(values)),
            cards: self.rendered_cards(),
        }
    }

    fn rendered_cards(&self) -> Vec<RenderedCard> {
        if self.template_type != TemplateType::Carousel {
            return vec![];
        }
        let cards = self.carousel_cards.iter().zip(self.cards());
        let cards = cards.map(|(card, components)| {
            let body = card.body().map(|body| card_text(&body.text, &components.body));
            RenderedCard {
                header_type: components.header.0,
                header_media_url: components.header.1,
                body: body.unwrap_or_default(),
                buttons: filled(card.buttons(), &components.buttons),
            }
        });
        cards.collect()
    }
}

/// The text of a card, with its named or numbered placeholders replaced.
fn card_text(text: &str, parameters: &[TextParameter]) -> String {
    let named = |key: &str| {
        parameters
            .iter()
            .find(|parameter| parameter.name.as_deref() == Some(key))
    };
    let numbered = |key: &str| {
        let parameters = (1_usize..)
            .zip(parameters)
            .filter(|(_, parameter)| parameter.name.is_none());
        parameters
            .map(|(number, parameter)| (number.to_string(), parameter))
            .find(|(number, _)| number == key)
    };
    fill(text, |key| {
        let parameter = named(key).or_else(|| numbered(key).map(|(_, parameter)| parameter));
        parameter.map(|parameter| parameter.text.as_str())
    })
}

fn filled(buttons: &[Button], values: &[ButtonValue]) -> Vec<Value> {
    let buttons = buttons.iter().enumerate().map(|(index, button)| {
        let value = values.iter().find(|value| value.index == index);
        filled_button(button, value)
    });
    buttons.collect()
}

/// Completes the URL of a button, or adds its code as `code`.
fn filled_button(button: &Button, value: Option<&ButtonValue>) -> Value {
    let mut filled = button.json().clone();
    if let Some(fields) = filled.as_object_mut() {
        fields.remove("example");
        match value {
            Some(value) if value.kind == ButtonKind::Url && fields.contains_key("url") => {
                let url = fill(&button.url, |key| (key == "1").then_some(value.value.as_str()));
                fields.insert("url".to_owned(), json!(url));
            }
            Some(value) => {
                fields.insert("code".to_owned(), json!(value.value));
            }
            None => {}
        }
    }
    filled
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::templates::outbound_tests::{location, location_template, offer_template};
    use crate::templates::tests::approved_template;

    fn values(values: &[&str]) -> MessageValues {
        MessageValues {
            placeholders: values.iter().map(|&value| value.to_owned()).collect(),
            ..MessageValues::default()
        }
    }

    #[test]
    fn header_and_body_share_their_values() {
        let template = Template {
            header_type: HeaderType::Text,
            header_text: Some("Oi {{1}}!".into()),
            footer_text: Some("Responda SAIR".into()),
            ..approved_template("{{1}}, use {{2}} em {{3}}.", &["Ana", "PROMO10", "x"])
        };
        let values = values(&["Bia", "NATAL"]);
        let rendered = template.rendered(&values);
        assert_eq!(rendered.header.as_deref(), Some("Oi Bia!"));
        assert_eq!(rendered.body.as_deref(), Some("Bia, use NATAL em {{3}}."));
        assert_eq!(rendered.footer.as_deref(), Some("Responda SAIR"));
        assert_eq!((rendered.header_media_url, rendered.cards), (None, vec![]));
        // The message that is sent has the same values.
        for parameter in template.parameters_of("{{1}}, use {{2}} em {{3}}.", &values.placeholders) {
            assert!(rendered.body.as_deref().unwrap().contains(&parameter.text));
        }
    }

    #[test]
    fn file_header_is_rendered_without_its_text() {
        let template = Template {
            header_type: HeaderType::Image,
            header_text: Some("left over".into()),
            header_media_url: Some("https://media.example/a.png".into()),
            ..approved_template("Oi", &[])
        };
        let rendered = template.rendered(&values(&[]));
        assert_eq!(rendered.header, None);
        assert_eq!(
            rendered.header_media_url.as_deref(),
            Some("https://media.example/a.png")
        );
        assert_eq!(rendered.header_type, HeaderType::Image);
    }

    #[test]
    fn location_and_offer_are_rendered_with_their_values() {
        let values = MessageValues {
            header_location: Some(location()),
            offer_expires_at: Some(datetime!(2026-03-01 12:00 UTC)),
            ..values(&["Bia"])
        };
        let rendered = json!(location_template().rendered(&values));
        assert_eq!(
            (&rendered["header_location"]["name"], &rendered["limited_time_offer"]),
            (&json!("Loja Paulista"), &Value::Null)
        );
        let rendered = json!(offer_template(true).rendered(&values));
        let offer = json!({ "text": "Só hoje", "expires_at": "2026-03-01T12:00:00.000Z" });
        assert_eq!(
            (&rendered["header_location"], &rendered["limited_time_offer"]),
            (&Value::Null, &offer)
        );
        let rendered = json!(offer_template(false).rendered(&values));
        assert_eq!(rendered["limited_time_offer"]["expires_at"], Value::Null);
    }

    #[test]
    fn buttons_show_their_values_and_no_examples() {
        let template = Template {
            buttons: vec![
                json!({ "type": "QUICK_REPLY", "text": "Sim" }).into(),
                json!({ "type": "URL", "text": "Ver", "url": "https://loja.example/{{1}}", "example": ["abc"] }).into(),
                json!({ "type": "COPY_CODE", "example": "PROMO" }).into(),
                json!({ "type": "OTP", "otp_type": "COPY_CODE" }).into(),
                json!("no object").into(),
            ],
            ..approved_template("Oi {{1}}", &["Ana"])
        };
        let expected = [
            json!({ "type": "QUICK_REPLY", "text": "Sim" }),
            json!({ "type": "URL", "text": "Ver", "url": "https://loja.example/abc" }),
            json!({ "type": "COPY_CODE", "code": "PROMO" }),
            json!({ "type": "OTP", "otp_type": "COPY_CODE", "code": "Bia" }),
            json!("no object"),
        ];
        assert_eq!(template.rendered(&values(&["Bia"])).buttons, expected);
    }

    #[test]
    fn cards_are_shown_with_their_own_examples() {
        let card = json!({ "components": [
            { "type": "HEADER", "format": "IMAGE", "example": { "header_handle": ["https://media.example/c.png"] } },
            { "type": "BODY", "text": "Por {{1}}", "example": { "body_text": [["R$ 10"]] } },
            { "type": "BUTTONS", "buttons": [
                { "type": "URL", "text": "Ver", "url": "https://loja.example/{{1}}", "example": "x" }] },
        ] });
        let template = Template {
            template_type: TemplateType::Carousel,
            carousel_cards: vec![card.into()],
            ..approved_template("Oi {{1}}", &["Ana"])
        };
        let expected = RenderedCard {
            header_type: HeaderType::Image,
            header_media_url: "https://media.example/c.png".into(),
            body: "Por R$ 10".into(),
            buttons: vec![json!({ "type": "URL", "text": "Ver", "url": "https://loja.example/x" })],
        };
        assert_eq!(template.rendered(&values(&["Bia"])).cards, [expected]);
    }
}
