-- API keys, which programs send instead of a session.

CREATE TABLE api_keys (
  account_id uuid NOT NULL CONSTRAINT api_keys_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  name text NOT NULL,
  key_prefix text NOT NULL,
  key_hint text NOT NULL,
  created_by uuid NOT NULL,
  last_used_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT api_keys_pkey PRIMARY KEY (account_id, id)
);
SELECT make_tenant_table('api_keys');

-- Directory: an API key does not name its account. `key_hash` is the SHA-256 of the whole key.
CREATE TABLE api_key_hashes (
  key_hash bytea CONSTRAINT api_key_hashes_pkey PRIMARY KEY,
  account_id uuid NOT NULL,
  key_id uuid NOT NULL,
  created_by uuid NOT NULL
);
