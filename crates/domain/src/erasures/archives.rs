//! Removes a person from the archives of campaigns: each file is written again without the contact's id and WhatsApp's
//! message ids, and read back before it replaces the one before it.
//!
//! Killed at any time, the row of the archive names a complete file. The keys of the other files are stored until these
//! are deleted.

use std::sync::Arc;

use uuid::Uuid;

use super::steps::LEASE;
use super::{ArchiveClaim, ArchiveReplacement, BatchEnd, ErasedArchive, ErasureArchives, ErasureClaim};
use crate::media::{MediaStoreError, MessageFilePath};
use crate::retention::{ArchiveCount, ArchiveRead, ArchiveStorage, FileLines, StoredArchive, without_contact};
use crate::shared::{AccountId, Ids, StoreError};

/// The chunks of an archive that are read between two renewals of the lease: about a MiB of compressed bytes.
const CHUNKS_PER_LEASE: usize = 64;

/// Rewrites the archives that have lines of an erased contact.
pub struct ArchiveEraser {
    pub archives: Arc<dyn ErasureArchives>,
    pub storage: Arc<dyn ArchiveStorage>,
    pub ids: Arc<dyn Ids>,
}

fn store_failed(error: MediaStoreError) -> StoreError {
    StoreError::Unavailable(error.into())
}

/// The person is still in the archive, so the erasure is not done until it can be read.
fn damaged(archive: &ErasedArchive) -> StoreError {
    StoreError::Corrupt(format!("the archive of campaign {} is damaged", archive.campaign_id.0))
}

/// The person may be in the archive, so the erasure is not done until the file is restored.
fn missing(archive: &ErasedArchive) -> StoreError {
    StoreError::Corrupt(format!(
        "the file of the archive of campaign {} is missing",
        archive.campaign_id.0
    ))
}

/// An archive, and the position in it.
struct Reader<'a> {
    eraser: &'a ArchiveEraser,
    claim: &'a ErasureClaim,
    file: Box<dyn ArchiveRead>,
    chunks: usize,
}

/// What follows in an archive.
enum Chunk {
    Lines(bytes::Bytes),
    End,
    /// The claim is lost.
    Lost,
}

impl Reader<'_> {
    async fn next(&mut self) -> Result<Chunk, StoreError> {
        let Some(bytes) = self.file.next().await.map_err(store_failed)? else {
            return Ok(Chunk::End);
        };
        self.chunks = self.chunks.wrapping_add(1);
        if self.chunks.is_multiple_of(CHUNKS_PER_LEASE) && !self.eraser.archives.renew(self.claim, LEASE).await? {
            return Ok(Chunk::Lost);
        }
        Ok(Chunk::Lines(bytes))
    }
}

impl ArchiveEraser {
    /// Removes the contact from the next archive.
    pub(super) async fn step(&self, claim: &ErasureClaim) -> Result<BatchEnd, StoreError> {
        let key = self.ids.next();
        let archive = match self.archives.next_archive(claim, key, LEASE).await? {
            ArchiveClaim::Archive(archive) => archive,
            ArchiveClaim::End(end) => return Ok(end),
        };
        for key in &archive.abandoned {
            self.delete(claim.account_id, *key).await?;
        }
        let Some(file) = self.open_archive(claim, &archive).await? else {
            return Ok(BatchEnd::More);
        };
        let file_key = match self.names_contact(file, &archive).await? {
            None => return Ok(BatchEnd::Lost),
            Some(false) => archive.path.key,
            // If the claim is lost, the next archive says so. Otherwise this one is the next again.
            Some(true) if !self.replace(claim, &archive, key).await? => return Ok(BatchEnd::More),
            Some(true) => {
                self.delete(claim.account_id, archive.path.key).await?;
                key
            }
        };
        let campaign = archive.campaign_id;
        let is_current = self.archives.record_archive(claim, campaign, file_key, LEASE).await?;
        Ok(if is_current { BatchEnd::More } else { BatchEnd::Lost })
    }

    /// None: the archive has another file since.
    async fn open_archive<'a>(
        &'a self,
        claim: &'a ErasureClaim,
        archive: &ErasedArchive,
    ) -> Result<Option<Reader<'a>>, StoreError> {
        let file = self.open(claim, &archive.path, archive.stored).await?;
        if file.is_none() && self.archives.has_file(archive.campaign_id, &archive.path).await? {
            return Err(missing(archive));
        }
        Ok(file)
    }

    async fn open<'a>(
        &'a self,
        claim: &'a ErasureClaim,
        path: &MessageFilePath,
        stored: StoredArchive,
    ) -> Result<Option<Reader<'a>>, StoreError> {
        let file = self.storage.open(path, stored.size).await.map_err(store_failed)?;
        Ok(file.map(|file| Reader {
            eraser: self,
            claim,
            file,
            chunks: 0,
        }))
    }

    /// Whether a line is of the contact. None: the claim is lost.
    async fn names_contact(&self, mut file: Reader<'_>, archive: &ErasedArchive) -> Result<Option<bool>, StoreError> {
        let contact = file.claim.contact_id;
        let (mut lines, mut is_found) = (FileLines::default(), false);
        while !is_found {
            match file.next().await? {
                Chunk::Lines(bytes) => {
                    if !lines.add(&bytes, |line| is_found |= without_contact(line, contact).is_some()) {
                        return Err(damaged(archive));
                    }
                }
                Chunk::End if lines.is_complete() => break,
                Chunk::End => return Err(damaged(archive)),
                Chunk::Lost => return Ok(None),
            }
        }
        Ok(Some(is_found))
    }

    /// Replaces the archive by a file without the contact. Returns false if the claim is lost, or the archive is not
    /// current any more.
    async fn replace(&self, claim: &ErasureClaim, archive: &ErasedArchive, key: Uuid) -> Result<bool, StoreError> {
        let path = MessageFilePath {
            account_id: claim.account_id,
            key,
        };
        // After an error the next attempt deletes the file.
        let replaced = match self.rewrite(claim, archive, &path).await? {
            Some(file) => self.archives.replace_archive(claim, archive, file, LEASE).await?,
            None => false,
        };
        // The next worker may have deleted the file before it was complete.
        if !replaced {
            self.delete(claim.account_id, key).await?;
        }
        Ok(replaced)
    }

    /// Writes the file and reads it back. A source that does not have the size, the hash and the number of lines of its
    /// row is damaged. None: the claim is lost, or the archive has another file since.
    async fn rewrite(
        &self,
        claim: &ErasureClaim,
        archive: &ErasedArchive,
        path: &MessageFilePath,
    ) -> Result<Option<ArchiveReplacement>, StoreError> {
        let Some(mut source) = self.open_archive(claim, archive).await? else {
            return Ok(None);
        };
        let mut file = self.storage.begin(path).await.map_err(store_failed)?;
        let (mut lines, mut count, mut removed) = (FileLines::default(), ArchiveCount::default(), 0_i64);
        loop {
            let bytes = match source.next().await? {
                Chunk::Lines(bytes) => bytes,
                Chunk::End => break,
                Chunk::Lost => return Ok(None),
            };
            count.add(&bytes);
            let mut rest = Vec::with_capacity(bytes.len());
            lines.add(&bytes, |line| {
                let emptied = without_contact(line, claim.contact_id);
                removed = removed.saturating_add(i64::from(emptied.is_some()));
                rest.extend_from_slice(emptied.as_deref().unwrap_or(line));
                rest.push(b'\n');
            });
            file.write(rest.into()).await.map_err(store_failed)?;
        }
        let is_whole = source.file.stored() == archive.stored;
        let counts = count
            .finish()
            .filter(|counts| is_whole && counts.total == archive.sends);
        let counts = counts.ok_or_else(|| damaged(archive))?;
        let written = file.commit().await.map_err(store_failed)?;
        let Some(mut copy) = self.open(claim, path, written).await? else {
            return Err(damaged(archive));
        };
        let (mut lines, mut copied, mut is_named) = (FileLines::default(), ArchiveCount::default(), false);
        loop {
            let bytes = match copy.next().await? {
                Chunk::Lines(bytes) => bytes,
                Chunk::End => break,
                Chunk::Lost => return Ok(None),
            };
            copied.add(&bytes);
            lines.add(&bytes, |line| {
                is_named |= without_contact(line, claim.contact_id).is_some()
            });
        }
        if is_named || copy.file.stored() != written || copied.finish() != Some(counts) {
            return Err(damaged(archive));
        }
        Ok(Some(ArchiveReplacement {
            key: path.key,
            stored: written,
            lines: removed,
        }))
    }

    async fn delete(&self, account_id: AccountId, key: Uuid) -> Result<(), StoreError> {
        let path = MessageFilePath { account_id, key };
        self.storage.delete(&path).await.map_err(store_failed)
    }
}
