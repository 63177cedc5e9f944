//! Ports of segments. Every method MUST see only the rows of the given account, without deleted segments and deleted
//! contacts.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{AudienceFilters, FilterReference, MembersAdded, PreviewOutcome, Segment, SegmentChange, SegmentDraft};
use crate::shared::{AccountId, ContactId, CursorPage, CursorQuery, RowOutcome, SegmentId, StoreError};

/// Segments with the number of their contacts. For an account of more than 100,000 contacts, the number that a read
/// returns may be up to 60 seconds old. A write MUST return a number that includes its own change.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SegmentStore: Send + Sync {
    /// Newest first, by id, in one statement for any number of segments. The cursor is the last item's id.
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Segment>, StoreError>;

    async fn find(&self, account: AccountId, id: SegmentId) -> Result<Option<Segment>, StoreError>;

    async fn insert(
        &self,
        account: AccountId,
        id: SegmentId,
        draft: &SegmentDraft,
        now: OffsetDateTime,
    ) -> Result<Segment, StoreError>;

    /// Changes only the given fields. None if the segment does not exist.
    async fn update(
        &self,
        account: AccountId,
        id: SegmentId,
        change: &SegmentChange,
        now: OffsetDateTime,
    ) -> Result<Option<Segment>, StoreError>;

    /// The paths of the references that name no row of the account. A deleted campaign is none.
    async fn unknown_references(
        &self,
        account: AccountId,
        references: &[(String, FilterReference)],
    ) -> Result<Vec<String>, StoreError>;

    /// Counts the contacts of a segment with these filters and members, and returns up to `sample` of them, newest
    /// first, in one snapshot. MUST fail with `Unavailable` after 10 seconds. Writes nothing.
    async fn preview(
        &self,
        account: AccountId,
        filters: &AudienceFilters,
        members: &[ContactId],
        sample: i64,
    ) -> Result<PreviewOutcome, StoreError>;

    /// Soft-deletes a segment.
    async fn delete(&self, account: AccountId, id: SegmentId, now: OffsetDateTime) -> Result<RowOutcome, StoreError>;

    /// Makes all of the contacts members, or none. Unknown contacts are reported before a missing segment.
    async fn add_members(
        &self,
        account: AccountId,
        id: SegmentId,
        contacts: &[ContactId],
    ) -> Result<MembersAdded, StoreError>;

    /// Removes contacts from the members. A contact that is not a member is ignored.
    async fn remove_members(
        &self,
        account: AccountId,
        id: SegmentId,
        contacts: &[ContactId],
    ) -> Result<RowOutcome, StoreError>;
}
