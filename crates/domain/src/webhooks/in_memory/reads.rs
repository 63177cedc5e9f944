//! Logs, the feed, and received calls.

use serde_json::json;

use super::super::{Direction, FeedQuery, InboundLogEntry, LogQuery, LogStatus, WebhookEvent, WebhookLog};
use super::tables::{InMemoryEvent, InMemoryLog, WebhookTables};
use crate::shared::{AccountId, CursorPage};

impl WebhookTables {
    pub(super) fn logs(&self, account: AccountId, query: &LogQuery) -> Vec<WebhookLog> {
        let has_status = |log: &WebhookLog| match (query.status, log.response_status) {
            (None, _) | (Some(LogStatus::Failed), None) => true,
            (Some(LogStatus::Success), status) => status.is_some_and(|status| (200..300).contains(&status)),
            (Some(LogStatus::Failed), Some(status)) => status >= 400,
        };
        let matches = |log: &WebhookLog| {
            query.direction.is_none_or(|direction| direction == log.direction)
                && has_status(log)
                && query.endpoint_id.is_none_or(|id| id == log.endpoint_id)
                && query.event_type.as_ref().is_none_or(|kind| *kind == log.event_type)
                && query.cursor.is_none_or(|cursor| log.id < cursor)
                && query.since.is_none_or(|since| log.created_at >= since)
                && query.until.is_none_or(|until| log.created_at < until)
        };
        let newest_first = self.logs.values().rev();
        newest_first
            .filter(|row| row.account_id == account && matches(&row.log))
            .take(usize::try_from(query.limit).unwrap_or(0))
            .map(|row| self.with_payload(row))
            .collect()
    }

    /// The log with the event that was delivered as its payload. A purged event leaves an empty object.
    fn with_payload(&self, row: &InMemoryLog) -> WebhookLog {
        let mut log = row.log.clone();
        if let Some(id) = row.event_id {
            let event = self.event(row.account_id, id);
            log.payload = event.map_or_else(|| json!({}), |row| json!(row.event));
        }
        log
    }

    pub(super) fn feed(&self, account: AccountId, query: &FeedQuery) -> CursorPage<WebhookEvent> {
        let of_account = |row: &&InMemoryEvent| row.event.account_id == account && row.seq.is_some();
        let mut rows: Vec<&InMemoryEvent> = self.events.values().filter(of_account).collect();
        rows.sort_unstable_by_key(|row| row.seq);
        let start = query.after.map_or(0, |after| {
            let read = rows.iter().position(|row| row.event.id == after).map(|at| at + 1);
            // A purged event is followed by the first one with a greater id.
            let next = || rows.iter().position(|row| row.event.id > after);
            read.or_else(next).unwrap_or(rows.len())
        });
        let mut page = CursorPage {
            data: Vec::new(),
            next_cursor: query.after.map(|id| id.to_string()),
            has_more: false,
        };
        let limit = usize::try_from(query.limit).unwrap_or(0);
        let mut unread = rows.iter().skip(start).peekable();
        while page.data.len() < limit
            && let Some(row) = unread.next()
        {
            page.next_cursor = Some(row.event.id.to_string());
            page.has_more = unread.peek().is_some();
            if query.kind.as_ref().is_none_or(|kind| *kind == row.event.kind) {
                page.data.push(row.event.clone());
            }
        }
        page
    }

    pub(super) fn log_call(&mut self, account_id: AccountId, entry: &InboundLogEntry) {
        let call = (entry.endpoint_id, entry.message_id.clone());
        if (200..300).contains(&entry.response_status) && !self.inbox.insert(call) {
            return;
        }
        let log = WebhookLog {
            id: entry.id,
            endpoint_id: entry.endpoint_id,
            direction: Direction::Inbound,
            event_type: entry.event_type.clone(),
            payload: entry.payload.clone(),
            response_status: Some(entry.response_status),
            attempt: 1,
            duration_ms: None,
            error: entry.error.clone(),
            message_id: entry.message_id.clone(),
            next_attempt_at: None,
            created_at: entry.at,
        };
        self.logs.entry(entry.id).or_insert(InMemoryLog {
            account_id,
            event_id: None,
            log,
        });
    }
}
