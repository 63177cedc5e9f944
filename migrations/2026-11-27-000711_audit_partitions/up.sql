-- The audit log is partitioned by month, so that a month is removed by dropping its partition.

DROP TABLE audit_logs;

-- No foreign key to accounts: it would lock that table while a month is dropped. The relay locks the account.
CREATE TABLE audit_logs (
  account_id uuid NOT NULL,
  id uuid NOT NULL,
  user_id uuid,
  action text NOT NULL,
  entity_type text NOT NULL,
  entity_id uuid,
  changes jsonb,
  ip_address text,
  created_at timestamptz NOT NULL DEFAULT now(),
  -- The order of the list. Time and id of an entry derive from its outbox event, so a repeated write is rejected.
  CONSTRAINT audit_logs_pkey PRIMARY KEY (account_id, created_at, id)
) PARTITION BY RANGE (created_at);
CREATE INDEX audit_logs_entity_type_idx
  ON audit_logs (account_id, entity_type, created_at DESC, id DESC) INCLUDE (action);
CREATE INDEX audit_logs_action_idx
  ON audit_logs (account_id, action, created_at DESC, id DESC) INCLUDE (entity_type);
SELECT make_tenant_table('audit_logs');
GRANT SELECT ON audit_logs TO recado_tenant;

DROP TABLE audit_counts;

-- Audit entries of an account by month, entity type and action. Written in the transaction of the entries, and dropped
-- with them.
CREATE TABLE audit_counts (
  account_id uuid NOT NULL,
  -- The first day of the month of `audit_logs.created_at`, in UTC.
  month date NOT NULL,
  entity_type text NOT NULL,
  action text NOT NULL,
  n bigint NOT NULL CONSTRAINT audit_counts_n_check CHECK (n >= 0),
  CONSTRAINT audit_counts_pkey PRIMARY KEY (account_id, month, entity_type, action)
) PARTITION BY RANGE (month);
SELECT make_tenant_table('audit_counts');
GRANT SELECT ON audit_counts TO recado_tenant;
