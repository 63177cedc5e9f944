//! Statements of the metric reports.

use super::window::{count, daily, money};

/// A metric's display name, by default its name.
const DISPLAY_NAME: &str = "coalesce(m.display_name, m.metric_name)";

/// `$1`: the account; `$2`: the source, or null.
pub(super) fn list() -> String {
    format!(
        "SELECT json_build_object(
           'metrics', (SELECT coalesce(json_agg(json_build_object('metric_name', m.metric_name,
               'display_name', {DISPLAY_NAME}, 'sources', s.sources, 'total_events', m.total_events,
               'total_value', m.total_value::text, 'last_event_at', m.last_event_at, 'category', m.category)
               ORDER BY m.total_events DESC, m.metric_name), '[]')
             FROM metrics m
             JOIN (SELECT metric_name, array_agg(source ORDER BY source COLLATE \"C\") AS sources
                   FROM metric_sources WHERE account_id = $1 GROUP BY metric_name) s USING (metric_name)
             WHERE m.account_id = $1 AND m.total_events > 0 AND ($2 IS NULL OR $2 = ANY (s.sources))),
           'sources', (SELECT coalesce(json_agg(source ORDER BY source COLLATE \"C\"), '[]')
             FROM (SELECT DISTINCT source FROM metric_sources WHERE account_id = $1) s))::text AS totals"
    )
}

/// The metric `$8` over a window. No event has a future time and the window ends today, so a contact whose latest
/// event is not before the window has an event in it.
pub(super) fn metric() -> String {
    let shown = [count("events", "events"), money("value", "value")];
    let days = daily(
        "metric_rollups",
        "AND metric_name = $8",
        "sum(events) AS events, sum(value) AS value",
        &shown.join(", "),
    );
    format!(
        "SELECT json_build_object('metric_name', m.metric_name, 'display_name', {DISPLAY_NAME}, 'days', {days},
           'unique_contacts', (SELECT coalesce(sum(last_contacts), 0)::bigint FROM (
              SELECT last_contacts FROM metric_rollups
              WHERE account_id = $1 AND metric_name = $8 AND bucket_minutes = 1440 AND bucket_start >= $6
              UNION ALL SELECT last_contacts FROM metric_rollups
              WHERE account_id = $1 AND metric_name = $8 AND bucket_minutes = 15 AND bucket_start >= $4
                AND bucket_start < $6) t))::text AS totals
         FROM metrics m
         WHERE m.account_id = $1 AND m.metric_name = $8 AND m.total_events > 0"
    )
}

/// `$2`: the metric; `$3`: the maximum number of contacts.
pub(super) const TOP_CONTACTS: &str = "
    SELECT (SELECT coalesce(json_agg(json_build_object('contact_id', t.contact_id, 'contact_name', t.name,
        'event_count', t.event_count, 'total_value', t.total_value::text, 'last_event_at', t.last_event_at)
        ORDER BY t.total_value DESC, t.contact_id), '[]')
      FROM (SELECT p.contact_id, c.name, p.event_count, p.total_value, p.last_event_at FROM metric_contacts p
        JOIN contacts c ON c.account_id = p.account_id AND c.id = p.contact_id AND c.deleted_at IS NULL
        WHERE p.account_id = $1 AND p.metric_name = $2 AND p.event_count > 0
        ORDER BY p.total_value DESC, p.contact_id LIMIT $3) t)::text AS totals
    FROM metrics m WHERE m.account_id = $1 AND m.metric_name = $2 AND m.total_events > 0";

/// `$2`: the metric; `$3`: the maximum number of events; `$4`: the cursor. An index finds the first event after it.
/// The month of the cursor is read, and earlier months if the page is not full.
pub(super) fn activity(cursor: bool) -> String {
    let (cursor_exists, after) = if cursor {
        (
            "EXISTS (SELECT 1 FROM metric_events k WHERE k.account_id = $1 AND k.metric_name = $2 AND k.id = $4
               AND k.occurred_at = (SELECT d.occurred_at FROM metric_event_keys d
                 WHERE d.account_id = $1 AND d.id = $4))",
            "AND (e.occurred_at, e.id)
               < ((SELECT d.occurred_at FROM metric_event_keys d WHERE d.account_id = $1 AND d.id = $4), $4)
             AND e.occurred_at <= (SELECT d.occurred_at FROM metric_event_keys d
               WHERE d.account_id = $1 AND d.id = $4)",
        )
    } else {
        ("true", "")
    };
    format!(
        "SELECT json_build_object('known', {cursor_exists}, 'items',
           (SELECT coalesce(json_agg(json_build_object('id', t.id, 'contact_name', t.name, 'contact_id', t.contact_id,
              'value', t.value::text, 'currency', t.currency, 'source', t.source, 'properties', t.properties,
              'occurred_at', t.occurred_at) ORDER BY t.occurred_at DESC, t.id DESC), '[]')
            FROM (SELECT e.*, c.name FROM metric_events e
              LEFT JOIN contacts c ON c.account_id = e.account_id AND c.id = e.contact_id AND c.deleted_at IS NULL
              WHERE e.account_id = $1 AND e.metric_name = $2 {after}
              ORDER BY e.occurred_at DESC, e.id DESC LIMIT $3) t))::text AS totals
         FROM metrics m WHERE m.account_id = $1 AND m.metric_name = $2 AND m.total_events > 0"
    )
}
