-- The totals of the dashboard as one JSON object. `sums`: the sums of the message columns.
-- $1 account, $2 Monday of the week, $3 first day of the month.
SELECT json_build_object(
  'contacts', (SELECT json_build_object('total', coalesce(sum(contacts), 0)::bigint,
      'new_this_week', coalesce(sum(contacts) FILTER (WHERE day >= $2), 0)::bigint,
      'new_this_month', coalesce(sum(contacts) FILTER (WHERE day >= $3), 0)::bigint)
    FROM contact_counts WHERE account_id = $1),
  'messages', (SELECT {sums} FROM (
      SELECT sent, delivered, read, failed, received FROM message_rollups
      WHERE account_id = $1 AND bucket_minutes = 1440
      UNION ALL SELECT sent, delivered, read, failed, 0 FROM campaign_counter_slots WHERE account_id = $1) m),
  'conversations', (SELECT coalesce(json_agg(json_build_array(status, conversations)), '[]')
    FROM conversation_counts WHERE account_id = $1),
  'campaigns', (SELECT json_build_object('total', count(*),
      'this_month', count(*) FILTER (WHERE created_at >= $3::timestamp AT TIME ZONE 'UTC'))
    FROM campaigns WHERE account_id = $1 AND deleted_at IS NULL),
  'automations', (SELECT json_build_object('active', count(*))
    FROM automations WHERE account_id = $1 AND status = 'active'))::text AS totals
