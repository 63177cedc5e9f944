ALTER TABLE contacts DROP COLUMN version;
