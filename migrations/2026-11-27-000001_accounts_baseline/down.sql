DROP TABLE invite_tokens;
DROP TABLE team_invites;
DROP TABLE api_key_hashes;
DROP TABLE api_keys;
DROP TABLE account_deletions;
DROP TABLE account_users;
DROP TABLE account_slugs;
DROP TABLE accounts;
DROP TABLE users;
-- The role stays: it belongs to the cluster, and other databases may use it.
REVOKE USAGE ON SCHEMA public FROM recado_tenant;
