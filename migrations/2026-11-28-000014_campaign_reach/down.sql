ALTER TABLE campaigns DROP COLUMN reach;
