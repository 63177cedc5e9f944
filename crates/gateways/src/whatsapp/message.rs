//! Builds the request bodies of messages for the Cloud API.

use recado_domain::messaging::{
    Addressee, ButtonKind, ButtonValue, FileSource, HeaderLocation, HeaderType, Interactive, InteractiveChoice,
    InteractiveHeader, ListRow, ListSection, MediaContent, MessageContent, OutboundCard, OutboundFile, OutboundMessage,
    OutboundTemplate, ReplyButton, TextParameter,
};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

/// The body of `POST /{phone_number_id}/messages` with a free-form message. Texts have no link preview.
pub(super) fn free_form(message: &OutboundMessage) -> Value {
    let (field, to) = addressee(&message.to);
    let kind = match &message.content {
        MessageContent::ContactRequest(_) => "interactive",
        content => content.kind(),
    };
    let content = match &message.content {
        MessageContent::Text(text) => json!({ "body": text, "preview_url": false }),
        MessageContent::Media(media) => media_object(media, message.file.as_ref()),
        MessageContent::Interactive(content) => interactive(content, message.file.as_ref()),
        MessageContent::ContactRequest(text) => json!({ "type": "request_contact_info", "body": { "text": text },
            "action": { "name": "request_contact_info" } }),
    };
    let body = json!({
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        field: to,
        "type": kind,
        "biz_opaque_callback_data": message.message_id.to_string(),
        kind: content,
    });
    quoting(body, message.reply_to.as_deref())
}

/// Adds the message that this one quotes.
fn quoting(mut body: Value, quoted: Option<&str>) -> Value {
    if let (Some(quoted), Some(body)) = (quoted, body.as_object_mut()) {
        body.insert("context".into(), json!({ "message_id": quoted }));
    }
    body
}

fn media_object(media: &MediaContent, source: Option<&FileSource>) -> Value {
    let mut object = source.map_or_else(Map::new, file_object);
    object.extend(
        media
            .caption
            .iter()
            .map(|caption| ("caption".to_owned(), json!(caption))),
    );
    object.extend(media.file_name.iter().map(|name| ("filename".to_owned(), json!(name))));
    Value::Object(object)
}

fn file_object(source: &FileSource) -> Map<String, Value> {
    let (field, value) = match source {
        FileSource::Id(id) => ("id", id),
        FileSource::Link(link) => ("link", link),
    };
    Map::from_iter([(field.to_owned(), json!(value))])
}

fn interactive(content: &Interactive, source: Option<&FileSource>) -> Value {
    let (kind, action) = match &content.choice {
        InteractiveChoice::Buttons(buttons) => {
            let buttons = buttons
                .iter()
                .map(|ReplyButton { id, title }| json!({ "type": "reply", "reply": { "id": id, "title": title } }));
            ("button", json!({ "buttons": buttons.collect::<Vec<_>>() }))
        }
        InteractiveChoice::List { button, sections } => {
            let sections: Vec<Value> = sections.iter().map(section).collect();
            ("list", json!({ "button": button, "sections": sections }))
        }
    };
    let mut object = json!({ "type": kind, "body": { "text": content.body }, "action": action });
    if let Some(object) = object.as_object_mut() {
        let header = content.header.as_ref().map(|header| match header {
            InteractiveHeader::Text(text) => json!({ "type": "text", "text": text }),
            InteractiveHeader::Media(media) => {
                let kind = media.kind.as_str();
                json!({ "type": kind, kind: media_object(media, source) })
            }
        });
        object.extend(header.map(|header| ("header".to_owned(), header)));
        object.extend(
            content
                .footer
                .iter()
                .map(|footer| ("footer".to_owned(), json!({ "text": footer }))),
        );
    }
    object
}

fn section(section: &ListSection) -> Value {
    let row = |row: &ListRow| {
        let mut object = Map::from_iter([("id".to_owned(), json!(row.id)), ("title".to_owned(), json!(row.title))]);
        object.extend(
            row.description
                .iter()
                .map(|description| ("description".to_owned(), json!(description))),
        );
        Value::Object(object)
    };
    let mut object = Map::from_iter([("rows".to_owned(), section.rows.iter().map(row).collect())]);
    object.extend(section.title.iter().map(|title| ("title".to_owned(), json!(title))));
    Value::Object(object)
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
    let body = json!({
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        field: to,
        "type": "template",
        "biz_opaque_callback_data": message.send_id.to_string(),
        "template": template,
    });
    quoting(body, message.reply_to.as_deref())
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
    let mut content = file_object(&file.source);
    let kind = file.kind.as_str();
    if file.kind == HeaderType::Document {
        // The recipient sees and saves this name. Without it WhatsApp shows the media id.
        content.insert("filename".into(), json!(format!("{name}.pdf")));
    }
    json!({ "type": "header", "parameters": [{ "type": kind, kind: content }] })
}

fn location(location: &HeaderLocation) -> Value {
    json!({ "type": "header", "parameters": [{ "type": "location", "location": location }] })
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
    use recado_domain::messaging::ContentInput;
    use recado_domain::shared::{MessageId, SendId};
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;

    fn message() -> OutboundTemplate {
        OutboundTemplate {
            send_id: SendId(Uuid::from_u128(7)),
            to: Addressee::Phone("+5511961234567".into()),
            reply_to: None,
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
        let message = |to| OutboundMessage::text(MessageId(Uuid::from_u128(7)), to, "Oi!\n\u{1f600}");
        let mut expected = json!({
            "messaging_product": "whatsapp", "recipient_type": "individual", "to": "+5511961234567", "type": "text",
            "biz_opaque_callback_data": "00000000-0000-0000-0000-000000000007",
            "text": { "body": "Oi!\n\u{1f600}", "preview_url": false } });
        assert_eq!(free_form(&message(Addressee::Phone("+5511961234567".into()))), expected);
        expected.as_object_mut().unwrap().remove("to");
        expected["recipient"] = json!("BR.1");
        assert_eq!(free_form(&message(Addressee::User("BR.1".into()))), expected);
    }

    /// The part of the body that depends on the content.
    fn wire(content: Value, file: Option<FileSource>) -> Value {
        let field = |name: &str| content.get(name).cloned().unwrap_or(Value::Null);
        let input = ContentInput {
            text: None,
            media: serde_json::from_value(field("media")).unwrap(),
            interactive: serde_json::from_value(field("interactive")).unwrap(),
        };
        let mut body = free_form(&OutboundMessage {
            reply_to: Some("wamid.q".into()),
            content: input.check().unwrap(),
            file,
            ..OutboundMessage::text(MessageId(Uuid::nil()), Addressee::User("BR.1".into()), "")
        });
        assert_eq!(body["context"], json!({ "message_id": "wamid.q" }));
        let kind = body["type"].as_str().unwrap().to_owned();
        json!([kind, body[&kind].take()])
    }

    #[test]
    fn media_is_sent_by_id_or_link() {
        let media = json!({ "type": "document", "url": "https://l.example/a", "caption": "c", "file_name": "a.pdf" });
        let link = FileSource::Link("https://l.example/a".into());
        assert_eq!(
            wire(json!({ "media": media }), Some(link)),
            json!(["document", { "link": "https://l.example/a", "caption": "c", "filename": "a.pdf" }])
        );
        let media = json!({ "type": "sticker", "media_id": Uuid::nil() });
        assert_eq!(
            wire(json!({ "media": media }), Some(FileSource::Id("1479".into()))),
            json!(["sticker", { "id": "1479" }])
        );
    }

    #[test]
    fn buttons_and_lists_have_their_own_shape() {
        let header = json!({ "media": { "type": "image", "media_id": Uuid::nil() } });
        let buttons = json!({ "type": "buttons", "body": "Quer?", "footer": "f", "header": header,
            "buttons": [{ "id": "s", "title": "Sim" }] });
        assert_eq!(
            wire(json!({ "interactive": buttons }), Some(FileSource::Id("7".into()))),
            json!(["interactive", { "type": "button", "header": { "type": "image", "image": { "id": "7" } },
                "body": { "text": "Quer?" }, "footer": { "text": "f" },
                "action": { "buttons": [{ "type": "reply", "reply": { "id": "s", "title": "Sim" } }] } }])
        );
        let list = json!({ "type": "list", "body": "Qual?", "button": "Ver", "header": { "text": "h" }, "sections": [
            { "title": "Bolos", "rows": [{ "id": "a", "title": "A", "description": "d" }, { "id": "b", "title": "B" }] }] });
        assert_eq!(
            wire(json!({ "interactive": list }), None),
            json!(["interactive", { "type": "list", "header": { "type": "text", "text": "h" },
                "body": { "text": "Qual?" }, "action": { "button": "Ver", "sections": [{ "title": "Bolos", "rows": [
                    { "id": "a", "title": "A", "description": "d" }, { "id": "b", "title": "B" }] }] } }])
        );
    }

    #[test]
    fn message_without_values_has_no_components() {
        assert_eq!(
            body(&message())["template"],
            json!({ "name": "order_update", "language": { "code": "pt_BR" } })
        );
    }

    #[test]
    fn contact_request_has_the_documented_shape() {
        let message = OutboundMessage {
            content: MessageContent::ContactRequest("Qual é o seu número?".into()),
            ..OutboundMessage::text(MessageId(Uuid::from_u128(7)), Addressee::User("BR.1".into()), "")
        };
        let body = free_form(&message);
        assert_eq!(
            (&body["recipient"], &body["type"]),
            (&json!("BR.1"), &json!("interactive"))
        );
        let expected = json!({ "type": "request_contact_info", "body": { "text": "Qual é o seu número?" },
            "action": { "name": "request_contact_info" } });
        assert_eq!(body["interactive"], expected);
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
    fn location_and_end_of_offer_have_the_documented_shape() {
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
        let location = json!({ "latitude": -23.5614, "longitude": -46.6559, "name": "Loja",
            "address": "Av. Paulista, 1578" });
        let offer = json!({ "expiration_time_ms": 1_772_366_400_123_i64 });
        let expected = json!([
            { "type": "header", "parameters": [{ "type": "location", "location": location }] },
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
