//! A `Debug` implementation that hides personal data, message texts and tokens from logs.

/// Implements `Debug` for a type that holds personal data or secrets. A struct shows the named fields and nothing else,
/// an enum its variant. A type that only contains such types derives `Debug` as usual.
#[macro_export]
macro_rules! redacted_debug {
    (enum $name:ident { $($variant:ident),+ $(,)? }) => {
        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant { .. } => concat!(stringify!($name), "::", stringify!($variant))),+
                })
            }
        }
    };
    ($name:ident $(<$lifetime:lifetime>)? { $($field:ident),* $(,)? }) => {
        impl ::std::fmt::Debug for $name $(<$lifetime>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($field), &self.$field))*
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use redacted_debug;

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use secrecy::SecretString;
    use serde_json::json;
    use time::OffsetDateTime;
    use uuid::Uuid;

    use crate::accounts::Session;
    use crate::callbacks::{StatusUpdate, StoredCallback};
    use crate::campaigns::{MessageStatusEvent, Recipient, SendContact};
    use crate::contacts::{Contact, ContactDraft, ContactInput, Phone, Referral};
    use crate::conversations::{Direction, InboundEvent, InboundMessage, Message, MessageStatus, ReplyResult, Sender};
    use crate::egress::{AllowList, Target};
    use crate::mail::Mail;
    use crate::messaging::{Addressee, MessageContent, OutboundMessage, SendOutcome, SendStatus, TextParameter};
    use crate::shared::{Actor, Audit, AuditAction, CallbackId, Event, WebhookKind};

    /// Values that no `Debug` output may contain.
    const PLANTED: [&str; 3] = ["+5511961234567", "ana@example.com", "planted words"];

    fn phone() -> String {
        PLANTED[0].to_owned()
    }

    fn email() -> String {
        PLANTED[1].to_owned()
    }

    fn words() -> String {
        PLANTED[2].to_owned()
    }

    #[track_caller]
    fn assert_hidden(value: &dyn Debug) {
        for output in [format!("{value:?}"), format!("{value:#?}")] {
            for planted in PLANTED {
                assert!(!output.contains(planted), "{output}");
            }
        }
    }

    fn sender() -> Sender {
        Sender {
            wa_id: Some(phone()),
            user_id: Some(words()),
            name: Some(words()),
            ..Sender::default()
        }
    }

    #[test]
    fn debug_of_inbound_data_hides_contacts_and_texts() {
        let message = InboundMessage {
            wa_message_id: words(),
            sender: sender(),
            at: OffsetDateTime::UNIX_EPOCH,
            kind: "text".into(),
            text: Some(words()),
            can_opt_out: true,
            answered_wa_id: Some(words()),
            referral: Some(Box::new(Referral {
                ctwa_clid: Some(words()),
                ..Referral::default()
            })),
            payload: json!({ "location": PLANTED[2] }),
            caption: None,
            interactive: None,
            quoted: None,
            file: None,
        };
        assert_hidden(&InboundEvent::Message(message));
        let (sender, now) = (sender(), sender());
        assert_hidden(&InboundEvent::NumberChanged { sender, now });
        assert_hidden(&StoredCallback {
            id: CallbackId(Uuid::nil()),
            body: words().into_bytes(),
            attempts: 0,
            claims: 0,
        });
        let callback = StoredCallback {
            id: CallbackId(Uuid::nil()),
            body: b"planted".to_vec(),
            attempts: 0,
            claims: 0,
        };
        assert!(!format!("{callback:?}").contains("112, 108"), "not as numbers either");
        assert_hidden(&StatusUpdate {
            send_id: None,
            message_id: words(),
            status: SendStatus::Failed,
            at: OffsetDateTime::UNIX_EPOCH,
            error_code: Some(1),
            error_message: Some(words()),
            pricing: None,
        });
    }

    #[test]
    fn debug_of_outbound_data_hides_contacts_and_texts() {
        let to = Addressee::Phone(phone());
        assert_hidden(&OutboundMessage::text(Uuid::nil().into(), to, words()));
        assert_hidden(&MessageContent::Text(words()));
        assert_hidden(&Addressee::User(words()));
        assert_hidden(&TextParameter {
            name: None,
            text: words(),
        });
        assert_hidden(&Recipient {
            name: words(),
            phone: phone(),
            user_id: None,
            email: Some(email()),
            attributes: serde_json::Map::new(),
        });
        assert_hidden(&SendContact {
            name: words(),
            phone: Some(phone()),
            wa_user_id: Some(words()),
            email: Some(email()),
        });
        assert_hidden(&SendOutcome::Accepted {
            message_id: words(),
            wa_id: Some(phone()),
        });
        assert_hidden(&ReplyResult::Failed {
            message: words(),
            opted_out: false,
        });
        assert_hidden(&MessageStatusEvent {
            id: Uuid::nil(),
            campaign_id: None,
            conversation_id: None,
            contact_id: Uuid::nil().into(),
            wa_message_id: Some(words()),
            status: SendStatus::Sent,
            error_code: None,
            error_message: Some(words()),
            address: None,
            client_reference: None,
        });
        assert_hidden(&Message {
            id: Uuid::nil().into(),
            conversation_id: Uuid::nil().into(),
            direction: Direction::Outbound,
            kind: "text".into(),
            text: Some(words()),
            status: MessageStatus::Sent,
            wa_message_id: Some(words()),
            origin: crate::conversations::MessageOrigin::Contact,
            media: vec![],
            caption: Some(words()),
            interactive: Some(json!(words())),
            context: None,
            deleted_at: None,
            referral: None,
            pricing: None,
            address: None,
            created_at: OffsetDateTime::UNIX_EPOCH,
        });
    }

    #[test]
    fn debug_of_people_hides_personal_data() {
        assert_hidden(&Mail {
            to: email(),
            subject: words(),
            text: words(),
        });
        assert_hidden(&Phone::parse(PLANTED[0]).unwrap());
        let draft = ContactDraft {
            name: words(),
            phone: Phone::parse(PLANTED[0]),
            email: Some(email()),
            ..ContactDraft::default()
        };
        assert_hidden(&draft);
        assert_hidden(&ContactInput {
            email: Some(Some(email())),
            ..ContactInput::default()
        });
        assert_hidden(&Contact {
            id: Uuid::nil().into(),
            name: words(),
            phone: Some(phone()),
            email: Some(email()),
            wa_user_id: Some(words()),
            time_zone: None,
            attributes: serde_json::Map::new(),
            tags: vec![],
            opted_out_at: None,
            created_at: OffsetDateTime::UNIX_EPOCH,
            updated_at: OffsetDateTime::UNIX_EPOCH,
            version: 1,
        });
        assert_hidden(&Session {
            email: email(),
            name: Some(words()),
            ..Session::for_tests(Uuid::nil().into(), OffsetDateTime::UNIX_EPOCH)
        });
        assert_hidden(&Actor {
            user_id: Uuid::nil().into(),
            ip_address: Some(words()),
            support_admin: Some(email()),
        });
        assert_hidden(&Event::webhook(
            WebhookKind::MessageReceived,
            vec![json!({ "text": PLANTED[2] })],
        ));
        assert_hidden(&Event::Audit(Audit {
            user_id: None,
            action: AuditAction::Update,
            entity_type: "invite".into(),
            entity_id: None,
            changes: Some(json!({ "email": PLANTED[1] })),
            ip_address: Some(words()),
            support_admin: Some(email()),
        }));
        assert_hidden(&SecretString::from(words()));
        let target = Target::parse("https://e.example/hook?token=planted%20words", &AllowList::default());
        assert_eq!(format!("{:?}", target.unwrap()), "Target(\"e.example\")");
    }
}
