-- What the messages of an account cost in a month of its time zone. Only for currencies that the account has alerts for:
-- status updates add to the sum under the row's lock, instead of adding up `cost_rollups`.
CREATE TABLE cost_months (
  account_id uuid NOT NULL CONSTRAINT cost_months_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  currency text NOT NULL,
  -- The first day.
  month date NOT NULL,
  -- The name of the time zone in which the month begins and ends.
  zone text NOT NULL,
  amount numeric NOT NULL,
  -- When `amount` was last computed from `cost_rollups`. Null: not since the account's alerts were set.
  summed_at timestamptz,
  CONSTRAINT cost_months_pkey PRIMARY KEY (account_id, currency, month)
);
SELECT make_tenant_table('cost_months');
SELECT set_storage('cost_months', 'counter');
GRANT SELECT, INSERT, UPDATE ON cost_months TO recado_tenant;

-- The alerts that were given: one for each amount, currency and month.
CREATE TABLE given_cost_alerts (
  account_id uuid NOT NULL CONSTRAINT given_cost_alerts_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  currency text NOT NULL,
  month date NOT NULL,
  threshold numeric NOT NULL,
  given_at timestamptz NOT NULL,
  CONSTRAINT given_cost_alerts_pkey PRIMARY KEY (account_id, currency, month, threshold)
);
SELECT make_tenant_table('given_cost_alerts');
SELECT set_storage('given_cost_alerts', 'entity');
GRANT SELECT, INSERT ON given_cost_alerts TO recado_tenant;
