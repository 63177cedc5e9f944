//! Segments, their input and errors.

use thiserror::Error;
use time::OffsetDateTime;

use super::AudienceFilters;
use crate::contacts::Contact;
use crate::shared::{FieldErrors, SegmentId, StoreError};

/// A named set of contacts.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    pub id: SegmentId,
    /// The name: 1 to 100 characters.
    pub name: String,
    /// A description for people: at most 1,000 characters.
    pub description: Option<String>,
    /// Contacts that match these filters belong to the segment in addition to its members. Without filters, only the
    /// members belong to it.
    pub filters: AudienceFilters,
    /// The number of contacts: members plus contacts that match the filters, each counted once. In an account of more
    /// than 100,000 contacts it may be up to 60 seconds old.
    pub members: i64,
    /// When the contacts were counted.
    pub members_as_of: OffsetDateTime,
    pub created_at: OffsetDateTime,
    /// When the name, description or filters were last changed.
    pub updated_at: OffsetDateTime,
}

/// Unchecked input. On update an absent field is unchanged and `Some(None)` clears it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SegmentInput {
    /// Required on create.
    pub name: Option<String>,
    pub description: Option<Option<String>>,
    /// Replaces all filters.
    pub filters: Option<Option<AudienceFilters>>,
}

/// A validated new segment.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentDraft {
    /// 1 to 100 characters, sanitized.
    pub name: String,
    /// At most 1000 characters.
    pub description: Option<String>,
    pub filters: AudienceFilters,
}

/// A validated change. None keeps the value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SegmentChange {
    pub name: Option<String>,
    pub description: Option<Option<String>>,
    pub filters: Option<AudienceFilters>,
}

/// The contacts of a segment that is not stored.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentPreview {
    pub count: i64,
    /// The time at which the conditions were evaluated.
    pub as_of: OffsetDateTime,
    /// The contacts with a phone number that did not opt out.
    pub reachable: i64,
    /// The newest contacts.
    pub sample: Vec<Contact>,
}

/// The outcome of a preview.
#[derive(Clone, Debug, PartialEq)]
pub enum PreviewOutcome {
    Done(SegmentPreview),
    /// The account has no contacts with the ids at these positions.
    Unknown(Vec<usize>),
}

/// The outcome of adding members.
#[derive(Clone, Debug, PartialEq)]
pub enum MembersAdded {
    /// All contacts are members now. Some may have been members before.
    Done(Box<Segment>),
    /// Nothing was added: the account has no contacts with the ids at these positions.
    Unknown(Vec<usize>),
    /// The segment does not exist.
    Missing,
}

#[derive(Debug, Error)]
pub enum SegmentError {
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for SegmentError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
