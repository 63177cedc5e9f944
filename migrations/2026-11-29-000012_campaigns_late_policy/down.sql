ALTER TABLE campaigns DROP COLUMN late_policy, DROP COLUMN skipped_at;
