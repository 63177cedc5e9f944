-- The end of a run reads its in-flight sends by their ids, and counts the others: a campaign of any size ends at the
-- same cost.

-- The sends of a run's latest claim and those that were in flight before it. Only these can be started and have no
-- recorded result. A claim replaces the row, so its writes do not grow with the messages that a run sends. No foreign
-- key, as in `campaign_queue`: campaigns are only marked as deleted.
CREATE TABLE campaign_claims (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  send_ids uuid[] NOT NULL,
  -- Sends that were in flight when the worker began, for example after an error. Its later claims keep them.
  earlier_send_ids uuid[] NOT NULL DEFAULT '{}',
  -- The `retry_at` up to which the run has claimed its retried sends: the next claim begins there.
  retried_until timestamptz,
  CONSTRAINT campaign_claims_pkey PRIMARY KEY (account_id, campaign_id)
);
-- UUIDs do not compress.
ALTER TABLE campaign_claims ALTER COLUMN send_ids SET STORAGE EXTERNAL;
SELECT make_tenant_table('campaign_claims');
SELECT set_storage('campaign_claims', 'queue');
GRANT SELECT, INSERT, UPDATE, DELETE ON campaign_claims TO recado_tenant;

-- Counts a campaign's sends whose outcome is unknown. No send of a normal run has an entry.
CREATE INDEX campaign_sends_unknown_idx ON campaign_sends (account_id, campaign_id) WHERE unknown_at IS NOT NULL;

-- The month whose quota holds the reservations of the run's unstarted sends. The month of the first run stays in
-- `quota_month`, because its messages count there.
ALTER TABLE campaigns ADD COLUMN run_quota_month date;
UPDATE campaigns SET run_quota_month = quota_month WHERE quota_month IS NOT NULL;
