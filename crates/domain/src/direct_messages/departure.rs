//! Decides whether a due message may leave. `check_content` also decides when the message is made.

use time::OffsetDateTime;

use super::{CONTACT_DELETED, ContactFacts, EXPIRED, NUMBER_REMOVED, Refusal, RequestedContent, RequestedValues};
use crate::campaigns::{Recipient, Variables};
use crate::holds::{HoldCause, HoldDecision, HoldFacts, HoldPolicy, held_too_long};
use crate::messaging::{Addressee, Category, MessageContent, MetaStatus, WINDOW};
use crate::shared::{ContactId, MediaId, MessageId, ProfileId, ZoneName, redacted_debug};
use crate::templates::{MessageValues, OFFER_ENDED, Template};

/// What decides whether a due message leaves, read in the transaction that starts it.
#[derive(Clone, PartialEq)]
pub struct DepartureFacts {
    pub id: MessageId,
    pub content: RequestedContent,
    /// None: the contact was deleted.
    pub contact: Option<ContactFacts>,
    /// The template of the content, unless it was deleted.
    pub template: Option<Template>,
    /// Whether the account has an active plan.
    pub has_plan: bool,
    /// The sending number. None: the message is simulated.
    pub number: Option<ProfileId>,
    /// Whether the number of the queue was removed.
    pub is_number_removed: bool,
    pub expires_at: OffsetDateTime,
    /// When the message was due.
    pub send_at: OffsetDateTime,
    /// The setting that has held the message.
    pub held_by: Option<HoldCause>,
    /// The contact's own time zone.
    pub time_zone: Option<ZoneName>,
    /// The contact, or the first of the contacts that are the same person.
    pub person: ContactId,
    /// How many attempts were made before.
    pub attempts: u32,
    pub now: OffsetDateTime,
}

redacted_debug!(DepartureFacts { id, content });

/// A message that leaves now.
#[derive(Clone, PartialEq)]
pub struct LeavingMessage {
    pub id: MessageId,
    pub attempts: u32,
    pub to: Addressee,
    pub content: LeavingContent,
    /// WhatsApp's id of the contact, if known.
    pub wa_id: Option<String>,
}

redacted_debug!(LeavingMessage { id, content });

#[derive(Clone, PartialEq)]
pub enum LeavingContent {
    Template {
        template: Box<Template>,
        values: MessageValues,
        /// The account's file of the header. Its id is the header's URL.
        header_media: Option<MediaId>,
    },
    FreeForm(MessageContent),
}

redacted_debug!(
    enum LeavingContent {
        Template,
        FreeForm,
    }
);

impl LeavingContent {
    /// The text of a template with the message's values.
    pub fn template_text(&self) -> Option<String> {
        match self {
            Self::Template { template, values, .. } => template.rendered(values).body,
            Self::FreeForm(_) => None,
        }
    }

    /// None: the message has no template.
    pub fn category(&self) -> Option<Category> {
        match self {
            Self::Template { template, .. } => Some(template.category),
            Self::FreeForm(_) => None,
        }
    }
}

/// What becomes of a due message.
#[derive(Clone, Debug, PartialEq)]
pub enum Departure {
    Leave(Box<LeavingMessage>),
    /// The account's settings hold it. It is due again at `until`.
    Hold {
        cause: HoldCause,
        until: OffsetDateTime,
    },
    /// It fails with this error message and is not sent.
    Fail(String),
}

/// Decides on a due message of a number that may send. The messages of one transaction have one policy.
pub fn departure(facts: DepartureFacts, policy: &mut HoldPolicy) -> Departure {
    if facts.is_number_removed {
        return Departure::Fail(NUMBER_REMOVED.to_owned());
    }
    if facts.now >= facts.expires_at {
        return Departure::Fail(facts.held_by.map_or_else(|| EXPIRED.to_owned(), held_too_long));
    }
    let Some(contact) = &facts.contact else {
        return Departure::Fail(CONTACT_DELETED.to_owned());
    };
    let needs_template = matches!(facts.content, RequestedContent::Template { .. });
    let checked = match facts.template.as_ref().filter(|_| needs_template) {
        None if needs_template => return Departure::Fail("the template was deleted".to_owned()),
        Some(_) if !facts.has_plan => Err(Refusal::PlanInactive),
        template => check_content(&facts.content, template, contact, facts.number, facts.now),
    };
    match checked {
        Err(refusal) => Departure::Fail(refusal.to_string()),
        Ok((_, LeavingContent::Template { template, values, .. }))
            if values.offer_ends_too_early(&template, facts.now) =>
        {
            Departure::Fail(OFFER_ENDED.to_owned())
        }
        Ok((to, content)) => match policy.decide(&facts.hold_facts()) {
            HoldDecision::Held { cause, until } => Departure::Hold { cause, until },
            HoldDecision::TooLong(cause) => Departure::Fail(held_too_long(cause)),
            HoldDecision::Free => Departure::Leave(Box::new(LeavingMessage {
                id: facts.id,
                attempts: facts.attempts,
                to,
                content,
                wa_id: contact.wa_id.clone(),
            })),
        },
    }
}

impl DepartureFacts {
    /// Free-form messages have no category, so nothing holds them.
    fn hold_facts(&self) -> HoldFacts {
        let needs_template = matches!(self.content, RequestedContent::Template { .. });
        let template = self.template.as_ref().filter(|_| needs_template);
        let phone = self.contact.as_ref().map(|contact| contact.recipient.phone.clone());
        HoldFacts {
            category: template.map(|template| template.category),
            person: self.person,
            time_zone: self.time_zone.clone(),
            phone,
            due_at: self.send_at,
            expires_at: Some(self.expires_at),
        }
    }
}

/// Checks content, template and contact of a message that leaves at `at`. Returns its address and its rendered content.
pub(crate) fn check_content(
    content: &RequestedContent,
    template: Option<&Template>,
    contact: &ContactFacts,
    number: Option<ProfileId>,
    at: OffsetDateTime,
) -> Result<(Addressee, LeavingContent), Refusal> {
    match (content, template) {
        (
            RequestedContent::Template {
                variables, values: own, ..
            },
            Some(template),
        ) => {
            let template = with_header(template, own);
            let values = check_template(&template, variables, own, &contact.recipient)?;
            if contact.opted_out && template.category != Category::Authentication {
                return Err(Refusal::OptedOut);
            }
            let needs_phone = template.category.needs_phone();
            let to = contact.address(number, needs_phone).ok_or(Refusal::NoAddress)?;
            let content = LeavingContent::Template {
                template: Box::new(template),
                values,
                header_media: own.header_media,
            };
            Ok((to, content))
        }
        (RequestedContent::Template { .. }, None) => Err(Refusal::TemplateNotApproved),
        (RequestedContent::FreeForm(content), _) => {
            let to = contact.address(number, false).ok_or(Refusal::NoAddress)?;
            let closes_at = contact.last_inbound_at.and_then(|last| last.checked_add(WINDOW));
            match closes_at {
                Some(closes_at) if at < closes_at => Ok((to, LeavingContent::FreeForm(content.clone()))),
                _ => Err(Refusal::OutsideWindow),
            }
        }
    }
}

/// The template with the header file of the message instead of its own.
fn with_header(template: &Template, own: &RequestedValues) -> Template {
    let mut template = template.clone();
    let own_file = own.header_media.map(|id| id.to_string());
    if let Some(url) = own_file.or_else(|| own.header_url.clone()) {
        template.header_media_url = Some(url);
    }
    template
}

/// Checks that the template may be sent, and returns the values of the recipient's message.
fn check_template(
    template: &Template,
    variables: &Variables,
    own: &RequestedValues,
    recipient: &Recipient,
) -> Result<MessageValues, Refusal> {
    if template.meta_status != MetaStatus::Approved {
        return Err(Refusal::TemplateNotApproved);
    }
    let reasons = template.unsendable_reasons();
    if !reasons.is_empty() {
        return Err(Refusal::TemplateNotSendable { reasons });
    }
    let keys = template.placeholders();
    let placeholders = variables.render(&keys, recipient);
    let empty = keys.into_iter().zip(&placeholders).filter(|(_, text)| text.is_empty());
    let mut empty: Vec<String> = empty.map(|(placeholder, _)| placeholder.key).collect();
    let missing = template.missing_values(own.header_location.as_ref(), own.offer_expires_at);
    empty.extend(missing.into_iter().map(str::to_owned));
    if !empty.is_empty() {
        return Err(Refusal::EmptyPlaceholders { placeholders: empty });
    }
    Ok(MessageValues {
        placeholders,
        header_location: own.header_location.clone(),
        offer_expires_at: own.offer_expires_at,
    })
}
