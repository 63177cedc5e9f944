-- Platform administrators: support mode, the deletion of accounts, figures over all of them.

-- A marked membership is an administrator's in support mode; it ends by itself.
ALTER TABLE account_users
  ADD COLUMN is_support boolean NOT NULL DEFAULT false,
  ADD COLUMN expires_at timestamptz,
  ADD CONSTRAINT account_users_is_support_check CHECK (is_support = (expires_at IS NOT NULL));
CREATE INDEX account_users_expires_at_idx ON account_users (expires_at) WHERE is_support;

-- What a run is told of whoever started it, for its audit entry.
ALTER TABLE campaign_queue ADD COLUMN support_admin text;

-- From then on the account is nobody's any more, and its rows are being removed.
ALTER TABLE accounts ADD COLUMN deleting_at timestamptz;
CREATE INDEX accounts_created_at_idx ON accounts (created_at DESC, id DESC) WHERE deleting_at IS NULL;

-- The system's own: accounts whose removal is not over. Whoever began one may have died.
CREATE TABLE account_deletions (
  account_id uuid CONSTRAINT account_deletions_pkey PRIMARY KEY,
  -- Not to be taken before this moment: leased, or waiting for a retry.
  due_at timestamptz NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);

-- The system's own: what removed accounts still have, or may still get, at the payment gateway.
CREATE TABLE gateway_cancellations (
  subscription_id uuid CONSTRAINT gateway_cancellations_pkey PRIMARY KEY,
  account_id uuid NOT NULL,
  -- None: it may be made any moment, and is looked for by our id until `until`.
  gateway_subscription_id text,
  until timestamptz NOT NULL,
  due_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX gateway_cancellations_due_at_idx ON gateway_cancellations (due_at);

-- What the figures are counted from.
CREATE INDEX messages_outbound_idx ON messages (account_id, created_at) WHERE direction = 'outbound';
CREATE INDEX billing_history_paid_at_idx ON billing_history (paid_at) WHERE paid_at IS NOT NULL;
