//! The use cases of conversations.

use std::sync::Arc;

use super::{
    Conversation, ConversationError, ConversationQuery, ConversationStatus, ConversationStore, Message, MessageContext,
    ReplyDraft, ReplyFacts, ReplyRefusal, prepare, to_result,
};
use crate::messaging::{ContentInput, OutboundMessage, WhatsappCredentials, WhatsappGateway};
use crate::shared::{
    AccountId, Cipher, ConversationId, CursorPage, CursorQuery, ErrorReport, FieldErrors, Ids, MessageId, SideStep,
    Tenant, TimeCursor,
};
use crate::whatsapp::ContentFiles;

/// Lists conversations and messages, opens and closes conversations, sends replies.
pub struct Conversations {
    pub(super) store: Arc<dyn ConversationStore>,
    pub(super) gateway: Arc<dyn WhatsappGateway>,
    files: ContentFiles,
    pub(super) cipher: Arc<dyn Cipher>,
    pub(super) report: Arc<dyn ErrorReport>,
    pub(super) ids: Arc<dyn Ids>,
}

impl Conversations {
    pub fn new(
        store: Arc<dyn ConversationStore>,
        gateway: Arc<dyn WhatsappGateway>,
        files: ContentFiles,
        cipher: Arc<dyn Cipher>,
        report: Arc<dyn ErrorReport>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self {
            store,
            gateway,
            files,
            cipher,
            report,
            ids,
        }
    }

    /// The account's conversations, latest message first.
    pub async fn list(
        &self,
        tenant: &Tenant,
        query: &ConversationQuery,
    ) -> Result<CursorPage<Conversation>, ConversationError> {
        Ok(self.store.list(tenant.account_id, query).await?)
    }

    /// Messages of a conversation, newest first.
    pub async fn messages(
        &self,
        tenant: &Tenant,
        id: ConversationId,
        query: &CursorQuery<TimeCursor>,
    ) -> Result<CursorPage<Message>, ConversationError> {
        let found = self.store.messages(tenant.account_id, id, query).await?;
        found.ok_or(ConversationError::NotFound)
    }

    pub async fn set_status(
        &self,
        tenant: &Tenant,
        id: ConversationId,
        status: ConversationStatus,
    ) -> Result<Conversation, ConversationError> {
        let changed = self.store.set_status(tenant.account_id, id, status).await?;
        changed.ok_or(ConversationError::NotFound)
    }

    /// Sends a reply. It is stored as pending, then WhatsApp is called once, without a retry. If the outcome is
    /// unknown, the reply stays pending and no error is returned.
    pub async fn reply(
        &self,
        tenant: &Tenant,
        id: ConversationId,
        content: ContentInput,
        reply_to: Option<MessageId>,
    ) -> Result<Message, ConversationError> {
        let content = content.check()?;
        let account = tenant.account_id;
        let facts = self
            .store
            .reply_facts(account, id, reply_to)
            .await?
            .ok_or(ConversationError::NotFound)?;
        let context = quoted_context(&facts, reply_to)?;
        let file = self.files.find(account, &content).await?;
        let (credentials, to) = prepare(account, &facts, self.cipher.as_ref())?;
        let profile = facts
            .profile
            .as_ref()
            .map(|stored| stored.profile.id)
            .ok_or(ReplyRefusal::NoNumber)?;
        let source = self
            .files
            .source(self.gateway.as_ref(), account, &credentials, &file)
            .await?;
        let draft = ReplyDraft {
            id: self.ids.next().into(),
            conversation_id: facts.conversation.id,
            profile_id: profile,
            content: content.clone(),
            media_id: file.media_id(),
            context: context.clone(),
            created_at: facts.now,
        };
        let begun = self.store.begin_reply(account, &draft).await?;
        let reply = begun.ok_or(ConversationError::NotFound)?;
        let message = OutboundMessage {
            message_id: draft.id,
            to,
            reply_to: context.map(|quoted| quoted.wa_message_id),
            content,
            file: source,
        };
        self.send(account, &credentials, &message, reply).await
    }

    /// Calls WhatsApp once for a stored message, and records the outcome.
    pub(super) async fn send(
        &self,
        account: AccountId,
        credentials: &WhatsappCredentials,
        message: &OutboundMessage,
        stored: Message,
    ) -> Result<Message, ConversationError> {
        let (result, refusal) = to_result(self.gateway.send_message(credentials, message).await);
        let recorded = self.store.record_reply(account, stored.id, &result).await;
        if let Err(error) = &recorded {
            self.report.swallowed(SideStep::RecordReply, error);
        }
        match refusal {
            Some(refusal) => Err(ConversationError::Gateway(refusal)),
            // The message may have been sent: after an error, the caller would send it again. A status update resolves
            // its status.
            None => Ok(recorded.ok().flatten().unwrap_or(stored)),
        }
    }
}

/// The message that a reply quotes. WhatsApp must know it.
fn quoted_context(facts: &ReplyFacts, reply_to: Option<MessageId>) -> Result<Option<MessageContext>, FieldErrors> {
    let Some(id) = reply_to else { return Ok(None) };
    let quoted = facts.quoted.as_ref().filter(|quoted| quoted.id == id);
    let quoted = quoted.ok_or_else(|| FieldErrors::one("reply_to", "is not a message of this conversation"))?;
    let wa_message_id = quoted.wa_message_id.clone();
    let unsent = || FieldErrors::one("reply_to", "is a message that WhatsApp has not accepted");
    Ok(Some(MessageContext {
        message_id: Some(id),
        wa_message_id: wa_message_id.ok_or_else(unsent)?,
    }))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::reply::tests::{NOW, cipher, facts};
    use super::super::{Direction, MessageOrigin, MessageStatus, MockConversationStore, QuotedMessage, ReplyResult};
    use super::*;
    use crate::media::{FileState, FoundFile, MockMessageFileStorage, MockMessageFileStore};
    use crate::messaging::{MediaInput, MockWhatsappGateway, SendOutcome};
    use crate::shared::{GatewayError, MockErrorReport, MockIds, Role, StoreError, UserId};
    use crate::whatsapp::MockFileIdStore;

    const ID: ConversationId = ConversationId(Uuid::from_u128(1));

    fn tenant() -> Tenant {
        Tenant::for_tests(AccountId(Uuid::from_u128(9)), UserId(Uuid::nil()), Role::Member)
    }

    fn conversations(store: MockConversationStore, gateway: MockWhatsappGateway) -> Conversations {
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
        let (store, gateway) = (Arc::new(store), Arc::new(gateway));
        let (cipher, report, ids) = (Arc::new(cipher()), Arc::new(report), Arc::new(ids));
        Conversations::new(store, gateway, files, cipher, report, ids)
    }

    /// The message that a store returns for a draft.
    fn pending(draft: &ReplyDraft) -> Message {
        Message {
            id: draft.id,
            conversation_id: draft.conversation_id,
            direction: Direction::Outbound,
            kind: draft.content.kind().to_owned(),
            text: draft.content.text().map(str::to_owned),
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
            .withf(|_, draft| draft.created_at == NOW && draft.content.text() == Some("Oi"))
            .returning(|_, draft| Ok(Some(pending(draft))));
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
            .reply(&tenant(), ID, ContentInput::text("Oi"), None)
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
                    }
            })
            .returning(|_, _, _| Ok(None));
        let refused = conversations(store, gateway)
            .reply(&tenant(), ID, ContentInput::text("Oi"), None)
            .await;
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
                .reply(&tenant(), ID, ContentInput::text("Oi"), None)
                .await
                .unwrap();
            assert_eq!((reply.status, reply.wa_message_id), (MessageStatus::Pending, None));
        }
    }

    #[tokio::test]
    async fn reply_is_not_sent_unless_stored() {
        let mut store = MockConversationStore::new();
        store.expect_reply_facts().returning(|_, _, _| Ok(Some(facts())));
        store.expect_begin_reply().times(1).returning(|_, _| Ok(None));
        let gone = conversations(store, MockWhatsappGateway::new())
            .reply(&tenant(), ID, ContentInput::text("Oi"), None)
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
            .reply(&tenant(), ID, ContentInput::text("Oi"), None)
            .await;
        assert!(matches!(
            late,
            Err(ConversationError::Refused(ReplyRefusal::WindowClosed))
        ));
        let mut store = MockConversationStore::new();
        store.expect_reply_facts().returning(|_, _, _| Ok(None));
        let missing = conversations(store, MockWhatsappGateway::new())
            .reply(&tenant(), ID, ContentInput::text("Oi"), None)
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
        let refused = conversations(store, MockWhatsappGateway::new())
            .reply(&tenant(), ID, content, None)
            .await;
        let Err(ConversationError::Invalid(errors)) = refused else {
            panic!("not refused")
        };
        assert_eq!(errors, FieldErrors::one("media.media_id", "is pending, not ready"));
    }

    #[tokio::test]
    async fn reply_with_invalid_content_reads_nothing() {
        let wrong = conversations(MockConversationStore::new(), MockWhatsappGateway::new())
            .reply(&tenant(), ID, ContentInput::text(""), None)
            .await;
        assert!(matches!(wrong, Err(ConversationError::Invalid(_))));
    }
}
