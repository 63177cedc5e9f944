//! The rows of both stores, one line each.

use recado_domain::direct_messages::in_memory::InMemoryMessage;
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use super::state::State;

/// Microseconds since 1970, or `-`.
pub(super) const MICROSECONDS: &str = "CREATE FUNCTION microseconds(at timestamptz) RETURNS text LANGUAGE sql STABLE
     AS $$ SELECT coalesce((extract(epoch FROM at) * 1000000)::bigint::text, '-') $$;";

pub(super) const LINES: &str = "SELECT string_agg(line, E'\\n') FROM (
    SELECT concat('message ', id, ' ', account_id, ' contact=', contact_id, ' number=', profile_id, ' ', kind,
      ' reference=', coalesce(client_reference, '-'), ' ', status, ' attempts=', attempts,
      ' send=', microseconds(send_at), ' expires=', microseconds(expires_at), ' due=', microseconds(due_at),
      ' started=', microseconds(started_at), ' unknown=', (unknown_at IS NOT NULL)::text,
      ' hold=', coalesce(hold_reason, '-'), ' sent=', microseconds(sent_at), ' wa=', coalesce(wa_message_id, '-'),
      ' code=', coalesce(error_code::text, '-'), ' error=', coalesce(error_message, '-'),
      ' conversation=', coalesce(conversation_id::text, '-'), ' month=', coalesce(quota_month::text, '-'),
      ' created=', microseconds(created_at), ' updated=', microseconds(updated_at)) AS line
    FROM direct_messages
    UNION ALL
    SELECT concat('queue ', account_id, ' ', profile_id, ' due=', microseconds(due_at), ' worker=',
      coalesce(worker::text, '-'), ' until=', microseconds(leased_until), ' hold=', coalesce(hold_reason, '-'))
    FROM direct_message_queues
    UNION ALL
    SELECT concat('usage ', account_id, ' ', month, ' sent=', sum(sent), ' reserved=', sum(reserved))
    FROM (SELECT account_id, month, sent, reserved FROM message_usage
      UNION ALL
      SELECT account_id, date_trunc('month', bucket_start AT TIME ZONE 'UTC')::date, sent + delivered + read, 0
      FROM message_rollups WHERE bucket_minutes = 1440) u
    GROUP BY account_id, month HAVING sum(sent) <> 0 OR sum(reserved) <> 0) l";

fn microseconds(at: Option<OffsetDateTime>) -> String {
    or_dash(at.map(|at| at.unix_timestamp_nanos() / 1000))
}

/// The text of a value, or `-`.
fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn message_line(row: &InMemoryMessage) -> String {
    let message = &row.message;
    format!(
        "message {} {} contact={} number={} {} reference={} {} attempts={} send={} expires={} due={} started={} \
         unknown={} hold={} sent={} wa={} code={} error={} conversation={} month={} created={} updated={}",
        message.id,
        row.account_id,
        message.contact_id,
        message.profile_id.map_or(Uuid::nil(), Uuid::from),
        message.kind,
        or_dash(message.client_reference.as_ref()),
        message.status,
        row.attempts,
        microseconds(Some(message.send_at)),
        microseconds(Some(message.expires_at)),
        microseconds(row.due_at),
        microseconds(message.started_at),
        message.is_unknown,
        or_dash(message.hold_reason),
        microseconds(message.sent_at),
        or_dash(message.wa_message_id.as_ref()),
        or_dash(message.error_code),
        or_dash(message.error_message.as_ref()),
        or_dash(message.conversation_id),
        or_dash(row.quota_month),
        microseconds(Some(message.created_at)),
        microseconds(Some(message.updated_at)),
    )
}

/// The messages of a webhook event, one line each. Other events are not those of messages.
pub(super) fn event_lines(account: &str, payload: &Value) -> Vec<String> {
    let items = payload["items"].as_array();
    let items = items.into_iter().flatten();
    items
        .map(|item| format!("event {account} {} {item}", payload["type"]))
        .collect()
}

impl State {
    /// The expected rows of the database, and the events of the last step.
    pub(super) fn lines(&self) -> Vec<String> {
        let tables = &self.tables;
        let mut lines: Vec<String> = tables.messages.values().map(message_line).collect();
        lines.extend(tables.queues.iter().map(|(queue, row)| {
            let profile = queue.profile_id.map_or(Uuid::nil(), Uuid::from);
            format!(
                "queue {} {profile} due={} worker={} until={} hold={}",
                queue.account_id,
                microseconds(row.due_at),
                or_dash(row.worker),
                microseconds(row.worker.map(|_| row.leased_until)),
                or_dash(row.hold_reason),
            )
        }));
        let usage = tables
            .usage
            .iter()
            .filter(|(_, usage)| (usage.sent, usage.reserved) != (0, 0));
        lines.extend(usage.map(|((account, month), usage)| {
            format!(
                "usage {account} {month} sent={} reserved={}",
                usage.sent, usage.reserved
            )
        }));
        let events = tables.events.iter();
        lines.extend(events.flat_map(|(account, event)| event_lines(&account.to_string(), &json!(event))));
        lines.sort_unstable();
        lines
    }
}
