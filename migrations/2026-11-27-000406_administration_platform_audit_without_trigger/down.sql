-- A superuser needs no grants, so a trigger refuses the rest.
CREATE FUNCTION refuse_platform_audit_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'platform_audit is append-only' USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER platform_audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON platform_audit
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_platform_audit_change();
