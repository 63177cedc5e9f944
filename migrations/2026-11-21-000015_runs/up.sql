-- Runs that are announced and prepared later, scheduled campaigns, and failed sends that are tried again.

ALTER TABLE campaign_queue
  -- False: the campaign is sending already, its audience is still to be frozen.
  ADD COLUMN prepared boolean NOT NULL DEFAULT true,
  ALTER COLUMN user_id DROP NOT NULL,
  DROP CONSTRAINT campaign_queue_trigger_check,
  ADD CONSTRAINT campaign_queue_trigger_check CHECK (trigger IN ('execute', 'send', 'schedule', 'retry'));

CREATE INDEX campaigns_due_idx ON campaigns (scheduled_at) WHERE status = 'scheduled' AND deleted_at IS NULL;

ALTER TABLE campaign_sends
  -- The month that it counts in, where that is not the campaign's: it was tried again later.
  ADD COLUMN quota_month date,
  -- The message of an earlier try: late news of it says nothing about this one.
  ADD COLUMN superseded_wa_message_id text;
