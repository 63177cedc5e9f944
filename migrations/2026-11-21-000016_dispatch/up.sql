-- Dispatch at each number's send rate: HOT updates of sends, and a send-rate limiter that all servers share.

-- A send is updated several times. If no index depends on the changed columns (not even in its predicate), the update
-- is a HOT update: the new row version stays on its page and no index is written. The indexes that remain cover rare
-- states only: sends that wait for a retry, and sends with an unknown outcome.
DROP INDEX campaign_sends_due_idx;
DROP INDEX campaign_sends_open_idx;
DROP INDEX campaign_sends_wa_message_id_idx;
ALTER TABLE campaign_sends
  DROP COLUMN claimed_by,
  -- Failed because WhatsApp never reported a status: the message may have arrived.
  ADD COLUMN never_confirmed boolean NOT NULL DEFAULT false;
UPDATE campaign_sends SET never_confirmed = true, unknown_at = NULL WHERE status = 'failed' AND unknown_at IS NOT NULL;
ALTER TABLE campaign_sends SET (fillfactor = 70);
CREATE INDEX campaign_sends_retry_at_idx ON campaign_sends (account_id, campaign_id, retry_at)
  WHERE retry_at IS NOT NULL;
CREATE INDEX campaign_sends_unknown_at_idx ON campaign_sends (unknown_at) WHERE unknown_at IS NOT NULL;

-- WhatsApp's message ids, for status updates that do not name the send.
CREATE TABLE sent_messages (
  account_id uuid NOT NULL CONSTRAINT sent_messages_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  wa_message_id text NOT NULL,
  send_id uuid NOT NULL,
  CONSTRAINT sent_messages_pkey PRIMARY KEY (account_id, wa_message_id)
);
SELECT make_tenant_table('sent_messages');
INSERT INTO sent_messages (account_id, wa_message_id, send_id)
SELECT account_id, wa_message_id, id FROM campaign_sends WHERE wa_message_id IS NOT NULL
ON CONFLICT DO NOTHING;

-- The run's position in the queue of runs that wait for a worker.
ALTER TABLE campaign_queue ADD COLUMN waiting_since timestamptz NOT NULL DEFAULT now();
UPDATE campaign_queue SET waiting_since = created_at;

-- Directory: the next free send slot of each number. Several accounts may share a number. A crash loses at most a
-- fraction of a second of it, so the table is UNLOGGED.
CREATE UNLOGGED TABLE phone_number_send_slots (
  phone_number_id text CONSTRAINT phone_number_send_slots_pkey PRIMARY KEY,
  next_slot_at timestamptz NOT NULL
) WITH (fillfactor = 50);
