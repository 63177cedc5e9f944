ALTER TABLE contacts DROP COLUMN time_zone;
