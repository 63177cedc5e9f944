-- Transactional outbox, and the tables to which the relay moves its events.

-- Internal: a tenant transaction may insert an event, but cannot read any.
CREATE TABLE outbox_events (
  seq bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT outbox_events_pkey PRIMARY KEY,
  account_id uuid NOT NULL,
  payload jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
GRANT INSERT ON outbox_events TO recado_tenant;

CREATE TABLE audit_logs (
  account_id uuid NOT NULL CONSTRAINT audit_logs_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  user_id uuid,
  action text NOT NULL,
  entity_type text NOT NULL,
  entity_id uuid,
  changes jsonb,
  ip_address text,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT audit_logs_pkey PRIMARY KEY (account_id, id)
);
CREATE INDEX audit_logs_created_at_idx ON audit_logs (account_id, created_at DESC, id DESC);
SELECT make_tenant_table('audit_logs');

CREATE TABLE notifications (
  account_id uuid NOT NULL CONSTRAINT notifications_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  type text NOT NULL CONSTRAINT notifications_type_check CHECK (type IN ('success', 'info', 'warning', 'error')),
  title text NOT NULL,
  message text NOT NULL,
  data jsonb NOT NULL DEFAULT '{}',
  read_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT notifications_pkey PRIMARY KEY (account_id, id)
);
SELECT make_tenant_table('notifications');
