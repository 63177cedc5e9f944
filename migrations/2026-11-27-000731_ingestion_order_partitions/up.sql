-- Orders are partitioned by the month of their first report, so that a month is removed by dropping its partitions.
-- Their ids begin with that time.
--
-- No foreign key refers to or from them: it would lock the other table while a month is dropped. A report looks up
-- what it names in its own transaction, and contacts, campaigns, automations and links are never deleted before their
-- account is.

DROP TABLE order_items, orders;

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
  CONSTRAINT order_items_pkey PRIMARY KEY (account_id, order_id, position)
) PARTITION BY RANGE (order_id);
SELECT make_tenant_table('order_items');
GRANT SELECT, INSERT, DELETE ON order_items TO recado_tenant;
