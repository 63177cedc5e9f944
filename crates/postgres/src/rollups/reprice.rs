//! Sets the rates of all priced messages again, with the rate cards of now, and corrects the sums of costs.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Timestamptz, Uuid as SqlUuid};
use diesel_async::AsyncPgConnection;
use recado_domain::shared::{AccountId, StoreError};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::campaigns::{SendChanges, lock_sends};
use crate::conversations::{lock_messages, write_messages};
use crate::costs::check_alerts;
use crate::direct_messages::{lock_direct_messages, write_direct_messages};
use crate::errors::DbResult;
use crate::pool::OwnerPool;
use crate::sql::sql;
use crate::transactions::in_owner;

/// The messages of one transaction.
const BATCH: i64 = 500;

/// The tables with priced messages, and the expression of a row's time.
const TABLES: [(&str, &str); 3] = [
    ("campaign_sends", "created_at"),
    ("messages", "created_at"),
    ("direct_messages", "created_at"),
];

#[derive(QueryableByName)]
struct KeyRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Timestamptz)]
    at: OffsetDateTime,
}

/// Returns the number of messages with a price.
pub(super) async fn reprice(pool: &OwnerPool, account: AccountId) -> Result<u64, StoreError> {
    let mut repriced = 0;
    for (table, at) in TABLES {
        let mut after = Uuid::nil();
        loop {
            let keys: Vec<KeyRow> = pool
                .rows(
                    sql(format!(
                        "SELECT id, {at} AS at FROM {table} WHERE account_id = $1 AND id > $2 AND pricing IS NOT NULL
                         ORDER BY id LIMIT $3"
                    ))
                    .bind(account)
                    .bind(after)
                    .bind(BATCH),
                )
                .await?;
            let Some(last) = keys.last() else { break };
            after = last.id;
            in_owner!(pool, |conn| reprice_batch(conn, account, table, &keys))?;
            repriced += u64::try_from(keys.len()).unwrap_or(u64::MAX);
        }
    }
    Ok(repriced)
}

async fn reprice_batch(conn: &mut AsyncPgConnection, account: AccountId, table: &str, keys: &[KeyRow]) -> DbResult<()> {
    let ids: Vec<Uuid> = keys.iter().map(|key| key.id).collect();
    let costs = match table {
        "campaign_sends" => {
            let mut sends = lock_sends(conn, account, ids, vec![]).await?;
            sends.iter_mut().for_each(|send| send.reprice());
            SendChanges::of(sends).write(conn, account).await?
        }
        "messages" => {
            let times: Vec<(Uuid, OffsetDateTime)> = keys.iter().map(|key| (key.id, key.at)).collect();
            let mut messages = lock_messages(conn, account, &times, vec![], OffsetDateTime::UNIX_EPOCH).await?;
            messages.iter_mut().for_each(|message| message.reprice());
            write_messages(conn, account, &mut messages).await?
        }
        _ => {
            let mut messages = lock_direct_messages(conn, account, ids, vec![]).await?;
            messages.iter_mut().for_each(|message| message.reprice());
            write_direct_messages(conn, account, &mut messages).await?
        }
    };
    check_alerts(conn, account, &costs).await
}
