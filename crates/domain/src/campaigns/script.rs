//! The messages of a run: what all of them share, and what each recipient gets.

use std::collections::HashMap;

use super::{Pace, Recipient, RunMaterial};
use crate::shared::SendId;
use crate::templates::{HeaderType, values_of};
use crate::whatsapp::{FileSource, Line, OutboundCard, OutboundFile, OutboundTemplate};

/// What all sends of a run share.
pub(super) struct Script {
    pub(super) material: RunMaterial,
    pub(super) line: Option<Line>,
    pub(super) pace: Pace,
    /// Where the platform has the files of the template from, by their addresses.
    pub(super) files: HashMap<String, FileSource>,
}

impl Script {
    /// What stands in each placeholder for the recipient.
    pub(super) fn values(&self, recipient: &Recipient) -> Vec<String> {
        let variables = self.material.campaign.variables.clone().unwrap_or_default();
        variables.render(&self.material.template.variables, recipient)
    }

    /// The message for the recipient.
    pub(super) fn message(&self, send_id: SendId, recipient: &Recipient, values: &[String]) -> OutboundTemplate {
        let template = &self.material.template;
        OutboundTemplate {
            send_id,
            to: recipient.phone.clone(),
            template: template.name.clone(),
            language: template.language.clone(),
            header: template
                .header_placeholder_text()
                .map(|text| values_of(text, values))
                .unwrap_or_default(),
            body: values_of(template.body_text.as_deref().unwrap_or_default(), values),
            header_file: template.header_file().and_then(|(kind, url)| self.file(kind, url)),
            buttons: template.button_values(values),
            cards: self.cards(),
        }
    }

    fn file(&self, kind: HeaderType, url: &str) -> Option<OutboundFile> {
        let source = self.files.get(url)?.clone();
        Some(OutboundFile { kind, source })
    }

    fn cards(&self) -> Vec<OutboundCard> {
        let cards = self.material.template.cards().into_iter();
        let cards = cards.filter_map(|card| {
            Some(OutboundCard {
                file: self.file(card.header.0, &card.header.1)?,
                body: card.body,
                buttons: card.buttons,
            })
        });
        cards.collect()
    }
}
