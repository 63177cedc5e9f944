-- State shared with the payment gateway: subscription attempts, payments and gateway events.

ALTER TABLE subscriptions
  -- The time at which the paid period ended and the account lost the plan.
  ADD COLUMN lapsed_at timestamptz,
  -- The current period was granted before its payment was known (cards), so that payment does not add another period.
  ADD COLUMN period_granted boolean NOT NULL DEFAULT false,
  -- The day of the month on which periods begin; in a shorter month, its last day.
  ADD COLUMN anchor_day integer CONSTRAINT subscriptions_anchor_day_check CHECK (anchor_day BETWEEN 1 AND 31),
  -- The time of the next query to the gateway, unless a gateway event arrives first.
  ADD COLUMN check_at timestamptz,
  -- The latest gateway event that was applied.
  ADD COLUMN last_event_id uuid,
  -- The change that is being requested from the gateway, and the lease of the process that requests it.
  ADD COLUMN intent jsonb,
  ADD COLUMN intent_until timestamptz,
  -- A subscription attempt, not a subscription yet: the row occupies the account's one live subscription while the
  -- gateway is called.
  ADD COLUMN attempt boolean NOT NULL DEFAULT false,
  -- Optimistic locking: every write raises it by one.
  ADD COLUMN version bigint NOT NULL DEFAULT 0,
  ADD CONSTRAINT subscriptions_billing_type_check CHECK (billing_type IN ('PIX', 'BOLETO', 'CREDIT_CARD')),
  ADD CONSTRAINT subscriptions_intent_check CHECK ((intent IS NULL) = (intent_until IS NULL)),
  ADD CONSTRAINT subscriptions_attempt_check CHECK (NOT attempt OR intent IS NOT NULL);
CREATE INDEX subscriptions_intent_until_idx ON subscriptions (intent_until) WHERE intent_until IS NOT NULL;
CREATE INDEX subscriptions_check_at_idx ON subscriptions (check_at) WHERE check_at IS NOT NULL;
CREATE INDEX subscriptions_lapse_idx ON subscriptions (current_period_end)
  WHERE status = 'cancelled' AND lapsed_at IS NULL;

-- A change of a subscription also changes the account's plan; a tenant may update no other column of an account.
GRANT UPDATE (plan, updated_at) ON accounts TO recado_tenant;

CREATE TABLE billing_history (
  account_id uuid NOT NULL CONSTRAINT billing_history_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  subscription_id uuid NOT NULL,
  gateway_payment_id text NOT NULL,
  billing_type text NOT NULL,
  -- Cents.
  value bigint NOT NULL,
  -- The status as the gateway names it.
  status text NOT NULL,
  invoice_url text,
  bank_slip_url text,
  due_date date,
  paid_at timestamptz,
  -- The gateway confirmed the payment; the money may arrive up to a month later.
  confirmed boolean NOT NULL DEFAULT false,
  -- The payment was credited with a period.
  credited boolean NOT NULL DEFAULT false,
  -- The gateway's timestamp of the latest applied event of this payment.
  last_event_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT billing_history_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT billing_history_gateway_payment_id_unique UNIQUE (account_id, gateway_payment_id),
  CONSTRAINT billing_history_subscription_id_fkey FOREIGN KEY (account_id, subscription_id)
    REFERENCES subscriptions (account_id, id) ON DELETE CASCADE
);
CREATE INDEX billing_history_created_at_idx ON billing_history (account_id, created_at DESC, id DESC);
SELECT make_tenant_table('billing_history');

-- Directory: maps the gateway's subscription id in an event to ours. A tenant transaction inserts rows but cannot
-- read them.
CREATE TABLE gateway_subscriptions (
  gateway_subscription_id text CONSTRAINT gateway_subscriptions_pkey PRIMARY KEY,
  account_id uuid NOT NULL,
  subscription_id uuid NOT NULL
);
GRANT INSERT ON gateway_subscriptions TO recado_tenant;

-- Internal: received gateway events by their unique key. Of a body, only the fields that have an effect are stored.
CREATE TABLE gateway_events (
  id uuid CONSTRAINT gateway_events_pkey PRIMARY KEY,
  seq bigint GENERATED ALWAYS AS IDENTITY,
  key text NOT NULL CONSTRAINT gateway_events_key_unique UNIQUE,
  event text NOT NULL,
  gateway_subscription_id text,
  data jsonb NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  -- No worker claims the event before this time: it is leased, or waits for a retry. Null: the event is done.
  due_at timestamptz,
  received_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX gateway_events_due_at_idx ON gateway_events (seq) WHERE due_at IS NOT NULL;
CREATE INDEX gateway_events_gateway_subscription_id_idx ON gateway_events (gateway_subscription_id, seq)
  WHERE due_at IS NOT NULL;
CREATE INDEX gateway_events_received_at_idx ON gateway_events (received_at) WHERE due_at IS NULL;
