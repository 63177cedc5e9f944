DROP TABLE campaign_sends;
DROP INDEX campaigns_frozen_updated_at_idx;
ALTER TABLE campaigns DROP COLUMN frozen_at;
DROP FUNCTION send_id(timestamptz, uuid, uuid);
DROP FUNCTION last_id(timestamptz);
DROP FUNCTION first_id(timestamptz);
CREATE TABLE campaign_sends (
  account_id uuid NOT NULL,
  id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  contact_id uuid NOT NULL,
  status text NOT NULL DEFAULT 'pending' CONSTRAINT campaign_sends_status_check
    CHECK (status IN ('pending', 'sent', 'delivered', 'read', 'failed')),
  attempts integer NOT NULL DEFAULT 0,
  started_at timestamptz,
  retry_at timestamptz,
  unknown_at timestamptz,
  sent_at timestamptz,
  delivered_at timestamptz,
  read_at timestamptz,
  failed_at timestamptz,
  error_code bigint,
  error_message text,
  wa_message_id text,
  created_at timestamptz NOT NULL DEFAULT now(),
  quota_month date,
  superseded_wa_message_id text,
  never_confirmed boolean NOT NULL DEFAULT false,
  earlier_error_code bigint,
  earlier_failures integer NOT NULL DEFAULT 0,
  pricing jsonb,
  CONSTRAINT campaign_sends_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT campaign_sends_contact_id_unique UNIQUE (account_id, campaign_id, contact_id),
  CONSTRAINT campaign_sends_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id) ON DELETE CASCADE,
  CONSTRAINT campaign_sends_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES contacts (account_id, id)
) WITH (fillfactor = 35);
CREATE INDEX campaign_sends_contact_id_idx ON campaign_sends (account_id, contact_id);
CREATE INDEX campaign_sends_retry_at_idx ON campaign_sends (account_id, campaign_id, retry_at)
  WHERE retry_at IS NOT NULL;
CREATE INDEX campaign_sends_unknown_at_idx ON campaign_sends (unknown_at) WHERE unknown_at IS NOT NULL;
CREATE INDEX campaign_sends_failed_at_idx ON campaign_sends (account_id, campaign_id, failed_at)
  WHERE failed_at IS NOT NULL;
SELECT make_tenant_table('campaign_sends');
GRANT SELECT, INSERT, UPDATE ON campaign_sends TO recado_tenant;
