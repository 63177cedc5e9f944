-- Accounts, users and memberships, and the role that runs every tenant query.

-- A non-owner role, so that row-level security applies to it. Citus workers require LOGIN; the role has no password.
-- Roles belong to the cluster, so another database may create it at the same time.
DO $$
BEGIN
  CREATE ROLE recado_tenant LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS;
EXCEPTION
  WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;

DO $$
BEGIN
  IF NOT pg_has_role(current_user, 'recado_tenant', 'MEMBER') THEN
    EXECUTE format('GRANT recado_tenant TO %I', current_user);
  END IF;
EXCEPTION
  WHEN unique_violation THEN NULL;
END
$$;

GRANT USAGE ON SCHEMA public TO recado_tenant;

-- Enables row-level security: only rows of the account in `app.account_id` are visible and writable; without that
-- setting, none are. The policy has no sub-select because Citus rejects those. It becomes a one-time filter when the
-- query names the account.
CREATE FUNCTION make_tenant_table(name regclass, account_column text DEFAULT 'account_id') RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  own text := format('%I = nullif(current_setting(''app.account_id'', true), '''')::uuid', account_column);
BEGIN
  EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', name);
  EXECUTE format('CREATE POLICY tenant_isolation ON %s USING (%s) WITH CHECK (%s)', name, own, own);
  EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO recado_tenant', name);
END
$$;

CREATE TABLE users (
  id uuid CONSTRAINT users_pkey PRIMARY KEY,
  email text NOT NULL,
  name text,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE accounts (
  id uuid CONSTRAINT accounts_pkey PRIMARY KEY,
  name text NOT NULL,
  slug text NOT NULL,
  logo_url text,
  plan text NOT NULL DEFAULT 'free',
  status text NOT NULL DEFAULT 'active' CONSTRAINT accounts_status_check CHECK (status IN ('active', 'suspended')),
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);
SELECT make_tenant_table('accounts', 'id');
-- A tenant reads its own account; only the owner role writes it.
REVOKE INSERT, UPDATE, DELETE ON accounts FROM recado_tenant;

-- Directory: slugs are unique across accounts, which a table distributed by account cannot enforce.
CREATE TABLE account_slugs (
  slug text CONSTRAINT account_slugs_pkey PRIMARY KEY,
  account_id uuid NOT NULL
);

CREATE TABLE account_users (
  account_id uuid NOT NULL CONSTRAINT account_users_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  user_id uuid NOT NULL CONSTRAINT account_users_user_id_fkey REFERENCES users (id),
  role text NOT NULL CONSTRAINT account_users_role_check CHECK (role IN ('owner', 'admin', 'member', 'viewer')),
  last_active_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT account_users_pkey PRIMARY KEY (account_id, user_id)
);
CREATE INDEX account_users_user_id_idx ON account_users (user_id);
SELECT make_tenant_table('account_users');
