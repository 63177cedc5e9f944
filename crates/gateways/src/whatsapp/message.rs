//! A template message as the platform takes it.

use recado_domain::whatsapp::OutboundTemplate;
use serde_json::{Value, json};

/// The body of `POST /{phone_number_id}/messages`.
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
    use recado_domain::shared::SendId;
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
    fn without_values_there_are_no_components() {
        assert_eq!(
            body(&message())["template"],
            json!({ "name": "order_update", "language": { "code": "pt_BR" } })
        );
    }
}
