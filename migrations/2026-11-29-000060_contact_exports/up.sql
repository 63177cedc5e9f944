-- Files with all that is held of a contact. They are stored until `expires_at`.
CREATE TABLE contact_exports (
  account_id uuid NOT NULL,
  id uuid NOT NULL,
  contact_id uuid NOT NULL,
  state text NOT NULL DEFAULT 'running' CONSTRAINT contact_exports_state_check CHECK (state IN ('running', 'done')),
  requested_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  -- When a worker writes the file, or may take it over. Null: it is written.
  due_at timestamptz,
  -- The key of the file, and the fencing token of the attempt. Null before the first one.
  file_key uuid,
  -- The keys of attempts that did not end.
  abandoned uuid[] NOT NULL DEFAULT '{}',
  size bigint,
  sha256 bytea,
  CONSTRAINT contact_exports_pkey PRIMARY KEY (account_id, id),
  CONSTRAINT contact_exports_contact_id_fkey FOREIGN KEY (account_id, contact_id) REFERENCES contacts (account_id, id)
);
CREATE INDEX contact_exports_contact_id_idx ON contact_exports (account_id, contact_id);
CREATE INDEX contact_exports_due_at_idx ON contact_exports (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX contact_exports_expires_at_idx ON contact_exports (expires_at);
SELECT make_tenant_table('contact_exports');
SELECT set_storage('contact_exports', 'entity');
GRANT SELECT, INSERT ON contact_exports TO recado_tenant;
