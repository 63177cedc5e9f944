//! Contacts and tags.

use serde_json::{Map, Value};
use thiserror::Error;
use time::OffsetDateTime;

use super::{Phone, Referral, ScopedUserId, UNKNOWN_SCOPE};
use crate::shared::{
    Conflict, ContactId, CursorQuery, FieldErrors, SegmentId, StoreError, TagId, ZoneName, redacted_debug,
};

/// A label on contacts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    pub id: TagId,
    /// The tag's name, unique in the account: 1 to 100 characters.
    pub name: String,
    /// The tag's display colour: at most 32 characters of your choice.
    pub color: Option<String>,
}

/// A person to whom an account writes.
#[derive(Clone, PartialEq)]
pub struct Contact {
    pub id: ContactId,
    /// The contact's name: 1 to 200 characters.
    pub name: String,
    /// The phone number in E.164 form, unique in the account; none for a contact with only a `wa_user_id`.
    pub phone: Option<String>,
    pub email: Option<String>,
    /// WhatsApp's id of a contact whose phone number it hides.
    pub wa_user_id: Option<String>,
    /// The contact's own time zone. None: it follows from the phone number, else it is the account's.
    pub time_zone: Option<ZoneName>,
    /// The account's own fields of the contact: names of your choice with strings, numbers and booleans.
    pub attributes: Map<String, Value>,
    /// The contact's tags, sorted by name.
    pub tags: Vec<Tag>,
    /// When the contact opted out of messages; none while it accepts them.
    pub opted_out_at: Option<OffsetDateTime>,
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
    /// Optimistic locking: every change increments it.
    pub version: i64,
}

redacted_debug!(Contact { id });

/// A contact with the fields that only the response for one contact has.
#[derive(Clone, Debug, PartialEq)]
pub struct ContactDetails {
    pub contact: Contact,
    /// The ad or post that led to the contact's first message from an ad or post, if there was one.
    pub first_referral: Option<Referral>,
    /// The user ids that numbers reported, latest first.
    pub user_ids: Vec<ScopedUserId>,
    /// Another contact that WhatsApp says is the same person.
    pub same_person_as: Option<ContactId>,
}

impl ContactDetails {
    /// All user ids of the contact. The one that no number reported has the scope [`UNKNOWN_SCOPE`].
    pub fn all_user_ids(&self) -> Vec<ScopedUserId> {
        let latest = self.contact.wa_user_id.as_ref();
        let unscoped = latest.filter(|id| self.user_ids.iter().all(|reported| reported.user_id != **id));
        let unscoped = unscoped.map(|id| ScopedUserId {
            scope: UNKNOWN_SCOPE.to_owned(),
            user_id: id.clone(),
            parent_user_id: None,
            username: None,
            first_seen_at: self.contact.created_at,
            last_seen_at: self.contact.created_at,
        });
        self.user_ids.iter().cloned().chain(unscoped).collect()
    }
}

/// A validated contact that is not stored yet.
#[derive(Clone, Default, PartialEq)]
pub struct ContactDraft {
    pub name: String,
    pub phone: Option<Phone>,
    pub email: Option<String>,
    /// WhatsApp's user id.
    pub wa_user_id: Option<String>,
    pub time_zone: Option<ZoneName>,
    pub attributes: Map<String, Value>,
    /// Whether the contact opts out. `None` does not change the stored consent.
    pub opted_out: Option<bool>,
}

redacted_debug!(ContactDraft {});

/// The validated fields of a change. Absent fields do not change. An inner `None` clears a field.
#[derive(Clone, Default, PartialEq)]
pub struct ContactChange {
    pub name: Option<String>,
    pub phone: Option<Option<Phone>>,
    pub email: Option<Option<String>>,
    /// WhatsApp's user id.
    pub wa_user_id: Option<Option<String>>,
    pub time_zone: Option<Option<ZoneName>>,
    /// Replaces all attributes.
    pub attributes: Option<Map<String, Value>>,
    /// Replaces all tags.
    pub tag_ids: Option<Vec<TagId>>,
    /// Whether the contact opts out or in.
    pub opted_out: Option<bool>,
}

redacted_debug!(ContactChange {});

/// The unchecked fields of a request. An update does not change absent fields, and `Some(None)` clears a field.
#[derive(Clone, Default)]
pub struct ContactInput {
    /// Required on create.
    pub name: Option<String>,
    /// Required without a `wa_user_id`.
    pub phone: Option<Option<String>>,
    pub email: Option<Option<String>>,
    pub wa_user_id: Option<Option<String>>,
    /// The IANA name.
    pub time_zone: Option<Option<String>>,
    /// Replaces all attributes.
    pub attributes: Option<Map<String, Value>>,
    /// Replaces all tags.
    pub tag_ids: Option<Vec<TagId>>,
    /// True records an opt-out, false an opt-in.
    pub opted_out: Option<bool>,
}

redacted_debug!(ContactInput {});

/// One validated line of an import.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportRow {
    /// The contact. Its phone number, its user id or both are present.
    pub contact: ContactDraft,
    /// Names of tags to add. Missing tags are created.
    pub tags: Vec<String>,
}

/// A row of a batch that must not be written.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedRow {
    /// The index of the row in the batch.
    pub position: usize,
    pub reason: RowRefusal,
}

/// Why a row must not be written.
#[derive(Clone, Debug, PartialEq)]
pub enum RowRefusal {
    /// The contact would exceed the attribute limits. Holds its stored attributes.
    Attributes(Map<String, Value>),
    /// Another contact has the row's user id.
    UserIdTaken,
    /// The contact with the row's phone number has another user id.
    UserIdDiffers,
}

/// A validated contact that another system reports.
#[derive(Clone, Debug, PartialEq)]
pub struct ContactUpsert {
    /// The contact, identified by its phone number, else by its user id.
    pub contact: ContactDraft,
    /// Ids of tags to add.
    pub tag_ids: Vec<TagId>,
    /// Names of tags to add. Missing tags are created.
    pub tags: Vec<String>,
}

/// Filters of a list of contacts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContactFilter {
    /// A part of the name, phone number or e-mail address; case does not matter. A phone number also matches in other
    /// notations. If a contact has the number, only this contact is found.
    pub search: Option<String>,
    pub tag_id: Option<TagId>,
    /// Only members of this segment.
    pub segment_id: Option<SegmentId>,
}

/// A page request for contacts, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContactQuery {
    pub filter: ContactFilter,
    pub page: CursorQuery,
}

/// Why an operation on contacts or tags failed.
#[derive(Debug, Error)]
pub enum ContactError {
    /// The account has no such contact or tag.
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// Every try met a concurrent change of the contact.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for ContactError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
