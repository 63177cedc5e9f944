//! Opt-outs that outlive the erasure of a contact. A contact that is inserted with an identifier of an erased person who
//! had opted out is opted out, too.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Binary, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::contacts::{Identifier, IdentifierHasher, InsertedContact};
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

    /// Opts those contacts out whose person had opted out before the erasure. Returns them with the time. This has to be
    /// a statement of its own after the insert: an erasure that the insert waited for is visible to it.
    pub(crate) async fn apply(
        &self,
        conn: &mut AsyncPgConnection,
        account: AccountId,
        contacts: &[InsertedContact],
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
            "SELECT o.hash FROM {keys} k JOIN erased_opt_outs o ON o.account_id = $1 AND o.hash = k.hash",
            keys = key_rows("$2", "hash"),
        ))
        .bind(account)
        .bind(all.into_iter().collect::<Vec<_>>())
        .load(&mut *conn)
        .await?;
        if stored.is_empty() {
            return Ok(vec![]);
        }
        let stored: HashSet<Vec<u8>> = stored.into_iter().map(|row| row.hash).collect();
        let has_opted_out = |contact: &&InsertedContact| {
            let mut found = contact.identifiers.iter().flat_map(hashes);
            found.any(|hash| stored.contains(&hash))
        };
        let ids: Vec<Uuid> = contacts
            .iter()
            .filter(has_opted_out)
            .map(|contact| contact.id)
            .collect();
        let written: Vec<OptedOutRow> = sql(format!(
            "UPDATE contacts c SET opted_out_at = now(), consent_at = now() FROM {keys} k
             WHERE c.account_id = $1 AND c.id = k.id AND c.opted_out_at IS NULL RETURNING c.id, c.opted_out_at",
            keys = key_rows("$2", "id"),
        ))
        .bind(account)
        .bind(ids)
        .load(conn)
        .await?;
        Ok(written.into_iter().map(|row| (row.id, row.opted_out_at)).collect())
    }
}

/// Stores the opt-out of a person. `earlier`: hashes that another erasure made.
pub(crate) async fn store(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    hasher: &dyn IdentifierHasher,
    identifiers: &[Identifier],
    earlier: &[Vec<u8>],
) -> DbResult<()> {
    let hashes = identifiers.iter().map(|identifier| hasher.hash(account, identifier));
    sql(
        "INSERT INTO erased_opt_outs (account_id, hash) SELECT DISTINCT $1, h FROM unnest($2) h
         ON CONFLICT DO NOTHING",
    )
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
