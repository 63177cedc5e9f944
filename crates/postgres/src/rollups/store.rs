//! Verifies and rebuilds rollups.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::Text;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::rollups::{Difference, RollupStore};
use recado_domain::shared::{AccountId, StoreError};

use super::definitions::ALL;
use super::retention::{HORIZONS, Retention, retention};
use super::{Rollup, reprice};
use crate::errors::DbResult;
use crate::pool::OwnerPool;
use crate::sql::{IdRow, sql};
use crate::transactions::in_owner;

/// Advisory lock: two concurrent rebuilds would both add the missing sums.
const REBUILD_LOCK: i64 = 0x726f_6c6c_7570;

/// Rollups with a CHECK against negative values. It also applies to the proposed row of an upsert, so existing rows
/// are corrected by an UPDATE first.
const NEVER_NEGATIVE: &[&str] = &["audit_counts"];

/// Rollups that are views over counter slots, and the table of these. Missing sums are added to slot 0, the first row.
const SLOTS: &[(&str, &str)] = &[
    ("campaign_counters", "campaign_counter_slots"),
    ("message_usage", "message_usage_slots"),
];

/// Which keys of a rollup are compared with rows that a retention term removes: those whose rows are all kept.
/// `{horizons}`: see [`HORIZONS`].
///
/// All sends of a campaign are in one partition, and leave with it or into the campaign's archive. The usage of a month
/// also counts sends that were frozen earlier and retried in it: an archive names its months, and a campaign whose
/// partition was removed was updated in that month or later. Other messages get a price within 45 days.
const KEPT: &[(&str, &str)] = &[
    (
        "cost_rollups",
        "NOT EXISTS (SELECT 1 FROM {horizons} h
           WHERE (h.table_name = 'campaign_sends' AND EXISTS (SELECT 1 FROM campaigns g
               WHERE g.account_id = $1 AND g.id = campaign_id AND g.frozen_at < h.retained_from))
             OR (h.table_name = 'messages' AND campaign_id = '00000000-0000-0000-0000-000000000000'
               AND bucket_start < h.retained_from + interval '45 days'))
         AND {not_archived}",
    ),
    (
        "campaign_budgets",
        "NOT EXISTS (SELECT 1 FROM {horizons} h JOIN campaigns g ON g.account_id = $1 AND g.id = campaign_id
           WHERE h.table_name = 'campaign_sends' AND g.frozen_at < h.retained_from)
         AND {not_archived}",
    ),
    (
        "campaign_counters",
        "NOT EXISTS (SELECT 1 FROM {horizons} h
           WHERE h.table_name = 'campaign_sends' AND coalesce(k.created_at, c.created_at) < h.retained_from)
         AND {not_archived}",
    ),
    (
        "message_usage",
        "NOT EXISTS (SELECT 1 FROM {horizons} h
           WHERE h.table_name = 'campaign_sends' AND (month < (h.retained_from AT TIME ZONE 'UTC')::date
             OR EXISTS (SELECT 1 FROM campaigns g WHERE g.account_id = $1 AND g.frozen_at < h.retained_from
               AND (g.updated_at AT TIME ZONE 'UTC')::date >= month)))
         AND month NOT IN (SELECT unnest(a.months) FROM campaign_archives a
           WHERE a.account_id = $1 AND a.verified_at IS NOT NULL)",
    ),
];

/// SQL condition: sends of the campaign may not have left for an archive.
const NOT_ARCHIVED: &str = "campaign_id NOT IN (SELECT a.campaign_id FROM campaign_archives a
     WHERE a.account_id = $1 AND a.verified_at IS NOT NULL)";

/// Reads and repairs all rollups on the owner pool.
#[derive(Clone, Debug)]
pub struct PgRollups(OwnerPool);

impl PgRollups {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

#[derive(QueryableByName)]
struct DifferenceRow {
    #[diesel(sql_type = Text)]
    key: String,
    #[diesel(sql_type = Text)]
    stored: String,
    #[diesel(sql_type = Text)]
    recomputed: String,
}

impl Rollup {
    /// Formats every name and joins the results with commas.
    fn join_names(names: &[&str], form: impl Fn(&str) -> String) -> String {
        names.iter().map(|name| form(name)).collect::<Vec<_>>().join(", ")
    }

    /// Rows whose stored sums differ from the recomputed ones, as far as the retention of the source rows allows to
    /// compare them. A missing row counts as zero.
    fn differences(&self) -> String {
        let keys = self.keys.join(", ");
        let part = if self.part.is_empty() { "true" } else { self.part };
        let retention = retention(self.table);
        let always = || "true".to_owned();
        let compared = retention.map_or_else(always, Retention::compared_rows);
        let is_wrong = retention.map_or_else(always, Retention::is_wrong);
        let columns = self
            .keys
            .iter()
            .chain(self.sums)
            .copied()
            .chain(self.last)
            .collect::<Vec<_>>();
        let side = |side: &str| {
            let sums = Self::join_names(self.sums, |sum| format!("coalesce({side}.{sum}, 0)"));
            let last = self.last.map(|last| format!(", {side}.{last}"));
            format!("{sums}{}", last.unwrap_or_default())
        };
        format!(
            "FROM (SELECT {columns} FROM {table} WHERE account_id = $1 AND {part} AND {compared}) AS k
             FULL JOIN (SELECT * FROM ({recomputed}) AS r WHERE {compared}) AS c USING ({keys})
             WHERE ({stored}) IS DISTINCT FROM ({recomputed_sums}) AND {is_wrong} AND {kept}",
            kept = self.kept(),
            columns = columns.join(", "),
            table = self.table,
            recomputed = self.recomputed,
            stored = side("k"),
            recomputed_sums = side("c"),
        )
    }

    /// The first hundred differences, with their sums as text.
    fn comparison(&self) -> String {
        let words = |side: &str| {
            let columns = self.sums.iter().copied().chain(self.last);
            let columns: Vec<String> = columns.map(|name| format!("'{name}', {side}.{name}")).collect();
            format!("jsonb_build_object({})::text", columns.join(", "))
        };
        format!(
            "SELECT concat_ws(' ', {keys}) AS key, {stored} AS stored, {recomputed} AS recomputed {differences}
             ORDER BY {keys} LIMIT 100",
            keys = self.keys.join(", "),
            stored = words("k"),
            recomputed = words("c"),
            differences = self.differences(),
        )
    }

    /// Adds recomputed minus stored, which may be negative. Sums that other writers add meanwhile are in neither of
    /// the two, so they are preserved.
    fn repair(&self, makes_rows: bool) -> String {
        let keys = self.keys.join(", ");
        let retention = retention(self.table);
        let sums = Self::join_names(self.sums, |sum| {
            let difference = format!("coalesce(c.{sum}, 0) - coalesce(k.{sum}, 0)");
            let addition =
                retention.map_or_else(|| difference.clone(), |retention| retention.addition(sum, &difference));
            format!("{addition} AS {sum}")
        });
        let last = self.last.map(|last| {
            let time = retention.map_or_else(|| format!("c.{last}"), |retention| retention.last(last));
            format!(", {time} AS {last}")
        });
        let last = last.unwrap_or_default();
        let differences = format!("SELECT {keys}, {sums}{last} {} ORDER BY {keys}", self.differences());
        let sets = |from: &str| {
            let sums = Self::join_names(self.sums, |sum| format!("{sum} = r.{sum} + {from}.{sum}"));
            let last = self.last.map(|last| format!(", {last} = {from}.{last}"));
            format!("{sums}{}", last.unwrap_or_default())
        };
        if !makes_rows {
            let same: Vec<String> = self.keys.iter().map(|key| format!("r.{key} = d.{key}")).collect();
            return format!(
                "UPDATE {} AS r SET {} FROM ({differences}) AS d WHERE r.account_id = $1 AND {}",
                self.table,
                sets("d"),
                same.join(" AND ")
            );
        }
        let columns = self
            .keys
            .iter()
            .chain(self.sums)
            .copied()
            .chain(self.last)
            .collect::<Vec<_>>()
            .join(", ");
        let (table, slot) = self.slots().map_or((self.table, ""), |slots| (slots, ", slot"));
        format!(
            "INSERT INTO {table} AS r (account_id, {columns}) SELECT $1, {columns} FROM ({differences}) AS d
             ON CONFLICT (account_id, {keys}{slot}) DO UPDATE SET {}",
            sets("excluded")
        )
    }

    /// The condition on keys whose rows are all kept.
    fn kept(&self) -> String {
        let mut kept = KEPT.iter().filter(|(table, _)| *table == self.table);
        let condition = kept.next().map_or("true", |(_, condition)| *condition);
        condition
            .replace("{horizons}", HORIZONS)
            .replace("{not_archived}", NOT_ARCHIVED)
    }

    fn slots(&self) -> Option<&'static str> {
        let mut slots = SLOTS.iter().filter(|(sums, _)| *sums == self.table);
        slots.next().map(|(_, slots)| *slots)
    }

    /// Sets the time of all slots of a key to that of slot 0. `None` for a rollup without slots or without a time
    /// column.
    fn align_slot_times(&self) -> Option<String> {
        let (slots, last) = (self.slots()?, self.last?);
        let same = |key: &&str| format!("AND s.{key} = f.{key}");
        let keys: Vec<String> = self.keys.iter().map(same).collect();
        Some(format!(
            "UPDATE {slots} s SET {last} = f.{last} FROM {slots} f WHERE s.account_id = $1 AND f.account_id = $1
               AND f.slot = 0 AND s.{last} <> f.{last} {}",
            keys.join(" ")
        ))
    }
}

/// Rebuilds one rollup in its own transaction. A writer of metric events locks its metric first, so with all metrics
/// locked no latest event changes during the rebuild.
async fn rebuild(conn: &mut AsyncPgConnection, account: AccountId, rollup: &Rollup) -> DbResult<u64> {
    sql("SELECT pg_advisory_xact_lock($1)")
        .bind(REBUILD_LOCK)
        .execute(&mut *conn)
        .await?;
    if rollup.table.starts_with("metric") {
        sql("SELECT FROM metrics WHERE account_id = $1 ORDER BY metric_name FOR UPDATE")
            .bind(account)
            .execute(&mut *conn)
            .await?;
    }
    let mut repaired = 0;
    if NEVER_NEGATIVE.contains(&rollup.table) {
        repaired += sql(rollup.repair(false)).bind(account).execute(&mut *conn).await?;
    }
    repaired += sql(rollup.repair(rollup.makes_rows))
        .bind(account)
        .execute(&mut *conn)
        .await?;
    if let Some(statement) = rollup.align_slot_times() {
        sql(statement).bind(account).execute(conn).await?;
    }
    Ok(u64::try_from(repaired).unwrap_or(u64::MAX))
}

#[async_trait]
impl RollupStore for PgRollups {
    async fn accounts(&self) -> Result<Vec<AccountId>, StoreError> {
        let rows = self.0.rows::<IdRow>(sql("SELECT id FROM accounts ORDER BY id")).await?;
        Ok(rows.into_iter().map(|row| row.id.into()).collect())
    }

    async fn verify(&self, account: AccountId) -> Result<Vec<Difference>, StoreError> {
        let mut differences = Vec::new();
        for rollup in ALL {
            let query = sql(rollup.comparison()).bind(account);
            let rows = self.0.rows::<DifferenceRow>(query).await?.into_iter();
            differences.extend(rows.map(|row| Difference {
                rollup: rollup.table,
                account,
                key: row.key,
                stored: row.stored,
                recomputed: row.recomputed,
            }));
        }
        Ok(differences)
    }

    async fn rebuild(&self, account: AccountId) -> Result<u64, StoreError> {
        let mut repaired = 0;
        for rollup in ALL {
            repaired += in_owner!(self.0, |conn| rebuild(conn, account, rollup))?;
        }
        Ok(repaired)
    }

    async fn reprice(&self, account: AccountId) -> Result<u64, StoreError> {
        reprice::reprice(&self.0, account).await
    }
}
