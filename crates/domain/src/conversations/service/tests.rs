//! The use cases over mocked ports.

use std::collections::HashMap;

use uuid::Uuid;

use super::super::reply::tests::{NOW, cipher, facts};
use super::super::{Direction, MessageOrigin, MessageStatus, MockConversationStore, QuotedMessage, ReplyResult};
use super::*;
use crate::direct_messages::tests::{self as direct_messages, contact};
use crate::direct_messages::{
    ContactFacts, CreationFacts, MessageTemplateInput, MockDirectMessageStore, Requested, month_of,
};
use crate::media::tests::media;
use crate::media::{FileState, FoundFile, MockMessageFileStorage, MockMessageFileStore};
use crate::messaging::{ContentInput, MediaInput, MockWhatsappGateway, SendOutcome};
use crate::shared::{GatewayError, MockErrorReport, MockIds, Role, StoreError, UserId};
use crate::whatsapp::MockFileIdStore;

pub(in crate::conversations) const ID: ConversationId = ConversationId(Uuid::from_u128(1));

pub(in crate::conversations) fn tenant() -> Tenant {
    Tenant::for_tests(AccountId(Uuid::from_u128(9)), UserId(Uuid::nil()), Role::Member)
}

fn text(text: &str) -> ReplyInput {
    ReplyInput {
        content: ContentInput::text(text),
        ..ReplyInput::default()
    }
}

pub(in crate::conversations) fn conversations(
    store: MockConversationStore,
    gateway: MockWhatsappGateway,
) -> Conversations {
    conversations_with_report(store, gateway, MockErrorReport::new())
}

fn conversations_with_report(
    store: MockConversationStore,
    gateway: MockWhatsappGateway,
    report: MockErrorReport,
) -> Conversations {
    let mut ids = MockIds::new();
    ids.expect_next().returning(|| Uuid::from_u128(8));
    let mut files = MockMessageFileStore::new();
    files
        .expect_find()
        .returning(|_, _| Ok(Some(FoundFile::Unavailable(FileState::Pending))));
    let storage = Arc::new(MockMessageFileStorage::new());
    let files = ContentFiles::new(Arc::new(files), storage, Arc::new(MockFileIdStore::new()));
    Conversations {
        store: Arc::new(store),
        messages: Arc::new(MockDirectMessageStore::new()),
        gateway: Arc::new(gateway),
        files: MessageFiles::new(media(&Arc::default()), Arc::new(MockFileIdStore::new())),
        content_files: files,
        cipher: Arc::new(cipher()),
        report: Arc::new(report),
        ids: Arc::new(ids),
    }
}

/// The message that a store returns for a draft.
pub(in crate::conversations) fn pending(draft: &ReplyDraft) -> Message {
    Message {
        id: draft.id,
        conversation_id: draft.conversation_id,
        direction: Direction::Outbound,
        kind: draft.content.message_type().to_owned(),
        text: draft.text.clone(),
        status: MessageStatus::Pending,
        origin: MessageOrigin::Reply,
        wa_message_id: None,
        media: vec![],
        caption: None,
        interactive: None,
        context: draft.context.clone(),
        deleted_at: None,
        referral: None,
        pricing: None,
        address: None,
        created_at: draft.created_at,
    }
}

/// A store with a conversation that allows a reply, and a gateway that returns `outcome` once.
fn mock_reply_call(outcome: SendOutcome) -> (MockConversationStore, MockWhatsappGateway) {
    let mut order = mockall::Sequence::new();
    let mut store = MockConversationStore::new();
    store
        .expect_reply_facts()
        .times(1)
        .in_sequence(&mut order)
        .returning(|_, _, _| Ok(Some(facts())));
    store
        .expect_begin_reply()
        .times(1)
        .in_sequence(&mut order)
        .withf(|_, draft| draft.created_at == NOW && draft.text.as_deref() == Some("Oi"))
        .returning(|_, draft| Ok(BegunReply::Stored(Box::new(pending(draft)))));
    let mut gateway = MockWhatsappGateway::new();
    gateway
        .expect_send_message()
        .times(1)
        .in_sequence(&mut order)
        .withf(|credentials, message| {
            credentials.phone_number_id == "1065" && message.message_id.0 == Uuid::from_u128(8)
        })
        .return_once(move |_, _| outcome);
    (store, gateway)
}

fn unknown() -> SendOutcome {
    SendOutcome::Unknown {
        detail: "time-out".into(),
    }
}

#[tokio::test]
async fn reply_is_stored_then_sent_then_recorded() {
    let accepted = SendOutcome::Accepted {
        message_id: "wamid.1".into(),
        wa_id: None,
    };
    let (mut store, gateway) = mock_reply_call(accepted);
    store
        .expect_record_reply()
        .times(1)
        .withf(|_, id, result| {
            id.0 == Uuid::from_u128(8)
                && matches!(result, ReplyResult::Sent { message_id, .. } if message_id == "wamid.1")
        })
        .returning(|_, _, _| Ok(None));
    let reply = conversations(store, gateway)
        .reply(&tenant(), ID, text("Oi"))
        .await
        .unwrap();
    assert_eq!((reply.direction, reply.kind.as_str()), (Direction::Outbound, "text"));
}

#[tokio::test]
async fn refused_reply_returns_whatsapps_error_code() {
    let (mut store, gateway) = mock_reply_call(SendOutcome::Failed {
        code: 131_047,
        class: crate::messaging::ErrorClass::WindowClosed,
        message: "closed".into(),
    });
    store
        .expect_record_reply()
        .times(1)
        .withf(|_, _, result| {
            *result
                == ReplyResult::Failed {
                    message: "closed".into(),
                    opted_out: false,
                }
        })
        .returning(|_, _, _| Ok(None));
    let refused = conversations(store, gateway).reply(&tenant(), ID, text("Oi")).await;
    assert!(matches!(
        refused,
        Err(ConversationError::Gateway(GatewayError::Refused { code: 131_047, .. }))
    ));
}

#[tokio::test]
async fn reply_with_unknown_outcome_is_not_an_error() {
    for unrecorded in [false, true] {
        let (mut store, gateway) = mock_reply_call(unknown());
        store
            .expect_record_reply()
            .times(1)
            .returning(move |_, _, _| match unrecorded {
                true => Err(StoreError::Corrupt("x".into())),
                false => Ok(None),
            });
        let mut report = MockErrorReport::new();
        report
            .expect_swallowed()
            .times(usize::from(unrecorded))
            .withf(|step, _| *step == SideStep::RecordReply)
            .returning(|_, _| ());
        let reply = conversations_with_report(store, gateway, report)
            .reply(&tenant(), ID, text("Oi"))
            .await
            .unwrap();
        assert_eq!((reply.status, reply.wa_message_id), (MessageStatus::Pending, None));
    }
}

#[tokio::test]
async fn reply_is_not_sent_unless_stored() {
    let mut store = MockConversationStore::new();
    store.expect_reply_facts().returning(|_, _, _| Ok(Some(facts())));
    store
        .expect_begin_reply()
        .times(1)
        .returning(|_, _| Ok(BegunReply::Missing));
    let gone = conversations(store, MockWhatsappGateway::new())
        .reply(&tenant(), ID, text("Oi"))
        .await;
    assert!(matches!(gone, Err(ConversationError::NotFound)));
    let mut store = MockConversationStore::new();
    store.expect_reply_facts().returning(|_, _, _| {
        Ok(Some(ReplyFacts {
            last_inbound_at: None,
            ..facts()
        }))
    });
    let late = conversations(store, MockWhatsappGateway::new())
        .reply(&tenant(), ID, text("Oi"))
        .await;
    assert!(matches!(
        late,
        Err(ConversationError::Refused(ReplyRefusal::WindowClosed))
    ));
    let mut store = MockConversationStore::new();
    store.expect_reply_facts().returning(|_, _, _| Ok(None));
    let missing = conversations(store, MockWhatsappGateway::new())
        .reply(&tenant(), ID, text("Oi"))
        .await;
    assert!(matches!(missing, Err(ConversationError::NotFound)));
}

fn quoted(wa_message_id: Option<&str>) -> ReplyFacts {
    ReplyFacts {
        quoted: Some(QuotedMessage {
            id: Uuid::from_u128(4).into(),
            wa_message_id: wa_message_id.map(str::to_owned),
        }),
        ..facts()
    }
}

#[test]
fn reply_quotes_a_message_that_whatsapp_knows() {
    let id = Some(MessageId(Uuid::from_u128(4)));
    let context = quoted_context(&quoted(Some("wamid.q")), id).unwrap().unwrap();
    assert_eq!((context.message_id, context.wa_message_id.as_str()), (id, "wamid.q"));
    assert_eq!(quoted_context(&facts(), None), Ok(None));
    for refused in [quoted(None), facts()] {
        let errors = quoted_context(&refused, id).unwrap_err();
        assert_eq!(errors.0.into_keys().collect::<Vec<_>>(), ["reply_to"]);
    }
}

#[tokio::test]
async fn reply_with_a_file_that_is_not_ready_is_refused() {
    let mut store = MockConversationStore::new();
    store.expect_reply_facts().returning(|_, _, _| Ok(Some(facts())));
    let content = ContentInput {
        media: Some(MediaInput {
            kind: Some("image".into()),
            media_id: Some(Uuid::from_u128(3).into()),
            ..MediaInput::default()
        }),
        ..ContentInput::default()
    };
    let input = ReplyInput {
        content,
        ..ReplyInput::default()
    };
    let refused = conversations(store, MockWhatsappGateway::new())
        .reply(&tenant(), ID, input)
        .await;
    let Err(ConversationError::Invalid(errors)) = refused else {
        panic!("not refused")
    };
    assert_eq!(errors, FieldErrors::one("media.media_id", "is pending, not ready"));
}

#[tokio::test]
async fn reply_with_invalid_content_reads_nothing() {
    let wrong = conversations(MockConversationStore::new(), MockWhatsappGateway::new())
        .reply(&tenant(), ID, text(""))
        .await;
    assert!(matches!(wrong, Err(ConversationError::Invalid(_))));
}

/// The facts on a template reply to a contact who has not written for long.
fn template_facts() -> (ReplyFacts, CreationFacts) {
    let late = ReplyFacts {
        last_inbound_at: None,
        ..quoted(Some("wamid.q"))
    };
    let to = Requested::Contact(late.conversation.contact_id);
    let found = CreationFacts {
        contacts: HashMap::from([(to, contact())]),
        ..direct_messages::facts()
    };
    (late, found)
}

fn template_input() -> ReplyInput {
    ReplyInput {
        template: Some(MessageTemplateInput {
            id: Some(Uuid::from_u128(3).into()),
            ..MessageTemplateInput::default()
        }),
        reply_to: Some(Uuid::from_u128(4).into()),
        ..ReplyInput::default()
    }
}

async fn reply_with_template(
    mut store: MockConversationStore,
    gateway: MockWhatsappGateway,
    (late, found): (ReplyFacts, CreationFacts),
    input: ReplyInput,
) -> Result<Message, ConversationError> {
    store
        .expect_reply_facts()
        .returning(move |_, _, _| Ok(Some(late.clone())));
    let mut messages = MockDirectMessageStore::new();
    messages.expect_facts().returning(move |_, _| Ok(found.clone()));
    let conversations = Conversations {
        messages: Arc::new(messages),
        ..conversations(store, gateway)
    };
    conversations.reply(&tenant(), ID, input).await
}

#[tokio::test]
async fn template_reply_is_sent_outside_the_window_and_uses_the_quota() {
    let mut store = MockConversationStore::new();
    store
        .expect_begin_reply()
        .times(1)
        .withf(|_, draft| draft.text.as_deref() == Some("Oi Ana") && draft.monthly_limit.is_some_and(|limit| limit > 0))
        .returning(|_, draft| Ok(BegunReply::Stored(Box::new(pending(draft)))));
    store.expect_record_reply().times(1).returning(|_, _, _| Ok(None));
    let mut gateway = MockWhatsappGateway::new();
    gateway
        .expect_send_template()
        .times(1)
        .withf(|_, message| message.reply_to.as_deref() == Some("wamid.q") && message.send_id.0 == Uuid::from_u128(8))
        .returning(|_, _| SendOutcome::Accepted {
            message_id: "w".into(),
            wa_id: None,
        });
    let reply = reply_with_template(store, gateway, template_facts(), template_input()).await;
    let reply = reply.unwrap();
    assert_eq!(
        (reply.kind.as_str(), reply.reserved_month()),
        ("template", Some(month_of(NOW)))
    );
    assert_eq!(
        Message {
            origin: MessageOrigin::BusinessApp,
            ..reply
        }
        .reserved_month(),
        None
    );
}

#[tokio::test]
async fn template_reply_has_the_refusals_of_direct_messages() {
    let opted_out = |contact: ContactFacts| ContactFacts {
        opted_out: true,
        ..contact
    };
    let (late, mut found) = template_facts();
    found.contacts = found
        .contacts
        .into_iter()
        .map(|(to, contact)| (to, opted_out(contact)))
        .collect();
    let refused = |facts, store| reply_with_template(store, MockWhatsappGateway::new(), facts, template_input());
    let result = refused((late, found), MockConversationStore::new()).await;
    assert!(
        matches!(result, Err(ConversationError::NotAllowed(Refusal::OptedOut))),
        "{result:?}"
    );
    let (late, found) = template_facts();
    let unknown = CreationFacts {
        templates: HashMap::new(),
        ..found
    };
    let result = refused((late, unknown), MockConversationStore::new()).await;
    assert!(matches!(result, Err(ConversationError::Invalid(_))), "{result:?}");
    let mut store = MockConversationStore::new();
    store
        .expect_begin_reply()
        .returning(|_, _| Ok(BegunReply::QuotaExceeded));
    let result = refused(template_facts(), store).await;
    assert!(
        matches!(result, Err(ConversationError::NotAllowed(Refusal::MonthLimit { .. }))),
        "{result:?}"
    );
    let both = ReplyInput {
        content: ContentInput::text("Oi"),
        ..template_input()
    };
    let result = reply_with_template(
        MockConversationStore::new(),
        MockWhatsappGateway::new(),
        template_facts(),
        both,
    );
    assert!(matches!(result.await, Err(ConversationError::Invalid(errors)) if errors.0.contains_key("text")));
}
