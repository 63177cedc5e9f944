//! What contacts need from the store. Every method sees the one account alone; deleted contacts are not there.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{
    Contact, ContactChange, ContactDetails, ContactDraft, ContactQuery, ContactUpsert, ImportRow, RefusedRow, Tag,
};
use crate::shared::{AccountId, ContactId, CursorPage, CursorQuery, StoreError, TagId, UpdateOutcome};

/// How many rows of a batch were new, and how many changed a contact that was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upserted {
    /// New contacts.
    pub imported: u64,
    /// Contacts that were there.
    pub updated: u64,
}

/// How a batch ended.
#[derive(Clone, Debug, PartialEq)]
pub enum BatchOutcome {
    /// Every row is written.
    Written(Upserted),
    /// Nothing is written, because these rows would give their contacts more or larger attributes than a contact may
    /// have.
    Refused(Vec<RefusedRow>),
}

/// How the upsert of one contact ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpsertOutcome {
    /// It is new.
    Created,
    /// It was there.
    Updated,
    /// Nothing is written: it would have more or larger attributes than a contact may have.
    AttributesExceeded,
}

/// Contacts.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ContactStore: Send + Sync {
    /// Newest first (by id). The cursor is the last item's id; an unreadable one is an empty list's cursor.
    async fn list(&self, account: AccountId, query: &ContactQuery) -> Result<CursorPage<Contact>, StoreError>;

    /// One contact with its tags.
    async fn find(&self, account: AccountId, id: ContactId) -> Result<Option<Contact>, StoreError>;

    /// One contact with its tags and what else is shown of one contact alone.
    async fn details(&self, account: AccountId, id: ContactId) -> Result<Option<ContactDetails>, StoreError>;

    /// Inserts with tags; a draft that names an opt-out decides by `Consent::decided`. `Duplicate { field: "phone" }`
    /// when the number is another contact's, so for `wa_user_id`, and `UnknownReference { field: "tag_ids" }` when a
    /// tag is not the account's.
    async fn insert(
        &self,
        account: AccountId,
        id: ContactId,
        draft: &ContactDraft,
        tags: &[TagId],
        now: OffsetDateTime,
    ) -> Result<Contact, StoreError>;

    /// Writes the fields that the change names, provided that the contact still has this version; none: whatever version it
    /// has. An opt-out is written only when the change names it, by `Consent::decided` as of the database's now. Fails as
    /// `insert`.
    async fn update(
        &self,
        account: AccountId,
        id: ContactId,
        version: Option<i64>,
        change: &ContactChange,
        now: OffsetDateTime,
    ) -> Result<UpdateOutcome<Contact>, StoreError>;

    /// Soft-deletes; false when there is no such contact.
    async fn delete(&self, account: AccountId, id: ContactId, now: OffsetDateTime) -> Result<bool, StoreError>;

    /// Upserts a batch by phone in a bounded number of statements, whatever its size. No phone occurs twice in it. An
    /// existing contact keeps an e-mail that the row leaves empty, keeps attributes that the row does not name, and
    /// keeps its tags beside the row's; a row may opt it out (`Consent::decided`), never in. Missing tags are made. New
    /// ids are `ids`, one a row, in order. All rows are written or, where any would make its contact's attributes exceed
    /// `MAX_ATTRIBUTES` or `MAX_ATTRIBUTE_BYTES`, none. What exceeds them already may be merged, but not grow.
    async fn upsert(
        &self,
        account: AccountId,
        ids: &[ContactId],
        rows: &[ImportRow],
        now: OffsetDateTime,
    ) -> Result<BatchOutcome, StoreError>;

    /// Upserts one contact: the one with its phone, else the one with its user id, else a new one. Nothing is taken from
    /// one that is there: what the draft leaves empty is kept, attributes and tags are added to, up to the limits of
    /// `upsert`; it may be opted out, never in. Fails as `insert`: a user id, too, may be another contact's.
    async fn upsert_one(
        &self,
        account: AccountId,
        id: ContactId,
        upsert: &ContactUpsert,
        now: OffsetDateTime,
    ) -> Result<UpsertOutcome, StoreError>;
}

/// Tags.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait TagStore: Send + Sync {
    /// Newest first (by id); the cursor is the last item's id.
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Tag>, StoreError>;

    /// Inserts; `Duplicate { field: "name" }`, compared without regard to case.
    async fn insert(&self, account: AccountId, tag: &Tag) -> Result<(), StoreError>;

    /// Deletes, also from every contact; false when there is no such tag.
    async fn delete(&self, account: AccountId, id: TagId) -> Result<bool, StoreError>;
}
