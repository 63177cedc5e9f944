ALTER TABLE campaigns DROP COLUMN archiving_at, DROP COLUMN archived_at;
