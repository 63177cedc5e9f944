-- A page of a campaign's sends: those that were sent, latest first, then the others by id. `deleted`: ids of contacts
-- that were deleted since the start of the run; `ids`, `time_ids`: bound ids of sends to those of campaign $2;
-- `of_campaign`: of campaign $2, without its index; `fence`: optimization fence.
-- $1 account, $2 campaign, $3 limit, $4 offset.
WITH deleted AS MATERIALIZED (
  SELECT s.id, s.sent_at FROM ({deleted}) d CROSS JOIN LATERAL (SELECT id, sent_at FROM campaign_sends
    WHERE account_id = $1 AND campaign_id = $2 AND contact_id = d.id AND {ids} {fence}) s
), sent AS MATERIALIZED (
  SELECT s.id, t.sent_at FROM campaign_send_times t CROSS JOIN LATERAL unnest(t.send_ids) s (id)
  WHERE t.account_id = $1 AND t.campaign_id = $2 AND {time_ids} AND s.id NOT IN (SELECT id FROM deleted)
  ORDER BY t.sent_at DESC, s.id LIMIT $3 OFFSET $4
), rest AS MATERIALIZED (
  -- What the page takes of the others, and whether all of these have failed. Executed only if `sent` does not fill it.
  SELECT $3 - (SELECT count(*) FROM sent) AS n,
    greatest(0, $4 + (SELECT count(*) FROM deleted WHERE sent_at IS NOT NULL)
      - (SELECT coalesce(sum(cardinality(t.send_ids)), 0) FROM campaign_send_times t
        WHERE t.account_id = $1 AND t.campaign_id = $2 AND {time_ids})) AS skipped,
    coalesce((SELECT pending = 0 FROM campaign_counters WHERE account_id = $1 AND campaign_id = $2), false) AS failed
), failed AS MATERIALIZED (
  SELECT id FROM campaign_sends
  WHERE account_id = $1 AND campaign_id = $2 AND {ids} AND failed_at IS NOT NULL AND sent_at IS NULL
    AND id NOT IN (SELECT id FROM deleted) AND (SELECT count(*) FROM sent) < $3 AND (SELECT failed FROM rest)
), others AS MATERIALIZED (
  (SELECT id FROM failed ORDER BY id LIMIT (SELECT n FROM rest) OFFSET (SELECT skipped FROM rest))
  UNION ALL
  SELECT o.id FROM (SELECT id FROM campaign_sends
    WHERE account_id = $1 AND {of_campaign} AND {ids} AND sent_at IS NULL AND id NOT IN (SELECT id FROM deleted)
    ORDER BY id LIMIT (SELECT n FROM rest) OFFSET (SELECT skipped FROM rest)) o
  WHERE (SELECT count(*) FROM sent) < $3 AND NOT (SELECT failed FROM rest)
)
SELECT s.id, s.contact_id, s.status, s.sent_at, s.error_code, s.error_message, s.wa_message_id, s.pricing,
  s.failed_at, s.hold_reason, s.retry_at,
  CASE WHEN s.error_code IS NOT DISTINCT FROM s.earlier_error_code THEN s.earlier_failures ELSE 0 END::bigint + 1
    AS times,
  (c.opted_out_at IS NULL AND c.consent_at >= s.failed_at) IS TRUE AS opted_in_since, c.name, c.phone,
  c.wa_user_id, c.email, s.by_user_id, s.started_at IS NOT NULL AS has_left
FROM (SELECT id, sent_at FROM sent UNION ALL
    SELECT id, NULL FROM others WHERE (SELECT count(*) FROM sent) < $3) k
  CROSS JOIN LATERAL (SELECT * FROM campaign_sends WHERE account_id = $1 AND id = k.id {fence}) s
  CROSS JOIN LATERAL (SELECT name, phone, wa_user_id, email, opted_out_at, consent_at FROM contacts
    WHERE account_id = $1 AND id = s.contact_id {fence}) c
ORDER BY k.sent_at DESC NULLS LAST, k.id
