-- Subscriptions, payments, events of the payment gateway, and the monthly message quota.

CREATE TABLE subscriptions (
  account_id uuid NOT NULL CONSTRAINT subscriptions_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  plan text NOT NULL,
  cycle text NOT NULL CONSTRAINT subscriptions_cycle_check CHECK (cycle IN ('MONTHLY', 'YEARLY')),
  status text NOT NULL
    CONSTRAINT subscriptions_status_check CHECK (status IN ('active', 'pending', 'past_due', 'inactive', 'cancelled')),
  billing_type text NOT NULL
    CONSTRAINT subscriptions_billing_type_check CHECK (billing_type IN ('PIX', 'BOLETO', 'CREDIT_CARD')),
  -- Cents.
  value bigint NOT NULL,
  billing_email text,
  gateway_customer_id text,
  gateway_subscription_id text,
  current_period_start timestamptz,
  current_period_end timestamptz,
  cancelled_at timestamptz,
  inactivated_at timestamptz,
  -- The time at which the paid period ended and the account lost the plan.
  lapsed_at timestamptz,
  -- The current period was granted before its payment was known (cards), so that payment does not add another
  -- period.
  period_granted boolean NOT NULL DEFAULT false,
  -- The day of the month on which periods begin; in a shorter month, its last day.
  anchor_day integer CONSTRAINT subscriptions_anchor_day_check CHECK (anchor_day BETWEEN 1 AND 31),
  -- The time of the next query to the gateway, unless a gateway event arrives first.
  check_at timestamptz,
  -- The latest gateway event that was applied.
  last_event_id uuid,
  -- The change that is being requested from the gateway, and the lease of the process that requests it.
  intent jsonb,
  intent_until timestamptz,
  -- A subscription attempt, not a subscription yet: the row occupies the account's one live subscription while the
  -- gateway is called.
  attempt boolean NOT NULL DEFAULT false,
  -- The time at which a worker next queries the gateway about an intent. That is before the lease (`intent_until`)
  -- expires. A change that the gateway has made can be recorded at any time; a missing change may still be in
  -- progress until then.
  intent_check_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  -- Optimistic locking: every write raises it by one.
  version bigint NOT NULL DEFAULT 0,
  CONSTRAINT subscriptions_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT subscriptions_attempt_check CHECK ((NOT attempt) OR intent IS NOT NULL),
  CONSTRAINT subscriptions_intent_check CHECK ((intent IS NULL) = (intent_until IS NULL))
);
CREATE INDEX subscriptions_check_at_idx ON subscriptions (check_at) WHERE check_at IS NOT NULL;
CREATE INDEX subscriptions_created_at_idx ON subscriptions (account_id, created_at DESC);
CREATE INDEX subscriptions_intent_until_idx ON subscriptions (intent_until) WHERE intent_until IS NOT NULL;
CREATE INDEX subscriptions_lapse_idx
  ON subscriptions (current_period_end) WHERE status = 'cancelled' AND lapsed_at IS NULL;
CREATE UNIQUE INDEX subscriptions_live_unique
  ON subscriptions (account_id) WHERE status IN ('active', 'pending', 'past_due');
SELECT make_tenant_table('subscriptions');
SELECT set_storage('subscriptions', 'entity');
GRANT SELECT, INSERT, UPDATE, DELETE ON subscriptions TO recado_tenant;

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
  -- The billing cycle that the payment pays for. Null: its value decides.
  cycle text,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT billing_history_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT billing_history_gateway_payment_id_unique UNIQUE (account_id, gateway_payment_id),
  -- No index: an account has one row per payment.
  CONSTRAINT billing_history_subscription_id_fkey FOREIGN KEY (account_id, subscription_id)
    REFERENCES subscriptions (account_id, id) ON DELETE CASCADE
);
CREATE INDEX billing_history_created_at_idx ON billing_history (account_id, created_at DESC, id DESC);
CREATE INDEX billing_history_paid_at_idx ON billing_history (paid_at) WHERE paid_at IS NOT NULL;
SELECT make_tenant_table('billing_history');
SELECT set_storage('billing_history', 'ledger');
GRANT SELECT, INSERT, UPDATE ON billing_history TO recado_tenant;

-- Directory: maps the gateway's subscription id in an event to ours. A tenant transaction inserts rows but cannot
-- read them.
CREATE TABLE gateway_subscriptions (
  gateway_subscription_id text CONSTRAINT gateway_subscriptions_pkey PRIMARY KEY,
  account_id uuid NOT NULL,
  subscription_id uuid NOT NULL
);
-- Without this index, deleting an account scans the rows of all accounts.
CREATE INDEX gateway_subscriptions_account_id_idx ON gateway_subscriptions (account_id);
SELECT make_tenant_table('gateway_subscriptions');
SELECT set_storage('gateway_subscriptions', 'entity');
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
CREATE INDEX gateway_events_gateway_subscription_id_idx
  ON gateway_events (gateway_subscription_id, seq) WHERE due_at IS NOT NULL;
CREATE INDEX gateway_events_received_at_idx ON gateway_events (received_at) WHERE due_at IS NULL;
SELECT set_storage('gateway_events', 'queue');

-- Inbox: gateway events whose effect is committed. The row is inserted in the transaction of the effect, so that an
-- event has its effect once, even if several workers hold it. It is deleted together with the event.
CREATE TABLE applied_gateway_events (
  account_id uuid NOT NULL CONSTRAINT applied_gateway_events_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  event_id uuid NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT applied_gateway_events_pkey PRIMARY KEY (account_id, event_id)
);
CREATE INDEX applied_gateway_events_event_id_idx ON applied_gateway_events (event_id);
SELECT make_tenant_table('applied_gateway_events');
SELECT set_storage('applied_gateway_events', 'ledger');
GRANT SELECT, INSERT ON applied_gateway_events TO recado_tenant;

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
SELECT set_storage('gateway_cancellations', 'queue');

-- Outbound messages of a calendar month (UTC), in slots like `campaign_counter_slots`.
CREATE TABLE message_usage_slots (
  account_id uuid NOT NULL CONSTRAINT message_usage_slots_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  month date NOT NULL,
  -- A reservation made in one slot may be released in another, so a single slot can be negative.
  sent bigint NOT NULL DEFAULT 0,
  reserved bigint NOT NULL DEFAULT 0,
  test_sends bigint NOT NULL DEFAULT 0 CONSTRAINT message_usage_slots_test_sends_check CHECK (test_sends >= 0),
  slot smallint NOT NULL DEFAULT 0,
  CONSTRAINT message_usage_slots_pkey PRIMARY KEY (account_id, month, slot)
);
SELECT make_tenant_table('message_usage_slots');
SELECT set_storage('message_usage_slots', 'counter');
GRANT SELECT, INSERT, UPDATE ON message_usage_slots TO recado_tenant;

-- Outbound messages of a calendar month (UTC): sent, reserved for runs that are still sending, and test sends.
CREATE VIEW message_usage WITH (security_invoker = true) AS
  SELECT account_id, month, sum(sent)::bigint AS sent, sum(reserved)::bigint AS reserved,
    sum(test_sends)::bigint AS test_sends
  FROM message_usage_slots GROUP BY account_id, month;
GRANT SELECT ON message_usage TO recado_tenant;
