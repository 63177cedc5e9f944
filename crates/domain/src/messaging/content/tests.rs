//! Tests of the limits of a message's content.

use serde_json::{Value, json};

use super::*;

/// The paths of the errors of a content, or none if it is valid.
fn errors(body: &Value) -> Vec<String> {
    match check(body) {
        Ok(_) => vec![],
        Err(errors) => errors.0.into_keys().collect(),
    }
}

fn check(body: &Value) -> Result<MessageContent, crate::shared::FieldErrors> {
    let field = |name: &str| body.get(name).cloned().unwrap_or(Value::Null);
    ContentInput {
        text: serde_json::from_value(field("text")).unwrap(),
        media: serde_json::from_value(field("media")).unwrap(),
        interactive: serde_json::from_value(field("interactive")).unwrap(),
    }
    .check()
}

fn buttons() -> Value {
    json!({ "type": "buttons", "body": "Quer?", "buttons": [{ "id": "s", "title": "Sim" }] })
}

fn list(sections: &Value) -> Value {
    json!({ "type": "list", "body": "Qual?", "button": "Ver", "sections": sections })
}

fn rows(count: usize, from: usize) -> Value {
    let rows = (from..from + count).map(|n| json!({ "id": n.to_string(), "title": "Bolo" }));
    rows.collect()
}

/// The value with one field replaced.
fn with(mut value: Value, pointer: &str, field: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    value.pointer_mut(parent).unwrap()[name] = field;
    value
}

#[test]
fn content_has_exactly_one_of_three_fields() {
    assert_eq!(errors(&json!({})), ["text"]);
    let media = json!({ "type": "image", "url": "https://loja.example/a.jpg" });
    assert_eq!(errors(&json!({ "text": "Oi", "media": media })), ["media", "text"]);
    assert_eq!(
        errors(&json!({ "media": media, "interactive": buttons() })),
        ["interactive", "media"]
    );
    for valid in [
        json!({ "text": "Oi", "media": null }),
        json!({ "media": media }),
        json!({ "interactive": buttons() }),
    ] {
        assert_eq!(errors(&valid), [""; 0], "{valid}");
    }
}

#[test]
fn text_must_have_1_to_4096_characters() {
    for text in [String::new(), " \n".into(), "é".repeat(4097)] {
        assert_eq!(errors(&json!({ "text": text })), ["text"]);
    }
    assert_eq!(errors(&json!({ "text": "é".repeat(4096) })), [""; 0]);
}

#[test]
fn media_limits_name_their_fields() {
    let url = "https://loja.example/a.jpg";
    let id = "00000000-0000-0000-0000-000000000001";
    for (media, expected) in [
        (
            json!({ "type": "image", "url": url, "caption": "é".repeat(1024) }),
            vec![],
        ),
        (json!({ "type": "sticker", "media_id": id }), vec![]),
        (
            json!({ "type": "document", "url": url, "file_name": "a".repeat(240) }),
            vec![],
        ),
        (json!({ "url": url }), vec!["media.type"]),
        (json!({ "type": "gif", "url": url }), vec!["media.type"]),
        (json!({ "type": "image" }), vec!["media.media_id"]),
        (
            json!({ "type": "image", "url": url, "media_id": id }),
            vec!["media.url"],
        ),
        (
            json!({ "type": "image", "url": "http://loja.example/a" }),
            vec!["media.url"],
        ),
        (json!({ "type": "image", "url": "https://" }), vec!["media.url"]),
        (
            json!({ "type": "image", "url": "https://u:p@loja.example/" }),
            vec!["media.url"],
        ),
        (
            json!({ "type": "image", "url": format!("https://l.example/{}", "a".repeat(2048)) }),
            vec!["media.url"],
        ),
        (
            json!({ "type": "image", "url": url, "caption": "a".repeat(1025) }),
            vec!["media.caption"],
        ),
        (
            json!({ "type": "audio", "url": url, "caption": "a" }),
            vec!["media.caption"],
        ),
        (
            json!({ "type": "sticker", "url": url, "caption": "a" }),
            vec!["media.caption"],
        ),
        (
            json!({ "type": "image", "url": url, "file_name": "a.jpg" }),
            vec!["media.file_name"],
        ),
        (
            json!({ "type": "document", "url": url, "file_name": "a".repeat(241) }),
            vec!["media.file_name"],
        ),
    ] {
        assert_eq!(errors(&json!({ "media": media })), expected, "{media}");
    }
}

#[test]
fn button_limits_name_their_fields() {
    let button = |id: &str, title: &str| json!({ "id": id, "title": title });
    let many = |count: usize| (0..count).map(|n| button(&n.to_string(), "Sim")).collect::<Value>();
    let header = json!({ "media": { "type": "image", "url": "https://loja.example/a.jpg" } });
    let longest = button(&"i".repeat(256), &"t".repeat(20));
    for (pointer, field, expected) in [
        ("/buttons", many(3), vec![]),
        ("/buttons", json!([longest]), vec![]),
        ("/header", header.clone(), vec![]),
        ("/header", json!({ "text": "é".repeat(60) }), vec![]),
        ("/header", json!("Bolos"), vec![]),
        ("/buttons", many(4), vec!["interactive.buttons"]),
        ("/buttons", json!([]), vec!["interactive.buttons"]),
        (
            "/buttons",
            json!([button("a", &"t".repeat(21))]),
            vec!["interactive.buttons[0].title"],
        ),
        (
            "/buttons",
            json!([button("", "Sim")]),
            vec!["interactive.buttons[0].id"],
        ),
        (
            "/buttons",
            json!([button(&"i".repeat(257), "Sim")]),
            vec!["interactive.buttons[0].id"],
        ),
        (
            "/buttons",
            json!([button("a", "Sim"), button("a", "Não")]),
            vec!["interactive.buttons[1].id"],
        ),
        ("/body", json!("é".repeat(1025)), vec!["interactive.body"]),
        ("/body", json!(""), vec!["interactive.body"]),
        ("/footer", json!("é".repeat(61)), vec!["interactive.footer"]),
        (
            "/header",
            json!({ "text": "é".repeat(61) }),
            vec!["interactive.header.text"],
        ),
        ("/header", json!({}), vec!["interactive.header.text"]),
        (
            "/header",
            with(header.clone(), "/text", json!("a")),
            vec!["interactive.header.media"],
        ),
        (
            "/header",
            with(header.clone(), "/media/caption", json!("a")),
            vec!["interactive.header.media.caption"],
        ),
        (
            "/header",
            with(header, "/media/type", json!("audio")),
            vec!["interactive.header.media.type"],
        ),
        ("/type", json!("carousel"), vec!["interactive.type"]),
        ("/type", Value::Null, vec!["interactive.type"]),
    ] {
        let interactive = with(buttons(), pointer, field);
        assert_eq!(
            errors(&json!({ "interactive": interactive })),
            expected,
            "{interactive}"
        );
    }
}

/// Changes of a list, each with the fields that it makes invalid.
fn list_cases() -> Vec<(&'static str, Value, Vec<&'static str>)> {
    let two = |title: Value| json!([{ "title": "Bolos", "rows": rows(5, 0) }, { "title": title, "rows": rows(5, 5) }]);
    let row = |row: Value| json!([{ "rows": [row] }]);
    let longest = json!({ "id": "i".repeat(200), "title": "t".repeat(24), "description": "d".repeat(72) });
    vec![
        ("/sections", json!([{ "rows": rows(10, 0) }]), vec![]),
        ("/sections", two(json!("t".repeat(24))), vec![]),
        ("/sections", row(longest.clone()), vec![]),
        ("/body", json!("é".repeat(4096)), vec![]),
        ("/header", json!({ "text": "Bolos" }), vec![]),
        ("/body", json!("é".repeat(4097)), vec!["interactive.body"]),
        ("/button", json!("b".repeat(21)), vec!["interactive.button"]),
        ("/button", Value::Null, vec!["interactive.button"]),
        ("/sections", json!([]), vec!["interactive.sections"]),
        (
            "/sections",
            (0..11).map(|n| json!({ "title": "t", "rows": rows(1, n) })).collect(),
            vec!["interactive.sections"],
        ),
        (
            "/sections",
            json!([{ "rows": rows(11, 0) }]),
            vec!["interactive.sections[0].rows"],
        ),
        (
            "/sections",
            json!([{ "title": "a", "rows": rows(6, 0) }, { "title": "b", "rows": rows(5, 6) }]),
            vec!["interactive.sections[1].rows"],
        ),
        (
            "/sections",
            json!([{ "rows": [] }]),
            vec!["interactive.sections[0].rows"],
        ),
        ("/sections", two(Value::Null), vec!["interactive.sections[1].title"]),
        (
            "/sections",
            two(json!("t".repeat(25))),
            vec!["interactive.sections[1].title"],
        ),
        (
            "/sections",
            json!([{ "title": "a", "rows": rows(1, 0) }, { "title": "b", "rows": rows(1, 0) }]),
            vec!["interactive.sections[1].rows[0].id"],
        ),
        (
            "/sections",
            row(with(longest.clone(), "/id", json!("i".repeat(201)))),
            vec!["interactive.sections[0].rows[0].id"],
        ),
        (
            "/sections",
            row(with(longest.clone(), "/title", json!("t".repeat(25)))),
            vec!["interactive.sections[0].rows[0].title"],
        ),
        (
            "/sections",
            row(with(longest, "/description", json!("d".repeat(73)))),
            vec!["interactive.sections[0].rows[0].description"],
        ),
        (
            "/header",
            json!({ "media": { "type": "image", "url": "https://l.example/a" } }),
            vec!["interactive.header.media"],
        ),
    ]
}

#[test]
fn list_limits_name_their_fields() {
    let one = json!([{ "rows": rows(1, 0) }]);
    for (pointer, field, expected) in list_cases() {
        let interactive = with(list(&one), pointer, field);
        assert_eq!(
            errors(&json!({ "interactive": interactive })),
            expected,
            "{interactive}"
        );
    }
}

#[test]
fn content_reports_its_type_text_and_file() {
    let content = |body: Value| check(&body).unwrap();
    let text = content(json!({ "text": "Oi" }));
    assert_eq!((text.kind(), text.text(), text.media()), ("text", Some("Oi"), None));
    let image = json!({ "type": "image", "url": "https://loja.example/a.jpg", "caption": "Bolo" });
    let media = content(json!({ "media": image }));
    assert_eq!(
        (media.kind(), media.text(), media.caption()),
        ("image", Some("Bolo"), Some("Bolo"))
    );
    assert_eq!(media.media().map(|(path, _)| path), Some("media"));
    let header = json!({ "media": { "type": "image", "url": "https://loja.example/a.jpg" } });
    let interactive = content(json!({ "interactive": with(buttons(), "/header", header) }));
    assert_eq!((interactive.kind(), interactive.text()), ("interactive", Some("Quer?")));
    assert_eq!(
        interactive.media().map(|(path, _)| path),
        Some("interactive.header.media")
    );
    for content in [text, media, interactive] {
        let stored = serde_json::to_value(&content).unwrap();
        assert_eq!(serde_json::from_value::<MessageContent>(stored).unwrap(), content);
    }
}
