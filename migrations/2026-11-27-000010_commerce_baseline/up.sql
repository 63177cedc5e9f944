-- What shops and other systems report (orders, carts, spend, metric events), and links and automations.

-- Links. Short codes are reserved in `link_codes`. `clicks` counts all clicks since the link was created.
CREATE TABLE links (
  account_id uuid NOT NULL CONSTRAINT links_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  short_code text NOT NULL,
  original_url text NOT NULL,
  campaign_id uuid,
  clicks bigint NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT links_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT links_short_code_unique UNIQUE (account_id, short_code),
  CONSTRAINT links_campaign_id_fkey FOREIGN KEY (account_id, campaign_id) REFERENCES campaigns (account_id, id)
);
-- Without this index, deleting a row that `campaign_id` references scans the account's rows (foreign key check).
CREATE INDEX links_campaign_id_idx ON links (account_id, campaign_id) WHERE campaign_id IS NOT NULL;
SELECT make_tenant_table('links');
SELECT set_storage('links', 'counter');
GRANT SELECT, INSERT ON links TO recado_tenant;

-- Directory: short codes are unique across accounts, because the request of a visitor names no account.
CREATE TABLE link_codes (
  short_code text CONSTRAINT link_codes_pkey PRIMARY KEY,
  account_id uuid NOT NULL,
  link_id uuid NOT NULL
);
-- Without this index, deleting an account scans the rows of all accounts.
CREATE INDEX link_codes_account_id_idx ON link_codes (account_id);
SELECT make_tenant_table('link_codes');
SELECT set_storage('link_codes', 'entity');
GRANT INSERT ON link_codes TO recado_tenant;

-- Idempotency of click batches: one row per process that counts clicks. A process numbers its batches and writes them
-- one after the other, so only the last number is stored. Only the owner role reads and writes it.
CREATE TABLE link_click_writers (
  id uuid CONSTRAINT link_click_writers_pkey PRIMARY KEY,
  batch bigint NOT NULL DEFAULT 0,
  -- Links whose clicks the last batch did not add.
  deferred uuid[] NOT NULL DEFAULT '{}',
  applied_at timestamptz NOT NULL DEFAULT now()
);
SELECT set_storage('link_click_writers', 'counter');

CREATE TABLE automations (
  account_id uuid NOT NULL CONSTRAINT automations_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  name text NOT NULL,
  status text NOT NULL CONSTRAINT automations_status_check CHECK (status IN ('draft', 'active', 'paused')),
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT automations_pkey PRIMARY KEY (account_id, id)
);
SELECT make_tenant_table('automations');
SELECT set_storage('automations', 'entity');
GRANT SELECT, INSERT, UPDATE ON automations TO recado_tenant;

CREATE TABLE automation_executions (
  account_id uuid NOT NULL,
  id uuid NOT NULL,
  automation_id uuid NOT NULL,
  status text NOT NULL CONSTRAINT automation_executions_status_check CHECK (status IN ('completed', 'failed')),
  started_at timestamptz NOT NULL,
  finished_at timestamptz NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT automation_executions_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT automation_executions_time_check CHECK (finished_at >= started_at),
  CONSTRAINT automation_executions_automation_id_fkey FOREIGN KEY (account_id, automation_id)
    REFERENCES automations (account_id, id) ON DELETE CASCADE
);
-- Without this index, deleting a row that `automation_id` references scans the account's rows (foreign key check).
CREATE INDEX automation_executions_automation_id_idx ON automation_executions (account_id, automation_id);
SELECT make_tenant_table('automation_executions');
SELECT set_storage('automation_executions', 'ledger');
GRANT SELECT, INSERT ON automation_executions TO recado_tenant;

-- Directory: an order is identified by platform and external id, over all months. It stays when the order is dropped,
-- so that an order which is reported once more is not counted again.
CREATE TABLE order_keys (
  account_id uuid NOT NULL CONSTRAINT order_keys_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  platform text NOT NULL,
  external_id text NOT NULL,
  order_id uuid NOT NULL,
  CONSTRAINT order_keys_pkey PRIMARY KEY (account_id, platform, external_id)
);
SELECT make_tenant_table('order_keys');
SELECT set_storage('order_keys', 'ledger');
GRANT SELECT, INSERT ON order_keys TO recado_tenant;

-- Orders. The attribution is decided when an order is first recorded, and only a report that names one changes it.
CREATE TABLE orders (
  account_id uuid NOT NULL,
  id uuid NOT NULL,
  platform text NOT NULL,
  external_id text NOT NULL,
  contact_id uuid,
  status text NOT NULL CONSTRAINT orders_status_check CHECK (status IN ('pending', 'paid', 'cancelled', 'refunded')),
  total numeric NOT NULL,
  gateway_fee numeric NOT NULL DEFAULT 0,
  campaign_id uuid,
  automation_id uuid,
  link_id uuid,
  placed_at timestamptz NOT NULL,
  -- The time to which a paid order's revenue belongs; never null when the order is paid.
  paid_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT orders_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT orders_paid_at_check CHECK (status <> 'paid' OR paid_at IS NOT NULL)
) PARTITION BY RANGE (id);
SELECT make_tenant_table('orders');
GRANT SELECT, INSERT, UPDATE ON orders TO recado_tenant;

-- The items of an order, in the month of the order.
CREATE TABLE order_items (
  account_id uuid NOT NULL,
  order_id uuid NOT NULL,
  position integer NOT NULL,
  product_id text NOT NULL,
  name text NOT NULL,
  quantity numeric NOT NULL,
  price numeric NOT NULL,
  cost numeric,
  CONSTRAINT order_items_pkey PRIMARY KEY (account_id, order_id, "position")
) PARTITION BY RANGE (order_id);
SELECT make_tenant_table('order_items');
GRANT SELECT, INSERT, DELETE ON order_items TO recado_tenant;

CREATE TABLE carts (
  account_id uuid NOT NULL CONSTRAINT carts_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  platform text NOT NULL,
  external_id text NOT NULL,
  contact_id uuid,
  total numeric NOT NULL,
  status text NOT NULL CONSTRAINT carts_status_check CHECK (status IN ('open', 'abandoned', 'recovered')),
  -- The cart's creation time, as the shop system reports it.
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT carts_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT carts_external_id_unique UNIQUE (account_id, platform, external_id),
  CONSTRAINT carts_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES contacts (account_id, id)
);
-- Without this index, deleting a row that `contact_id` references scans the account's rows (foreign key check).
CREATE INDEX carts_contact_id_idx ON carts (account_id, contact_id) WHERE contact_id IS NOT NULL;
SELECT make_tenant_table('carts');
SELECT set_storage('carts', 'entity');
GRANT SELECT, INSERT, UPDATE ON carts TO recado_tenant;

-- A calendar date without a time zone: it is that day in the time zone of every report.
CREATE TABLE ad_spend (
  account_id uuid NOT NULL CONSTRAINT ad_spend_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  date date NOT NULL,
  source text NOT NULL,
  amount numeric NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT ad_spend_pkey PRIMARY KEY (account_id, date, source)
);
SELECT make_tenant_table('ad_spend');
SELECT set_storage('ad_spend', 'entity');
GRANT SELECT, INSERT, UPDATE ON ad_spend TO recado_tenant;

-- Metrics: one row per name, with its totals. A writer of metric events locks the metric's row first.
CREATE TABLE metrics (
  account_id uuid NOT NULL CONSTRAINT metrics_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  metric_name text NOT NULL,
  display_name text,
  category text,
  total_events bigint NOT NULL DEFAULT 0,
  total_value numeric NOT NULL DEFAULT 0,
  last_event_at timestamptz,
  CONSTRAINT metrics_pkey PRIMARY KEY (account_id, metric_name)
);
SELECT make_tenant_table('metrics');
SELECT set_storage('metrics', 'counter');
GRANT SELECT, INSERT, UPDATE ON metrics TO recado_tenant;

-- Directory: an event is identified by an id that its sender chose, over all months. It stays when the event is
-- dropped, so that an event which is reported once more is not counted again.
CREATE TABLE metric_event_keys (
  account_id uuid NOT NULL,
  id uuid NOT NULL,
  occurred_at timestamptz NOT NULL,
  CONSTRAINT metric_event_keys_pkey PRIMARY KEY (account_id, id)
);
SELECT make_tenant_table('metric_event_keys');
SELECT set_storage('metric_event_keys', 'ledger');
GRANT SELECT, INSERT ON metric_event_keys TO recado_tenant;

CREATE TABLE metric_events (
  account_id uuid NOT NULL,
  id uuid NOT NULL,
  metric_name text NOT NULL,
  contact_id uuid,
  value numeric,
  currency text,
  source text NOT NULL,
  properties jsonb NOT NULL DEFAULT '{}',
  occurred_at timestamptz NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT metric_events_pkey PRIMARY KEY (account_id, metric_name, occurred_at, id)
) PARTITION BY RANGE (occurred_at);
SELECT make_tenant_table('metric_events');
GRANT SELECT, INSERT ON metric_events TO recado_tenant;

CREATE TABLE metric_sources (
  account_id uuid NOT NULL,
  metric_name text NOT NULL,
  source text NOT NULL,
  CONSTRAINT metric_sources_pkey PRIMARY KEY (account_id, metric_name, source),
  CONSTRAINT metric_sources_metric_name_fkey FOREIGN KEY (account_id, metric_name)
    REFERENCES metrics (account_id, metric_name) ON DELETE CASCADE
);
SELECT make_tenant_table('metric_sources');
SELECT set_storage('metric_sources', 'entity');
GRANT SELECT, INSERT ON metric_sources TO recado_tenant;

CREATE TABLE metric_contacts (
  account_id uuid NOT NULL,
  metric_name text NOT NULL,
  contact_id uuid NOT NULL,
  event_count bigint NOT NULL DEFAULT 0,
  total_value numeric NOT NULL DEFAULT 0,
  last_event_at timestamptz,
  CONSTRAINT metric_contacts_pkey PRIMARY KEY (account_id, metric_name, contact_id),
  CONSTRAINT metric_contacts_contact_id_fkey FOREIGN KEY (account_id, contact_id)
    REFERENCES contacts (account_id, id) ON DELETE CASCADE,
  CONSTRAINT metric_contacts_metric_name_fkey FOREIGN KEY (account_id, metric_name)
    REFERENCES metrics (account_id, metric_name) ON DELETE CASCADE
);
-- Without this index, deleting a row that `contact_id` references scans the account's rows (foreign key check).
CREATE INDEX metric_contacts_contact_id_idx ON metric_contacts (account_id, contact_id);
CREATE INDEX metric_contacts_total_value_idx ON metric_contacts (account_id, metric_name, total_value DESC, contact_id);
SELECT make_tenant_table('metric_contacts');
SELECT set_storage('metric_contacts', 'entity');
GRANT SELECT, INSERT, UPDATE ON metric_contacts TO recado_tenant;

-- The name of a product, from the latest order that contains it.
CREATE TABLE product_names (
  account_id uuid NOT NULL CONSTRAINT product_names_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  product_id text NOT NULL,
  name text NOT NULL,
  CONSTRAINT product_names_pkey PRIMARY KEY (account_id, product_id)
);
SELECT make_tenant_table('product_names');
SELECT set_storage('product_names', 'entity');
GRANT SELECT, INSERT, UPDATE ON product_names TO recado_tenant;
