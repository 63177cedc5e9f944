//! Rollups of orders and carts: one statement per table, in key order.

use std::collections::BTreeMap;

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::ingestion::{Order, RollupDelta};
use recado_domain::shared::AccountId;

use crate::errors::DbResult;
use crate::sql::{collect_column, sql};

pub(super) async fn write(conn: &mut AsyncPgConnection, account: AccountId, delta: &mut RollupDelta) -> DbResult<()> {
    delta.retain_changes();
    write_orders(conn, account, delta).await?;
    write_products(conn, account, delta).await?;
    write_attributions(conn, account, delta).await?;
    write_carts(conn, account, delta).await
}

async fn write_orders(conn: &mut AsyncPgConnection, account: AccountId, delta: &RollupDelta) -> DbResult<()> {
    let rows: Vec<_> = delta.orders.iter().collect();
    if rows.is_empty() {
        return Ok(());
    }
    sql(include_str!("add_orders.sql"))
        .bind(account)
        .bind(collect_column(&rows, |((granularity, _, _), _)| granularity.minutes()))
        .bind(collect_column(&rows, |((_, at, _), _)| *at))
        .bind(collect_column(&rows, |((_, _, platform), _)| platform.clone()))
        .bind(collect_column(&rows, |(_, sums)| sums.placed))
        .bind(collect_column(&rows, |(_, sums)| sums.pending))
        .bind(collect_column(&rows, |(_, sums)| sums.cancelled))
        .bind(collect_column(&rows, |(_, sums)| sums.refunded))
        .bind(collect_column(&rows, |(_, sums)| sums.paid))
        .bind(collect_column(&rows, |(_, sums)| sums.revenue))
        .bind(collect_column(&rows, |(_, sums)| sums.product_costs))
        .bind(collect_column(&rows, |(_, sums)| sums.gateway_fees))
        .bind(collect_column(&rows, |(_, sums)| sums.attributed_orders))
        .bind(collect_column(&rows, |(_, sums)| sums.attributed_revenue))
        .execute(conn)
        .await?;
    Ok(())
}

async fn write_products(conn: &mut AsyncPgConnection, account: AccountId, delta: &RollupDelta) -> DbResult<()> {
    let rows: Vec<_> = delta.products.iter().collect();
    if rows.is_empty() {
        return Ok(());
    }
    sql(
        "INSERT INTO product_rollups AS r (account_id, bucket_minutes, bucket_start, product_id, quantity, revenue)
         SELECT $1, d.bucket_minutes, d.bucket_start, d.product_id, d.quantity::numeric, d.revenue::numeric
         FROM unnest($2, $3, $4, $5, $6) WITH ORDINALITY AS d (bucket_minutes, bucket_start, product_id, quantity,
           revenue, position)
         ORDER BY d.position
         ON CONFLICT (account_id, bucket_minutes, bucket_start, product_id)
           DO UPDATE SET quantity = r.quantity + excluded.quantity,
           revenue = r.revenue + excluded.revenue",
    )
    .bind(account)
    .bind(collect_column(&rows, |((granularity, _, _), _)| granularity.minutes()))
    .bind(collect_column(&rows, |((_, at, _), _)| *at))
    .bind(collect_column(&rows, |((_, _, product), _)| product.clone()))
    .bind(collect_column(&rows, |(_, sums)| sums.quantity))
    .bind(collect_column(&rows, |(_, sums)| sums.revenue))
    .execute(conn)
    .await?;
    Ok(())
}

async fn write_attributions(conn: &mut AsyncPgConnection, account: AccountId, delta: &RollupDelta) -> DbResult<()> {
    let rows: Vec<_> = delta.attributions.iter().collect();
    if rows.is_empty() {
        return Ok(());
    }
    sql(
        "INSERT INTO attribution_rollups AS r (account_id, bucket_minutes, bucket_start, kind, attributed_to_id,
           orders, revenue)
         SELECT $1, d.bucket_minutes, d.bucket_start, d.kind, d.attributed_to_id, d.orders, d.revenue::numeric
         FROM unnest($2, $3, $4, $5, $6, $7) WITH ORDINALITY AS d (bucket_minutes, bucket_start, kind,
           attributed_to_id, orders, revenue, position)
         ORDER BY d.position
         ON CONFLICT (account_id, bucket_minutes, bucket_start, kind, attributed_to_id)
           DO UPDATE SET orders = r.orders + excluded.orders,
           revenue = r.revenue + excluded.revenue",
    )
    .bind(account)
    .bind(collect_column(&rows, |((granularity, _, _), _)| granularity.minutes()))
    .bind(collect_column(&rows, |((_, at, _), _)| *at))
    .bind(collect_column(&rows, |((_, _, (kind, _)), _)| (*kind).to_owned()))
    .bind(collect_column(&rows, |((_, _, (_, id)), _)| *id))
    .bind(collect_column(&rows, |(_, sums)| sums.orders))
    .bind(collect_column(&rows, |(_, sums)| sums.revenue))
    .execute(conn)
    .await?;
    Ok(())
}

async fn write_carts(conn: &mut AsyncPgConnection, account: AccountId, delta: &RollupDelta) -> DbResult<()> {
    let rows: Vec<_> = delta.carts.iter().collect();
    if rows.is_empty() {
        return Ok(());
    }
    sql(
        "INSERT INTO cart_rollups AS r (account_id, bucket_minutes, bucket_start, carts, recovered)
         SELECT $1, d.bucket_minutes, d.bucket_start, d.carts, d.recovered
         FROM unnest($2, $3, $4, $5) WITH ORDINALITY AS d (bucket_minutes, bucket_start, carts, recovered, position)
         ORDER BY d.position
         ON CONFLICT (account_id, bucket_minutes, bucket_start) DO UPDATE SET carts = r.carts + excluded.carts,
           recovered = r.recovered + excluded.recovered",
    )
    .bind(account)
    .bind(collect_column(&rows, |((granularity, _, ()), _)| granularity.minutes()))
    .bind(collect_column(&rows, |((_, at, ()), _)| *at))
    .bind(collect_column(&rows, |(_, sums)| sums.carts))
    .bind(collect_column(&rows, |(_, sums)| sums.recovered))
    .execute(conn)
    .await?;
    Ok(())
}

/// Stores the latest names of the products in these orders.
pub(super) async fn name_products(conn: &mut AsyncPgConnection, account: AccountId, orders: &[&Order]) -> DbResult<()> {
    let items = orders.iter().flat_map(|order| &order.items);
    let names: BTreeMap<&str, &str> = items
        .map(|item| (item.product_id.as_str(), item.name.as_str()))
        .collect();
    let names: Vec<(&str, &str)> = names.into_iter().collect();
    if names.is_empty() {
        return Ok(());
    }
    sql("INSERT INTO product_names AS n (account_id, product_id, name)
         SELECT $1, d.product_id, d.name FROM unnest($2, $3) WITH ORDINALITY AS d (product_id, name, position)
         ORDER BY d.position
         ON CONFLICT (account_id, product_id) DO UPDATE SET name = excluded.name WHERE n.name <> excluded.name")
    .bind(account)
    .bind(collect_column(&names, |(product, _)| (*product).to_owned()))
    .bind(collect_column(&names, |(_, name)| (*name).to_owned()))
    .execute(conn)
    .await?;
    Ok(())
}
