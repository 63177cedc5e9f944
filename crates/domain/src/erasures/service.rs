//! The use cases of erasures: request one, read the receipts.

use std::sync::Arc;

use thiserror::Error;

use super::{Erasure, ErasureRequest, ErasureStore};
use crate::shared::{
    AuditAction, Clock, ContactId, CursorPage, CursorQuery, ErasureId, FieldErrors, Ids, StoreError, Tenant,
};

/// The maximum length of a reason, in characters.
pub const MAX_REASON: usize = 200;

#[derive(Debug, Error)]
pub enum ErasureError {
    /// The account has no such contact or receipt.
    #[error("not found")]
    NotFound,
    #[error("invalid")]
    Invalid(FieldErrors),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Requests erasures and reads their receipts.
pub struct Erasures {
    store: Arc<dyn ErasureStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl Erasures {
    pub fn new(store: Arc<dyn ErasureStore>, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Self {
        Self { store, clock, ids }
    }

    /// Erases a contact, deleted or not. A worker removes the copies of its data. A repeated request returns the first
    /// receipt.
    pub async fn request(
        &self,
        tenant: &Tenant,
        contact_id: ContactId,
        reason: Option<&str>,
    ) -> Result<Erasure, ErasureError> {
        let reason = reason.map(str::trim).filter(|reason| !reason.is_empty());
        if reason.is_some_and(|reason| reason.chars().count() > MAX_REASON) {
            let message = format!("must have at most {MAX_REASON} characters");
            return Err(ErasureError::Invalid(FieldErrors::one("reason", message)));
        }
        let id = ErasureId::from(self.ids.next());
        let request = ErasureRequest {
            id,
            contact_id,
            reason: reason.map(str::to_owned),
            requested_at: self.clock.now(),
            opt_outs: vec![],
            // Neither the contact nor the reason: the entry outlives what is erased.
            audit: tenant.audit(AuditAction::Delete, "contact_erasure", id),
        };
        let receipt = self.store.request(tenant.account_id, &request).await?;
        receipt.ok_or(ErasureError::NotFound)
    }

    pub async fn get(&self, tenant: &Tenant, id: ErasureId) -> Result<Erasure, ErasureError> {
        let found = self.store.find(tenant.account_id, id).await?;
        found.ok_or(ErasureError::NotFound)
    }

    pub async fn list(&self, tenant: &Tenant, query: &CursorQuery) -> Result<CursorPage<Erasure>, ErasureError> {
        Ok(self.store.list(tenant.account_id, query).await?)
    }
}
