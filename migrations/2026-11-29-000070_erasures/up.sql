-- The receipts of erasures, which are the work of their worker, too.
CREATE TABLE erasures (
  account_id uuid NOT NULL,
  id uuid NOT NULL,
  contact_id uuid NOT NULL,
  state text NOT NULL DEFAULT 'running' CONSTRAINT erasures_state_check CHECK (state IN ('running', 'done')),
  reason text,
  requested_at timestamptz NOT NULL,
  finished_at timestamptz,
  -- What was removed so far, by kind.
  removed jsonb NOT NULL DEFAULT '{}',
  -- What copies of the person are found by. Null once all are removed.
  marks jsonb,
  -- Transactions up to this one may still write what they read before the request.
  transaction_id bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
  -- The step that is next, and the last key of it.
  step text NOT NULL,
  after text,
  -- When a worker goes on, or may take it over. Null: it is done.
  due_at timestamptz,
  -- Fencing token.
  claim_id uuid,
  CONSTRAINT erasures_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT erasures_contact_id_unique UNIQUE (account_id, contact_id),
  CONSTRAINT erasures_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES contacts (account_id, id),
  CONSTRAINT erasures_marks_check CHECK ((state = 'running') = (marks IS NOT NULL))
);
CREATE INDEX erasures_due_at_idx ON erasures (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX erasures_running_idx ON erasures (account_id) WHERE state = 'running';
SELECT make_tenant_table('erasures');
SELECT set_storage('erasures', 'entity');
GRANT SELECT, INSERT ON erasures TO recado_tenant;

-- Opt-outs that outlive their contacts: keyed hashes of phone numbers and user ids.
CREATE TABLE erased_opt_outs (
  account_id uuid NOT NULL,
  hash bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT erased_opt_outs_pkey PRIMARY KEY (account_id, hash)
);
SELECT make_tenant_table('erased_opt_outs');
SELECT set_storage('erased_opt_outs', 'entity');
GRANT SELECT, INSERT, DELETE ON erased_opt_outs TO recado_tenant;
