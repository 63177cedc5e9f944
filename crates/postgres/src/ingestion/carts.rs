//! Carts: locks stored ones, and writes changes together with the rollups.

use std::collections::{BTreeMap, HashMap};

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::ingestion::{Cart, CartDraft, IngestionResult, RollupDelta};
use recado_domain::shared::{AccountId, CartId};
use time::OffsetDateTime;
use uuid::Uuid;

use super::orders::amount;
use super::{references, rollups};
use crate::errors::{DbResult, concurrent_insert, parse_enum};
use crate::sql::{collect_column, key_rows, sql};

type Key = (String, String);

#[derive(QueryableByName)]
struct CartRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    platform: String,
    #[diesel(sql_type = Text)]
    external_id: String,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    contact_id: Option<Uuid>,
    #[diesel(sql_type = Text)]
    total: String,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
}

impl CartRow {
    fn cart(self) -> DbResult<(Key, Cart)> {
        let cart = Cart {
            id: self.id.into(),
            contact_id: self.contact_id.map(Into::into),
            total: amount(&self.total)?,
            status: parse_enum(&self.status)?,
            created_at: self.created_at,
        };
        Ok(((self.platform, self.external_id), cart))
    }
}

pub(super) async fn record(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    ids: &[CartId],
    drafts: &[CartDraft],
    now: OffsetDateTime,
) -> DbResult<IngestionResult> {
    let phones = collect_column(drafts, |draft| draft.phone.as_ref().map(ToString::to_string));
    let contacts = references::contacts_by_phone(conn, account, phones).await?;
    // The last draft of a cart wins.
    let incoming: BTreeMap<Key, _> = drafts
        .iter()
        .zip(contacts)
        .zip(ids)
        .map(|((draft, contact), id)| {
            let key = (draft.platform.clone(), draft.external_id.clone());
            (key, (draft, contact, *id))
        })
        .collect();
    let keys: Vec<&Key> = incoming.keys().collect();
    let stored = lock_carts(conn, account, &keys).await?;
    let (mut created, mut changed, mut delta) = (Vec::new(), Vec::new(), RollupDelta::default());
    for (key, (draft, contact, id)) in &incoming {
        let before = stored.get(key);
        let cart = Cart::merged(*id, draft, *contact, before);
        if before == Some(&cart) {
            continue;
        }
        delta.cart(before, &cart);
        match before {
            None => created.push((key, cart)),
            Some(_) => changed.push((key, cart)),
        }
    }
    insert(conn, account, &created, now).await?;
    update(conn, account, &changed, now).await?;
    rollups::write(conn, account, &mut delta).await?;
    Ok(IngestionResult::of(drafts.len(), created.len() + changed.len()))
}

async fn lock_carts(conn: &mut AsyncPgConnection, account: AccountId, keys: &[&Key]) -> DbResult<HashMap<Key, Cart>> {
    let rows: Vec<CartRow> = sql(format!(
        "SELECT c.id, c.platform, c.external_id, c.contact_id, c.total::text AS total, c.status, c.created_at
         FROM {keys} k
         JOIN carts c ON c.account_id = $1 AND c.platform = k.platform AND c.external_id = k.external_id
         ORDER BY c.platform, c.external_id FOR UPDATE OF c",
        keys = key_rows("$2, $3", "platform, external_id"),
    ))
    .bind(account)
    .bind(collect_column(keys, |key| key.0.clone()))
    .bind(collect_column(keys, |key| key.1.clone()))
    .load(conn)
    .await?;
    rows.into_iter().map(CartRow::cart).collect()
}

/// If another writer inserted one of them meanwhile, the transaction is retried.
async fn insert(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    created: &[(&Key, Cart)],
    now: OffsetDateTime,
) -> DbResult<()> {
    if created.is_empty() {
        return Ok(());
    }
    let inserted = sql(
        "INSERT INTO carts (account_id, id, platform, external_id, contact_id, total, status, created_at, updated_at)
         SELECT $1, d.id, d.platform, d.external_id, d.contact_id, d.total::numeric, d.status, d.created_at, $9
         FROM unnest($2, $3, $4, $5, $6, $7, $8) WITH ORDINALITY
           AS d (id, platform, external_id, contact_id, total, status, created_at, position)
         ORDER BY d.position
         ON CONFLICT (account_id, platform, external_id) DO NOTHING",
    )
    .bind(account)
    .bind(collect_column(created, |(_, cart)| Uuid::from(cart.id)))
    .bind(collect_column(created, |(key, _)| key.0.clone()))
    .bind(collect_column(created, |(key, _)| key.1.clone()))
    .bind(collect_column(created, |(_, cart)| cart.contact_id.map(Uuid::from)))
    .bind(collect_column(created, |(_, cart)| cart.total))
    .bind(collect_column(created, |(_, cart)| cart.status.as_str().to_owned()))
    .bind(collect_column(created, |(_, cart)| cart.created_at))
    .bind(now)
    .execute(conn)
    .await?;
    if inserted < created.len() {
        return Err(concurrent_insert());
    }
    Ok(())
}

async fn update(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    changed: &[(&Key, Cart)],
    now: OffsetDateTime,
) -> DbResult<()> {
    if changed.is_empty() {
        return Ok(());
    }
    sql(format!(
        "UPDATE carts c SET contact_id = d.contact_id, total = d.total::numeric, status = d.status,
           created_at = d.created_at, updated_at = $7
         FROM {keys} d WHERE c.account_id = $1 AND c.id = d.id",
        keys = key_rows("$2, $3, $4, $5, $6", "id, contact_id, total, status, created_at"),
    ))
    .bind(account)
    .bind(collect_column(changed, |(_, cart)| Uuid::from(cart.id)))
    .bind(collect_column(changed, |(_, cart)| cart.contact_id.map(Uuid::from)))
    .bind(collect_column(changed, |(_, cart)| cart.total))
    .bind(collect_column(changed, |(_, cart)| cart.status.as_str().to_owned()))
    .bind(collect_column(changed, |(_, cart)| cart.created_at))
    .bind(now)
    .execute(conn)
    .await?;
    Ok(())
}
