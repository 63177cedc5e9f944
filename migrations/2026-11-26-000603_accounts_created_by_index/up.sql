-- Counts the accounts that a user made.
CREATE INDEX CONCURRENTLY accounts_created_by_idx ON accounts (created_by) WHERE created_by IS NOT NULL;
