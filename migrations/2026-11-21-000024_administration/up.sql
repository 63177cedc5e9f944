-- Platform administration: support mode, deletion of accounts, and statistics over all accounts.

-- A membership with `is_support` belongs to a platform administrator in support mode. It expires on its own.
ALTER TABLE account_users
  ADD COLUMN is_support boolean NOT NULL DEFAULT false,
  ADD COLUMN expires_at timestamptz,
  ADD CONSTRAINT account_users_is_support_check CHECK (is_support = (expires_at IS NOT NULL));
CREATE INDEX account_users_expires_at_idx ON account_users (expires_at) WHERE is_support;

-- The platform administrator who started the run in support mode, for the run's audit entry.
ALTER TABLE campaign_queue ADD COLUMN support_admin text;

-- From this time on no member can access the account, and its rows are being deleted.
ALTER TABLE accounts ADD COLUMN deleting_at timestamptz;
CREATE INDEX accounts_created_at_idx ON accounts (created_at DESC, id DESC) WHERE deleting_at IS NULL;

-- Internal: account deletions that are not complete. The process that began one may have crashed, so any worker
-- resumes it.
CREATE TABLE account_deletions (
  account_id uuid CONSTRAINT account_deletions_pkey PRIMARY KEY,
  -- No worker claims the row before this time: it is leased, or waits for a retry.
  due_at timestamptz NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);

-- Internal: subscriptions of deleted accounts that exist, or may still appear, at the payment gateway.
CREATE TABLE gateway_cancellations (
  subscription_id uuid CONSTRAINT gateway_cancellations_pkey PRIMARY KEY,
  account_id uuid NOT NULL,
  -- Null: the gateway may still create it, so a worker searches for it by our id until the time in `until`.
  gateway_subscription_id text,
  until timestamptz NOT NULL,
  due_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX gateway_cancellations_due_at_idx ON gateway_cancellations (due_at);

-- Indexes for the statistics.
CREATE INDEX messages_outbound_idx ON messages (account_id, created_at) WHERE direction = 'outbound';
CREATE INDEX billing_history_paid_at_idx ON billing_history (paid_at) WHERE paid_at IS NOT NULL;
