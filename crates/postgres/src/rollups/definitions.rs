//! The definition of each rollup: its table, and the query that recomputes it from the source rows.

use super::Rollup;

/// Builds the query of a time-bucketed rollup. The first argument selects its granularities: `totals`, `series`
/// (daily series), `many` (many products or links), or `stored_quarters` (like `many`, but the 15-minute buckets are
/// the source).
macro_rules! bucketed {
    (totals, $columns:literal, $rows:literal) => {
        bucketed!("(15), (1440)", $columns, $rows)
    };
    (series, $columns:literal, $rows:literal) => {
        bucketed!("(15), (180), (1440)", $columns, $rows)
    };
    (many, $columns:literal, $rows:literal) => {
        bucketed!("(15), (1440), (10080)", $columns, $rows)
    };
    (stored_quarters, $columns:literal, $rows:literal) => {
        bucketed!("(1440), (10080)", $columns, $rows)
    };
    ($buckets:literal, $columns:literal, $rows:literal) => {
        concat!(
            "SELECT g.bucket_minutes::smallint AS bucket_minutes,
               date_bin(g.bucket_minutes * interval '1 minute', c.time, timestamptz '1970-01-01 00:00:00+00')
                 AS bucket_start, ",
            $columns,
            " FROM (",
            $rows,
            ") AS c CROSS JOIN (VALUES ",
            $buckets,
            ") AS g (bucket_minutes)"
        )
    };
}

const ORDERS: &str = concat!(
    bucketed!(
        series,
        "c.platform, sum(c.placed)::bigint AS placed, sum(c.pending)::bigint AS pending,
         sum(c.cancelled)::bigint AS cancelled, sum(c.refunded)::bigint AS refunded, sum(c.paid)::bigint AS paid,
         sum(c.revenue) AS revenue, sum(c.product_costs) AS product_costs, sum(c.gateway_fees) AS gateway_fees,
         sum(c.attributed)::bigint AS attributed_orders, sum(c.attributed * c.revenue) AS attributed_revenue",
        "SELECT platform, placed_at AS time, 1 AS placed, (status = 'pending')::int AS pending,
           (status = 'cancelled')::int AS cancelled, (status = 'refunded')::int AS refunded,
           0 AS paid, 0 AS revenue, 0 AS product_costs, 0 AS gateway_fees, 0 AS attributed
         FROM orders WHERE account_id = $1
         UNION ALL
         SELECT o.platform, o.paid_at, 0, 0, 0, 0, 1, o.total,
           coalesce((SELECT sum(i.cost * i.quantity) FROM order_items i
             WHERE i.account_id = o.account_id AND i.order_id = o.id), 0), o.gateway_fee,
           (num_nonnulls(o.campaign_id, o.automation_id, o.link_id) > 0)::int
         FROM orders o WHERE o.account_id = $1 AND o.status = 'paid'"
    ),
    " GROUP BY 1, 2, 3"
);

const PRODUCTS: &str = concat!(
    bucketed!(
        many,
        "c.product_id, sum(c.quantity) AS quantity, sum(c.quantity * c.price) AS revenue",
        "SELECT i.product_id, o.paid_at AS time, i.quantity, i.price
         FROM orders o JOIN order_items i ON i.account_id = o.account_id AND i.order_id = o.id
         WHERE o.account_id = $1 AND o.status = 'paid'"
    ),
    " GROUP BY 1, 2, 3"
);

const ATTRIBUTIONS: &str = concat!(
    bucketed!(
        many,
        "c.kind, c.attributed_to_id, count(*) AS orders, sum(c.total) AS revenue",
        "SELECT k.kind, k.attributed_to_id, o.paid_at AS time, o.total FROM orders o
         CROSS JOIN LATERAL (VALUES ('campaign', o.campaign_id), ('automation', o.automation_id), ('link', o.link_id))
           AS k (kind, attributed_to_id)
         WHERE o.account_id = $1 AND o.status = 'paid' AND k.attributed_to_id IS NOT NULL"
    ),
    " GROUP BY 1, 2, 3, 4"
);

const CARTS: &str = concat!(
    bucketed!(
        totals,
        "count(*) AS carts, sum(c.recovered)::bigint AS recovered",
        "SELECT created_at AS time, (status = 'recovered')::int AS recovered FROM carts WHERE account_id = $1"
    ),
    " GROUP BY 1, 2"
);

const EXECUTIONS: &str = concat!(
    bucketed!(
        totals,
        "c.automation_id, sum(c.completed)::bigint AS completed, count(*) - sum(c.completed)::bigint AS failed,
         sum(c.latency) AS latency",
        "SELECT automation_id, started_at AS time, (status = 'completed')::int AS completed,
           round(extract(epoch FROM finished_at - started_at) * 1000000) AS latency
         FROM automation_executions WHERE account_id = $1"
    ),
    " GROUP BY 1, 2, 3"
);

const CLICKS: &str = concat!(
    bucketed!(
        stored_quarters,
        "c.link_id, sum(c.clicks)::bigint AS clicks",
        "SELECT link_id, bucket_start AS time, clicks FROM link_rollups WHERE account_id = $1 AND bucket_minutes = 15"
    ),
    " GROUP BY 1, 2, 3"
);

const METRICS: &str = concat!(
    bucketed!(
        series,
        "c.metric_name, sum(c.events)::bigint AS events, sum(c.value) AS value,
         sum(c.last)::bigint AS last_contacts",
        "SELECT metric_name, occurred_at AS time, 1 AS events, coalesce(value, 0) AS value, 0 AS last
         FROM metric_events WHERE account_id = $1
         UNION ALL
         SELECT metric_name, max(occurred_at), 0, 0, 1 FROM metric_events
         WHERE account_id = $1 AND contact_id IS NOT NULL GROUP BY metric_name, contact_id"
    ),
    " GROUP BY 1, 2, 3"
);

const MESSAGES: &str = concat!(
    bucketed!(
        series,
        "sum(c.sent)::bigint AS sent, sum(c.delivered)::bigint AS delivered, sum(c.read)::bigint AS read,
         sum(c.failed)::bigint AS failed, sum(c.received)::bigint AS received",
        "SELECT created_at AS time, (status = 'sent')::int AS sent, (status = 'delivered')::int AS delivered,
           (status = 'read')::int AS read, (status = 'failed')::int AS failed, (status = 'received')::int AS received
         FROM messages WHERE account_id = $1 AND origin IS DISTINCT FROM 'business_app'
         UNION ALL SELECT send_at, (status = 'sent')::int, (status = 'delivered')::int, (status = 'read')::int,
           (status = 'failed')::int, 0
         FROM direct_messages WHERE account_id = $1"
    ),
    " GROUP BY 1, 2"
);

/// Sends of a large audience may still be recipient batches, and all of those are pending. Failed sends in retry batches
/// count as pending from the start of the retry on.
const SENDS: &str = include_str!("recompute_sends.sql");

/// A message that WhatsApp accepted is sent; one that may still be sent is reserved. The unstarted sends of a run count
/// in the run's month, also those that it has not reset yet.
const USAGE: &str = include_str!("recompute_usage.sql");

/// The price of a message is stored with it, with everything that the rollup has as a key. A price that a version stored
/// before costs were counted has no `since`.
const COSTS: &str = include_str!("recompute_costs.sql");

/// All rollups. Clicks have no rows of their own: the 15-minute buckets are their record, and the other rollups are
/// sums of these.
pub(super) const ALL: &[Rollup] = &[
    Rollup {
        table: "order_rollups",
        part: "",
        keys: &["bucket_minutes", "bucket_start", "platform"],
        sums: &[
            "placed",
            "pending",
            "cancelled",
            "refunded",
            "paid",
            "revenue",
            "product_costs",
            "gateway_fees",
            "attributed_orders",
            "attributed_revenue",
        ],
        last: None,
        makes_rows: true,
        recomputed: ORDERS,
    },
    Rollup {
        table: "product_rollups",
        part: "",
        keys: &["bucket_minutes", "bucket_start", "product_id"],
        sums: &["quantity", "revenue"],
        last: None,
        makes_rows: true,
        recomputed: PRODUCTS,
    },
    Rollup {
        table: "attribution_rollups",
        part: "",
        keys: &["bucket_minutes", "bucket_start", "kind", "attributed_to_id"],
        sums: &["orders", "revenue"],
        last: None,
        makes_rows: true,
        recomputed: ATTRIBUTIONS,
    },
    Rollup {
        table: "cart_rollups",
        part: "",
        keys: &["bucket_minutes", "bucket_start"],
        sums: &["carts", "recovered"],
        last: None,
        makes_rows: true,
        recomputed: CARTS,
    },
    Rollup {
        table: "automation_rollups",
        part: "",
        keys: &["bucket_minutes", "bucket_start", "automation_id"],
        sums: &["completed", "failed", "latency"],
        last: None,
        makes_rows: true,
        recomputed: EXECUTIONS,
    },
    Rollup {
        table: "link_rollups",
        part: "bucket_minutes <> 15",
        keys: &["bucket_minutes", "bucket_start", "link_id"],
        sums: &["clicks"],
        last: None,
        makes_rows: true,
        recomputed: CLICKS,
    },
    Rollup {
        table: "links",
        part: "",
        keys: &["id"],
        sums: &["clicks"],
        last: None,
        makes_rows: false,
        recomputed: "SELECT link_id AS id, sum(clicks)::bigint AS clicks
            FROM link_rollups WHERE account_id = $1 AND bucket_minutes = 15 GROUP BY 1",
    },
    Rollup {
        table: "metrics",
        part: "",
        keys: &["metric_name"],
        sums: &["total_events", "total_value"],
        last: Some("last_event_at"),
        makes_rows: true,
        recomputed: "SELECT metric_name, count(*) AS total_events, coalesce(sum(value), 0) AS total_value,
              max(occurred_at) AS last_event_at
            FROM metric_events WHERE account_id = $1 GROUP BY 1",
    },
    Rollup {
        table: "metric_contacts",
        part: "",
        keys: &["metric_name", "contact_id"],
        sums: &["event_count", "total_value"],
        last: Some("last_event_at"),
        makes_rows: true,
        recomputed: "SELECT metric_name, contact_id, count(*) AS event_count, coalesce(sum(value), 0) AS total_value,
              max(occurred_at) AS last_event_at
            FROM metric_events WHERE account_id = $1 AND contact_id IS NOT NULL GROUP BY 1, 2",
    },
    Rollup {
        table: "metric_rollups",
        part: "",
        keys: &["bucket_minutes", "bucket_start", "metric_name"],
        sums: &["events", "value", "last_contacts"],
        last: None,
        makes_rows: true,
        recomputed: METRICS,
    },
    Rollup {
        table: "message_rollups",
        part: "",
        keys: &["bucket_minutes", "bucket_start"],
        sums: &["sent", "delivered", "read", "failed", "received"],
        last: None,
        makes_rows: true,
        recomputed: MESSAGES,
    },
    Rollup {
        table: "campaign_counters",
        part: "",
        keys: &["campaign_id"],
        sums: &["total", "pending", "sent", "delivered", "read", "failed"],
        last: Some("created_at"),
        makes_rows: true,
        recomputed: SENDS,
    },
    Rollup {
        table: "message_usage",
        part: "",
        keys: &["month"],
        sums: &["sent", "reserved"],
        last: None,
        makes_rows: true,
        recomputed: USAGE,
    },
    Rollup {
        table: "cost_rollups",
        part: "",
        keys: &[
            "bucket_start",
            "campaign_id",
            "profile_id",
            "template_id",
            "category",
            "market",
            "currency",
        ],
        sums: &["amount", "messages", "billable", "free", "unpriced"],
        last: None,
        makes_rows: true,
        recomputed: COSTS,
    },
    Rollup {
        table: "campaign_budgets",
        part: "",
        keys: &["campaign_id"],
        sums: &["reserved"],
        last: None,
        makes_rows: true,
        recomputed: "SELECT campaign_id, sum(reserved_amount) AS reserved FROM campaign_sends
            WHERE account_id = $1 AND reserved_amount IS NOT NULL GROUP BY 1",
    },
    Rollup {
        table: "contact_counts",
        part: "",
        keys: &["day"],
        sums: &["contacts"],
        last: None,
        makes_rows: true,
        recomputed: "SELECT (created_at AT TIME ZONE 'UTC')::date AS day, count(*) AS contacts
            FROM contacts WHERE account_id = $1 AND deleted_at IS NULL GROUP BY 1",
    },
    Rollup {
        table: "conversation_counts",
        part: "",
        keys: &["status"],
        sums: &["conversations"],
        last: None,
        makes_rows: true,
        recomputed: "SELECT v.status, count(*) AS conversations
            FROM conversations v
            JOIN contacts c ON c.account_id = v.account_id AND c.id = v.contact_id AND c.deleted_at IS NULL
            WHERE v.account_id = $1 GROUP BY 1",
    },
    Rollup {
        table: "rfm_counts",
        part: "",
        keys: &["segment"],
        sums: &["contacts"],
        last: None,
        makes_rows: true,
        recomputed: "SELECT segment, count(*) AS contacts FROM contact_rfm WHERE account_id = $1 GROUP BY 1",
    },
    Rollup {
        table: "audit_counts",
        part: "",
        keys: &["month", "entity_type", "action"],
        sums: &["n"],
        last: None,
        makes_rows: true,
        recomputed: "SELECT date_trunc('month', created_at AT TIME ZONE 'UTC')::date AS month, entity_type, action,
              count(*) AS n
            FROM audit_logs WHERE account_id = $1 GROUP BY 1, 2, 3",
    },
];
