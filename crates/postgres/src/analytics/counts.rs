//! Rollups of messages, contacts and conversations. The code that writes the rows calls these functions afterwards,
//! in the same transaction.

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::analytics::MessageRollupDelta;
use recado_domain::conversations::ConversationStatus;
use recado_domain::shared::{AccountId, ContactId};
use time::OffsetDateTime;

use crate::errors::DbResult;
use crate::sql::{collect_column, sql};

/// Replies of the account `$1` that WhatsApp accepted in the month that begins on this date.
macro_rules! replies_of_month {
    ($month:literal) => {
        concat!(
            "coalesce((SELECT sum(sent + delivered + read)::bigint FROM message_rollups
               WHERE account_id = $1 AND bucket_minutes = 1440 AND bucket_start >= (",
            $month,
            ")::timestamp AT TIME ZONE 'UTC' AND bucket_start < ((",
            $month,
            ")::timestamp + interval '1 month') AT TIME ZONE 'UTC'), 0)"
        )
    };
}
pub(crate) use replies_of_month;

/// Adds messages of conversations. Messages of campaigns are counted per campaign.
pub(crate) async fn count_messages(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    delta: &MessageRollupDelta,
) -> DbResult<()> {
    let changes = delta.changes();
    if changes.is_empty() {
        return Ok(());
    }
    sql(
        "INSERT INTO message_rollups AS r (account_id, bucket_minutes, bucket_start, sent, delivered, read, failed,
           received)
         SELECT $1, d.bucket_minutes, d.bucket_start, d.sent, d.delivered, d.read, d.failed, d.received
         FROM unnest($2, $3, $4, $5, $6, $7, $8) WITH ORDINALITY
           AS d (bucket_minutes, bucket_start, sent, delivered, read, failed, received, position)
         ORDER BY d.position
         ON CONFLICT (account_id, bucket_minutes, bucket_start) DO UPDATE SET sent = r.sent + excluded.sent,
           delivered = r.delivered + excluded.delivered, read = r.read + excluded.read,
           failed = r.failed + excluded.failed, received = r.received + excluded.received",
    )
    .bind(account)
    .bind(collect_column(&changes, |(granularity, ..)| granularity.minutes()))
    .bind(collect_column(&changes, |(_, at, _)| *at))
    .bind(collect_column(&changes, |(.., counts)| counts.sent))
    .bind(collect_column(&changes, |(.., counts)| counts.delivered))
    .bind(collect_column(&changes, |(.., counts)| counts.read))
    .bind(collect_column(&changes, |(.., counts)| counts.failed))
    .bind(collect_column(&changes, |(.., counts)| counts.received))
    .execute(conn)
    .await?;
    Ok(())
}

/// Adds contacts that were created at this time, by default the transaction's. Negative: deleted contacts.
pub(crate) async fn count_contacts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    contact_created_at: Option<OffsetDateTime>,
    contacts: i64,
) -> DbResult<()> {
    if contacts == 0 {
        return Ok(());
    }
    sql("INSERT INTO contact_counts AS n (account_id, day, contacts)
         VALUES ($1, (coalesce($2, now()) AT TIME ZONE 'UTC')::date, $3)
         ON CONFLICT (account_id, day) DO UPDATE SET contacts = n.contacts + excluded.contacts")
    .bind(account)
    .bind(contact_created_at)
    .bind(contacts)
    .execute(conn)
    .await?;
    Ok(())
}

/// Adds to the number of conversations by status. Only conversations with contacts that are not deleted count.
pub(crate) async fn count_conversations(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    changes: &[(ConversationStatus, i64)],
) -> DbResult<()> {
    write_conversations(conn, account, None, changes).await
}

/// Like [`count_conversations`], for one locked conversation, unless its contact was deleted: that deletion has
/// already subtracted the conversation, or waits for its lock to do so.
pub(crate) async fn count_conversations_of(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    contact: ContactId,
    changes: &[(ConversationStatus, i64)],
) -> DbResult<()> {
    write_conversations(conn, account, Some(contact), changes).await
}

async fn write_conversations(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    unless_deleted: Option<ContactId>,
    changes: &[(ConversationStatus, i64)],
) -> DbResult<()> {
    let sums = ConversationStatus::ALL.iter().filter_map(|&status| {
        let sum: i64 = changes
            .iter()
            .filter(|(of, _)| *of == status)
            .map(|(_, change)| change)
            .sum();
        (sum != 0).then_some((status, sum))
    });
    let mut sums: Vec<(ConversationStatus, i64)> = sums.collect();
    if sums.is_empty() {
        return Ok(());
    }
    sums.sort_by_key(|(status, _)| status.as_str());
    sql(
        "INSERT INTO conversation_counts AS n (account_id, status, conversations)
         SELECT $1, d.status, d.conversations FROM unnest($2, $3) AS d (status, conversations)
         WHERE $4 IS NULL OR EXISTS (SELECT FROM contacts WHERE account_id = $1 AND id = $4 AND deleted_at IS NULL)
         ORDER BY d.status
         ON CONFLICT (account_id, status) DO UPDATE SET conversations = n.conversations + excluded.conversations",
    )
    .bind(account)
    .bind(collect_column(&sums, |(status, _)| status.as_str().to_owned()))
    .bind(collect_column(&sums, |(_, sum)| *sum))
    .bind(unless_deleted)
    .execute(conn)
    .await?;
    Ok(())
}
