-- Subscriptions, and the use of the monthly message quota.

CREATE TABLE subscriptions (
  account_id uuid NOT NULL CONSTRAINT subscriptions_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  plan text NOT NULL,
  cycle text NOT NULL CONSTRAINT subscriptions_cycle_check CHECK (cycle IN ('MONTHLY', 'YEARLY')),
  status text NOT NULL CONSTRAINT subscriptions_status_check
    CHECK (status IN ('active', 'pending', 'past_due', 'inactive', 'cancelled')),
  billing_type text NOT NULL,
  -- Cents.
  value bigint NOT NULL,
  billing_email text,
  gateway_customer_id text,
  gateway_subscription_id text,
  current_period_start timestamptz,
  current_period_end timestamptz,
  cancelled_at timestamptz,
  inactivated_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT subscriptions_pkey PRIMARY KEY (account_id, id)
);
CREATE UNIQUE INDEX subscriptions_live_unique ON subscriptions (account_id)
  WHERE status IN ('active', 'pending', 'past_due');
CREATE INDEX subscriptions_created_at_idx ON subscriptions (account_id, created_at DESC);
SELECT make_tenant_table('subscriptions');

-- Outbound messages of a calendar month (UTC): sent, and reserved for runs that are still sending.
CREATE TABLE message_usage (
  account_id uuid NOT NULL CONSTRAINT message_usage_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  month date NOT NULL,
  sent bigint NOT NULL DEFAULT 0 CONSTRAINT message_usage_sent_check CHECK (sent >= 0),
  reserved bigint NOT NULL DEFAULT 0 CONSTRAINT message_usage_reserved_check CHECK (reserved >= 0),
  CONSTRAINT message_usage_pkey PRIMARY KEY (account_id, month)
);
SELECT make_tenant_table('message_usage');
