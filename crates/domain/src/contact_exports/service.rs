//! The use cases of exports: request one, read its receipt and its file.

use std::sync::Arc;

use serde_json::json;
use thiserror::Error;

use super::{ContactExport, ContactExportStore, EXPORT_KEPT_FOR, ExportState};
use crate::retention::{ArchiveStorage, OpenArchive};
use crate::shared::{AuditAction, Clock, ContactId, Event, ExportId, Ids, StoreError, Tenant};

#[derive(Debug, Error)]
pub enum ContactExportError {
    /// The account has no such contact or export, the export has expired, or its file is not written yet.
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Requests and reads exports.
pub struct ContactExports {
    store: Arc<dyn ContactExportStore>,
    storage: Arc<dyn ArchiveStorage>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl ContactExports {
    pub fn new(
        store: Arc<dyn ContactExportStore>,
        storage: Arc<dyn ArchiveStorage>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self {
            store,
            storage,
            clock,
            ids,
        }
    }

    /// Requests an export. A worker writes its file.
    pub async fn create(&self, tenant: &Tenant, contact: ContactId) -> Result<ContactExport, ContactExportError> {
        let now = self.clock.now();
        let export = ContactExport {
            id: self.ids.next().into(),
            contact_id: contact,
            state: ExportState::Running,
            requested_at: now,
            expires_at: now.saturating_add(EXPORT_KEPT_FOR),
        };
        let audit = tenant.audit(AuditAction::Export, "contact", contact);
        let events = [Event::Audit(audit.with_changes(json!({ "export_id": export.id })))];
        let stored = self.store.insert(tenant.account_id, &export, &events).await?;
        stored.or_missing(ContactExportError::NotFound)?;
        Ok(export)
    }

    pub async fn get(&self, tenant: &Tenant, id: ExportId) -> Result<ContactExport, ContactExportError> {
        let found = self.store.find(tenant.account_id, id).await?;
        found.ok_or(ContactExportError::NotFound)
    }

    pub async fn open(&self, tenant: &Tenant, id: ExportId) -> Result<OpenArchive, ContactExportError> {
        let found = self.store.file(tenant.account_id, id).await?;
        let (path, stored) = found.ok_or(ContactExportError::NotFound)?;
        Ok(OpenArchive {
            path,
            stored,
            storage: self.storage.clone(),
        })
    }
}
