-- The role stays: it belongs to the cluster, and other databases may use it.
DROP TABLE account_users;
DROP TABLE account_slugs;
DROP TABLE accounts;
DROP TABLE users;
DROP FUNCTION make_tenant_table(regclass, text);
REVOKE USAGE ON SCHEMA public FROM recado_tenant;
