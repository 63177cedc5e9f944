//! The ports of contacts and tags. Every method MUST see only the given account, and no deleted contacts.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{
    Contact, ContactChange, ContactDetails, ContactDraft, ContactQuery, ContactUpsert, ImportRow, RefusedRow, Tag,
};
use crate::shared::{AccountId, ContactId, CursorPage, CursorQuery, RowOutcome, StoreError, TagId, UpdateOutcome};

/// The counts of a written batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upserted {
    /// Inserted contacts.
    pub imported: u64,
    /// Changed contacts.
    pub updated: u64,
}

/// How a batch ended.
#[derive(Clone, Debug, PartialEq)]
pub enum BatchOutcome {
    /// All rows were written.
    Written(Upserted),
    /// Nothing was written, because of these rows.
    Refused(Vec<RefusedRow>),
}

/// How the upsert of one contact ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpsertOutcome {
    Created,
    Updated,
    /// Nothing was written: the contact would exceed `MAX_ATTRIBUTES` or `MAX_ATTRIBUTE_BYTES`.
    AttributesExceeded,
}

#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ContactStore: Send + Sync {
    /// Lists contacts, newest first (by id). The cursor is the last item's id. An invalid cursor returns an empty page.
    async fn list(&self, account: AccountId, query: &ContactQuery) -> Result<CursorPage<Contact>, StoreError>;

    /// Finds a contact with its tags.
    async fn find(&self, account: AccountId, id: ContactId) -> Result<Option<Contact>, StoreError>;

    /// Finds a contact with its tags and the fields that lists omit.
    async fn details(&self, account: AccountId, id: ContactId) -> Result<Option<ContactDetails>, StoreError>;

    /// Inserts a contact with its tags. A draft with `opted_out` sets the consent by `Consent::decided`. Returns
    /// `Duplicate { field: "phone" }` if another contact has the number, likewise for `wa_user_id`, and
    /// `UnknownReference { field: "tag_ids" }` if a tag is not the account's.
    async fn insert(
        &self,
        account: AccountId,
        id: ContactId,
        draft: &ContactDraft,
        tags: &[TagId],
        now: OffsetDateTime,
    ) -> Result<Contact, StoreError>;

    /// Guarded write: writes the fields that the change names if the contact still has `version`. Without a version,
    /// the write is unconditional. The consent changes only if `opted_out` is set, by `Consent::decided` at the
    /// database's current time. Returns the contact as this write left it, before any later write, or the errors of
    /// `insert`.
    async fn update(
        &self,
        account: AccountId,
        id: ContactId,
        version: Option<i64>,
        change: &ContactChange,
        now: OffsetDateTime,
    ) -> Result<UpdateOutcome<ContactDetails>, StoreError>;

    /// Soft-deletes a contact.
    async fn delete(&self, account: AccountId, id: ContactId, now: OffsetDateTime) -> Result<RowOutcome, StoreError>;

    /// Upserts a batch in a bounded number of statements, regardless of its size. `ContactMatcher` finds the contact of
    /// a row. `rows` MUST NOT contain a phone number or a user id twice. `ids` are the ids of new contacts, one per row,
    /// in order. Concurrent batches of an account MUST NOT deadlock.
    ///
    /// A row adds to an existing contact: an empty e-mail address, absent attributes and the contact's own tags do not
    /// change, and a stored phone number or user id is never replaced. A row may opt the contact out
    /// (`Consent::decided`), never in. Missing tags are created. Two rows of one contact are written in order. Writes
    /// either all rows or, if one is refused, none: its contact would exceed `MAX_ATTRIBUTES` or `MAX_ATTRIBUTE_BYTES`,
    /// or `ContactMatcher` refuses it. A contact that already exceeds a limit may be merged, but MUST NOT grow.
    async fn upsert(
        &self,
        account: AccountId,
        ids: &[ContactId],
        rows: &[ImportRow],
        now: OffsetDateTime,
    ) -> Result<BatchOutcome, StoreError>;

    /// Upserts one contact: the one with the draft's phone number, else the one with its user id, else a new one. The
    /// draft adds to an existing contact by the rules and limits of `upsert`. It may opt the contact out, never in.
    /// Returns the errors of `insert`, for example if the user id belongs to another contact.
    async fn upsert_one(
        &self,
        account: AccountId,
        id: ContactId,
        upsert: &ContactUpsert,
        now: OffsetDateTime,
    ) -> Result<UpsertOutcome, StoreError>;
}

#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait TagStore: Send + Sync {
    /// Lists tags, newest first (by id). The cursor is the last item's id.
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Tag>, StoreError>;

    /// Inserts a tag. Returns `Duplicate { field: "name" }` if the name exists; the comparison ignores case.
    async fn insert(&self, account: AccountId, tag: &Tag) -> Result<(), StoreError>;

    /// Deletes a tag and removes it from every contact.
    async fn delete(&self, account: AccountId, id: TagId) -> Result<RowOutcome, StoreError>;
}
