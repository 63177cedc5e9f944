//! The erasures of contacts: receipts, their queue, and the statements of their steps.

mod archives;
mod batch;
mod callbacks;
mod files;
mod in_progress;
mod queue;
mod receipts;
mod replay;
mod request;
mod rows;
mod sealed;
mod searches;

use std::sync::Arc;

use async_trait::async_trait;
use recado_domain::contacts::IdentifierHasher;
use recado_domain::erasures::{Erasure, ErasureRequest, ErasureStore};
use recado_domain::shared::{AccountId, Cipher, CursorPage, CursorQuery, ErasureId, StoreError};
use uuid::Uuid;

use self::receipts::{COLUMNS, ReceiptRow};
use crate::pool::{OwnerPool, TenantPool};
use crate::sql::sql;
use crate::transactions::in_tenant;

/// The store of erasures. Tenants make and read receipts; the worker uses the owner pool.
#[derive(Clone)]
pub struct PgErasures {
    tenants: TenantPool,
    owner: OwnerPool,
    hasher: Arc<dyn IdentifierHasher>,
    cipher: Arc<dyn Cipher>,
}

impl PgErasures {
    /// `cipher` opens sealed copies, to search them.
    pub fn new(
        tenants: TenantPool,
        owner: OwnerPool,
        hasher: Arc<dyn IdentifierHasher>,
        cipher: Arc<dyn Cipher>,
    ) -> Self {
        Self {
            tenants,
            owner,
            hasher,
            cipher,
        }
    }
}

#[async_trait]
impl ErasureStore for PgErasures {
    async fn request(&self, account: AccountId, erasure: &ErasureRequest) -> Result<Option<Erasure>, StoreError> {
        in_tenant!(self.tenants, account, |conn| request::request(
            conn,
            account,
            erasure,
            self.hasher.as_ref()
        ))
    }

    async fn find(&self, account: AccountId, id: ErasureId) -> Result<Option<Erasure>, StoreError> {
        let query = sql(format!(
            "SELECT {COLUMNS} FROM erasures WHERE account_id = $1 AND id = $2"
        ))
        .bind(account)
        .bind(id);
        let row: Option<ReceiptRow> = self.tenants.read_row_if_any(account, query).await?;
        row.map(Erasure::try_from).transpose()
    }

    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Erasure>, StoreError> {
        let statement = sql(format!(
            "SELECT {COLUMNS} FROM erasures WHERE account_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3"
        ))
        .bind(account)
        .bind(query.cursor.unwrap_or(Uuid::max()))
        .bind(query.limit + 1);
        let rows: Vec<ReceiptRow> = self.tenants.read_rows(account, statement).await?;
        let receipts = rows.into_iter().map(Erasure::try_from).collect::<Result<_, _>>()?;
        Ok(CursorPage::cut(receipts, query.limit, |receipt: &Erasure| receipt.id))
    }
}
