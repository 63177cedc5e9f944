//! A report's window as statement parameters, and SQL fragments that read a rollup over it.

use diesel::prelude::QueryableByName;
use diesel::sql_types::Text;
use recado_domain::analytics::{RollupRange, Window};
use recado_domain::shared::{AccountId, StoreError};
use serde::de::DeserializeOwned;

use crate::errors::corrupt;
use crate::sql::{Sql, sql};

/// All totals of a report in one JSON text, which PostgreSQL builds without an intermediate `jsonb`. Sums are
/// strings, so that no number becomes a float.
#[derive(QueryableByName)]
pub(super) struct TotalsRow {
    #[diesel(sql_type = Text)]
    pub(super) totals: String,
}

impl TotalsRow {
    pub(super) fn read<T: DeserializeOwned>(self) -> Result<T, StoreError> {
        serde_json::from_str(&self.totals).map_err(corrupt)
    }
}

/// Binds a window: `$1` account, `$2` bounds of the days, `$3` granularity of the days, `$4` start, `$5` end, and the
/// range of whole UTC days from `$6` to `$7`.
pub(super) fn bind_window<'a>(text: String, account: AccountId, window: &Window) -> Sql<'a> {
    sql(text)
        .bind(account)
        .bind(window.bounds.clone())
        .bind(window.granularity().minutes())
        .bind(window.start())
        .bind(window.end())
        .bind(window.first_whole_day())
        .bind(window.end_of_whole_days())
}

/// The rows of a rollup that add up to the whole window: UTC days inside it, and quarters of an hour at its ends.
pub(super) fn window_rows(table: &str) -> String {
    format!(
        "(SELECT * FROM {table} WHERE account_id = $1 AND bucket_minutes = 1440 AND bucket_start >= $6
           AND bucket_start < $7
          UNION ALL SELECT * FROM {table} WHERE account_id = $1 AND bucket_minutes = 15 AND bucket_start >= $4
            AND bucket_start < $6
          UNION ALL SELECT * FROM {table} WHERE account_id = $1 AND bucket_minutes = 15 AND bucket_start >= $7
            AND bucket_start < $5) AS t"
    )
}

pub(super) fn with_ranges<'a>(statement: Sql<'a>, window: &Window) -> Sql<'a> {
    let ranges = window.ranges();
    let sign = |range: &RollupRange| if range.adds { 1_i32 } else { -1 };
    statement
        .bind(
            ranges
                .iter()
                .map(|range| range.granularity.minutes())
                .collect::<Vec<_>>(),
        )
        .bind(ranges.iter().map(|range| range.start).collect::<Vec<_>>())
        .bind(ranges.iter().map(|range| range.end).collect::<Vec<_>>())
        .bind(ranges.iter().map(sign).collect::<Vec<_>>())
}

/// The rows of a rollup with weekly buckets: `keys` unchanged, and each of `sums` with its sign in the window's total.
/// Multiplying by the sign would take almost as long as the sum itself. `bound` names the parameters of the ranges.
/// Each range is its own query: a join with all ranges is planned, and executed, as a read of most of the rollup.
pub(super) fn range_sums(table: &str, keys: &str, sums: &[&str], bound: [&str; 4]) -> String {
    let [minutes, starts, ends, signs] = bound;
    // An index beyond the end of the array gives null, which matches no rows.
    let range = |at: usize| {
        let signed: String = sums
            .iter()
            .map(|sum| format!(", CASE WHEN ({signs})[{at}] > 0 THEN {sum} ELSE -{sum} END AS {sum}"))
            .collect();
        format!(
            "SELECT {keys}{signed} FROM {table}
             WHERE account_id = $1 AND bucket_minutes = ({minutes})[{at}] AND bucket_start >= ({starts})[{at}]
               AND bucket_start < ({ends})[{at}]"
        )
    };
    let ranges: Vec<String> = (1..=Window::MAX_RANGES).map(range).collect();
    format!("({}) AS t", ranges.join(" UNION ALL "))
}

/// A JSON array with one object per day of the window. `sums` are SQL expressions over a day's rows, null for a day
/// without rows; `shown` builds the object from them.
pub(super) fn daily(table: &str, condition: &str, sums: &str, shown: &str) -> String {
    format!(
        "(SELECT json_agg(json_build_object({shown}) ORDER BY slot)
          FROM generate_series(1, cardinality($2) - 1) AS slot
          LEFT JOIN (SELECT width_bucket(bucket_start, $2) AS slot, {sums} FROM {table}
            WHERE account_id = $1 AND bucket_minutes = $3 AND bucket_start >= $4
              AND bucket_start < $5 {condition} GROUP BY 1) AS d USING (slot))"
    )
}

/// A sum as an entry of a JSON object: `'name', text`.
pub(super) fn money(name: &str, expression: &str) -> String {
    format!("'{name}', coalesce({expression}, 0)::text")
}

/// A count as an entry of a JSON object.
pub(super) fn count(name: &str, expression: &str) -> String {
    format!("'{name}', coalesce({expression}, 0)::bigint")
}
