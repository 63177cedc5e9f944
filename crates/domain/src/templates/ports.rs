//! Ports of templates. Every method MUST see only the rows of the given account, and no deleted templates.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{SyncReport, SyncedTemplate, Template, TemplateFilter, TemplateKey};
use crate::messaging::MetaStatus;
use crate::shared::{
    AccountId, CursorPage, CursorQuery, Event, Page, PageQuery, RowOutcome, StoreError, TemplateId, WriteOutcome,
};

#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait TemplateStore: Send + Sync {
    /// A numbered page, with the exact total.
    async fn page(
        &self,
        account: AccountId,
        filter: &TemplateFilter,
        page: PageQuery,
    ) -> Result<Page<Template>, StoreError>;

    /// The page after a cursor. The cursor is opaque (it holds the sort value and the id). An invalid one is
    /// `UnknownReference { field: "cursor" }`.
    async fn cursor_page(
        &self,
        account: AccountId,
        filter: &TemplateFilter,
        query: &CursorQuery<String>,
    ) -> Result<CursorPage<Template>, StoreError>;

    async fn find(&self, account: AccountId, id: TemplateId) -> Result<Option<Template>, StoreError>;

    /// Inserts the template. `Duplicate { field: "name" }` if another template has the name and language;
    /// `UnknownReference { field: "folder_id" }` if the folder does not exist.
    async fn insert(&self, template: &Template) -> Result<(), StoreError>;

    /// Replaces every field if the stored version and status equal those of `expected`, and commits the events in the
    /// same transaction. Fails like `insert`.
    async fn update(
        &self,
        template: &Template,
        expected: &Template,
        events: &[Event],
    ) -> Result<WriteOutcome<MetaStatus>, StoreError>;

    /// Soft-deletes the template and commits the events in the same transaction.
    async fn delete(
        &self,
        account: AccountId,
        id: TemplateId,
        now: OffsetDateTime,
        events: &[Event],
    ) -> Result<RowOutcome, StoreError>;

    /// The existing templates among these names and languages, in any order.
    async fn named(&self, account: AccountId, keys: &[TemplateKey]) -> Result<Vec<Template>, StoreError>;

    /// Writes the result of a synchronization in one transaction. Inserts new templates, unless the name was taken
    /// meanwhile. Updates WhatsApp's data of a changed template (status, reason, category, quality, id, number,
    /// content), unless it changed meanwhile. Returns how many were written; `unchanged` is 0. Campaigns that use a template
    /// with a `pause_reason` are paused, as by `RunStore::pause_template`.
    async fn sync(&self, account: AccountId, templates: &[SyncedTemplate]) -> Result<SyncReport, StoreError>;

    /// The account's template with this id at WhatsApp.
    async fn find_by_meta_id(&self, account: AccountId, meta_id: &str) -> Result<Option<Template>, StoreError>;
}
