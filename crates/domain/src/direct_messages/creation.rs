//! Decides on new messages: which request is a repetition, which is refused, and what is stored for the others.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use super::departure::{LeavingContent, check_content};
use super::request::RequestedTemplate;
use super::{
    ContactFacts, ContentKind, DirectMessage, DirectStatus, MessageInput, MessageRequest, MessageTemplate, NewContact,
    NumberChoice, Refusal, RemovedMessage, Requested, RequestedContent,
};
use crate::billing::PlanEntitlement;
use crate::contacts::ContactDraft;
use crate::messaging::{Addressee, MessageContent};
use crate::shared::{
    ApiKeyId, ContactId, FieldErrors, KeyScope, MediaId, MessageId, ProfileId, RouteScope, ScopeArea, ScopeVerb,
    TemplateId, Tenant, UserId, redacted_debug,
};
use crate::templates::Template;

/// What decides on new messages, from one read.
#[derive(Clone, Debug, PartialEq)]
pub struct CreationFacts {
    pub now: OffsetDateTime,
    pub billing: PlanEntitlement,
    /// The account's numbers: verified ones first, then the oldest.
    pub numbers: Vec<NumberChoice>,
    /// The requested contacts that exist.
    pub contacts: HashMap<Requested, ContactFacts>,
    /// The requested templates that exist.
    pub templates: HashMap<RequestedTemplate, Template>,
    /// The messages that have one of the references, with their requests. The request of an erased message is null.
    pub references: HashMap<String, (DirectMessage, Value)>,
    /// The removed messages that had one of the references.
    pub removed: HashMap<String, RemovedMessage>,
}

/// A message to store.
#[derive(Clone, PartialEq)]
pub struct NewDirectMessage {
    pub message: DirectMessage,
    /// The canonical form of the request.
    pub request: Value,
    pub template_id: Option<TemplateId>,
    /// The account's file that the message sends.
    pub media_id: Option<MediaId>,
    /// The month whose quota the message uses. None: it uses none.
    pub quota_month: Option<Date>,
}

redacted_debug!(NewDirectMessage { message });

impl NewDirectMessage {
    /// A text that the account sends by itself to a contact inside the service window. It leaves at once.
    pub fn automatic(id: MessageId, text: AutomaticText, now: OffsetDateTime) -> Self {
        let content = RequestedContent::FreeForm(MessageContent::Text(text.text));
        let kind = content.kind();
        let request = MessageRequest {
            profile_id: Some(text.number),
            expires_at: Some(text.expires_at),
            ..MessageRequest::to_contact(text.contact, content)
        };
        Self {
            message: DirectMessage {
                id,
                contact_id: text.contact,
                profile_id: Some(text.number),
                kind,
                created_by: text.created_by,
                ..DirectMessage::pending(now, now, text.expires_at)
            },
            request: request.canonical(),
            template_id: None,
            media_id: None,
            quota_month: None,
        }
    }
}

/// A text that the account sends by itself.
#[derive(Clone, PartialEq, Eq)]
pub struct AutomaticText {
    pub contact: ContactId,
    pub number: ProfileId,
    pub text: String,
    /// The user whose setting it is.
    pub created_by: UserId,
    /// When the service window ends.
    pub expires_at: OffsetDateTime,
}

redacted_debug!(AutomaticText { contact, number });

/// Messages that are stored together, or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct CreationPlan {
    pub contacts: Vec<NewContact>,
    pub messages: Vec<NewDirectMessage>,
    /// The messages of each month that use its quota.
    pub quota: BTreeMap<Date, i64>,
    /// The plan's messages a month.
    pub monthly_limit: i64,
    pub now: OffsetDateTime,
}

/// Why a request is not accepted.
#[derive(Clone, Debug, PartialEq)]
pub enum ItemError {
    Invalid(FieldErrors),
    /// The scopes of the API key do not cover the message.
    Forbidden,
    Refused(Refusal),
    /// Another request has the reference; the id of its message.
    ReferenceTaken(MessageId),
}

impl From<FieldErrors> for ItemError {
    fn from(errors: FieldErrors) -> Self {
        Self::Invalid(errors)
    }
}

impl From<Refusal> for ItemError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The decision on one request.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Store the message, and its contact if that is new.
    New(Box<NewDirectMessage>, Option<NewContact>),
    /// The message exists.
    Repeated(Box<DirectMessage>),
    /// The message existed, and was removed.
    Removed(RemovedMessage),
    Bad(ItemError),
}

const MESSAGES_WRITE: Option<RouteScope> = RouteScope::new(ScopeArea::Messages, ScopeVerb::Write);

/// An API key that only triggers templates may send those, named by their id.
fn may_send(tenant: &Tenant, template: Option<TemplateId>) -> bool {
    let Some(key) = &tenant.api_key else { return true };
    MESSAGES_WRITE.is_some_and(|scope| key.scopes.allow(scope))
        || template.is_some_and(|id| key.scopes.has(KeyScope::Trigger(id)))
}

/// Whether the API key may send this, valid or not.
pub(super) fn is_within_key(tenant: &Tenant, input: &MessageInput) -> bool {
    let template = input.template.as_ref().and_then(|template| template.id);
    may_send(tenant, template.filter(|_| input.content.given().is_empty()))
}

fn check_scope(tenant: &Tenant, content: &RequestedContent) -> Result<(), ItemError> {
    let template = match content {
        RequestedContent::Template {
            key: RequestedTemplate::Id(id),
            ..
        } => Some(*id),
        RequestedContent::Template { .. } | RequestedContent::FreeForm(_) => None,
    };
    may_send(tenant, template).then_some(()).ok_or(ItemError::Forbidden)
}

/// Decides on a request. `new_id` makes the ids of the message and of its contact.
pub fn decide(tenant: &Tenant, request: &MessageRequest, facts: &CreationFacts, new_id: &dyn Fn() -> Uuid) -> Decision {
    match try_decide(tenant, request, facts, new_id) {
        Ok(decision) => decision,
        Err(error) => Decision::Bad(error),
    }
}

fn try_decide(
    tenant: &Tenant,
    request: &MessageRequest,
    facts: &CreationFacts,
    new_id: &dyn Fn() -> Uuid,
) -> Result<Decision, ItemError> {
    check_scope(tenant, &request.content)?;
    let canonical = request.canonical();
    let earlier = request
        .client_reference
        .as_ref()
        .and_then(|reference| facts.references.get(reference));
    if let Some((message, earlier)) = earlier {
        // The request of an erased message is gone, so any request with its reference is a repetition.
        return match *earlier == canonical || earlier.is_null() {
            true => Ok(Decision::Repeated(Box::new(message.clone()))),
            false => Err(ItemError::ReferenceTaken(message.id)),
        };
    }
    let removed = request.client_reference.as_ref();
    if let Some(removed) = removed.and_then(|reference| facts.removed.get(reference)) {
        return match removed.is_repeated_by(&canonical) {
            true => Ok(Decision::Removed(removed.clone())),
            false => Err(ItemError::ReferenceTaken(removed.id)),
        };
    }
    let (send_at, expires_at) = request.times(facts.now)?;
    let (contact, new_contact) = contact(request, facts, new_id)?;
    let template = requested_template(&request.content, facts)?;
    let profile_id = number(request, facts, &contact)?;
    let accepted = accept(&request.content, template, &contact, (facts, profile_id), send_at)?;
    let message = DirectMessage {
        id: new_id().into(),
        contact_id: contact.id,
        phone: Some(contact.recipient.phone.clone()).filter(|phone| !phone.is_empty()),
        wa_user_id: contact.wa_user_id.clone(),
        profile_id,
        kind: request.content.kind(),
        template: template.map(MessageTemplate::of),
        client_reference: request.client_reference.clone(),
        created_by: tenant.actor.user_id,
        api_key_id: tenant.api_key.as_ref().map(|key| key.id),
        ..DirectMessage::pending(facts.now, send_at, expires_at)
    };
    let new = NewDirectMessage {
        message,
        request: canonical,
        template_id: template.map(|template| template.id),
        media_id: request.content.media_id(),
        quota_month: accepted.quota_month,
    };
    Ok(Decision::New(Box::new(new), new_contact))
}

/// A message that may be sent.
pub(crate) struct Accepted {
    pub(crate) to: Addressee,
    pub(crate) content: LeavingContent,
    /// The month whose quota the message uses. None: it uses none.
    pub(crate) quota_month: Option<Date>,
}

/// Decides on content, contact and plan of a message that leaves at `at`. A template uses one message of that month.
pub(crate) fn accept(
    content: &RequestedContent,
    template: Option<&Template>,
    contact: &ContactFacts,
    (facts, number): (&CreationFacts, Option<ProfileId>),
    at: OffsetDateTime,
) -> Result<Accepted, Refusal> {
    let (to, leaving) = check_content(content, template, contact, number, at)?;
    let uses_quota = template.is_some();
    if uses_quota && facts.billing.messages_per_month(facts.now).is_none() {
        return Err(Refusal::PlanInactive);
    }
    Ok(Accepted {
        to,
        content: leaving,
        quota_month: uses_quota.then(|| month_of(at)),
    })
}

/// The first day of the time's month (UTC).
pub(crate) fn month_of(at: OffsetDateTime) -> Date {
    let date = at.to_offset(time::UtcOffset::UTC).date();
    date.replace_day(1).unwrap_or(date)
}

fn contact(
    request: &MessageRequest,
    facts: &CreationFacts,
    new_id: &dyn Fn() -> Uuid,
) -> Result<(ContactFacts, Option<NewContact>), ItemError> {
    if let Some(contact) = facts.contacts.get(&request.to) {
        return Ok((contact.clone(), None));
    }
    let (phone, wa_user_id, address) = match &request.to {
        Requested::Contact(_) => return Err(FieldErrors::one("to.contact_id", "does not exist").into()),
        Requested::Phone(phone) => (Some(phone.clone()), None, phone.to_string()),
        Requested::User(id) => (None, Some(id.clone()), id.clone()),
    };
    let new = NewContact {
        id: new_id().into(),
        draft: ContactDraft {
            name: request.name.clone().unwrap_or(address),
            phone,
            email: None,
            wa_user_id,
            time_zone: None,
            attributes: Map::new(),
            opted_out: None,
        },
    };
    Ok((ContactFacts::of(&new, &facts.numbers), Some(new)))
}

/// The template of the content. It MUST be one of the facts' templates.
pub(crate) fn requested_template<'a>(
    content: &RequestedContent,
    facts: &'a CreationFacts,
) -> Result<Option<&'a Template>, FieldErrors> {
    let RequestedContent::Template { key, .. } = content else {
        return Ok(None);
    };
    let field = match key {
        RequestedTemplate::Id(_) => "template.id",
        RequestedTemplate::Name { .. } => "template.name",
    };
    let found = facts.templates.get(key);
    found.map(Some).ok_or_else(|| FieldErrors::one(field, "does not exist"))
}

/// The number of the request, else a verified one of the contact's conversation, else the account's default. None: the
/// account has no number.
fn number(
    request: &MessageRequest,
    facts: &CreationFacts,
    contact: &ContactFacts,
) -> Result<Option<ProfileId>, ItemError> {
    let find = |id: ProfileId| facts.numbers.iter().find(|number| number.id == id);
    let chosen = match request.profile_id {
        Some(id) => Some(find(id).ok_or_else(|| FieldErrors::one("profile_id", "does not exist"))?),
        None => {
            let conversation = contact.conversation_profile.and_then(find);
            conversation
                .filter(|number| number.is_verified)
                .or(facts.numbers.first())
        }
    };
    match chosen {
        Some(number) if !number.is_verified => Err(Refusal::NumberUnverified.into()),
        chosen => Ok(chosen.map(|number| number.id)),
    }
}

impl MessageTemplate {
    fn of(template: &Template) -> Self {
        Self {
            id: template.id,
            name: template.name.clone(),
            language: template.language.clone(),
            category: template.category,
        }
    }
}

impl DirectMessage {
    /// A message that was made now, without the values of a request.
    pub(super) fn pending(now: OffsetDateTime, send_at: OffsetDateTime, expires_at: OffsetDateTime) -> Self {
        Self {
            id: Uuid::nil().into(),
            contact_id: Uuid::nil().into(),
            phone: None,
            wa_user_id: None,
            profile_id: None,
            kind: ContentKind::Text,
            template: None,
            status: DirectStatus::Pending,
            started_at: None,
            is_unknown: false,
            hold_reason: None,
            retry_at: None,
            send_at,
            expires_at,
            sent_at: None,
            client_reference: None,
            wa_message_id: None,
            error_code: None,
            error_message: None,
            failure_class: None,
            retry_after: None,
            pricing: None,
            address: None,
            conversation_id: None,
            created_by: UserId(Uuid::nil()),
            api_key_id: None::<ApiKeyId>,
            created_at: now,
            updated_at: now,
            now,
        }
    }
}
