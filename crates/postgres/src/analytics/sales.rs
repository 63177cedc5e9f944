//! Statements of the revenue, e-commerce and automation reports.

use super::window::{count, daily, money, range_sums, window_rows};

/// The names of campaigns or automations with attributed orders. Ids sort by time, so these rows are neighbours: one
/// range scan reads them, because separate lookups would descend the index once each.
fn named(kind: &str, table: &str) -> String {
    format!(
        "SELECT '{kind}' AS kind, id, name FROM {table} WHERE account_id = $1
           AND id BETWEEN (SELECT id FROM attributed WHERE kind = '{kind}' ORDER BY id LIMIT 1)
             AND (SELECT id FROM attributed WHERE kind = '{kind}' ORDER BY id DESC LIMIT 1)"
    )
}

/// Orders and revenue attributed to campaigns, or to automations, with their names. Arrays instead of
/// `AttributedRevenue` objects, because there may be many.
fn attributed_revenues(kind: &str) -> String {
    format!(
        "coalesce(json_agg(json_build_array(id, name, orders, revenue::text)
           ORDER BY revenue DESC, id) FILTER (WHERE kind = '{kind}'), '[]')"
    )
}

/// `$8` to `$9`: the dates of the window; `$10`: the maximum number of links; from `$11`: the ranges.
pub(super) fn revenue() -> String {
    const RANGES: [&str; 4] = ["$11", "$12", "$13", "$14"];
    let shown = [
        count("orders", "paid"),
        money("revenue", "revenue"),
        count("attributed_orders", "attributed_orders"),
        money("attributed_revenue", "attributed_revenue"),
        money("product_costs", "product_costs"),
        money("gateway_fees", "gateway_fees"),
    ];
    let days = daily(
        "order_rollups",
        "",
        "sum(paid) AS paid, sum(revenue) AS revenue, sum(attributed_orders) AS attributed_orders,
         sum(attributed_revenue) AS attributed_revenue, sum(product_costs) AS product_costs,
         sum(gateway_fees) AS gateway_fees",
        &shown.join(", "),
    );
    format!(
        "WITH attributed AS (
           SELECT kind, attributed_to_id AS id, sum(orders)::bigint AS orders, sum(revenue) AS revenue
           FROM {attributions} GROUP BY kind, attributed_to_id HAVING sum(orders) <> 0),
         named AS MATERIALIZED ({campaigns} UNION ALL {automations}),
         clicked AS (
           SELECT link_id AS id, sum(clicks)::bigint AS clicks FROM {clicked} GROUP BY link_id HAVING sum(clicks) <> 0),
         links_shown AS (
           SELECT l.id, l.short_code, l.original_url, coalesce(k.clicks, 0) AS clicks, coalesce(o.orders, 0) AS orders,
             coalesce(o.revenue, 0) AS revenue
           FROM clicked k FULL JOIN (SELECT id, orders, revenue FROM attributed WHERE kind = 'link') o ON o.id = k.id
           JOIN links l ON l.account_id = $1 AND l.id = coalesce(k.id, o.id)
           ORDER BY revenue DESC, clicks DESC, l.id LIMIT $10)
         SELECT json_build_object('days', {days},
           'ad_spend', (SELECT coalesce(sum(amount), 0)::text FROM ad_spend
             WHERE account_id = $1 AND date BETWEEN $8 AND $9),
           'campaigns', c.campaigns, 'automations', c.automations,
           'links', (SELECT coalesce(json_agg(json_build_object('id', id, 'short_code', short_code,
               'original_url', original_url, 'clicks', clicks, 'orders', orders, 'revenue', revenue::text)
               ORDER BY revenue DESC, clicks DESC, id), '[]') FROM links_shown))::text AS totals
         FROM (SELECT {attributed_campaigns} AS campaigns, {attributed_automations} AS automations
           FROM attributed JOIN named USING (kind, id)) AS c",
        attributions = range_sums(
            "attribution_rollups",
            "kind, attributed_to_id",
            &["orders", "revenue"],
            RANGES
        ),
        clicked = range_sums("link_rollups", "link_id", &["clicks"], RANGES),
        campaigns = named("campaign", "campaigns"),
        automations = named("automation", "automations"),
        attributed_campaigns = attributed_revenues("campaign"),
        attributed_automations = attributed_revenues("automation"),
    )
}

/// `$8`: the maximum number of products; from `$9`: the ranges.
pub(super) fn ecommerce() -> String {
    let shown = [count("orders", "paid"), money("revenue", "revenue")];
    let days = daily(
        "order_rollups",
        "",
        "sum(paid) AS paid, sum(revenue) AS revenue",
        &shown.join(", "),
    );
    format!(
        "WITH sold AS (
           SELECT platform, sum(placed)::bigint AS placed, sum(pending)::bigint AS pending,
             sum(cancelled)::bigint AS cancelled, sum(refunded)::bigint AS refunded, sum(paid)::bigint AS paid,
             sum(revenue) AS revenue
           FROM {orders} GROUP BY platform),
         products AS (
           SELECT product_id, sum(quantity) AS quantity, sum(revenue) AS revenue
           FROM {products} GROUP BY product_id HAVING sum(quantity) <> 0
           ORDER BY revenue DESC, product_id LIMIT $8)
         SELECT json_build_object('days', {days},
           'platforms', (SELECT coalesce(json_agg(json_build_object('platform', platform, 'orders', paid,
               'revenue', revenue::text) ORDER BY revenue DESC, platform) FILTER (WHERE paid <> 0), '[]') FROM sold),
           'products', (SELECT coalesce(json_agg(json_build_object('product_id', p.product_id, 'name', n.name,
               'quantity', p.quantity::text, 'revenue', p.revenue::text) ORDER BY p.revenue DESC, p.product_id), '[]')
             FROM products p JOIN product_names n ON n.account_id = $1 AND n.product_id = p.product_id),
           {placed}, {pending}, {cancelled}, {refunded}, {carts}, {recovered})::text AS totals
         FROM (SELECT sum(placed) AS placed, sum(pending) AS pending, sum(cancelled) AS cancelled,
             sum(refunded) AS refunded FROM sold) AS s,
           (SELECT sum(carts) AS carts, sum(recovered) AS recovered FROM {all_carts}) AS c",
        orders = window_rows("order_rollups"),
        products = range_sums(
            "product_rollups",
            "product_id",
            &["quantity", "revenue"],
            ["$9", "$10", "$11", "$12"]
        ),
        placed = count("placed", "placed"),
        pending = count("pending", "pending"),
        cancelled = count("cancelled", "cancelled"),
        refunded = count("refunded", "refunded"),
        carts = count("carts", "carts"),
        recovered = count("recovered", "recovered"),
        all_carts = window_rows("cart_rollups"),
    )
}

/// `$2` and `$3` are parameters for daily series, which this report does not have; `$8`: the maximum number of
/// automations.
pub(super) fn automations() -> String {
    format!(
        "WITH ran AS (
           SELECT automation_id AS id, sum(completed)::bigint AS completed, sum(failed)::bigint AS failed,
             sum(latency) AS latency
           FROM {executions} GROUP BY automation_id HAVING sum(completed + failed) <> 0),
         most AS (
           SELECT r.*, a.name FROM ran r JOIN automations a ON a.account_id = $1 AND a.id = r.id
           ORDER BY r.completed + r.failed DESC, r.id LIMIT $8)
         SELECT json_build_object('automations',
           (SELECT coalesce(json_agg(json_build_object('id', id, 'name', name, 'completed', completed,
              'failed', failed, 'latency', latency::text) ORDER BY completed + failed DESC, id), '[]') FROM most),
           {completed}, {failed}, {latency})::text AS totals
         FROM (SELECT sum(completed) AS completed, sum(failed) AS failed, sum(latency) AS latency FROM ran) AS r
         WHERE cardinality($2) > $3 - $3",
        executions = window_rows("automation_rollups"),
        completed = count("completed", "completed"),
        failed = count("failed", "failed"),
        latency = money("latency", "latency"),
    )
}
