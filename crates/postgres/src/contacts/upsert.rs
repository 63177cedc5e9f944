//! Upserts contacts: a batch of an import in six statements for any number of rows, and one contact that another
//! system reports.

use std::collections::{HashMap, HashSet};

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Bool, Jsonb, Nullable, Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::contacts::{
    BatchOutcome, ContactDraft, ContactUpsert, ImportRow, Phone, RefusedRow, UpsertOutcome, Upserted,
};
use recado_domain::shared::{AccountId, ContactId, StoreError, WebhookKind};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use uuid::Uuid;

use super::consent::{ConsentColumns, decide_consent};
use super::events::{self, ChangedContact};
use super::limits::merge_fits;
use super::rows::{bind_draft, insert};
use crate::analytics::count_contacts;
use crate::deterministic_ids;
use crate::errors::{DbResult, concurrent_insert, corrupt};
use crate::sql::{IdRow, key_rows, sql, uuids};

/// Another import of the same contacts may hold their locks while its batch runs.
const BATCH_TIMEOUTS: &str = "SET LOCAL lock_timeout = '30s'; SET LOCAL statement_timeout = '60s'";

pub(super) async fn upsert(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    ids: &[ContactId],
    rows: &[ImportRow],
    now: OffsetDateTime,
) -> DbResult<BatchOutcome> {
    conn.batch_execute(BATCH_TIMEOUTS).await?;
    let names = rows.iter().flat_map(|row| &row.tags).map(String::as_str).collect();
    insert_missing_tags(conn, account, names, now).await?;
    let written = write_contacts(conn, account, ids, rows, now).await?;
    if written.len() < rows.len() {
        return load_refused(conn, account, rows, &written)
            .await
            .map(BatchOutcome::Refused);
    }
    assign_tags(conn, account, rows, &written).await?;
    append_events(conn, account, &written).await?;
    let mut upserted = Upserted::default();
    for contact in written {
        match contact.inserted {
            true => upserted.imported += 1,
            false => upserted.updated += 1,
        }
    }
    let imported = i64::try_from(upserted.imported).unwrap_or(i64::MAX);
    count_contacts(conn, account, Some(now), imported).await?;
    Ok(BatchOutcome::Written(upserted))
}

#[derive(QueryableByName)]
struct AttributesRow {
    #[diesel(sql_type = Text)]
    phone: String,
    #[diesel(sql_type = Jsonb)]
    attributes: Value,
}

/// Loads the rows that were not written, with the stored attributes of their contacts. The upsert that skipped these
/// contacts has locked them.
async fn load_refused(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    rows: &[ImportRow],
    written: &[Written],
) -> DbResult<Vec<RefusedRow>> {
    let written: HashSet<&str> = written.iter().filter_map(|row| row.phone.as_deref()).collect();
    let phones = rows.iter().map(|row| row.contact.phone.as_ref().map(Phone::as_str));
    let missing: HashMap<&str, usize> = phones
        .enumerate()
        .filter_map(|(position, phone)| phone.map(|phone| (phone, position)))
        .filter(|(phone, _)| !written.contains(phone))
        .collect();
    let stored: Vec<AttributesRow> = sql(format!(
        "SELECT c.phone, c.attributes FROM {keys} k JOIN contacts c ON c.account_id = $1 AND c.phone = k.phone
         WHERE c.deleted_at IS NULL",
        keys = key_rows("$2", "phone"),
    ))
    .bind(account)
    .bind(missing.keys().map(ToString::to_string).collect::<Vec<_>>())
    .load(conn)
    .await?;
    let row = |row: AttributesRow| {
        let attributes: Map<String, Value> = serde_json::from_value(row.attributes).map_err(corrupt)?;
        let position = missing.get(row.phone.as_str()).copied();
        Ok(position.map(|position| RefusedRow { position, attributes }))
    };
    stored
        .into_iter()
        .filter_map(|stored| row(stored).transpose())
        .collect()
}

/// A contact of the batch after the upsert.
#[derive(QueryableByName)]
struct Written {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<String>,
    #[diesel(sql_type = Bool)]
    inserted: bool,
    /// Whether an endpoint subscribes to the event of this contact.
    #[diesel(sql_type = Bool)]
    is_subscribed: bool,
}

async fn insert_missing_tags(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    mut names: Vec<&str>,
    now: OffsetDateTime,
) -> DbResult<()> {
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = names
        .iter()
        .map(|name| deterministic_ids::imported_tag_id(account.0, name, now))
        .collect();
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    sql("INSERT INTO tags (account_id, id, name, created_at)
         SELECT $1, t.id, t.name, $4 FROM unnest($2, $3) AS t (id, name)
         ON CONFLICT DO NOTHING")
    .bind(account)
    .bind(ids)
    .bind(names)
    .bind(now)
    .execute(conn)
    .await?;
    Ok(())
}

/// Upserts all contacts except those whose attributes would exceed the limits. Sorted by phone number, so that two
/// imports of the same contacts wait for each other instead of deadlocking.
async fn write_contacts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    ids: &[ContactId],
    rows: &[ImportRow],
    now: OffsetDateTime,
) -> DbResult<Vec<Written>> {
    let phone = |row: &ImportRow| row.contact.phone.as_ref().map(Phone::to_string);
    let ConsentColumns {
        opted_out_at,
        consent_at,
    } = decide_consent(
        "contacts.opted_out_at",
        "contacts.consent_at",
        "excluded.opted_out_at IS NOT NULL OR NULL",
    );
    let fits = merge_fits("contacts.attributes", "excluded.attributes");
    Ok(sql(format!(
        include_str!("upsert.sql"),
        opted_out_at = opted_out_at,
        consent_at = consent_at,
        fits = fits,
    ))
    .bind(account)
    .bind(uuids(ids))
    .bind(rows.iter().map(|row| row.contact.name.clone()).collect::<Vec<_>>())
    .bind(rows.iter().map(phone).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.contact.email.clone()).collect::<Vec<_>>())
    .bind(
        rows.iter()
            .map(|row| Value::Object(row.contact.attributes.clone()))
            .collect::<Vec<_>>(),
    )
    .bind(
        rows.iter()
            .map(|row| row.contact.opted_out == Some(true))
            .collect::<Vec<_>>(),
    )
    .bind(now)
    .load(conn)
    .await?)
}

async fn append_events(conn: &mut AsyncPgConnection, account: AccountId, written: &[Written]) -> DbResult<()> {
    for (inserted, kind) in [
        (true, WebhookKind::ContactCreated),
        (false, WebhookKind::ContactUpdated),
    ] {
        let contacts = written
            .iter()
            .filter(|row| row.is_subscribed && row.inserted == inserted);
        events::append(conn, account, kind, contacts.map(|row| row.id).collect()).await?;
    }
    Ok(())
}

/// Assigns the tags, by the contact ids just written: looking the contacts up again could scan the table while its
/// statistics are older than the import.
async fn assign_tags(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    rows: &[ImportRow],
    written: &[Written],
) -> DbResult<()> {
    let ids: HashMap<Option<&str>, Uuid> = written.iter().map(|row| (row.phone.as_deref(), row.id)).collect();
    let (mut contacts, mut names) = (Vec::new(), Vec::new());
    for row in rows {
        let Some(phone) = &row.contact.phone else { continue };
        let Some(&contact) = ids.get(&Some(phone.as_str())) else {
            continue;
        };
        for name in &row.tags {
            contacts.push(contact);
            names.push(name.clone());
        }
    }
    if contacts.is_empty() {
        return Ok(());
    }
    sql("INSERT INTO contact_tags (account_id, contact_id, tag_id)
         SELECT $1, l.contact_id, t.id
         FROM unnest($2, $3) AS l (contact_id, name)
         JOIN tags t ON t.account_id = $1 AND lower(t.name) = lower(l.name)
         ORDER BY l.contact_id, t.id
         ON CONFLICT DO NOTHING")
    .bind(account)
    .bind(contacts)
    .bind(names)
    .execute(conn)
    .await?;
    Ok(())
}

/// Upserts one contact, which is locked before it is changed.
pub(super) async fn upsert_one(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: ContactId,
    upsert: &ContactUpsert,
    now: OffsetDateTime,
) -> DbResult<UpsertOutcome> {
    let draft = &upsert.contact;
    insert_missing_tags(conn, account, upsert.tags.iter().map(String::as_str).collect(), now).await?;
    let existing = lock(conn, account, draft).await?;
    match existing {
        Some(existing) => {
            if !merge_into(conn, account, existing, draft, now).await? {
                return Ok(UpsertOutcome::AttributesExceeded);
            }
        }
        None => match insert(conn, account, id, draft, &[], now)
            .await
            .map_err(StoreError::from)
        {
            Ok(_) => {}
            // Another transaction inserted it after the lookup.
            Err(StoreError::Duplicate { .. }) => return Err(concurrent_insert()),
            Err(error) => return Err(error.into()),
        },
    }
    assign_tags_to_one(conn, account, existing.unwrap_or(id), upsert).await?;
    Ok(match existing {
        Some(_) => UpsertOutcome::Updated,
        None => UpsertOutcome::Created,
    })
}

/// Finds and locks the contact of a draft.
async fn lock(conn: &mut AsyncPgConnection, account: AccountId, draft: &ContactDraft) -> DbResult<Option<ContactId>> {
    let found: Option<IdRow> = sql("SELECT id FROM contacts
         WHERE account_id = $1 AND deleted_at IS NULL AND (phone = $2 OR wa_user_id = $3)
         ORDER BY phone = $2 DESC NULLS LAST LIMIT 1 FOR NO KEY UPDATE")
    .bind(account)
    .bind(draft.phone.as_ref().map(Phone::as_str))
    .bind(draft.wa_user_id.as_deref())
    .get_result(conn)
    .await
    .optional()?;
    Ok(found.map(|row| row.id.into()))
}

/// Updates the contact and merges attributes. False: the attributes would exceed the limits.
async fn merge_into(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: ContactId,
    draft: &ContactDraft,
    now: OffsetDateTime,
) -> DbResult<bool> {
    let ConsentColumns {
        opted_out_at,
        consent_at,
    } = decide_consent("opted_out_at", "consent_at", "($8 OR NULL)");
    let fits = merge_fits("attributes", "$7");
    let kind = WebhookKind::ContactUpdated;
    let statement = format!(
        "UPDATE contacts
         SET name = $3, phone = coalesce($4, phone), email = coalesce($5, email),
           wa_user_id = coalesce($6, wa_user_id), attributes = attributes || $7, updated_at = $9, version = version + 1,
           opted_out_at = {opted_out_at}, consent_at = {consent_at}
         WHERE account_id = $1 AND id = $2 AND {fits}
         RETURNING id, {is_subscribed}",
        is_subscribed = events::is_subscribed(kind),
    );
    let written: Vec<ChangedContact> = bind_draft(statement, account, id, draft, now).load(&mut *conn).await?;
    events::append_if_subscribed(conn, account, kind, &written).await?;
    Ok(!written.is_empty())
}

async fn assign_tags_to_one(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: ContactId,
    upsert: &ContactUpsert,
) -> DbResult<()> {
    if upsert.tag_ids.is_empty() && upsert.tags.is_empty() {
        return Ok(());
    }
    sql("INSERT INTO contact_tags (account_id, contact_id, tag_id)
         SELECT $1, $2, l.id FROM (
           SELECT i.id FROM unnest($3) AS i (id)
           UNION
           SELECT t.id FROM unnest($4) AS n (name) JOIN tags t ON t.account_id = $1 AND lower(t.name) = lower(n.name)) l
         ORDER BY l.id
         ON CONFLICT DO NOTHING")
    .bind(account)
    .bind(id)
    .bind(uuids(&upsert.tag_ids))
    .bind(upsert.tags.clone())
    .execute(conn)
    .await?;
    Ok(())
}
