-- Grants alone keep the log append-only: a superuser could drop a trigger as well.
DROP TRIGGER platform_audit_append_only ON platform_audit;
DROP FUNCTION refuse_platform_audit_change();
