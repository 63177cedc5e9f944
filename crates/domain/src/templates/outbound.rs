//! The message of a template with its values. Campaigns and test sends use it, and so may every other sender.

use std::collections::{BTreeSet, HashMap};

use time::{Duration, OffsetDateTime};

use super::Template;
use crate::messaging::{
    Addressee, FileSource, HeaderLocation, HeaderType, OutboundCard, OutboundFile, OutboundTemplate,
};
use crate::shared::text::single_spaced;
use crate::shared::{SendId, redacted_debug};

/// An offer has to last at least this long after its message is sent.
const MIN_OFFER_TIME: Duration = Duration::minutes(1);

/// The error message of a message whose offer is over, or almost.
pub const OFFER_ENDED: &str = "the limited-time offer ends less than 1 minute after the message";

/// The values of one message.
#[derive(Clone, Default, PartialEq)]
pub struct MessageValues {
    /// One value per placeholder of [`Template::placeholders`].
    pub placeholders: Vec<String>,
    /// The location of the header.
    pub header_location: Option<HeaderLocation>,
    /// When the limited-time offer ends.
    pub offer_expires_at: Option<OffsetDateTime>,
}

redacted_debug!(MessageValues { offer_expires_at });

impl MessageValues {
    /// Whether the offer of the template's message ends too early after `now`.
    pub fn offer_ends_too_early(&self, template: &Template, now: OffsetDateTime) -> bool {
        let ends_early = |at: OffsetDateTime| at < now.saturating_add(MIN_OFFER_TIME);
        template.has_expiring_offer() && self.offer_expires_at.is_some_and(ends_early)
    }
}

impl Template {
    /// Whether every message of the template needs the end of its offer.
    pub fn has_expiring_offer(&self) -> bool {
        self.limited_time_offer
            .as_ref()
            .is_some_and(|offer| offer.has_expiration)
    }

    /// The published names of the values beside the placeholders that a message needs and that are absent.
    pub fn missing_values(
        &self,
        header_location: Option<&HeaderLocation>,
        offer_expires_at: Option<OffsetDateTime>,
    ) -> Vec<&'static str> {
        let mut missing = Vec::new();
        if self.header_type == HeaderType::Location && header_location.is_none() {
            missing.push("header_location");
        }
        if self.has_expiring_offer() && offer_expires_at.is_none() {
            missing.push("offer_expires_at");
        }
        missing
    }

    /// The URLs of the files in header and cards.
    pub fn file_urls(&self) -> BTreeSet<String> {
        let header = self.header_file().map(|(_, url)| url.to_owned());
        let cards = self.cards().into_iter().map(|card| card.header.1);
        header.into_iter().chain(cards).collect()
    }

    /// The message with these values. `files` has the source of each of [`Template::file_urls`].
    pub fn outbound(
        &self,
        send_id: SendId,
        to: Addressee,
        values: &MessageValues,
        files: &HashMap<String, FileSource>,
    ) -> OutboundTemplate {
        let texts = &values.placeholders;
        let header = self.header_placeholder_text();
        OutboundTemplate {
            send_id,
            to,
            reply_to: None,
            template: self.name.clone(),
            language: self.language.clone(),
            header: header.map(|text| self.parameters_of(text, texts)).unwrap_or_default(),
            body: self.parameters_of(self.body_text.as_deref().unwrap_or_default(), texts),
            header_file: self.header_file().and_then(|(kind, url)| file(files, kind, url)),
            header_location: self.location(values),
            offer_expires_at: values.offer_expires_at.filter(|_| self.has_expiring_offer()),
            buttons: self.button_values(texts),
            cards: self.outbound_cards(files),
        }
    }

    /// The location of the header, as a message contains it.
    pub(super) fn location(&self, values: &MessageValues) -> Option<HeaderLocation> {
        let location = values.header_location.as_ref();
        let location = location.filter(|_| self.header_type == HeaderType::Location)?;
        Some(HeaderLocation {
            name: single_spaced(&location.name),
            address: single_spaced(&location.address),
            ..*location
        })
    }

    fn outbound_cards(&self, files: &HashMap<String, FileSource>) -> Vec<OutboundCard> {
        let cards = self.cards().into_iter().filter_map(|card| {
            Some(OutboundCard {
                file: file(files, card.header.0, &card.header.1)?,
                body: card.body,
                buttons: card.buttons,
            })
        });
        cards.collect()
    }
}

fn file(files: &HashMap<String, FileSource>, kind: HeaderType, url: &str) -> Option<OutboundFile> {
    let source = files.get(url)?.clone();
    Some(OutboundFile { kind, source })
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;
    use crate::messaging::LimitedTimeOffer;
    use crate::templates::tests::approved_template;

    const NOW: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

    pub(crate) fn location() -> HeaderLocation {
        HeaderLocation {
            latitude: -23.5614,
            longitude: -46.6559,
            name: " Loja\tPaulista".into(),
            address: "Av. Paulista, 1578".into(),
        }
    }

    pub(crate) fn location_template() -> Template {
        Template {
            header_type: HeaderType::Location,
            ..approved_template("Oi {{1}}, venha!", &["Ana"])
        }
    }

    pub(crate) fn offer_template(has_expiration: bool) -> Template {
        Template {
            limited_time_offer: Some(LimitedTimeOffer {
                text: "Só hoje".into(),
                has_expiration,
            }),
            buttons: vec![
                json!({ "type": "COPY_CODE", "example": "PROMO10" }).into(),
                json!({ "type": "URL", "text": "Ver", "url": "https://l.example" }).into(),
            ],
            ..approved_template("Oi {{1}}, venha!", &["Ana"])
        }
    }

    fn values() -> MessageValues {
        MessageValues {
            placeholders: vec!["Bia".into()],
            header_location: Some(location()),
            offer_expires_at: Some(NOW),
        }
    }

    #[test]
    fn message_has_only_the_values_that_its_template_needs() {
        let message = |template: &Template| {
            template.outbound(
                SendId(Uuid::nil()),
                Addressee::Phone("+5511961234567".into()),
                &values(),
                &HashMap::new(),
            )
        };
        let sent = message(&location_template());
        assert_eq!(sent.header_location.unwrap().name, "Loja Paulista");
        assert_eq!((sent.body[0].text.as_str(), sent.offer_expires_at), ("Bia", None));
        let sent = message(&offer_template(true));
        assert_eq!((sent.header_location, sent.offer_expires_at), (None, Some(NOW)));
        assert_eq!(message(&offer_template(false)).offer_expires_at, None);
    }

    #[test]
    fn missing_values_are_named() {
        let missing = |template: &Template| template.missing_values(None, None);
        assert_eq!(missing(&location_template()), ["header_location"]);
        assert_eq!(missing(&offer_template(true)), ["offer_expires_at"]);
        assert_eq!(missing(&offer_template(false)), [""; 0]);
        let location = location();
        assert_eq!(location_template().missing_values(Some(&location), None), [""; 0]);
        assert_eq!(offer_template(true).missing_values(None, Some(NOW)), [""; 0]);
    }

    #[test]
    fn offer_has_to_last_a_minute_after_the_message() {
        let early = |template: &Template, seconds: i64| {
            values().offer_ends_too_early(template, NOW - Duration::seconds(seconds))
        };
        assert!(early(&offer_template(true), 59));
        assert!(!early(&offer_template(true), 60));
        assert!(!early(&offer_template(false), 0));
        assert!(!early(&location_template(), 0));
    }
}
