//! The use cases of conversations.

use std::sync::Arc;

use super::{
    Conversation, ConversationError, ConversationQuery, ConversationStatus, ConversationStore, Direction, Message,
    MessageStatus, ReplyFacts, ReplyRefusal, prepare, to_result,
};
use crate::messaging::{
    ContentInput, FileReference, FileSource, MessageContent, OutboundMessage, SendOutcome, WhatsappCredentials,
    WhatsappGateway,
};
use crate::shared::{
    Cipher, ConversationId, CursorPage, CursorQuery, ErrorReport, FieldErrors, Ids, SideStep, Tenant, TimeCursor,
};

/// Lists conversations and messages, opens and closes conversations, sends replies.
pub struct Conversations {
    store: Arc<dyn ConversationStore>,
    gateway: Arc<dyn WhatsappGateway>,
    cipher: Arc<dyn Cipher>,
    report: Arc<dyn ErrorReport>,
    ids: Arc<dyn Ids>,
}

impl Conversations {
    pub fn new(
        store: Arc<dyn ConversationStore>,
        gateway: Arc<dyn WhatsappGateway>,
        cipher: Arc<dyn Cipher>,
        report: Arc<dyn ErrorReport>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self {
            store,
            gateway,
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
    ) -> Result<Message, ConversationError> {
        let content = content.check()?;
        let file = file_source(&content)?;
        let account = tenant.account_id;
        let facts = self
            .store
            .reply_facts(account, id)
            .await?
            .ok_or(ConversationError::NotFound)?;
        let (credentials, to) = prepare(account, &facts, self.cipher.as_ref())?;
        let profile = facts
            .profile
            .as_ref()
            .map(|stored| stored.profile.id)
            .ok_or(ReplyRefusal::NoNumber)?;
        let reply = self.pending(&facts, &content);
        let begun = self.store.begin_reply(account, &reply, profile).await?;
        begun.or_missing(ConversationError::NotFound)?;
        let (result, refusal) = to_result(
            self.call(
                &credentials,
                OutboundMessage {
                    message_id: reply.id,
                    to,
                    reply_to: None,
                    content,
                    file,
                },
            )
            .await,
        );
        let recorded = self.store.record_reply(account, reply.id, &result).await;
        if let Err(error) = &recorded {
            self.report.swallowed(SideStep::RecordReply, error);
        }
        match refusal {
            Some(refusal) => Err(ConversationError::Gateway(refusal)),
            // The reply may have been sent: after an error, the caller would send it again. A status update resolves
            // its status.
            None => Ok(recorded.ok().flatten().unwrap_or(reply)),
        }
    }

    fn pending(&self, facts: &ReplyFacts, content: &MessageContent) -> Message {
        Message {
            id: self.ids.next().into(),
            conversation_id: facts.conversation.id,
            direction: Direction::Outbound,
            kind: content.kind().to_owned(),
            text: content.text().map(str::to_owned),
            status: MessageStatus::Pending,
            wa_message_id: None,
            referral: None,
            pricing: None,
            created_at: facts.now,
        }
    }

    async fn call(&self, credentials: &WhatsappCredentials, message: OutboundMessage) -> SendOutcome {
        self.gateway.send_message(credentials, &message).await
    }
}

/// Where WhatsApp gets the file of a message.
fn file_source(content: &MessageContent) -> Result<Option<FileSource>, FieldErrors> {
    match content.media() {
        None => Ok(None),
        Some((field, media)) => match &media.file {
            FileReference::Url(url) => Ok(Some(FileSource::Link(url.clone()))),
            FileReference::Media(_) => Err(FieldErrors::one(format!("{field}.media_id"), "does not exist")),
        },
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::reply::tests::{NOW, cipher, facts};
    use super::super::{MockConversationStore, ReplyResult};
    use super::*;
    use crate::messaging::MockWhatsappGateway;
    use crate::shared::{AccountId, GatewayError, MockErrorReport, MockIds, Role, RowOutcome, StoreError, UserId};

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
        let (store, gateway) = (Arc::new(store), Arc::new(gateway));
        Conversations::new(store, gateway, Arc::new(cipher()), Arc::new(report), Arc::new(ids))
    }

    /// A store with a conversation that allows a reply, and a gateway that returns `outcome` once.
    fn mock_reply_call(outcome: SendOutcome) -> (MockConversationStore, MockWhatsappGateway) {
        let mut order = mockall::Sequence::new();
        let mut store = MockConversationStore::new();
        store
            .expect_reply_facts()
            .times(1)
            .in_sequence(&mut order)
            .returning(|_, _| Ok(Some(facts())));
        store
            .expect_begin_reply()
            .times(1)
            .in_sequence(&mut order)
            .withf(|_, reply, _| {
                reply.status == MessageStatus::Pending && reply.created_at == NOW && reply.text.as_deref() == Some("Oi")
            })
            .returning(|_, _, _| Ok(RowOutcome::Done));
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
            .reply(&tenant(), ID, ContentInput::text("Oi"))
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
            .reply(&tenant(), ID, ContentInput::text("Oi"))
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
                .reply(&tenant(), ID, ContentInput::text("Oi"))
                .await
                .unwrap();
            assert_eq!((reply.status, reply.wa_message_id), (MessageStatus::Pending, None));
        }
    }

    #[tokio::test]
    async fn reply_is_not_sent_unless_stored() {
        let mut store = MockConversationStore::new();
        store.expect_reply_facts().returning(|_, _| Ok(Some(facts())));
        store
            .expect_begin_reply()
            .times(1)
            .returning(|_, _, _| Ok(RowOutcome::Missing));
        let gone = conversations(store, MockWhatsappGateway::new())
            .reply(&tenant(), ID, ContentInput::text("Oi"))
            .await;
        assert!(matches!(gone, Err(ConversationError::NotFound)));
        let mut store = MockConversationStore::new();
        store.expect_reply_facts().returning(|_, _| {
            Ok(Some(ReplyFacts {
                last_inbound_at: None,
                ..facts()
            }))
        });
        let late = conversations(store, MockWhatsappGateway::new())
            .reply(&tenant(), ID, ContentInput::text("Oi"))
            .await;
        assert!(matches!(
            late,
            Err(ConversationError::Refused(ReplyRefusal::WindowClosed))
        ));
        let mut store = MockConversationStore::new();
        store.expect_reply_facts().returning(|_, _| Ok(None));
        let missing = conversations(store, MockWhatsappGateway::new())
            .reply(&tenant(), ID, ContentInput::text("Oi"))
            .await;
        assert!(matches!(missing, Err(ConversationError::NotFound)));
    }

    #[tokio::test]
    async fn reply_with_invalid_content_reads_nothing() {
        let wrong = conversations(MockConversationStore::new(), MockWhatsappGateway::new())
            .reply(&tenant(), ID, ContentInput::text(""))
            .await;
        assert!(matches!(wrong, Err(ConversationError::Invalid(_))));
    }
}
