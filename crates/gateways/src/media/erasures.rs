//! The list of erasures: a small file for each, apart from the files of accounts.

use async_trait::async_trait;
use futures_util::StreamExt as _;
use object_store::{ObjectStore as _, ObjectStoreExt as _, PutOptions};
use recado_domain::erasures::{ErasureRecord, ErasureRecords};
use recado_domain::media::MediaStoreError;

use super::{ObjectMedia, STEP_TIMEOUT, run_step, run_write_step, timed_out};

fn unreadable(error: serde_json::Error) -> MediaStoreError {
    MediaStoreError::Failed(error.into())
}

#[async_trait]
impl ErasureRecords for ObjectMedia {
    async fn write(&self, record: &ErasureRecord) -> Result<(), MediaStoreError> {
        let location = self.location()?.clone();
        let key = location
            .erasures_of(record.account_id)
            .join(record.contact_id.to_string());
        let content = serde_json::to_vec(record).map_err(unreadable)?;
        run_write_step(location.store.put_opts(&key, content.into(), PutOptions::default()))
            .await
            .map(drop)
    }

    async fn all(&self) -> Result<Vec<ErasureRecord>, MediaStoreError> {
        let location = self.location()?;
        let prefix = location.erasures();
        let mut files = location.store.list(Some(&prefix));
        let mut records = Vec::new();
        while let Some(file) = tokio::time::timeout(STEP_TIMEOUT, files.next())
            .await
            .map_err(|_| timed_out())?
        {
            let file = file.map_err(|error| MediaStoreError::Failed(error.into()))?;
            let read = async { location.store.get(&file.location).await?.bytes().await };
            // An account that is deleted meanwhile takes its files along.
            if let Some(content) = run_step(read).await? {
                records.push(serde_json::from_slice(&content).map_err(unreadable)?);
            }
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use recado_domain::media::MediaStore as _;
    use recado_domain::shared::{AccountId, ContactId};
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn records_are_listed_until_their_account_is_deleted() {
        let directory = std::env::temp_dir().join(format!("recado-erasures-{}", Uuid::new_v4().simple()));
        let media = ObjectMedia::open(Some(&format!("file://{}", directory.display())), []).unwrap();
        let record = |account: u128, opt_outs: &[&str]| ErasureRecord {
            account_id: AccountId(Uuid::from_u128(account)),
            contact_id: ContactId(Uuid::from_u128(7)),
            requested_at: datetime!(2026-11-29 10:30 UTC),
            opt_outs: opt_outs.iter().map(|hash| (*hash).to_owned()).collect(),
        };
        assert!(media.all().await.unwrap().is_empty());
        media.write(&record(1, &[])).await.unwrap();
        // A repeated write replaces the file.
        media.write(&record(1, &["00ff"])).await.unwrap();
        media.write(&record(2, &[])).await.unwrap();
        let mut all = media.all().await.unwrap();
        all.sort_by_key(|record| record.account_id);
        assert_eq!(all, [record(1, &["00ff"]), record(2, &[])]);
        media.delete_account(AccountId(Uuid::from_u128(1))).await.unwrap();
        assert_eq!(media.all().await.unwrap(), [record(2, &[])]);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
