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
CREATE INDEX platform_audit_created_at_idx ON platform_audit (created_at DESC, id DESC);
CREATE INDEX platform_audit_account_id_idx ON platform_audit (account_id, created_at DESC, id DESC)
  WHERE account_id IS NOT NULL;
CREATE INDEX platform_audit_user_id_idx ON platform_audit (user_id, created_at DESC, id DESC);

-- Append-only, also for the owner of the database.
DO $$
BEGIN
  EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON platform_audit FROM %I', current_user);
END
$$;

-- A superuser needs no grants, so a trigger refuses the rest.
CREATE FUNCTION refuse_platform_audit_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'platform_audit is append-only' USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER platform_audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON platform_audit
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_platform_audit_change();
