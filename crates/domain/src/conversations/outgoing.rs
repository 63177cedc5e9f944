//! What a reply consists of, and the call that sends it.

use crate::direct_messages::{MessageTemplateInput, RequestedContent};
use crate::messaging::{
    Addressee, ContentInput, OutboundMessage, OutboundTemplate, SendOutcome, WhatsappCredentials, WhatsappGateway,
};
use crate::shared::{FieldErrors, MessageId, TemplateId, redacted_debug};

/// A reply as a caller gives it: exactly one of a template and the fields of `content`.
#[derive(Clone, Default)]
pub struct ReplyInput {
    pub content: ContentInput,
    pub template: Option<MessageTemplateInput>,
    /// The message of the conversation that the reply quotes.
    pub reply_to: Option<MessageId>,
}

redacted_debug!(ReplyInput { reply_to });

impl ReplyInput {
    pub(super) fn check(self) -> Result<RequestedContent, FieldErrors> {
        let Some(template) = self.template else {
            return self.content.check().map(RequestedContent::FreeForm);
        };
        let mut errors = FieldErrors::default();
        for field in self.content.given() {
            errors.add(field, "must not be combined with template");
        }
        errors.into_result()?;
        RequestedContent::of_template(template)
    }
}

/// A reply that may be sent.
pub(super) struct OutgoingReply {
    pub(super) credentials: WhatsappCredentials,
    pub(super) content: RequestedContent,
    pub(super) template_id: Option<TemplateId>,
    pub(super) text: Option<String>,
    pub(super) monthly_limit: Option<i64>,
    pub(super) call: ReplyCall,
}

pub(super) enum ReplyCall {
    FreeForm(OutboundMessage),
    Template(OutboundTemplate),
}

impl ReplyCall {
    pub(super) fn to(&self) -> &Addressee {
        match self {
            Self::FreeForm(message) => &message.to,
            Self::Template(message) => &message.to,
        }
    }
}

impl OutgoingReply {
    /// Calls WhatsApp once.
    pub(super) async fn send(&self, gateway: &dyn WhatsappGateway) -> SendOutcome {
        match &self.call {
            ReplyCall::FreeForm(message) => gateway.send_message(&self.credentials, message).await,
            ReplyCall::Template(message) => gateway.send_template(&self.credentials, message).await,
        }
    }
}
