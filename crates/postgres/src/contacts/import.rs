//! Finds and locks the stored contacts of an import batch that names WhatsApp user ids.

use std::collections::HashMap;

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, Nullable, Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::contacts::{ContactKeys, ContactMatcher, Identifier, ImportRow, RefusedRow};
use recado_domain::shared::{AccountId, ContactId};
use uuid::Uuid;

use crate::errors::DbResult;
use crate::sql::{key_rows, sql, unknown_limit};

/// Class of advisory locks with two keys: this and a hash of the account. No other lock in the database uses it.
const IMPORT_LOCK: i32 = 0x696d_706f;

/// Prevents deadlocks between the imports of an account (advisory lock until the commit). Batches of phone numbers alone
/// lock contacts in the order of their numbers and run side by side. A batch with user ids runs alone: its contacts have
/// two keys, and no order of the rows fits both.
pub(super) async fn lock_imports(conn: &mut AsyncPgConnection, account: AccountId, has_user_ids: bool) -> DbResult<()> {
    let lock = match has_user_ids {
        true => "SELECT pg_advisory_xact_lock($1, hashtext($2))",
        false => "SELECT pg_advisory_xact_lock_shared($1, hashtext($2))",
    };
    sql(lock)
        .bind(IMPORT_LOCK)
        .bind(account.to_string())
        .execute(conn)
        .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct KeysRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_user_id: Option<String>,
    #[diesel(sql_type = Array<Text>)]
    reported_user_ids: Vec<String>,
}

impl From<KeysRow> for ContactKeys {
    fn from(row: KeysRow) -> Self {
        Self {
            id: row.id.into(),
            phone: row.phone,
            wa_user_id: row.wa_user_id,
            reported_user_ids: row.reported_user_ids,
        }
    }
}

/// The contacts of a batch.
pub(super) struct MatchedContacts {
    /// The contact of each row: the stored one, else the row's of the new ids.
    pub(super) ids: Vec<ContactId>,
    /// What identifies the stored ones.
    pub(super) identifiers: HashMap<Uuid, Vec<Identifier>>,
}

impl KeysRow {
    fn identifiers(&self) -> Vec<Identifier> {
        let ids = self.wa_user_id.iter().chain(&self.reported_user_ids);
        let ids = ids.map(|id| Identifier::user_id(id));
        self.phone
            .as_deref()
            .map(Identifier::phone)
            .into_iter()
            .chain(ids)
            .collect()
    }
}

/// Locks the stored contacts of the batch in the order of their ids. Returns the contacts, or the rows that must not be
/// written.
pub(super) async fn match_contacts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    new_ids: &[ContactId],
    rows: &[ImportRow],
) -> DbResult<Result<MatchedContacts, Vec<RefusedRow>>> {
    let stored: Vec<KeysRow> = sql(contacts_by_keys())
        .bind(account)
        .bind(
            rows.iter()
                .filter_map(|row| row.contact.phone.as_ref().map(ToString::to_string))
                .collect::<Vec<_>>(),
        )
        .bind(
            rows.iter()
                .filter_map(|row| row.contact.wa_user_id.clone())
                .collect::<Vec<_>>(),
        )
        .load(conn)
        .await?;
    let identifiers = stored.iter().map(|row| (row.id, row.identifiers())).collect();
    let matcher = ContactMatcher::new(stored.into_iter().map(ContactKeys::from).collect());
    let (mut ids, mut refused) = (Vec::with_capacity(rows.len()), Vec::new());
    for (position, (row, &new_id)) in rows.iter().zip(new_ids).enumerate() {
        match matcher.find(&row.contact) {
            Ok(contact) => ids.push(contact.unwrap_or(new_id)),
            Err(reason) => refused.push(RefusedRow { position, reason }),
        }
    }
    Ok(match refused.is_empty() {
        true => Ok(MatchedContacts { ids, identifiers }),
        false => Err(refused),
    })
}

/// The outer condition checks the keys of the contacts again, because another transaction may change them before the
/// rows are locked.
fn contacts_by_keys() -> String {
    let ids_by = |array: &str, column: &str| {
        format!(
            "SELECT c.id, false AS is_reported FROM {keys} k
             JOIN contacts c ON c.account_id = $1 AND c.{column} = k.value WHERE c.deleted_at IS NULL",
            keys = key_rows(array, "value")
        )
    };
    format!(
        "SELECT c.id, c.phone, c.wa_user_id, ARRAY(SELECT i.wa_user_id FROM contact_identities i
           WHERE i.account_id = $1 AND i.contact_id = c.id) AS reported_user_ids
         FROM (SELECT i.id, bool_or(i.is_reported) AS is_reported FROM ({phones} UNION {user_ids} UNION
           SELECT i.contact_id, true FROM {keys} k
           JOIN contact_identities i ON i.account_id = $1 AND i.wa_user_id = k.value) i GROUP BY i.id {limit}) k
         JOIN contacts c ON c.account_id = $1 AND c.id = k.id
         WHERE c.deleted_at IS NULL AND (k.is_reported OR c.phone = ANY ($2) OR c.wa_user_id = ANY ($3))
         ORDER BY c.id FOR NO KEY UPDATE OF c",
        phones = ids_by("$2", "phone"),
        user_ids = ids_by("$3", "wa_user_id"),
        keys = key_rows("$3", "value"),
        limit = unknown_limit("cardinality($2) + 2 * cardinality($3)"),
    )
}
