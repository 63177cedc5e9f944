//! Send-rate limiter shared by all servers (GCRA): one row per phone number holds the time of its next free send slot.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Double, Nullable};
use recado_domain::campaigns::{Burst, LOWEST_RATE, RATE_HALVING_INTERVAL, RATE_RECOVERY, SendSlot, SendSlotStore};
use recado_domain::shared::StoreError;
use time::Duration;

use crate::pool::OwnerPool;
use crate::sql::sql;

/// Several accounts may share a number, so its row belongs to no account and the owner pool writes it.
#[derive(Clone, Debug)]
pub struct PgSendSlots {
    owner: OwnerPool,
}

impl PgSendSlots {
    pub fn new(owner: OwnerPool) -> Self {
        Self { owner }
    }
}

#[derive(QueryableByName)]
struct SlotRow {
    #[diesel(sql_type = BigInt)]
    microseconds: i64,
    #[diesel(sql_type = Nullable<Double>)]
    throttled_rate: Option<f64>,
}

#[derive(QueryableByName)]
struct RateRow {
    #[diesel(sql_type = Double)]
    rate: f64,
}

/// The current throttled rate of number `p`: it recovers by `$3` per second. It uses the transaction's time, so every
/// use in a statement has the same value.
const RATE: &str = "(p.throttled_rate + greatest(0, extract(epoch FROM now() - p.throttled_at))::float8 * $3::float8)";

#[async_trait]
impl SendSlotStore for PgSendSlots {
    async fn reserve(&self, phone_number_id: &str, burst: Burst) -> Result<SendSlot, StoreError> {
        // The statement reads the clock under the row lock, so no two slots are equal. The commit is asynchronous: a
        // disk write after the clock was read would make slots late. After a crash the database may hand out the slots
        // of its last half second again. Most of them are past when it is back.
        let duration = format!("(greatest($2::float8, $4::float8 * 1000000 / {RATE}) * interval '1 microsecond')");
        let query = sql(format!(
            "INSERT INTO phone_number_send_slots AS p (phone_number_id, next_slot_at)
             SELECT $1, clock_timestamp() + $2 * interval '1 microsecond'
             FROM set_config('synchronous_commit', 'off', true)
             ON CONFLICT (phone_number_id) DO UPDATE
               SET next_slot_at = greatest(p.next_slot_at, clock_timestamp()) + {duration}
             RETURNING greatest(0, (extract(epoch FROM p.next_slot_at - {duration} - clock_timestamp()) * 1000000)::bigint)
               AS microseconds, {RATE} AS throttled_rate"
        ))
        .bind(phone_number_id)
        .bind(burst.time)
        .bind(RATE_RECOVERY)
        .bind(i64::from(burst.messages));
        let row = self.owner.row::<SlotRow>(query).await?;
        Ok(SendSlot {
            wait: Duration::microseconds(row.microseconds),
            limit: row.throttled_rate,
        })
    }

    async fn slow_down(&self, phone_number_id: &str, rate: f64) -> Result<f64, StoreError> {
        let halved = format!("greatest($4, least($2, {RATE}) / 2)");
        let recently_halved = "coalesce(p.throttled_at > now() - $5 * interval '1 microsecond', false)";
        let query = sql(format!(
            "INSERT INTO phone_number_send_slots AS p (phone_number_id, next_slot_at, throttled_rate, throttled_at)
             VALUES ($1, now(), greatest($4::float8, $2::float8 / 2), now())
             ON CONFLICT (phone_number_id) DO UPDATE
               SET throttled_rate = CASE WHEN {recently_halved} THEN p.throttled_rate ELSE {halved} END,
                 throttled_at = CASE WHEN {recently_halved} THEN p.throttled_at ELSE now() END
             RETURNING {RATE} AS rate"
        ))
        .bind(phone_number_id)
        .bind(rate)
        .bind(RATE_RECOVERY)
        .bind(LOWEST_RATE.min(rate))
        .bind(RATE_HALVING_INTERVAL);
        Ok(self.owner.row::<RateRow>(query).await?.rate)
    }
}
