//! Inbound events that wait for a profile to be verified. They belong to no account.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Binary};
use recado_domain::shared::{Sealed, StoreError};
use recado_domain::whatsapp::verification::{HeldMessage, HeldMessageStore, PurgedHeld, StoredHeldMessage};
use time::{Duration, OffsetDateTime};

use crate::pool::OwnerPool;
use crate::sql::sql;

#[derive(Clone, Debug)]
pub struct PgHeldMessages(OwnerPool);

impl PgHeldMessages {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

#[derive(QueryableByName)]
struct HeldRow {
    #[diesel(sql_type = BigInt)]
    seq: i64,
    #[diesel(sql_type = Binary)]
    key: Vec<u8>,
    #[diesel(sql_type = Binary)]
    event: Vec<u8>,
}

#[derive(QueryableByName)]
struct PurgedRow {
    #[diesel(sql_type = BigInt)]
    removed: i64,
    #[diesel(sql_type = BigInt)]
    unclaimed: i64,
}

#[async_trait]
impl HeldMessageStore for PgHeldMessages {
    async fn hold(&self, phone_number_id: &str, messages: &[HeldMessage], given: bool) -> Result<(), StoreError> {
        if messages.is_empty() {
            return Ok(());
        }
        let keys: Vec<&[u8]> = messages.iter().map(|message| message.key.as_slice()).collect();
        let events: Vec<&[u8]> = messages.iter().map(|message| message.event.0.as_slice()).collect();
        // A key that occurs twice in one batch would be updated twice, which PostgreSQL refuses.
        let statement = sql(
            "INSERT INTO whatsapp_held_messages AS h (phone_number_id, key, event, given)
             SELECT $1, m.key, m.event, $4 FROM (
               SELECT DISTINCT ON (u.key) u.key, u.event, u.position
               FROM unnest($2, $3) WITH ORDINALITY AS u (key, event, position) ORDER BY u.key, u.position) m
             ORDER BY m.position
             ON CONFLICT (phone_number_id, key) DO UPDATE SET given = h.given OR excluded.given",
        )
        .bind(phone_number_id)
        .bind(keys.as_slice())
        .bind(events.as_slice())
        .bind(given);
        self.0.run(statement).await?;
        Ok(())
    }

    async fn held_since(
        &self,
        phone_number_id: &str,
        since: OffsetDateTime,
        after: i64,
        limit: i64,
    ) -> Result<Vec<StoredHeldMessage>, StoreError> {
        let query = sql("SELECT seq, key, event FROM whatsapp_held_messages
             WHERE phone_number_id = $1 AND seq > $3 AND received_at >= $2 ORDER BY seq LIMIT $4")
        .bind(phone_number_id)
        .bind(since)
        .bind(after)
        .bind(limit);
        let rows = self.0.rows::<HeldRow>(query).await?.into_iter();
        let messages = rows.map(|row| StoredHeldMessage {
            seq: row.seq,
            key: row.key,
            event: Sealed(row.event),
        });
        Ok(messages.collect())
    }

    async fn mark_given(&self, phone_number_id: &str, seqs: &[i64]) -> Result<(), StoreError> {
        let statement = sql("UPDATE whatsapp_held_messages SET given = true
             WHERE phone_number_id = $1 AND seq = ANY ($2) AND NOT given")
        .bind(phone_number_id)
        .bind(seqs.to_vec());
        self.0.run(statement).await?;
        Ok(())
    }

    async fn purge(&self, ttl: Duration, limit: i64) -> Result<PurgedHeld, StoreError> {
        let statement = sql("WITH old AS (SELECT phone_number_id, key FROM whatsapp_held_messages
               WHERE received_at < now() - $1 * interval '1 microsecond'
               ORDER BY received_at LIMIT $2 FOR UPDATE SKIP LOCKED),
             removed AS (DELETE FROM whatsapp_held_messages h USING old
               WHERE h.phone_number_id = old.phone_number_id AND h.key = old.key RETURNING h.given)
             SELECT count(*) AS removed, count(*) FILTER (WHERE NOT given) AS unclaimed FROM removed")
        .bind(ttl)
        .bind(limit);
        let row = self.0.row::<PurgedRow>(statement).await?;
        Ok(PurgedHeld {
            removed: row.removed.unsigned_abs(),
            unclaimed: row.unclaimed.unsigned_abs(),
        })
    }
}
