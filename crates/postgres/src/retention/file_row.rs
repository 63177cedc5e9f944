//! The row of a compressed file that was verified: an archive or an export.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Binary, Uuid as SqlUuid};
use recado_domain::media::MessageFilePath;
use recado_domain::retention::StoredArchive;
use recado_domain::shared::{AccountId, StoreError};
use uuid::Uuid;

use crate::errors::corrupt;

#[derive(QueryableByName)]
pub(crate) struct FileRow {
    #[diesel(sql_type = SqlUuid)]
    file_key: Uuid,
    #[diesel(sql_type = BigInt)]
    size: i64,
    #[diesel(sql_type = Binary)]
    sha256: Vec<u8>,
}

impl FileRow {
    /// The place of the file, its size and its hash.
    pub(crate) fn stored(self, account: AccountId) -> Result<(MessageFilePath, StoredArchive), StoreError> {
        let path = MessageFilePath {
            account_id: account,
            key: self.file_key,
        };
        let stored = StoredArchive {
            size: self.size.unsigned_abs(),
            sha256: self
                .sha256
                .try_into()
                .map_err(|_| corrupt("a hash of another length"))?,
        };
        Ok((path, stored))
    }
}
