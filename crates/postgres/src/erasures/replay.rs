//! What a restored database lacks of the listed erasures.

use async_trait::async_trait;
use recado_domain::erasures::{ErasureRecord, ErasureReplayStore};
use recado_domain::shared::StoreError;

use super::PgErasures;
use crate::erased_opt_outs::ON_CONFLICT;
use crate::sql::{FlagRow, sql};

#[async_trait]
impl ErasureReplayStore for PgErasures {
    async fn is_missing(&self, record: &ErasureRecord) -> Result<bool, StoreError> {
        let query = sql(
            "SELECT EXISTS (SELECT FROM accounts WHERE id = $1 AND deleting_at IS NULL)
               AND NOT EXISTS (SELECT FROM erasures WHERE account_id = $1 AND contact_id = $2)
               AND (EXISTS (SELECT FROM contacts WHERE account_id = $1 AND id = $2)
                 OR EXISTS (SELECT FROM unnest($3) h WHERE NOT EXISTS (
                   SELECT FROM erased_opt_outs o WHERE o.account_id = $1 AND o.hash = h))) AS yes",
        )
        .bind(record.account_id)
        .bind(record.contact_id)
        .bind(record.hashes());
        Ok(self.owner.row::<FlagRow>(query).await?.yes)
    }

    async fn restore_opt_outs(&self, record: &ErasureRecord) -> Result<(), StoreError> {
        let statement = sql(format!(
            "INSERT INTO erased_opt_outs (account_id, hash) SELECT DISTINCT $1, h FROM unnest($2) h ORDER BY h
             {ON_CONFLICT}"
        ))
        .bind(record.account_id)
        .bind(record.hashes());
        self.owner.run(statement).await.map(drop)
    }
}
