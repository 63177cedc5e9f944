-- Materialized sums by time. They are written in the transaction of the rows that they count.

-- Orders by platform.
CREATE TABLE order_rollups (
  account_id uuid NOT NULL CONSTRAINT order_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  bucket_minutes smallint NOT NULL
    CONSTRAINT order_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 180, 1440)),
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
);
SELECT make_tenant_table('order_rollups');
SELECT set_storage('order_rollups', 'rollup');
GRANT SELECT, INSERT, UPDATE ON order_rollups TO recado_tenant;

-- Paid orders by product.
CREATE TABLE product_rollups (
  account_id uuid NOT NULL CONSTRAINT product_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  bucket_minutes smallint NOT NULL
    CONSTRAINT product_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440, 10080)),
  bucket_start timestamptz NOT NULL,
  product_id text NOT NULL,
  quantity numeric NOT NULL DEFAULT 0,
  revenue numeric NOT NULL DEFAULT 0,
  CONSTRAINT product_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start, product_id)
);
SELECT make_tenant_table('product_rollups');
SELECT set_storage('product_rollups', 'rollup');
GRANT SELECT, INSERT, UPDATE ON product_rollups TO recado_tenant;

-- Paid orders by attribution.
CREATE TABLE attribution_rollups (
  account_id uuid NOT NULL CONSTRAINT attribution_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  bucket_minutes smallint NOT NULL
    CONSTRAINT attribution_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440, 10080)),
  bucket_start timestamptz NOT NULL,
  kind text NOT NULL CONSTRAINT attribution_rollups_kind_check CHECK (kind IN ('campaign', 'automation', 'link')),
  attributed_to_id uuid NOT NULL,
  orders bigint NOT NULL DEFAULT 0,
  revenue numeric NOT NULL DEFAULT 0,
  CONSTRAINT attribution_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start, kind, attributed_to_id)
);
SELECT make_tenant_table('attribution_rollups');
SELECT set_storage('attribution_rollups', 'rollup');
GRANT SELECT, INSERT, UPDATE ON attribution_rollups TO recado_tenant;

CREATE TABLE link_rollups (
  account_id uuid NOT NULL CONSTRAINT link_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  bucket_minutes smallint NOT NULL
    CONSTRAINT link_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440, 10080)),
  bucket_start timestamptz NOT NULL,
  link_id uuid NOT NULL,
  clicks bigint NOT NULL DEFAULT 0,
  CONSTRAINT link_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start, link_id)
);
SELECT make_tenant_table('link_rollups');
SELECT set_storage('link_rollups', 'rollup');
GRANT SELECT ON link_rollups TO recado_tenant;

CREATE TABLE cart_rollups (
  account_id uuid NOT NULL CONSTRAINT cart_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  bucket_minutes smallint NOT NULL CONSTRAINT cart_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440)),
  bucket_start timestamptz NOT NULL,
  carts bigint NOT NULL DEFAULT 0,
  recovered bigint NOT NULL DEFAULT 0,
  CONSTRAINT cart_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start)
);
SELECT make_tenant_table('cart_rollups');
SELECT set_storage('cart_rollups', 'rollup');
GRANT SELECT, INSERT, UPDATE ON cart_rollups TO recado_tenant;

CREATE TABLE automation_rollups (
  account_id uuid NOT NULL CONSTRAINT automation_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  bucket_minutes smallint NOT NULL
    CONSTRAINT automation_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 1440)),
  bucket_start timestamptz NOT NULL,
  automation_id uuid NOT NULL,
  completed bigint NOT NULL DEFAULT 0,
  failed bigint NOT NULL DEFAULT 0,
  -- From start to finish, in microseconds.
  latency numeric NOT NULL DEFAULT 0,
  CONSTRAINT automation_rollups_pkey PRIMARY KEY (account_id, bucket_minutes, bucket_start, automation_id)
);
SELECT make_tenant_table('automation_rollups');
SELECT set_storage('automation_rollups', 'rollup');
GRANT SELECT, INSERT, UPDATE ON automation_rollups TO recado_tenant;

CREATE TABLE metric_rollups (
  account_id uuid NOT NULL CONSTRAINT metric_rollups_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  bucket_minutes smallint NOT NULL
    CONSTRAINT metric_rollups_bucket_minutes_check CHECK (bucket_minutes IN (15, 180, 1440)),
  bucket_start timestamptz NOT NULL,
  metric_name text NOT NULL,
  events bigint NOT NULL DEFAULT 0,
  value numeric NOT NULL DEFAULT 0,
  -- Contacts whose latest event falls into this bucket. No event has a future time, so in a period that ends today
  -- these are all contacts with an event in it.
  last_contacts bigint NOT NULL DEFAULT 0,
  CONSTRAINT metric_rollups_pkey PRIMARY KEY (account_id, metric_name, bucket_minutes, bucket_start)
);
SELECT make_tenant_table('metric_rollups');
SELECT set_storage('metric_rollups', 'rollup');
GRANT SELECT, INSERT, UPDATE ON metric_rollups TO recado_tenant;
