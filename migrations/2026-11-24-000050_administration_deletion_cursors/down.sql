ALTER TABLE account_deletions DROP COLUMN table_name, DROP COLUMN after;
