//! Opt-outs that outlive the erasure of a contact. A contact that gets an identifier of an erased person who had opted
//! out is opted out, too.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Binary, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::contacts::{AddedIdentifiers, Identifier, IdentifierHasher, NewerConsent};
use recado_domain::shared::AccountId;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::DbResult;
use crate::sql::{key_rows, sql};

/// Looks up the opt-outs of erased people. Without a hasher it finds none.
#[derive(Clone, Default)]
pub struct ErasedOptOuts(Option<Arc<dyn IdentifierHasher>>);

impl std::fmt::Debug for ErasedOptOuts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ErasedOptOuts").finish_non_exhaustive()
    }
}

#[derive(QueryableByName)]
struct HashRow {
    #[diesel(sql_type = Binary)]
    hash: Vec<u8>,
    /// When the person was erased.
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
}

#[derive(QueryableByName)]
struct OptedOutRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Timestamptz)]
    opted_out_at: OffsetDateTime,
}

impl ErasedOptOuts {
    pub fn new(hasher: Arc<dyn IdentifierHasher>) -> Self {
        Self(Some(hasher))
    }

    /// Opts those contacts out that got an identifier of a person who had opted out before the erasure. Returns them with
    /// the time. This has to be a statement of its own after the write of the identifiers: an erasure that the write
    /// waited for is visible to it.
    pub(crate) async fn apply(
        &self,
        conn: &mut AsyncPgConnection,
        account: AccountId,
        contacts: &[AddedIdentifiers],
        newer: NewerConsent,
    ) -> DbResult<Vec<(Uuid, OffsetDateTime)>> {
        let Some(hasher) = self.0.as_ref().filter(|_| !contacts.is_empty()) else {
            return Ok(vec![]);
        };
        let hashes = |identifier: &Identifier| hasher.all_hashes(account, identifier);
        let all: BTreeSet<Vec<u8>> = contacts
            .iter()
            .flat_map(|contact| &contact.identifiers)
            .flat_map(hashes)
            .collect();
        let stored: Vec<HashRow> = sql(format!(
            "SELECT o.hash, o.created_at FROM {keys} k JOIN erased_opt_outs o ON o.account_id = $1 AND o.hash = k.hash",
            keys = key_rows("$2", "hash"),
        ))
        .bind(account)
        .bind(all.into_iter().collect::<Vec<_>>())
        .load(&mut *conn)
        .await?;
        if stored.is_empty() {
            return Ok(vec![]);
        }
        let stored: HashMap<Vec<u8>, OffsetDateTime> =
            stored.into_iter().map(|row| (row.hash, row.created_at)).collect();
        let erased_at = |contact: &AddedIdentifiers| {
            let hashes = contact.identifiers.iter().flat_map(hashes);
            hashes.filter_map(|hash| stored.get(&hash).copied()).max()
        };
        let found: Vec<(Uuid, OffsetDateTime)> = contacts
            .iter()
            .filter_map(|contact| Some((contact.id, erased_at(contact)?)))
            .collect();
        opt_out(conn, account, &found, newer).await
    }
}

/// Opts contacts out, each with the time of the erasure.
async fn opt_out(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    erased: &[(Uuid, OffsetDateTime)],
    newer: NewerConsent,
) -> DbResult<Vec<(Uuid, OffsetDateTime)>> {
    let written: Vec<OptedOutRow> = sql(format!(
        "UPDATE contacts c SET opted_out_at = now(), consent_at = now() FROM {keys} k
         WHERE c.account_id = $1 AND c.id = k.id AND c.opted_out_at IS NULL
           AND (NOT $4 OR c.consent_at IS NULL OR c.consent_at <= k.erased_at)
         RETURNING c.id, c.opted_out_at",
        keys = key_rows("$2, $3", "id, erased_at"),
    ))
    .bind(account)
    .bind(erased.iter().map(|(id, _)| *id).collect::<Vec<_>>())
    .bind(erased.iter().map(|(_, at)| *at).collect::<Vec<_>>())
    .bind(newer == NewerConsent::Stays)
    .load(conn)
    .await?;
    Ok(written.into_iter().map(|row| (row.id, row.opted_out_at)).collect())
}

/// Keeps the time of the last erasure: a consent from before it is not newer.
pub(crate) const ON_CONFLICT: &str = "ON CONFLICT (account_id, hash)
     DO UPDATE SET created_at = greatest(erased_opt_outs.created_at, excluded.created_at)";

/// Stores the opt-out of a person. `earlier`: hashes that another erasure made.
pub(crate) async fn store(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    hasher: &dyn IdentifierHasher,
    identifiers: &[Identifier],
    earlier: &[Vec<u8>],
) -> DbResult<()> {
    let hashes = identifiers.iter().map(|identifier| hasher.hash(account, identifier));
    // Ordered, so that two erasures do not wait for each other's rows.
    sql(format!(
        "INSERT INTO erased_opt_outs (account_id, hash) SELECT DISTINCT $1, h FROM unnest($2) h ORDER BY h
         {ON_CONFLICT}"
    ))
    .bind(account)
    .bind(hashes.chain(earlier.iter().cloned()).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes the opt-out of a person who has opted in since.
pub(crate) async fn delete(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    hasher: &dyn IdentifierHasher,
    identifiers: &[Identifier],
) -> DbResult<()> {
    let hashes = identifiers
        .iter()
        .flat_map(|identifier| hasher.all_hashes(account, identifier));
    sql("DELETE FROM erased_opt_outs WHERE account_id = $1 AND hash = ANY ($2)")
        .bind(account)
        .bind(hashes.collect::<Vec<_>>())
        .execute(conn)
        .await?;
    Ok(())
}
