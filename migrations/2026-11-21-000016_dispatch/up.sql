-- Runs at the speed of their numbers: sends change in place, and all servers share a number's pace.

-- A send is updated several times in its life. Where no index depends on what changes (not even by its condition), the new
-- row stays on its page and no index is written. What is left are indexes of what is rare: sends that wait for another
-- try, and sends of which nobody knows.
DROP INDEX campaign_sends_due_idx;
DROP INDEX campaign_sends_open_idx;
DROP INDEX campaign_sends_wa_message_id_idx;
ALTER TABLE campaign_sends
  DROP COLUMN claimed_by,
  -- Failed because nobody ever said what became of it: it may have arrived.
  ADD COLUMN never_confirmed boolean NOT NULL DEFAULT false;
UPDATE campaign_sends SET never_confirmed = true, unknown_at = NULL WHERE status = 'failed' AND unknown_at IS NOT NULL;
ALTER TABLE campaign_sends SET (fillfactor = 70);
CREATE INDEX campaign_sends_retry_at_idx ON campaign_sends (account_id, campaign_id, retry_at)
  WHERE retry_at IS NOT NULL;
CREATE INDEX campaign_sends_unknown_at_idx ON campaign_sends (unknown_at) WHERE unknown_at IS NOT NULL;

-- The platform's ids of messages, for its news of them that do not name the send.
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

-- Where a run stands in the line of those that wait for a worker.
ALTER TABLE campaign_queue ADD COLUMN waiting_since timestamptz NOT NULL DEFAULT now();
UPDATE campaign_queue SET waiting_since = created_at;

-- Directory: the next free place of each number. A number may serve several accounts. What a crash loses of it is at most
-- a fraction of a second.
CREATE UNLOGGED TABLE phone_number_send_slots (
  phone_number_id text CONSTRAINT phone_number_send_slots_pkey PRIMARY KEY,
  next_slot_at timestamptz NOT NULL
) WITH (fillfactor = 50);
