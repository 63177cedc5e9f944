//! What segments need from the store. Every method sees the one account alone; deleted segments are not there, and
//! deleted contacts belong to none.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{MembersAdded, Segment, SegmentChange, SegmentDraft};
use crate::shared::{AccountId, ContactId, CursorPage, CursorQuery, SegmentId, StoreError};

/// Segments, always with the number of their contacts as of the reading.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SegmentStore: Send + Sync {
    /// Newest first (by id), in one statement, however many there are. The cursor is the last item's id; an unreadable
    /// one is an empty list's cursor.
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Segment>, StoreError>;

    /// One segment.
    async fn find(&self, account: AccountId, id: SegmentId) -> Result<Option<Segment>, StoreError>;

    /// Inserts.
    async fn insert(
        &self,
        account: AccountId,
        id: SegmentId,
        draft: &SegmentDraft,
        now: OffsetDateTime,
    ) -> Result<Segment, StoreError>;

    /// Changes what the change names, and nothing else; none when there is no such segment.
    async fn update(
        &self,
        account: AccountId,
        id: SegmentId,
        change: &SegmentChange,
        now: OffsetDateTime,
    ) -> Result<Option<Segment>, StoreError>;

    /// Soft-deletes; false when there is no such segment.
    async fn delete(&self, account: AccountId, id: SegmentId, now: OffsetDateTime) -> Result<bool, StoreError>;

    /// Makes contacts members, all of them or none. Unknown contacts are told before a missing segment.
    async fn add_members(
        &self,
        account: AccountId,
        id: SegmentId,
        contacts: &[ContactId],
    ) -> Result<MembersAdded, StoreError>;

    /// Takes contacts out of the members; who is none is passed over. False when there is no such segment.
    async fn remove_members(
        &self,
        account: AccountId,
        id: SegmentId,
        contacts: &[ContactId],
    ) -> Result<bool, StoreError>;
}
