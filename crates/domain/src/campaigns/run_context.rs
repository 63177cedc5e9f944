//! The messages of a run: the context that all of them share, and the message of each recipient.

use std::collections::{BTreeSet, HashMap};

use super::{Burst, Campaign, Recipient, RunInputs, SendRate};
use crate::messaging::{
    Addressee, FileSource, HeaderType, OutboundCard, OutboundFile, OutboundTemplate, WhatsappCredentials,
    WhatsappGateway,
};
use crate::shared::{AccountId, SendId};
use crate::templates::Template;
use crate::whatsapp::{MessageFileError, MessageFiles};

/// The data that all sends of a run share.
pub(super) struct RunContext {
    pub(super) inputs: RunInputs,
    pub(super) credentials: Option<WhatsappCredentials>,
    pub(super) send_rate: SendRate,
    /// The source of each file of the template, by URL.
    pub(super) files: HashMap<String, FileSource>,
}

/// The recipient's value of each placeholder, in order.
pub(super) fn values(campaign: &Campaign, template: &Template, recipient: &Recipient) -> Vec<String> {
    let variables = campaign.variables.clone().unwrap_or_default();
    variables.render(&template.placeholders(), recipient)
}

/// Uploads the template's files to WhatsApp if needed, and returns the source of each file by URL.
pub(crate) async fn file_sources(
    files: &MessageFiles,
    gateway: &dyn WhatsappGateway,
    account: AccountId,
    credentials: &WhatsappCredentials,
    template: &Template,
) -> Result<HashMap<String, FileSource>, MessageFileError> {
    let mut sources = HashMap::new();
    for url in file_urls(template) {
        let source = files.source(gateway, account, credentials, &url).await?;
        sources.insert(url, source);
    }
    Ok(sources)
}

/// The URLs of the files in the template's header and cards.
fn file_urls(template: &Template) -> BTreeSet<String> {
    let header = template.header_file().map(|(_, url)| url.to_owned());
    let cards = template.cards().into_iter().map(|card| card.header.1);
    header.into_iter().chain(cards).collect()
}

/// The message of a template to one recipient. `values` has one value per placeholder, `files` the source of each file
/// of the template by URL.
pub(crate) fn template_message(
    template: &Template,
    files: &HashMap<String, FileSource>,
    send_id: SendId,
    to: Addressee,
    values: &[String],
) -> OutboundTemplate {
    let file = |kind: HeaderType, url: &str| {
        let source = files.get(url)?.clone();
        Some(OutboundFile { kind, source })
    };
    let cards = template.cards().into_iter().filter_map(|card| {
        Some(OutboundCard {
            file: file(card.header.0, &card.header.1)?,
            body: card.body,
            buttons: card.buttons,
        })
    });
    OutboundTemplate {
        send_id,
        to,
        template: template.name.clone(),
        language: template.language.clone(),
        header: template
            .header_placeholder_text()
            .map(|text| template.parameters_of(text, values))
            .unwrap_or_default(),
        body: template.parameters_of(template.body_text.as_deref().unwrap_or_default(), values),
        header_file: template.header_file().and_then(|(kind, url)| file(kind, url)),
        buttons: template.button_values(values),
        cards: cards.collect(),
    }
}

impl RunContext {
    pub(super) fn values(&self, recipient: &Recipient) -> Vec<String> {
        values(&self.inputs.campaign, &self.inputs.template, recipient)
    }

    pub(super) fn message(&self, send_id: SendId, recipient: &Recipient, values: &[String]) -> OutboundTemplate {
        let to = Addressee::Phone(recipient.phone.clone());
        template_message(&self.inputs.template, &self.files, send_id, to, values)
    }

    /// The number of sends to start together: a burst, or all claimed sends of a simulated run.
    pub(super) fn batch_size(&self, burst: Burst) -> usize {
        match self.credentials {
            Some(_) => usize::try_from(burst.messages).unwrap_or(usize::MAX),
            None => usize::MAX,
        }
    }
}
