//! Builds the request bodies of messages for the Cloud API.

use recado_domain::messaging::{
    Addressee, ButtonKind, ButtonValue, FileSource, HeaderLocation, HeaderType, OutboundCard, OutboundFile,
    OutboundTemplate, OutboundText, TextParameter,
};
use serde_json::{Value, json};
use time::OffsetDateTime;

/// The body of `POST /{phone_number_id}/messages` with a text, without link previews.
pub(super) fn text(message: &OutboundText) -> Value {
    let (field, to) = addressee(&message.to);
    json!({
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        field: to,
        "type": "text",
        "biz_opaque_callback_data": message.message_id.to_string(),
        "text": { "body": message.text, "preview_url": false },
    })
}

/// The field that addresses a message, and its value.
fn addressee(to: &Addressee) -> (&'static str, &str) {
    match to {
        Addressee::Phone(phone) => ("to", phone),
        Addressee::User(user) => ("recipient", user),
    }
}

/// The body of `POST /{phone_number_id}/messages` with a template.
pub(super) fn body(message: &OutboundTemplate) -> Value {
    let mut template = json!({ "name": message.template, "language": { "code": message.language } });
    let components = components(message);
    if let (false, Some(template)) = (components.is_empty(), template.as_object_mut()) {
        template.insert("components".into(), Value::Array(components));
    }
    let (field, to) = addressee(&message.to);
    json!({
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        field: to,
        "type": "template",
        "biz_opaque_callback_data": message.send_id.to_string(),
        "template": template,
    })
}

/// One entry per component that has values: WhatsApp checks the parameter count of every entry, so an empty one fails.
fn components(message: &OutboundTemplate) -> Vec<Value> {
    let mut components = Vec::new();
    if let Some(file) = &message.header_file {
        components.push(header(file, &message.template));
    }
    components.extend(message.header_location.as_ref().map(location));
    components.extend(texts("header", &message.header));
    components.extend(message.offer_expires_at.map(offer));
    components.extend(texts("body", &message.body));
    components.extend(message.buttons.iter().map(button));
    if !message.cards.is_empty() {
        let cards = message.cards.iter().enumerate();
        let cards: Vec<Value> = cards
            .map(|(index, content)| card(index, content, &message.template))
            .collect();
        components.push(json!({ "type": "carousel", "cards": cards }));
    }
    components
}

fn texts(part: &str, values: &[TextParameter]) -> Option<Value> {
    (!values.is_empty()).then(|| json!({ "type": part, "parameters": parameters(values) }))
}

fn header(file: &OutboundFile, name: &str) -> Value {
    let mut content = match &file.source {
        FileSource::Id(id) => json!({ "id": id }),
        FileSource::Link(link) => json!({ "link": link }),
    };
    let kind = file.kind.as_str();
    if let (HeaderType::Document, Some(fields)) = (file.kind, content.as_object_mut()) {
        // The recipient sees and saves this name. Without it WhatsApp shows the media id.
        fields.insert("filename".into(), json!(format!("{name}.pdf")));
    }
    json!({ "type": "header", "parameters": [{ "type": kind, kind: content }] })
}

fn location(place: &HeaderLocation) -> Value {
    json!({ "type": "header", "parameters": [{ "type": "location", "location": place }] })
}

fn offer(expires_at: OffsetDateTime) -> Value {
    let milliseconds = expires_at.unix_timestamp_nanos() / 1_000_000;
    let offer = json!({ "expiration_time_ms": i64::try_from(milliseconds).unwrap_or(i64::MAX) });
    json!({ "type": "limited_time_offer",
            "parameters": [{ "type": "limited_time_offer", "limited_time_offer": offer }] })
}

fn button(ButtonValue { index, kind, value }: &ButtonValue) -> Value {
    let (sub_type, parameter) = match kind {
        ButtonKind::Url => ("url", json!({ "type": "text", "text": value })),
        ButtonKind::CopyCode => ("copy_code", json!({ "type": "coupon_code", "coupon_code": value })),
    };
    json!({ "type": "button", "sub_type": sub_type, "index": index, "parameters": [parameter] })
}

fn card(index: usize, card: &OutboundCard, name: &str) -> Value {
    let mut components = vec![header(&card.file, name)];
    components.extend(texts("body", &card.body));
    components.extend(card.buttons.iter().map(button));
    json!({ "card_index": index, "components": components })
}

fn parameters(values: &[TextParameter]) -> Vec<Value> {
    let parameters = values.iter().map(|TextParameter { name, text }| match name {
        Some(name) => json!({ "type": "text", "parameter_name": name, "text": text }),
        None => json!({ "type": "text", "text": text }),
    });
    parameters.collect()
}

#[cfg(test)]
mod tests {
    use recado_domain::shared::{MessageId, SendId};
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;

    fn message() -> OutboundTemplate {
        OutboundTemplate {
            send_id: SendId(Uuid::from_u128(7)),
            to: Addressee::Phone("+5511961234567".into()),
            template: "order_update".into(),
            language: "pt_BR".into(),
            header: vec![],
            header_file: None,
            header_location: None,
            offer_expires_at: None,
            body: vec![],
            buttons: vec![],
            cards: vec![],
        }
    }

    fn text_parameter(name: Option<&str>, text: &str) -> TextParameter {
        let name = name.map(str::to_owned);
        TextParameter {
            name,
            ..TextParameter::numbered(text)
        }
    }

    fn value(index: usize, kind: ButtonKind, value: &str) -> ButtonValue {
        let value = value.to_owned();
        ButtonValue { index, kind, value }
    }

    fn file(kind: HeaderType, source: FileSource) -> OutboundFile {
        OutboundFile { kind, source }
    }

    #[test]
    fn component_with_values_becomes_an_entry() {
        let message = OutboundTemplate {
            header: vec![text_parameter(None, "Oi")],
            body: vec![text_parameter(None, "Ana"), text_parameter(Some("total"), "R$ 10,00")],
            buttons: vec![value(1, ButtonKind::Url, "860198")],
            ..message()
        };
        let expected = json!({
            "messaging_product": "whatsapp", "recipient_type": "individual", "to": "+5511961234567", "type": "template",
            "biz_opaque_callback_data": "00000000-0000-0000-0000-000000000007",
            "template": { "name": "order_update", "language": { "code": "pt_BR" }, "components": [
                { "type": "header", "parameters": [{ "type": "text", "text": "Oi" }] },
                { "type": "body", "parameters": [
                    { "type": "text", "text": "Ana" },
                    { "type": "text", "parameter_name": "total", "text": "R$ 10,00" } ] },
                { "type": "button", "sub_type": "url", "index": 1,
                  "parameters": [{ "type": "text", "text": "860198" }] } ] } });
        assert_eq!(body(&message), expected);
    }

    #[test]
    fn text_is_addressed_to_phone_number_or_user() {
        let message = |to| OutboundText {
            message_id: MessageId(Uuid::from_u128(7)),
            to,
            text: "Oi!\n\u{1f600}".into(),
        };
        let mut expected = json!({
            "messaging_product": "whatsapp", "recipient_type": "individual", "to": "+5511961234567", "type": "text",
            "biz_opaque_callback_data": "00000000-0000-0000-0000-000000000007",
            "text": { "body": "Oi!\n\u{1f600}", "preview_url": false } });
        assert_eq!(text(&message(Addressee::Phone("+5511961234567".into()))), expected);
        expected.as_object_mut().unwrap().remove("to");
        expected["recipient"] = json!("BR.1");
        assert_eq!(text(&message(Addressee::User("BR.1".into()))), expected);
    }

    #[test]
    fn message_without_values_has_no_components() {
        assert_eq!(
            body(&message())["template"],
            json!({ "name": "order_update", "language": { "code": "pt_BR" } })
        );
    }

    #[test]
    fn header_file_is_sent_as_id_or_link() {
        let (id, link) = (
            FileSource::Id("1479".into()),
            FileSource::Link("https://l.example/a".into()),
        );
        for (file, parameter) in [
            (
                file(HeaderType::Image, id.clone()),
                json!({ "type": "image", "image": { "id": "1479" } }),
            ),
            (
                file(HeaderType::Video, link),
                json!({ "type": "video", "video": { "link": "https://l.example/a" } }),
            ),
            (
                file(HeaderType::Document, id),
                json!({ "type": "document", "document": { "id": "1479", "filename": "order_update.pdf" } }),
            ),
        ] {
            let message = OutboundTemplate {
                header_file: Some(file),
                ..message()
            };
            let expected = json!([{ "type": "header", "parameters": [parameter] }]);
            assert_eq!(body(&message)["template"]["components"], expected);
        }
    }

    #[test]
    fn place_and_end_of_offer_have_the_documented_shape() {
        let message = OutboundTemplate {
            header_location: Some(HeaderLocation {
                latitude: -23.5614,
                longitude: -46.6559,
                name: "Loja".into(),
                address: "Av. Paulista, 1578".into(),
            }),
            offer_expires_at: Some(datetime!(2026-03-01 12:00:00.123_456 UTC)),
            body: vec![text_parameter(None, "Ana")],
            ..message()
        };
        let place = json!({ "latitude": -23.5614, "longitude": -46.6559, "name": "Loja",
            "address": "Av. Paulista, 1578" });
        let offer = json!({ "expiration_time_ms": 1_772_366_400_123_i64 });
        let expected = json!([
            { "type": "header", "parameters": [{ "type": "location", "location": place }] },
            { "type": "limited_time_offer",
              "parameters": [{ "type": "limited_time_offer", "limited_time_offer": offer }] },
            { "type": "body", "parameters": [{ "type": "text", "text": "Ana" }] } ]);
        assert_eq!(body(&message)["template"]["components"], expected);
    }

    #[test]
    fn coupon_codes_and_cards_have_their_own_shape() {
        let card = OutboundCard {
            file: file(HeaderType::Image, FileSource::Id("7".into())),
            body: vec![text_parameter(None, "R$ 10")],
            buttons: vec![value(1, ButtonKind::Url, "a")],
        };
        let message = OutboundTemplate {
            buttons: vec![value(0, ButtonKind::CopyCode, "PROMO10")],
            cards: vec![card.clone(), card],
            ..message()
        };
        let card = |index: usize| {
            json!({ "card_index": index, "components": [
                { "type": "header", "parameters": [{ "type": "image", "image": { "id": "7" } }] },
                { "type": "body", "parameters": [{ "type": "text", "text": "R$ 10" }] },
                { "type": "button", "sub_type": "url", "index": 1, "parameters": [{ "type": "text", "text": "a" }] } ] })
        };
        let code = json!({ "type": "coupon_code", "coupon_code": "PROMO10" });
        let expected = json!([
            { "type": "button", "sub_type": "copy_code", "index": 0, "parameters": [code] },
            { "type": "carousel", "cards": [card(0), card(1)] } ]);
        assert_eq!(body(&message)["template"]["components"], expected);
    }
}
