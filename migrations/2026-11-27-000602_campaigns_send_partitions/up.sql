-- Sends in monthly partitions. `recado migrate` and a worker create them; a retention term drops whole months.

-- The time of the freeze, in whole milliseconds. Null: the audience is not frozen.
ALTER TABLE campaigns ADD COLUMN frozen_at timestamptz;
-- Attribution finds the campaigns whose run may have sent in a time window.
CREATE INDEX campaigns_frozen_updated_at_idx ON campaigns (account_id, updated_at) WHERE frozen_at IS NOT NULL;

DROP TABLE campaign_sends;
-- One row per recipient. The id is derived from campaign and contact, and all sends of a campaign share the time in it:
-- creating the sends twice gives the same rows, so the primary key also keeps a contact from being in a campaign twice.
--
-- No foreign keys: each would cost a look-up and a row lock per send, and a lock on the other table for every new
-- partition. Campaigns and contacts are only marked as deleted; the removal of an account finds its tables in the
-- catalogue.
CREATE TABLE campaign_sends (
  account_id uuid NOT NULL,
  id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  contact_id uuid NOT NULL,
  status text NOT NULL DEFAULT 'pending' CONSTRAINT campaign_sends_status_check
    CHECK (status IN ('pending', 'sent', 'delivered', 'read', 'failed')),
  attempts integer NOT NULL DEFAULT 0,
  -- Set just before the request is sent to WhatsApp; cleared when the request certainly was not sent.
  started_at timestamptz,
  -- The earliest time of the next attempt.
  retry_at timestamptz,
  -- Outcome unknown since this time: the request may have reached WhatsApp.
  unknown_at timestamptz,
  sent_at timestamptz,
  delivered_at timestamptz,
  read_at timestamptz,
  failed_at timestamptz,
  error_code bigint,
  error_message text,
  wa_message_id text,
  -- The time of the freeze: all sends of a campaign get this time, whenever their rows are created.
  created_at timestamptz NOT NULL DEFAULT now(),
  -- The month whose quota the send counts towards, if it is not the campaign's: the send was retried in a later month.
  quota_month date,
  -- WhatsApp's message id of an earlier attempt: a late status update of that message does not apply to this attempt.
  superseded_wa_message_id text,
  -- Failed because WhatsApp never reported a status: the message may have arrived.
  never_confirmed boolean NOT NULL DEFAULT false,
  -- The error code of the failure before the current attempt; null if there was none or it had no code.
  earlier_error_code bigint,
  -- The number of consecutive failures that ended with that one.
  earlier_failures integer NOT NULL DEFAULT 0,
  -- The price from WhatsApp's status updates, without nulls, and the status that reported it. Not indexed, so that a
  -- status update stays a HOT update.
  pricing jsonb,
  CONSTRAINT campaign_sends_pkey PRIMARY KEY (account_id, id)
) PARTITION BY RANGE (id);
-- The order in which a run sends. Not unique: a unique index needs the partition key, and `id` already is unique per
-- campaign and contact.
CREATE INDEX campaign_sends_campaign_id_idx ON campaign_sends (account_id, campaign_id, contact_id);
-- Attribution of an order looks up sends by contact. No indexed column changes when a message is sent, delivered or
-- read, so these updates are HOT updates.
CREATE INDEX campaign_sends_contact_id_idx ON campaign_sends (account_id, contact_id);
CREATE INDEX campaign_sends_retry_at_idx ON campaign_sends (account_id, campaign_id, retry_at)
  WHERE retry_at IS NOT NULL;
CREATE INDEX campaign_sends_unknown_at_idx ON campaign_sends (unknown_at) WHERE unknown_at IS NOT NULL;
-- Finds a campaign's failed sends without reading all of its sends. Only failures and their retries write this index.
CREATE INDEX campaign_sends_failed_at_idx ON campaign_sends (account_id, campaign_id, failed_at)
  WHERE failed_at IS NOT NULL;
SELECT make_tenant_table('campaign_sends');
GRANT SELECT, INSERT, UPDATE ON campaign_sends TO recado_tenant;
