WITH events AS MATERIALIZED (
  SELECT cardinality($5) > 0 AND has_subscribers($1, 'message.sent') AS are_due
), may_write AS MATERIALIZED (
  SELECT $9 OR NOT are_due AS yes FROM events
), held AS (
  SELECT c.profile_id, c.reach = 'any' AS by_user_id, (SELECT category = 'MARKETING' FROM message_templates
      WHERE account_id = $1 AND id = c.template_id OFFSET 0) AS is_marketing,
    NOT $10 AND (c.budget IS NOT NULL AND NOT c.simulated OR EXISTS (SELECT FROM account_settings s
      WHERE s.account_id = $1 AND (s.quiet_hours IS NOT NULL OR s.max_marketing_per_contact IS NOT NULL)))
      AS needs_checks
  FROM campaign_queue q
    CROSS JOIN LATERAL (SELECT * FROM campaigns WHERE account_id = $1 AND id = q.campaign_id OFFSET 0) c
    JOIN accounts a ON a.id = q.account_id
  WHERE q.account_id = $1 AND q.campaign_id = $2 AND q.worker = $3
    AND c.status = 'sending' AND c.paused_at IS NULL AND c.deleted_at IS NULL AND a.status = 'active'
    AND NOT EXISTS (SELECT FROM whatsapp_profiles p WHERE p.account_id = $1 AND p.id = c.profile_id
      AND p.verification_state <> 'verified' AND NOT c.simulated)
    AND (SELECT yes FROM may_write)
  FOR SHARE OF q
), recorded AS (
  UPDATE campaign_sends s SET status = 'sent', sent_at = now(), unknown_at = NULL, wa_message_id = w.message_id
  FROM (SELECT * FROM unnest((SELECT $5), (SELECT $6)) AS w (id, message_id) LIMIT (SELECT cardinality($5))) w
  WHERE s.account_id = (SELECT $1) AND s.id = w.id AND s.id >= $8 AND s.campaign_id IS NOT DISTINCT FROM $2 AND s.status = 'pending'
    AND s.started_at IS NOT NULL AND (SELECT yes FROM may_write)
  RETURNING s.id, s.contact_id, s.wa_message_id, s.quota_month, s.by_user_id
), named AS (
  INSERT INTO sent_messages (account_id, wa_message_id, send_id)
  SELECT $1, wa_message_id, id FROM recorded WHERE wa_message_id IS NOT NULL ON CONFLICT DO NOTHING
), listed AS (
  INSERT INTO campaign_send_times (account_id, campaign_id, sent_at, first_send_id, send_ids)
  SELECT $1, $2, now(), ids[1], ids FROM (SELECT array_agg(id ORDER BY id) AS ids FROM recorded) r
  WHERE ids IS NOT NULL
), counted AS (
  INSERT INTO campaign_counter_slots AS n (account_id, campaign_id, slot, created_at, pending, sent)
  SELECT $1, f.campaign_id, counter_slot(f.total), f.created_at, -r.n, r.n
  FROM (SELECT count(*) AS n FROM recorded) r, campaign_counter_slots f
  WHERE f.account_id = $1 AND f.campaign_id = $2 AND f.slot = 0 AND r.n > 0
  ON CONFLICT (account_id, campaign_id, slot) DO UPDATE
    SET pending = n.pending + excluded.pending, sent = n.sent + excluded.sent
  RETURNING n.slot
), used AS (
  INSERT INTO message_usage_slots AS u (account_id, month, slot, sent, reserved)
  SELECT $1, f.month, counter_slot(f.reserved), m.n, -m.n
  FROM (SELECT coalesce(r.quota_month, (SELECT quota_month FROM campaigns WHERE account_id = $1 AND id = $2)) AS month,
      count(*) AS n
    FROM recorded r WHERE EXISTS (SELECT 1 FROM counted) GROUP BY 1) m
  CROSS JOIN LATERAL (SELECT month, reserved FROM message_usage_slots
    WHERE account_id = $1 AND month = m.month AND slot = 0 OFFSET 0) f
  ORDER BY f.month
  ON CONFLICT (account_id, month, slot) DO UPDATE
    SET sent = u.sent + excluded.sent, reserved = u.reserved + excluded.reserved
), concurrent_runs AS MATERIALIZED (
  SELECT q.campaign_id, first_id(c.frozen_at) AS first, last_id(c.frozen_at) AS last
  FROM campaign_queue q CROSS JOIN LATERAL (SELECT profile_id, frozen_at FROM campaigns
    WHERE account_id = $1 AND id = q.campaign_id OFFSET 0) c
  WHERE q.account_id = $1 AND q.campaign_id <> $2 AND c.profile_id = (SELECT profile_id FROM held)
), next AS MATERIALIZED (
  SELECT s.id, (SELECT max(o.started_at) FROM concurrent_runs r CROSS JOIN LATERAL (
      SELECT started_at FROM campaign_sends
      WHERE account_id = $1 AND campaign_id = r.campaign_id AND contact_id = s.contact_id
        AND id BETWEEN r.first AND r.last OFFSET 0) o
    ) + $7 * interval '1 microsecond' AS free_at
  FROM (SELECT * FROM unnest((SELECT $4)) AS w (id) LIMIT (SELECT cardinality($4))) w
    JOIN campaign_sends s ON s.account_id = (SELECT $1) AND s.id = w.id AND s.id >= $8
  WHERE s.campaign_id IS NOT DISTINCT FROM $2 AND EXISTS (SELECT 1 FROM held WHERE NOT needs_checks)
), started AS (
  UPDATE campaign_sends s SET started_at = now(), hold_reason = NULL, is_marketing = (SELECT is_marketing FROM held),
    by_user_id = (SELECT by_user_id FROM held) AND EXISTS (SELECT 1 FROM contacts c
      WHERE c.account_id = $1 AND c.id = s.contact_id AND c.phone IS NULL)
  FROM next n
  WHERE s.account_id = (SELECT $1) AND s.id = n.id AND s.id >= $8 AND s.status = 'pending' AND s.started_at IS NULL
    AND (n.free_at <= now()) IS NOT FALSE
  RETURNING s.id, EXISTS (SELECT 1 FROM contacts c WHERE c.account_id = $1 AND c.id = s.contact_id
    AND c.deleted_at IS NULL AND c.opted_out_at IS NULL
    AND (c.same_person_as IS NULL OR NOT same_person_opted_out($1, c.same_person_as))
    AND (c.phone IS NOT NULL OR (SELECT by_user_id FROM held))) AS reachable
), deferred AS (
  UPDATE campaign_sends s SET retry_at = n.free_at, hold_reason = NULL FROM next n
  WHERE s.account_id = (SELECT $1) AND s.id = n.id AND s.id >= $8 AND s.status = 'pending' AND s.started_at IS NULL
    AND n.free_at > now()
), due AS (
  SELECT id, contact_id, by_user_id FROM recorded r WHERE (SELECT are_due FROM events)
    AND (SELECT e.id FROM erasures e WHERE e.account_id = $1 AND e.contact_id = r.contact_id) IS NULL
)
SELECT EXISTS (SELECT 1 FROM held) AS goes_on, ARRAY (SELECT id FROM started) AS started,
  ARRAY (SELECT id FROM started WHERE NOT reachable) AS unreachable,
  NOT (SELECT yes FROM may_write) AS needs_transaction,
  cardinality($4) > 0 AND EXISTS (SELECT 1 FROM held WHERE needs_checks) AS needs_checks,
  ARRAY (SELECT id FROM due ORDER BY id) AS event_sends,
  ARRAY (SELECT contact_id FROM due ORDER BY id) AS event_contacts,
  ARRAY (SELECT by_user_id FROM due ORDER BY id) AS event_addresses
