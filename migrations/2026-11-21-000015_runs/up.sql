-- Queued starts, scheduled campaigns, and retries of failed sends.

ALTER TABLE campaign_queue
  -- False: the campaign already is `sending`, but its recipients are not frozen yet.
  ADD COLUMN prepared boolean NOT NULL DEFAULT true,
  ALTER COLUMN user_id DROP NOT NULL,
  DROP CONSTRAINT campaign_queue_trigger_check,
  ADD CONSTRAINT campaign_queue_trigger_check CHECK (trigger IN ('execute', 'send', 'schedule', 'retry'));

CREATE INDEX campaigns_due_idx ON campaigns (scheduled_at) WHERE status = 'scheduled' AND deleted_at IS NULL;

ALTER TABLE campaign_sends
  -- The month whose quota the send counts towards, if it is not the campaign's: the send was retried in a later month.
  ADD COLUMN quota_month date,
  -- WhatsApp's message id of an earlier attempt: a late status update of that message does not apply to this attempt.
  ADD COLUMN superseded_wa_message_id text;
