//! The work of the worker that keeps stored counts fresh while they are read.

use diesel::prelude::QueryableByName;
use diesel::sql_types::Uuid as SqlUuid;
use diesel_async::RunQueryDsl;
use recado_domain::shared::{AccountId, StoreError};
use time::Duration;
use uuid::Uuid;

use super::counts::{self, CountedSegment};
use crate::pool::{OwnerPool, TenantPool};
use crate::sql::sql;
use crate::transactions::{in_owner, in_tenant};

/// The age at which the worker counts again, before a read has to.
const RECOUNT_AGE: Duration = Duration::seconds(40);

/// The lease of the segments that are being counted: longer than a count may take.
const LEASE: Duration = Duration::minutes(3);

/// The segments of one account that are counted before the next account has its turn.
const MAX_SEGMENTS: i64 = 20;

/// The queue of stored counts: those of large accounts that were read in the last five minutes.
#[derive(Clone, Debug)]
pub struct PgSegmentCounts {
    tenants: TenantPool,
    owner: OwnerPool,
}

#[derive(QueryableByName)]
struct ClaimedRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(embed)]
    segment: CountedSegment,
}

impl PgSegmentCounts {
    pub fn new(tenants: TenantPool, owner: OwnerPool) -> Self {
        Self { tenants, owner }
    }

    /// Counts the segments of the account whose counts are the oldest. Returns false if none is old enough. A worker that
    /// stops loses its lease, and another one counts again.
    pub async fn recount_next(&self) -> Result<bool, StoreError> {
        let claimed: Vec<ClaimedRow> = in_owner!(self.owner, |conn| {
            sql(include_str!("claim_counts.sql"))
                .bind(RECOUNT_AGE)
                .bind(MAX_SEGMENTS)
                .bind(LEASE)
                .load(conn)
        })?;
        let Some(first) = claimed.as_slice().first() else {
            return Ok(false);
        };
        let account = AccountId(first.account_id);
        for pass in counts::passes(claimed.iter().map(|row| row.segment).collect()) {
            in_tenant!(self.tenants, account, |conn| counts::refresh(
                conn,
                account,
                &pass,
                RECOUNT_AGE,
                true
            ))?;
        }
        Ok(true)
    }
}
