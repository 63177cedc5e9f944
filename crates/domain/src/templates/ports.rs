//! What templates need from the store. Every method sees the one account alone; deleted templates are not there.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{MetaStatus, SyncReport, SyncedTemplate, Template, TemplateFilter, TemplateKey};
use crate::shared::{AccountId, CursorPage, CursorQuery, Event, Page, PageQuery, StoreError, TemplateId, WriteOutcome};

/// Templates.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait TemplateStore: Send + Sync {
    /// One numbered page, with the exact total.
    async fn page(
        &self,
        account: AccountId,
        filter: &TemplateFilter,
        page: PageQuery,
    ) -> Result<Page<Template>, StoreError>;

    /// What follows a cursor. The cursor is opaque (it holds the sort value and the id); an unreadable one is
    /// `UnknownReference { field: "cursor" }`.
    async fn cursor_page(
        &self,
        account: AccountId,
        filter: &TemplateFilter,
        query: &CursorQuery<String>,
    ) -> Result<CursorPage<Template>, StoreError>;

    /// One template.
    async fn find(&self, account: AccountId, id: TemplateId) -> Result<Option<Template>, StoreError>;

    /// Inserts. `Duplicate { field: "name" }` when name and language are another template's; `UnknownReference { field:
    /// "folder_id" }`.
    async fn insert(&self, template: &Template) -> Result<(), StoreError>;

    /// Replaces every field, provided that the stored template still has the version and the status of `expected`;
    /// commits the events with it. Fails as `insert`.
    async fn update(
        &self,
        template: &Template,
        expected: &Template,
        events: &[Event],
    ) -> Result<WriteOutcome<MetaStatus>, StoreError>;

    /// Soft-deletes and commits the events with it; false when there is no such template.
    async fn delete(
        &self,
        account: AccountId,
        id: TemplateId,
        now: OffsetDateTime,
        events: &[Event],
    ) -> Result<bool, StoreError>;

    /// Those of the templates with these names and languages that are there, the order being of no matter.
    async fn named(&self, account: AccountId, keys: &[TemplateKey]) -> Result<Vec<Template>, StoreError>;

    /// Writes what a synchronisation found, in one transaction: inserts new templates, unless the name was taken
    /// meanwhile, and replaces what the platform decides about a changed one (status, reason, category, quality, its id
    /// and the number), unless it changed meanwhile. Says how many were written; `unchanged` is 0. The campaigns that are
    /// sending a template which `stops` them wait from then on, as by `RunStore::pause_template`.
    async fn sync(&self, account: AccountId, templates: &[SyncedTemplate]) -> Result<SyncReport, StoreError>;

    /// The template the platform knows by this id, among the account's.
    async fn find_by_meta_id(&self, account: AccountId, meta_id: &str) -> Result<Option<Template>, StoreError>;
}
