//! The rules of buttons, cards, locations, limited-time offers and delivery times.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::parts::{component, components, kind, list, same_count, text, variables};
use crate::now_ms;
use crate::whatsapp::graph::GraphError;

const HEADERS: [&str; 6] = ["", "TEXT", "IMAGE", "VIDEO", "DOCUMENT", "LOCATION"];

fn refused<T>(code: u32, details: &str) -> Result<T, GraphError> {
    Err(GraphError::new(code, details))
}

/// Checks what the components of a definition may be together.
pub(super) fn check(template: &Value, category: &str) -> Result<(), GraphError> {
    let header = component(template, "HEADER").map(format_of).unwrap_or_default();
    if !HEADERS.contains(&header.as_str()) {
        return refused(100, "the header has an unknown format");
    }
    if ["IMAGE", "VIDEO", "DOCUMENT"].contains(&header.as_str()) && !has_handle(component(template, "HEADER")) {
        return refused(2388273, "a media header needs an example");
    }
    check_ttl(template, category)?;
    let buttons = component(template, "BUTTONS").map_or(&[][..], |buttons| list(buttons, "buttons"));
    if category == "AUTHENTICATION" {
        return match buttons {
            [button] if kind(button) == "OTP" && header.is_empty() => Ok(()),
            _ => refused(
                2388039,
                "an authentication template has exactly one OTP button and no header",
            ),
        };
    }
    check_buttons(buttons)?;
    if let Some(offer) = component(template, "LIMITED_TIME_OFFER") {
        check_offer(template, offer, category, &header, buttons)?;
    }
    match component(template, "CAROUSEL") {
        Some(carousel) => check_carousel(carousel, category),
        None => Ok(()),
    }
}

fn format_of(component: &Value) -> String {
    text(component, "format").to_ascii_uppercase()
}

fn has_handle(header: Option<&Value>) -> bool {
    let handle = header.and_then(|header| header.pointer("/example/header_handle/0"));
    handle.and_then(Value::as_str).is_some_and(|handle| !handle.is_empty())
}

fn check_ttl(template: &Value, category: &str) -> Result<(), GraphError> {
    let range: RangeInclusive<i64> = match category {
        "AUTHENTICATION" => 30..=900,
        "UTILITY" => 30..=43_200,
        _ => 43_200..=2_592_000,
    };
    match template.get("message_send_ttl_seconds") {
        None | Some(Value::Null) => Ok(()),
        Some(ttl) if ttl.as_i64().is_some_and(|ttl| range.contains(&ttl)) => Ok(()),
        Some(_) => refused(100, "message_send_ttl_seconds does not fit the category"),
    }
}

fn check_buttons(buttons: &[Value]) -> Result<(), GraphError> {
    for (button_type, most) in [("URL", 2), ("PHONE_NUMBER", 1), ("COPY_CODE", 1), ("OTP", 0)] {
        if buttons.iter().filter(|button| kind(button) == button_type).count() > most {
            return refused(2388039, "too many buttons of one type");
        }
    }
    let mut groups: Vec<bool> = buttons.iter().map(|button| kind(button) == "QUICK_REPLY").collect();
    groups.dedup();
    if groups.iter().filter(|quick| **quick).count() > 1 {
        return refused(2388039, "quick replies must be next to each other");
    }
    buttons.iter().try_for_each(check_button)
}

fn check_button(button: &Value) -> Result<(), GraphError> {
    let label = text(button, "text");
    let example = button.get("example");
    let example = example
        .and_then(|example| example.get(0).unwrap_or(example).as_str())
        .unwrap_or_default();
    match kind(button).as_str() {
        "QUICK_REPLY" | "URL" | "PHONE_NUMBER" if label.trim().is_empty() => refused(2388040, "a button has no label"),
        "URL" => {
            let url = text(button, "url");
            let is_variable = !variables(url).is_empty();
            match url.chars().count() {
                1..=2000 if !is_variable => Ok(()),
                1..=2000 if url.ends_with("}}") && variables(url).len() == 1 && !example.trim().is_empty() => Ok(()),
                _ => refused(2388039, "the url of a button is malformed"),
            }
        }
        "PHONE_NUMBER" if !(1..=20).contains(&text(button, "phone_number").chars().count()) => {
            refused(2388039, "the phone number of a button is malformed")
        }
        "COPY_CODE" if !(1..=20).contains(&example.chars().count()) => refused(2388039, "a code is malformed"),
        _ => Ok(()),
    }
}

fn check_offer(
    template: &Value,
    offer: &Value,
    category: &str,
    header: &str,
    buttons: &[Value],
) -> Result<(), GraphError> {
    let Some(content) = offer.get("limited_time_offer") else {
        return refused(100, "limited_time_offer is required");
    };
    let body = component(template, "BODY").map_or("", |body| text(body, "text"));
    let code = buttons.iter().find(|button| kind(button) == "COPY_CODE");
    let code = code.map_or("", |button| text(button, "example"));
    let fits = category == "MARKETING"
        && (1..=16).contains(&text(content, "text").chars().count())
        && component(template, "FOOTER").is_none()
        && component(template, "CAROUSEL").is_none()
        && body.chars().count() <= 600
        && ["", "IMAGE", "VIDEO"].contains(&header)
        && buttons.iter().any(|button| kind(button) == "URL")
        && code.chars().count() <= 15;
    if !fits {
        return refused(2388039, "the limited-time offer does not fit the template");
    }
    if expires(offer) && buttons.first().is_none_or(|button| kind(button) != "COPY_CODE") {
        return refused(2388039, "an offer that expires needs a COPY_CODE button first");
    }
    Ok(())
}

fn expires(offer: &Value) -> bool {
    let expires = offer.pointer("/limited_time_offer/has_expiration");
    expires.and_then(Value::as_bool).unwrap_or_default()
}

fn check_carousel(carousel: &Value, category: &str) -> Result<(), GraphError> {
    let cards = list(carousel, "cards");
    if category != "MARKETING" || !(2..=10).contains(&cards.len()) {
        return refused(2388039, "a carousel is a MARKETING template with 2 to 10 cards");
    }
    let shape = |card: &Value| {
        let parts = components(card).iter().map(|part| {
            let buttons = list(part, "buttons").iter().map(kind).collect::<Vec<_>>();
            (kind(part), format_of(part), buttons)
        });
        parts.collect::<Vec<_>>()
    };
    let first = cards.first().map(shape);
    for card in cards {
        if Some(shape(card)) != first {
            return refused(2388039, "the cards have different components");
        }
        let header = component(card, "HEADER");
        if !header.is_some_and(|header| ["IMAGE", "VIDEO"].contains(&format_of(header).as_str())) {
            return refused(2388039, "a card needs an image or a video");
        }
        if !has_handle(header) {
            return refused(2388273, "a media header needs an example");
        }
        if component(card, "BODY").is_some_and(|body| !(1..=160).contains(&text(body, "text").chars().count())) {
            return refused(2388040, "the body of a card has 1 to 160 characters");
        }
        let buttons = component(card, "BUTTONS").map_or(&[][..], |buttons| list(buttons, "buttons"));
        if buttons.len() > 2 {
            return refused(2388039, "a card has more than 2 buttons");
        }
        check_buttons(buttons)?;
    }
    Ok(())
}

/// Checks the end of a limited-time offer in a send: one time in the future if the offer expires, else none.
pub(super) fn check_offer_parameters(template: &Value, sent: &[Value]) -> Result<(), GraphError> {
    let expected = component(template, "LIMITED_TIME_OFFER").is_some_and(expires);
    let sent = sent.iter().find(|component| kind(component) == "LIMITED_TIME_OFFER");
    let actual = sent.map_or(&[][..], |component| list(component, "parameters"));
    same_count("limited_time_offer", usize::from(expected), actual.len())?;
    let ends_later = |parameter: &Value| {
        let end = parameter.pointer("/limited_time_offer/expiration_time_ms");
        kind(parameter) == "LIMITED_TIME_OFFER" && end.and_then(Value::as_u64).is_some_and(|end| end > now_ms())
    };
    match actual.iter().all(ends_later) {
        true => Ok(()),
        false => refused(132012, "limited_time_offer: the parameter has no time in the future"),
    }
}

/// Whether a header's parameter has a location.
pub(super) fn is_location(parameter: &Value) -> bool {
    let number = |field: &str| {
        parameter
            .pointer(&format!("/location/{field}"))
            .is_some_and(Value::is_number)
    };
    let texts = ["name", "address"].map(|field| parameter.pointer(&format!("/location/{field}")));
    let is_filled = |text: Option<&Value>| text.and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty());
    number("latitude") && number("longitude") && texts.into_iter().all(is_filled)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{check as check_definition, check_parameters};

    use super::*;

    fn code(result: Result<(), GraphError>) -> Option<u32> {
        result.err().map(|error| error.code())
    }

    fn offer(has_expiration: bool, changed: &Value) -> Value {
        let mut template = json!({ "name": "a", "language": "pt_BR", "category": "MARKETING", "components": [
            { "type": "LIMITED_TIME_OFFER", "limited_time_offer": { "text": "Hoje", "has_expiration": has_expiration } },
            { "type": "BODY", "text": "Oi" },
            { "type": "BUTTONS", "buttons": [
                { "type": "COPY_CODE", "example": "PROMO10" },
                { "type": "URL", "text": "Ver", "url": "https://l.example" }] } ] });
        template
            .as_object_mut()
            .unwrap()
            .extend(changed.as_object().unwrap().clone());
        template
    }

    #[test]
    fn offers_and_delivery_times_are_checked() {
        assert_eq!(code(check_definition(&offer(true, &json!({})))), None);
        for wrong in [
            json!({ "category": "UTILITY" }),
            json!({ "message_send_ttl_seconds": 600 }),
            json!({ "components": [{ "type": "LIMITED_TIME_OFFER", "limited_time_offer": { "text": "Hoje" } },
                { "type": "BODY", "text": "Oi" }] }),
        ] {
            assert!(check_definition(&offer(true, &wrong)).is_err(), "{wrong}");
        }
        let end = |at: u64| {
            json!({ "components": [{ "type": "limited_time_offer", "parameters": [
                { "type": "limited_time_offer", "limited_time_offer": { "expiration_time_ms": at } }] },
                { "type": "button", "sub_type": "copy_code", "index": 0, "parameters": [{ "type": "coupon_code" }] }] })
        };
        let none = json!({});
        assert_eq!(code(check_parameters(&offer(true, &none), &end(now_ms() + 1000))), None);
        assert_eq!(code(check_parameters(&offer(true, &none), &end(1))), Some(132012));
        assert_eq!(code(check_parameters(&offer(true, &none), &none)), Some(132000));
        assert_eq!(
            code(check_parameters(&offer(false, &none), &end(now_ms() + 1000))),
            Some(132000)
        );
    }

    #[test]
    fn locations_are_checked() {
        let template = json!({ "components": [{ "type": "HEADER", "format": "LOCATION" }] });
        let sent = |location: Value| json!({ "components": [{ "type": "header", "parameters": [{ "type": "location", "location": location }] }] });
        let location = json!({ "latitude": 1.5, "longitude": 2, "name": "Loja", "address": "Rua A" });
        assert_eq!(code(check_parameters(&template, &sent(location))), None);
        assert_eq!(
            code(check_parameters(&template, &sent(json!({ "latitude": 1 })))),
            Some(132012)
        );
        assert_eq!(code(check_parameters(&template, &json!({}))), Some(132000));
    }
}
