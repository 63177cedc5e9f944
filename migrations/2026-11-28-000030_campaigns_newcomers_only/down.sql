ALTER TABLE campaigns DROP COLUMN newcomers_only;
