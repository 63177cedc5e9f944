ALTER TABLE accounts DROP COLUMN created_by;
