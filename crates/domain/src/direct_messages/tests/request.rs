//! What a request may contain, and when two requests ask the same.

use time::Duration;

use super::*;
use crate::campaigns::Variables;
use crate::messaging::ContentInput;

fn fields(input: MessageInput) -> Vec<String> {
    let errors = MessageRequest::parse(input).unwrap_err();
    errors.0.into_keys().collect()
}

#[test]
fn request_needs_exactly_one_recipient_and_one_content() {
    assert_eq!(fields(MessageInput::default()), ["template", "to"]);
    let both = MessageInput {
        template: template_input().template,
        ..text_input()
    };
    assert_eq!(fields(both), ["template"]);
    let to = |to| MessageInput {
        to: Some(to),
        ..text_input()
    };
    let two = RecipientInput {
        phone: Some("11961234567".into()),
        wa_user_id: Some("BR.1".into()),
        ..RecipientInput::default()
    };
    assert_eq!(fields(to(two)), ["to"]);
    let phone = RecipientInput {
        phone: Some("12".into()),
        name: Some(" ".into()),
        ..RecipientInput::default()
    };
    assert_eq!(fields(to(phone)), ["to.name", "to.phone"]);
    let user = RecipientInput {
        wa_user_id: Some("br.1".into()),
        ..RecipientInput::default()
    };
    assert_eq!(fields(to(user)), ["to.wa_user_id"]);
}

#[test]
fn request_checks_the_bounds_of_every_field() {
    for text in [" ".to_owned(), "x".repeat(4097)] {
        let input = MessageInput {
            content: ContentInput::text(text),
            ..text_input()
        };
        assert_eq!(fields(input), ["text"]);
    }
    for reference in [String::new(), "a b".into(), "é".into(), "x".repeat(129)] {
        let input = MessageInput {
            client_reference: Some(reference),
            ..text_input()
        };
        assert_eq!(fields(input), ["client_reference"]);
    }
    let template = |template| MessageInput {
        template: Some(template),
        ..template_input()
    };
    assert_eq!(fields(template(MessageTemplateInput::default())), ["template"]);
    let wrong = MessageTemplateInput {
        id: Some(Uuid::nil().into()),
        variables: Some(Variables([("1".to_owned(), "{age}".to_owned())].into())),
        header: Some(MessageHeaderInput {
            media_url: Some("http://loja.example/a.png".into()),
            latitude: Some(91.0),
            ..MessageHeaderInput::default()
        }),
        ..MessageTemplateInput::default()
    };
    assert_eq!(
        fields(template(wrong)),
        ["template.header", "template.header.media_url", "template.variables.1"]
    );
}

#[test]
fn equal_requests_have_equal_json_whatever_their_spelling() {
    let canonical = |input| MessageRequest::parse(input).unwrap().canonical();
    let first = canonical(text_input());
    let respelled = MessageInput {
        to: Some(RecipientInput {
            phone: Some("+5511961234567".into()),
            name: Some("Ana".into()),
            ..RecipientInput::default()
        }),
        client_reference: Some("r1".into()),
        ..text_input()
    };
    assert_eq!(canonical(respelled), first);
    for other in [
        MessageInput {
            content: ContentInput::text("oi"),
            ..text_input()
        },
        MessageInput {
            send_at: Some(NOW),
            ..text_input()
        },
        MessageInput {
            expires_at: Some(NOW),
            ..text_input()
        },
        MessageInput {
            profile_id: Some(Uuid::nil().into()),
            ..text_input()
        },
        template_input(),
    ] {
        assert_ne!(canonical(other), first);
    }
}

#[test]
fn times_of_a_message_are_bounded() {
    let times = |send_at: Option<Duration>, expires_at: Option<Duration>| {
        let input = MessageInput {
            send_at: send_at.map(|after| NOW + after),
            expires_at: expires_at.map(|after| NOW + after),
            ..text_input()
        };
        let times = MessageRequest::parse(input).unwrap().times(NOW);
        times
            .map(|(send_at, expires_at)| (send_at - NOW, expires_at - NOW))
            .map_err(|errors| {
                let mut fields = errors.0.into_keys();
                fields.next().unwrap()
            })
    };
    let (hour, day) = (Duration::HOUR, Duration::DAY);
    assert_eq!(times(None, None), Ok((Duration::ZERO, day)));
    assert_eq!(times(Some(-hour), Some(hour)), Ok((Duration::ZERO, hour)));
    assert_eq!(times(Some(day), None), Ok((day, day * 2)));
    assert_eq!(times(Some(day * 30), Some(day * 60)), Ok((day * 30, day * 60)));
    assert_eq!(times(Some(day * 30 + hour), None), Err("send_at".into()));
    for expires_at in [-hour, Duration::ZERO, day * 30 + hour] {
        assert_eq!(times(None, Some(expires_at)), Err("expires_at".into()));
    }
}
