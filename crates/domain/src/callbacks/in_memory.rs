//! Status updates in the in-memory store of runs. It has no replies.

use async_trait::async_trait;

use super::{NamedRecipient, StatusUpdate, StatusUpdateStore};
use crate::campaigns::in_memory::InMemoryRuns;
use crate::shared::{AccountId, StoreError};

#[async_trait]
impl StatusUpdateStore for InMemoryRuns {
    async fn apply(&self, account: AccountId, updates: &[StatusUpdate]) -> Result<Vec<usize>, StoreError> {
        let mut tables = self.tables();
        let unmatched = updates.iter().enumerate().filter(|(_, update)| {
            let (message, code) = (&update.message_id, update.error_code);
            !tables.apply_status(account, update.send_id, message, update.status, code)
        });
        Ok(unmatched.map(|(position, _)| position).collect())
    }

    async fn new_recipients(
        &self,
        _account: AccountId,
        _recipients: &[NamedRecipient],
    ) -> Result<Vec<NamedRecipient>, StoreError> {
        Ok(vec![])
    }
}
