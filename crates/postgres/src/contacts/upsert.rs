//! Upserts contacts: a batch of an import in a fixed number of statements for any number of rows, and one contact that
//! another system reports.

use std::collections::{HashMap, HashSet};

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Bool, Jsonb, Nullable, Text, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::contacts::{
    AddedIdentifiers, BatchOutcome, ContactDraft, ContactUpsert, Identifier, ImportRow, NewerConsent, Phone,
    RefusedRow, RowRefusal, UpsertOutcome, Upserted,
};
use recado_domain::shared::{AccountId, ContactId, StoreError, WebhookKind};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use uuid::Uuid;

use super::consent::{ConsentColumns, decide_consent};
use super::events::{self, ChangedContact};
use super::import::{lock_imports, match_contacts};
use super::limits::merge_fits;
use super::rows::{bind_draft, insert};
use super::user_ids::{IDS_BY_USER_ID, lock_identifiers};
use crate::analytics::count_contacts;
use crate::deterministic_ids;
use crate::erased_opt_outs::ErasedOptOuts;
use crate::errors::{DbError, DbResult, concurrent_insert, corrupt};
use crate::sql::{IdRow, collect_column, key_rows, sql, uuids};

/// Whether a row of `upsert.sql` changes its contact. A file that is imported again changes nothing.
const CHANGES: &str = "(contacts.name, contacts.phone, contacts.email, contacts.wa_user_id, contacts.time_zone,
    contacts.attributes, contacts.opted_out_at IS NULL AND excluded.opted_out_at IS NOT NULL)
  IS DISTINCT FROM (excluded.name, coalesce(contacts.phone, excluded.phone), coalesce(excluded.email, contacts.email),
    coalesce(contacts.wa_user_id, excluded.wa_user_id), coalesce(excluded.time_zone, contacts.time_zone),
    contacts.attributes || excluded.attributes, false)";

/// Another import of the same contacts may hold their locks while its batch runs.
const BATCH_TIMEOUTS: &str = "SET LOCAL lock_timeout = '30s'; SET LOCAL statement_timeout = '60s'";

/// A row to write.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    /// The index of the row in the batch.
    position: usize,
    /// The contact's id: a new one, unless the batch was matched by `match_contacts`.
    id: ContactId,
    row: &'a ImportRow,
}

impl Candidate<'_> {
    fn phone(&self) -> Option<&str> {
        self.row.contact.phone.as_ref().map(Phone::as_str)
    }
}

/// The unique key by which candidates find their contacts.
#[derive(Clone, Copy)]
enum Key {
    /// Every candidate has a phone number and a new id.
    Phone,
    /// The candidates have the ids of their contacts, which are locked, or new ids.
    Id,
}

/// Candidates that one statement writes: each has its own contact.
type Pass<'a> = Vec<Candidate<'a>>;

pub(super) async fn upsert(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    ids: &[ContactId],
    rows: &[ImportRow],
    now: OffsetDateTime,
    erased: &ErasedOptOuts,
) -> DbResult<BatchOutcome> {
    conn.batch_execute(BATCH_TIMEOUTS).await?;
    let has_user_ids = rows.iter().any(|row| row.contact.wa_user_id.is_some());
    lock_imports(conn, account, has_user_ids).await?;
    let names = rows.iter().flat_map(|row| &row.tags).map(String::as_str).collect();
    insert_missing_tags(conn, account, names, now).await?;
    let (key, ids, before) = match has_user_ids {
        false => (Key::Phone, ids.to_vec(), HashMap::new()),
        true => match match_contacts(conn, account, ids, rows).await? {
            Ok(matched) => (Key::Id, matched.ids, matched.identifiers),
            Err(refused) => return Ok(BatchOutcome::Refused(refused)),
        },
    };
    let mut written: Vec<(usize, Written)> = Vec::with_capacity(rows.len());
    for pass in passes(&ids, rows) {
        let contacts = write_contacts(conn, account, key, &pass, now).await?;
        let contacts = by_position(key, &pass, contacts);
        let positions: HashSet<usize> = contacts.iter().map(|(position, _)| *position).collect();
        written.extend(contacts);
        let missing: Pass<'_> = pass
            .into_iter()
            .filter(|row| !positions.contains(&row.position))
            .collect();
        if !missing.is_empty() {
            return load_refused(conn, account, key, &missing)
                .await
                .map(BatchOutcome::Refused);
        }
    }
    let added = added_identifiers(key, rows, &written, &before);
    erased.apply(conn, account, &added, NewerConsent::Yields).await?;
    let tagged = assign_tags(conn, account, rows, &written).await?;
    append_events(conn, account, &written, &tagged).await?;
    let imported = written.iter().filter(|(_, contact)| contact.inserted).count();
    let imported = u64::try_from(imported).unwrap_or(u64::MAX);
    count_contacts(conn, account, Some(now), i64::try_from(imported).unwrap_or(i64::MAX)).await?;
    Ok(BatchOutcome::Written(Upserted {
        imported,
        updated: u64::try_from(rows.len()).unwrap_or(u64::MAX) - imported,
    }))
}

/// What the contacts of the batch did not have before. A contact that was found by its phone number alone has got nothing.
fn added_identifiers(
    key: Key,
    rows: &[ImportRow],
    written: &[(usize, Written)],
    before: &HashMap<Uuid, Vec<Identifier>>,
) -> Vec<AddedIdentifiers> {
    let contacts = written
        .iter()
        .filter(|(_, contact)| contact.inserted || matches!(key, Key::Id));
    let added = contacts.filter_map(|(position, contact)| {
        let user_id = rows.get(*position)?.contact.wa_user_id.as_deref();
        let before = before.get(&contact.id).map_or(&[][..], Vec::as_slice);
        Some(AddedIdentifiers::new(contact.id, contact.phone.as_deref(), user_id).without(before))
    });
    added.filter(|contact| !contact.identifiers.is_empty()).collect()
}

/// Splits the rows, so that no statement writes a contact twice: one row may name the phone number of a contact and
/// another row its user id. A contact has two keys, so there are at most two passes.
fn passes<'a>(ids: &[ContactId], rows: &'a [ImportRow]) -> Vec<Pass<'a>> {
    let mut passes: Vec<Pass<'a>> = Vec::new();
    let mut seen: HashMap<ContactId, usize> = HashMap::with_capacity(rows.len());
    for (position, (&id, row)) in ids.iter().zip(rows).enumerate() {
        let earlier = seen.entry(id).or_default();
        if passes.len() <= *earlier {
            passes.push(Vec::new());
        }
        if let Some(pass) = passes.get_mut(*earlier) {
            pass.push(Candidate { position, id, row });
        }
        *earlier += 1;
    }
    passes
}

#[derive(QueryableByName)]
struct AttributesRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<String>,
    #[diesel(sql_type = Jsonb)]
    attributes: Value,
}

/// Loads the rows that were not written, with the stored attributes of their contacts. The upsert that skipped these
/// contacts has locked them.
async fn load_refused(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    key: Key,
    missing: &[Candidate<'_>],
) -> DbResult<Vec<RefusedRow>> {
    let column = match key {
        Key::Phone => "phone",
        Key::Id => "id",
    };
    let statement = sql(format!(
        "SELECT c.id, c.phone, c.attributes FROM {keys} k JOIN contacts c ON c.account_id = $1 AND c.{column} = k.key
         WHERE c.deleted_at IS NULL",
        keys = key_rows("$2", "key"),
    ))
    .bind(account);
    let statement = match key {
        Key::Phone => statement.bind(
            missing
                .iter()
                .filter_map(|row| row.phone().map(str::to_owned))
                .collect::<Vec<_>>(),
        ),
        Key::Id => statement.bind(collect_column(missing, |row| row.id.0)),
    };
    let stored: Vec<AttributesRow> = statement.load(conn).await?;
    let positions = positions(key, missing);
    let mut refused = Vec::with_capacity(stored.len());
    for row in stored {
        let Some(&position) = positions.get(&contact_key(key, row.id, row.phone.as_deref())) else {
            continue;
        };
        let attributes: Map<String, Value> = serde_json::from_value(row.attributes).map_err(corrupt)?;
        refused.push(RefusedRow {
            position,
            reason: RowRefusal::Attributes(attributes),
        });
    }
    Ok(refused)
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
    #[diesel(sql_type = Bool)]
    is_changed: bool,
    /// Whether an endpoint subscribes to the event of this contact.
    #[diesel(sql_type = Bool)]
    is_subscribed: bool,
}

/// The value of the key in a returned row, for a comparison with those of the candidates.
fn contact_key(key: Key, id: Uuid, phone: Option<&str>) -> (Uuid, Option<&str>) {
    match key {
        Key::Phone => (Uuid::nil(), phone),
        Key::Id => (id, None),
    }
}

fn positions<'a>(key: Key, pass: &'a [Candidate<'_>]) -> HashMap<(Uuid, Option<&'a str>), usize> {
    let position = |row: &'a Candidate<'_>| (contact_key(key, row.id.0, row.phone()), row.position);
    pass.iter().map(position).collect()
}

/// Pairs the written contacts with the positions of their rows.
fn by_position(key: Key, pass: &[Candidate<'_>], written: Vec<Written>) -> Vec<(usize, Written)> {
    let positions = positions(key, pass);
    let position = |row: &Written| positions.get(&contact_key(key, row.id, row.phone.as_deref())).copied();
    let paired = written
        .into_iter()
        .filter_map(|row| position(&row).map(|position| (position, row)));
    paired.collect()
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
    key: Key,
    pass: &[Candidate<'_>],
    now: OffsetDateTime,
) -> DbResult<Vec<Written>> {
    let ConsentColumns {
        opted_out_at,
        consent_at,
    } = decide_consent(
        "contacts.opted_out_at",
        "contacts.consent_at",
        "excluded.opted_out_at IS NOT NULL OR NULL",
    );
    let written = sql(format!(
        include_str!("upsert.sql"),
        key = match key {
            Key::Phone => "(account_id, phone) WHERE deleted_at IS NULL",
            Key::Id => "(account_id, id)",
        },
        opted_out_at = opted_out_at,
        consent_at = consent_at,
        changes = CHANGES,
        fits = merge_fits("contacts.attributes", "excluded.attributes"),
    ))
    .bind(account)
    .bind(collect_column(pass, |row| row.id.0))
    .bind(collect_column(pass, |row| row.row.contact.name.clone()))
    .bind(collect_column(pass, |row| row.phone().map(str::to_owned)))
    .bind(collect_column(pass, |row| row.row.contact.email.clone()))
    .bind(collect_column(pass, |row| row.row.contact.wa_user_id.clone()))
    .bind(collect_column(pass, |row| {
        Value::Object(row.row.contact.attributes.clone())
    }))
    .bind(collect_column(pass, |row| row.row.contact.opted_out == Some(true)))
    .bind(now)
    .bind(collect_column(pass, |row| {
        row.row.contact.time_zone.as_ref().map(ToString::to_string)
    }))
    .load(conn)
    .await;
    written.map_err(|error| match StoreError::from(DbError::from(error)) {
        // Another writer gave a contact the phone number or the user id after `match_contacts`.
        StoreError::Duplicate { .. } => concurrent_insert(),
        error => error.into(),
    })
}

/// A contact that two rows wrote has one event.
async fn append_events(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    written: &[(usize, Written)],
    tagged: &HashSet<Uuid>,
) -> DbResult<()> {
    for (inserted, kind) in [
        (true, WebhookKind::ContactCreated),
        (false, WebhookKind::ContactUpdated),
    ] {
        let mut seen = HashSet::new();
        let contacts = written.iter().map(|(_, contact)| contact).filter(|contact| {
            contact.is_subscribed
                && contact.inserted == inserted
                && (inserted || contact.is_changed || tagged.contains(&contact.id))
                && seen.insert(contact.id)
        });
        events::append(conn, account, kind, contacts.map(|contact| contact.id).collect()).await?;
    }
    Ok(())
}

/// Assigns the tags, by the contact ids just written: looking the contacts up again could scan the table while its
/// statistics are older than the import. Returns the contacts that got a tag.
async fn assign_tags(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    rows: &[ImportRow],
    written: &[(usize, Written)],
) -> DbResult<HashSet<Uuid>> {
    let (mut contacts, mut names) = (Vec::new(), Vec::new());
    for (position, contact) in written {
        for name in rows.get(*position).map_or(&[][..], |row| &row.tags) {
            contacts.push(contact.id);
            names.push(name.clone());
        }
    }
    if contacts.is_empty() {
        return Ok(HashSet::new());
    }
    let tagged: Vec<IdRow> = sql("INSERT INTO contact_tags (account_id, contact_id, tag_id)
         SELECT $1, l.contact_id, t.id
         FROM unnest($2, $3) AS l (contact_id, name)
         JOIN tags t ON t.account_id = $1 AND lower(t.name) = lower(l.name)
         ORDER BY l.contact_id, t.id
         ON CONFLICT DO NOTHING RETURNING contact_id AS id")
    .bind(account)
    .bind(contacts)
    .bind(names)
    .load(conn)
    .await?;
    Ok(tagged.into_iter().map(|row| row.id).collect())
}

/// Upserts one contact, which is locked before it is changed.
pub(super) async fn upsert_one(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: ContactId,
    upsert: &ContactUpsert,
    now: OffsetDateTime,
    erased: &ErasedOptOuts,
) -> DbResult<UpsertOutcome> {
    let draft = &upsert.contact;
    insert_missing_tags(conn, account, upsert.tags.iter().map(String::as_str).collect(), now).await?;
    let existing = lock(conn, account, draft).await?;
    match existing {
        Some(existing) => {
            if !merge_into(conn, account, existing, draft, now, erased).await? {
                return Ok(UpsertOutcome::AttributesExceeded);
            }
        }
        None => match insert(conn, account, id, draft, &[], now, erased)
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
    let found: Option<IdRow> = sql(format!(
        "SELECT id FROM contacts WHERE account_id = $1 AND deleted_at IS NULL
           AND id IN (SELECT id FROM contacts WHERE account_id = $1 AND phone = $3 UNION {IDS_BY_USER_ID})
         ORDER BY phone = $3 DESC NULLS LAST, id LIMIT 1 FOR NO KEY UPDATE"
    ))
    .bind(account)
    .bind(draft.wa_user_id.as_deref())
    .bind(draft.phone.as_ref().map(Phone::as_str))
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
    erased: &ErasedOptOuts,
) -> DbResult<bool> {
    let before = lock_identifiers(conn, account, id).await?;
    let ConsentColumns {
        opted_out_at,
        consent_at,
    } = decide_consent("opted_out_at", "consent_at", "($8 OR NULL)");
    let fits = merge_fits("attributes", "$7");
    let kind = WebhookKind::ContactUpdated;
    let statement = format!(
        "UPDATE contacts
         SET name = $3, phone = coalesce($4, phone), email = coalesce($5, email),
           wa_user_id = coalesce($6, wa_user_id), time_zone = coalesce($10, time_zone), attributes = attributes || $7, updated_at = $9, version = version + 1,
           opted_out_at = {opted_out_at}, consent_at = {consent_at}
         WHERE account_id = $1 AND id = $2 AND {fits}
         RETURNING id, {is_subscribed}",
        is_subscribed = events::is_subscribed(kind),
    );
    let written: Vec<ChangedContact> = bind_draft(statement, account, id, draft, now).load(&mut *conn).await?;
    let phone = draft.phone.as_ref().map(Phone::as_str);
    let added = AddedIdentifiers::new(id.0, phone, draft.wa_user_id.as_deref()).without(&before);
    if !added.identifiers.is_empty() {
        erased.apply(conn, account, &[added], NewerConsent::Yields).await?;
    }
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
