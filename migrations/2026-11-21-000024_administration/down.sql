DROP INDEX billing_history_paid_at_idx;
DROP INDEX messages_outbound_idx;
DROP TABLE gateway_cancellations;
DROP TABLE account_deletions;
DROP INDEX accounts_created_at_idx;
ALTER TABLE accounts DROP COLUMN deleting_at;
ALTER TABLE campaign_queue DROP COLUMN support_admin;
DELETE FROM account_users WHERE is_support;
ALTER TABLE account_users
  DROP CONSTRAINT account_users_is_support_check,
  DROP COLUMN expires_at,
  DROP COLUMN is_support;
