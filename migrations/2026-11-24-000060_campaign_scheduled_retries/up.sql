-- Scheduled retries: the campaign shows the time, the queue row holds the request. The queue is small and never
-- distributed, so that a worker can find due retries across accounts.

ALTER TABLE campaigns ADD COLUMN retry_scheduled_at timestamptz;

CREATE TABLE campaign_retries (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  due_at timestamptz NOT NULL,
  -- The requested error codes, with 0 for failures without a code; null: all.
  codes bigint[],
  force boolean NOT NULL,
  -- The user who scheduled the retry: its start is attributed to them.
  user_id uuid NOT NULL,
  support_admin text,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT campaign_retries_pkey PRIMARY KEY (account_id, campaign_id),
  CONSTRAINT campaign_retries_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id) ON DELETE CASCADE
);
CREATE INDEX campaign_retries_due_at_idx ON campaign_retries (due_at);
SELECT make_tenant_table('campaign_retries');
