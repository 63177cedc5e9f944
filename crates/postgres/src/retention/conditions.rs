//! SQL conditions on campaigns whose sends may be archived, and on direct messages that may be removed.

/// The time up to which the limit of marketing messages of account `$1` counts no start: all times without a limit. It is
/// read by the statement that removes rows, because a limit may be set during a run.
const UNCOUNTED_UNTIL: &str =
    "coalesce((SELECT now() - (s.max_marketing_per_contact ->> 'days')::int * interval '24 hours'
       FROM account_settings s WHERE s.account_id = $1), 'infinity')";

/// SQL condition: direct message `m` was created and due before `$2`, has ended, and no limit counts it.
pub(super) fn removable_message() -> String {
    format!(
        "m.account_id = $1 AND m.created_at < $2 AND m.send_at < $2 AND m.status <> 'pending'
         AND (m.template_id IS NULL OR m.is_marketing IS FALSE OR m.status = 'failed' OR m.started_at IS NULL
           OR m.started_at <= {UNCOUNTED_UNTIL})"
    )
}

/// SQL condition: campaign `c` ended before `$2`, the limit of marketing messages counts none of its starts, and nothing
/// may change its sends but a status update. Sends of partitions that the operator's term removed cannot be archived.
pub(super) fn over() -> String {
    format!(
        "c.status IN ('sent', 'completed', 'partial', 'cancelled') AND coalesce(c.completed_at, c.updated_at) < $2
     AND coalesce(c.completed_at, c.updated_at) <= {UNCOUNTED_UNTIL}
     AND c.frozen_at >= (SELECT coalesce(max(h.retained_from), '-infinity') FROM partition_horizons h
       WHERE h.table_name = 'campaign_sends')
     AND c.retry_scheduled_at IS NULL
     AND NOT EXISTS (SELECT 1 FROM campaign_queue q WHERE q.account_id = c.account_id AND q.campaign_id = c.id)
     AND NOT EXISTS (SELECT 1 FROM campaign_recipient_batches b
       WHERE b.account_id = c.account_id AND b.campaign_id = c.id)
     AND NOT EXISTS (SELECT 1 FROM campaign_retry_batches b
       WHERE b.account_id = c.account_id AND b.campaign_id = c.id)
     AND NOT EXISTS (SELECT 1 FROM campaign_sends s WHERE s.account_id = c.account_id AND s.campaign_id = c.id
       AND s.unknown_at IS NOT NULL AND s.id BETWEEN first_id(c.frozen_at) AND last_id(c.frozen_at))"
    )
}
