//! WhatsApp's ids of uploaded files, stored until they expire.

use async_trait::async_trait;
use diesel::dsl::now;
use diesel::prelude::{ExpressionMethods, QueryDsl};
use recado_domain::shared::{AccountId, StoreError};
use recado_domain::whatsapp::FileIdStore;
use time::Duration;

use crate::pool::TenantPool;
use crate::schema::whatsapp_files;
use crate::sql::sql;

#[derive(Clone, Debug)]
pub struct PgFileIds(TenantPool);

impl PgFileIds {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

#[async_trait]
impl FileIdStore for PgFileIds {
    async fn find(&self, account: AccountId, phone_number_id: &str, path: &str) -> Result<Option<String>, StoreError> {
        let query = whatsapp_files::table
            .find((account.0, phone_number_id, path))
            .filter(whatsapp_files::expires_at.gt(now))
            .select(whatsapp_files::file_id);
        self.0.read_row_if_any(account, query).await
    }

    async fn store(
        &self,
        account: AccountId,
        phone_number_id: &str,
        path: &str,
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
        .bind(path)
        .bind(id)
        .bind(time);
        self.0.run(account, statement).await.map(drop)
    }
}
