//! Opens sealed copies to search them: events of numbers without verification, and stored responses.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Binary, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::erasures::{ErasureClaim, ErasureStep};
use recado_domain::shared::{Cipher, SealContext, SealPurpose, Sealed};
use secrecy::ExposeSecret as _;

use super::batch::{Batch, kind, until};
use crate::errors::DbResult;
use crate::sql::sql;

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
struct ResponseRow {
    #[diesel(sql_type = Text)]
    key: String,
    #[diesel(sql_type = Binary)]
    response: Vec<u8>,
}

/// Whether the text names the person, and is not the response of the erasure itself, which has its id. A value that no
/// configured secret opens cannot be read.
fn is_of_person(claim: &ErasureClaim, cipher: &dyn Cipher, sealed: Vec<u8>, context: &SealContext) -> bool {
    let text = cipher.open(&Sealed(sealed), context);
    text.is_some_and(|text| {
        let text = text.expose_secret().to_lowercase();
        claim.marks.is_named_in(&text, claim.contact_id.0) && !text.contains(&claim.id.to_string())
    })
}

fn page(step: ErasureStep, read: usize, removed: usize, last: Option<String>, limit: i64) -> Batch {
    let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
    Batch {
        removed: vec![(kind(step), number(removed))],
        has_more: number(read) >= limit,
        after: last,
        waits: false,
    }
}

/// Events of numbers that no other account has: another account may still be given its own.
pub(super) async fn held_messages(
    conn: &mut AsyncPgConnection,
    claim: &ErasureClaim,
    after: Option<String>,
    limit: i64,
    cipher: &dyn Cipher,
) -> DbResult<Batch> {
    let rows: Vec<HeldRow> = sql("SELECT h.seq, h.key, h.event FROM whatsapp_held_messages h
         WHERE h.seq > coalesce($2::bigint, 0) AND h.received_at <= $3
           AND EXISTS (SELECT FROM whatsapp_profiles p WHERE p.account_id = $1 AND p.phone_number_id = h.phone_number_id)
           AND NOT EXISTS (SELECT FROM whatsapp_profiles p
             WHERE p.account_id <> $1 AND p.phone_number_id = h.phone_number_id)
         ORDER BY h.seq LIMIT $4")
    .bind(claim.account_id)
    .bind(after.as_deref())
    .bind(claim.requested_at)
    .bind(limit)
    .load(&mut *conn)
    .await?;
    let (read, last) = (rows.len(), rows.last().map(|row| row.seq.to_string()));
    let found = rows.into_iter().filter_map(|row| {
        let context = SealContext::held_message(&row.key);
        is_of_person(claim, cipher, row.event, &context).then_some(row.key)
    });
    let removed = sql("DELETE FROM whatsapp_held_messages WHERE key = ANY ($1)")
        .bind(found.collect::<Vec<_>>())
        .execute(conn)
        .await?;
    Ok(page(ErasureStep::HeldMessages, read, removed, last, limit))
}

/// A removed response is one that expired: the same key begins a new request.
pub(super) async fn stored_responses(
    conn: &mut AsyncPgConnection,
    claim: &ErasureClaim,
    after: Option<String>,
    limit: i64,
    cipher: &dyn Cipher,
) -> DbResult<Batch> {
    let rows: Vec<ResponseRow> = sql("SELECT key, response FROM idempotency_keys
         WHERE scope = $1 AND key > coalesce($2, '') AND response IS NOT NULL AND created_at <= $4
         ORDER BY key LIMIT $3")
    .bind(claim.account_id)
    .bind(after.as_deref())
    .bind(limit)
    .bind(until(claim))
    .load(&mut *conn)
    .await?;
    let (read, last) = (rows.len(), rows.last().map(|row| row.key.clone()));
    let found = rows.into_iter().filter_map(|row| {
        let context = SealContext::new(SealPurpose::StoredResponse, claim.account_id, &row.key);
        is_of_person(claim, cipher, row.response, &context).then_some(row.key)
    });
    let removed = sql("DELETE FROM idempotency_keys WHERE scope = $1 AND key = ANY ($2) AND response IS NOT NULL")
        .bind(claim.account_id)
        .bind(found.collect::<Vec<_>>())
        .execute(conn)
        .await?;
    Ok(page(ErasureStep::StoredResponses, read, removed, last, limit))
}
