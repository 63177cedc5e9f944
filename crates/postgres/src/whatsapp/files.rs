//! WhatsApp's ids of uploaded files, stored until they expire.

use async_trait::async_trait;
use recado_domain::media::MediaPath;
use recado_domain::shared::{AccountId, StoreError};
use recado_domain::whatsapp::FileIdStore;
use time::Duration;

use crate::pool::TenantPool;
use crate::sql::{TextRow, sql};

#[derive(Clone, Debug)]
pub struct PgFileIds(TenantPool);

impl PgFileIds {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

#[async_trait]
impl FileIdStore for PgFileIds {
    async fn find(
        &self,
        account: AccountId,
        phone_number_id: &str,
        path: &MediaPath,
    ) -> Result<Option<String>, StoreError> {
        let statement = sql("SELECT file_id AS text FROM whatsapp_files
             WHERE account_id = $1 AND phone_number_id = $2 AND path = $3 AND expires_at > now()")
        .bind(account)
        .bind(phone_number_id)
        .bind(path.to_string());
        let found = self.0.read_row_if_any::<TextRow, _>(account, statement).await?;
        Ok(found.map(|row| row.text))
    }

    async fn store(
        &self,
        account: AccountId,
        phone_number_id: &str,
        path: &MediaPath,
        id: &str,
        time: Duration,
    ) -> Result<(), StoreError> {
        let statement = sql(
            "INSERT INTO whatsapp_files (account_id, phone_number_id, path, file_id, expires_at)
             VALUES ($1, $2, $3, $4, now() + $5 * interval '1 microsecond')
             ON CONFLICT (account_id, phone_number_id, path)
             DO UPDATE SET file_id = excluded.file_id, expires_at = excluded.expires_at",
        )
        .bind(account)
        .bind(phone_number_id)
        .bind(path.to_string())
        .bind(id)
        .bind(time);
        self.0.run(account, statement).await.map(drop)
    }
}
