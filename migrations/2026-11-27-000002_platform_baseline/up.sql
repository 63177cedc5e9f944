-- What all contexts share: the transactional outbox, audit logs, notifications, idempotency keys and mail.

-- Internal: how far each partitioned table was removed by its retention. Rows before `retained_from` are gone, so a sum
-- that counted them is no longer compared with its rows.
CREATE TABLE partition_horizons (
  table_name text CONSTRAINT partition_horizons_pkey PRIMARY KEY,
  retained_from timestamptz NOT NULL
);
SELECT set_storage('partition_horizons', 'entity');

-- Internal: a tenant transaction may insert an event, but cannot read any.
CREATE TABLE outbox_events (
  seq bigint GENERATED ALWAYS AS IDENTITY,
  account_id uuid NOT NULL,
  payload jsonb NOT NULL,
  -- Set when the event could not be written: it is retried on its own from then on.
  retry_at timestamptz,
  -- Each kind of event is relayed separately.
  kind text GENERATED ALWAYS AS (coalesce((payload ->> 'kind'), '')) STORED,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT outbox_events_pkey PRIMARY KEY (kind, seq)
);
-- For readers of one account. The second condition is always true, but only a statement that names an account implies
-- it: otherwise the planner may prefer this index to the primary key and pass all events of the kind.
CREATE INDEX outbox_events_account_id_idx
  ON outbox_events (kind, account_id, seq) WHERE retry_at IS NULL AND account_id IS NOT NULL;
-- For relays, which pass no retried events.
CREATE INDEX outbox_events_kind_idx ON outbox_events (kind, seq) WHERE retry_at IS NULL;
CREATE INDEX outbox_events_other_account_id_idx
  ON outbox_events (account_id) WHERE retry_at IS NOT NULL OR (kind NOT IN ('audit', 'notification', 'webhook'));
CREATE INDEX outbox_events_retry_at_idx ON outbox_events (kind, retry_at) WHERE retry_at IS NOT NULL;
SELECT make_tenant_table('outbox_events');
SELECT set_storage('outbox_events', 'queue');
GRANT INSERT ON outbox_events TO recado_tenant;

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
  CONSTRAINT audit_logs_pkey PRIMARY KEY (account_id, created_at, id)
) PARTITION BY RANGE (created_at);
CREATE INDEX audit_logs_action_idx ON audit_logs (account_id, action, created_at DESC, id DESC) INCLUDE (entity_type);
CREATE INDEX audit_logs_entity_type_idx
  ON audit_logs (account_id, entity_type, created_at DESC, id DESC) INCLUDE (action);
SELECT make_tenant_table('audit_logs');
GRANT SELECT ON audit_logs TO recado_tenant;

-- Audit entries of an account by month, entity type and action. Written in the transaction of the entries, and
-- dropped with them.
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

-- The platform audit log: what administrators changed. It belongs to no account and survives the accounts that it
-- names, so it has no foreign keys. No tenant role may read or write it.
CREATE TABLE platform_audit (
  id uuid CONSTRAINT platform_audit_pkey PRIMARY KEY,
  user_id uuid NOT NULL,
  email text NOT NULL,
  action text NOT NULL,
  entity_type text NOT NULL,
  entity_id uuid,
  account_id uuid,
  changes jsonb,
  ip_address text,
  request_id text,
  -- Milliseconds, as published, so that a published time finds its row.
  created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now())
);
CREATE INDEX platform_audit_account_id_idx
  ON platform_audit (account_id, created_at DESC, id DESC) WHERE account_id IS NOT NULL;
CREATE INDEX platform_audit_created_at_idx ON platform_audit (created_at DESC, id DESC);
CREATE INDEX platform_audit_user_id_idx ON platform_audit (user_id, created_at DESC, id DESC);
SELECT set_storage('platform_audit', 'ledger');

-- Append-only, also for the owner of the database.
DO $$
BEGIN
  EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON platform_audit FROM %I', current_user);
END
$$;

CREATE TABLE notifications (
  account_id uuid NOT NULL CONSTRAINT notifications_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  type text NOT NULL CONSTRAINT notifications_type_check CHECK (type IN ('success', 'info', 'warning', 'error')),
  title text NOT NULL,
  message text NOT NULL,
  data jsonb NOT NULL DEFAULT '{}',
  read_at timestamptz,
  -- Sequence number: the order in which notifications became visible. The writer of a notification holds a lock
  -- until it commits, so a stream that has read a sequence number has read every smaller one.
  seq bigint GENERATED BY DEFAULT AS IDENTITY,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT notifications_pkey PRIMARY KEY (account_id, id)
);
CREATE INDEX notifications_seq_idx ON notifications (seq);
CREATE UNIQUE INDEX notifications_seq_unique ON notifications (account_id, seq);
CREATE INDEX notifications_unread_idx ON notifications (account_id, id) WHERE read_at IS NULL;
SELECT make_tenant_table('notifications');
SELECT set_storage('notifications', 'ledger');
GRANT SELECT ON notifications TO recado_tenant;
-- The relay inserts notifications; a tenant marks them as read.
GRANT UPDATE (read_at) ON notifications TO recado_tenant;

-- Requests that carried an idempotency key, and their stored responses. Internal: the tenant role cannot read it.
CREATE TABLE idempotency_keys (
  -- The account, or the user on routes without an account.
  scope uuid NOT NULL,
  key text NOT NULL,
  holder uuid NOT NULL,
  leased_until timestamptz NOT NULL,
  -- SHA-256 of method, path and body, and the response, sealed with the server's key. Both are null while the
  -- request runs.
  request_hash bytea,
  response bytea,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT idempotency_keys_pkey PRIMARY KEY (scope, key),
  CONSTRAINT idempotency_keys_response_check CHECK ((request_hash IS NULL) = (response IS NULL))
);
CREATE INDEX idempotency_keys_created_at_idx ON idempotency_keys (created_at);
SELECT set_storage('idempotency_keys', 'queue');

-- Internal: how many idempotency keys a scope claimed on a UTC day. The count is spread over slots, so that
-- concurrent requests of one account do not wait for each other.
CREATE TABLE idempotency_key_counts (
  -- The account, or the user on routes without an account.
  scope uuid NOT NULL,
  day date NOT NULL,
  slot integer NOT NULL,
  keys bigint NOT NULL,
  CONSTRAINT idempotency_key_counts_pkey PRIMARY KEY (scope, day, slot)
);
CREATE INDEX idempotency_key_counts_day_idx ON idempotency_key_counts (day);
SELECT set_storage('idempotency_key_counts', 'counter');

-- Internal: the queue of outgoing mail. The content holds a token, so it is sealed with the server's key and deleted
-- when the mail is sent.
CREATE TABLE outgoing_mail (
  id uuid CONSTRAINT outgoing_mail_pkey PRIMARY KEY,
  account_id uuid NOT NULL,
  content bytea NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  -- No worker claims the row before this time: it is leased, or waits for a retry.
  due_at timestamptz NOT NULL DEFAULT now(),
  created_at timestamptz NOT NULL DEFAULT now()
);
-- The mail worker takes one mail of each account in turn: from one account to the next that has due mail.
CREATE INDEX outgoing_mail_account_id_due_at_idx ON outgoing_mail (account_id, due_at, id);
CREATE INDEX outgoing_mail_due_at_idx ON outgoing_mail (due_at);
SELECT set_storage('outgoing_mail', 'queue');

-- Internal: which addresses were sent mail in the last day, for the limits on mail to one address. The address is a
-- keyed hash, which nobody can revert without `APP_SECRET`.
CREATE TABLE mail_recipients (
  address_hash bytea NOT NULL,
  mail_id uuid NOT NULL,
  account_id uuid NOT NULL,
  mailed_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT mail_recipients_pkey PRIMARY KEY (address_hash, mail_id)
);
-- Without this index, deleting an account scans the rows of all accounts.
CREATE INDEX mail_recipients_account_id_idx ON mail_recipients (account_id);
CREATE INDEX mail_recipients_mailed_at_idx ON mail_recipients (mailed_at);
SELECT set_storage('mail_recipients', 'queue');
