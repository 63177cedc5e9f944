-- Data that shops and other systems report: orders, carts, ad spend, metric events; links and automations of the
-- account; and rollups of all of them, written in the transaction of the rows that they count.

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
) WITH (fillfactor = 70);
SELECT make_tenant_table('links');

-- Directory: short codes are unique across accounts, because the request of a visitor names no account.
CREATE TABLE link_codes (
  short_code text CONSTRAINT link_codes_pkey PRIMARY KEY,
  account_id uuid NOT NULL,
  link_id uuid NOT NULL
);
GRANT INSERT ON link_codes TO recado_tenant;

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
SELECT make_tenant_table('automation_executions');

-- Orders. The attribution is decided when an order is first recorded, and only a report that names one changes it.
CREATE TABLE orders (
  account_id uuid NOT NULL CONSTRAINT orders_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
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
  CONSTRAINT orders_external_id_unique UNIQUE (account_id, platform, external_id),
  CONSTRAINT orders_paid_at_check CHECK (status <> 'paid' OR paid_at IS NOT NULL),
  CONSTRAINT orders_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES contacts (account_id, id),
  CONSTRAINT orders_campaign_id_fkey FOREIGN KEY (account_id, campaign_id) REFERENCES campaigns (account_id, id),
  CONSTRAINT orders_automation_id_fkey FOREIGN KEY (account_id, automation_id) REFERENCES automations (account_id, id),
  CONSTRAINT orders_link_id_fkey FOREIGN KEY (account_id, link_id) REFERENCES links (account_id, id)
);
SELECT make_tenant_table('orders');

CREATE TABLE order_items (
  account_id uuid NOT NULL,
  order_id uuid NOT NULL,
  position integer NOT NULL,
  product_id text NOT NULL,
  name text NOT NULL,
  quantity numeric NOT NULL,
  price numeric NOT NULL,
  cost numeric,
  CONSTRAINT order_items_pkey PRIMARY KEY (account_id, order_id, position),
  CONSTRAINT order_items_order_id_fkey FOREIGN KEY (account_id, order_id)
    REFERENCES orders (account_id, id) ON DELETE CASCADE
);
SELECT make_tenant_table('order_items');

-- Attribution of an order looks up sends by contact. The indexed columns never change, so sends keep their HOT updates.
CREATE INDEX campaign_sends_contact_id_idx ON campaign_sends (account_id, contact_id);

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
SELECT make_tenant_table('carts');

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
) WITH (fillfactor = 50);
SELECT make_tenant_table('metrics');

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
  CONSTRAINT metric_events_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT metric_events_metric_name_fkey FOREIGN KEY (account_id, metric_name)
    REFERENCES metrics (account_id, metric_name) ON DELETE CASCADE,
  CONSTRAINT metric_events_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES contacts (account_id, id)
);
CREATE INDEX metric_events_occurred_at_idx ON metric_events (account_id, metric_name, occurred_at DESC, id DESC);
SELECT make_tenant_table('metric_events');

-- Materialized rollups: sums of a quarter of an hour (15 `bucket_minutes`) and of a UTC day (1440),
-- from `bucket_start`.

CREATE TABLE order_rollups (
  account_id uuid NOT NULL CONSTRAINT order_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  bucket_minutes smallint NOT NULL CONSTRAINT order_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440)),
  bucket_start timestamptz NOT NULL,
  platform text NOT NULL,
  -- Counted by the time at which orders were placed.
  placed bigint NOT NULL DEFAULT 0,
  pending bigint NOT NULL DEFAULT 0,
  cancelled bigint NOT NULL DEFAULT 0,
  refunded bigint NOT NULL DEFAULT 0,
  -- Paid orders, counted by the time of payment.
  paid bigint NOT NULL DEFAULT 0,
  revenue numeric NOT NULL DEFAULT 0,
  product_costs numeric NOT NULL DEFAULT 0,
  gateway_fees numeric NOT NULL DEFAULT 0,
  attributed_orders bigint NOT NULL DEFAULT 0,
  attributed_revenue numeric NOT NULL DEFAULT 0,
  CONSTRAINT order_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start, platform)
) WITH (fillfactor = 70);
SELECT make_tenant_table('order_rollups');

-- Paid orders by product.
CREATE TABLE product_rollups (
  account_id uuid NOT NULL CONSTRAINT product_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  bucket_minutes smallint NOT NULL CONSTRAINT product_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440)),
  bucket_start timestamptz NOT NULL,
  product_id text NOT NULL,
  quantity numeric NOT NULL DEFAULT 0,
  revenue numeric NOT NULL DEFAULT 0,
  CONSTRAINT product_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start, product_id)
) WITH (fillfactor = 70);
SELECT make_tenant_table('product_rollups');

-- The name of a product, from the latest order that contains it.
CREATE TABLE product_names (
  account_id uuid NOT NULL CONSTRAINT product_names_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  product_id text NOT NULL,
  name text NOT NULL,
  CONSTRAINT product_names_pkey PRIMARY KEY (account_id, product_id)
);
SELECT make_tenant_table('product_names');

-- Paid orders by attribution.
CREATE TABLE attribution_rollups (
  account_id uuid NOT NULL CONSTRAINT attribution_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  bucket_minutes smallint NOT NULL CONSTRAINT attribution_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15,
    1440)),
  bucket_start timestamptz NOT NULL,
  kind text NOT NULL CONSTRAINT attribution_rollups_kind_check CHECK (kind IN ('campaign', 'automation', 'link')),
  attributed_to_id uuid NOT NULL,
  orders bigint NOT NULL DEFAULT 0,
  revenue numeric NOT NULL DEFAULT 0,
  CONSTRAINT attribution_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start, kind, attributed_to_id)
) WITH (fillfactor = 70);
SELECT make_tenant_table('attribution_rollups');

CREATE TABLE link_rollups (
  account_id uuid NOT NULL CONSTRAINT link_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  bucket_minutes smallint NOT NULL CONSTRAINT link_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440)),
  bucket_start timestamptz NOT NULL,
  link_id uuid NOT NULL,
  clicks bigint NOT NULL DEFAULT 0,
  CONSTRAINT link_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start, link_id)
) WITH (fillfactor = 70);
SELECT make_tenant_table('link_rollups');

CREATE TABLE cart_rollups (
  account_id uuid NOT NULL CONSTRAINT cart_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  bucket_minutes smallint NOT NULL CONSTRAINT cart_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440)),
  bucket_start timestamptz NOT NULL,
  carts bigint NOT NULL DEFAULT 0,
  recovered bigint NOT NULL DEFAULT 0,
  CONSTRAINT cart_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start)
) WITH (fillfactor = 70);
SELECT make_tenant_table('cart_rollups');

CREATE TABLE automation_rollups (
  account_id uuid NOT NULL CONSTRAINT automation_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  bucket_minutes smallint NOT NULL CONSTRAINT automation_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15,
    1440)),
  bucket_start timestamptz NOT NULL,
  automation_id uuid NOT NULL,
  completed bigint NOT NULL DEFAULT 0,
  failed bigint NOT NULL DEFAULT 0,
  -- From start to finish, in microseconds.
  latency numeric NOT NULL DEFAULT 0,
  CONSTRAINT automation_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start, automation_id)
) WITH (fillfactor = 70);
SELECT make_tenant_table('automation_rollups');

CREATE TABLE metric_rollups (
  account_id uuid NOT NULL CONSTRAINT metric_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  bucket_minutes smallint NOT NULL CONSTRAINT metric_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440)),
  bucket_start timestamptz NOT NULL,
  metric_name text NOT NULL,
  events bigint NOT NULL DEFAULT 0,
  value numeric NOT NULL DEFAULT 0,
  -- Contacts whose latest event falls into this bucket. No event has a future time, so in a period that ends today
  -- these are all contacts with an event in it.
  last_contacts bigint NOT NULL DEFAULT 0,
  CONSTRAINT metric_rollups_pkey PRIMARY KEY (account_id, metric_name, bucket_minutes, bucket_start)
) WITH (fillfactor = 70);
SELECT make_tenant_table('metric_rollups');

CREATE TABLE metric_sources (
  account_id uuid NOT NULL,
  metric_name text NOT NULL,
  source text NOT NULL,
  CONSTRAINT metric_sources_pkey PRIMARY KEY (account_id, metric_name, source),
  CONSTRAINT metric_sources_metric_name_fkey FOREIGN KEY (account_id, metric_name)
    REFERENCES metrics (account_id, metric_name) ON DELETE CASCADE
);
SELECT make_tenant_table('metric_sources');

CREATE TABLE metric_contacts (
  account_id uuid NOT NULL,
  metric_name text NOT NULL,
  contact_id uuid NOT NULL,
  event_count bigint NOT NULL DEFAULT 0,
  total_value numeric NOT NULL DEFAULT 0,
  last_event_at timestamptz,
  CONSTRAINT metric_contacts_pkey PRIMARY KEY (account_id, metric_name, contact_id),
  CONSTRAINT metric_contacts_metric_name_fkey FOREIGN KEY (account_id, metric_name)
    REFERENCES metrics (account_id, metric_name) ON DELETE CASCADE,
  CONSTRAINT metric_contacts_contact_id_fkey FOREIGN KEY (account_id, contact_id)
    REFERENCES contacts (account_id, id) ON DELETE CASCADE
);
CREATE INDEX metric_contacts_total_value_idx
  ON metric_contacts (account_id, metric_name, total_value DESC, contact_id);
SELECT make_tenant_table('metric_contacts');
