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
        include_str!("revenue.sql"),
        days = days,
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

pub(super) fn ecommerce() -> String {
    let shown = [count("orders", "paid"), money("revenue", "revenue")];
    let days = daily(
        "order_rollups",
        "",
        "sum(paid) AS paid, sum(revenue) AS revenue",
        &shown.join(", "),
    );
    format!(
        include_str!("ecommerce.sql"),
        days = days,
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

pub(super) fn automations() -> String {
    format!(
        include_str!("automations.sql"),
        executions = window_rows("automation_rollups"),
        completed = count("completed", "completed"),
        failed = count("failed", "failed"),
        latency = money("latency", "latency"),
    )
}
