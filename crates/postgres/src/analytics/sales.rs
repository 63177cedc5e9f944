//! The statements of revenue, of e-commerce and of automations.

use super::window::{count, daily, money, whole, whole_by_weeks};

/// What is owed to campaigns, automations or links, with their names.
fn owed(kind: &str, table: &str) -> String {
    format!(
        "(SELECT coalesce(jsonb_agg(jsonb_build_object('id', o.id, 'name', n.name, 'orders', o.orders,
            'revenue', o.revenue::text) ORDER BY o.revenue DESC, o.id), '[]')
          FROM owed o JOIN {table} n ON n.account_id = $1 AND n.id = o.id WHERE o.kind = '{kind}')"
    )
}

/// `$8` to `$9`: the dates of the window; `$10`: how many links; `$11` to `$12`: the whole weeks.
pub(super) fn revenue() -> String {
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
        "WITH owed AS (
           SELECT kind, origin_id AS id, sum(orders)::bigint AS orders, sum(revenue) AS revenue
           FROM {attributions} GROUP BY kind, origin_id HAVING sum(orders) <> 0),
         clicked AS (
           SELECT link_id AS id, sum(clicks)::bigint AS clicks FROM {clicks} GROUP BY link_id),
         links_shown AS (
           SELECT l.id, l.short_code, l.original_url, coalesce(k.clicks, 0) AS clicks, coalesce(o.orders, 0) AS orders,
             coalesce(o.revenue, 0) AS revenue
           FROM clicked k FULL JOIN (SELECT id, orders, revenue FROM owed WHERE kind = 'link') o ON o.id = k.id
           JOIN links l ON l.account_id = $1 AND l.id = coalesce(k.id, o.id)
           ORDER BY revenue DESC, clicks DESC, l.id LIMIT $10)
         SELECT jsonb_build_object('days', {days},
           'ad_spend', (SELECT coalesce(sum(amount), 0)::text FROM ad_spend
             WHERE account_id = $1 AND date BETWEEN $8 AND $9),
           'campaigns', {campaigns}, 'automations', {automations},
           'links', (SELECT coalesce(jsonb_agg(jsonb_build_object('id', id, 'short_code', short_code,
               'original_url', original_url, 'clicks', clicks, 'orders', orders, 'revenue', revenue::text)
               ORDER BY revenue DESC, clicks DESC, id), '[]') FROM links_shown)) AS figures",
        attributions = whole_by_weeks("attribution_rollups", ["$11", "$12"]),
        clicks = whole("link_rollups"),
        campaigns = owed("campaign", "campaigns"),
        automations = owed("automation", "automations"),
    )
}

/// `$8`: how many products; `$9` to `$10`: the whole weeks.
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
         SELECT jsonb_build_object('days', {days},
           'platforms', (SELECT coalesce(jsonb_agg(jsonb_build_object('platform', platform, 'orders', paid,
               'revenue', revenue::text) ORDER BY revenue DESC, platform) FILTER (WHERE paid <> 0), '[]') FROM sold),
           'products', (SELECT coalesce(jsonb_agg(jsonb_build_object('product_id', p.product_id, 'name', n.name,
               'quantity', p.quantity::text, 'revenue', p.revenue::text) ORDER BY p.revenue DESC, p.product_id), '[]')
             FROM products p JOIN product_names n ON n.account_id = $1 AND n.product_id = p.product_id))
           || (SELECT jsonb_build_object({placed}, {pending}, {cancelled}, {refunded}) FROM sold)
           || (SELECT jsonb_build_object({carts}, {recovered}) FROM {all_carts}) AS figures",
        orders = whole("order_rollups"),
        products = whole_by_weeks("product_rollups", ["$9", "$10"]),
        placed = count("placed", "sum(placed)"),
        pending = count("pending", "sum(pending)"),
        cancelled = count("cancelled", "sum(cancelled)"),
        refunded = count("refunded", "sum(refunded)"),
        carts = count("carts", "sum(carts)"),
        recovered = count("recovered", "sum(recovered)"),
        all_carts = whole("cart_rollups"),
    )
}

/// `$2` and `$3` are for days, of which this report has none; `$8`: how many automations.
pub(super) fn automations() -> String {
    format!(
        "WITH ran AS (
           SELECT automation_id AS id, sum(completed)::bigint AS completed, sum(failed)::bigint AS failed,
             sum(latency) AS latency
           FROM {executions} GROUP BY automation_id HAVING sum(completed + failed) <> 0),
         most AS (
           SELECT r.*, a.name FROM ran r JOIN automations a ON a.account_id = $1 AND a.id = r.id
           ORDER BY r.completed + r.failed DESC, r.id LIMIT $8)
         SELECT jsonb_build_object('automations',
           (SELECT coalesce(jsonb_agg(jsonb_build_object('id', id, 'name', name, 'completed', completed,
              'failed', failed, 'latency', latency::text) ORDER BY completed + failed DESC, id), '[]') FROM most))
           || (SELECT jsonb_build_object({completed}, {failed}, {latency}) FROM ran) AS figures
         WHERE cardinality($2) > $3 - $3",
        executions = whole("automation_rollups"),
        completed = count("completed", "sum(completed)"),
        failed = count("failed", "sum(failed)"),
        latency = money("latency", "sum(latency)"),
    )
}
