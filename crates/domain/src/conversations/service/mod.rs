//! The use cases of conversations.

use std::sync::Arc;

use super::outgoing::{OutgoingReply, ReplyCall};
use super::{
    BegunReply, Conversation, ConversationError, ConversationQuery, ConversationStatus, ConversationStore, Message,
    MessageContext, ReplyDraft, ReplyFacts, ReplyInput, ReplyRefusal, prepare, sender, to_result,
};
use crate::direct_messages::{
    DirectMessageStore, LeavingContent, MessageRequest, Refusal, RequestedContent, TemplateFiles, accept,
    requested_template,
};
use crate::messaging::{MessageContent, OutboundMessage, OutboundTemplate, SendOutcome, WhatsappGateway};
use crate::shared::{
    AccountId, Cipher, ConversationId, CursorPage, CursorQuery, ErrorReport, FieldErrors, Ids, MessageId, SendId,
    SideStep, Tenant, TimeCursor,
};
use crate::templates::OFFER_ENDED;
use crate::whatsapp::{ContentFiles, MessageFiles};

/// Lists conversations and messages, opens and closes conversations, sends replies.
pub struct Conversations {
    pub store: Arc<dyn ConversationStore>,
    /// Reads what decides on template replies.
    pub messages: Arc<dyn DirectMessageStore>,
    pub gateway: Arc<dyn WhatsappGateway>,
    pub files: MessageFiles,
    pub content_files: ContentFiles,
    pub cipher: Arc<dyn Cipher>,
    pub report: Arc<dyn ErrorReport>,
    pub ids: Arc<dyn Ids>,
}

impl Conversations {
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
        input: ReplyInput,
    ) -> Result<Message, ConversationError> {
        let (account, reply_to) = (tenant.account_id, input.reply_to);
        let content = input.check()?;
        let facts = self
            .store
            .reply_facts(account, id, reply_to)
            .await?
            .ok_or(ConversationError::NotFound)?;
        let context = quoted_context(&facts, reply_to)?;
        let quoted = context.as_ref().map(|quoted| quoted.wa_message_id.clone());
        let message_id = MessageId::from(self.ids.next());
        let outgoing = match content {
            RequestedContent::FreeForm(content) => self.free_form(account, &facts, message_id, quoted, content).await?,
            template @ RequestedContent::Template { .. } => {
                self.template(account, &facts, message_id, quoted, template).await?
            }
        };
        let reply = self.begin(account, &facts, message_id, context, &outgoing).await?;
        let outcome = outgoing.send(self.gateway.as_ref()).await;
        self.record(account, reply, outcome).await
    }

    /// Records the outcome of the call for a stored message.
    pub(super) async fn record(
        &self,
        account: AccountId,
        stored: Message,
        outcome: SendOutcome,
    ) -> Result<Message, ConversationError> {
        let (result, refusal) = to_result(outcome);
        let recorded = self.store.record_reply(account, stored.id, &result).await;
        if let Err(error) = &recorded {
            self.report.swallowed(SideStep::RecordReply, error);
        }
        match refusal {
            Some(refusal) => Err(ConversationError::Gateway(refusal)),
            // The reply may have been sent: after an error, the caller would send it again. A status update resolves
            // its status.
            None => Ok(recorded.ok().flatten().unwrap_or(stored)),
        }
    }

    async fn free_form(
        &self,
        account: AccountId,
        facts: &ReplyFacts,
        message_id: MessageId,
        reply_to: Option<String>,
        content: MessageContent,
    ) -> Result<OutgoingReply, ConversationError> {
        let file = self.content_files.find(account, &content).await?;
        let (credentials, to) = prepare(account, facts, self.cipher.as_ref())?;
        let source = self
            .content_files
            .source(self.gateway.as_ref(), account, &credentials, &file)
            .await?;
        Ok(OutgoingReply {
            credentials,
            content: RequestedContent::FreeForm(content.clone()),
            template_id: None,
            text: content.text().map(str::to_owned),
            monthly_limit: None,
            call: ReplyCall::FreeForm(OutboundMessage {
                message_id,
                to,
                reply_to,
                content,
                file: source,
            }),
        })
    }

    /// A template reply, by the rules of direct messages.
    async fn template(
        &self,
        account: AccountId,
        facts: &ReplyFacts,
        message_id: MessageId,
        reply_to: Option<String>,
        content: RequestedContent,
    ) -> Result<OutgoingReply, ConversationError> {
        let request = MessageRequest::to_contact(facts.conversation.contact_id, content);
        let found = self.messages.facts(account, std::slice::from_ref(&request)).await?;
        let contact = found.contacts.get(&request.to).ok_or(ConversationError::NotFound)?;
        let template = requested_template(&request.content, &found)?;
        if let (Some(id), Some(template)) = (request.content.media_id(), template) {
            self.content_files
                .find_header(account, id, template.header_type)
                .await?;
        }
        let credentials = sender(account, facts, self.cipher.as_ref())?;
        let number = facts.profile.as_ref().map(|stored| stored.profile.id);
        let accepted = accept(&request.content, template, contact, (&found, number), facts.now)?;
        let text = accepted.content.template_text();
        let LeavingContent::Template {
            template,
            values,
            header_media,
        } = accepted.content
        else {
            return Err(ConversationError::NotFound);
        };
        if values.offer_ends_too_early(&template, facts.now) {
            return Err(FieldErrors::one("template.offer_expires_at", OFFER_ENDED).into());
        }
        let files = TemplateFiles {
            files: &self.files,
            content_files: &self.content_files,
            gateway: self.gateway.as_ref(),
        };
        let sources = files.sources(account, &credentials, &template, header_media).await?;
        let message = template.outbound(SendId(message_id.0), accepted.to, &values, &sources);
        Ok(OutgoingReply {
            credentials,
            content: request.content,
            template_id: Some(template.id),
            text,
            monthly_limit: found.billing.messages_per_month(found.now),
            call: ReplyCall::Template(OutboundTemplate { reply_to, ..message }),
        })
    }

    /// Stores the pending reply.
    async fn begin(
        &self,
        account: AccountId,
        facts: &ReplyFacts,
        id: MessageId,
        context: Option<MessageContext>,
        outgoing: &OutgoingReply,
    ) -> Result<Message, ConversationError> {
        let profile = facts.profile.as_ref().ok_or(ReplyRefusal::NoNumber)?;
        let draft = ReplyDraft {
            id,
            conversation_id: facts.conversation.id,
            profile_id: profile.profile.id,
            content: outgoing.content.clone(),
            template_id: outgoing.template_id,
            text: outgoing.text.clone(),
            context,
            address: outgoing.call.to().kind(),
            created_at: facts.now,
            monthly_limit: outgoing.monthly_limit,
        };
        match self.store.begin_reply(account, &draft).await? {
            BegunReply::Stored(message) => Ok(*message),
            BegunReply::Missing => Err(ConversationError::NotFound),
            BegunReply::QuotaExceeded => {
                let limit = outgoing.monthly_limit.unwrap_or_default();
                Err(Refusal::MonthLimit { limit }.into())
            }
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
pub(super) mod tests;
