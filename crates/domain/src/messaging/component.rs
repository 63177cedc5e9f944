//! Buttons, cards and components of templates in WhatsApp's JSON format, parsed once. Parsing never fails: a missing
//! text is empty, and an unknown type has its name.

use std::collections::HashSet;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::{HeaderType, LimitedTimeOffer, TextParameter};

/// WhatsApp's type of a button. The case of its name does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ButtonType {
    QuickReply,
    Url,
    PhoneNumber,
    VoiceCall,
    CopyCode,
    /// A one-time code.
    Otp,
    /// Any other name, in upper case. Empty if the button has no type.
    Other(String),
}

impl ButtonType {
    /// WhatsApp's name.
    pub fn as_str(&self) -> &str {
        match self {
            Self::QuickReply => "QUICK_REPLY",
            Self::Url => "URL",
            Self::PhoneNumber => "PHONE_NUMBER",
            Self::VoiceCall => "VOICE_CALL",
            Self::CopyCode => "COPY_CODE",
            Self::Otp => "OTP",
            Self::Other(name) => name,
        }
    }

    fn of(json: &Value) -> Self {
        let name = uppercase_text(json, "type");
        let known = [
            Self::QuickReply,
            Self::Url,
            Self::PhoneNumber,
            Self::VoiceCall,
            Self::CopyCode,
            Self::Otp,
        ];
        let known = known.into_iter().find(|kind| kind.as_str() == name);
        known.unwrap_or(Self::Other(name))
    }
}

/// A button. Its JSON is stored and returned with every key, also with those that have no field here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Value")]
pub struct Button {
    pub kind: ButtonType,
    pub label: String,
    pub url: String,
    pub phone_number: String,
    /// The example of the URL's end or of the code: a string in JSON, or an array that begins with one.
    pub example: Option<String>,
    json: Value,
}

impl Button {
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// Whether the URL has a placeholder, at any position.
    pub fn has_placeholder(&self) -> bool {
        self.url.contains("{{")
    }
}

impl From<Value> for Button {
    fn from(json: Value) -> Self {
        let example = json.get("example");
        let example = example.and_then(|example| example.get(0).unwrap_or(example).as_str());
        Self {
            kind: ButtonType::of(&json),
            label: text(&json, "text").to_owned(),
            url: text(&json, "url").to_owned(),
            phone_number: text(&json, "phone_number").to_owned(),
            example: example.map(str::to_owned),
            json,
        }
    }
}

impl Serialize for Button {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

/// WhatsApp's type of a component. The case of its name does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComponentType {
    Header,
    Body,
    Footer,
    Buttons,
    Carousel,
    LimitedTimeOffer,
    /// Any other name, in upper case.
    Other(String),
}

/// A part of a template or of a card.
#[derive(Clone, Debug, PartialEq)]
pub struct Component {
    pub kind: ComponentType,
    /// The format of a header, in upper case, for example `IMAGE`.
    pub format: String,
    pub text: String,
    /// The examples of numbered placeholders, in order.
    pub examples: Vec<String>,
    /// The examples of named placeholders, one per name, in the two fields in which WhatsApp lists them.
    pub named_header_examples: Vec<TextParameter>,
    pub named_body_examples: Vec<TextParameter>,
    /// The URL of a header's file, or its handle after the upload. An upload changes it here, not in the card's JSON.
    pub file: Option<String>,
    pub buttons: Vec<Button>,
    /// None in a component of another type, and if the offer has no text.
    pub limited_time_offer: Option<LimitedTimeOffer>,
    /// Empty in a component of a card: cards do not nest.
    pub cards: Vec<CarouselCard>,
}

impl Component {
    /// The type of a header of this format. None if WhatsApp has it and this server does not.
    pub fn header_type(&self) -> Option<HeaderType> {
        let kind = self.format.to_ascii_lowercase().parse().ok();
        kind.filter(|kind| *kind != HeaderType::None)
    }

    /// Reads everything but the cards. Each level of cards would copy the JSON of all levels below it.
    fn without_cards(json: &Value) -> Self {
        let name = uppercase_text(json, "type");
        let kind = match name.as_str() {
            "HEADER" => ComponentType::Header,
            "BODY" => ComponentType::Body,
            "FOOTER" => ComponentType::Footer,
            "BUTTONS" => ComponentType::Buttons,
            "CAROUSEL" => ComponentType::Carousel,
            "LIMITED_TIME_OFFER" => ComponentType::LimitedTimeOffer,
            _ => ComponentType::Other(name),
        };
        let examples = match kind {
            ComponentType::Header => "/example/header_text",
            _ => "/example/body_text/0",
        };
        let examples = items(json.pointer(examples)).iter().filter_map(Value::as_str);
        let named = |field| named_examples(items(json.pointer(field)));
        let file = json.pointer("/example/header_handle/0").and_then(Value::as_str);
        let buttons = items(json.get("buttons")).iter().cloned();
        Self {
            kind,
            format: uppercase_text(json, "format"),
            text: text(json, "text").to_owned(),
            examples: examples.map(str::to_owned).collect(),
            named_header_examples: named("/example/header_text_named_params"),
            named_body_examples: named("/example/body_text_named_params"),
            file: file.map(str::to_owned),
            buttons: buttons.map(Button::from).collect(),
            limited_time_offer: json.get("limited_time_offer").and_then(limited_time_offer),
            cards: vec![],
        }
    }
}

impl From<&Value> for Component {
    fn from(json: &Value) -> Self {
        let cards = items(json.get("cards")).iter().cloned();
        Self {
            cards: cards.map(CarouselCard::from).collect(),
            ..Self::without_cards(json)
        }
    }
}

/// A card of a carousel. Its original JSON is stored and returned with every key.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Value")]
pub struct CarouselCard {
    pub components: Vec<Component>,
    json: Value,
}

impl CarouselCard {
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// The first component of a type, with its position.
    pub fn component(&self, kind: &ComponentType) -> Option<(usize, &Component)> {
        let mut components = self.components.iter().enumerate();
        components.find(|(_, component)| component.kind == *kind)
    }

    pub fn header(&self) -> Option<&Component> {
        self.component(&ComponentType::Header).map(|(_, header)| header)
    }

    pub fn body(&self) -> Option<&Component> {
        self.component(&ComponentType::Body).map(|(_, body)| body)
    }

    pub fn buttons(&self) -> &[Button] {
        let buttons = self.component(&ComponentType::Buttons);
        buttons.map_or(&[], |(_, component)| &component.buttons)
    }
}

impl From<Value> for CarouselCard {
    fn from(json: Value) -> Self {
        let components = items(json.get("components")).iter().map(Component::without_cards);
        Self {
            components: components.collect(),
            json,
        }
    }
}

impl Serialize for CarouselCard {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

fn limited_time_offer(json: &Value) -> Option<LimitedTimeOffer> {
    let offer = LimitedTimeOffer {
        text: text(json, "text").to_owned(),
        has_expiration: json.get("has_expiration").and_then(Value::as_bool).unwrap_or_default(),
    };
    (!offer.text.is_empty()).then_some(offer)
}

fn named_examples(examples: &[Value]) -> Vec<TextParameter> {
    let mut seen = HashSet::new();
    let first = examples
        .iter()
        .filter(|example| seen.insert(text(example, "param_name")));
    first
        .map(|example| TextParameter {
            name: Some(text(example, "param_name").to_owned()),
            text: text(example, "example").to_owned(),
        })
        .collect()
}

fn items(json: Option<&Value>) -> &[Value] {
    json.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(json: &'a Value, field: &str) -> &'a str {
    json.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn uppercase_text(json: &Value, field: &str) -> String {
    text(json, field).to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cards_inside_a_card_are_kept_as_json_and_not_read() {
        let nested = json!({ "components": [{ "type": "BODY", "cards": [{ "components": [] }] }] });
        let card = CarouselCard::from(nested.clone());
        assert_eq!(card.components[0].cards, []);
        assert_eq!(*card.json(), nested);
        let carousel = Component::from(&json!({ "type": "carousel", "cards": [nested] }));
        assert_eq!(carousel.cards, [card]);
    }

    #[test]
    fn first_example_of_a_name_counts() {
        let examples = json!([{ "param_name": "a", "example": "1" }, { "param_name": "a", "example": "2" }]);
        let body = Component::from(&json!({ "type": "BODY", "example": { "body_text_named_params": examples } }));
        assert_eq!(body.named_body_examples.len(), 1);
        assert_eq!(body.named_body_examples[0].text, "1");
    }
}
