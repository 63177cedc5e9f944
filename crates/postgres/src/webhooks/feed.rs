//! Webhook logs (newest first) and the feed of webhook events (oldest first).

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Bool, Integer, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use recado_domain::shared::{AccountId, CursorPage, StoreError};
use recado_domain::webhooks::{Direction, FeedQuery, LogQuery, LogStatus, WebhookEvent, WebhookLog};
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::parse_enum;
use crate::pool::TenantPool;
use crate::sql::{FENCE, limit_hint, sql};

/// Events of the feed that one request with a kind scans. To find a rare kind a client follows the cursor over several
/// requests.
const MAX_SCANNED_EVENTS: i64 = 5000;

#[derive(QueryableByName)]
struct LogRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    endpoint_id: Uuid,
    #[diesel(sql_type = Text)]
    direction: String,
    #[diesel(sql_type = Text)]
    event_type: String,
    #[diesel(sql_type = Text)]
    message_id: String,
    #[diesel(sql_type = Nullable<Jsonb>)]
    payload: Option<Value>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    event_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    data: Option<Value>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    occurred_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Integer>)]
    response_status: Option<i32>,
    #[diesel(sql_type = Integer)]
    attempt: i32,
    #[diesel(sql_type = Nullable<Integer>)]
    duration_ms: Option<i32>,
    #[diesel(sql_type = Nullable<Text>)]
    error: Option<String>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    next_attempt_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
}

impl LogRow {
    fn into_log(self, account_id: AccountId) -> Result<WebhookLog, StoreError> {
        let sent = self.event_id.zip(self.data).zip(self.occurred_at);
        let sent = sent.map(|((id, data), timestamp)| {
            json!(WebhookEvent {
                id: id.into(),
                kind: self.event_type.clone(),
                timestamp,
                account_id,
                data,
            })
        });
        Ok(WebhookLog {
            id: self.id.into(),
            endpoint_id: self.endpoint_id.into(),
            direction: parse_enum(&self.direction)?,
            event_type: self.event_type,
            // The payload of a purged event is an empty object.
            payload: self.payload.or(sent).unwrap_or_else(|| json!({})),
            response_status: self.response_status,
            attempt: self.attempt,
            duration_ms: self.duration_ms,
            error: self.error,
            message_id: self.message_id,
            next_attempt_at: self.next_attempt_at,
            created_at: self.created_at,
        })
    }
}

/// Reads the newest logs of an account. An index covers each filter: direction, endpoint, failed. Ids begin with the
/// time of their log. In their order PostgreSQL reads the newest day first, and earlier days only if the page is not
/// full.
/// The bounds of the time of logs. The ids, which begin with the time of the server that made the log, bound the rows
/// that are read: the clocks of servers differ by at most an hour. An id has no time before 1970.
const SINCE: &str = "l.created_at >= $ AND l.id >= first_id(greatest($ - interval '1 hour', 'epoch'))";
const UNTIL: &str = "l.created_at < $ AND l.id <= last_id($ + interval '1 hour')";

pub(super) async fn logs(
    pool: &TenantPool,
    account: AccountId,
    query: &LogQuery,
) -> Result<Vec<WebhookLog>, StoreError> {
    let mut condition = "l.account_id = $1".to_owned();
    match query.direction {
        Some(Direction::Inbound) => condition.push_str(" AND l.direction = 'inbound'"),
        Some(Direction::Outbound) => condition.push_str(" AND l.direction = 'outbound'"),
        None => {}
    }
    match query.status {
        Some(LogStatus::Success) => condition.push_str(" AND l.response_status BETWEEN 200 AND 299"),
        Some(LogStatus::Failed) => condition.push_str(" AND (l.response_status IS NULL OR l.response_status >= 400)"),
        None => {}
    }
    let mut parameter = 2;
    for (filter, is_filtered) in [
        ("l.endpoint_id = $", query.endpoint_id.is_some()),
        ("l.event_type = $", query.event_type.is_some()),
        ("l.id < $", query.cursor.is_some()),
        (SINCE, query.since.is_some()),
        (UNTIL, query.until.is_some()),
    ] {
        if is_filtered {
            parameter += 1;
            condition.push_str(&format!(" AND {}", filter.replace('$', &format!("${parameter}"))));
        }
    }
    let mut statement = sql(format!(
        "SELECT l.id, l.endpoint_id, l.direction, l.event_type, l.message_id, l.payload, l.event_id, v.payload AS data,
           v.occurred_at, l.response_status, l.attempt, l.duration_ms, l.error, l.next_attempt_at, l.created_at
         FROM ({latest}) l
         LEFT JOIN LATERAL (SELECT payload, occurred_at FROM webhook_events
           WHERE account_id = $1 AND id = l.event_id {FENCE}) v ON true
         ORDER BY l.id DESC",
        latest = limit_hint(
            format!("SELECT * FROM webhook_logs l WHERE {condition} ORDER BY l.id DESC"),
            "$2"
        )
    ))
    .bind(account)
    .bind(query.limit);
    if let Some(endpoint) = query.endpoint_id {
        statement = statement.bind(endpoint);
    }
    if let Some(kind) = query.event_type.clone() {
        statement = statement.bind(kind);
    }
    if let Some(cursor) = query.cursor {
        statement = statement.bind(cursor);
    }
    for time in [query.since, query.until].into_iter().flatten() {
        statement = statement.bind(time);
    }
    let rows: Vec<LogRow> = pool.in_index_order().read_rows(account, statement).await?;
    rows.into_iter().map(|row| row.into_log(account)).collect()
}

/// A matching event, or as the last row the last scanned event.
#[derive(QueryableByName)]
struct EventRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Jsonb)]
    data: Value,
    #[diesel(sql_type = Timestamptz)]
    occurred_at: OffsetDateTime,
    #[diesel(sql_type = Bool)]
    matches: bool,
    /// Whether the feed has later events.
    #[diesel(sql_type = Bool)]
    followed: bool,
}

/// Keyset pagination over `seq`: scans a window of events and returns the matching ones up to the limit, plus the last
/// scanned event. The cursor is an event id, because a `seq` would reveal how many events other accounts have. The id
/// of a purged event contains its time, so the page continues with the first event that has a greater id.
///
/// An event that was relayed late has an id of an earlier day. So the next events may lie in any partition, and each
/// costs one index probe, about a hundred pages for 30 days.
fn page_query(has_kind: bool) -> String {
    let after = "FROM webhook_events WHERE account_id = $1 AND seq > (SELECT seq FROM start) ORDER BY seq";
    let scanned = match has_kind {
        true => format!("SELECT seq, id, type = $4 AS matches {after} LIMIT {MAX_SCANNED_EVENTS}"),
        false => limit_hint(format!("SELECT seq, id, true AS matches {after}"), "$3"),
    };
    format!(include_str!("feed_page.sql"), scanned = scanned, fence = FENCE)
}

pub(super) async fn cursor_page(
    pool: &TenantPool,
    account: AccountId,
    query: &FeedQuery,
) -> Result<CursorPage<WebhookEvent>, StoreError> {
    let after = query.after.map_or(Uuid::nil(), Uuid::from);
    let mut statement = sql(page_query(query.kind.is_some()))
        .bind(account)
        .bind(after)
        .bind(query.limit);
    if let Some(kind) = query.kind.clone() {
        statement = statement.bind(kind);
    }
    let rows: Vec<EventRow> = pool.in_index_order().read_rows(account, statement).await?;
    let last = rows.as_slice().last();
    Ok(CursorPage {
        next_cursor: last
            .map(|row| row.id)
            .or(query.after.map(Uuid::from))
            .map(|id| id.to_string()),
        has_more: last.is_some_and(|row| row.followed),
        data: rows
            .into_iter()
            .filter(|row| row.matches)
            .map(|row| WebhookEvent {
                id: row.id.into(),
                kind: row.kind,
                timestamp: row.occurred_at,
                account_id: account,
                data: row.data,
            })
            .collect(),
    })
}
