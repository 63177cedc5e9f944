//! Metric events: inserts those with new ids and adds them to the sums. Their metrics are locked first, in name
//! order, so that one writer at a time moves a metric's contacts from their previous latest event to the new one.
//!
//! `metric_event_keys` holds every id. Its row stays after the event's month was dropped, so that the rollups never
//! count an event twice.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::ingestion::{EventDraft, IngestionOutcome, IngestionResult, MetricRollupDelta, metrics_recorded};
use recado_domain::shared::{AccountId, ContactId};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::references;
use crate::errors::DbResult;
use crate::outbox;
use crate::sql::{IdRow, collect_column, key_rows, sql};

pub(super) async fn record(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    drafts: &[EventDraft],
    now: OffsetDateTime,
) -> DbResult<IngestionOutcome> {
    let contacts = match references::event_contacts(conn, account, drafts).await? {
        Ok(contacts) => contacts,
        Err(unknown_references) => return Ok(IngestionOutcome::UnknownReferences(unknown_references)),
    };
    // The first draft of an event wins.
    let mut seen = HashSet::new();
    let incoming = drafts.iter().zip(contacts).filter(|(draft, _)| seen.insert(draft.id));
    let incoming: Vec<(&EventDraft, Option<ContactId>)> = incoming.collect();
    lock(conn, account, drafts).await?;
    let inserted = insert_keys(conn, account, &incoming).await?;
    let is_new = |(draft, _): &&(&EventDraft, Option<ContactId>)| inserted.contains(&draft.id.into());
    let new: Vec<(&EventDraft, Option<ContactId>)> = incoming.iter().filter(is_new).copied().collect();
    insert(conn, account, &new, now).await?;
    let mut delta = MetricRollupDelta::default();
    for (draft, contact) in &new {
        delta.count(draft, *contact);
    }
    let before = last_events(conn, account, &delta).await?;
    delta.move_contacts(&before);
    write(conn, account, &delta).await?;
    let event = metrics_recorded(new.iter().copied());
    outbox::append(conn, account, &[event]).await?;
    Ok(IngestionOutcome::Done(IngestionResult::of(
        drafts.len(),
        inserted.len(),
    )))
}

/// Inserts new metrics, and locks all metrics of the batch.
async fn lock(conn: &mut AsyncPgConnection, account: AccountId, drafts: &[EventDraft]) -> DbResult<()> {
    let names: BTreeSet<&str> = drafts.iter().map(|draft| draft.metric_name.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    sql("INSERT INTO metrics AS m (account_id, metric_name)
         SELECT $1, d.name FROM unnest($2) WITH ORDINALITY AS d (name, position) ORDER BY d.position
         ON CONFLICT (account_id, metric_name) DO UPDATE SET total_events = m.total_events")
    .bind(account)
    .bind(collect_column(&names, |name| (*name).to_owned()))
    .execute(conn)
    .await?;
    Ok(())
}

/// Inserts the ids of events in their order, like all writers, and returns those that are new.
async fn insert_keys(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    incoming: &[(&EventDraft, Option<ContactId>)],
) -> DbResult<HashSet<Uuid>> {
    let rows: Vec<IdRow> = sql("INSERT INTO metric_event_keys (account_id, id, occurred_at)
         SELECT $1, d.id, d.occurred_at FROM unnest($2, $3) AS d (id, occurred_at)
         ORDER BY d.id
         ON CONFLICT (account_id, id) DO NOTHING
         RETURNING id")
    .bind(account)
    .bind(collect_column(incoming, |(draft, _)| Uuid::from(draft.id)))
    .bind(collect_column(incoming, |(draft, _)| draft.occurred_at))
    .load(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

async fn insert(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    incoming: &[(&EventDraft, Option<ContactId>)],
    now: OffsetDateTime,
) -> DbResult<()> {
    if incoming.is_empty() {
        return Ok(());
    }
    sql("INSERT INTO metric_events
           (account_id, id, metric_name, contact_id, value, currency, source, properties, occurred_at, created_at)
         SELECT $1, d.id, d.name, d.contact_id, d.value::numeric, d.currency, d.source, d.properties, d.occurred_at, $10
         FROM unnest($2, $3, $4, $5, $6, $7, $8, $9)
           AS d (id, name, contact_id, value, currency, source, properties, occurred_at)
         ORDER BY d.id
         ON CONFLICT (account_id, metric_name, occurred_at, id) DO NOTHING")
    .bind(account)
    .bind(collect_column(incoming, |(draft, _)| Uuid::from(draft.id)))
    .bind(collect_column(incoming, |(draft, _)| draft.metric_name.clone()))
    .bind(collect_column(incoming, |(_, contact)| contact.map(Uuid::from)))
    .bind(collect_column(incoming, |(draft, _)| draft.value))
    .bind(collect_column(incoming, |(draft, _)| draft.currency.clone()))
    .bind(collect_column(incoming, |(draft, _)| draft.source.clone()))
    .bind(collect_column(incoming, |(draft, _)| {
        Value::Object(draft.properties.clone())
    }))
    .bind(collect_column(incoming, |(draft, _)| draft.occurred_at))
    .bind(now)
    .execute(conn)
    .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct LastEvent {
    #[diesel(sql_type = Text)]
    metric_name: String,
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    last_event_at: Option<OffsetDateTime>,
}

/// The stored time of each contact's latest event.
async fn last_events(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    delta: &MetricRollupDelta,
) -> DbResult<BTreeMap<(String, ContactId), OffsetDateTime>> {
    let keys: Vec<_> = delta.contacts.keys().collect();
    if keys.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows: Vec<LastEvent> = sql(format!(
        "SELECT m.metric_name, m.contact_id, m.last_event_at FROM {keys} k
         JOIN metric_contacts m ON m.account_id = $1 AND m.metric_name = k.name AND m.contact_id = k.contact_id",
        keys = key_rows("$2, $3", "name, contact_id"),
    ))
    .bind(account)
    .bind(collect_column(&keys, |key| key.0.clone()))
    .bind(collect_column(&keys, |key| Uuid::from(key.1)))
    .load(conn)
    .await?;
    let last_events = rows.into_iter().filter_map(|row| {
        let key = (row.metric_name, row.contact_id.into());
        Some((key, row.last_event_at?))
    });
    Ok(last_events.collect())
}

async fn write(conn: &mut AsyncPgConnection, account: AccountId, delta: &MetricRollupDelta) -> DbResult<()> {
    if delta.metrics.is_empty() {
        return Ok(());
    }
    write_metrics(conn, account, delta).await?;
    write_sources(conn, account, delta).await?;
    write_contacts(conn, account, delta).await?;
    write_rollups(conn, account, delta).await
}

async fn write_metrics(conn: &mut AsyncPgConnection, account: AccountId, delta: &MetricRollupDelta) -> DbResult<()> {
    let rows: Vec<_> = delta.metrics.iter().collect();
    sql(format!(
        "UPDATE metrics m SET total_events = m.total_events + d.events, total_value = m.total_value + d.value::numeric,
           last_event_at = greatest(m.last_event_at, d.last_event_at),
           display_name = coalesce(d.display_name, m.display_name), category = coalesce(d.category, m.category)
         FROM {keys} d WHERE m.account_id = $1 AND m.metric_name = d.name",
        keys = key_rows(
            "$2, $3, $4, $5, $6, $7",
            "name, events, value, last_event_at, display_name, category"
        ),
    ))
    .bind(account)
    .bind(collect_column(&rows, |(name, _)| (*name).clone()))
    .bind(collect_column(&rows, |(_, totals)| totals.events))
    .bind(collect_column(&rows, |(_, totals)| totals.value))
    .bind(collect_column(&rows, |(_, totals)| totals.last_event_at))
    .bind(collect_column(&rows, |(_, totals)| totals.display_name.clone()))
    .bind(collect_column(&rows, |(_, totals)| totals.category.clone()))
    .execute(conn)
    .await?;
    Ok(())
}

async fn write_sources(conn: &mut AsyncPgConnection, account: AccountId, delta: &MetricRollupDelta) -> DbResult<()> {
    let rows: Vec<_> = delta.sources.iter().collect();
    sql("INSERT INTO metric_sources (account_id, metric_name, source)
         SELECT $1, d.name, d.source FROM unnest($2, $3) WITH ORDINALITY AS d (name, source, position)
         ORDER BY d.position
         ON CONFLICT DO NOTHING")
    .bind(account)
    .bind(collect_column(&rows, |(name, _)| name.clone()))
    .bind(collect_column(&rows, |(_, source)| source.clone()))
    .execute(conn)
    .await?;
    Ok(())
}

async fn write_contacts(conn: &mut AsyncPgConnection, account: AccountId, delta: &MetricRollupDelta) -> DbResult<()> {
    let rows: Vec<_> = delta.contacts.iter().collect();
    if rows.is_empty() {
        return Ok(());
    }
    sql(
        "INSERT INTO metric_contacts AS m (account_id, metric_name, contact_id, event_count, total_value, last_event_at)
         SELECT $1, d.name, d.contact_id, d.events, d.value::numeric, d.last_event_at
         FROM unnest($2, $3, $4, $5, $6) WITH ORDINALITY AS d (name, contact_id, events, value, last_event_at, position)
         ORDER BY d.position
         ON CONFLICT (account_id, metric_name, contact_id) DO UPDATE SET
           event_count = m.event_count + excluded.event_count, total_value = m.total_value + excluded.total_value,
           last_event_at = greatest(m.last_event_at, excluded.last_event_at)",
    )
    .bind(account)
    .bind(collect_column(&rows, |((name, _), _)| name.clone()))
    .bind(collect_column(&rows, |((_, contact), _)| Uuid::from(*contact)))
    .bind(collect_column(&rows, |(_, sums)| sums.events))
    .bind(collect_column(&rows, |(_, sums)| sums.value))
    .bind(collect_column(&rows, |(_, sums)| sums.last_event_at))
    .execute(conn)
    .await?;
    Ok(())
}

async fn write_rollups(conn: &mut AsyncPgConnection, account: AccountId, delta: &MetricRollupDelta) -> DbResult<()> {
    let rows: Vec<_> = delta.rollups.iter().collect();
    sql(
        "INSERT INTO metric_rollups AS r (account_id, metric_name, bucket_minutes, bucket_start, events, value,
           last_contacts)
         SELECT $1, d.name, d.bucket_minutes, d.bucket_start, d.events, d.value::numeric, d.last_contacts
         FROM unnest($2, $3, $4, $5, $6, $7) WITH ORDINALITY
           AS d (name, bucket_minutes, bucket_start, events, value, last_contacts, position)
         ORDER BY d.position
         ON CONFLICT (account_id, metric_name, bucket_minutes, bucket_start)
           DO UPDATE SET events = r.events + excluded.events,
           value = r.value + excluded.value, last_contacts = r.last_contacts + excluded.last_contacts",
    )
    .bind(account)
    .bind(collect_column(&rows, |((name, _, _), _)| name.clone()))
    .bind(collect_column(&rows, |((_, granularity, _), _)| granularity.minutes()))
    .bind(collect_column(&rows, |((_, _, at), _)| *at))
    .bind(collect_column(&rows, |(_, sums)| sums.events))
    .bind(collect_column(&rows, |(_, sums)| sums.value))
    .bind(collect_column(&rows, |(_, sums)| sums.last_contacts))
    .execute(conn)
    .await?;
    Ok(())
}
