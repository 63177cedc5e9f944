//! Tests of the reader of inbound events.

use time::macros::datetime;

use super::*;

fn read(value: &Value) -> Vec<InboundEvent> {
    inbound_events(value).collect()
}

fn messages(items: &Value) -> Value {
    json!({ "metadata": { "phone_number_id": "1065" }, "messages": items,
            "contacts": [{ "profile": { "name": "Ana" }, "wa_id": "553188887777", "user_id": "BR.1" },
                         { "profile": { "name": "Bia" }, "user_id": "BR.2" }] })
}

fn read_message(item: &Value) -> InboundMessage {
    match read(&messages(&json!([item]))).remove(0) {
        InboundEvent::Message(message) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn text_message_is_read_with_sender_and_time() {
    let message = read_message(
        &json!({ "from": "553188887777", "id": "wamid.1", "timestamp": "1750030073", "type": "text",
            "text": { "body": "Oi\u{0}!" }, "context": { "id": "wamid.0" } }),
    );
    let sender = Sender {
        wa_id: Some("553188887777".into()),
        user_id: Some("BR.1".into()),
        name: Some("Ana".into()),
        ..Sender::default()
    };
    let expected = InboundMessage {
        wa_message_id: "wamid.1".into(),
        sender,
        at: datetime!(2025-06-15 23:27:53 UTC),
        kind: "text".into(),
        text: Some("Oi!".into()),
        can_opt_out: true,
        answered_wa_id: None,
        referral: None,
        payload: json!({ "context": { "id": "wamid.0" } }),
        caption: None,
        interactive: None,
        quoted: Some("wamid.0".into()),
        file: None,
    };
    assert_eq!(message, expected);
}

fn item(kind: &str, content: Value) -> Value {
    json!({ "from": "553188887777", "id": "m", "timestamp": "1", "type": kind, kind: content })
}

#[test]
fn file_is_read_with_caption_name_and_hash() {
    let content = json!({ "id": 14, "mime_type": "application/pdf", "filename": "a\u{0}.pdf", "caption": "Menu",
            "sha256": "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=" });
    let message = read_message(&item("document", content));
    assert_eq!(
        (message.text.as_deref(), message.caption.as_deref()),
        (Some("Menu"), Some("Menu"))
    );
    let expected = AnnouncedFile {
        kind: FileKind::Document,
        wa_media_id: "14".into(),
        mime_type: Some("application/pdf".into()),
        file_name: Some("a.pdf".into()),
        sha256: Some([7; 32]),
    };
    assert_eq!(message.file, Some(expected));
    let unnamed = read_message(&item("document", json!({ "id": "1", "filename": "a.pdf" })));
    assert_eq!((unnamed.text.as_deref(), unnamed.caption), (Some("a.pdf"), None));
    assert_eq!(
        read_message(&item("audio", json!({ "mime_type": "audio/ogg" }))).file,
        None
    );
}

#[test]
fn card_is_an_answer_only_with_its_origin_and_one_number() {
    let answered = |cards: Value| read_message(&item("contacts", cards)).answered_wa_id;
    let number = || json!({ "phone": "+55 11 6123-4567", "wa_id": "551161234567", "type": "CELL" });
    let card = |origin: Value, phones: Value| json!({ "name": { "formatted_name": "Ana" }, "origin": origin, "phones": phones });
    let answer = || card(json!("contact_request"), json!([number()]));
    let wa_id = Some("551161234567".to_owned());
    assert_eq!(answered(json!([answer()])), wa_id);
    let without_phone = json!([{ "wa_id": "551161234567" }]);
    assert_eq!(answered(json!([card(json!("contact_request"), without_phone)])), wa_id);
    let other_phone = json!([{ "phone": "+5511969999999", "wa_id": "551161234567" }]);
    for cards in [
        json!([]),
        json!([answer(), answer()]),
        json!([card(json!("other"), json!([number()]))]),
        json!([card(Value::Null, json!([number()]))]),
        json!([{ "phones": [number()] }]),
        json!([card(json!("contact_request"), json!([number(), number()]))]),
        json!([card(json!("contact_request"), json!([]))]),
        json!([card(json!("contact_request"), json!([{ "phone": "+5511961234567" }]))]),
        json!([card(json!("contact_request"), other_phone)]),
        json!(answer()),
    ] {
        assert_eq!(answered(cards.clone()), None, "{cards}");
    }
    let text = json!({ "from": "553188887777", "id": "m", "timestamp": "1", "type": "text", "text": { "body": "oi" },
        "contacts": [answer()] });
    assert_eq!(read_message(&text).answered_wa_id, None);
}

#[test]
fn pressed_button_and_flow_data_are_read() {
    let pressed = |kind: &str, content: Value| read_message(&item(kind, content)).interactive;
    let reply = json!({ "id": "s", "title": "Sim", "description": "d" });
    for field in ["button_reply", "list_reply"] {
        let content = json!({ "type": field, field: reply });
        assert_eq!(
            pressed("interactive", content),
            Some(json!({ "id": "s", "title": "Sim" }))
        );
    }
    let template = json!({ "payload": "p", "text": "Sair" });
    assert_eq!(pressed("button", template), Some(json!({ "id": "p", "title": "Sair" })));
    let flow = |data: &str| {
        pressed(
            "interactive",
            json!({ "nfm_reply": { "response_json": data, "body": "Sent" } }),
        )
    };
    assert_eq!(flow("{\"day\":\"2026-12-01\"}"), Some(json!({ "day": "2026-12-01" })));
    assert_eq!((flow("[1]"), flow("{")), (None, None));
    assert_eq!(pressed("text", json!({ "body": "Oi" })), None);
}

#[test]
fn echoes_revocations_and_edits_are_read() {
    let echo = |id: &str, kind: &str, content: Value| {
        json!({ "from": "5511999990000", "to": "553188887777", "id": id, "timestamp": 1_750_030_073, "type": kind,
                kind: content })
    };
    let edited = json!({ "original_message_id": "a", "message": { "type": "text", "text": { "body": "Oi" } } });
    let value = json!({ "message_echoes": [
            echo("a", "text", json!({ "body": "Olá" })), echo("b", "edit", edited),
            echo("c", "revoke", json!({ "original_message_id": "a" })), echo("d", "revoke", json!({})) ],
            "messages": [item("revoke", json!({ "message_id": "e" }))] });
    let events = super::inbound_events(&value).collect::<Vec<_>>();
    let [
        InboundEvent::Revoked {
            wa_message_id: e,
            direction: Direction::Inbound,
            ..
        },
        InboundEvent::Echo(message),
        InboundEvent::Edited {
            wa_message_id: edited,
            direction: Direction::Outbound,
            text,
        },
        InboundEvent::Revoked {
            wa_message_id: revoked,
            direction: Direction::Outbound,
            ..
        },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(
        (e.as_str(), edited.as_str(), revoked.as_str(), text.as_str()),
        ("e", "a", "a", "Oi")
    );
    assert_eq!(message.sender.wa_id.as_deref(), Some("553188887777"));
    assert_eq!(super::unread_kinds(&value).count(), 0);
}

#[test]
fn message_of_hidden_number_is_read_by_user_id() {
    let message = read_message(
        &json!({ "from_user_id": "BR.2", "id": "m", "timestamp": 1, "type": "text", "text": { "body": "Oi" } }),
    );
    assert_eq!(
        message.sender,
        Sender {
            wa_id: None,
            user_id: Some("BR.2".into()),
            name: Some("Bia".into()),
            ..Sender::default()
        }
    );
    let alone = json!({ "contacts": [{ "wa_id": "5511961234567" }],
            "messages": [{ "id": "m", "timestamp": "1", "type": "text", "text": { "body": "Oi" } }] });
    let InboundEvent::Message(message) = &read(&alone)[0] else {
        panic!()
    };
    assert_eq!(message.sender.wa_id.as_deref(), Some("5511961234567"));
}

#[test]
fn message_types_are_read_with_text_and_payload() {
    let read_kind = |kind: &str, content: Value| {
        let mut item = json!({ "from": "551133334444", "id": "m", "timestamp": "1", "type": kind });
        item[kind] = content;
        let message = read_message(&item);
        (message.kind, message.text, message.can_opt_out, message.payload)
    };
    let image = json!({ "id": "77", "mime_type": "image/jpeg", "caption": "SAIR" });
    assert_eq!(
        read_kind("image", image.clone()),
        ("image".into(), Some("SAIR".into()), false, json!({ "image": image }))
    );
    let button = json!({ "payload": "p", "text": "Sair" });
    assert_eq!(
        read_kind("button", button.clone()),
        ("button".into(), Some("Sair".into()), true, json!({ "button": button }))
    );
    let chosen = read_kind(
        "interactive",
        json!({ "type": "list_reply", "list_reply": { "id": "1", "title": "Pix" } }),
    );
    assert_eq!((chosen.1.as_deref(), chosen.2), (Some("Pix"), false));
    assert_eq!(read_kind("sticker", json!({ "id": "1" })).1, None);
    assert_eq!(read_kind("NEW KIND", json!(1)).0, "unsupported");
    let large = read_kind("contacts", json!([{ "name": "x".repeat(9000) }]));
    assert_eq!(large.3, json!({ "too_large": true }));
    let odd = read_kind("order", json!({ "a\u{0}": ["b\u{0}", 1, null] }));
    assert_eq!(odd.3, json!({ "order": { "a": ["b", 1, null] } }));
}

#[test]
fn ad_referral_is_read_if_valid() {
    let referral_of = |referral: Value| {
        let item = json!({ "from": "551133334444", "id": "m", "timestamp": "1", "type": "text",
                "text": { "body": "Oi" }, "referral": referral });
        read_message(&item).referral
    };
    let ad = json!({ "source_type": "ad", "headline": "é\u{0}".repeat(3000), "ctwa_clid": "c", "body": 7 });
    let ad = referral_of(ad).unwrap();
    assert_eq!(
        (ad.source_type.as_deref(), ad.ctwa_clid.as_deref()),
        (Some("ad"), Some("c"))
    );
    assert_eq!((ad.headline, ad.body), (Some("é".repeat(2048)), None));
    for odd in [
        json!(null),
        json!("x"),
        json!({}),
        json!({ "source_id": 7 }),
        json!({ "body": "" }),
    ] {
        assert_eq!(referral_of(odd.clone()), None, "{odd}");
    }
}

#[test]
fn preferences_and_number_changes_are_read() {
    let consent_change = |value: &str, category: &str| {
        json!({ "wa_id": "553188887777",
            "value": value, "category": category, "timestamp": 1_750_030_073 })
    };
    let value = json!({ "user_preferences": [
            consent_change("stop", "marketing_messages"), consent_change("resume", "marketing_messages"),
            consent_change("pause", "marketing_messages"), consent_change("stop", "other"),
            { "value": "stop", "timestamp": 1 }] });
    let opted_in: Vec<bool> = read(&value)
        .iter()
        .map(|event| matches!(event, InboundEvent::Preference { opted_in: true, .. }))
        .collect();
    assert_eq!(opted_in, [false, true]);
    let system = |content: Value| {
        json!({ "from": "5511961111111", "id": "m",
            "timestamp": "1", "type": "system", "system": content })
    };
    let value = messages(&json!([
        system(json!({ "type": "user_changed_number", "wa_id": "5511962222222", "user_id": "BR.9" })),
        system(json!({ "type": "user_changed_user_id", "user_id": "BR.10" })),
        system(json!({ "type": "customer_identity_changed" })),
    ]));
    let now: Vec<Sender> = read(&value)
        .into_iter()
        .map(|event| match event {
            InboundEvent::NumberChanged { now, .. } => now,
            other => panic!("{other:?}"),
        })
        .collect();
    let number = Sender {
        wa_id: Some("5511962222222".into()),
        user_id: Some("BR.9".into()),
        name: None,
        ..Sender::default()
    };
    assert_eq!(
        now,
        [
            number,
            Sender {
                user_id: Some("BR.10".into()),
                ..Sender::default()
            }
        ]
    );
}

#[test]
fn malformed_inbound_item_is_skipped_alone() {
    let text = json!({ "body": "Oi" });
    let items = json!([7, {}, { "id": "a" },
            { "from": "x", "id": "a", "timestamp": "1", "type": "text" },
            { "from": "551133334444", "id": "a\u{0}", "timestamp": "1", "type": "text", "text": text },
            { "from": "551133334444", "id": "a".repeat(600), "timestamp": "1", "type": "text", "text": text },
            { "from": "551133334444", "id": "a", "timestamp": "soon", "type": "text", "text": text },
            { "from": "551133334444", "id": "b", "timestamp": "1", "type": "text" }]);
    let read = read(&messages(&items));
    let [InboundEvent::Message(only)] = &read[..] else {
        panic!("{read:?}")
    };
    assert_eq!((only.wa_message_id.as_str(), &only.text), ("b", &None));
    assert_eq!(
        super::inbound_events(&json!({ "messages": 7, "contacts": {}, "user_preferences": "x" })).count(),
        0
    );
}

#[test]
fn contacts_name_parent_id_and_username() {
    let value = json!({ "messages": [{ "from_user_id": "BR.1", "id": "m", "timestamp": "1", "type": "text",
            "text": { "body": "oi" } }],
        "contacts": [{ "user_id": "BR.1", "parent_user_id": "BR.ENT.9",
            "profile": { "name": "Ana", "username": "a\u{0}na" } }] });
    let [InboundEvent::Message(message)] = &read(&value)[..] else {
        panic!("{value}")
    };
    let expected = Sender {
        wa_id: None,
        user_id: Some("BR.1".into()),
        name: Some("Ana".into()),
        parent_user_id: Some("BR.ENT.9".into()),
        username: Some("ana".into()),
    };
    assert_eq!(message.sender, expected);
}

#[test]
fn user_id_update_is_read_in_both_forms() {
    let change = |update: Value| match read(&json!({ "user_id_update": [update] })).pop() {
        Some(InboundEvent::NumberChanged { sender, now }) => (sender.user_id, now.user_id, now.parent_user_id),
        other => panic!("{other:?}"),
    };
    let text = |text: &str| Some(text.to_owned());
    let objects = json!({ "user_id": { "previous": "BR.1", "current": "BR.2" },
        "parent_user_id": { "previous": "BR.ENT.1", "current": "BR.ENT.2" } });
    assert_eq!(change(objects), (text("BR.1"), text("BR.2"), text("BR.ENT.2")));
    let plain = json!({ "previous_user_id": "BR.1", "user_id": "BR.2" });
    assert_eq!(change(plain), (text("BR.1"), text("BR.2"), None));
    assert!(read(&json!({ "user_id_update": [{ "user_id": null }, {}, 1] })).is_empty());
}
