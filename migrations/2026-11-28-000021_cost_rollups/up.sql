-- What messages cost, and what the budgets of campaigns have reserved.

-- Messages that were delivered or read and have a price, by 15 minutes. Zeros and empty texts: a message without one.
CREATE TABLE cost_rollups (
  account_id uuid NOT NULL CONSTRAINT cost_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  -- By the earliest status update with a price.
  bucket_start timestamptz NOT NULL,
  campaign_id uuid NOT NULL,
  profile_id uuid NOT NULL,
  template_id uuid NOT NULL,
  category text NOT NULL,
  market text NOT NULL,
  currency text NOT NULL,
  amount numeric NOT NULL DEFAULT 0,
  messages bigint NOT NULL DEFAULT 0,
  billable bigint NOT NULL DEFAULT 0,
  free bigint NOT NULL DEFAULT 0,
  -- Billable messages whose price is unknown.
  unpriced bigint NOT NULL DEFAULT 0,
  CONSTRAINT cost_rollups_pkey
    PRIMARY KEY (account_id, bucket_start, campaign_id, profile_id, template_id, category, market, currency)
);
CREATE INDEX cost_rollups_campaign_id_idx ON cost_rollups (account_id, campaign_id);
SELECT make_tenant_table('cost_rollups');
SELECT set_storage('cost_rollups', 'rollup');
GRANT SELECT, INSERT, UPDATE ON cost_rollups TO recado_tenant;

-- The reservations of a campaign with a budget: the rates of its started sends that have no price yet.
CREATE TABLE campaign_budgets (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  reserved numeric NOT NULL DEFAULT 0,
  CONSTRAINT campaign_budgets_pkey PRIMARY KEY (account_id, campaign_id),
  CONSTRAINT campaign_budgets_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id)
);
SELECT make_tenant_table('campaign_budgets');
SELECT set_storage('campaign_budgets', 'counter');
GRANT SELECT, INSERT, UPDATE ON campaign_budgets TO recado_tenant;
