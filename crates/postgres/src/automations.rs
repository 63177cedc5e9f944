//! Automations, their executions, and the rollups of executions.

use std::collections::{BTreeMap, HashSet};

use async_trait::async_trait;
use diesel::dsl::exists;
use diesel::pg::Pg;
use diesel::prelude::{AsChangeset, ExpressionMethods, QueryDsl, Queryable, Selectable, SelectableHelper};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::automations::{
    Automation, AutomationChange, AutomationStatus, AutomationStore, Execution, ExecutionStatus,
};
use recado_domain::ingestion::{Granularity, IngestionResult};
use recado_domain::shared::{AccountId, AutomationId, CursorPage, CursorQuery, StoreError};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::{DbResult, parse_enum};
use crate::pool::TenantPool;
use crate::schema::automations;
use crate::sql::{IdRow, collect_column, sql};
use crate::transactions::in_tenant;

#[derive(Clone, Debug)]
pub struct PgAutomations(TenantPool);

impl PgAutomations {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = automations, check_for_backend(Pg))]
struct AutomationRow {
    id: Uuid,
    name: String,
    status: String,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
}

impl TryFrom<AutomationRow> for Automation {
    type Error = StoreError;

    fn try_from(row: AutomationRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.into(),
            name: row.name,
            status: parse_enum(&row.status)?,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }
}

/// Leaves a field without a new value as it is.
#[derive(AsChangeset)]
#[diesel(table_name = automations)]
struct ChangedColumns<'a> {
    name: Option<&'a str>,
    status: Option<&'a str>,
    updated_at: OffsetDateTime,
}

async fn record(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    automation: AutomationId,
    executions: &[Execution],
    now: OffsetDateTime,
) -> DbResult<Option<IngestionResult>> {
    let found = automations::table.find((account.0, automation.0));
    let automation_exists: bool = diesel::select(exists(found)).get_result(&mut *conn).await?;
    if !automation_exists {
        return Ok(None);
    }
    // The first execution of an id wins. Sorted by id, the order in which all writers insert.
    let mut by_id: BTreeMap<Uuid, &Execution> = BTreeMap::new();
    for execution in executions {
        by_id.entry(execution.id.into()).or_insert(execution);
    }
    let unique: Vec<&Execution> = by_id.into_values().collect();
    let inserted: Vec<IdRow> = sql("INSERT INTO automation_executions
           (account_id, id, automation_id, status, started_at, finished_at, created_at)
         SELECT $1, d.id, $2, d.status, d.started_at, d.finished_at, $7
         FROM unnest($3, $4, $5, $6) WITH ORDINALITY AS d (id, status, started_at, finished_at, position)
         ORDER BY d.position
         ON CONFLICT (account_id, id) DO NOTHING
         RETURNING id")
    .bind(account)
    .bind(automation)
    .bind(collect_column(&unique, |execution| Uuid::from(execution.id)))
    .bind(collect_column(&unique, |execution| {
        execution.status.as_str().to_owned()
    }))
    .bind(collect_column(&unique, |execution| execution.started_at))
    .bind(collect_column(&unique, |execution| execution.finished_at))
    .bind(now)
    .load(&mut *conn)
    .await?;
    let inserted: HashSet<Uuid> = inserted.into_iter().map(|row| row.id).collect();
    let new = unique
        .into_iter()
        .filter(|execution| inserted.contains(&execution.id.into()));
    count(conn, account, automation, new).await?;
    Ok(Some(IngestionResult::of(executions.len(), inserted.len())))
}

/// Completed executions, failed executions, and their total latency in microseconds.
type ExecutionSums = (i64, i64, i64);

async fn count<'a>(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    automation: AutomationId,
    executions: impl Iterator<Item = &'a Execution>,
) -> DbResult<()> {
    let mut sums: BTreeMap<(Granularity, OffsetDateTime), ExecutionSums> = BTreeMap::new();
    for execution in executions {
        let latency = (execution.finished_at - execution.started_at).whole_microseconds();
        let latency = i64::try_from(latency).unwrap_or(i64::MAX);
        for granularity in Granularity::TOTALS {
            let (completed, failed, total) = sums
                .entry((granularity, granularity.begin(execution.started_at)))
                .or_default();
            match execution.status {
                ExecutionStatus::Completed => *completed += 1,
                ExecutionStatus::Failed => *failed += 1,
            }
            *total = total.saturating_add(latency);
        }
    }
    let rows: Vec<_> = sums.into_iter().collect();
    if rows.is_empty() {
        return Ok(());
    }
    sql(
        "INSERT INTO automation_rollups AS r (account_id, bucket_minutes, bucket_start, automation_id, completed,
           failed, latency)
         SELECT $1, d.bucket_minutes, d.bucket_start, $2, d.completed, d.failed, d.latency
         FROM unnest($3, $4, $5, $6, $7) WITH ORDINALITY AS d (bucket_minutes, bucket_start, completed, failed,
           latency, position)
         ORDER BY d.position
         ON CONFLICT (account_id, bucket_minutes, bucket_start, automation_id)
           DO UPDATE SET completed = r.completed + excluded.completed,
           failed = r.failed + excluded.failed, latency = r.latency + excluded.latency",
    )
    .bind(account)
    .bind(automation)
    .bind(collect_column(&rows, |((granularity, _), _)| granularity.minutes()))
    .bind(collect_column(&rows, |((_, at), _)| *at))
    .bind(collect_column(&rows, |(_, sums)| sums.0))
    .bind(collect_column(&rows, |(_, sums)| sums.1))
    .bind(collect_column(&rows, |(_, sums)| sums.2))
    .execute(conn)
    .await?;
    Ok(())
}

#[async_trait]
impl AutomationStore for PgAutomations {
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Automation>, StoreError> {
        let listed = automations::table
            .filter(automations::account_id.eq(account.0))
            .filter(automations::id.lt(query.cursor.unwrap_or(Uuid::max())))
            .order(automations::id.desc())
            .limit(query.limit + 1)
            .select(AutomationRow::as_select());
        let rows: Vec<AutomationRow> = self.0.read_rows(account, listed).await?;
        let automations = rows.into_iter().map(Automation::try_from).collect::<Result<_, _>>()?;
        Ok(CursorPage::cut(automations, query.limit, |automation: &Automation| {
            automation.id
        }))
    }

    async fn insert(&self, account: AccountId, automation: &Automation) -> Result<(), StoreError> {
        let statement = diesel::insert_into(automations::table).values((
            automations::account_id.eq(account.0),
            automations::id.eq(automation.id.0),
            automations::name.eq(&automation.name),
            automations::status.eq(automation.status.as_str()),
            automations::created_at.eq(automation.created_at),
            automations::updated_at.eq(automation.created_at),
        ));
        self.0.run(account, statement).await.map(drop)
    }

    async fn update(
        &self,
        account: AccountId,
        id: AutomationId,
        change: &AutomationChange,
        now: OffsetDateTime,
    ) -> Result<Option<Automation>, StoreError> {
        let statement = diesel::update(automations::table.find((account.0, id.0)))
            .set(ChangedColumns {
                name: change.name.as_deref(),
                status: change.status.map(AutomationStatus::as_str),
                updated_at: now,
            })
            .returning(AutomationRow::as_returning());
        let row = self.0.written_if_any::<AutomationRow>(account, statement).await?;
        row.map(Automation::try_from).transpose()
    }

    async fn record(
        &self,
        account: AccountId,
        id: AutomationId,
        executions: &[Execution],
        now: OffsetDateTime,
    ) -> Result<Option<IngestionResult>, StoreError> {
        in_tenant!(self.0, account, |conn| record(conn, account, id, executions, now))
    }
}
