//! Orders: locks stored ones, attributes new ones, and writes changes together with the rollups.
//!
//! `order_keys` maps platform and external id to the order. Its row stays after the order's month was dropped: then a
//! report of the order is a duplicate and changes nothing, because the rollups still count the order.

use std::collections::{BTreeMap, HashMap, HashSet};

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::ingestion::{
    Attribution, IngestionOutcome, IngestionResult, Order, OrderDraft, OrderItem, RollupDelta, orders_recorded,
};
use recado_domain::shared::{AccountId, Amount, OrderId};
use time::OffsetDateTime;
use uuid::Uuid;

use super::references::{self, OrderReferences};
use super::rollups;
use crate::errors::{DbError, DbResult, concurrent_insert, corrupt, parse_enum};
use crate::outbox;
use crate::sql::{collect_column, key_rows, sql};

type Key = (String, String);

pub(super) async fn record(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    ids: &[OrderId],
    drafts: &[OrderDraft],
    now: OffsetDateTime,
) -> DbResult<IngestionOutcome> {
    let references = match references::order_references(conn, account, drafts).await? {
        Ok(references) => references,
        Err(unknown_references) => return Ok(IngestionOutcome::UnknownReferences(unknown_references)),
    };
    // The last draft of an order wins.
    let incoming = drafts.iter().zip(&references).zip(ids);
    let mut incoming: BTreeMap<Key, IncomingOrder<'_>> = incoming
        .map(|((draft, references), id)| {
            let key = (draft.platform.clone(), draft.external_id.clone());
            (
                key,
                IncomingOrder {
                    id: *id,
                    draft,
                    references,
                },
            )
        })
        .collect();
    let stored = lock_orders(conn, account, &incoming).await?;
    for dropped in insert_keys(conn, account, &incoming, &stored).await? {
        incoming.remove(&dropped);
    }
    let attributions = attributions(conn, account, &incoming, &stored).await?;
    let mut written = Written::default();
    for (key, incoming_order) in &incoming {
        let before = stored.get(key);
        let attribution = attributions.get(key).copied().unwrap_or_default();
        let contact = incoming_order.references.contact();
        let order = Order::merged(incoming_order.id, incoming_order.draft, contact, attribution, before);
        written.add(incoming_order.draft, before, order);
    }
    write(conn, account, &mut written, now).await?;
    let accepted = written.created.len() + written.changed.len();
    let recorded = written.created.iter().chain(&written.changed);
    let event = orders_recorded(recorded.map(|(draft, order)| (*draft, order)));
    outbox::append(conn, account, &[event]).await?;
    Ok(IngestionOutcome::Done(IngestionResult::of(drafts.len(), accepted)))
}

/// An incoming order and the rows that it references.
struct IncomingOrder<'a> {
    id: OrderId,
    draft: &'a OrderDraft,
    references: &'a OrderReferences,
}

/// The orders that a batch inserts and updates, and their rollup delta.
#[derive(Default)]
struct Written<'a> {
    created: Vec<(&'a OrderDraft, Order)>,
    changed: Vec<(&'a OrderDraft, Order)>,
    delta: RollupDelta,
}

impl<'a> Written<'a> {
    fn add(&mut self, draft: &'a OrderDraft, before: Option<&Order>, order: Order) {
        if before == Some(&order) {
            return;
        }
        self.delta.order(before, &order);
        match before {
            None => self.created.push((draft, order)),
            Some(_) => self.changed.push((draft, order)),
        }
    }
}

#[derive(QueryableByName)]
struct OrderRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    platform: String,
    #[diesel(sql_type = Text)]
    external_id: String,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    contact_id: Option<Uuid>,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Text)]
    total: String,
    #[diesel(sql_type = Text)]
    gateway_fee: String,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    campaign_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    automation_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    link_id: Option<Uuid>,
    #[diesel(sql_type = Timestamptz)]
    placed_at: OffsetDateTime,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    paid_at: Option<OffsetDateTime>,
}

#[derive(QueryableByName)]
struct ItemRow {
    #[diesel(sql_type = SqlUuid)]
    order_id: Uuid,
    #[diesel(sql_type = Text)]
    product_id: String,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Text)]
    quantity: String,
    #[diesel(sql_type = Text)]
    price: String,
    #[diesel(sql_type = Nullable<Text>)]
    cost: Option<String>,
}

pub(crate) fn amount(stored: &str) -> DbResult<Amount> {
    Amount::parse(stored).ok_or_else(|| DbError::Store(corrupt(format!("{stored} is not a valid amount"))))
}

impl OrderRow {
    fn order(self, items: Vec<OrderItem>) -> DbResult<(Key, Order)> {
        let order = Order {
            id: self.id.into(),
            platform: self.platform.clone(),
            contact_id: self.contact_id.map(Into::into),
            status: parse_enum(&self.status)?,
            total: amount(&self.total)?,
            gateway_fee: amount(&self.gateway_fee)?,
            items,
            attribution: Attribution {
                campaign_id: self.campaign_id.map(Into::into),
                automation_id: self.automation_id.map(Into::into),
                link_id: self.link_id.map(Into::into),
            },
            placed_at: self.placed_at,
            paid_at: self.paid_at,
        };
        Ok(((self.platform, self.external_id), order))
    }
}

/// Locks the stored orders in key order. Their items are read after that, when no other transaction can change them.
async fn lock_orders(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    incoming: &BTreeMap<Key, IncomingOrder<'_>>,
) -> DbResult<HashMap<Key, Order>> {
    let keys: Vec<&Key> = incoming.keys().collect();
    let rows: Vec<OrderRow> = sql(format!(
        "SELECT o.id, o.platform, o.external_id, o.contact_id, o.status, o.total::text AS total,
           o.gateway_fee::text AS gateway_fee, o.campaign_id, o.automation_id, o.link_id, o.placed_at, o.paid_at
         FROM {keys} k
         JOIN order_keys d ON d.account_id = $1 AND d.platform = k.platform AND d.external_id = k.external_id
         JOIN orders o ON o.account_id = $1 AND o.id = d.order_id
         ORDER BY o.platform, o.external_id FOR UPDATE OF o",
        keys = key_rows("$2, $3", "platform, external_id"),
    ))
    .bind(account)
    .bind(collect_column(&keys, |key| key.0.clone()))
    .bind(collect_column(&keys, |key| key.1.clone()))
    .load(&mut *conn)
    .await?;
    if rows.is_empty() {
        return Ok(HashMap::new());
    }
    let mut items = items(conn, account, &rows).await?;
    rows.into_iter()
        .map(|row| {
            let items = items.remove(&row.id).unwrap_or_default();
            row.order(items)
        })
        .collect()
}

#[derive(QueryableByName)]
struct KeyRow {
    #[diesel(sql_type = Text)]
    platform: String,
    #[diesel(sql_type = Text)]
    external_id: String,
}

impl From<KeyRow> for Key {
    fn from(row: KeyRow) -> Self {
        (row.platform, row.external_id)
    }
}

/// Inserts the keys of the orders that are not stored, in their order. Returns those that have a key already and no
/// order: the month of the order was dropped. If another writer inserted one of them meanwhile, the transaction is
/// retried, and finds it.
async fn insert_keys(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    incoming: &BTreeMap<Key, IncomingOrder<'_>>,
    stored: &HashMap<Key, Order>,
) -> DbResult<Vec<Key>> {
    let missing: Vec<_> = incoming.iter().filter(|(key, _)| !stored.contains_key(*key)).collect();
    if missing.is_empty() {
        return Ok(vec![]);
    }
    let inserted: Vec<KeyRow> = sql("INSERT INTO order_keys (account_id, platform, external_id, order_id)
         SELECT $1, d.platform, d.external_id, d.order_id
         FROM unnest($2, $3, $4) WITH ORDINALITY AS d (platform, external_id, order_id, position)
         ORDER BY d.position
         ON CONFLICT (account_id, platform, external_id) DO NOTHING
         RETURNING platform, external_id")
    .bind(account)
    .bind(collect_column(&missing, |(key, _)| key.0.clone()))
    .bind(collect_column(&missing, |(key, _)| key.1.clone()))
    .bind(collect_column(&missing, |(_, order)| Uuid::from(order.id)))
    .load(&mut *conn)
    .await?;
    let inserted: HashSet<Key> = inserted.into_iter().map(Key::from).collect();
    let taken: Vec<&Key> = missing
        .into_iter()
        .map(|(key, _)| key)
        .filter(|key| !inserted.contains(*key))
        .collect();
    if taken.is_empty() {
        return Ok(vec![]);
    }
    let dropped: Vec<KeyRow> = sql(format!(
        "SELECT k.platform, k.external_id FROM {keys} k
         JOIN order_keys d ON d.account_id = $1 AND d.platform = k.platform AND d.external_id = k.external_id
         WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.account_id = $1 AND o.id = d.order_id)",
        keys = key_rows("$2, $3", "platform, external_id"),
    ))
    .bind(account)
    .bind(collect_column(&taken, |key| key.0.clone()))
    .bind(collect_column(&taken, |key| key.1.clone()))
    .load(conn)
    .await?;
    if dropped.len() < taken.len() {
        return Err(concurrent_insert());
    }
    Ok(dropped.into_iter().map(Key::from).collect())
}

async fn items(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    orders: &[OrderRow],
) -> DbResult<HashMap<Uuid, Vec<OrderItem>>> {
    let rows: Vec<ItemRow> = sql(format!(
        "SELECT i.order_id, i.product_id, i.name, i.quantity::text AS quantity, i.price::text AS price,
           i.cost::text AS cost
         FROM {keys} k JOIN order_items i ON i.account_id = $1 AND i.order_id = k.order_id
         ORDER BY i.order_id, i.position",
        keys = key_rows("$2", "order_id"),
    ))
    .bind(account)
    .bind(collect_column(orders, |order| order.id))
    .load(conn)
    .await?;
    let mut items: HashMap<Uuid, Vec<OrderItem>> = HashMap::new();
    for row in rows {
        items.entry(row.order_id).or_default().push(OrderItem {
            quantity: amount(&row.quantity)?,
            price: amount(&row.price)?,
            cost: row.cost.as_deref().map(amount).transpose()?,
            product_id: row.product_id,
            name: row.name,
        });
    }
    Ok(items)
}

/// The attribution that each order names. A new order that names none is attributed to the latest campaign message.
async fn attributions(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    incoming: &BTreeMap<Key, IncomingOrder<'_>>,
    stored: &HashMap<Key, Order>,
) -> DbResult<HashMap<Key, Attribution>> {
    let mut attributions = HashMap::new();
    let (mut keys, mut lookups) = (Vec::new(), Vec::new());
    for (key, incoming_order) in incoming {
        let attribution = Attribution::named(incoming_order.draft, incoming_order.references.link());
        let is_decided = attribution.is_known() || stored.contains_key(key);
        attributions.insert(key.clone(), attribution);
        if let Some(contact) = incoming_order.references.contact().filter(|_| !is_decided) {
            keys.push(key);
            lookups.push((contact, incoming_order.draft.placed_at));
        }
    }
    let campaigns = references::last_messages(conn, account, &lookups).await?;
    for (key, campaign) in keys.into_iter().zip(campaigns) {
        attributions.insert(key.clone(), Attribution::from_message(campaign));
    }
    Ok(attributions)
}

async fn write(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    written: &mut Written<'_>,
    now: OffsetDateTime,
) -> DbResult<()> {
    insert(conn, account, &written.created, now).await?;
    update(conn, account, &written.changed, now).await?;
    let orders: Vec<&Order> = written
        .created
        .iter()
        .chain(&written.changed)
        .map(|(_, order)| order)
        .collect();
    insert_items(conn, account, &orders).await?;
    rollups::name_products(conn, account, &orders).await?;
    rollups::write(conn, account, &mut written.delta).await
}

async fn insert(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    created: &[(&OrderDraft, Order)],
    now: OffsetDateTime,
) -> DbResult<()> {
    if created.is_empty() {
        return Ok(());
    }
    sql(
        "INSERT INTO orders (account_id, id, platform, external_id, contact_id, status, total, gateway_fee,
           campaign_id, automation_id, link_id, placed_at, paid_at, created_at, updated_at)
         SELECT $1, d.id, d.platform, d.external_id, d.contact_id, d.status, d.total::numeric, d.fee::numeric,
           d.campaign_id, d.automation_id, d.link_id, d.placed_at, d.paid_at, $14, $14
         FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) WITH ORDINALITY
           AS d (id, platform, external_id, contact_id, status, total, fee, campaign_id, automation_id, link_id,
             placed_at, paid_at, position)
         ORDER BY d.position
         ON CONFLICT (account_id, id) DO NOTHING",
    )
    .bind(account)
    .bind(collect_column(created, |(_, order)| Uuid::from(order.id)))
    .bind(collect_column(created, |(_, order)| order.platform.clone()))
    .bind(collect_column(created, |(draft, _)| draft.external_id.clone()))
    .bind(collect_column(created, |(_, order)| order.contact_id.map(Uuid::from)))
    .bind(collect_column(created, |(_, order)| order.status.as_str().to_owned()))
    .bind(collect_column(created, |(_, order)| order.total))
    .bind(collect_column(created, |(_, order)| order.gateway_fee))
    .bind(collect_column(created, |(_, order)| {
        order.attribution.campaign_id.map(Uuid::from)
    }))
    .bind(collect_column(created, |(_, order)| {
        order.attribution.automation_id.map(Uuid::from)
    }))
    .bind(collect_column(created, |(_, order)| {
        order.attribution.link_id.map(Uuid::from)
    }))
    .bind(collect_column(created, |(_, order)| order.placed_at))
    .bind(collect_column(created, |(_, order)| order.paid_at))
    .bind(now)
    .execute(conn)
    .await?;
    Ok(())
}

async fn update(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    changed: &[(&OrderDraft, Order)],
    now: OffsetDateTime,
) -> DbResult<()> {
    if changed.is_empty() {
        return Ok(());
    }
    sql(format!(
        "UPDATE orders o SET contact_id = d.contact_id, status = d.status, total = d.total::numeric,
           gateway_fee = d.fee::numeric, campaign_id = d.campaign_id, automation_id = d.automation_id,
           link_id = d.link_id, placed_at = d.placed_at, paid_at = d.paid_at, updated_at = $12
         FROM {keys} d WHERE o.account_id = $1 AND o.id = d.id",
        keys = key_rows(
            "$2, $3, $4, $5, $6, $7, $8, $9, $10, $11",
            "id, contact_id, status, total, fee, campaign_id, automation_id, link_id, placed_at, paid_at",
        ),
    ))
    .bind(account)
    .bind(collect_column(changed, |(_, order)| Uuid::from(order.id)))
    .bind(collect_column(changed, |(_, order)| order.contact_id.map(Uuid::from)))
    .bind(collect_column(changed, |(_, order)| order.status.as_str().to_owned()))
    .bind(collect_column(changed, |(_, order)| order.total))
    .bind(collect_column(changed, |(_, order)| order.gateway_fee))
    .bind(collect_column(changed, |(_, order)| {
        order.attribution.campaign_id.map(Uuid::from)
    }))
    .bind(collect_column(changed, |(_, order)| {
        order.attribution.automation_id.map(Uuid::from)
    }))
    .bind(collect_column(changed, |(_, order)| {
        order.attribution.link_id.map(Uuid::from)
    }))
    .bind(collect_column(changed, |(_, order)| order.placed_at))
    .bind(collect_column(changed, |(_, order)| order.paid_at))
    .bind(now)
    .execute(&mut *conn)
    .await?;
    sql(format!(
        "DELETE FROM order_items i USING {keys} k WHERE i.account_id = $1 AND i.order_id = k.order_id",
        keys = key_rows("$2", "order_id"),
    ))
    .bind(account)
    .bind(collect_column(changed, |(_, order)| Uuid::from(order.id)))
    .execute(conn)
    .await?;
    Ok(())
}

async fn insert_items(conn: &mut AsyncPgConnection, account: AccountId, orders: &[&Order]) -> DbResult<()> {
    let item_rows: Vec<(Uuid, i32, &OrderItem)> = orders
        .iter()
        .flat_map(|order| {
            (0_i32..)
                .zip(&order.items)
                .map(|(at, item)| (order.id.into(), at, item))
        })
        .collect();
    if item_rows.is_empty() {
        return Ok(());
    }
    sql(
        "INSERT INTO order_items (account_id, order_id, position, product_id, name, quantity, price, cost)
         SELECT $1, d.order_id, d.position, d.product_id, d.name, d.quantity::numeric, d.price::numeric, d.cost::numeric
         FROM unnest($2, $3, $4, $5, $6, $7, $8)
           AS d (order_id, position, product_id, name, quantity, price, cost)",
    )
    .bind(account)
    .bind(collect_column(&item_rows, |(order, _, _)| *order))
    .bind(collect_column(&item_rows, |(_, position, _)| *position))
    .bind(collect_column(&item_rows, |(_, _, item)| item.product_id.clone()))
    .bind(collect_column(&item_rows, |(_, _, item)| item.name.clone()))
    .bind(collect_column(&item_rows, |(_, _, item)| item.quantity))
    .bind(collect_column(&item_rows, |(_, _, item)| item.price))
    .bind(collect_column(&item_rows, |(_, _, item)| item.cost))
    .execute(conn)
    .await?;
    Ok(())
}
