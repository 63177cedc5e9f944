//! The list of erasures outside the database: a file for each, by which a restored backup is erased again.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::{ErasureRequest, ErasureStore};
use crate::media::MediaStoreError;
use crate::shared::{AccountId, Audit, AuditAction, Clock, ContactId, Ids, StoreError, timestamp};

/// An erasure as its file has it. It has no personal data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasureRecord {
    pub account_id: AccountId,
    pub contact_id: ContactId,
    #[serde(with = "timestamp")]
    pub requested_at: OffsetDateTime,
    /// The hashes of a person who had opted out, in hexadecimal.
    pub opt_outs: Vec<String>,
}

impl ErasureRecord {
    /// The hashes that are valid.
    pub fn hashes(&self) -> Vec<Vec<u8>> {
        self.opt_outs.iter().filter_map(|hash| hex::decode(hash).ok()).collect()
    }
}

/// The files of the list.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ErasureRecords: Send + Sync {
    /// Writes the file of an erasure. A repeated write replaces it.
    async fn write(&self, record: &ErasureRecord) -> Result<(), MediaStoreError>;

    /// All files of the list.
    async fn all(&self) -> Result<Vec<ErasureRecord>, MediaStoreError>;
}

/// What the database has of a listed erasure.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ErasureReplayStore: Send + Sync {
    /// Whether the database lacks the erasure: the contact has no receipt, or there is no such contact and its opt-outs
    /// are not stored. The rows of a deleted account are not missing.
    async fn is_missing(&self, record: &ErasureRecord) -> Result<bool, StoreError>;

    /// Stores the opt-outs of an erasure.
    async fn restore_opt_outs(&self, record: &ErasureRecord) -> Result<(), StoreError>;
}

/// Finds and repeats the erasures that a restored database lacks.
pub struct ErasureReplay {
    pub records: Arc<dyn ErasureRecords>,
    pub replays: Arc<dyn ErasureReplayStore>,
    pub store: Arc<dyn ErasureStore>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn Ids>,
}

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Files(#[from] MediaStoreError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ErasureReplay {
    /// The listed erasures that the database lacks.
    pub async fn missing(&self) -> Result<Vec<ErasureRecord>, ReplayError> {
        let mut missing = Vec::new();
        for record in self.records.all().await? {
            if self.replays.is_missing(&record).await? {
                missing.push(record);
            }
        }
        Ok(missing)
    }

    /// Requests the missing erasures again. Workers then remove the copies. Returns how many there were.
    pub async fn run(&self) -> Result<usize, ReplayError> {
        let missing = self.missing().await?;
        for record in &missing {
            let id = self.ids.next().into();
            let request = ErasureRequest {
                id,
                contact_id: record.contact_id,
                reason: None,
                requested_at: self.clock.now(),
                opt_outs: record.hashes(),
                audit: Audit {
                    user_id: None,
                    action: AuditAction::Delete,
                    entity_type: "contact_erasure".to_owned(),
                    entity_id: Some(id.0),
                    changes: None,
                    ip_address: None,
                    support_admin: None,
                },
            };
            if self.store.request(record.account_id, &request).await?.is_none() {
                // The backup does not have the contact.
                self.replays.restore_opt_outs(record).await?;
            }
        }
        Ok(missing.len())
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;
    use crate::erasures::MockErasureStore;
    use crate::shared::{MockClock, MockIds};

    fn record(contact: u128) -> ErasureRecord {
        ErasureRecord {
            account_id: AccountId(Uuid::from_u128(1)),
            contact_id: Uuid::from_u128(contact).into(),
            requested_at: datetime!(2026-11-29 10:30 UTC),
            opt_outs: vec!["00ff".into(), "x".into()],
        }
    }

    #[tokio::test]
    async fn replay_repeats_the_missing_erasures_only() {
        let mut records = MockErasureRecords::new();
        records.expect_all().returning(|| Ok(vec![record(3), record(4)]));
        let mut replays = MockErasureReplayStore::new();
        let is_missing = |record: &ErasureRecord| record.contact_id.0 == Uuid::from_u128(4);
        replays
            .expect_is_missing()
            .returning(move |record| Ok(is_missing(record)));
        let mut store = MockErasureStore::new();
        store.expect_request().once().returning(|_, request| {
            assert_eq!(request.contact_id, Uuid::from_u128(4).into());
            assert_eq!(request.opt_outs, [vec![0, 255]]);
            assert_eq!(
                (request.audit.user_id, request.audit.entity_id),
                (None, Some(Uuid::from_u128(7)))
            );
            Ok(None)
        });
        // The contact may not exist in the backup: its opt-outs are stored all the same.
        replays.expect_restore_opt_outs().once().returning(|record| {
            assert_eq!(record.hashes(), [vec![0, 255]]);
            Ok(())
        });
        let (mut clock, mut ids) = (MockClock::new(), MockIds::new());
        clock.expect_now().returning(|| datetime!(2026-11-29 10:30 UTC));
        ids.expect_next().returning(|| Uuid::from_u128(7));
        let replay = ErasureReplay {
            records: Arc::new(records),
            replays: Arc::new(replays),
            store: Arc::new(store),
            clock: Arc::new(clock),
            ids: Arc::new(ids),
        };
        assert_eq!(replay.run().await.unwrap(), 1);
    }
}
