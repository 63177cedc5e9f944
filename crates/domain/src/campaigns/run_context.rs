//! The messages of a run: the context that all of them share, and the message of each recipient.

use std::collections::HashMap;

use super::{Burst, Campaign, Recipient, RunInputs, SendRate};
use crate::messaging::{
    AddressKind, Addressee, FileSource, OutboundTemplate, SendOutcome, WhatsappCredentials, WhatsappGateway,
};
use crate::shared::{AccountId, SendId};
use crate::templates::{MessageValues, Template};
use crate::whatsapp::{MessageFileError, MessageFiles};

/// The data that all sends of a run share.
pub(super) struct RunContext {
    pub(super) inputs: RunInputs,
    pub(super) credentials: Option<WhatsappCredentials>,
    pub(super) send_rate: SendRate,
    /// The source of each file of the template, by URL.
    pub(super) files: HashMap<String, FileSource>,
}

/// The values of a message to the recipient.
pub(super) fn values(campaign: &Campaign, template: &Template, recipient: &Recipient) -> MessageValues {
    let variables = campaign.variables.clone().unwrap_or_default();
    MessageValues {
        placeholders: variables.render(&template.placeholders(), recipient),
        header_location: campaign.header_location.clone(),
        offer_expires_at: campaign.offer_expires_at,
    }
}

/// Keeps only a new id: the id of most recipients is their phone number.
pub(super) fn keep_new_wa_id(outcome: &mut SendOutcome, known: Option<&String>, recipient: &Recipient) {
    if let SendOutcome::Accepted { wa_id, .. } = outcome {
        wa_id.take_if(|id| known == Some(id) || recipient.phone.strip_prefix('+') == Some(id));
    }
}

/// Uploads the template's files to WhatsApp if needed, and returns the source of each file by URL.
pub(super) async fn file_sources(
    files: &MessageFiles,
    gateway: &dyn WhatsappGateway,
    account: AccountId,
    credentials: &WhatsappCredentials,
    template: &Template,
) -> Result<HashMap<String, FileSource>, MessageFileError> {
    let mut sources = HashMap::new();
    for url in template.file_urls() {
        let source = files.source(gateway, account, credentials, &url).await?;
        sources.insert(url, source);
    }
    Ok(sources)
}

impl RunContext {
    pub(super) fn values(&self, recipient: &Recipient) -> MessageValues {
        values(&self.inputs.campaign, &self.inputs.template, recipient)
    }

    /// The recipient's address for this template. Codes go to phone numbers alone.
    pub(super) fn address(&self, recipient: &Recipient) -> Option<Addressee> {
        let needs_phone = self.inputs.template.category.needs_phone();
        recipient
            .address()
            .filter(|to| !needs_phone || to.kind() == AddressKind::Phone)
    }

    pub(super) fn message(&self, send_id: SendId, to: Addressee, values: &MessageValues) -> OutboundTemplate {
        self.inputs.template.outbound(send_id, to, values, &self.files)
    }

    /// The number of sends to start together: a burst, or all claimed sends of a simulated run.
    pub(super) fn batch_size(&self, burst: Burst) -> usize {
        match self.credentials {
            Some(_) => usize::try_from(burst.messages).unwrap_or(usize::MAX),
            None => usize::MAX,
        }
    }
}
