//! The rules of a template's definition: WhatsApp's format rules at creation, and the number and kind of the parameters
//! at every send.

use std::collections::BTreeSet;

use serde_json::Value;

use super::graph::GraphError;

mod format;
mod parts;

use parts::{component, components, kind, same_count, variables};
pub(super) use parts::{list, text};

/// Checks a definition as WhatsApp does at creation.
pub(super) fn check(template: &Value) -> Result<(), GraphError> {
    let bad = |details: &str| Err(GraphError::new(100, details));
    let name = text(template, "name");
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.is_empty() || name.len() > 512 || !name.chars().all(plain) {
        return bad("name must be 1 to 512 lower-case letters, digits and underscores");
    }
    if text(template, "language").is_empty() {
        return bad("language is required");
    }
    let category = text(template, "category");
    if !["MARKETING", "UTILITY", "AUTHENTICATION"].contains(&category) {
        return bad("category must be MARKETING, UTILITY or AUTHENTICATION");
    }
    if category != "AUTHENTICATION" && component(template, "BODY").is_none() {
        return bad("a BODY component is required");
    }
    let named = is_named(template);
    components(template)
        .iter()
        .try_for_each(|component| check_component(component, named))?;
    format::check(template, category)
}

/// Whether the placeholders of header and body are named instead of numbered.
fn is_named(template: &Value) -> bool {
    text(template, "parameter_format").eq_ignore_ascii_case("NAMED")
}

fn check_component(component: &Value, named: bool) -> Result<(), GraphError> {
    let content = text(component, "text");
    let length = content.chars().count();
    match kind(component).as_str() {
        "HEADER" if length > 60 => Err(GraphError::new(2388040, "the header is longer than 60 characters")),
        "HEADER" if variables(content).len() > 1 => Err(GraphError::new(2388047, "the header has several variables")),
        "FOOTER" if length > 60 => Err(GraphError::new(2388040, "the footer is longer than 60 characters")),
        "FOOTER" if !variables(content).is_empty() => Err(GraphError::new(2388073, "the footer has a variable")),
        "HEADER" if named => check_named_examples(component, content, "header_text_named_params", 2388047),
        "BODY" => check_body(component, content, length, named),
        "BUTTONS" => check_buttons(list(component, "buttons")),
        "HEADER" | "FOOTER" | "CAROUSEL" | "LIMITED_TIME_OFFER" => Ok(()),
        kind => Err(GraphError::new(100, format!("unknown component type {kind:?}"))),
    }
}

fn check_body(component: &Value, content: &str, length: usize, named: bool) -> Result<(), GraphError> {
    if length > 1024 {
        return Err(GraphError::new(2388040, "the body is longer than 1024 characters"));
    }
    if has_adjacent_variables(content) {
        return Err(GraphError::new(2388299, "the body has variables side by side"));
    }
    let trimmed = content.trim();
    if trimmed.starts_with("{{") || trimmed.ends_with("}}") {
        return Err(GraphError::new(
            2388299,
            "the body may not begin or end with a variable",
        ));
    }
    if named {
        return check_named_examples(component, content, "body_text_named_params", 2388072);
    }
    let expected = variables(content).len();
    let actual = component.pointer("/example/body_text/0").and_then(Value::as_array);
    let actual = actual.map_or(0, Vec::len);
    if expected != actual {
        return Err(GraphError::new(
            2388072,
            format!("the body has {expected} variables and {actual} examples"),
        ));
    }
    Ok(())
}

/// Checks that every variable of a text has a valid name and exactly one example with that name.
fn check_named_examples(component: &Value, content: &str, field: &str, code: u32) -> Result<(), GraphError> {
    let expected = variables(content);
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if let Some(name) = expected.iter().find(|name| !name.chars().all(plain)) {
        return Err(GraphError::new(code, format!("{name} is not the name of a variable")));
    }
    let examples = component.get("example").map_or(&[][..], |example| list(example, field));
    let actual: BTreeSet<&str> = examples.iter().map(|example| text(example, "param_name")).collect();
    if actual != expected || examples.len() != expected.len() {
        return Err(GraphError::new(
            code,
            format!("{field} does not fit the variables {expected:?}"),
        ));
    }
    Ok(())
}

fn check_buttons(buttons: &[Value]) -> Result<(), GraphError> {
    if buttons.len() > 10 {
        return Err(GraphError::new(100, "more than 10 buttons"));
    }
    if buttons.iter().any(|button| text(button, "text").chars().count() > 25) {
        return Err(GraphError::new(
            2388040,
            "a button's label is longer than 25 characters",
        ));
    }
    Ok(())
}

/// Whether only white space is between two variables.
fn has_adjacent_variables(content: &str) -> bool {
    let closed = content.split("}}").skip(1);
    content.contains("{{") && closed.into_iter().any(|rest| rest.trim_start().starts_with("{{"))
}

/// Returns 132018 if a text parameter has a line break, a tab or more than four spaces in a row.
pub(super) fn check_white_space(sent: &Value) -> Result<(), GraphError> {
    for component in components(sent) {
        for parameter in list(component, "parameters") {
            let value = text(parameter, "text");
            if value.contains(['\n', '\r', '\t']) || value.contains("     ") {
                return Err(GraphError::new(
                    132018,
                    "Param text cannot have new-line/tab characters or more than 4 consecutive spaces",
                ));
            }
        }
        list(component, "cards").iter().try_for_each(check_white_space)?;
    }
    Ok(())
}

/// Checks the components of a send against the template's: 132000 for a wrong number, 132012 for a wrong kind, and for
/// a wrong, missing or unwanted `parameter_name`.
pub(super) fn check_parameters(template: &Value, sent: &Value) -> Result<(), GraphError> {
    check_components(template, sent, is_named(template))
}

fn check_components(template: &Value, sent: &Value, named: bool) -> Result<(), GraphError> {
    for part in ["HEADER", "BODY"] {
        let actual = components(sent).iter().find(|component| kind(component) == part);
        let actual = actual.map_or(&[][..], |component| list(component, "parameters"));
        match component(template, part) {
            Some(defined) => check_part(part, defined, actual, named)?,
            None => same_count(part, 0, actual.len())?,
        }
    }
    format::check_offer_parameters(template, components(sent))?;
    if let Some(buttons) = component(template, "BUTTONS") {
        check_button_parameters(list(buttons, "buttons"), components(sent))?;
    }
    let Some(carousel) = component(template, "CAROUSEL") else {
        return Ok(());
    };
    let actual = components(sent).iter().find(|component| kind(component) == "CAROUSEL");
    let actual = actual.map_or(&[][..], |component| list(component, "cards"));
    let cards = list(carousel, "cards");
    same_count("cards", cards.len(), actual.len())?;
    cards
        .iter()
        .zip(actual)
        .try_for_each(|(card, actual)| check_components(card, actual, named))
}

fn check_part(part: &str, defined: &Value, actual: &[Value], named: bool) -> Result<(), GraphError> {
    let format = text(defined, "format").to_ascii_uppercase();
    if part == "HEADER" && !format.is_empty() && format != "TEXT" {
        same_count(part, 1, actual.len())?;
        let is_complete = |parameter: &Value| format != "LOCATION" || format::is_location(parameter);
        let matches = actual
            .iter()
            .all(|parameter| kind(parameter) == format && is_complete(parameter));
        return if matches {
            Ok(())
        } else {
            Err(format_mismatch(part, &format))
        };
    }
    let expected = variables(text(defined, "text"));
    same_count(part, expected.len(), actual.len())?;
    let names: BTreeSet<&str> = actual
        .iter()
        .filter_map(|parameter| parameter.get("parameter_name"))
        .filter_map(Value::as_str)
        .collect();
    match (named, names) {
        (true, names) if names == expected => Ok(()),
        (false, names) if names.is_empty() => Ok(()),
        (true, names) => Err(format_mismatch(
            part,
            &format!("{expected:?} by their names, but {names:?}"),
        )),
        (false, names) => Err(format_mismatch(part, &format!("numbered variables, but {names:?}"))),
    }
}

fn check_button_parameters(buttons: &[Value], sent: &[Value]) -> Result<(), GraphError> {
    for (position, button) in buttons.iter().enumerate() {
        let entry = sent
            .iter()
            .find(|component| kind(component) == "BUTTON" && index(component) == Some(position));
        let actual = entry.map_or(0, |component| list(component, "parameters").len());
        let expected = match kind(button).as_str() {
            "URL" => usize::from(!variables(text(button, "url")).is_empty()),
            "COPY_CODE" => 1,
            // A quick reply may carry a payload. The other kinds accept any parameters.
            _ => actual,
        };
        same_count("button", expected, actual)?;
    }
    Ok(())
}

fn format_mismatch(part: &str, expected: &str) -> GraphError {
    GraphError::new(
        132012,
        format!("{}: the parameters do not fit {expected}", part.to_ascii_lowercase()),
    )
}

/// The parameters of a send as plain text, in order.
pub(super) fn parameters(sent: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for component in components(sent) {
        for parameter in list(component, "parameters") {
            let of_kind = |field: &str| {
                parameter
                    .get(text(parameter, "type"))
                    .and_then(|media| media.get(field))
            };
            let value = ["text", "payload", "coupon_code"]
                .into_iter()
                .find_map(|field| parameter.get(field));
            let value = value.or_else(|| of_kind("id")).or_else(|| of_kind("link"));
            found.push(value.and_then(Value::as_str).unwrap_or_default().to_owned());
        }
        found.extend(list(component, "cards").iter().flat_map(parameters));
    }
    found
}

fn index(component: &Value) -> Option<usize> {
    match component.get("index")? {
        Value::String(index) => index.parse().ok(),
        index => index.as_u64().and_then(|index| usize::try_from(index).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parameters_of_header_body_and_buttons_are_checked() {
        let template = json!({ "components": [
            { "type": "HEADER", "format": "IMAGE" },
            { "type": "BODY", "text": "Oi {{1}}, use {{2}} e {{1}}." },
            { "type": "BUTTONS", "buttons": [
                { "type": "QUICK_REPLY", "text": "Sair" },
                { "type": "URL", "text": "Ver", "url": "https://loja.example/{{1}}" } ] } ] });
        let sent = |body: usize, index: Value| {
            let texts = vec![json!({ "type": "text", "text": "x" }); body];
            json!({ "components": [
                { "type": "header", "parameters": [{ "type": "image", "image": { "id": "7" } }] },
                { "type": "body", "parameters": texts },
                { "type": "button", "sub_type": "URL", "index": index, "parameters": [{ "type": "text", "text": "a" }] } ] })
        };
        assert!(check_parameters(&template, &sent(2, json!(1))).is_ok());
        assert!(
            check_parameters(&template, &sent(2, json!("1"))).is_ok(),
            "the index may be text"
        );
        assert!(check_parameters(&template, &sent(1, json!(1))).is_err());
        assert!(check_parameters(&template, &json!({})).is_err());
        assert_eq!(parameters(&sent(1, json!(1))), ["7", "x", "a"]);
    }

    #[test]
    fn named_variables_require_parameter_names() {
        let body = json!([{ "type": "BODY", "text": "Oi {{nome}}, use {{cupom}}." }]);
        let template = |format: &str| json!({ "parameter_format": format, "components": body });
        let code = |template: Value, names: &[Option<&str>]| {
            let parameters: Vec<Value> = names
                .iter()
                .map(|name| match name {
                    Some(name) => json!({ "type": "text", "parameter_name": name, "text": "x" }),
                    None => json!({ "type": "text", "text": "x" }),
                })
                .collect();
            let sent = json!({ "components": [{ "type": "body", "parameters": parameters }] });
            check_parameters(&template, &sent).map_err(|error| error.code())
        };
        let both = [Some("cupom"), Some("nome")];
        assert_eq!(code(template("NAMED"), &both), Ok(()));
        assert_eq!(code(template("NAMED"), &both[..1]), Err(132000));
        for wrong in [
            [None, None],
            [Some("nome"), None],
            [Some("nome"); 2],
            [Some("nome"), Some("dia")],
        ] {
            assert_eq!(code(template("NAMED"), &wrong), Err(132012), "{wrong:?}");
        }
        assert_eq!(code(template("POSITIONAL"), &both), Err(132012));
        assert_eq!(code(json!({ "components": body }), &[None, None]), Ok(()));
    }

    #[test]
    fn named_variables_require_named_examples() {
        let template = |text: &str, names: &[&str]| {
            let examples: Vec<Value> = names
                .iter()
                .map(|name| json!({ "param_name": name, "example": "x" }))
                .collect();
            json!({ "name": "a", "language": "pt_BR", "category": "UTILITY", "parameter_format": "NAMED",
                "components": [{ "type": "BODY", "text": text, "example": { "body_text_named_params": examples } }] })
        };
        assert!(check(&template("Oi {{nome}}!", &["nome"])).is_ok());
        for (text, names) in [
            ("Oi {{nome}}!", &[][..]),
            ("Oi {{nome}}!", &["dia"]),
            ("Oi {{nome}}!", &["nome", "nome"]),
            ("Oi {{Nome}}!", &["Nome"]),
        ] {
            assert!(check(&template(text, names)).is_err(), "{text} {names:?}");
        }
    }

    #[test]
    fn carousel_cards_are_checked_one_by_one() {
        let card = json!({ "components": [{ "type": "HEADER", "format": "IMAGE" }] });
        let template = json!({ "components": [
            { "type": "BODY", "text": "Oi" }, { "type": "CAROUSEL", "cards": [card, card] } ] });
        let actual = json!({ "components": [
            { "type": "header", "parameters": [{ "type": "image", "image": { "link": "https://x.example" } }] }] });
        let sent = |cards: Vec<&Value>| json!({ "components": [{ "type": "carousel", "cards": cards }] });
        assert!(check_parameters(&template, &sent(vec![&actual, &actual])).is_ok());
        assert!(check_parameters(&template, &sent(vec![&actual])).is_err());
        assert!(check_parameters(&template, &sent(vec![&actual, &json!({})])).is_err());
    }
}
