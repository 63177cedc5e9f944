ALTER TABLE campaigns DROP COLUMN version;
