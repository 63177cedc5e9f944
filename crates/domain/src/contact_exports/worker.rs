//! The worker of exports: writes their files, and removes those that have expired.

use std::sync::Arc;

use serde_json::json;
use time::Duration;
use uuid::Uuid;

use super::{ContactExportQueue, ExportClaim, ExportPart};
use crate::media::{MediaStoreError, MessageFilePath};
use crate::retention::{ArchiveStorage, StoredArchive};
use crate::shared::{AccountId, Ids, StoreError};

/// How long a claimed export belongs to its worker. Every page renews it. After a failure the export waits as long.
const LEASE: Duration = Duration::minutes(1);

/// The rows of one page.
const PAGE: i64 = 500;

/// Writes the files of exports.
pub struct ContactExporter {
    pub queue: Arc<dyn ContactExportQueue>,
    pub storage: Arc<dyn ArchiveStorage>,
    pub ids: Arc<dyn Ids>,
}

fn store_failed(error: MediaStoreError) -> StoreError {
    StoreError::Unavailable(error.into())
}

impl ContactExporter {
    /// Writes the file of the next export. Returns false if none is due.
    pub async fn export_next(&self) -> Result<bool, StoreError> {
        let Some(claim) = self.queue.claim(self.ids.next(), LEASE).await? else {
            return Ok(false);
        };
        for key in &claim.abandoned {
            self.delete(claim.account_id, *key).await?;
        }
        let Some(file) = self.write(&claim).await? else {
            return Ok(true);
        };
        if !self.queue.complete(&claim, file).await? {
            self.delete(claim.account_id, claim.key).await?;
        }
        Ok(true)
    }

    /// Writes a line a row: its part, and the row. None: the claim is lost.
    async fn write(&self, claim: &ExportClaim) -> Result<Option<StoredArchive>, StoreError> {
        let path = MessageFilePath {
            account_id: claim.account_id,
            key: claim.key,
        };
        let mut file = self.storage.begin(&path).await.map_err(store_failed)?;
        for part in ExportPart::ALL {
            let mut after = None;
            loop {
                if !self.queue.renew(claim, LEASE).await? {
                    return Ok(None);
                }
                let page = self.queue.page(claim, *part, after, PAGE).await?;
                if page.last.is_none() {
                    break;
                }
                after = page.last;
                let mut lines = String::new();
                for row in page.rows {
                    lines.push_str(&json!({ "type": part, "data": row }).to_string());
                    lines.push('\n');
                }
                file.write(lines.into()).await.map_err(store_failed)?;
            }
        }
        file.commit().await.map(Some).map_err(store_failed)
    }

    /// Removes at most `limit` expired exports: first their files. Returns whether any was removed.
    pub async fn purge(&self, limit: i64) -> Result<bool, StoreError> {
        let expired = self.queue.expired(limit).await?;
        let removes = !expired.is_empty();
        for (account, id, keys) in expired {
            for key in keys {
                self.delete(account, key).await?;
            }
            self.queue.delete(account, id).await?;
        }
        Ok(removes)
    }

    async fn delete(&self, account_id: AccountId, key: Uuid) -> Result<(), StoreError> {
        let path = MessageFilePath { account_id, key };
        self.storage.delete(&path).await.map_err(store_failed)
    }
}
