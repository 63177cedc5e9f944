DROP TABLE platform_audit;
DROP FUNCTION refuse_platform_audit_change();
