//! SQL conditions on campaigns whose sends may be archived.

/// SQL condition: campaign `c` ended before `$2`, and nothing may change its sends but a status update. Sends of
/// partitions that the operator's term removed cannot be archived.
pub(super) fn over() -> String {
    "c.status IN ('sent', 'completed', 'partial', 'cancelled') AND coalesce(c.completed_at, c.updated_at) < $2
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
        .to_owned()
}
