//! Messages as the platform takes them.

use recado_domain::whatsapp::{Addressee, OutboundTemplate, OutboundText};
use serde_json::{Value, json};

/// The body of `POST /{phone_number_id}/messages` with a text. Links in it are shown as they are.
pub(super) fn text(message: &OutboundText) -> Value {
    let (field, to) = match &message.to {
        Addressee::Phone(phone) => ("to", phone),
        Addressee::User(user) => ("recipient", user),
    };
    json!({
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        field: to,
        "type": "text",
        "biz_opaque_callback_data": message.message_id.to_string(),
        "text": { "body": message.text, "preview_url": false },
    })
}

/// The body of `POST /{phone_number_id}/messages` with a template.
pub(super) fn body(message: &OutboundTemplate) -> Value {
    let mut template = json!({ "name": message.template, "language": { "code": message.language } });
    let components = components(message);
    if let (false, Some(template)) = (components.is_empty(), template.as_object_mut()) {
        template.insert("components".into(), Value::Array(components));
    }
    json!({
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to": message.to,
        "type": "template",
        "biz_opaque_callback_data": message.send_id.to_string(),
        "template": template,
    })
}

/// One entry a part that has values: the platform counts the parameters of every entry it gets.
fn components(message: &OutboundTemplate) -> Vec<Value> {
    let parts = [("header", &message.header), ("body", &message.body)];
    let parts = parts.into_iter().filter(|(_, values)| !values.is_empty());
    let parts = parts.map(|(part, values)| json!({ "type": part, "parameters": parameters(values) }));
    let buttons = message.buttons.iter().map(|(index, value)| {
        let parameters = parameters(std::slice::from_ref(value));
        json!({ "type": "button", "sub_type": "url", "index": index, "parameters": parameters })
    });
    parts.chain(buttons).collect()
}

fn parameters(values: &[String]) -> Vec<Value> {
    values
        .iter()
        .map(|text| json!({ "type": "text", "text": text }))
        .collect()
}

#[cfg(test)]
mod tests {
    use recado_domain::shared::{MessageId, SendId};
    use uuid::Uuid;

    use super::*;

    fn message() -> OutboundTemplate {
        OutboundTemplate {
            send_id: SendId(Uuid::from_u128(7)),
            to: "+5511961234567".into(),
            template: "order_update".into(),
            language: "pt_BR".into(),
            header: vec![],
            body: vec![],
            buttons: vec![],
        }
    }

    #[test]
    fn every_part_with_values_is_an_entry() {
        let message = OutboundTemplate {
            header: vec!["Oi".into()],
            body: vec!["Ana".into(), "R$ 10,00".into()],
            buttons: vec![(1, "860198".into())],
            ..message()
        };
        let expected = json!({
            "messaging_product": "whatsapp", "recipient_type": "individual", "to": "+5511961234567", "type": "template",
            "biz_opaque_callback_data": "00000000-0000-0000-0000-000000000007",
            "template": { "name": "order_update", "language": { "code": "pt_BR" }, "components": [
                { "type": "header", "parameters": [{ "type": "text", "text": "Oi" }] },
                { "type": "body", "parameters": [
                    { "type": "text", "text": "Ana" }, { "type": "text", "text": "R$ 10,00" } ] },
                { "type": "button", "sub_type": "url", "index": 1,
                  "parameters": [{ "type": "text", "text": "860198" }] } ] } });
        assert_eq!(body(&message), expected);
    }

    #[test]
    fn a_text_goes_to_a_number_or_to_a_user() {
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
    fn without_values_there_are_no_components() {
        assert_eq!(
            body(&message())["template"],
            json!({ "name": "order_update", "language": { "code": "pt_BR" } })
        );
    }
}
