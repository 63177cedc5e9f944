-- WhatsApp's user ids of contacts. Every business portfolio gets its own id of a person.

CREATE TABLE contact_identities (
  account_id uuid NOT NULL CONSTRAINT contact_identities_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  -- The portfolio of the number that reported the id, or its WhatsApp account while the portfolio is not known.
  scope text NOT NULL,
  wa_user_id text NOT NULL,
  contact_id uuid NOT NULL,
  -- The id that is valid for all portfolios of a parent business.
  parent_user_id text,
  username text,
  first_seen_at timestamptz NOT NULL,
  last_seen_at timestamptz NOT NULL,
  CONSTRAINT contact_identities_pkey PRIMARY KEY (account_id, scope, wa_user_id),
  CONSTRAINT contact_identities_contact_id_scope_unique UNIQUE (account_id, contact_id, scope),
  CONSTRAINT contact_identities_contact_id_fkey FOREIGN KEY (account_id, contact_id)
    REFERENCES contacts (account_id, id) ON DELETE CASCADE
);
CREATE INDEX contact_identities_wa_user_id_idx ON contact_identities (account_id, wa_user_id);
CREATE INDEX contact_identities_parent_user_id_idx ON contact_identities (account_id, parent_user_id)
  WHERE parent_user_id IS NOT NULL;
SELECT make_tenant_table('contact_identities');
SELECT set_storage('contact_identities', 'entity');
GRANT SELECT, INSERT, UPDATE, DELETE ON contact_identities TO recado_tenant;
