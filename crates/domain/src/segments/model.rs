//! Segments, as stored and published.

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;
use time::OffsetDateTime;

use super::AudienceFilters;
use crate::shared::schema::Timestamp;
use crate::shared::{FieldErrors, SegmentId, StoreError, timestamp};

/// A named set of contacts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Segment {
    /// The segment's id.
    pub id: SegmentId,
    /// Its name: 1 to 100 characters.
    #[schemars(example = &"Campinas, com e-mail")]
    pub name: String,
    /// What it is for, in words for people: at most 1,000 characters; null for none.
    #[schemars(example = &"For the opening of the new shop")]
    pub description: Option<String>,
    /// Contacts that meet these conditions belong to it beside its members; without any, its members alone do.
    pub filters: AudienceFilters,
    /// How many contacts it holds right now: members and those that meet its conditions, each counted once.
    #[schemars(example = 312)]
    pub members: i64,
    /// When it was created.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
    /// When its name, description or filters were last changed.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub updated_at: OffsetDateTime,
}

/// What a caller wrote, unchecked. On update an absent field is kept; `Some(None)` clears.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SegmentInput {
    /// Required on create.
    pub name: Option<String>,
    /// Optional.
    pub description: Option<Option<String>>,
    /// Optional; replaces all filters.
    pub filters: Option<Option<AudienceFilters>>,
}

/// A new segment, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentDraft {
    /// 1 to 100 characters, sanitized.
    pub name: String,
    /// At most 1000 characters.
    pub description: Option<String>,
    /// Its conditions; maybe none.
    pub filters: AudienceFilters,
}

/// What an update changes, checked; what is none stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SegmentChange {
    /// Another name.
    pub name: Option<String>,
    /// Another description, or none any more.
    pub description: Option<Option<String>>,
    /// Other conditions.
    pub filters: Option<AudienceFilters>,
}

/// How an addition of members ended.
#[derive(Clone, Debug, PartialEq)]
pub enum MembersAdded {
    /// All of them are members now; some may have been before.
    Done(Segment),
    /// Nothing was added: the ids at these positions are no contacts of the account.
    Unknown(Vec<usize>),
    /// There is no such segment.
    Missing,
}

/// Why a segment operation did not happen.
#[derive(Debug, Error)]
pub enum SegmentError {
    /// No such segment in the account.
    #[error("not found")]
    NotFound,
    /// The input is wrong.
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for SegmentError {
    fn from(error: StoreError) -> Self {
        error.into_field_errors().map_or_else(Self::Store, Self::Invalid)
    }
}
