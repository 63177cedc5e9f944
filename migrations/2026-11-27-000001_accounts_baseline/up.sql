-- Users, accounts, memberships, API keys and invites.

-- The role that runs every tenant query. It owns nothing, so row-level security applies to it. Citus workers require
-- LOGIN; the role has no password. Roles belong to the cluster, so another database may create it at the same time.
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

CREATE TABLE users (
  id uuid CONSTRAINT users_pkey PRIMARY KEY,
  email text NOT NULL,
  name text,
  -- When the user last ended all sessions. A token that was issued in the second of this time or before is refused.
  sessions_valid_from timestamptz,
  -- Whether the token that brought the name said `email_verified: true`. Mail to other people contains no other
  -- name.
  name_is_verified boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);
SELECT set_storage('users', 'entity');

CREATE TABLE accounts (
  id uuid CONSTRAINT accounts_pkey PRIMARY KEY,
  name text NOT NULL,
  slug text NOT NULL,
  logo_url text,
  plan text NOT NULL DEFAULT 'free',
  status text NOT NULL DEFAULT 'active' CONSTRAINT accounts_status_check CHECK (status IN ('active', 'suspended')),
  -- From this time on no member can access the account, and its rows are being deleted.
  deleting_at timestamptz,
  -- The plan that a platform administrator granted, beside the paid one. `plan` stays the plan that the account
  -- shows.
  granted_plan text,
  -- The user who made the account with `POST /api/accounts`: `ACCOUNTS_PER_USER` limits how many of these the user
  -- owns. Null: a platform administrator made the account.
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX accounts_created_at_idx ON accounts (created_at DESC, id DESC) WHERE deleting_at IS NULL;
-- Counts the accounts that a user made.
CREATE INDEX accounts_created_by_idx ON accounts (created_by) WHERE created_by IS NOT NULL;
SELECT make_tenant_table('accounts', 'id');
SELECT set_storage('accounts', 'entity');
GRANT SELECT ON accounts TO recado_tenant;
-- A change of the subscription also changes the plan; a tenant may update no other column.
GRANT UPDATE (plan, granted_plan, updated_at) ON accounts TO recado_tenant;

-- Directory: slugs are unique across accounts, which a table distributed by account cannot enforce.
CREATE TABLE account_slugs (
  slug text CONSTRAINT account_slugs_pkey PRIMARY KEY,
  account_id uuid NOT NULL
);
-- Without this index, deleting an account scans the rows of all accounts.
CREATE INDEX account_slugs_account_id_idx ON account_slugs (account_id);
SELECT set_storage('account_slugs', 'entity');

CREATE TABLE account_users (
  account_id uuid NOT NULL CONSTRAINT account_users_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  user_id uuid NOT NULL CONSTRAINT account_users_user_id_fkey REFERENCES users (id),
  role text NOT NULL CONSTRAINT account_users_role_check CHECK (role IN ('owner', 'admin', 'member', 'viewer')),
  last_active_at timestamptz,
  -- The membership of a platform administrator in support mode. It expires on its own.
  is_support boolean NOT NULL DEFAULT false,
  expires_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT account_users_pkey PRIMARY KEY (account_id, user_id),
  CONSTRAINT account_users_is_support_check CHECK (is_support = (expires_at IS NOT NULL))
);
CREATE INDEX account_users_expires_at_idx ON account_users (expires_at) WHERE is_support;
CREATE INDEX account_users_user_id_idx ON account_users (user_id);
SELECT make_tenant_table('account_users');
SELECT set_storage('account_users', 'entity');
GRANT SELECT ON account_users TO recado_tenant;

-- Internal: account deletions that are not complete. The process that began one may have crashed, so any worker
-- resumes it.
CREATE TABLE account_deletions (
  account_id uuid CONSTRAINT account_deletions_pkey PRIMARY KEY,
  -- No worker claims the row before this time: it is leased, or waits for a retry.
  due_at timestamptz NOT NULL,
  -- Progress: the table that is being emptied, and the primary key of the last deleted row.
  table_name text,
  after text[],
  created_at timestamptz NOT NULL DEFAULT now()
);
SELECT set_storage('account_deletions', 'queue');

CREATE TABLE api_keys (
  account_id uuid NOT NULL CONSTRAINT api_keys_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  name text NOT NULL,
  key_prefix text NOT NULL,
  key_hint text NOT NULL,
  last_used_at timestamptz,
  -- What the key may be used for, from where and until when.
  scopes text[] NOT NULL DEFAULT '{*}',
  expires_at timestamptz,
  allowed_cidrs text[] NOT NULL DEFAULT '{}',
  last_used_ip text,
  rotated_at timestamptz,
  previous_valid_until timestamptz,
  -- SHA-256 of the idempotency key of the last rotation.
  rotation_request bytea,
  -- The latest notification about `expires_at`: none, week, day or expired.
  expiry_notice text NOT NULL DEFAULT 'none',
  unused_notified_at timestamptz,
  -- The lease of the worker that writes the notifications.
  notice_lease_until timestamptz,
  created_by uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  version bigint NOT NULL DEFAULT 1,
  CONSTRAINT api_keys_pkey PRIMARY KEY (account_id, id)
);
CREATE INDEX api_keys_expiry_notice_idx ON api_keys (expiry_notice, expires_at) WHERE expires_at IS NOT NULL;
-- GREATEST ignores nulls: the latest of creation or last use, and the last notification about it.
CREATE INDEX api_keys_unused_since_idx ON api_keys (GREATEST(COALESCE(last_used_at, created_at), unused_notified_at));
SELECT make_tenant_table('api_keys');
SELECT set_storage('api_keys', 'entity');
GRANT SELECT ON api_keys TO recado_tenant;

-- Directory: an API key does not name its account. `key_hash` is the SHA-256 of the whole key.
CREATE TABLE api_key_hashes (
  key_hash bytea CONSTRAINT api_key_hashes_pkey PRIMARY KEY,
  account_id uuid NOT NULL,
  key_id uuid NOT NULL,
  -- Until when the secret before the last rotation works. Null: the current secret.
  valid_until timestamptz,
  created_by uuid NOT NULL
);
-- An API key is deleted by account and id, but the primary key of this directory is the hash.
CREATE INDEX api_key_hashes_key_id_idx ON api_key_hashes (account_id, key_id);
SELECT set_storage('api_key_hashes', 'entity');

CREATE TABLE team_invites (
  account_id uuid NOT NULL CONSTRAINT team_invites_account_id_fkey REFERENCES accounts (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  email text NOT NULL,
  role text NOT NULL CONSTRAINT team_invites_role_check CHECK (role IN ('owner', 'admin', 'member', 'viewer')),
  status text NOT NULL DEFAULT 'pending'
    CONSTRAINT team_invites_status_check CHECK (status IN ('pending', 'accepted', 'expired', 'revoked')),
  invited_by uuid NOT NULL,
  expires_at timestamptz NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT team_invites_pkey PRIMARY KEY (account_id, id)
);
CREATE UNIQUE INDEX team_invites_pending_unique ON team_invites (account_id, lower(email)) WHERE status = 'pending';
SELECT make_tenant_table('team_invites');
SELECT set_storage('team_invites', 'entity');
GRANT SELECT ON team_invites TO recado_tenant;

-- Directory: an invite token does not name its account. `token_hash` is the SHA-256 of the token. The row is deleted
-- when the invite is accepted, revoked or expired.
CREATE TABLE invite_tokens (
  token_hash bytea CONSTRAINT invite_tokens_pkey PRIMARY KEY,
  account_id uuid NOT NULL,
  invite_id uuid NOT NULL
);
CREATE INDEX invite_tokens_invite_id_idx ON invite_tokens (account_id, invite_id);
SELECT set_storage('invite_tokens', 'entity');
