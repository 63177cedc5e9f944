//! The worker of exports: writes their files, and removes those that have expired.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use time::Duration;
use uuid::Uuid;

use super::{ContactExportQueue, ExportClaim, ExportPart, ExportedArchive};
use crate::media::{MediaStoreError, MessageFilePath};
use crate::retention::{ArchiveStorage, ArchiveWrite, FileLines, StoredArchive};
use crate::shared::{AccountId, CampaignId, ContactId, Ids, StoreError};

/// How long a claimed export belongs to its worker. Every page renews it. After a failure the export waits as long.
const LEASE: Duration = Duration::minutes(1);

/// The rows of one page.
const PAGE: i64 = 500;

/// The type of a line with a send that was archived.
const ARCHIVED_SEND: &str = "archived_send";

/// The type of a line that names a campaign whose archive cannot be read.
const UNREADABLE_ARCHIVE: &str = "unreadable_archive";

/// The chunks of an archive that are read between two renewals of the lease: about a MiB of compressed bytes.
const CHUNKS_PER_LEASE: usize = 64;

/// How the reading of an archive ended.
enum ArchiveEnd {
    /// The sends to the contacts are written.
    Written,
    /// The file is not there.
    Missing,
    Damaged,
    /// The claim is lost.
    Lost,
}

/// Writes the files of exports.
pub struct ContactExporter {
    pub queue: Arc<dyn ContactExportQueue>,
    pub storage: Arc<dyn ArchiveStorage>,
    pub ids: Arc<dyn Ids>,
}

fn append_line(lines: &mut String, kind: &str, contact: ContactId, row: &Value) {
    lines.push_str(&json!({ "type": kind, "contact_id": contact, "data": row }).to_string());
    lines.push('\n');
}

#[derive(Deserialize)]
struct ArchivedLine {
    contact_id: Uuid,
}

/// Appends an archived send if it is one to the contacts. Almost no line is, so it is parsed only if it has their id.
fn append_send(lines: &mut String, line: &[u8], claim: &ExportClaim, archive: &ExportedArchive) {
    let text = String::from_utf8_lossy(line);
    if !claim.contacts.iter().any(|contact| text.contains(&contact.to_string())) {
        return;
    }
    let contact = serde_json::from_slice::<ArchivedLine>(line).map(|line| ContactId(line.contact_id));
    let Some(contact) = contact.ok().filter(|contact| claim.contacts.contains(contact)) else {
        return;
    };
    let Ok(Value::Object(mut send)) = serde_json::from_slice(line) else {
        return;
    };
    send.remove("contact_id");
    send.insert("campaign_id".to_owned(), json!(archive.campaign_id));
    send.insert("campaign_name".to_owned(), json!(archive.campaign_name));
    append_line(lines, ARCHIVED_SEND, contact, &Value::Object(send));
}

/// Says which archive is missing or damaged. The other data of the person does not wait for it.
async fn write_unreadable(archive: &ExportedArchive, file: &mut dyn ArchiveWrite) -> Result<(), StoreError> {
    let data = json!({ "campaign_id": archive.campaign_id, "campaign_name": archive.campaign_name });
    let line = json!({ "type": UNREADABLE_ARCHIVE, "data": data }).to_string() + "\n";
    file.write(line.into()).await.map_err(store_failed)
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

    /// Writes a line a row: its part, its contact, and the row. None: the claim is lost.
    async fn write(&self, claim: &ExportClaim) -> Result<Option<StoredArchive>, StoreError> {
        let path = MessageFilePath {
            account_id: claim.account_id,
            key: claim.key,
        };
        let mut file = self.storage.begin(&path).await.map_err(store_failed)?;
        for part in ExportPart::ALL {
            for contact in &claim.contacts {
                if !self.write_part(claim, *contact, *part, file.as_mut()).await? {
                    return Ok(None);
                }
            }
        }
        if !self.write_archived(claim, file.as_mut()).await? {
            return Ok(None);
        }
        file.commit().await.map(Some).map_err(store_failed)
    }

    /// Returns false if the claim is lost.
    async fn write_part(
        &self,
        claim: &ExportClaim,
        contact: ContactId,
        part: ExportPart,
        file: &mut dyn ArchiveWrite,
    ) -> Result<bool, StoreError> {
        let mut after = None;
        loop {
            if !self.queue.renew(claim, LEASE).await? {
                return Ok(false);
            }
            let page = self.queue.page(claim, contact, part, after, PAGE).await?;
            if page.last.is_none() {
                return Ok(true);
            }
            after = page.last;
            let mut lines = String::new();
            for row in page.rows {
                append_line(&mut lines, part.as_str(), contact, &row);
            }
            file.write(lines.into()).await.map_err(store_failed)?;
        }
    }

    /// Writes the sends that left their table. Returns false if the claim is lost.
    async fn write_archived(&self, claim: &ExportClaim, file: &mut dyn ArchiveWrite) -> Result<bool, StoreError> {
        let (mut after, mut missing) = (CampaignId(Uuid::nil()), None);
        loop {
            let archives = self.queue.archives(claim, after, 1).await?;
            let Some(archive) = archives.first() else {
                return Ok(true);
            };
            match self.write_sends_of(claim, archive, file).await? {
                ArchiveEnd::Lost => return Ok(false),
                // An erasure may have replaced the file after its row was read.
                ArchiveEnd::Missing if missing != Some(archive.path.key) => {
                    missing = Some(archive.path.key);
                    continue;
                }
                ArchiveEnd::Missing | ArchiveEnd::Damaged => write_unreadable(archive, file).await?,
                ArchiveEnd::Written => {}
            }
            after = archive.campaign_id;
        }
    }

    /// Reads one archive as a stream, and writes its sends to the contacts.
    async fn write_sends_of(
        &self,
        claim: &ExportClaim,
        archive: &ExportedArchive,
        file: &mut dyn ArchiveWrite,
    ) -> Result<ArchiveEnd, StoreError> {
        if !self.queue.renew(claim, LEASE).await? {
            return Ok(ArchiveEnd::Lost);
        }
        let opened = self.storage.open(&archive.path, archive.size).await;
        let Some(mut archived) = opened.map_err(store_failed)? else {
            return Ok(ArchiveEnd::Missing);
        };
        let (mut sends, mut is_intact) = (FileLines::default(), true);
        for chunk in 1_usize.. {
            let Some(bytes) = archived.next().await.map_err(store_failed)? else {
                break;
            };
            if chunk % CHUNKS_PER_LEASE == 0 && !self.queue.renew(claim, LEASE).await? {
                return Ok(ArchiveEnd::Lost);
            }
            let mut lines = String::new();
            is_intact &= sends.add(&bytes, |line| append_send(&mut lines, line, claim, archive));
            if !lines.is_empty() {
                file.write(lines.into()).await.map_err(store_failed)?;
            }
        }
        Ok(match is_intact && sends.is_complete() {
            true => ArchiveEnd::Written,
            false => ArchiveEnd::Damaged,
        })
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
