-- How long an account keeps its rows, and what of them was removed.

-- The terms of an account, and the queue of its runs. A run is a lease: `claim_id` until `leased_until`.
CREATE TABLE retention_settings (
  account_id uuid NOT NULL CONSTRAINT retention_settings_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  -- The term of each kind of rows.
  terms jsonb NOT NULL DEFAULT '{}',
  version bigint NOT NULL DEFAULT 0,
  -- Null: the account keeps everything.
  next_run_at timestamptz,
  leased_until timestamptz,
  claim_id uuid,
  last_run_at timestamptz,
  -- The rows of each kind that were over their term at the end of the last run.
  would_remove jsonb NOT NULL DEFAULT '{}',
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT retention_settings_pkey PRIMARY KEY (account_id)
);
CREATE INDEX retention_settings_next_run_at_idx ON retention_settings (next_run_at) WHERE next_run_at IS NOT NULL;
SELECT make_tenant_table('retention_settings');
SELECT set_storage('retention_settings', 'entity');
GRANT SELECT, INSERT, UPDATE ON retention_settings TO recado_tenant;

-- From which time on an account has all rows of a table. Rollups are not compared with rows before it.
CREATE TABLE retention_horizons (
  account_id uuid NOT NULL CONSTRAINT retention_horizons_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  table_name text NOT NULL,
  retained_from timestamptz NOT NULL,
  CONSTRAINT retention_horizons_pkey PRIMARY KEY (account_id, table_name)
);
SELECT make_tenant_table('retention_horizons');
SELECT set_storage('retention_horizons', 'entity');
GRANT SELECT ON retention_horizons TO recado_tenant;

-- The files with the sends of ended campaigns.
CREATE TABLE campaign_archives (
  account_id uuid NOT NULL,
  campaign_id uuid NOT NULL,
  -- The key of the file. Each attempt to write it has another key.
  file_key uuid NOT NULL,
  -- The keys of attempts that did not end. Their files may exist.
  abandoned uuid[] NOT NULL DEFAULT '{}',
  -- Null until the file was read back and has the sends that the counters count.
  verified_at timestamptz,
  size bigint,
  sha256 bytea,
  sends bigint,
  -- The months whose quota the sends used. The usage of these months is not compared with sends.
  months date[] NOT NULL DEFAULT '{}',
  -- When the last send was removed from the table.
  removed_at timestamptz,
  -- The file and the counters disagreed: the next attempt is not before.
  retry_at timestamptz,
  -- When the account was first notified of that.
  reported_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT campaign_archives_pkey PRIMARY KEY (account_id, campaign_id),
  CONSTRAINT campaign_archives_campaign_id_fkey FOREIGN KEY (account_id, campaign_id)
    REFERENCES campaigns (account_id, id)
);
SELECT make_tenant_table('campaign_archives');
SELECT set_storage('campaign_archives', 'entity');
GRANT SELECT ON campaign_archives TO recado_tenant;

-- The references of direct messages that were removed: a reference is never used twice.
CREATE TABLE direct_message_references (
  account_id uuid NOT NULL
    CONSTRAINT direct_message_references_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  client_reference text NOT NULL,
  message_id uuid NOT NULL,
  status text NOT NULL,
  -- A hash of id and request, which recognizes a repetition. Null: any request is one.
  request_hash bytea,
  CONSTRAINT direct_message_references_pkey PRIMARY KEY (account_id, client_reference)
);
SELECT make_tenant_table('direct_message_references');
SELECT set_storage('direct_message_references', 'ledger');
GRANT SELECT ON direct_message_references TO recado_tenant;
