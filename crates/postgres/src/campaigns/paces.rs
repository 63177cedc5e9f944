//! The pace of numbers, shared by all servers: one row a number, which says when its next place is free.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::BigInt;
use recado_domain::campaigns::PaceStore;
use recado_domain::shared::StoreError;
use time::Duration;

use crate::pool::PlatformPool;
use crate::sql::sql;

/// The pace of numbers. A number may serve several accounts, so that its row belongs to none.
#[derive(Clone, Debug)]
pub struct PgPaces {
    platform: PlatformPool,
}

impl PgPaces {
    pub fn new(platform: PlatformPool) -> Self {
        Self { platform }
    }
}

#[derive(QueryableByName)]
struct WaitRow {
    #[diesel(sql_type = BigInt)]
    microseconds: i64,
}

#[async_trait]
impl PaceStore for PgPaces {
    async fn reserve(&self, phone_number_id: &str, time: Duration) -> Result<Duration, StoreError> {
        // The clock is read under the row's lock, so that no two places are the same. The commit does not wait for the disk:
        // that would come after the clock was read, and make places late. A database that crashes may give out the places
        // of its last half second again, most of which are past when it is back.
        let query = sql("INSERT INTO number_paces AS p (phone_number_id, next_at)
             SELECT $1, clock_timestamp() + $2 * interval '1 microsecond'
             FROM set_config('synchronous_commit', 'off', true)
             ON CONFLICT (phone_number_id) DO UPDATE
               SET next_at = greatest(p.next_at, clock_timestamp()) + $2 * interval '1 microsecond'
             RETURNING greatest(0, (extract(epoch FROM p.next_at - $2 * interval '1 microsecond' - clock_timestamp())
               * 1000000)::bigint) AS microseconds")
        .bind(phone_number_id)
        .bind(time);
        let row = self.platform.row::<WaitRow>(query).await?;
        Ok(Duration::microseconds(row.microseconds))
    }
}
