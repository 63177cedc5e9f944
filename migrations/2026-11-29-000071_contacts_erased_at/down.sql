ALTER TABLE contacts DROP COLUMN erased_at;
