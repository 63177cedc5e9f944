//! `contact_identities`: the user ids that numbers reported. An id that no number reported is only in
//! `contacts.wa_user_id`.

use std::collections::HashMap;

use diesel::OptionalExtension as _;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, Bool, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::contacts::{Identifier, ScopedUserId};
use recado_domain::conversations::{LinkedContact, linked};
use recado_domain::shared::{AccountId, ContactId, StoreError};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::DbResult;
use crate::sql::{IdRow, Sql, collect_column, key_rows, sql};

#[derive(QueryableByName)]
pub(super) struct UserIdRow {
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = Text)]
    scope: String,
    #[diesel(sql_type = Text)]
    wa_user_id: String,
    #[diesel(sql_type = Nullable<Text>)]
    parent_user_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    username: Option<String>,
    #[diesel(sql_type = Timestamptz)]
    first_seen_at: OffsetDateTime,
    #[diesel(sql_type = Timestamptz)]
    last_seen_at: OffsetDateTime,
}

impl From<UserIdRow> for ScopedUserId {
    fn from(row: UserIdRow) -> Self {
        Self {
            scope: row.scope,
            user_id: row.wa_user_id,
            parent_user_id: row.parent_user_id,
            username: row.username,
            first_seen_at: row.first_seen_at,
            last_seen_at: row.last_seen_at,
        }
    }
}

/// The statement that reads the user ids of contacts, latest first.
pub(super) fn of_contacts<'a>(account: AccountId, contacts: Vec<Uuid>) -> Sql<'a> {
    sql(format!(
        "SELECT i.contact_id, i.scope, i.wa_user_id, i.parent_user_id, i.username, i.first_seen_at, i.last_seen_at
         FROM {keys} k JOIN contact_identities i ON i.account_id = $1 AND i.contact_id = k.contact_id
         ORDER BY i.last_seen_at DESC, i.scope",
        keys = key_rows("$2", "contact_id"),
    ))
    .bind(account)
    .bind(contacts)
}

/// The contacts of account `$1` with user id `$2`, for whatever portfolio.
pub(crate) const IDS_BY_USER_ID: &str = "SELECT id FROM contacts WHERE account_id = $1 AND wa_user_id = $2
    AND deleted_at IS NULL
  UNION SELECT contact_id FROM contact_identities WHERE account_id = $1 AND wa_user_id = $2
  UNION SELECT contact_id FROM contact_identities WHERE account_id = $1 AND parent_user_id = $2";

#[derive(QueryableByName)]
struct IdentifiersRow {
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<String>,
    #[diesel(sql_type = Array<Text>)]
    user_ids: Vec<String>,
}

/// Locks a contact. Returns what identifies it.
pub(super) async fn lock_identifiers(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: ContactId,
) -> DbResult<Vec<Identifier>> {
    let row: Option<IdentifiersRow> = sql(
        "SELECT c.phone, array_remove(ARRAY(SELECT i.wa_user_id FROM contact_identities i
             WHERE i.account_id = $1 AND i.contact_id = $2) || c.wa_user_id, NULL) AS user_ids
         FROM contacts c WHERE c.account_id = $1 AND c.id = $2 FOR NO KEY UPDATE OF c",
    )
    .bind(account)
    .bind(id)
    .get_result(conn)
    .await
    .optional()?;
    let identifiers = row.map(|row| {
        let ids = row.user_ids.iter().map(|id| Identifier::user_id(id));
        row.phone
            .as_deref()
            .map(Identifier::phone)
            .into_iter()
            .chain(ids)
            .collect()
    });
    Ok(identifiers.unwrap_or_default())
}

/// Refuses a user id that another contact has, for whatever portfolio.
pub(super) async fn check_free(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    user_id: Option<&str>,
    own: ContactId,
) -> DbResult<()> {
    let Some(user_id) = user_id else { return Ok(()) };
    let others: Vec<IdRow> = sql(format!("SELECT id FROM ({IDS_BY_USER_ID}) ids WHERE id <> $3 LIMIT 1"))
        .bind(account)
        .bind(user_id)
        .bind(own)
        .load(conn)
        .await?;
    match others.is_empty() {
        true => Ok(()),
        false => Err(StoreError::Duplicate { field: "wa_user_id" }.into()),
    }
}

/// Reads the user ids of contacts.
pub(crate) async fn user_ids(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    contacts: Vec<Uuid>,
) -> DbResult<HashMap<ContactId, Vec<ScopedUserId>>> {
    let mut found: HashMap<ContactId, Vec<ScopedUserId>> = HashMap::new();
    if contacts.is_empty() {
        return Ok(found);
    }
    let rows: Vec<UserIdRow> = of_contacts(account, contacts).load(conn).await?;
    for row in rows {
        found.entry(row.contact_id.into()).or_default().push(row.into());
    }
    Ok(found)
}

/// Writes user ids. An id replaces the contact's earlier one of the same scope.
pub(crate) async fn write_user_ids(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    user_ids: &[(ContactId, ScopedUserId)],
) -> DbResult<()> {
    if user_ids.is_empty() {
        return Ok(());
    }
    sql("INSERT INTO contact_identities
           (account_id, contact_id, scope, wa_user_id, parent_user_id, username, first_seen_at, last_seen_at)
         SELECT $1, t.* FROM unnest($2, $3, $4, $5, $6, $7, $8)
           AS t (contact_id, scope, wa_user_id, parent_user_id, username, first_seen_at, last_seen_at)
         ORDER BY t.contact_id, t.scope
         ON CONFLICT (account_id, contact_id, scope) DO UPDATE SET wa_user_id = excluded.wa_user_id,
           parent_user_id = excluded.parent_user_id, username = excluded.username,
           first_seen_at = excluded.first_seen_at, last_seen_at = excluded.last_seen_at")
    .bind(account)
    .bind(collect_column(user_ids, |(contact, _)| contact.0))
    .bind(collect_column(user_ids, |(_, reported)| reported.scope.clone()))
    .bind(collect_column(user_ids, |(_, reported)| reported.user_id.clone()))
    .bind(collect_column(user_ids, |(_, reported)| {
        reported.parent_user_id.clone()
    }))
    .bind(collect_column(user_ids, |(_, reported)| reported.username.clone()))
    .bind(collect_column(user_ids, |(_, reported)| reported.first_seen_at))
    .bind(collect_column(user_ids, |(_, reported)| reported.last_seen_at))
    .execute(conn)
    .await?;
    Ok(())
}

/// Removes what identifies a deleted contact: its ids, and that other contacts are the same person. Those stay linked to
/// each other: each contact that is linked names another one.
pub(crate) async fn delete(conn: &mut AsyncPgConnection, account: AccountId, id: ContactId) -> DbResult<()> {
    sql("DELETE FROM contact_identities WHERE account_id = $1 AND contact_id = $2")
        .bind(account)
        .bind(id)
        .execute(&mut *conn)
        .await?;
    sql(
        "UPDATE contacts c SET same_person_as = CASE WHEN c.id <> d.same_person_as THEN d.same_person_as
           ELSE (SELECT o.id FROM contacts o
             WHERE o.account_id = $1 AND o.same_person_as IN ($2, c.id) AND o.id NOT IN ($2, c.id)
             ORDER BY o.id LIMIT 1) END
         FROM contacts d WHERE d.account_id = $1 AND d.id = $2 AND c.account_id = $1 AND c.same_person_as = $2",
    )
    .bind(account)
    .bind(id)
    .execute(&mut *conn)
    .await?;
    sql("UPDATE contacts SET same_person_as = NULL WHERE account_id = $1 AND id = $2 AND same_person_as IS NOT NULL")
        .bind(account)
        .bind(id)
        .execute(conn)
        .await?;
    Ok(())
}

/// Moves the ids that the numbers of a WhatsApp account reported to their portfolio, once it is known. An id is
/// deleted instead if its contact already has one of the portfolio, or if any contact has the same id there. Another
/// contact with the same id is the same person: both are linked. Returns how many contacts were linked that named none.
pub(crate) async fn move_to_portfolio(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    waba_id: &str,
    portfolio_id: &str,
) -> DbResult<usize> {
    if waba_id == portfolio_id {
        return Ok(0);
    }
    let same_persons = link_same_persons(conn, account, waba_id, portfolio_id).await?;
    let exists = "EXISTS (SELECT 1 FROM contact_identities o WHERE o.account_id = $1 AND o.scope = $3
        AND (o.contact_id = i.contact_id OR o.wa_user_id = i.wa_user_id))";
    for statement in [
        format!("DELETE FROM contact_identities i WHERE i.account_id = $1 AND i.scope = $2 AND {exists}"),
        "UPDATE contact_identities SET scope = $3 WHERE account_id = $1 AND scope = $2".to_owned(),
    ] {
        sql(statement)
            .bind(account)
            .bind(waba_id)
            .bind(portfolio_id)
            .execute(&mut *conn)
            .await?;
    }
    Ok(same_persons)
}

#[derive(QueryableByName)]
struct PairRow {
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    other_id: Uuid,
}

#[derive(QueryableByName)]
struct LinkedRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Bool)]
    has_phone: bool,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    named: Option<Uuid>,
}

/// Links the contacts that have the same user id, one in each scope. Returns how many of them named none before.
async fn link_same_persons(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    waba_id: &str,
    portfolio_id: &str,
) -> DbResult<usize> {
    let pairs: Vec<PairRow> = sql("SELECT i.contact_id, o.contact_id AS other_id FROM contact_identities i
         JOIN contact_identities o ON o.account_id = $1 AND o.scope = $3 AND o.wa_user_id = i.wa_user_id
         WHERE i.account_id = $1 AND i.scope = $2 AND o.contact_id <> i.contact_id")
    .bind(account)
    .bind(waba_id)
    .bind(portfolio_id)
    .load(&mut *conn)
    .await?;
    if pairs.is_empty() {
        return Ok(0);
    }
    let ids: Vec<Uuid> = pairs.iter().flat_map(|pair| [pair.contact_id, pair.other_id]).collect();
    let rows: Vec<LinkedRow> = sql(format!(
        "SELECT c.id, c.phone IS NOT NULL AS has_phone, c.same_person_as AS named
         FROM (SELECT DISTINCT p.id FROM {keys} k CROSS JOIN LATERAL same_person_contacts($1, k.id) p (id)) k
         JOIN contacts c ON c.account_id = $1 AND c.id = k.id
         WHERE c.deleted_at IS NULL ORDER BY c.id FOR NO KEY UPDATE OF c",
        keys = key_rows("$2", "id"),
    ))
    .bind(account)
    .bind(ids)
    .load(&mut *conn)
    .await?;
    let contacts: Vec<LinkedContact> = rows
        .iter()
        .map(|row| LinkedContact {
            id: row.id.into(),
            has_phone: row.has_phone,
            named: row.named.map(Into::into),
        })
        .collect();
    let pairs: Vec<_> = pairs
        .iter()
        .map(|pair| (pair.contact_id.into(), pair.other_id.into()))
        .collect();
    let names: Vec<_> = linked(&contacts, &pairs).into_iter().collect();
    sql(format!(
        "UPDATE contacts c SET same_person_as = k.named, updated_at = now(), version = version + 1 FROM {keys} k
         WHERE c.account_id = $1 AND c.id = k.id AND c.same_person_as IS DISTINCT FROM k.named",
        keys = key_rows("$2, $3", "id, named"),
    ))
    .bind(account)
    .bind(collect_column(&names, |(id, _)| id.0))
    .bind(collect_column(&names, |(_, named)| named.0))
    .execute(conn)
    .await?;
    let is_found = |contact: &&LinkedContact| pairs.iter().any(|(one, _)| *one == contact.id);
    let found = contacts.iter().filter(is_found);
    Ok(found.filter(|contact| contact.named.is_none()).count())
}
