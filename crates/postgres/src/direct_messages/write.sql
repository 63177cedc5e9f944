-- Writes locked messages. `keys`: one row a message. A message that is due again was not started; any other change
-- takes it out of its queue. A reservation ends with the pending status.
UPDATE direct_messages m SET status = w.status, wa_message_id = w.wa_message_id, error_code = w.error_code,
  error_message = w.error_message, pricing = w.pricing, conversation_id = coalesce(w.conversation_id, m.conversation_id),
  due_at = CASE WHEN w.again_in IS NOT NULL THEN now() + w.again_in * interval '1 microsecond'
    WHEN w.is_pending THEN m.due_at END,
  started_at = CASE WHEN w.again_in IS NULL THEN m.started_at END,
  unknown_at = CASE WHEN w.is_unknown THEN now() WHEN w.is_pending AND w.again_in IS NULL THEN m.unknown_at END,
  attempts = m.attempts + w.attempt,
  hold_rule = NULL,
  hold_reason = CASE WHEN w.again_in IS NOT NULL THEN w.hold_reason WHEN w.is_pending THEN m.hold_reason END,
  sent_at = CASE WHEN w.becomes_sent THEN coalesce(m.sent_at, now()) ELSE m.sent_at END,
  failed_at = CASE WHEN w.status = 'failed' THEN coalesce(m.failed_at, now()) END,
  quota_month = CASE WHEN w.is_pending THEN m.quota_month END, updated_at = now()
FROM {keys} w WHERE m.account_id = $1 AND m.id = w.id
