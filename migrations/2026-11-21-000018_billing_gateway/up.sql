-- What the payment gateway is asked and tells: attempts to subscribe, payments, events.

ALTER TABLE subscriptions
  -- When the end of what was paid took the account's plan.
  ADD COLUMN lapsed_at timestamptz,
  -- The present period was given before a payment of it was known (cards): the next one adds none.
  ADD COLUMN period_granted boolean NOT NULL DEFAULT false,
  -- The day of the month that periods begin on, where the month has it.
  ADD COLUMN anchor_day integer CONSTRAINT subscriptions_anchor_day_check CHECK (anchor_day BETWEEN 1 AND 31),
  -- When the gateway is asked, unless it tells before.
  ADD COLUMN check_at timestamptz,
  -- The last event that was applied.
  ADD COLUMN last_event_id uuid,
  -- What is being done at the gateway, and until when it is left to whoever began it.
  ADD COLUMN intent jsonb,
  ADD COLUMN intent_until timestamptz,
  -- No subscription yet, or one that never came to be: the row holds the account's place while the gateway is asked.
  ADD COLUMN attempt boolean NOT NULL DEFAULT false,
  -- Counts the writes.
  ADD COLUMN version bigint NOT NULL DEFAULT 0,
  ADD CONSTRAINT subscriptions_billing_type_check CHECK (billing_type IN ('PIX', 'BOLETO', 'CREDIT_CARD')),
  ADD CONSTRAINT subscriptions_intent_check CHECK ((intent IS NULL) = (intent_until IS NULL)),
  ADD CONSTRAINT subscriptions_attempt_check CHECK (NOT attempt OR intent IS NOT NULL);
CREATE INDEX subscriptions_intent_until_idx ON subscriptions (intent_until) WHERE intent_until IS NOT NULL;
CREATE INDEX subscriptions_check_at_idx ON subscriptions (check_at) WHERE check_at IS NOT NULL;
CREATE INDEX subscriptions_lapse_idx ON subscriptions (current_period_end)
  WHERE status = 'cancelled' AND lapsed_at IS NULL;

-- A subscription takes its plan along; nothing else of an account is a tenant's to change.
GRANT UPDATE (plan, updated_at) ON accounts TO recado_tenant;

CREATE TABLE billing_history (
  account_id uuid NOT NULL CONSTRAINT billing_history_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  subscription_id uuid NOT NULL,
  gateway_payment_id text NOT NULL,
  billing_type text NOT NULL,
  -- Cents.
  value bigint NOT NULL,
  -- The gateway's word.
  status text NOT NULL,
  invoice_url text,
  bank_slip_url text,
  due_date date,
  paid_at timestamptz,
  -- The gateway was sure of it; the money may follow a month later.
  confirmed boolean NOT NULL DEFAULT false,
  -- It paid for a period.
  credited boolean NOT NULL DEFAULT false,
  -- The gateway's time of the last event about it that was applied.
  last_event_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT billing_history_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT billing_history_gateway_payment_id_unique UNIQUE (account_id, gateway_payment_id),
  CONSTRAINT billing_history_subscription_id_fkey FOREIGN KEY (account_id, subscription_id)
    REFERENCES subscriptions (account_id, id) ON DELETE CASCADE
);
CREATE INDEX billing_history_created_at_idx ON billing_history (account_id, created_at DESC, id DESC);
SELECT make_tenant_table('billing_history');

-- Directory: from the gateway's subscription in an event to ours. A tenant's transaction adds to it and cannot read it.
CREATE TABLE gateway_subscriptions (
  gateway_subscription_id text CONSTRAINT gateway_subscriptions_pkey PRIMARY KEY,
  account_id uuid NOT NULL,
  subscription_id uuid NOT NULL
);
GRANT INSERT ON gateway_subscriptions TO recado_tenant;

-- The system's own: what was received, by what it is told apart; nothing of a body but what has an effect.
CREATE TABLE gateway_events (
  id uuid CONSTRAINT gateway_events_pkey PRIMARY KEY,
  seq bigint GENERATED ALWAYS AS IDENTITY,
  key text NOT NULL CONSTRAINT gateway_events_key_unique UNIQUE,
  event text NOT NULL,
  gateway_subscription_id text,
  data jsonb NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  -- Not to be taken before this moment: leased, or waiting for a retry. None: it is over with.
  due_at timestamptz,
  received_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX gateway_events_due_at_idx ON gateway_events (seq) WHERE due_at IS NOT NULL;
CREATE INDEX gateway_events_gateway_subscription_id_idx ON gateway_events (gateway_subscription_id, seq)
  WHERE due_at IS NOT NULL;
CREATE INDEX gateway_events_received_at_idx ON gateway_events (received_at) WHERE due_at IS NULL;
