//! What the retention of source rows means for the comparison of a rollup: a sum stays as it was when rows that it
//! counts are dropped.

/// SQL: from which time on the rows of tables are stored: by the operator's terms, and by those of account `$1`.
pub(super) const HORIZONS: &str = "(SELECT table_name, retained_from FROM partition_horizons
     UNION ALL SELECT table_name, retained_from FROM retention_horizons WHERE account_id = $1)";

/// How a rollup is compared after partitions of its source were dropped.
pub(super) enum Retention {
    /// The source is partitioned by the time that selects the bucket: buckets before the kept rows are not compared.
    ByBucket { source: &'static str },
    /// A dropped row may count in any bucket: an order is dropped by its first report and counted by its payment.
    /// Such a sum is wrong only if the kept rows have more. `sums` are those that no row makes smaller.
    AtLeast {
        source: &'static str,
        sums: &'static [&'static str],
    },
}

const RETENTION: &[(&str, Retention)] = &[
    ("message_rollups", Retention::ByBucket { source: "messages" }),
    (
        "metric_rollups",
        Retention::ByBucket {
            source: "metric_events",
        },
    ),
    (
        "metrics",
        Retention::AtLeast {
            source: "metric_events",
            sums: &["total_events"],
        },
    ),
    (
        "metric_contacts",
        Retention::AtLeast {
            source: "metric_events",
            sums: &["event_count"],
        },
    ),
    (
        "order_rollups",
        Retention::AtLeast {
            source: "orders",
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
        },
    ),
    (
        "product_rollups",
        Retention::AtLeast {
            source: "orders",
            sums: &["quantity", "revenue"],
        },
    ),
    (
        "attribution_rollups",
        Retention::AtLeast {
            source: "orders",
            sums: &["orders", "revenue"],
        },
    ),
];

/// The retention of a rollup's source. `None`: its rows are never dropped, or its sums are dropped with them.
pub(super) fn retention(rollup: &str) -> Option<&'static Retention> {
    RETENTION
        .iter()
        .find(|(name, _)| *name == rollup)
        .map(|(_, retention)| retention)
}

impl Retention {
    /// SQL: the time from which rows of the source are kept.
    fn retained_from(&self) -> String {
        let (Self::ByBucket { source } | Self::AtLeast { source, .. }) = self;
        format!("(SELECT coalesce(max(retained_from), '-infinity') FROM {HORIZONS} h WHERE table_name = '{source}')")
    }

    /// SQL condition on the rows that are compared, stored or recomputed.
    pub(super) fn compared_rows(&self) -> String {
        match self {
            Self::ByBucket { .. } => format!("bucket_start >= {}", self.retained_from()),
            Self::AtLeast { .. } => "true".to_owned(),
        }
    }

    /// SQL condition on a row whose stored sums (`k`) differ from the recomputed ones (`c`).
    pub(super) fn is_wrong(&self) -> String {
        match self {
            Self::ByBucket { .. } => "true".to_owned(),
            Self::AtLeast { sums, .. } => {
                let more: Vec<String> = sums
                    .iter()
                    .map(|sum| format!("coalesce(c.{sum}, 0) > coalesce(k.{sum}, 0)"))
                    .collect();
                format!("({} = '-infinity' OR {})", self.retained_from(), more.join(" OR "))
            }
        }
    }

    /// SQL: what a repair adds to a sum, of `difference` between recomputed and stored.
    pub(super) fn addition(&self, sum: &str, difference: &str) -> String {
        match self {
            Self::ByBucket { .. } => difference.to_owned(),
            Self::AtLeast { sums, .. } => {
                let retained_from = self.retained_from();
                let at_least = match sums.contains(&sum) {
                    true => format!("greatest({difference}, 0)"),
                    false => "0".to_owned(),
                };
                format!("CASE WHEN {retained_from} = '-infinity' THEN {difference} ELSE {at_least} END")
            }
        }
    }

    /// SQL: the repaired time of the latest row.
    pub(super) fn last(&self, last: &str) -> String {
        match self {
            Self::ByBucket { .. } => format!("c.{last}"),
            Self::AtLeast { .. } => {
                format!(
                    "CASE WHEN {} = '-infinity' THEN c.{last} ELSE greatest(c.{last}, k.{last}) END",
                    self.retained_from()
                )
            }
        }
    }
}
