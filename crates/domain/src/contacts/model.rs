//! Contacts and tags.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use thiserror::Error;
use time::OffsetDateTime;

use super::{Phone, Referral};
use crate::shared::schema::Timestamp;
use crate::shared::{
    Conflict, ContactId, CursorQuery, FieldErrors, SegmentId, StoreError, TagId, redacted_debug, timestamp,
};

/// A label on contacts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tag {
    /// The tag's id.
    pub id: TagId,
    /// Its name, unique in the account: 1 to 100 characters.
    #[schemars(example = &"vip")]
    pub name: String,
    /// Its colour, for the eye: at most 32 characters of your choice; null for none.
    #[schemars(example = &"#22c55e")]
    pub color: Option<String>,
}

/// A person an account writes to.
#[derive(Clone, PartialEq, Serialize, JsonSchema)]
pub struct Contact {
    /// The contact's id.
    pub id: ContactId,
    /// The person's name: 1 to 200 characters.
    #[schemars(example = &"Ana Lima")]
    pub name: String,
    /// The phone number in E.164 form, unique in the account; null for a person known by `wa_user_id` only.
    #[schemars(example = &"+5511961234567")]
    pub phone: Option<String>,
    /// The e-mail address; null when it is not known.
    #[schemars(example = &"ana@example.com")]
    pub email: Option<String>,
    /// The id that WhatsApp gives a person whose phone number it hides; null when it is not known.
    #[schemars(example = &"BR.1234567890")]
    pub wa_user_id: Option<String>,
    /// Whatever the account knows of the person: names of your choice with texts, numbers and booleans.
    #[schemars(example = serde_json::json!({ "city": "Campinas", "coupon": "VOLTA10" }))]
    pub attributes: Map<String, Value>,
    /// The contact's tags, in the order of their names.
    pub tags: Vec<Tag>,
    /// When the person asked for no more messages; null while they may be written to.
    #[schemars(with = "Option<Timestamp>")]
    #[serde(with = "timestamp::option")]
    pub opted_out_at: Option<OffsetDateTime>,
    /// When the contact was created.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
    /// When the contact was last changed.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub updated_at: OffsetDateTime,
    /// Raised by every change; internal.
    #[serde(skip)]
    pub version: i64,
}

redacted_debug!(Contact { id });

/// A contact, with what only the answer about one contact shows.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ContactDetails {
    #[serde(flatten)]
    pub contact: Contact,
    /// The ad or post that the contact's first message from one came from; null where there was none.
    pub first_referral: Option<Referral>,
}

/// A contact to be written, checked.
#[derive(Clone, Default, PartialEq)]
pub struct ContactDraft {
    /// 1 to 200 characters.
    pub name: String,
    /// The canonical number.
    pub phone: Option<Phone>,
    /// An e-mail address.
    pub email: Option<String>,
    /// The platform's user id.
    pub wa_user_id: Option<String>,
    /// Free attributes.
    pub attributes: Map<String, Value>,
    /// Whether the person asked for no more messages; none leaves that as it stands in the store.
    pub opted_out: Option<bool>,
}

redacted_debug!(ContactDraft {});

/// The fields of a contact that a change names, checked; the others stay as they are stored.
#[derive(Clone, Default, PartialEq)]
pub struct ContactChange {
    /// 1 to 200 characters.
    pub name: Option<String>,
    /// The canonical number; an inner none clears it.
    pub phone: Option<Option<Phone>>,
    /// An e-mail address; an inner none clears it.
    pub email: Option<Option<String>>,
    /// WhatsApp's user id; an inner none clears it.
    pub wa_user_id: Option<Option<String>>,
    /// All attributes.
    pub attributes: Option<Map<String, Value>>,
    /// All tags.
    pub tag_ids: Option<Vec<TagId>>,
    /// Whether the person asked for no more messages.
    pub opted_out: Option<bool>,
}

redacted_debug!(ContactChange {});

/// What a caller wrote, unchecked. On update an absent field is kept; `Some(None)` clears.
#[derive(Clone, Default)]
pub struct ContactInput {
    /// Required on create.
    pub name: Option<String>,
    /// Required where there is no `wa_user_id`.
    pub phone: Option<Option<String>>,
    /// Optional.
    pub email: Option<Option<String>>,
    /// Optional.
    pub wa_user_id: Option<Option<String>>,
    /// Optional; replaces all attributes.
    pub attributes: Option<Map<String, Value>>,
    /// Optional; replaces all tags.
    pub tag_ids: Option<Vec<TagId>>,
    /// Optional; true records an opt-out, false takes it back.
    pub opted_out: Option<bool>,
}

redacted_debug!(ContactInput {});

/// One checked line of an import.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportRow {
    /// The contact; its phone is always there.
    pub contact: ContactDraft,
    /// Labels to add, by name; unknown ones are made.
    pub tags: Vec<String>,
}

/// A row of a batch that would make its contact too large.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedRow {
    /// Which row of the batch, from 0.
    pub position: usize,
    /// The attributes that its contact has.
    pub attributes: Map<String, Value>,
}

/// A contact that another system tells of, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ContactUpsert {
    /// The contact, known by its phone, or else by its user id.
    pub contact: ContactDraft,
    /// Labels to add.
    pub tag_ids: Vec<TagId>,
    /// Labels to add, by name; unknown ones are made.
    pub tags: Vec<String>,
}

/// Which contacts a list holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContactFilter {
    /// Part of the name, phone or e-mail, without regard to case; a phone also in any other way of writing it.
    pub search: Option<String>,
    /// Bearing this label.
    pub tag_id: Option<TagId>,
    /// Member of this segment.
    pub segment_id: Option<SegmentId>,
}

/// Asks for contacts, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContactQuery {
    /// Which ones.
    pub filter: ContactFilter,
    /// Which part of the list.
    pub page: CursorQuery,
}

/// Why a contact operation did not happen.
#[derive(Debug, Error)]
pub enum ContactError {
    /// No such contact or tag in the account.
    #[error("not found")]
    NotFound,
    /// The input is wrong.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// Other changes of the contact came first, again and again.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for ContactError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
