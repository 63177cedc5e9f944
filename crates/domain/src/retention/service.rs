//! The use cases of retention: read and change the terms, and read the archive of a campaign.

use std::ops::Range;
use std::sync::Arc;

use serde_json::json;
use thiserror::Error;
use time::OffsetDateTime;

use super::terms::Shortened;
use super::{
    ArchiveStorage, ArchiveStore, RemovalCounts, RetentionBounds, RetentionInput, RetentionState, RetentionStore,
    RetentionTerms, StoredArchive,
};
use crate::media::{MediaStoreError, MediaStream, MessageFilePath};
use crate::shared::{
    AuditAction, CampaignId, Clock, Conflict, Event, FieldErrors, NotificationDraft, NotificationKind, StoreError,
    Tenant, retry_on_conflict, timestamp,
};

#[derive(Debug, Error)]
pub enum RetentionError {
    #[error(transparent)]
    Invalid(#[from] FieldErrors),
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The retention of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionReport {
    /// The terms as they were set last.
    pub terms: RetentionTerms,
    /// When the last of the shortened terms takes effect. None: all terms hold.
    pub takes_effect_at: Option<OffsetDateTime>,
    pub bounds: RetentionBounds,
    pub last_run_at: Option<OffsetDateTime>,
    pub next_run_at: Option<OffsetDateTime>,
    pub would_remove: RemovalCounts,
}

/// Reads and changes the terms of an account.
pub struct Retention {
    store: Arc<dyn RetentionStore>,
    bounds: RetentionBounds,
    clock: Arc<dyn Clock>,
}

impl Retention {
    pub fn new(store: Arc<dyn RetentionStore>, bounds: RetentionBounds, clock: Arc<dyn Clock>) -> Self {
        Self { store, bounds, clock }
    }

    /// The operator's bounds, for checks of input.
    pub fn bounds(&self) -> &RetentionBounds {
        &self.bounds
    }

    pub async fn get(&self, tenant: &Tenant) -> Result<RetentionReport, RetentionError> {
        let state = self.store.find(tenant.account_id).await?;
        Ok(self.report(state))
    }

    /// Sets the given terms. A shorter one takes effect after [`NOTICE`](super::NOTICE).
    pub async fn update(&self, tenant: &Tenant, input: RetentionInput) -> Result<RetentionReport, RetentionError> {
        let account = tenant.account_id;
        retry_on_conflict(|| async {
            let (stored, now) = (self.store.find(account).await?, self.clock.now());
            let (terms, shortened) = stored.terms.changed(&input, &self.bounds, now);
            // The next run counts what the new terms would remove, or opens a campaign again whose archive has begun.
            let next_run_at = Some(now);
            let audit = tenant.audit(AuditAction::Update, "retention", account);
            let mut events = vec![Event::Audit(audit.with_changes(json!(input.changes())))];
            if let (false, Some(at)) = (shortened.is_empty(), terms.take_effect_at(now)) {
                events.push(shortened_event(&shortened, at));
            }
            let is_stored = self
                .store
                .update(account, &terms, stored.version, next_run_at, &events)
                .await?;
            let changed = RetentionState {
                terms,
                next_run_at,
                ..stored
            };
            Ok(is_stored.then(|| self.report(changed)))
        })
        .await
    }

    fn report(&self, state: RetentionState) -> RetentionReport {
        RetentionReport {
            takes_effect_at: state.terms.take_effect_at(self.clock.now()),
            terms: state.terms,
            bounds: self.bounds,
            last_run_at: state.last_run_at,
            next_run_at: state.next_run_at,
            would_remove: state.would_remove,
        }
    }
}

/// The warning that rows leave earlier than before.
fn shortened_event(shortened: &Shortened, at: OffsetDateTime) -> Event {
    let kinds: Vec<String> = shortened
        .iter()
        .map(|(field, days)| format!("{field} {days}"))
        .collect();
    let at = timestamp::format(at);
    Event::Notification(NotificationDraft {
        kind: NotificationKind::Warning,
        title: "Data will be removed earlier".to_owned(),
        message: format!(
            "From {at} on, older data is removed for good ({}). Until then the retention settings can be changed back.",
            kinds.join(", ")
        ),
        data: json!({ "terms": shortened, "effective_at": at }),
    })
}

#[derive(Debug, Error)]
pub enum ArchiveError {
    /// The account has no such campaign, or it is not archived.
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reads the archives of campaigns.
pub struct Archives {
    archives: Arc<dyn ArchiveStore>,
    storage: Arc<dyn ArchiveStorage>,
}

/// A compressed file of rows, which can be read: an archive or an export.
pub struct OpenArchive {
    pub(crate) path: MessageFilePath,
    pub stored: StoredArchive,
    pub(crate) storage: Arc<dyn ArchiveStorage>,
}

impl Archives {
    pub fn new(archives: Arc<dyn ArchiveStore>, storage: Arc<dyn ArchiveStorage>) -> Self {
        Self { archives, storage }
    }

    pub async fn open(&self, tenant: &Tenant, campaign: CampaignId) -> Result<OpenArchive, ArchiveError> {
        let found = self.archives.find(tenant.account_id, campaign).await?;
        let (path, stored) = found.ok_or(ArchiveError::NotFound)?;
        Ok(OpenArchive {
            path,
            stored,
            storage: self.storage.clone(),
        })
    }
}

impl OpenArchive {
    /// These bytes of the compressed file. The range is not empty.
    pub async fn read(&self, range: Range<u64>) -> Result<MediaStream, MediaStoreError> {
        let missing = || MediaStoreError::Failed(format!("{} does not exist", self.path).into());
        self.storage.read(&self.path, range).await?.ok_or_else(missing)
    }
}
