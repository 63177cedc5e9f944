//! A batch of an import: five statements, however many rows.

use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::contacts::{ImportRow, Phone, Upserted};
use recado_domain::shared::{AccountId, ContactId};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::derived;
use crate::errors::Attempt;
use crate::sql::{Answer, bare, sql};

/// Another import of the same people may be in the way for as long as its batch takes.
const BATCH_TIMEOUTS: &str = "SET LOCAL lock_timeout = '30s'; SET LOCAL statement_timeout = '60s'";

pub(super) async fn upsert(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    ids: &[ContactId],
    rows: &[ImportRow],
    now: OffsetDateTime,
) -> Attempt<Upserted> {
    conn.batch_execute(BATCH_TIMEOUTS).await?;
    make_tags(conn, account, rows, now).await?;
    let upserted = write_contacts(conn, account, ids, rows, now).await?;
    label(conn, account, rows).await?;
    Ok(upserted)
}

async fn make_tags(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    rows: &[ImportRow],
    now: OffsetDateTime,
) -> Attempt<()> {
    let mut names: Vec<&str> = rows.iter().flat_map(|row| &row.tags).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = names.iter().map(|name| derived::of_tag(account.0, name, now)).collect();
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

/// In the order of the phones, so that two imports of the same people queue up instead of blocking each other.
async fn write_contacts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    ids: &[ContactId],
    rows: &[ImportRow],
    now: OffsetDateTime,
) -> Attempt<Upserted> {
    let phone = |row: &ImportRow| row.contact.phone.as_ref().map(Phone::to_string);
    let inserted: Vec<Answer> = sql("INSERT INTO contacts
           (account_id, id, name, phone, email, attributes, created_at, updated_at)
         SELECT $1, r.id, r.name, r.phone, r.email, r.attributes, $7, $7
         FROM unnest($2, $3, $4, $5, $6) AS r (id, name, phone, email, attributes) ORDER BY r.phone
         ON CONFLICT (account_id, phone) WHERE deleted_at IS NULL DO UPDATE SET
           name = excluded.name,
           email = coalesce(excluded.email, contacts.email),
           attributes = contacts.attributes || excluded.attributes,
           updated_at = excluded.updated_at
         RETURNING (xmax = 0) AS yes")
    .bind(account)
    .bind(bare(ids))
    .bind(rows.iter().map(|row| row.contact.name.clone()).collect::<Vec<_>>())
    .bind(rows.iter().map(phone).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.contact.email.clone()).collect::<Vec<_>>())
    .bind(
        rows.iter()
            .map(|row| Value::Object(row.contact.attributes.clone()))
            .collect::<Vec<_>>(),
    )
    .bind(now)
    .load(conn)
    .await?;
    let mut upserted = Upserted::default();
    for row in inserted {
        match row.yes {
            true => upserted.imported += 1,
            false => upserted.updated += 1,
        }
    }
    Ok(upserted)
}

async fn label(conn: &mut AsyncPgConnection, account: AccountId, rows: &[ImportRow]) -> Attempt<()> {
    let (mut phones, mut names) = (Vec::new(), Vec::new());
    for row in rows {
        let Some(phone) = &row.contact.phone else { continue };
        for name in &row.tags {
            phones.push(phone.to_string());
            names.push(name.clone());
        }
    }
    if phones.is_empty() {
        return Ok(());
    }
    sql("INSERT INTO contact_tags (account_id, contact_id, tag_id)
         SELECT $1, c.id, t.id
         FROM unnest($2, $3) AS l (phone, name)
         JOIN contacts c ON c.account_id = $1 AND c.phone = l.phone AND c.deleted_at IS NULL
         JOIN tags t ON t.account_id = $1 AND lower(t.name) = lower(l.name)
         ORDER BY c.id, t.id
         ON CONFLICT DO NOTHING")
    .bind(account)
    .bind(phones)
    .bind(names)
    .execute(conn)
    .await?;
    Ok(())
}
