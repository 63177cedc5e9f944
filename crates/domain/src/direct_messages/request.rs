//! What a caller asks for: checked without knowing the account, and in the form by which a repeated request is
//! recognized.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::model::ContentKind;
use crate::campaigns::Variables;
use crate::contacts::{Phone, check_wa_user_id};
use crate::messaging::{ContentInput, FileReference, HeaderLocation, MessageContent};
use crate::shared::{ContactId, FieldErrors, MediaId, ProfileId, TemplateId, redacted_debug, timestamp};

const NAME_CHARS: usize = 200;
const REFERENCE_CHARS: usize = 128;

/// The most that `send_at` may be after now, and `expires_at` after `send_at`.
const LONGEST_TERM: Duration = Duration::days(30);

/// The time until a message expires, unless the request has another.
const DEFAULT_TERM: Duration = Duration::DAY;

/// Input of which only the types are checked.
#[derive(Clone, Default)]
pub struct MessageInput {
    pub to: Option<RecipientInput>,
    pub template: Option<MessageTemplateInput>,
    pub content: ContentInput,
    pub profile_id: Option<ProfileId>,
    pub send_at: Option<OffsetDateTime>,
    pub expires_at: Option<OffsetDateTime>,
    pub client_reference: Option<String>,
}

redacted_debug!(MessageInput {});

#[derive(Clone, Default)]
pub struct RecipientInput {
    pub contact_id: Option<ContactId>,
    pub phone: Option<String>,
    pub wa_user_id: Option<String>,
    pub name: Option<String>,
}

redacted_debug!(RecipientInput {});

#[derive(Clone, Default)]
pub struct MessageTemplateInput {
    pub id: Option<TemplateId>,
    pub name: Option<String>,
    pub language: Option<String>,
    pub variables: Option<Variables>,
    pub header: Option<MessageHeaderInput>,
    pub offer_expires_at: Option<OffsetDateTime>,
}

redacted_debug!(MessageTemplateInput { id });

/// The header of a template, for this message only: a file or a location.
#[derive(Clone, Default)]
pub struct MessageHeaderInput {
    pub media_id: Option<MediaId>,
    pub media_url: Option<String>,
    pub latitude: Option<f64>,
    pub longitude: Option<f64>,
    pub name: Option<String>,
    pub address: Option<String>,
}

redacted_debug!(MessageHeaderInput {});

/// The person that a message is for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Requested {
    Contact(ContactId),
    Phone(Phone),
    User(String),
}

redacted_debug!(
    enum Requested {
        Contact,
        Phone,
        User,
    }
);

/// How a request names its template.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestedTemplate {
    Id(TemplateId),
    Name { name: String, language: String },
}

/// The values of a template's message beside its placeholders.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestedValues {
    /// The account's file that replaces that of the template's header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header_media: Option<MediaId>,
    /// Replaces the URL of the template's header file.
    pub header_url: Option<String>,
    /// The location of the header.
    pub header_location: Option<HeaderLocation>,
    /// When the template's limited-time offer ends.
    #[serde(with = "timestamp::option")]
    pub offer_expires_at: Option<OffsetDateTime>,
}

redacted_debug!(RequestedValues {});

/// What a message should say. Stored as JSON.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestedContent {
    Template {
        key: RequestedTemplate,
        variables: Variables,
        values: RequestedValues,
    },
    FreeForm(MessageContent),
}

redacted_debug!(
    enum RequestedContent {
        Template,
        FreeForm,
    }
);

impl RequestedContent {
    /// The content of a template message.
    pub(crate) fn of_template(input: MessageTemplateInput) -> Result<Self, FieldErrors> {
        let mut errors = FieldErrors::default();
        let content = template_content(input, &mut errors);
        errors.into_result()?;
        content.ok_or_else(|| FieldErrors::one("template", "is required"))
    }

    /// The template of the content.
    pub fn template_key(&self) -> Option<&RequestedTemplate> {
        match self {
            Self::Template { key, .. } => Some(key),
            Self::FreeForm(_) => None,
        }
    }

    /// The account's file that the message sends.
    pub fn media_id(&self) -> Option<MediaId> {
        let content = match self {
            Self::Template { values, .. } => return values.header_media,
            Self::FreeForm(content) => content,
        };
        match content.media()?.1.file {
            FileReference::Media(id) => Some(id),
            FileReference::Url(_) => None,
        }
    }

    /// WhatsApp's type of the message.
    pub fn message_type(&self) -> &'static str {
        match self {
            Self::Template { .. } => ContentKind::Template.as_str(),
            Self::FreeForm(content) => content.kind(),
        }
    }

    /// The text below a file.
    pub fn caption(&self) -> Option<&str> {
        match self {
            Self::Template { .. } => None,
            Self::FreeForm(content) => content.caption(),
        }
    }

    pub fn kind(&self) -> ContentKind {
        match self {
            Self::Template { .. } => ContentKind::Template,
            Self::FreeForm(MessageContent::Text(_)) => ContentKind::Text,
            Self::FreeForm(MessageContent::Media(_)) => ContentKind::Media,
            Self::FreeForm(MessageContent::Interactive(_) | MessageContent::ContactRequest(_)) => {
                ContentKind::Interactive
            }
        }
    }
}

/// A checked request.
#[derive(Clone, PartialEq)]
pub struct MessageRequest {
    pub to: Requested,
    /// The name of a contact that has to be made.
    pub name: Option<String>,
    pub content: RequestedContent,
    pub profile_id: Option<ProfileId>,
    pub send_at: Option<OffsetDateTime>,
    pub expires_at: Option<OffsetDateTime>,
    pub client_reference: Option<String>,
}

redacted_debug!(MessageRequest { to, content });

impl MessageRequest {
    /// A message to a contact, which leaves now.
    pub(crate) fn to_contact(id: ContactId, content: RequestedContent) -> Self {
        Self {
            to: Requested::Contact(id),
            name: None,
            content,
            profile_id: None,
            send_at: None,
            expires_at: None,
            client_reference: None,
        }
    }

    /// Checks everything that depends neither on the account nor on the time.
    pub fn parse(input: MessageInput) -> Result<Self, FieldErrors> {
        let mut errors = FieldErrors::default();
        let to = recipient(input.to.as_ref(), &mut errors);
        let content = content(input.template, input.content, &mut errors);
        let name = input.to.and_then(|to| to.name).map(|name| name.trim().to_owned());
        if name
            .as_ref()
            .is_some_and(|name| !(1..=NAME_CHARS).contains(&name.chars().count()))
        {
            errors.add("to.name", format!("must have 1 to {NAME_CHARS} characters"));
        }
        if let Some(reference) = &input.client_reference {
            let is_visible = reference.bytes().all(|byte| byte.is_ascii_graphic());
            if reference.is_empty() || reference.len() > REFERENCE_CHARS || !is_visible {
                let message = format!("must have 1 to {REFERENCE_CHARS} visible ASCII characters");
                errors.add("client_reference", message);
            }
        }
        errors.into_result()?;
        let missing = || FieldErrors::one("to", "is required");
        Ok(Self {
            to: to.ok_or_else(missing)?,
            name,
            content: content.ok_or_else(missing)?,
            profile_id: input.profile_id,
            send_at: input.send_at,
            expires_at: input.expires_at,
            client_reference: input.client_reference,
        })
    }

    /// What identifies a repeated request, as JSON. Without `to.name`, which only names a new contact. Equal requests
    /// MUST have equal JSON in every version: a new field is omitted when absent.
    pub fn canonical(&self) -> Value {
        let to = match &self.to {
            Requested::Contact(id) => json!({ "contact_id": id }),
            Requested::Phone(phone) => json!({ "phone": phone.as_str() }),
            Requested::User(id) => json!({ "wa_user_id": id }),
        };
        let time = |at: Option<OffsetDateTime>| at.map(timestamp::format);
        json!({ "to": to, "content": self.content, "profile_id": self.profile_id, "send_at": time(self.send_at),
                "expires_at": time(self.expires_at) })
    }

    /// When the message leaves and when it expires.
    pub fn times(&self, now: OffsetDateTime) -> Result<(OffsetDateTime, OffsetDateTime), FieldErrors> {
        let send_at = self.send_at.unwrap_or(now).max(now);
        if send_at > now.saturating_add(LONGEST_TERM) {
            let message = format!("must be at most {} days ahead", LONGEST_TERM.whole_days());
            return Err(FieldErrors::one("send_at", message));
        }
        let latest = send_at.saturating_add(LONGEST_TERM);
        match self.expires_at {
            None => Ok((send_at, send_at.saturating_add(DEFAULT_TERM))),
            Some(at) if at <= send_at || at > latest => {
                let days = LONGEST_TERM.whole_days();
                let message = format!("must be after send_at (or now), by at most {days} days");
                Err(FieldErrors::one("expires_at", message))
            }
            Some(at) => Ok((send_at, at)),
        }
    }
}

fn recipient(input: Option<&RecipientInput>, errors: &mut FieldErrors) -> Option<Requested> {
    let Some(to) = input else {
        errors.add("to", "is required");
        return None;
    };
    match (to.contact_id, &to.phone, &to.wa_user_id) {
        (Some(id), None, None) => Some(Requested::Contact(id)),
        (None, Some(phone), None) => {
            let parsed = Phone::parse(phone);
            if parsed.is_none() {
                errors.add("to.phone", "is not a valid phone number; use the form +5511961234567");
            }
            parsed.map(Requested::Phone)
        }
        (None, None, Some(id)) => {
            let checked = check_wa_user_id(id.clone());
            if checked.is_none() {
                errors.add("to.wa_user_id", "is not a valid WhatsApp user id");
            }
            checked.map(Requested::User)
        }
        _ => {
            errors.add("to", "must have exactly one of contact_id, phone and wa_user_id");
            None
        }
    }
}

fn content(
    template: Option<MessageTemplateInput>,
    free_form: ContentInput,
    errors: &mut FieldErrors,
) -> Option<RequestedContent> {
    match (template, free_form.given().len()) {
        (Some(template), 0) => template_content(template, errors),
        (None, 1) => match free_form.check() {
            Ok(content) => Some(RequestedContent::FreeForm(content)),
            Err(invalid) => {
                for (field, messages) in invalid.0 {
                    messages.into_iter().for_each(|message| errors.add(&field, message));
                }
                None
            }
        },
        _ => {
            errors.add(
                "template",
                "exactly one of template, text, media and interactive is required",
            );
            None
        }
    }
}

fn template_content(input: MessageTemplateInput, errors: &mut FieldErrors) -> Option<RequestedContent> {
    let variables = input.variables.unwrap_or_default();
    if let Err(invalid) = variables.validate() {
        for (field, messages) in invalid.0 {
            messages
                .into_iter()
                .for_each(|message| errors.add(format!("template.{field}"), message));
        }
    }
    let header = input.header.unwrap_or_default();
    if header
        .media_url
        .as_ref()
        .is_some_and(|url| !url.starts_with("https://"))
    {
        errors.add("template.header.media_url", "must be an https URL");
    }
    if header.media_id.is_some() && header.media_url.is_some() {
        errors.add("template.header.media_url", "must not be combined with media_id");
    }
    let values = RequestedValues {
        header_location: header_location(&header, errors),
        header_media: header.media_id,
        header_url: header.media_url,
        offer_expires_at: input.offer_expires_at,
    };
    let key = match (input.id, input.name, input.language) {
        (Some(id), None, None) => Some(RequestedTemplate::Id(id)),
        (None, Some(name), Some(language)) => Some(RequestedTemplate::Name { name, language }),
        _ => {
            errors.add("template", "must have either id, or name and language");
            None
        }
    };
    Some(RequestedContent::Template {
        key: key?,
        variables,
        values,
    })
}

/// The location of a header. A location needs all of its fields.
fn header_location(header: &MessageHeaderInput, errors: &mut FieldErrors) -> Option<HeaderLocation> {
    let fields = (header.latitude, header.longitude, &header.name, &header.address);
    match fields {
        (None, None, None, None) => None,
        (Some(latitude), Some(longitude), Some(name), Some(address)) => {
            let location = HeaderLocation {
                latitude,
                longitude,
                name: name.clone(),
                address: address.clone(),
            };
            location.check("template.header", errors);
            Some(location)
        }
        _ => {
            errors.add(
                "template.header",
                "must have all of latitude, longitude, name and address for a location",
            );
            None
        }
    }
}
